"""Deadline, cancel, peer and stage in one value: whatever may block takes a :class:`Scope`.

The only importer of the clock. A scope is immutable; narrowing makes a new one. Missed deadlines
name the peer and the stage because the scope already knows them.

This module does not end anything: it only tells the caller, by raising, that time is up or that the
work was cancelled. Cleanup runs in :meth:`Scope.shielded`, which no token can cancel.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import select
import threading
import time
import weakref
from typing import Callable, Collection

from ..errors import Cancelled, DeadlineMissed, seconds_text

__all__ = ["CancelToken", "Scope"]

# poll(2) takes a C int; a wait for longer than these 24 days ends early with nothing ready.
_LONGEST_POLL_MS = 2**31 - 1
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


class CancelToken:
    """A flag, a reason, and a pipe whose byte is never read: every waiter wakes, now and later."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._read_end = -1
        self._write_end = -1
        self._creating = threading.Lock()

    @property
    def reason(self) -> str | None:
        """Why it was cancelled, or None."""
        return self._reasons[0] if self._reasons else None

    def cancel(self, reason: str) -> None:
        """Cancel; idempotent, the first reason stays. Safe in a signal handler and from any thread."""
        # NOTE: append is one step, so the first stays first when a handler or thread comes in between.
        if not self._reasons:
            self._reasons.append(reason)
        if self._write_end >= 0:
            self._wake()

    def fileno(self) -> int:
        """Return a descriptor that is readable for ever once the token was cancelled."""
        if self._read_end < 0:
            with self._creating:
                if self._read_end < 0:
                    read_end, write_end = _pipe()
                    os.set_blocking(write_end, False)
                    # NOTE: not at exit, when others may still wait on it; the system closes it then.
                    weakref.finalize(self, _close_both, read_end, write_end).atexit = False
                    self._read_end, self._write_end = read_end, write_end
            # NOTE: cancel() may have run before the pipe existed.
            if self._reasons:
                self._wake()
        return self._read_end

    def _wake(self) -> None:
        try:
            os.write(self._write_end, b"x")
        except BlockingIOError:
            pass


