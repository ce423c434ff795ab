"""Ctrl+C, SIGTERM and a closed terminal at every stage: the prompt is back within a second, and nothing is left."""

from __future__ import annotations

import fcntl
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.support.census import eventually
from tests.support.command_line import Operator
from tests.support.fake_bwrap import program
from tests.support.tree import ROOT

# The tests themselves, started as a shell starts what runs in the background: SIGINT is ignored.
_IN_BACKGROUND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
arguments = ["-m", "pytest", "-c", "tests/pytest.ini", "--rootdir=.", "-q", sys.argv[1]]
os.execv(sys.executable, [sys.executable, *arguments])
"""

pytestmark = pytest.mark.usefixtures("sandbox")

SIGNALS = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}
PEER_STAGES = ("start", "initialize", "registration", "shutdown", "exit")
# What hangs, and how many starts go well before: asking for its version, the probe, the peer's own start.
BWRAP_STAGES = {"version": -1, "probe": 0, "spawn": 1}
# What a pipe holds once its writer has to wait, less one page.
FULL_PIPE_BYTES = 60 * 1024
# A second, for whoever presses the keys; the interpreter's end is in it.
PROMPT_MS = 1000

_HANGING_BWRAP = """#!{python} -ES
import os, sys, time
good = {good}
starts = {place!r} + "/starts"
if sys.argv[1] == "--args":
    with open(starts, "ab") as stream:
        stream.write(b"+")
    hangs = os.path.getsize(starts) > good
else:
    hangs = good < 0
if hangs:
    open({place!r} + "/hangs", "w").close()
    time.sleep(60)
os.execv({real!r}, sys.argv)
"""


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def hanging_bwrap(operator: Operator, real: Path, stage: str) -> Path:
    """Return a bubblewrap that hangs at *stage*, and has the marker on its command line."""
    place = operator.place / operator.marker
    text = _HANGING_BWRAP.format(
        python=sys.executable, good=BWRAP_STAGES[stage], place=str(place), real=str(real)
    )
    return program(place / "bwrap", text)


def interrupt(
    operator: Operator, arguments: tuple[str, ...], reached: Callable[[], bool], name: str, ms: float
) -> Any:
    """Start, signal once *reached* holds, and return what is on stderr; within a second, and nothing left."""
    with operator.start(*arguments) as process:
        try:
            assert eventually(reached), process.poll()
            assert process.poll() is None, process.stderr.read()
            began = time.monotonic()
            process.send_signal(getattr(signal, name))
            status = process.wait(20)
            took = time.monotonic() - began
            out, err = process.communicate()
        finally:
            process.kill()
    assert status == SIGNALS[name], err
    assert took < PROMPT_MS * ms, took
    assert out == b"" and operator.left() == []
    return err.decode()


def ends_on_sigint(process: Any, *, seconds: float) -> None:
    """Signal *process*, which must end with the status for it within *seconds*."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert time.monotonic() - began < seconds


def shows(operator: Operator, name: str) -> Callable[[], bool]:
    """Say whether a peer shows the stage it is silent in, or what it does."""
    return lambda: operator.peer_shows(name)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("stage", PEER_STAGES)
def test_a_check_ends_whatever_stage_its_peer_is_silent_in(
    operator: Operator, stage: str, name: str, ms: float
) -> None:
    operator.configure(operator.peer("--misbehave", "silent", "--stage", stage))
    said = interrupt(operator, ("extensions", "--check", "-q"), shows(operator, stage), name, ms)
    named = {"start": "initialize"}.get(stage, stage)
    assert said.splitlines() == [f'latch: extension "one": {named}: cancelled ({name})']


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("stage", BWRAP_STAGES)
def test_a_check_ends_while_bubblewrap_hangs(
    operator: Operator, sandbox: Path, stage: str, name: str, ms: float
) -> None:
    fake = hanging_bwrap(operator, sandbox, stage)
    operator.configure(operator.peer(), sandbox={"bwrap": str(fake)})
    said = interrupt(operator, ("extensions", "--check", "-q"), (fake.parent / "hangs").exists, name, ms)
    assert f"cancelled ({name})" in said


def test_with_json_the_error_is_one_line(operator: Operator, ms: float) -> None:
    operator.configure(operator.peer("--misbehave", "silent"))
    said = interrupt(
        operator, ("extensions", "--check", "--json"), shows(operator, "initialize"), "SIGINT", ms
    )
    assert said.count("\n") == 1 and '"code": "cancelled"' in said and '"exit": 130' in said


def test_ten_extensions_end_with_the_one_that_hangs(operator: Operator, ms: float) -> None:
    entries = [operator.peer(name=f"good-{number}") for number in range(9)]
    operator.configure(operator.peer("--misbehave", "silent:registration", name="hung"), *entries)
    with operator.start("extensions", "--check") as process:
        try:
            for _ in entries:
                assert b"started in" in process.stderr.readline()
            ends_on_sigint(process, seconds=PROMPT_MS * ms)
        finally:
            process.kill()
    assert operator.left() == []


