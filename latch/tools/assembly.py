"""All the wiring of one configuration: its sandbox, and its extensions started side by side."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Callable, Iterable, Iterator, Sequence

from ..errors import Cancelled, LatchError, SandboxUnavailable
from ..extensions.host import ExtensionHost
from ..limits import DEFAULT, Limits
from ..settings import ExtensionSettings, Settings
from ..system.machine import Machine
from ..system.sandbox import Sandbox
from ..system.scope import CancelToken, Scope
from .names import BUILT_IN_COMMANDS

__all__ = ["check_extensions", "close_extensions", "kill_extensions", "open_extensions", "sandbox_for"]


def sandbox_for(settings: Settings, *, machine: Machine | None = None, limits: Limits = DEFAULT) -> Sandbox:
    """Return the sandbox that all peers of *settings* share."""
    return Sandbox(settings.sandbox, machine=machine, limits=limits)


def open_extensions(
    entries: Sequence[ExtensionSettings],
    *,
    workspace: Path,
    sandbox: Sandbox,
    scope: Scope,
    needed: str | None = None,
    on_ready: Callable[[ExtensionHost], None] | None = None,
) -> list[ExtensionHost]:
    """Start *entries* side by side and return their hosts in the given order.

    The first failure stops the others and is raised once nothing is left; cancel does the same. Where it
    is that of another than the one named *needed*, its hint says how to go on without that one.
    *on_ready* is called for each as it becomes ready, one at a time, from its starting thread.
    """
    stop = CancelToken()
    starts = [_Start(entry, workspace, sandbox, scope.also(stop), None) for entry in entries]

    def on_end(start: _Start) -> None:
        if start.failure is not None:
            stop.cancel("another extension failed to start")
        elif start.host is not None and on_ready is not None:
            on_ready(start.host)

    with _killing_on_failure(starts):
        ended = _run_side_by_side(starts, on_end, stop)
        failures = {start.failure: start.entry for start in ended if start.failure is not None}
        if failures:
            first = _first(list(failures))
            _hint_way_out(first, failures[first], others=len(entries) > 1, needed=needed)
            raise first
    return [start.host for start in starts if start.host is not None]


def check_extensions(
    entries: Sequence[ExtensionSettings],
    *,
    workspace: Path,
    sandbox: Sandbox,
    scope: Scope,
    trace: Callable[[str, bytes], None] | None = None,
    on_end: Callable[[ExtensionSettings, float, bool], None] | None = None,
) -> list[ExtensionHost | LatchError]:
    """Start *entries* side by side and return for each its host or why it failed; all run to their end.

    *on_end* is called with each entry, the seconds its start took and whether it started. Raises
    :class:`Cancelled` once nothing is left.
    """
    stop = CancelToken()
    starts = [_Start(entry, workspace, sandbox, scope.also(stop), trace) for entry in entries]

    def report(start: _Start) -> None:
        if on_end is not None:
            on_end(start.entry, start.seconds, start.failure is None)

    with _killing_on_failure(starts):
        failures = [start.failure for start in _run_side_by_side(starts, report, stop)]
        grave = [failure for failure in failures if not isinstance(failure, (LatchError, type(None)))]
        if grave:
            raise _first(grave)
    outcomes: list[ExtensionHost | LatchError] = []
    for start in starts:
        outcome = start.failure or start.host
        assert isinstance(outcome, (ExtensionHost, LatchError))
        outcomes.append(outcome)
    return outcomes


def close_extensions(
    hosts: Sequence[ExtensionHost], scope: Scope | None = None
) -> list[tuple[ExtensionHost, LatchError]]:
    """Shut *hosts* down side by side and return those that did not go by the rules, newest first, and why.

    All of them are gone afterwards. A cancel of *scope* kills what is still there and is raised.
    """
    outcomes: dict[str, BaseException] = {}
    stop = CancelToken()
    within = (scope or Scope.root()).also(stop)

    def close(host: ExtensionHost) -> None:
        try:
            host.close(within)
        except BaseException as error:  # it is raised again by the thread that asked for the end
            outcomes[host.name] = error
            kill_extensions([host], error)

    _side_by_side([partial(close, host) for host in hosts], partial(stop.cancel, "the end was interrupted"))
    failures = [(host, outcomes[host.name]) for host in reversed(hosts) if host.name in outcomes]
    for _, failure in failures:
        if not isinstance(failure, LatchError):
            raise failure
    return [(host, failure) for host, failure in failures if isinstance(failure, LatchError)]


def kill_extensions(hosts: Iterable[ExtensionHost], failure: BaseException) -> None:
    """End all of *hosts* at once, because of *failure*, and add to it what could not be ended.

    Raises such an error only where *failure* is none of ours and cannot carry it; never before all were
    ended.
    """
    unproven: list[LatchError] = []
    for host in hosts:
        try:
            host.kill()
        except LatchError as error:
            unproven.append(error)
    if unproven and not isinstance(failure, (LatchError, Cancelled)):
        raise unproven[0] from failure
    for error in unproven:
        # NOTE: where it was an exchange that failed, its own failure says so already.
        if error.reason not in str(failure):
            failure.after(str(error))


class _Start:
    """One extension's start, in a thread of its own."""

    def __init__(
        self,
        entry: ExtensionSettings,
        workspace: Path,
        sandbox: Sandbox,
        scope: Scope,
        trace: Callable[[str, bytes], None] | None,
    ) -> None:
        self.entry = entry
        self.host: ExtensionHost | None = None
        self.failure: BaseException | None = None
        self.seconds = 0.0
        self._workspace = workspace
        self._sandbox = sandbox
        self._scope = scope
        self._trace = trace

    def run(self) -> None:
        """Open the host; the outcome is in ``host`` or ``failure``."""
        began = self._scope.now()
        try:
            self.host = ExtensionHost.open(
                self.entry,
                workspace=self._workspace,
                scope=self._scope,
                sandbox=self._sandbox,
                reserved_commands=BUILT_IN_COMMANDS,
                trace=self._trace,
            )
        except BaseException as error:  # it is raised again by the thread that asked for the start
            self.failure = error
        self.seconds = self._scope.now() - began


def _run_side_by_side(
    starts: Sequence[_Start], on_end: Callable[[_Start], None], stop: CancelToken
) -> list[_Start]:
    """Run every start in its thread until all have ended; return them in the order in which they did.

    *on_end* gets each, one at a time; what it raises cancels the others and is raised once all have ended.
    """
    order: list[_Start] = []
    faults: list[BaseException] = []
    lock = threading.Lock()

    def work(start: _Start) -> None:
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
def _killing_on_failure(starts: Sequence[_Start]) -> Iterator[None]:
    try:
        yield
    except BaseException as failure:
        kill_extensions([start.host for start in starts if start.host is not None], failure)
        raise


def _first(failures: Sequence[BaseException]) -> BaseException:
    """The first that is not an echo: a start that was stopped because another failed says nothing."""
    errors = [failure for failure in failures if not isinstance(failure, Cancelled)]
    return errors[0] if errors else failures[0]


def _hint_way_out(
    failure: BaseException, entry: ExtensionSettings, *, others: bool, needed: str | None
) -> None:
    subject = f'extension "{entry.name}"'
    # NOTE: what does not name it (the workspace, the ledger), or no sandbox at all, fails every extension.
    its_own = isinstance(failure, LatchError) and subject in str(failure)
    if its_own and not isinstance(failure, SandboxUnavailable) and others and entry.name != needed:
        way_out = f"enabled = false for {subject} lets the others go on without it"
        failure.hint = f"{failure.hint}; or {way_out}" if failure.hint else way_out
