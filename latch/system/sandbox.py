"""The sandbox of one configuration: plan, bubblewrap found and probed, start.

There is no other way to start anything for a peer, a model or a skill, and no way round the sandbox.
``planning.py`` says what would run and what it would see, ``starting.py`` lets it run; this file sees
to it that bubblewrap was seen to work with the options in use, and that what dead hosts left was swept.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from ..errors import ContainmentError, DeadlineMissed, LatchError, SandboxUnavailable
from ..limits import DEFAULT, Limits
from ..settings import SandboxSettings
from .bubblewrap import (
    BASELINE_OPTIONS,
    Bubblewrap,
    Surroundings,
    explain_failure,
    explain_refusal,
    find_bubblewrap,
    has_options,
    own_words,
    unaccounted,
    unavailable,
)
from .child import Child, ChildExit
from .ledger import Entry, Ledger, Swept, check_state, has_dead_host, read_entries, sweep
from .machine import Machine
from .planning import Planner, Prepared
from .processes import is_want
from .scope import Scope
from .starting import Answer, Heard, Starter, hang, is_crash, telling_what
from .throwaway import remove_left_places, states_of_places

__all__ = ["Sandbox"]

# What the probe's shell must print, line by line; see _PROBE_SCRIPT.
_PROBE_SCRIPT = """
while read -r key value; do
  case $key in CapEff:|NoNewPrivs:) echo "$key $value" ;; esac
