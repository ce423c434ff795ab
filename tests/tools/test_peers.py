"""Peers side by side: order, the first failure, cancel, interruption, and nothing left of any."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest

from latch.errors import (
    Cancelled,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerProtocolError,
    PeerRefused,
    UsageError,
)
from latch.extensions.host import ExtensionHost
from latch.limits import DEFAULT
from latch.settings import ExtensionSettings, SandboxSettings
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from latch.tools.assembly import extension_openings
from latch.tools.peers import check_peers, close_peers, kill_peers, open_peers
from tests.support import census, hosted
from tests.support.hosted import Trace, later, peer

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(60)


@pytest.fixture
def box() -> Sandbox:
    """The sandbox that all peers of one test share."""
    return Sandbox(SandboxSettings())


class Marked:
    """Entries that carry one mark."""

    def __init__(self) -> None:
        self.marker = hosted.new_marker()

    def entry(self, name: str, *options: str, **changes: Any) -> ExtensionSettings:
        return peer(*options, name=name, env=hosted.marked(self.marker), **changes)

    def alive(self) -> int:
        return len(census.carriers(self.marker))


@pytest.fixture
def marked() -> Iterator[Marked]:
    """Makes entries; nothing of them may be left."""
    known = Marked()
    yield known
    assert census.eventually(lambda: known.alive() == 0, seconds=2)
    assert hosted.own_children() == []


def test_no_extensions_are_no_work(workspace: Path, box: Sandbox, scope: Scope) -> None:
    descriptors = census.descriptors()
    assert open_peers(extension_openings([], workspace=workspace, sandbox=box), scope=scope) == []
    assert check_peers(extension_openings([], workspace=workspace, sandbox=box), scope=scope) == []
    assert close_peers([]) == []
    assert len(census.descriptors()) == len(descriptors)


def test_ten_start_side_by_side_and_come_in_the_given_order(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    # one that is slow does not hold up the others, nor change the order
    slow = ["--misbehave", "answers-late:1.5:initialize"]
    entries = [marked.entry(f"e{number}", *(slow if number == 0 else [])) for number in range(10)]
    told: list[str] = []
    overlapping = threading.Lock()

    def on_ready(host: ExtensionHost) -> None:
        assert overlapping.acquire(blocking=False)
        told.append(host.name)
        time.sleep(0.01)
        overlapping.release()

    hosts = open_peers(
        extension_openings(entries, workspace=workspace, sandbox=box), scope=scope, on_ready=on_ready
    )
    assert [host.name for host in hosts] == [entry.name for entry in entries]
    assert sorted(told) == sorted(entry.name for entry in entries) and told[-1] == "e0"
    assert [host.call_tool("echo", {"n": host.name}, scope) for host in hosts] == [
        {"n": host.name} for host in hosts
    ]
    assert marked.alive() == 10
    assert close_peers(hosts) == []


@pytest.mark.parametrize(
    ("sin", "kind", "stage"),
    [
        ("wrong-version", PeerProtocolError, "initialize"),
        ("exits-nonzero:4:registration", PeerGone, "registration"),
        ("silent:registration", DeadlineMissed, "registration"),
    ],
)
def test_the_first_failure_is_named_the_others_are_stopped_and_nothing_is_left(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked, sin: str, kind: type[LatchError], stage: str
) -> None:
    bad = marked.entry("bad", "--misbehave", sin, stages={"ready": 0.3 if kind is DeadlineMissed else 20})
    # some are ready long before, some would never be
    never = ["--misbehave", "silent:start"]
    entries = [marked.entry(f"e{number}", *(never if number % 3 == 0 else [])) for number in range(9)]
    began = time.monotonic()
    with pytest.raises(kind) as raised:
        open_peers(extension_openings([*entries, bad], workspace=workspace, sandbox=box), scope=scope)
    assert time.monotonic() - began < 5
    assert (raised.value.peer, raised.value.stage) == ('extension "bad"', stage)
    assert marked.alive() == 0


@pytest.mark.parametrize(
    ("count", "needed", "hint"),
    [
        (2, None, 'enabled = false for extension "bad" lets the others go on without it'),
        (2, "e0", 'enabled = false for extension "bad" lets the others go on without it'),
        (2, "bad", None),
        (1, None, None),
    ],
)
def test_the_failure_of_one_that_is_not_needed_says_how_to_go_on_without_it(
    workspace: Path,
    box: Sandbox,
    scope: Scope,
    marked: Marked,
    count: int,
    needed: str | None,
    hint: str | None,
) -> None:
    entries = [marked.entry("bad", "--misbehave", "wrong-version"), marked.entry("e0")][:count]
    with pytest.raises(PeerProtocolError) as raised:
        open_peers(extension_openings(entries, workspace=workspace, sandbox=box), scope=scope, needed=needed)
    assert raised.value.hint == hint


def test_what_no_extension_is_to_blame_for_is_no_reason_to_disable_one(
    tmp_path: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    entries = [marked.entry("e0"), marked.entry("e1")]
    with pytest.raises(LatchError) as raised:
        open_peers(extension_openings(entries, workspace=tmp_path / "absent", sandbox=box), scope=scope)
    assert "absent" in str(raised.value) and "enabled" not in str(raised.value.hint)


def test_of_two_failures_the_earlier_is_named_whatever_the_order(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    late = marked.entry("late", "--misbehave", "silent:initialize", stages={"initialize": 1.0})
    early = marked.entry("early", "--misbehave", "wrong-version")
    for entries in ([late, early], [early, late]):
        with pytest.raises(PeerProtocolError, match='extension "early"'):
            open_peers(extension_openings(entries, workspace=workspace, sandbox=box), scope=scope)


@pytest.mark.parametrize("start", [open_peers, check_peers])
def test_cancel_ends_all_within_a_second(
    workspace: Path, box: Sandbox, marked: Marked, ms: float, start: Any
) -> None:
    sins = [
        "silent:start",
        "silent:registration",
        "ignores-sigterm",
        "daemonises",
        "flood-stdout:registration",
    ]
    entries = [
        marked.entry("good"),
        *(marked.entry(f"e{n}", "--misbehave", sin) for n, sin in enumerate(sins)),
    ]
    scope = Scope.root(60)
    cancelled: list[float] = []

    def cancel() -> None:
        cancelled.append(time.monotonic())
        scope.cancel("enough")

    later(0.6, cancel)
    with pytest.raises(Cancelled, match="enough"):
        start(extension_openings(entries, workspace=workspace, sandbox=box), scope=scope)
    assert time.monotonic() - cancelled[0] < 1000 * ms
    assert marked.alive() == 0


@pytest.mark.parametrize("start", [open_peers, check_peers])
def test_an_interrupted_caller_leaves_nothing(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked, start: Any
) -> None:
    entries = [marked.entry("good"), marked.entry("never", "--misbehave", "silent:start")]
    # what is made on first use and stays
    close_peers(open_peers(extension_openings(entries[:1], workspace=workspace, sandbox=box), scope=scope))
    descriptors, threads = len(census.descriptors()), threading.active_count()
    timer = later(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        start(extension_openings(entries, workspace=workspace, sandbox=box), scope=scope)
    timer.join()
    assert marked.alive() == 0
    assert census.eventually(lambda: threading.active_count() <= threads)
    assert census.eventually(lambda: len(census.descriptors()) <= descriptors)


def test_a_report_that_fails_stops_everything(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    entries = [marked.entry("good"), marked.entry("never", "--misbehave", "silent:start")]

    def broken(*arguments: object) -> None:
        raise BrokenPipeError("the terminal is gone")

    with pytest.raises(BrokenPipeError, match="the terminal is gone"):
        open_peers(
            extension_openings(entries, workspace=workspace, sandbox=box), scope=scope, on_ready=broken
        )
    assert marked.alive() == 0
    with pytest.raises(BrokenPipeError):
        check_peers(extension_openings(entries, workspace=workspace, sandbox=box), scope=scope, on_end=broken)
    assert marked.alive() == 0


def test_a_failure_that_is_no_error_of_ours_is_raised_and_not_swallowed(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    def broken(direction: str, body: bytes) -> None:
        if b"initialized" in body:
            raise ZeroDivisionError("in the trace")

    with pytest.raises(ZeroDivisionError):
        check_peers(
            extension_openings([marked.entry("one")], workspace=workspace, sandbox=box, trace=broken),
            scope=scope,
        )
    assert marked.alive() == 0


def test_a_check_reports_every_one_and_lets_all_come_to_their_end(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    trace, ended = Trace(), {}
    entries = [
        marked.entry("version", "--misbehave", "wrong-version"),
        marked.entry("good"),
        marked.entry("late", "--misbehave", "silent:initialize", stages={"initialize": 0.3}),
        marked.entry("missing", command="no-such-program"),
        marked.entry("slow", "--misbehave", "answers-late:0.6:initialize"),
    ]
    outcomes = check_peers(
        extension_openings(entries, workspace=workspace, sandbox=box, trace=trace),
        scope=scope,
        on_end=lambda entry, seconds, has_started: ended.update({entry.name: (seconds, has_started)}),
    )
    shown = [outcome.name if isinstance(outcome, ExtensionHost) else str(outcome) for outcome in outcomes]
    assert shown[0].startswith('extension "version": initialize: protocolVersion is "0.2"')
    assert shown[1] == "good" and shown[4] == "slow"
    assert shown[2] == 'extension "late": initialize: no answer within 0.3 s; killed (signal 9)'
    assert 'extension "missing"' in shown[3] and "no-such-program" in shown[3]
    assert ended["slow"][0] > 0.5 > ended["missing"][0] >= 0
    assert {name: has_started for name, (_, has_started) in ended.items()} == {
        entry.name: entry.name in ("good", "slow") for entry in entries
    }
    assert any(message.get("method") == "initialize" for message in trace.told("->"))
    assert close_peers([outcome for outcome in outcomes if isinstance(outcome, ExtensionHost)]) == []


def test_closing_reports_every_failure_newest_first_and_ends_all(
    workspace: Path, box: Sandbox, scope: Scope, marked: Marked
) -> None:
    entries = [
        marked.entry("error", "--misbehave", "shutdown-error:busy"),
        marked.entry("good"),
        marked.entry("status", "--misbehave", "exits-nonzero"),
        marked.entry("hangs", "--misbehave", "ignores-exit", stages={"exit": 0.2}),
    ]
    hosts = open_peers(extension_openings(entries, workspace=workspace, sandbox=box), scope=scope)
    failures = close_peers(hosts)
    assert [(type(failure), failure.peer) for _, failure in failures] == [
        (DeadlineMissed, 'extension "hangs"'),
        (PeerGone, 'extension "status"'),
        (PeerRefused, 'extension "error"'),
    ]
    assert marked.alive() == 0
    assert close_peers(hosts) == []


UNPROVEN = replace(DEFAULT, process=replace(DEFAULT.process, kill_seconds=0))


@pytest.fixture
def unproven(workspace: Path, box: Sandbox, scope: Scope, marked: Marked) -> Iterator[list[ExtensionHost]]:
    """Two good extensions whose ends cannot be proven: no time is left for it; reaped afterwards."""
    box.ready(scope, wanted="a test")
    hasty = Sandbox(SandboxSettings(), limits=UNPROVEN)
    entries = [marked.entry("one"), marked.entry("two")]
    yield open_peers(extension_openings(entries, workspace=workspace, sandbox=hasty), scope=scope)
    assert census.eventually(lambda: all(map(census.is_dead, hosted.own_children())))
    for pid in hosted.own_children():
        os.waitpid(pid, 0)


def test_all_are_killed_and_what_was_not_proven_stands_in_the_failure(
    unproven: list[ExtensionHost], marked: Marked
) -> None:
    failure = UsageError("mine")
    kill_peers(unproven, failure)
    assert census.eventually(lambda: marked.alive() == 0)
    assert [fact.partition(": kill: process ")[0] for fact in failure.aftermath] == [
        'extension "one"',
        'extension "two"',
    ]
    assert all(fact.endswith(" could not be proven dead") for fact in failure.aftermath)


def test_all_are_killed_before_what_was_not_proven_is_raised(
    unproven: list[ExtensionHost], marked: Marked
) -> None:
    failure = KeyboardInterrupt()
    with pytest.raises(PeerError, match='extension "one": kill: .* could not be proven dead') as raised:
        kill_peers(unproven, failure)
    assert raised.value.__cause__ is failure
    assert census.eventually(lambda: marked.alive() == 0)


def test_closing_tells_what_could_not_be_proven(unproven: list[ExtensionHost]) -> None:
    failures = close_peers(unproven)
    assert [(host.name, failure.peer) for host, failure in failures] == [
        ("two", 'extension "two"'),
        ("one", 'extension "one"'),
    ]
    assert [str(failure).count("could not be proven dead") for _, failure in failures] == [1, 1]
    assert {failure.hint for _, failure in failures} == {"once this process has ended, latch reap ends it"}
