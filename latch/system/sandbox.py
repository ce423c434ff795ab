"""The sandbox of one configuration: plan, bubblewrap found and probed, start.

There is no other way to start anything for a peer, a model or a skill, and no way round the sandbox.
``planning.py`` says what would run and what it would see, ``starting.py`` lets it run; this file sees
to it that bubblewrap was seen to work with the options in use, and that what dead hosts left was swept.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ..errors import LatchError
from ..limits import DEFAULT, Limits
from ..settings import SandboxSettings
from . import spawner
from .bubblewrap import (
    BASELINE_OPTIONS,
    Bubblewrap,
    Surroundings,
    explain_failure,
    find_bubblewrap,
    unavailable,
)
from .child import Child
from .ledger import Ledger, sweep
from .machine import Machine
from .plan import PlanRequest, make_plan
from .planning import Planner, Prepared
from .scope import Scope
from .starting import Starter
from .toolchain import Toolchain
from .workspace import WorkspaceView

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
_PROBE_ANSWER = ["CapEff: 0000000000000000", "NoNewPrivs: 1", "init: bwrap", "sysctl: closed"]

# NOTE: what is known of a bwrap file, by its path, inode, mtime, our uid and the probed options: facts
# about the machine, shared by every Sandbox of the process, so that each start does not probe again.
_KNOWN: dict[tuple[object, ...], Bubblewrap] = {}
_SWEPT: set[tuple[int, Path]] = set()
_LOCK = threading.Lock()


class Sandbox:
    """Plans and starts sandboxed children for one configuration. Safe to use from several threads."""

    def __init__(
        self, settings: SandboxSettings, *, machine: Machine | None = None, limits: Limits = DEFAULT
    ) -> None:
        self._settings = settings
        self._machine = machine or Machine.read()
        self._limits = limits
        self._state = settings.state_directory or self._machine.state_directory
        self._planner = Planner(settings, self._machine)
        self._starter = Starter(Ledger(self._state), uid=self._machine.uid, limits=limits)

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

        The first call of a process with a given bwrap probes it, and sweeps what dead hosts left.
        Raises :class:`SandboxUnavailable` and what *scope* raises.
        """
        path = find_bubblewrap(self._settings.bwrap, self._machine, workspace=workspace, wanted=wanted)
        status = os.stat(path)
        key = (path, status.st_ino, status.st_mtime_ns, self._machine.uid, self._machine.home, network)
        with _LOCK:
            known = _KNOWN.get(key)
            unswept = (os.getpid(), self._state) not in _SWEPT
            _SWEPT.add((os.getpid(), self._state))
        if unswept:
            self.sweep(scope)
        if known is None:
            known = self._probe(path, scope, wanted=wanted, network=network)
            with _LOCK:
                _KNOWN[key] = known
        return known

    def sweep(self, scope: Scope) -> None:
        """End what killed hosts of this state directory left; see ``ledger.py``."""
        sweep(self._state, uid=self._machine.uid, limits=self._limits.process, scope=scope)

    def _probe(self, path: Path, scope: Scope, *, wanted: str, network: bool) -> Bubblewrap:
        within = scope.within(self._limits.process.probe_seconds, peer="bwrap", stage="probe")
        try:
            help_text = _run_plain((str(path), "--help"), within)
            features = frozenset(word for word in help_text.split() if word.startswith("--"))
            lacking = [option for option in BASELINE_OPTIONS if option not in features]
            if lacking:
                raise unavailable("too old", wanted=wanted, detail=f"no {' '.join(lacking)}")
            version = _run_plain((str(path), "--version"), within).strip()
            found = Bubblewrap(path=path, version=version.rpartition(" ")[2], features=features)
            self._probe_inside(found, within, wanted=wanted, network=network)
        except TimeoutError as error:
            scope.check()
            raise unavailable("hang", wanted=wanted) from error
        except OSError as error:
            raise unavailable("unknown", wanted=wanted, detail=str(error.strerror)) from error
        return found

    def _probe_inside(self, bubblewrap: Bubblewrap, scope: Scope, *, wanted: str, network: bool) -> None:
        request = PlanRequest(
            argv=("/bin/sh", "-c", _PROBE_SCRIPT),
            workspace=None,
            view=WorkspaceView(),
            toolchain=Toolchain(roots=(), links=(), path_entries=(), hops=(), program=Path("/bin/sh")),
            network=network,
            private_directory=True,
            in_workspace=False,
            resources=self._settings.resources,
        )
        plan = make_plan(request, self._planner.layout, self._machine, bubblewrap.features)
        prepared = Prepared(plan=plan, workspace="", wanted=wanted, program="/bin/sh", hops=())
        said = bytearray()
        child = self._start(bubblewrap, prepared, scope, stdin=None)
        child.on_idle = said.extend
        try:
            with child.driving():
                child.wait_exit(scope)
        finally:
            ended = child.end(scope.shielded(self._limits.process.kill_seconds))
        if not ended.executed:
            raise self._explain(child.stderr_text(), prepared)
        answer = bytes(said).decode("ascii", "replace").split("\n")[:-1]
        wrong = [line for line in answer if line not in _PROBE_ANSWER]
        wrong += [f"no {line}" for line in _PROBE_ANSWER if line not in answer]
        if wrong or ended.status != 0:
            raise unavailable("unsound", wanted=wanted, detail="; ".join(wrong) or str(ended))

    # -- starting ---------------------------------------------------------------------------------

    def start(self, prepared: Prepared, scope: Scope, *, stdin: int | None = None) -> Child:
        """Start what was prepared and return the child, past its gate. The caller drives and ends it.

        *stdin* is a descriptor to inherit instead of a pipe; it stays the caller's. The plan's own
        features must be those of :meth:`ready`. Raises :class:`SandboxUnavailable`,
        :class:`CommandUnusable`, :class:`StoreError` and what *scope* raises; nothing is left running.
        """
        bubblewrap = self.ready(
            scope, wanted=prepared.wanted, workspace=Path(prepared.workspace), network=prepared.plan.network
        )
        return self._start(bubblewrap, prepared, scope, stdin=stdin)

    def explain(self, child: Child, prepared: Prepared) -> LatchError | None:
        """Return why an ended *child* never ran its program, or None when it did."""
        if child.exit is None or child.exit.executed:
            return None
        return self._explain(child.stderr_text(), prepared)

    def _explain(self, stderr: str, prepared: Prepared) -> LatchError:
        return explain_failure(
            stderr,
            wanted=prepared.wanted,
            uid=self._machine.uid,
            program=prepared.program,
            hops=self._planner.hidden_hops(prepared),
            surroundings=Surroundings.look(),
        )

    def _start(self, bubblewrap: Bubblewrap, prepared: Prepared, scope: Scope, *, stdin: int | None) -> Child:
        return self._starter.start(
            bubblewrap, prepared, scope, stdin=stdin, explain=lambda said: self._explain(said, prepared)
        )


def _run_plain(argv: tuple[str, ...], scope: Scope) -> str:
    """Run bubblewrap itself for what it says about itself; it starts nothing with these options."""
    output, child_output = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        process = spawner.spawn(
            spawner.SpawnRequest(
                argv=argv, environment={}, stdin=null, stdout=child_output, stderr=child_output
            ),
            scope,
        )
        said = bytearray()
        try:
            while True:
                scope.wait([output])
                chunk = os.read(output, 65536)
                if not chunk:
                    break
                said += chunk
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(output)
    return said.decode("utf-8", "replace")
