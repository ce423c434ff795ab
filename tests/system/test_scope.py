"""A scope knows when its work is to end, and who and what to name; whatever waits on it wakes in time."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from latch.errors import Cancelled, DeadlineMissed
from latch.system.scope import CancelToken, Scope
from tests.support.census import descriptors, opened_since

CHECKOUT = Path(__file__).resolve().parents[2]


class Clock:
    """Monotonic seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


def missed(scope: Scope) -> DeadlineMissed:
    """The error of a scope whose time is up."""
    with pytest.raises(DeadlineMissed) as caught:
        scope.check()
    return caught.value


# -- deadlines and labels ---------------------------------------------------------------------------


def test_without_a_deadline_nothing_is_ever_late(clock: Clock) -> None:
    scope = Scope.root(clock=clock)
    clock.now += 1e9
    scope.check()
    assert scope.remaining() is None
    assert scope.deadline is None


def test_a_deadline_passes_at_its_moment_and_not_before(clock: Clock) -> None:
    scope = Scope.root(5, clock=clock)
    clock.now += 4.999
    scope.check()
    clock.now += 0.001
    assert missed(scope).seconds == 5


def test_what_remains_is_never_negative(clock: Clock) -> None:
    scope = Scope.root(5, clock=clock)
    assert scope.remaining() == 5
    clock.now += 3
    assert scope.remaining() == 2
    clock.now += 3
    assert scope.remaining() == 0.0


def test_the_earlier_of_two_deadlines_counts(clock: Clock) -> None:
    outer = Scope.root(5, clock=clock)
    assert outer.within(3).remaining() == 3
    assert outer.within(9).remaining() == 5
    assert Scope.root(clock=clock).within(9).remaining() == 9


def test_narrowing_leaves_the_wider_scope_as_it_was(clock: Clock) -> None:
    outer = Scope.root(5, clock=clock)
    outer.within(1, peer="p", stage="s").also(CancelToken()).cancel("x")
    other = Scope.root(5, clock=clock)
    other.within(1, peer="p", stage="s").also(CancelToken())
    assert (other.remaining(), other.peer, other.stage, len(other.tokens)) == (5, None, None, 1)


ROWS: list[tuple[str, Callable[[Scope], Scope], str, float, bool]] = [
    ("own", lambda root: root.within(3, peer="p", stage="s"), "p: s: not done within 3 s", 3, True),
    (
        "own, something missing",
        lambda root: root.within(3, peer="p", stage="s", missing="ready"),
        "p: s: no ready within 3 s",
        3,
        True,
    ),
    (
        "the caller's",
        lambda root: root.within(60, peer="p", stage="s"),
        "p: s: not done within the caller's 10 s",
        10,
        False,
    ),
    (
        "the caller's, something missing",
        lambda root: root.within(60, peer="p", stage="s", missing="answer"),
        "p: s: no answer within the caller's 10 s",
        10,
        False,
    ),
    (
        "labels alone",
        lambda root: root.within(None, peer="p"),
        "p: not done within the caller's 10 s",
        10,
        False,
    ),
    (
        "stage alone",
        lambda root: root.within(None, stage="s"),
        "s: not done within the caller's 10 s",
        10,
        False,
    ),
    (
        "a stage of the same peer",
        lambda root: root.within(3, peer="p", stage="s").within(None, stage="t", missing="answer"),
        "p: t: no answer within 3 s",
        3,
        True,
    ),
    (
        "the caller's, for a stage of the same peer",
        lambda root: root.within(60, peer="p").within(None, peer="p", stage="t"),
        "p: t: not done within the caller's 10 s",
        10,
        False,
    ),
    ("nothing new", lambda root: root.within(None, missing="lock"), "no lock within 10 s", 10, True),
    ("root", lambda root: root, "not done within 10 s", 10, True),
    (
        "labels are inherited",
        lambda root: root.within(3, peer="p", stage="s").within(2, missing="lock"),
        "p: s: no lock within 2 s",
        2,
        True,
    ),
    (
        "labels are replaced",
        lambda root: root.within(3, peer="p", stage="s").within(2, peer="q", stage="t"),
        "q: t: not done within 2 s",
        2,
        True,
    ),
    (
        "a token changes no label",
        lambda root: root.within(3, peer="p", stage="s", missing="x").also(CancelToken()),
        "p: s: no x within 3 s",
        3,
        True,
    ),
    (
        "a token keeps whose deadline it is",
        lambda root: root.within(60, peer="p").also(CancelToken()),
        "p: not done within the caller's 10 s",
        10,
        False,
    ),
    (
        "equal deadlines are one's own",
        lambda root: root.within(10, peer="p"),
        "p: not done within 10 s",
        10,
        True,
    ),
    (
        "for cleanup",
        lambda root: root.within(1, peer="p", stage="s").shielded(7, stage="kill"),
        "p: kill: not done within 7 s",
        7,
        True,
    ),
    (
        "cleanup keeps the stage",
        lambda root: root.within(1, stage="s").shielded(7),
        "s: not done within 7 s",
        7,
        True,
    ),
]


