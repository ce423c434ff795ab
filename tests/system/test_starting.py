"""Limits are set while the child waits at its gate, and a start that fails leaves nothing."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from latch.errors import ContainmentError, LatchError, PeerGone, SandboxUnavailable, StoreError
from latch.limits import ResourceLimits
from latch.settings import SandboxSettings
from latch.system import cgroup
from latch.system.scope import CancelToken, Scope
from tests.support.census import descriptors, eventually, opened_since
from tests.support.fake_bwrap import old_bwrap, program
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


# -- what changed between the plan and the start


def swapped_by_a_link(victim: Path, secret: Path) -> None:
    victim.rename(victim.with_name("gone"))
    victim.symlink_to(secret)


def swapped_on_the_way(victim: Path, secret: Path) -> None:
    swapped_by_a_link(victim.parent, secret.parent)


def swapped_by_a_file(victim: Path, secret: Path) -> None:
    victim.rename(victim.with_name("gone"))
    victim.touch()


def removed(victim: Path, secret: Path) -> None:
    victim.rename(victim.with_name("gone"))


LINKED = (swapped_by_a_link, swapped_on_the_way, removed)


@pytest.fixture(params=["", "0.4.0"])
def either(request: pytest.FixtureRequest, place: Place, tmp_path: Path, sandbox: Path) -> Place:
    """A user of today's bubblewrap, and one of the oldest."""
    return place.with_settings(bwrap=old_bwrap(tmp_path / "bwrap", sandbox)) if request.param else place


@pytest.mark.parametrize(
    ("victim", "swap"),
    [
        *[(victim, swap) for victim in (".agents", ".", "ro_paths") for swap in LINKED],
        (".agents", swapped_by_a_file),
        (".", swapped_by_a_file),
    ],
)
def test_t1_what_changed_since_it_was_planned_refuses_the_start_and_is_named(
    either: Place, victim: str, swap: Callable[[Path, Path], None]
) -> None:
    secret = either.home / "secret" / ".agents"
    secret.mkdir(parents=True)
    (secret / "key").write_text("secret")
    shown = either.home / "elsewhere" / "shown"
    shown.mkdir(parents=True)
    (either.workspace / ".agents").mkdir()
    holder, scope = either.sandbox, Scope.root(20)
    features = holder.ready(scope, wanted="a tool").features
    if victim == "ro_paths":
        path = shown
        prepared = holder.planner.prepare_peer(
            "it", "/bin/cat", (), workspace=either.workspace, environment={}, ro_paths=(shown,),
            features=features,
        )  # fmt: skip
    else:
        path = Path(os.path.normpath(either.workspace / victim))
        prepared = holder.planner.prepare_command(
            ("cat", ".agents/key"), workspace=either.workspace, writable=True, network=False,
            features=features,
        )  # fmt: skip
    swap(path, secret)
    before = descriptors()
    with pytest.raises(ContainmentError, match="changed while it was being started"):
        holder.start(prepared, scope)
    assert eventually(lambda: all("ledger" in text for text in opened_since(before)))


def test_t1_what_changes_while_bubblewrap_starts_is_found_before_anything_runs(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    (place.workspace / ".agents").mkdir()
    (place.workspace / ".agents" / "key").write_text("own")
    (place.home / "secret").mkdir()
    (place.home / "secret" / "key").write_text("secret")
    switch = tmp_path / "switch"
    swap = f"cd {place.workspace} && mv .agents gone && ln -s ../../secret .agents"
    between = (
        f'#!/bin/sh\n[ -e "{switch}" ] && [ "$1" = --args ] && (rm {switch}; {swap})\nexec {sandbox} "$@"\n'
    )
    place = place.with_settings(bwrap=program(tmp_path / "bwrap", between))
    place.sandbox.ready(Scope.root(20), wanted="a tool", network=False)
    switch.touch()
    with pytest.raises(LatchError) as caught:
        place.run("cat", ".agents/key", writable=True)
    assert not switch.exists()
    assert "secret" not in str(caught.value)


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


def test_a_bubblewrap_killed_before_the_sandbox_was_set_up_is_a_peer_that_is_gone(
    place: Place, sandbox: Path, tmp_path: Path
) -> None:
    switch = tmp_path / "switch"
    dying = f'#!/bin/sh\n[ -e "{switch}" ] && [ "$1" = --args ] && kill -9 $$\nexec {sandbox} "$@"\n'
    place = place.with_settings(bwrap=program(tmp_path / "bwrap", dying))
    place.sandbox.ready(Scope.root(20), wanted="a tool", network=False)
    switch.touch()
    error = fails(place)
    assert isinstance(error, PeerGone)
    assert error.status == 137
    assert str(error) == 'command "touch": bubblewrap died of signal 9 before the sandbox was set up'


def test_t16_a_limit_that_was_promised_and_cannot_be_set_refuses_the_start(
    place: Place, sandbox: Path
) -> None:
    if os.getuid() != 0 or not _has_pids_group():
        pytest.skip("only root is bound by a control group")
    # More than the kernel takes as pids.max.
    resources = replace(place.settings.resources, max_processes=1 << 40)
    error = fails(place.with_settings(resources=resources))
    assert isinstance(error, SandboxUnavailable)
    assert "the limit on its number of processes could not be set" in str(error)
    assert place.sandbox.own_entries() == []


def test_an_interrupt_during_a_start_leaks_no_descriptor(place: Place, sandbox: Path) -> None:
    holder = place.sandbox
    prepared = place.prepare("true")
    bubblewrap = holder.ready(Scope.root(20), wanted="a tool", network=False)

    class Interrupted(Scope):
        def wait(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    names = ("deadline", "seconds", "tokens", "peer", "stage")
    known = {name: getattr(Scope.root(20), name) for name in names}
    scope = Interrupted(**known, own=True, missing=None, clock=time.monotonic)
    before = descriptors()
    with pytest.raises(KeyboardInterrupt):
        holder._start(bubblewrap, prepared, scope, stdin=None)
    assert eventually(
        lambda: opened_since(before) == [] or all("ledger" in text for text in opened_since(before))
    )
