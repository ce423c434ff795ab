"""Peers side by side: opened, checked, closed and killed together, whatever they speak.

Extensions and MCP servers alike are started in one thread each, in a fixed order whatever is ready first.
The first failure stops the others; cancel and interruption do the same; nothing is left of any.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Callable, Generic, Iterable, Iterator, Protocol, Sequence, TypeVar, Union

from ..errors import Cancelled, LatchError, SandboxUnavailable
from ..system.scope import CancelToken, Scope

__all__ = ["Opening", "Peer", "check_peers", "close_peers", "kill_peers", "open_peers"]


class Peer(Protocol):
    """What is opened: an extension's host, or the client of an MCP server."""

    @property
    def name(self) -> str:
        """The name of its configuration entry, unique over all of them."""

    def close(self, scope: Scope | None = None) -> None:
        """End it politely."""

    def kill(self) -> None:
        """End it at once."""


P = TypeVar("P", bound=Peer)


@dataclass(frozen=True)
class Opening(Generic[P]):
    """One peer to be opened: ``name`` of its entry, ``subject`` as errors call it, and ``open``."""

    name: str
    subject: str
    open: Callable[[Scope], P]


def open_peers(
    openings: Sequence[Opening[P]],
    *,
    scope: Scope,
    needed: str | None = None,
    on_ready: Callable[[P], None] | None = None,
) -> list[P]:
    """Open all side by side and return the peers in the given order.

    The first failure stops the others and is raised once nothing is left; cancel does the same. Where it
    is that of another than the one named *needed*, its hint says how to go on without that one.
    *on_ready* is called for each as it becomes ready, one at a time, from its starting thread.
    """
    stop = CancelToken()
    starts = [_Start(opening, scope.also(stop)) for opening in openings]

    def on_end(start: _Start[P]) -> None:
        if start.failure is not None:
            stop.cancel("another peer failed to start")
        elif start.peer is not None and on_ready is not None:
            on_ready(start.peer)

    with _killing_on_failure(starts):
        ended = _run_side_by_side(starts, on_end, stop)
        failures = {start.failure: start.opening for start in ended if start.failure is not None}
        if failures:
            first = _first(list(failures))
            _hint_way_out(first, failures[first], others=len(openings) > 1, needed=needed)
            raise first
    return [start.peer for start in starts if start.peer is not None]


def check_peers(
    openings: Sequence[Opening[P]],
    *,
    scope: Scope,
    on_end: Callable[[Opening[P], float, bool], None] | None = None,
) -> list[Union[P, LatchError]]:
    """Open all side by side and return for each its peer or why it failed; all run to their end.

    *on_end* is called with each opening, the seconds it took and whether it worked. Raises
    :class:`Cancelled` once nothing is left.
    """
    stop = CancelToken()
    starts = [_Start(opening, scope.also(stop)) for opening in openings]

    def report(start: _Start[P]) -> None:
        if on_end is not None:
            on_end(start.opening, start.seconds, start.failure is None)

    with _killing_on_failure(starts):
        failures = [start.failure for start in _run_side_by_side(starts, report, stop)]
        grave = [failure for failure in failures if not isinstance(failure, (LatchError, type(None)))]
        if grave:
            raise _first(grave)
    outcomes: list[Union[P, LatchError]] = []
    for start in starts:
        if isinstance(start.failure, LatchError):
            outcomes.append(start.failure)
        else:
            assert start.peer is not None
            outcomes.append(start.peer)
    return outcomes


def close_peers(peers: Sequence[P], scope: Scope | None = None) -> list[tuple[P, LatchError]]:
    """Close *peers* side by side and return those that did not go by the rules, newest first, and why.

    All of them are gone afterwards. A cancel of *scope* kills what is still there and is raised.
    """
    outcomes: dict[str, BaseException] = {}
    stop = CancelToken()
    within = (scope or Scope.root()).also(stop)

    def close(peer: P) -> None:
        try:
            peer.close(within)
        except BaseException as error:  # it is raised again by the thread that asked for the end
            outcomes[peer.name] = error
            kill_peers([peer], error)

    _side_by_side([partial(close, peer) for peer in peers], partial(stop.cancel, "the end was interrupted"))
    failures = [(peer, outcomes[peer.name]) for peer in reversed(peers) if peer.name in outcomes]
    for _, failure in failures:
        if not isinstance(failure, LatchError):
            raise failure
    return [(peer, failure) for peer, failure in failures if isinstance(failure, LatchError)]