@pytest.mark.parametrize(
    ("narrow", "text", "seconds", "own"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_missed_deadline_names_peer_stage_and_whose_it_was(
    clock: Clock, narrow: Callable[[Scope], Scope], text: str, seconds: float, own: bool
) -> None:
    scope = narrow(Scope.root(10, clock=clock))
    clock.now += 100
    error = missed(scope)
    assert (str(error), error.seconds, error.own) == (text, seconds, own)
    assert (error.peer, error.stage) == (scope.peer, scope.stage)


def test_the_time_of_a_scope_is_its_clock(clock: Clock) -> None:
    assert Scope.root(clock=clock).within(1).now() == 1000.0


# -- cancelling -------------------------------------------------------------------------------------


def test_a_cancelled_scope_names_reason_peer_and_stage(clock: Clock) -> None:
    scope = Scope.root(5, clock=clock).within(3, peer="p", stage="s")
    scope.cancel("Ctrl+C")
    with pytest.raises(Cancelled) as caught:
        scope.check()
    assert (caught.value.reason, caught.value.peer, caught.value.stage) == ("Ctrl+C", "p", "s")


def test_cancel_comes_before_a_missed_deadline(clock: Clock) -> None:
    scope = Scope.root(1, clock=clock)
    clock.now += 5
    scope.cancel("Ctrl+C")
    with pytest.raises(Cancelled):
        scope.check()


def test_cancelling_the_wider_scope_reaches_the_narrower_and_the_reverse() -> None:
    outer = Scope.root()
    inner = outer.within(5)
    outer.cancel("outer")
    with pytest.raises(Cancelled):
        inner.check()
    other = Scope.root()
    other.within(5).cancel("inner")
    with pytest.raises(Cancelled):
        other.check()


def test_an_added_token_cancels_only_where_it_was_added() -> None:
    token = CancelToken()
    parent = Scope.root(token=CancelToken())
    child = parent.also(token)
    token.cancel("child only")
    parent.check()
    with pytest.raises(Cancelled, match="child only"):
        child.check()


def test_a_scope_with_an_added_token_is_cancelled_by_its_first() -> None:
    token = CancelToken()
    child = Scope.root().also(token)
    child.cancel("x")
    assert token.reason is None
    with pytest.raises(Cancelled):
        child.check()


def test_cleanup_cannot_be_cancelled(clock: Clock) -> None:
    scope = Scope.root(1, clock=clock)
    scope.cancel("Ctrl+C")
    clock.now += 5
    cleanup = scope.shielded(2)
    cleanup.cancel("again")
    cleanup.check()
    assert (cleanup.tokens, cleanup.remaining()) == ((), 2)


def test_the_first_reason_stays() -> None:
    token = CancelToken()
    assert token.reason is None
    token.cancel("first")
    token.cancel("second")
    assert token.reason == "first"


@pytest.mark.parametrize("with_descriptor", [False, True])
def test_cancel_may_be_interrupted_anywhere_by_another_cancel(with_descriptor: bool) -> None:
    # As a signal handler does: at every line of cancel, once each, a second cancel comes in between.
    lines = cancel_lines(with_descriptor)
    assert len(lines) >= 2
    for line in lines:
        token = CancelToken()
        if with_descriptor:
            token.fileno()
        seen: list[str | None] = []

        def interrupt() -> None:
            token.cancel("inner")
            seen.append(token.reason)

        run_traced(lambda: token.cancel("outer"), at=line, then=interrupt)
        assert seen, line
        assert token.reason == seen[0], line
        with pytest.raises(Cancelled):
            Scope.root(5).also(token).wait()


def cancel_lines(with_descriptor: bool) -> list[int]:
    """The lines of ``CancelToken.cancel`` that run, in order."""
    token, lines = CancelToken(), []
    if with_descriptor:
        token.fileno()
    run_traced(lambda: token.cancel("x"), at=None, then=None, lines=lines)
    return lines


def run_traced(
    call: Callable[[], None],
    *,
    at: int | None,
    then: Callable[[], None] | None,
    lines: list[int] | None = None,
) -> None:
    """Run *call*; just before line *at* of ``cancel`` run *then*, once."""
    pending = [then] if then is not None else []
    before = sys.gettrace()

    def trace(frame: object, event: str, _: object) -> object:
        if frame.f_code.co_name != "cancel":
            return None
        if event == "line":
            if lines is not None:
                lines.append(frame.f_lineno)
            if frame.f_lineno == at and pending:
                sys.settrace(None)
                pending.pop()()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


# -- waiting ----------------------------------------------------------------------------------------


def test_what_is_ready_is_returned_by_direction(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    scope = Scope.root(5)
    assert scope.wait([read_end], [write_end]) == ([], [write_end])
    os.write(write_end, b"x")
    assert scope.wait([read_end]) == ([read_end], [])
    assert scope.wait([read_end], [write_end]) == ([read_end], [write_end])


def test_one_descriptor_may_be_waited_for_in_both_directions(socket_pair: tuple[int, int]) -> None:
    ours, theirs = socket_pair
    assert Scope.root(5).wait([ours], [ours]) == ([], [ours])
    os.write(theirs, b"x")
    assert Scope.root(5).wait([ours], [ours]) == ([ours], [ours])


@pytest.fixture
def socket_pair() -> Iterator[tuple[int, int]]:
    """Two connected descriptors, each readable and writable."""
    one, other = socket.socketpair()
    with one, other:
        yield one.fileno(), other.fileno()


def test_a_hang_up_is_ready_to_be_read() -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    assert Scope.root(5).wait([read_end]) == ([read_end], [])
    os.close(read_end)


def test_a_pipe_nobody_reads_is_ready_to_be_written() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert Scope.root(5).wait((), [write_end]) == ([], [write_end])
    os.close(write_end)


def test_a_closed_descriptor_does_not_block() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    os.close(write_end)
    # A scope for cleanup, because the pipe of a token would take the number that became free.
    assert Scope.root().shielded(5).wait([read_end]) == ([read_end], [])


def test_a_wait_ends_at_the_deadline(pipe: tuple[int, int], ms: float) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineMissed) as caught:
        Scope.root(100 * ms).within(None, peer="p", stage="s").wait([pipe[0]])
    assert 100 * ms <= time.monotonic() - began < 1000 * ms
    assert (caught.value.peer, caught.value.stage) == ("p", "s")


def test_a_wait_may_be_bounded_without_being_late(pipe: tuple[int, int], ms: float) -> None:
    began = time.monotonic()
    assert Scope.root(60).wait([pipe[0]], at_most=50 * ms) == ([], [])
    assert Scope.root().wait(at_most=50 * ms) == ([], [])
    assert 100 * ms <= time.monotonic() - began < 2000 * ms


@pytest.mark.parametrize("at_most", [None, 60])
def test_a_signal_that_somebody_handles_does_not_end_a_wait(
    pipe: tuple[int, int], at_most: float | None, ms: float
) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    timers = [
        threading.Timer(50 * ms, os.kill, (os.getpid(), signal.SIGUSR1)),
        threading.Timer(200 * ms, os.write, (pipe[1], b"x")),
    ]
    try:
        for timer in timers:
            timer.start()
        assert Scope.root().wait([pipe[0]], at_most=at_most) == ([pipe[0]], [])
    finally:
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


def test_a_wait_for_nothing_at_all_does_not_last() -> None:
    assert Scope.root().wait(at_most=0) == ([], [])


def test_a_bound_beyond_the_deadline_does_not_move_it(ms: float) -> None:
    with pytest.raises(DeadlineMissed):
        Scope.root(50 * ms).wait(at_most=60)


def test_a_wait_past_the_deadline_raises_even_when_something_is_ready(
    pipe: tuple[int, int], clock: Clock
) -> None:
    os.write(pipe[1], b"x")
    scope = Scope.root(1, clock=clock)
    clock.now += 2
    with pytest.raises(DeadlineMissed):
        scope.wait([pipe[0]])


def test_a_deadline_in_centuries_is_waited_for_like_any_other(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"x")
    assert Scope.root(1e10).wait([pipe[0]]) == ([pipe[0]], [])
    assert Scope.root().wait([pipe[0]], at_most=1e10) == ([pipe[0]], [])


def test_a_wait_does_not_spin_through_its_last_millisecond(pipe: tuple[int, int]) -> None:
    calls = 0

    def counting() -> float:
        nonlocal calls
        calls += 1
        return time.monotonic()

    with pytest.raises(DeadlineMissed):
        scope = Scope.root(0.05, clock=counting)
        while True:
            scope.wait([pipe[0]])
    assert calls < 12


def test_cancel_from_another_thread_wakes_a_wait(pipe: tuple[int, int], ms: float) -> None:
    scope = Scope.root(30).within(None, peer="p", stage="call")
    canceller = threading.Timer(50 * ms, scope.cancel, ["enough"])
    began = time.monotonic()
    canceller.start()
    with pytest.raises(Cancelled, match="p: call: cancelled \\(enough\\)"):
        scope.wait([pipe[0]])
    assert time.monotonic() - began < 2000 * ms
    canceller.join()


def test_cancel_from_a_signal_handler_wakes_a_wait(pipe: tuple[int, int], ms: float) -> None:
    scope = Scope.root(30)
    before = signal.signal(signal.SIGALRM, lambda *_: scope.cancel("alarm"))
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 50 * ms)
        with pytest.raises(Cancelled, match="alarm"):
            scope.wait([pipe[0]])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 2000 * ms


def test_a_cancel_before_anything_waited_is_not_lost(pipe: tuple[int, int]) -> None:
    token = CancelToken()
    token.cancel("early")
    with pytest.raises(Cancelled, match="early"):
        Scope.root(30, token=token).wait([pipe[0]])
    assert Scope.root(5).wait([token.fileno()]) == ([token.fileno()], [])


def test_a_cancel_wakes_every_waiter_now_and_later(ms: float) -> None:
    token = CancelToken()
    woken: list[str] = []

    def work() -> None:
        try:
            Scope.root(30, token=token).wait()
        except Cancelled as cancelled:
            woken.append(cancelled.reason)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(20 * ms)
    token.cancel("all")
    for thread in threads:
        thread.join(10)
    work()
    assert woken == ["all"] * 9


def test_a_token_is_cancelled_more_often_than_its_pipe_holds(pipe: tuple[int, int]) -> None:
    token = CancelToken()
    token.fileno()
    for _ in range(70_000):
        token.cancel("again")
    with pytest.raises(Cancelled):
        Scope.root(5, token=token).wait([pipe[0]])


def test_a_pause_lasts_as_long_as_it_says_and_no_cancel_is_missed(ms: float) -> None:
    began = time.monotonic()
    Scope.root(30).pause(50 * ms)
    assert 50 * ms <= time.monotonic() - began < 1000 * ms
    scope = Scope.root(30)
    scope.cancel("x")
    with pytest.raises(Cancelled):
        scope.pause(30)
    with pytest.raises(DeadlineMissed):
        Scope.root(20 * ms).pause(30)


def test_a_pause_goes_on_after_a_signal(ms: float) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 10 * ms, 10 * ms)
        Scope.root().pause(60 * ms)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began >= 60 * ms


