"""Limits are set while the child waits at its gate, and a start that fails leaves nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import SandboxUnavailable, StoreError
from latch.limits import ResourceLimits
from latch.settings import SandboxSettings
from latch.system import cgroup
from latch.system.scope import CancelToken, Scope
from tests.support.fake_bwrap import program
from tests.support.sandboxes import Place, fails, place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A user below the test's own directory."""
    return place_in(tmp_path)


# -- limits, while it waits at its gate


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("max_open_files", 77, "Max open files 77 77"),
        ("max_core_bytes", 0, "Max core file size 0 0"),
        ("max_file_bytes", 1234567, "Max file size 1234567 1234567"),
        ("max_processes", 77, "Max processes 77 77"),
    ],
)
def test_t16_limits_are_set_before_the_first_instruction(
    place: Place, sandbox: Path, name: str, value: int, shown: str
) -> None:
    if name == "max_processes" and _counts_every_task():
        pytest.skip("this kernel counts every task of the user")
    resources = replace(place.settings.resources, **{name: value})
    said = place.with_settings(resources=resources).say("cat", "/proc/self/limits")
    assert any(" ".join(line.split()).startswith(shown) for line in said.splitlines())


def _counts_every_task() -> bool:
    return tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (5, 14)


def test_the_limits_are_those_of_the_configuration_or_the_promised_ones() -> None:
    resources = SandboxSettings().resources
    assert resources == ResourceLimits()
    assert (resources.max_processes, resources.max_open_files) == (512, 4096)
    assert (resources.max_core_bytes, resources.max_file_bytes) == (0, 4 << 30)


def test_t16_the_plan_says_where_root_has_no_process_limit(place: Place) -> None:
    unbounded = os.getuid() == 0 and not _has_pids_group()
    assert ("no process limit (root)" in place.plan().missing) == unbounded


def _has_pids_group() -> bool:
    group = cgroup.make_pids_group(f"latch-test-{os.getpid()}", 1)
    if group is not None:
        cgroup.remove_pids_group(group)
    return group is not None


# -- failures of the start


def test_a_state_directory_that_cannot_be_made_is_named_with_the_cure(place: Place, sandbox: Path) -> None:
    error = fails(place.with_settings(state_directory=Path("/proc/no-such-place")))
    assert isinstance(error, StoreError)
    assert "/proc/no-such-place" in str(error)
    assert "LATCH_DIRECTORY" in (error.hint or "")


def test_a_home_that_cannot_be_written_is_named_with_the_cure(place: Place, sandbox: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root writes every directory")
    place.home.chmod(0o500)
    try:
        error = fails(place)
    finally:
        place.home.chmod(0o700)
    assert isinstance(error, StoreError)
    assert "LATCH_DIRECTORY" in (error.hint or "")


def test_a_bubblewrap_that_vanishes_after_its_probe_is_told_so(
    place: Place, sandbox: Path, tmp_path: Path
) -> None:
    own = program(tmp_path / "bwrap", f'#!/bin/sh\nexec {sandbox} "$@"\n')
    place = place.with_settings(bwrap=own)
    holder = place.sandbox
    bubblewrap = holder.ready(Scope.root(20), wanted="a tool", network=False)
    prepared = holder.planner.prepare_command(
        ("true",), workspace=place.workspace, writable=False, network=False, features=bubblewrap.features
    )
    own.unlink()
    with pytest.raises(SandboxUnavailable) as caught:
        holder.start(prepared, Scope.root(20))
    assert caught.value.cause == "absent"


def test_a_cancelled_start_starts_nothing(place: Place, sandbox: Path) -> None:
    token = CancelToken()
    scope = Scope.root(20).also(token)
    holder = place.sandbox
    bubblewrap = holder.ready(scope, wanted="a tool", network=False)
    prepared = holder.planner.prepare_command(
        ("touch", "ran"),
        workspace=place.workspace,
        writable=True,
        network=False,
        features=bubblewrap.features,
    )
    token.cancel("enough")
    with pytest.raises(BaseException, match="enough"):
        holder.start(prepared, scope)
    assert not (place.workspace / "ran").exists()