class Scope:
    """What bounds one piece of work. Make one with :meth:`root`, then narrow it."""

    __slots__ = ("_clock", "_missing", "_own", "deadline", "peer", "seconds", "stage", "tokens")

    def __init__(
        self,
        *,
        deadline: float | None,
        seconds: float | None,
        tokens: tuple[CancelToken, ...],
        peer: str | None,
        stage: str | None,
        own: bool,
        missing: str | None,
        clock: Callable[[], float],
    ) -> None:
        self.deadline = deadline
        self.seconds = seconds
        self.tokens = tokens
        self.peer = peer
        self.stage = stage
        self._own = own
        self._missing = missing
        self._clock = clock

    @classmethod
    def root(
        cls,
        seconds: float | None = None,
        *,
        token: CancelToken | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Scope:
        """Return a scope with a deadline *seconds* from now (None: none) and its own cancel token.

        *clock* is the seam for tests: a callable that returns monotonic seconds.
        """
        return cls(
            deadline=None if seconds is None else clock() + seconds,
            seconds=seconds,
            tokens=(token or CancelToken(),),
            peer=None,
            stage=None,
            own=True,
            missing=None,
            clock=clock,
        )

    def within(
        self,
        seconds: float | None,
        *,
        peer: str | None = None,
        stage: str | None = None,
        missing: str | None = None,
    ) -> Scope:
        """Return a narrower scope: the earlier of its own deadline and this one's, labels replaced.

        *missing* is what will not have come when the deadline passes (``ready`` gives ``no ready
        within 30 s``). *seconds* None only changes the labels; a deadline stays the peer's own in each stage
        of that peer, and is the caller's for another.
        """
        deadline, length, own = self.deadline, self.seconds, False
        if seconds is not None:
            ours = self._clock() + seconds
            if deadline is None or ours <= deadline:
                deadline, length, own = ours, seconds, True
        elif peer in (None, self.peer) and (stage is None or self.peer is not None):
            own = self._own
        return Scope(
            deadline=deadline,
            seconds=length,
            tokens=self.tokens,
            peer=peer or self.peer,
            stage=stage or self.stage,
            own=own,
            missing=missing,
            clock=self._clock,
        )

    def also(self, token: CancelToken) -> Scope:
        """Return this scope with *token* as one more way to cancel it."""
        return Scope(
            deadline=self.deadline,
            seconds=self.seconds,
            tokens=(*self.tokens, token),
            peer=self.peer,
            stage=self.stage,
            own=self._own,
            missing=self._missing,
            clock=self._clock,
        )

    def shielded(self, seconds: float, *, stage: str | None = None) -> Scope:
        """Return a scope with a fresh deadline and no tokens, for cleanup only."""
        return Scope(
            deadline=self._clock() + seconds,
            seconds=seconds,
            tokens=(),
            peer=self.peer,
            stage=stage or self.stage,
            own=True,
            missing=None,
            clock=self._clock,
        )

    def cancel(self, reason: str) -> None:
        """Cancel the work, from any thread or a signal handler; a shielded scope cannot be."""
        if self.tokens:
            self.tokens[0].cancel(reason)

    def remaining(self) -> float | None:
        """Return the seconds left, at least 0.0, or None where there is no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - self._clock())

    def now(self) -> float:
        """Return the monotonic time of this scope's clock, in seconds; only differences mean anything."""
        return self._clock()

    def check(self) -> None:
        """Raise :class:`Cancelled` or :class:`DeadlineMissed` when the work is to end."""
        for token in self.tokens:
            if token.reason is not None:
                raise Cancelled(token.reason, peer=self.peer, stage=self.stage)
        if self.deadline is not None and self._clock() >= self.deadline:
            raise self._missed()

    def wait(
        self, reads: Collection[int] = (), writes: Collection[int] = (), *, at_most: float | None = None
    ) -> tuple[list[int], list[int]]:
        """Wait until a descriptor of *reads* or *writes* is ready and return those that are.

        A hang-up counts as ready. Both lists are empty when *at_most* seconds passed first. Raises
        :class:`Cancelled` or :class:`DeadlineMissed`.
        """
        self.check()
        poll = select.poll()
        for descriptor in reads:
            poll.register(descriptor, _READABLE)
        for descriptor in writes:
            poll.register(descriptor, _WRITABLE if descriptor not in reads else _READABLE | _WRITABLE)
        for token in self.tokens:
            poll.register(token.fileno(), _READABLE)
        end = None if at_most is None else self._clock() + at_most
        ready = dict(poll.poll(self._milliseconds(at_most)))
        # NOTE: PyPy's poll comes back with nothing after a signal handler ran, and any after its longest wait.
        while not ready and (end is None or self._clock() < end):
            self.check()
            left = None if end is None else max(0.0, end - self._clock())
            ready = dict(poll.poll(self._milliseconds(left)))
        if not ready or self._is_cancelled():
            self.check()
        return (
            [descriptor for descriptor in reads if ready.get(descriptor, 0) & _READABLE],
            [descriptor for descriptor in writes if ready.get(descriptor, 0) & _WRITABLE],
        )

    def pause(self, seconds: float) -> None:
        """Wait *seconds*; raises :class:`Cancelled` or :class:`DeadlineMissed` when those come first."""
        end = self._clock() + seconds
        while True:
            left = end - self._clock()
            if left <= 0:
                return
            self.wait(at_most=left)

    def _is_cancelled(self) -> bool:
        for token in self.tokens:
            if token.reason is not None:
                return True
        return False

    def _milliseconds(self, at_most: float | None) -> int | None:
        if self.deadline is not None:
            left = max(0.0, self.deadline - self._clock())
            at_most = left if at_most is None else min(left, at_most)
        # NOTE: rounded up, or a wait would spin through the last millisecond.
        return None if at_most is None else math.ceil(min(at_most * 1000, _LONGEST_POLL_MS))

    def _missed(self) -> DeadlineMissed:
        length = seconds_text(self.seconds or 0.0)
        whose = length if self._own else f"the caller's {length}"
        reason = f"no {self._missing} within {whose}" if self._missing else f"not done within {whose}"
        return DeadlineMissed(
            reason, seconds=self.seconds or 0.0, own=self._own, peer=self.peer, stage=self.stage
        )


def _pipe() -> tuple[int, int]:
    try:
        return os.pipe()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        # NOTE: where nothing counts references (PyPy), dropped tokens keep their descriptors until a collection.
        gc.collect()
        return os.pipe()


def _close_both(read_end: int, write_end: int) -> None:
    os.close(read_end)
    os.close(write_end)