done < /proc/self/status
read -r name < /proc/1/comm; echo "init: $name"
if (: >> /proc/sys/kernel/core_pattern) 2> /dev/null; then echo "sysctl: open"; else echo "sysctl: closed"; fi
for entry in "$HOME"/* "$HOME"/.[!.]*; do [ ! -e "$entry" ] || echo "home: $entry"; done
"""
# proc(5): how much of a file's name is its process's
_COMM_BYTES = 15
_PROBE_ANSWER = ["CapEff: 0000000000000000", "NoNewPrivs: 1", "init: bwrap", "sysctl: closed"]


@dataclass(frozen=True)
class _Failure:
    error: SandboxUnavailable
    wanted: str

    def told_of(self, wanted: str) -> SandboxUnavailable:
        """Return the same failure for another who *wanted* something at the same time."""
        reason = self.error.reason.replace(f"cannot start {self.wanted}", f"cannot start {wanted}", 1)
        error = SandboxUnavailable(reason, cause=self.error.cause, hint=self.error.hint or "")
        error.aftermath[:] = self.error.aftermath
        return error


class _Turn:
    """One piece of work for all who need it at once: who waited takes the outcome of the one that did it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self.failure: _Failure | None = None

    @contextmanager
    def taken(self, scope: Scope, *, poll_seconds: float) -> Iterator[bool]:
        """Wait for the turn and yield whether the work was done, or failed, while we waited."""
        before = self._done
        while not self._lock.acquire(blocking=False):
            scope.pause(poll_seconds)
        try:
            yield self._done != before
        finally:
            self._lock.release()

    def end(self, failure: _Failure | None = None) -> None:
        """Say that the work was done, or that it failed for a reason that holds for all."""
        self.failure = failure
        self._done += 1


# NOTE: what is known of a bwrap file, by its path, inode, mtime, our uid and the probed options: facts
# about the machine, shared by every Sandbox of the process, so that each start does not probe again.
_KNOWN: dict[tuple[object, ...], Bubblewrap] = {}
_TURNS: dict[tuple[object, ...], _Turn] = {}


class Sandbox:
    """Plans and starts sandboxed children for one configuration. Safe to use from several threads."""

    def __init__(
        self, settings: SandboxSettings, *, machine: Machine | None = None, limits: Limits = DEFAULT
    ) -> None:
        self._settings = settings
        self._machine = machine or Machine.read()
        self._limits = limits
        self._state = self._machine.state_directory_of(settings)
        self._planner = Planner(settings, self._machine, limits=limits)
        self._starter = Starter(
            Ledger(self._state, limits=limits.process), uid=self._machine.uid, limits=limits
        )

    @property
    def machine(self) -> Machine:
        """The machine this sandbox plans for."""
        return self._machine

    @property
    def planner(self) -> Planner:
        """Prepares what :meth:`start` starts."""
        return self._planner

    @property
    def limits(self) -> Limits:
        """The limits this sandbox works under."""
        return self._limits

    @property
    def state_directory(self) -> Path:
        """Where the ledger is kept."""
        return self._state

    # -- bubblewrap -------------------------------------------------------------------------------

    def ready(
        self, scope: Scope, *, wanted: str, workspace: Path | None = None, network: bool = True
    ) -> Bubblewrap:
        """Return a bubblewrap that was seen to work with the options in use, or say why there is none.

        The first call of a process with a given bwrap probes it, and every one first sweeps what dead
        hosts left. Threads that come at once share one probe and one sweep.
        Raises :class:`SandboxUnavailable`, :class:`UnsafeModes` for a state directory that others may
        change, and what *scope* raises.
        """
        with telling_what(wanted):
            check_state(self._state, self._machine.uid)
            path = find_bubblewrap(self._settings.bwrap, self._machine, workspace=workspace, wanted=wanted)
            self._sweep_if_needed(scope)
            return self._working(path, scope, wanted=wanted, network=network)

    def _working(self, path: Path, scope: Scope, *, wanted: str, network: bool) -> Bubblewrap:
        status = os.stat(path)
        key = (path, status.st_ino, status.st_mtime_ns, self._machine.uid, self._machine.home, network)
        known = _KNOWN.get(key)
        if known is not None:
            return known
        turn = self._turn("probe", *key)
        with turn.taken(scope, poll_seconds=self._limits.process.turn_seconds) as was_done:
            known = _KNOWN.get(key)
            if known is not None:
                return known
            if was_done and turn.failure is not None:
                raise turn.failure.told_of(wanted)
            try:
                known = _KNOWN[key] = self._probe(path, scope, wanted=wanted, network=network)
            except SandboxUnavailable as error:
                turn.end(_Failure(error, wanted))
                raise
            turn.end()
            return known

    def sweep(self, scope: Scope) -> Swept:
        """End what killed hosts left, of this state directory and of throw-away places; see ``ledger.py``."""
        check_state(self._state, self._machine.uid)
        uid, limits = self._machine.uid, self._limits.process
        swept = [sweep(state, uid=uid, limits=limits, scope=scope) for state in self._states()]
        remove_left_places(uid)
        ended = {pid for one in swept for pid in one.ended}
        surviving = {pid for one in swept for pid in one.surviving} - ended
        return Swept(tuple(sorted(ended)), tuple(sorted(surviving)), sum(one.kept for one in swept))

    def own_entries(self) -> list[Entry]:
        """Return every unfinished start on record in this sandbox's state directory; creates nothing."""
        return read_entries(self._state, self._limits.process)

    def entries(self) -> list[Entry]:
        """Return every unfinished start on record, here and in throw-away places; creates nothing."""
        check_state(self._state, self._machine.uid)
        return [entry for state in self._states() for entry in read_entries(state, self._limits.process)]

    def _states(self) -> list[Path]:
        return [self._state, *states_of_places(self._machine.uid)]

    def _sweep_if_needed(self, scope: Scope) -> None:
        if not any(has_dead_host(state) for state in self._states()):
            return
        turn = self._turn("sweep", self._state)
        with turn.taken(scope, poll_seconds=self._limits.process.turn_seconds) as was_done:
            if not was_done:
                self.sweep(scope)
                turn.end()

    def _turn(self, *key: object) -> _Turn:
        # NOTE: with our pid, because a lock that a thread held stays held in a forked child.
        return _TURNS.setdefault((os.getpid(), *key), _Turn())

    def _probe(self, path: Path, scope: Scope, *, wanted: str, network: bool) -> Bubblewrap:
        within = scope.within(self._limits.process.probe_seconds, peer="bwrap", stage="probe")
        try:
            answer = self._starter.ask(path, "--help", within, wanted=wanted)
            features = frozenset(word for word in answer.text.split() if word.startswith("--"))
            self._check_features(features, answer, wanted=wanted)
            version = self._starter.ask(path, "--version", within, wanted=wanted).text.split()
            found = Bubblewrap(
                path=path, version=self._quoted(version[-1]) if version else "unknown", features=features
            )
            self._probe_inside(found, within, wanted=wanted, network=network)
        except DeadlineMissed:
            # NOTE: only the caller's own comes here, and is told as that of its own stage.
            scope.check()
            raise
        except ContainmentError as error:
            detail = f'"{error.path}" is not mounted as it was planned'
            raise unavailable("unsound", wanted=wanted, detail=detail) from error
        except OSError as error:
            if is_want(error):
                raise
            raise unavailable("unusable", wanted=wanted, detail=str(error.strerror)) from error
        return found

    def _check_features(self, features: frozenset[str], answer: Answer, *, wanted: str) -> None:
        """Refuse a bwrap whose *answer* to ``--help`` does not list what every start needs."""
        lacking = [option for option in BASELINE_OPTIONS if option not in features]
        if not lacking:
            return
        if any(line.startswith("bwrap: ") for line in answer.text.splitlines()):
            # NOTE: it looks at where it is before it looks at its arguments, and gives up there.
            raise self._refusal(answer.text, answer.ending, wanted=wanted)
        if has_options(features) and not is_crash(answer.ending):
            raise unavailable("too old", wanted=wanted, detail=f"no {' '.join(lacking)}")
        said = self._quoted(answer.text)
        detail = str(answer.ending) if said else f"{answer.ending}, having printed nothing"
        raise unavailable("unusable", wanted=wanted, detail=detail, said=said)

    def _probe_inside(self, bubblewrap: Bubblewrap, scope: Scope, *, wanted: str, network: bool) -> None:
        prepared = self._planner.prepare_probe(
            ("/bin/sh", "-c", _PROBE_SCRIPT), wanted=wanted, network=network, features=bubblewrap.features
        )
        child = self._starter.start(
            bubblewrap,
            prepared,
            scope,
            stdin=None,
            explain=lambda said, ended: self._refusal(said, ended, wanted=wanted),
        )
        heard = Heard(self._limits.process.stderr_tail_bytes)
        try:
            ended = child.run_out(scope, on_stdout=heard.add, on_stderr=lambda _: None)
        except DeadlineMissed as error:
            strays = [line for line in _answer(heard, bubblewrap) if line not in _PROBE_ANSWER]
            said = self._quoted("\n".join([child.stderr_text(), *strays]))
            failure = hang(scope, scope, missing="end of the probe", wanted=wanted, said=said)
            failure.aftermath += error.aftermath
            raise failure from error
        if not ended.executed:
            raise unaccounted(self._refusal(child.stderr_text(), ended, wanted=wanted))
        if is_crash(ended):
            said = self._quoted(child.stderr_text())
            raise unavailable("crash", wanted=wanted, detail=f"the probe {ended}", said=said)
        answer = _answer(heard, bubblewrap)
        wrong = [line for line in answer if line not in _PROBE_ANSWER]
        wrong += [f"no {line}" for line in _PROBE_ANSWER if line not in answer]
        if wrong or ended.status != 0:
            raise unavailable("unsound", wanted=wanted, detail="; ".join(wrong) or str(ended))

    def _refusal(self, said: str, ended: ChildExit, *, wanted: str) -> SandboxUnavailable:
        """Return the error for a bwrap that would not run what is ours: no operator's path is to blame."""
        return explain_refusal(
            said,
            wanted=wanted,
            surroundings=Surroundings.look(),
            how=str(ended),
            quoted_chars=self._limits.extension.max_quoted_chars,
        )

    def _quoted(self, said: str) -> str:
        return own_words(said, quoted_chars=self._limits.extension.max_quoted_chars)

    # -- starting ---------------------------------------------------------------------------------

    def start(self, prepared: Prepared, scope: Scope, *, stdin: int | None = None) -> Child:
        """Start what was prepared and return the child, past its gate. The caller drives and ends it.

        *stdin* is a descriptor to inherit instead of a pipe; it stays the caller's. The plan's own
        features must be those of :meth:`ready`. Raises :class:`SandboxUnavailable`,
        :class:`CommandUnusable`, :class:`StoreError` and what *scope* raises; nothing is left running.
        """
        # NOTE: not ready() again, which would sweep a second time.
        wanted, network = prepared.wanted, prepared.plan.network
        path = find_bubblewrap(
            self._settings.bwrap, self._machine, workspace=Path(prepared.workspace), wanted=wanted
        )
        bubblewrap = self._working(path, scope, wanted=wanted, network=network)
        return self._starter.start(
            bubblewrap,
            prepared,
            scope,
            stdin=stdin,
            explain=lambda said, ended: self._explain(said, ended, prepared),
        )

    def explain(self, child: Child, prepared: Prepared) -> LatchError | None:
        """Return why an ended *child*, past its gate, never ran its program as far as bwrap told, or None
        when it did."""
        if child.exit is None or child.exit.executed:
            return None
        # NOTE: past its gate other words may be those of what it ran.
        lines = child.stderr_text().splitlines()
        own = "\n".join(line for line in lines if line.startswith("bwrap: "))
        return unaccounted(self._explain(own, child.exit, prepared))

    def _explain(self, said: str, ended: ChildExit, prepared: Prepared) -> LatchError:
        return explain_failure(
            said,
            wanted=prepared.wanted,
            uid=self._machine.uid,
            program=prepared.program,
            hops=self._planner.hidden_hops(prepared),
            surroundings=Surroundings.look(),
            pinned=tuple(one.arguments[0] for one in prepared.plan.operations if one.pinned),
            how=str(ended),
            quoted_chars=self._limits.extension.max_quoted_chars,
        )


def _answer(heard: Heard, bubblewrap: Bubblewrap) -> list[str]:
    """Return the lines of the probe's shell."""
    # NOTE: process 1 is the file itself, whatever it is called, or what it hands over to.
    own = "init: " + os.fsdecode(os.fsencode(bubblewrap.path.name)[:_COMM_BYTES])
    lines = [line for line in os.fsdecode(bytes(heard.data)).split("\n") if line]
    return ["init: bwrap" if line == own else line for line in lines]
