"""Every way of misbehaving at every stage: who and when is named, the deadline holds, nothing is left.

The peer is ``fixtures/peers/extension.py``, in the real sandbox. The table says what each sin comes to at
each stage at which it strikes; the error's own stage is the one the host was in.
"""

from __future__ import annotations

import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from latch.errors import (
    DeadlineMissed,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    SandboxUnavailable,
)
from latch.extensions.host import ExtensionHost
from latch.limits import DEFAULT
from latch.settings import SandboxSettings
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from tests.support import census, hosted
from tests.support.fake_bwrap import program
from tests.support.hosted import Trace, open_peer, peer

DEADLINE = 0.3
PATIENCE = 20.0


class Stage(NamedTuple):
    """The deadline that bounds it, the stage that errors name, and the message with which it begins."""

    deadline: str
    named: str
    begins: str


STAGES = {
    "start": Stage("initialize", "initialize", "initialize"),
    "initialize": Stage("initialize", "initialize", "initialize"),
    "registration": Stage("ready", "registration", "initialized"),
    "call": Stage("request", "tool.execute", "tool.execute"),
    "shutdown": Stage("shutdown", "shutdown", "shutdown"),
    "exit": Stage("exit", "exit", "exit"),
}

# What a sin comes to.
LATE = DeadlineMissed
BROKEN = PeerProtocolError
OVER = PeerLimit
GONE = PeerGone
FINE = None


def always(
    outcome: type[PeerError] | None, **others: type[PeerError] | None
) -> dict[str, type[PeerError] | None]:
    """The same at every stage but for *others*."""
    return {**{stage: outcome for stage in STAGES}, **others}


# How many sins that end by themselves run side by side. A deadline is measured with nothing else going on:
# what another peer's start costs on a machine of two cores is no part of it.
AT_ONCE = 3

QUIET = {
    "silent": always(LATE),
    "half-frame": always(LATE),
    "half-frame:header": always(LATE),
    "closes-stdout": always(LATE),
    "closes-stdin": always(LATE),
    "ignores-sigterm": always(LATE),
    "daemonises": always(LATE),
    "exits-at-once": always(GONE, exit=FINE),
    "wrong-id": always(BROKEN),
    "wrong-version": {"initialize": BROKEN},
    "huge-header": always(OVER),
    # ten bytes of what follows are taken for the end of the frame, or there is nothing that follows
    "lying-length": always(LATE, start=BROKEN, registration=BROKEN, exit=FINE),
    "lying-length:less": always(BROKEN),
    "over-16m": always(OVER),
}
LOUD = {
    "exact-16m": always(FINE),
    "flood-stderr": always(FINE),
    "flood-stdout": always(LATE),
    "flood-garbage": always(OVER),
    "fork-loop:40": always(LATE),
}


class Row(NamedTuple):
    """One sin at one stage."""

    sin: str
    stage: str
    outcome: type[PeerError] | None
    then: tuple[str, ...] = ()


def suffer(row: Row, *, workspace: Path, sandbox: Sandbox, ms: float) -> None:
    """Let one extension sin and check all that is promised."""
    stage = STAGES[row.stage]
    deadline = DEADLINE if row.outcome is LATE else PATIENCE
    stages = {name: deadline if name == stage.deadline else PATIENCE for _, (name, _, _) in STAGES.items()}
    trace, marker = Trace(), hosted.new_marker()
    settings = peer(
        "--misbehave", f"{row.sin}:{row.stage}", *row.then, stages=stages, env=hosted.marked(marker)
    )
    error: PeerError | None = None
    try:
        scope = Scope.root(60)
        host = ExtensionHost.open(settings, workspace=workspace, scope=scope, sandbox=sandbox, trace=trace)
        host.call_tool("echo", {}, scope)
        host.close(scope)
    except PeerError as caught:
        error = caught
    took = time.monotonic() - trace.sent(stage.begins)

    if row.outcome is FINE:
        assert error is None
    else:
        assert type(error) is row.outcome, repr(error)
        assert (error.peer, error.stage) == ('extension "peer"', stage.named)
        assert str(error).startswith(f'extension "peer": {stage.named}: '), str(error)
        assert len(str(error)) < 800
    if isinstance(error, DeadlineMissed):
        assert (error.seconds, error.own) == (DEADLINE, True)
        assert f"within {DEADLINE} s; killed (signal 9)" in str(error)
        # the deadline is set a moment before the message is traced
        assert DEADLINE * 0.8 <= took <= DEADLINE + 100 * ms, took
    assert took < PATIENCE / 2
    assert census.eventually(lambda: not census.carriers(marker), seconds=2), census.carriers(marker)


