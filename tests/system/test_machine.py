"""A machine is a snapshot of user, places and environment, sound whatever the environment holds."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from latch.settings import SandboxSettings
from latch.system.machine import DEFAULT_PATH, Machine


def entry_home() -> Path:
    """The home that the password database gives this user."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def test_the_user_is_the_one_of_this_process() -> None:
    machine = Machine.read({})
    assert (machine.uid, machine.gid) == (os.getuid(), os.getgid())
    assert machine.user == pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({"HOME": "/home/x"}, Path("/home/x")),
        ({"HOME": "/home/x/"}, Path("/home/x")),
        ({"HOME": ""}, None),
        ({"HOME": "relative"}, None),
        ({}, None),
    ],
)
def test_home_is_the_operators_and_always_absolute(environment: dict[str, str], home: Path | None) -> None:
    assert Machine.read(environment).home == (home or entry_home())


@pytest.mark.parametrize(
    ("environment", "latch", "latchkey"),
    [
        ({"HOME": "/h"}, "/h/.latch", "/h/.latchkey"),
        ({"HOME": "/h", "LATCH_DIRECTORY": "/a/b"}, "/a/b", "/h/.latchkey"),
        ({"HOME": "/h", "LATCHKEY_DIRECTORY": "/a/../b"}, "/h/.latch", "/b"),
        ({"HOME": "/h", "LATCH_DIRECTORY": "", "LATCHKEY_DIRECTORY": ""}, "/h/.latch", "/h/.latchkey"),
    ],
)
def test_our_directories_are_named_or_lie_below_home(
    environment: dict[str, str], latch: str, latchkey: str
) -> None:
    machine = Machine.read(environment)
    assert (machine.latch_directory, machine.latchkey_directory) == (Path(latch), Path(latchkey))
    assert machine.state_directory == Path(latch) / "state"


def test_a_relative_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Machine.read({"LATCH_DIRECTORY": "here"}).latch_directory == tmp_path / "here"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"PATH": "/a:/b"}, "/a:/b"), ({"PATH": ""}, DEFAULT_PATH), ({}, DEFAULT_PATH)],
)
def test_the_search_path_is_the_operators_or_the_systems(environment: dict[str, str], expected: str) -> None:
    assert Machine.read(environment).search_path == expected


def test_a_user_without_an_entry_has_a_number_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    machine = Machine.read({})
    assert (machine.user, machine.home) == ("3999999999", Path("/"))
    assert Machine.read({"HOME": "/h"}).home == Path("/h")


def test_a_snapshot_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCH_TEST_VALUE", "before")
    machine = Machine.read()
    monkeypatch.setenv("LATCH_TEST_VALUE", "after")
    assert machine.environment["LATCH_TEST_VALUE"] == "before"
    assert Machine.read().environment["LATCH_TEST_VALUE"] == "after"
    with pytest.raises(TypeError):
        machine.environment["LATCH_TEST_VALUE"] = "x"


def test_reading_creates_nothing(own_home: Path) -> None:
    machine = Machine.read()
    assert machine.home == own_home
    assert not machine.latch_directory.exists()
    assert not machine.state_directory.exists()


def test_the_state_lies_where_settings_say_and_by_default_in_our_directory() -> None:
    machine = Machine.read({"LATCH_DIRECTORY": "/ours"})
    assert machine.state_directory_of(SandboxSettings()) == Path("/ours/state")
    assert machine.state_directory_of(SandboxSettings(state_directory=Path("/other"))) == Path("/other")
