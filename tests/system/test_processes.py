"""What ``/proc`` says, read so that a process that goes, dies or lies about its name changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest

from latch.system.processes import (
    ProcessId,
    environment_of,
    here,
    identify,
    own_processes,
    parent_of,
    uptime_seconds,
)
from tests.support.census import eventually, is_dead


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen]:
    """A process that does nothing, started with one variable in its environment."""
    process = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "MARK": "m 1"})
    # Until it has run exec, it still has this process's environment.
    assert eventually(lambda: b"MARK=m 1" in environment_of(process.pid))
    yield process
    process.kill()
    process.wait()


def gone_pid() -> int:
    """The number of a process that has ended and was reaped."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_live_process_is_its_number_and_its_start(sleeper: subprocess.Popen) -> None:
    found = identify(sleeper.pid)
    assert found is not None
    assert found.pid == sleeper.pid
    ticks = os.sysconf("SC_CLK_TCK")
    assert abs(found.start / ticks - uptime_seconds()) < 30
    assert identify(sleeper.pid) == found
    assert found.is_alive()


def test_a_number_that_was_used_again_is_not_the_same_process(sleeper: subprocess.Popen) -> None:
    found = identify(sleeper.pid)
    assert not ProcessId(found.pid, found.start - 1).is_alive()


def test_a_process_that_is_gone_answers_nothing() -> None:
    pid = gone_pid()
    assert identify(pid) is None
    assert parent_of(pid) is None
    assert environment_of(pid) == b""
    assert pid not in own_processes(os.getuid())
    assert not ProcessId(pid, 1).is_alive()


def test_a_zombie_counts_as_dead() -> None:
    process = subprocess.Popen(["sleep", "60"])
    known = identify(process.pid)
    process.kill()
    assert eventually(lambda: is_dead(process.pid))
    try:
        assert os.path.exists(f"/proc/{process.pid}/stat")
        assert identify(process.pid) is None
        assert not known.is_alive()
    finally:
        process.wait()


@pytest.mark.parametrize("name", ["a) R 1 2 (b", ") Z 1 ((", "x y", "()"])
def test_a_name_made_to_mislead_changes_nothing(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([program, "60"])
    try:
        assert eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text() == name + "\n")
        assert parent_of(process.pid) == os.getpid()
        found = identify(process.pid)
        assert found is not None
        assert found.start >= identify(os.getpid()).start
        assert found.start / os.sysconf("SC_CLK_TCK") <= uptime_seconds() + 1
    finally:
        process.kill()
        process.wait()


def test_a_parent_is_named(sleeper: subprocess.Popen) -> None:
    assert parent_of(sleeper.pid) == os.getpid()
    assert parent_of(os.getpid()) == os.getppid()


def test_the_environment_is_what_a_process_was_started_with(sleeper: subprocess.Popen) -> None:
    assert b"MARK=m 1" in environment_of(sleeper.pid).split(b"\0")


def test_the_environment_of_another_user_is_empty() -> None:
    if os.getuid() == 0:
        pytest.skip("root reads every environment")
    assert environment_of(1) == b""


def test_own_processes_are_those_of_the_real_uid(sleeper: subprocess.Popen) -> None:
    ours = own_processes(os.getuid())
    assert {os.getpid(), sleeper.pid} <= set(ours)
    assert all(
        os.stat(f"/proc/{pid}").st_uid in (os.getuid(), 0) for pid in ours if os.path.exists(f"/proc/{pid}")
    )
    assert own_processes(os.getuid() + 54321) == []


def test_a_process_that_may_not_be_dumped_is_still_ours() -> None:
    # Its directory in /proc belongs to root; PR_SET_DUMPABLE is 4 in prctl(2).
    script = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint('off', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"off\n"
        assert process.pid in own_processes(os.getuid())
        assert identify(process.pid) is not None
    finally:
        process.kill()
        process.communicate()


def test_uptime_is_that_of_the_boot_clock() -> None:
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert abs(uptime_seconds() - boot) < 5


def test_here_is_this_boot_and_this_namespace() -> None:
    place = here()
    assert place == here()
    assert place.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert f"pid:[{place.namespace}]" == os.readlink("/proc/self/ns/pid")