def suffer_all(rows: list[Row], *, at_once: int, workspace: Path, ms: float) -> None:
    """Let each row happen, *at_once* together if none is late, and check that no child of ours is left."""
    sandbox, started = Sandbox(SandboxSettings()), {}
    for late, width in ((False, at_once), (True, 1)):
        with ThreadPoolExecutor(width) as pool:
            for row in rows:
                if (row.outcome is LATE) == late:
                    started[row] = pool.submit(suffer, row, workspace=workspace, sandbox=sandbox, ms=ms)
    failures = {f"{row.sin} at {row.stage}": future.exception() for row, future in started.items()}
    assert {row: repr(failure) for row, failure in failures.items() if failure is not None} == {}
    assert hosted.own_children() == []


@pytest.mark.parametrize("sin", QUIET)
def test_a_quiet_sin_at_every_stage(sandbox: Path, workspace: Path, ms: float, sin: str) -> None:
    rows = [Row(sin, stage, outcome) for stage, outcome in QUIET[sin].items()]
    suffer_all(rows, at_once=AT_ONCE, workspace=workspace, ms=ms)


@pytest.mark.parametrize("sin", LOUD)
def test_a_loud_sin_at_every_stage(sandbox: Path, workspace: Path, ms: float, sin: str) -> None:
    rows = [Row(sin, stage, outcome) for stage, outcome in LOUD[sin].items()]
    suffer_all(rows, at_once=1, workspace=workspace, ms=ms)


def test_a_flood_on_stderr_does_not_move_the_deadline(sandbox: Path, workspace: Path, ms: float) -> None:
    rows = [Row("flood-stderr", stage, LATE, then=("--then", "silent")) for stage in STAGES]
    suffer_all(rows, at_once=1, workspace=workspace, ms=ms)


def test_forking_up_to_the_limit_ends_as_fast_as_the_kernel_can_end_it(
    sandbox: Path, workspace: Path, ms: float
) -> None:
    marker, most = hosted.new_marker(), DEFAULT.resource.max_processes
    entry = {"stages": {"request": DEADLINE}, "env": hosted.marked(marker)}
    host = open_peer(workspace, "--misbehave", "fork-loop:idle", **entry)
    assert census.eventually(lambda: len(census.carriers(marker)) > most * 0.9)
    began = time.monotonic()
    with pytest.raises(DeadlineMissed) as raised:
        host.call_tool("echo", {}, Scope.root(30))
    # one signal, but the kernel takes apart 500 address spaces before it says that they are gone
    assert time.monotonic() - began < DEADLINE + 1000 * ms
    assert raised.value.seconds == DEADLINE
    assert not census.carriers(marker) and hosted.own_children() == []


# The stage before the program runs: it is bubblewrap that may hang or fail there.


@pytest.mark.parametrize(
    ("does", "cause", "says"),
    [
        ("exec sleep 60", "hang", f"no sandbox within {DEADLINE} s"),
        ("trap '' TERM HUP; while :; do sleep 1; done", "hang", f"no sandbox within {DEADLINE} s"),
        ("exec >&- 2>&-; exec sleep 60", "hang", f"no sandbox within {DEADLINE} s"),
        ("kill -SEGV $$", "crash", "bwrap died of signal 11"),
        ("exit 1", "unknown", "exited with status 1"),
        ("echo 'no words that are known' >&2; exit 1", "unknown", "no words that are known"),
    ],
)
def test_a_bubblewrap_that_hangs_or_fails_at_spawn(
    sandbox: Path, workspace: Path, tmp_path: Path, ms: float, does: str, cause: str, says: str
) -> None:
    spoilt = tmp_path / "spoilt"
    wrapper = program(
        tmp_path / "bwrap",
        f"#!/bin/sh\nif [ -e {shlex.quote(str(spoilt))} ]; then {does}; fi\n"
        f'exec {shlex.quote(str(sandbox))} "$@"\n',
    )
    settings = peer(stages={"spawn": DEADLINE}, sandbox=SandboxSettings(bwrap=wrapper))
    with ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30)):
        pass  # it was probed, and from now on is taken for good
    spoilt.touch()
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable) as raised:
        ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30))
    took = time.monotonic() - began
    assert raised.value.cause == cause
    assert says in str(raised.value) and 'cannot start extension "peer": ' in str(raised.value)
    if cause == "hang":
        assert DEADLINE - 0.01 <= took <= DEADLINE + 200 * ms
    assert hosted.own_children() == []


# Idle is a stage as well.


def test_ten_idle_seconds_of_work_are_not_stalled(sandbox: Path, workspace: Path, ms: float) -> None:
    with open_peer(workspace, "--misbehave", "stderr-idle") as writes:
        with open_peer(workspace, "--misbehave", "requests-idle") as asks:
            time.sleep(10)
            # Half of a hundred lines a second, and of one question for each pass of the housekeeper.
            assert writes.call_tool("count", {}, Scope.root(10)) > 0.5 / ms
            assert asks.call_tool("count", {}, Scope.root(10)) > 0.04 / ms