# -- descriptors ------------------------------------------------------------------------------------


def test_a_thousand_scopes_leave_no_descriptor() -> None:
    before = descriptors()
    for _ in range(1000):
        scope = Scope.root(5).within(1, peer="p").also(CancelToken())
        scope.wait(at_most=0)
        scope.cancel("x")
    del scope
    assert opened_since(before) == []


def test_dropped_tokens_are_collected_where_descriptors_run_out() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    gc.disable()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        for _ in range(300):
            token = CancelToken()
            # Only a collection finds it, as it finds everything where references are not counted.
            token.itself = token
            token.fileno()
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    del token
    gc.collect()


def test_a_token_nobody_waited_on_has_no_descriptor() -> None:
    before = descriptors()
    tokens = [CancelToken() for _ in range(100)]
    for token in tokens:
        token.cancel("x")
    assert opened_since(before) == []


def test_a_token_has_one_descriptor_that_programs_do_not_inherit() -> None:
    token = CancelToken()
    assert token.fileno() == token.fileno()
    assert not os.get_inheritable(token.fileno())


def test_cleanup_at_exit_can_still_be_cancelled() -> None:
    # A callback registered before the first token runs after everything registered later.
    script = """
import atexit
from latch.system.scope import CancelToken, Scope
tokens = []
def late():
    scope = Scope.root(5, token=tokens[0])
    print(scope.wait(at_most=0.01), flush=True)
    tokens[0].cancel("at exit")
    try:
        scope.wait()
    except BaseException as error:
        print(error, flush=True)
atexit.register(late)
tokens.append(CancelToken())
print(len(Scope.root(token=tokens[0]).wait(at_most=0)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("2\n([], [])\ncancelled (at exit)\n", "")
