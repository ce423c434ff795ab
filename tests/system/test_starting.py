"""Limits are set while the child waits at its gate, and a start that fails leaves nothing."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from latch.errors import ContainmentError, DeadlineMissed, LatchError, SandboxUnavailable, StoreError
from latch.limits import ResourceLimits
from latch.settings import SandboxSettings
from latch.system import cgroup
from latch.system.scope import CancelToken, Scope
from tests.support.census import descriptors, eventually, opened_since
from tests.support.fake_bwrap import old_bwrap, outliving_bwrap, program, spoiling_bwrap
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


# -- a bubblewrap that goes bad between its probe and the open gate

# Speaks on the descriptors that the plan names, in the place of bubblewrap.
SPEAKER = """#!{python} -IS
import os, subprocess, sys, time
content = os.pread(int(sys.argv[2]), 1 << 20, 0).split(b"\\0")
info, status = (int(content[content.index(name) + 1]) for name in (b"--info-fd", b"--json-status-fd"))
{does}
"""
NAMES_A_PROCESS = """
sleeper = subprocess.Popen(["sleep", "1000"])
os.write(info, b'{"child-pid": %d}' % sleeper.pid)
os.close(info)
time.sleep(1000)
"""


@pytest.fixture
def spoiling(place: Place, tmp_path: Path, sandbox: Path, ms: float) -> Callable[..., Place]:
    """Make a user whose bubblewrap passes its probe and then does something else."""

    def make(does: str, *, speaker: str = "", patience: float = 5000 * ms) -> Place:
        if speaker:
            text = SPEAKER.format(python=sys.executable, does=speaker)
            does = f'exec {program(tmp_path / "speaker", text)} "$@"'
        own = place.with_settings(bwrap=spoiling_bwrap(tmp_path / "bwrap", sandbox, does))
        own.sandbox.ready(Scope.root(20), wanted="a tool", network=False)
        process = replace(place.limits.process, probe_seconds=patience)
        return replace(own, limits=replace(place.limits, process=process))

    return make


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("kill -KILL $$", "bwrap died of signal 9"),
        ("kill -SEGV $$", "bwrap died of signal 11"),
        ("exit 139", "bwrap died of signal 11"),
        ("echo oh no >&2; kill -ABRT $$", 'bwrap died of signal 6 (it said: "oh no")'),
        ("echo oh no; kill -ABRT $$", 'bwrap died of signal 6 (it said: "oh no")'),
        ("echo; echo bwrap: oh; echo no; kill -ABRT $$", 'bwrap died of signal 6 (it said: "oh")'),
    ],
)
def test_a_bubblewrap_that_a_signal_ends_before_the_sandbox_is_set_up_has_crashed(
    spoiling: Callable[..., Place], does: str, says: str
) -> None:
    place = spoiling(does)
    error = fails(place)
    assert isinstance(error, SandboxUnavailable) and error.cause == "crash"
    assert str(error) == (
        f'cannot start command "touch": the sandbox broke down: {says}; nothing was run unsandboxed'
    )
    assert "sandbox.bwrap" in error.hint
    assert place.sandbox.own_entries() == []


@pytest.mark.parametrize("words", ["to stdout", "to stderr >&2"])
def test_what_a_bubblewrap_says_before_the_gate_is_quoted_whichever_stream_it_is_on(
    spoiling: Callable[..., Place], words: str
) -> None:
    error = fails(spoiling(f"echo {words}; exit 3"))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unknown"
    said = words.partition(" >")[0]
    assert error.reason.endswith(f'is not known here: exited with status 3 (it said: "{said}")')
    assert error.aftermath == ["nothing was run unsandboxed"]


@pytest.mark.parametrize(
    ("does", "speaker"),
    [("echo stuck; exec sleep 1000", ""), ("echo stuck >&2; exec sleep 1000", ""),
     ("", "print('stuck', flush=True)" + NAMES_A_PROCESS)],
    ids=["names no process", "says so on stderr", "makes no mounts"],
)  # fmt: skip
def test_a_bubblewrap_that_hangs_before_the_gate_is_ended_at_its_own_deadline(
    spoiling: Callable[..., Place], ms: float, does: str, speaker: str
) -> None:
    place = spoiling(does, speaker=speaker, patience=500 * ms)
    began = time.monotonic()
    error = fails(place)
    assert time.monotonic() - began < 2000 * ms
    assert isinstance(error, SandboxUnavailable) and error.cause == "hang"
    assert str(error) == (
        f'cannot start command "touch": bwrap did not finish in time: no sandbox within {500 * ms:g} s '
        '(it said: "stuck"); nothing was run unsandboxed'
    )
    assert place.sandbox.own_entries() == []
    assert eventually(lambda: named_by(place.settings.bwrap.parent) == [])


def named_by(directory: Path) -> list[str]:
    """Return the processes that run a program of *directory*."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(directory) in words and int(name) != os.getpid():
            found.append(name)
    return found


