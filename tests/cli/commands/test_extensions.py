"""cli/commands/extensions.py: the list of what is configured, and which of it a check starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Operator, listing
from tests.support.fake_bwrap import RAN, failing_bwrap


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_the_list_is_a_table_of_every_entry(operator: Operator) -> None:
    operator.configure(
        {"name": "lint", "command": "python3", "args": ["/opt/lint.py", "-x"]},
        {"name": "offline-one", "command": "node", "network": False, "enabled": False},
    )
    done = operator.run("extensions")
    assert (done.status, done.err) == (0, b"")
    assert done.text.splitlines() == [
        "NAME         ENABLED  NETWORK  COMMAND",
        "lint         yes      on       python3 /opt/lint.py -x",
        "offline-one  no       off      node",
    ]


@pytest.mark.parametrize("arguments", [("--json", "extensions"), ("extensions", "--json")])
def test_the_list_as_json(operator: Operator, arguments: tuple[str, ...]) -> None:
    operator.configure({"name": "lint", "command": "python3", "args": ["-x"], "cwd": "workspace"})
    assert operator.run(*arguments).value == {
        "v": 1,
        "file": str(operator.file),
        "extensions": [
            {
                "name": "lint",
                "enabled": True,
                "command": "python3",
                "args": ["-x"],
                "network": True,
                "cwd": "workspace",
            }
        ],
    }


def test_with_none_configured_the_place_to_do_so_is_named(operator: Operator) -> None:
    done = operator.run("extensions")
    assert (done.status, done.text) == (
        0,
        f"no extensions are configured; add [[extensions]] to {operator.file}\n",
    )
    assert operator.run("extensions", "--json").value == {
        "v": 1,
        "file": str(operator.file),
        "extensions": [],
    }


def test_a_list_creates_nothing_and_starts_nothing(operator: Operator) -> None:
    operator.configure(operator.program(operator.place / "absent.py"))
    before = listing(operator.place)
    assert operator.run("extensions").status == 0
    assert operator.run("extensions", "--json").status == 0
    assert listing(operator.place) == before


def test_hidden_characters_of_a_command_reach_no_terminal_raw(operator: Operator) -> None:
    operator.configure({"name": "lint", "command": "python3", "args": ["\x1b[31m\u202e"]})
    with operator.on_terminal("extensions") as terminal:
        screen = terminal.finish().said
    assert "\x1b" not in screen and "\\x1b[31m\\u{202E}" in screen


def test_only_what_is_enabled_is_checked(operator: Operator, sandbox: Path) -> None:
    operator.configure(operator.peer(), operator.peer("--misbehave", "silent", name="off", enabled=False))
    done = operator.run("extensions", "--check", "--json")
    assert (done.status, [one["name"] for one in done.value["extensions"]], done.err) == (0, ["one"], b"")
    assert operator.left() == []


def test_a_trace_checks_the_one_that_is_named_even_a_disabled_one(operator: Operator, sandbox: Path) -> None:
    operator.configure(operator.peer("--misbehave", "silent"), operator.peer(name="off", enabled=False))
    done = operator.run("extensions", "--trace", "off", "--json")
    assert (done.status, [one["name"] for one in done.value["extensions"]]) == (0, ["off"])


def test_a_trace_of_an_unknown_name_says_which_are_known(operator: Operator) -> None:
    done = operator.run("extensions", "--trace", "one", "--json")
    assert (done.status, done.error["hint"]) == (
        2,
        f"none is configured; add [[extensions]] to {operator.file}",
    )
    operator.configure(operator.peer(), operator.peer(name="two"))
    error = operator.run("extensions", "--trace", "three", "--json").error
    assert (error["message"], error["hint"]) == (
        'no extension "three" is configured',
        f"configured in {operator.file}: one, two",
    )


@pytest.mark.parametrize("arguments", [("--check",), ("--trace", "one")])
def test_a_check_without_a_sandbox_runs_nothing(operator: Operator, arguments: tuple[str, ...]) -> None:
    fake = failing_bwrap(
        operator.place / "fake" / "bwrap", "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
    )
    operator.configure(operator.peer(), sandbox={"bwrap": str(fake)})
    done = operator.run("extensions", *arguments, "--json")
    assert (done.status, done.error["code"]) == (8, "sandbox_unavailable")
    assert "nothing was run unsandboxed" in done.error["message"]
    assert fake.with_name(RAN).exists() and operator.left() == []


def test_a_fault_in_the_configuration_ends_it_before_anything_starts(operator: Operator) -> None:
    operator.configure({"name": "lint", "command": "python3", "shell": True})
    for arguments in ((), ("--check",)):
        done = operator.run("extensions", *arguments, "--json")
        assert (done.status, done.error["code"]) == (2, "config")
        assert "shell" in done.error["message"]
