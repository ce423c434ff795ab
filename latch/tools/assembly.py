"""All the wiring of one configuration: its sandbox, and its extensions started side by side."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, Sequence

from ..errors import Cancelled, LatchError
from ..extensions.host import ExtensionHost
from ..limits import DEFAULT, Limits
from ..settings import ExtensionSettings, Settings
from ..system.machine import Machine
from ..system.sandbox import Sandbox
from ..system.scope import CancelToken, Scope

__all__ = ["check_extensions", "close_extensions", "open_extensions", "sandbox_for"]


def sandbox_for(settings: Settings, *, machine: Machine | None = None, limits: Limits = DEFAULT) -> Sandbox:
    """Return the sandbox that all peers of *settings* share."""
    return Sandbox(settings.sandbox, machine=machine, limits=limits)


def open_extensions(
    entries: Sequence[ExtensionSettings],
    *,
    workspace: Path,
    sandbox: Sandbox,
    scope: Scope,
    on_ready: Callable[[ExtensionHost], None] | None = None,
) -> list[ExtensionHost]:
    """Start *entries* side by side and return their hosts in the given order.

    The first failure stops the others and is raised once nothing is left; cancel does the same.
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
        failures = [start.failure for start in ended if start.failure is not None]
        if failures:
            raise _first(failures)
    return [start.host for start in starts if start.host is not None]


def check_extensions(
    entries: Sequence[ExtensionSettings],
    *,
    workspace: Path,
    sandbox: Sandbox,
    scope: Scope,
    trace: Callable[[str, bytes], None] | None = None,
    on_end: Callable[[ExtensionSettings, float], None] | None = None,
) -> list[ExtensionHost | LatchError]:
    """Start *entries* side by side and return for each its host or why it failed; all run to their end.

    *on_end* is called with each entry and the seconds its start took. Raises :class:`Cancelled` once
    nothing is left.
    """
    stop = CancelToken()
    starts = [_Start(entry, workspace, sandbox, scope.also(stop), trace) for entry in entries]

    def report(start: _Start) -> None:
        if on_end is not None:
            on_end(start.entry, start.seconds)

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


def close_extensions(hosts: Sequence[ExtensionHost]) -> list[LatchError]:
    """Shut down *hosts*, newest first, and return what went wrong; all of them are gone afterwards."""
    failures = []
    for host in reversed(hosts):
        try:
            host.close()
        except LatchError as error:
            failures.append(error)
    return failures


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
                limits=self._sandbox.limits,
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
    if not starts:
        return []
    order: list[_Start] = []
    faults: list[BaseException] = []
    lock = threading.Lock()
    read_end, write_end = os.pipe()

    def work(start: _Start) -> None:
        start.run()
        with lock:
            order.append(start)
            try:
                on_end(start)
            except BaseException as error:
                faults.append(error)
                stop.cancel("a start could not be reported")
            if len(order) == len(starts):
                os.close(write_end)

    for start in starts:
        threading.Thread(target=work, args=(start,), name=__name__, daemon=True).start()
    # NOTE: no deadline and no tokens of ours: each start ends by its own, its kill included.
    patient = Scope.root()
    try:
        patient.wait([read_end])
    except BaseException:
        stop.cancel("the start was interrupted")
        patient.wait([read_end])
        raise
    finally:
        os.close(read_end)
    if faults:
        raise faults[0]
    return order


@contextmanager
def _killing_on_failure(starts: Sequence[_Start]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for start in starts:
            if start.host is not None:
                start.host.kill()
        raise


def _first(failures: Sequence[BaseException]) -> BaseException:
    """The first that is not an echo: a start that was stopped because another failed says nothing."""
    errors = [failure for failure in failures if not isinstance(failure, Cancelled)]
    return errors[0] if errors else failures[0]