@pytest.mark.parametrize(
    "speaker",
    ["os.closerange(0, 4096); time.sleep(1000)", "os.close(info); time.sleep(1000)"],
    ids=["hears and says nothing", "names no process"],
)
def test_a_bubblewrap_that_gives_up_and_lives_on_hangs_as_well(
    spoiling: Callable[..., Place], speaker: str
) -> None:
    place = spoiling("", speaker=speaker)
    error = fails(place)
    assert isinstance(error, SandboxUnavailable) and error.cause == "hang"
    assert "no sandbox came of it, and it did not end" in error.reason
    assert place.sandbox.own_entries() == []


def test_a_bubblewrap_that_tells_of_an_end_before_the_gate_claims_too_much(
    spoiling: Callable[..., Place],
) -> None:
    error = fails(spoiling("", speaker="os.write(status, b'{\"exit-code\": 0}\\n')"))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unsound"
    assert "bwrap exited with status 0, as if of a program that was not to run yet" in error.reason
    assert error.aftermath == ["bwrap gave no account of what it ran"]


@pytest.mark.parametrize("stage", [None, "spawn"])
def test_a_hang_past_the_callers_own_deadline_is_a_missed_deadline(
    spoiling: Callable[..., Place], ms: float, stage: str | None
) -> None:
    place = spoiling("exec sleep 1000")
    scope = Scope.root(300 * ms).within(1 if stage else None, peer=stage and "it", stage=stage)
    with pytest.raises(DeadlineMissed) as caught:
        place.sandbox.start(place.prepare("true"), scope)
    assert caught.value.stage == stage
    assert place.sandbox.own_entries() == []


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_a_hang_past_the_deadline_of_the_stage_is_bubblewraps(
    spoiling: Callable[..., Place], ms: float, seconds: float
) -> None:
    place = spoiling("exec sleep 1000")
    within = Scope.root(20).within(1000 * seconds * ms, peer="it", stage="spawn", missing="started process")
    with pytest.raises(SandboxUnavailable) as caught:
        place.sandbox.start(place.prepare("true"), within)
    assert caught.value.cause == "hang"
    assert f"no sandbox within {1000 * seconds * ms:g} s" in str(caught.value)


def test_a_bubblewrap_that_a_signal_ends_past_the_gate_is_as_a_program_that_it_ended(
    spoiling: Callable[..., Place], sandbox: Path, tmp_path: Path
) -> None:
    bad = outliving_bwrap(tmp_path / "bad", sandbox, "os.kill(os.getpid(), 11)", silent=True)
    place = spoiling(f'exec {bad} "$@"')
    assert place.run("touch", "ran", writable=True).status == 139
    assert (place.workspace / "ran").exists()


# -- other failures


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
    holder.ready(Scope.root(20), wanted="a tool", network=False)

    class Interrupted(Scope):
        def within(self, *_: Any, **__: Any) -> Scope:
            return self

        def wait(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    names = ("deadline", "seconds", "tokens", "peer", "stage")
    known = {name: getattr(Scope.root(20), name) for name in names}
    scope = Interrupted(**known, own=True, missing=None, clock=time.monotonic)
    before = descriptors()
    with pytest.raises(KeyboardInterrupt):
        holder.start(prepared, scope)
    assert eventually(
        lambda: opened_since(before) == [] or all("ledger" in text for text in opened_since(before))
    )