@pytest.mark.parametrize("stage", ["initialize", "registration", "exit"])
def test_the_key_on_a_real_terminal_does_the_same(operator: Operator, stage: str, ms: float) -> None:
    operator.configure(operator.peer("--misbehave", "silent", "--stage", stage))
    with operator.on_terminal("extensions", "--check", stdout=-1) as terminal:
        assert eventually(shows(operator, stage))
        began = time.monotonic()
        terminal.press(b"\x03")
        done = terminal.finish()
        took = time.monotonic() - began
    assert (done.status, done.out) == (130, b"") and took < PROMPT_MS * ms
    assert done.said.endswith(f'latch: extension "one": {stage}: cancelled (SIGINT)\r\n')
    assert operator.left() == []


def test_a_hung_tool_is_asked_to_stop_and_then_killed(operator: Operator, ms: float) -> None:
    operator.configure(operator.peer("--misbehave", "ignores-cancel"))
    arguments = ("call", "-q", "one/sleep", '{"seconds": 60}')
    said = interrupt(operator, arguments, shows(operator, "sleeping"), "SIGINT", ms)
    assert said.splitlines() == [
        'latch: extension "one": tool.execute: cancelled (SIGINT); '
        "it did not answer $/cancelRequest and was killed"
    ]


def test_a_tool_that_hears_the_cancellation_ends_at_once(operator: Operator, ms: float) -> None:
    operator.configure(operator.peer())
    arguments = ("call", "-q", "one/sleep", '{"seconds": 60}')
    said = interrupt(operator, arguments, shows(operator, "sleeping"), "SIGTERM", ms)
    assert said.splitlines() == ['latch: extension "one": tool.execute: cancelled (SIGTERM)']


def test_a_second_sigint_leaves_at_once(operator: Operator, ms: float) -> None:
    operator.configure(operator.peer("--misbehave", "ignores-cancel"))
    with operator.start("call", "-q", "one/sleep", '{"seconds": 60}') as process:
        try:
            assert eventually(shows(operator, "sleeping"))
            process.send_signal(signal.SIGINT)
            # The cancellation has reached the peer, so the first signal has been taken.
            assert eventually(shows(operator, "disturbed"))
            assert process.poll() is None
            # The first alone takes the grace of half a second.
            ends_on_sigint(process, seconds=250 * ms)
        finally:
            process.kill()
    assert operator.left() == []


@pytest.mark.parametrize("name", SIGNALS)
def test_a_sandboxed_command_ends(operator: Operator, name: str, ms: float) -> None:
    started = operator.workspace / "started"
    script = f"trap '' INT TERM; : > started; sleep 60; : {operator.marker}"
    arguments = ("sandbox", "--write", "--", "sh", "-c", script)
    said = interrupt(operator, arguments, started.exists, name, ms)
    assert said == f'latch: command "sh": cancelled ({name})\n'


def unread(stream: Any) -> int:
    """Return how many bytes stand in the pipe behind *stream*."""
    return struct.unpack("i", fcntl.ioctl(stream, termios.FIONREAD, bytes(4)))[0]


def test_a_command_whose_reader_hangs_ends(operator: Operator, ms: float) -> None:
    with operator.start("sandbox", "--", "sh", "-c", f"yes; : {operator.marker}") as process:
        try:
            assert process.stdout.readline() == b"y\n"
            assert eventually(lambda: unread(process.stdout) > FULL_PIPE_BYTES)
            ends_on_sigint(process, seconds=PROMPT_MS * ms)
        finally:
            process.kill()
    assert operator.left() == []


@pytest.mark.parametrize("moment", [0.02, 0.06, 0.1, 0.15, 0.2])
def test_any_moment_of_the_start_will_do(operator: Operator, moment: float, ms: float) -> None:
    operator.configure(operator.peer("--misbehave", "silent:registration"))
    with operator.start("extensions", "--check", "-q") as process:
        try:
            # Not a wait for something: every moment is to do.
            time.sleep(moment)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
            assert time.monotonic() - began < PROMPT_MS * ms
        finally:
            process.kill()
    # Before our own code runs the interpreter itself ends, in its own words; before the command takes
    # signals, the signal ends it.
    assert process.returncode in (130, -signal.SIGINT) or b"KeyboardInterrupt" in err, err
    assert operator.left() == []


def test_a_signal_ends_what_tests_start() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert subprocess.run(["sh", "-c", "kill -INT $$; echo lives"], stdout=-1).returncode == -signal.SIGINT


def test_the_tests_themselves_may_run_in_the_background() -> None:
    one = f"{Path(__file__).relative_to(ROOT)}::test_a_signal_ends_what_tests_start"
    done = subprocess.run(
        [sys.executable, "-c", _IN_BACKGROUND, one], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