def kill_peers(peers: Iterable[Peer], failure: BaseException) -> None:
    """End all of *peers* at once, because of *failure*, and add to it what could not be ended.

    Raises such an error only where *failure* is none of ours and cannot carry it; never before all were
    ended.
    """
    unproven: list[LatchError] = []
    for peer in peers:
        try:
            peer.kill()
        except LatchError as error:
            unproven.append(error)
    if unproven and not isinstance(failure, (LatchError, Cancelled)):
        raise unproven[0] from failure
    for error in unproven:
        # NOTE: where it was an exchange that failed, its own failure says so already.
        if error.reason not in str(failure):
            failure.after(str(error))


class _Start(Generic[P]):
    """One peer's start, in a thread of its own."""

    def __init__(self, opening: Opening[P], scope: Scope) -> None:
        self.opening = opening
        self.peer: P | None = None
        self.failure: BaseException | None = None
        self.seconds = 0.0
        self._scope = scope

    def run(self) -> None:
        """Open the peer; the outcome is in ``peer`` or ``failure``."""
        began = self._scope.now()
        try:
            self.peer = self.opening.open(self._scope)
        except BaseException as error:  # it is raised again by the thread that asked for the start
            self.failure = error
        self.seconds = self._scope.now() - began


def _run_side_by_side(
    starts: Sequence[_Start[P]], on_end: Callable[[_Start[P]], None], stop: CancelToken
) -> list[_Start[P]]:
    """Run every start in its thread until all have ended; return them in the order in which they did.

    *on_end* gets each, one at a time; what it raises cancels the others and is raised once all have ended.
    """
    order: list[_Start[P]] = []
    faults: list[BaseException] = []
    lock = threading.Lock()

    def work(start: _Start[P]) -> None:
        start.run()
        with lock:
            order.append(start)
            try:
                on_end(start)
            except BaseException as error:  # it is raised again by the thread that asked for the start
                faults.append(error)
                stop.cancel("a start could not be reported")

    _side_by_side(
        [partial(work, start) for start in starts], partial(stop.cancel, "the start was interrupted")
    )
    if faults:
        raise faults[0]
    return order


def _side_by_side(works: Sequence[Callable[[], None]], on_interrupt: Callable[[], None]) -> None:
    """Run each of *works* in a thread of its own until all have ended. They raise nothing.

    When this thread is interrupted, or cannot start them all, *on_interrupt* is called, those that run
    are waited for, and it is raised.
    """
    if not works:
        return
    read_end, write_end = os.pipe()
    waiting = len(works)
    lock = threading.Lock()

    def end(count: int) -> None:
        nonlocal waiting
        with lock:
            waiting -= count
            if waiting == 0:
                os.close(write_end)

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            end(1)

    # NOTE: no deadline and no tokens of ours: each work ends by its own, its kill included.
    patient, started = Scope.root(), 0
    try:
        for work in works:
            threading.Thread(target=run, args=(work,), name=__name__, daemon=True).start()
            started += 1
        patient.wait([read_end])
    except BaseException:
        if started < len(works):
            end(len(works) - started)
        on_interrupt()
        patient.wait([read_end])
        raise
    finally:
        os.close(read_end)


@contextmanager
def _killing_on_failure(starts: Sequence[_Start[P]]) -> Iterator[None]:
    try:
        yield
    except BaseException as failure:
        kill_peers([start.peer for start in starts if start.peer is not None], failure)
        raise


def _first(failures: Sequence[BaseException]) -> BaseException:
    """The first that is not an echo: a start that was stopped because another failed says nothing."""
    errors = [failure for failure in failures if not isinstance(failure, Cancelled)]
    return errors[0] if errors else failures[0]


def _hint_way_out(failure: BaseException, opening: Opening[P], *, others: bool, needed: str | None) -> None:
    # NOTE: what does not name it (the workspace, the ledger), or no sandbox at all, fails every peer.
    its_own = isinstance(failure, LatchError) and opening.subject in str(failure)
    if its_own and not isinstance(failure, SandboxUnavailable) and others and opening.name != needed:
        way_out = f"enabled = false for {opening.subject} lets the others go on without it"
        failure.hint = f"{failure.hint}; or {way_out}" if failure.hint else way_out
