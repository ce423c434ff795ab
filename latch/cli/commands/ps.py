"""``latch ps``: what this user's Latch processes have running, from the ledger. Creates nothing."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from ...system.ledger import Entry, bearers
from ...tools.assembly import sandbox_for
from ..context import load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]

_ORPHANED = "orphaned"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments: none."""


def run(options: argparse.Namespace, io: Terminal) -> int:
    """List every child of a living host, and of a dead one those of which something lives."""
    settings = load_settings(options)
    entries = sandbox_for(settings, machine=options.machine).entries()
    looked = [_look(entry, options.machine.uid) for entry in entries]
    children = [child for child in looked if child is not None]
    if io.as_json:
        io.json({"children": [child._asdict() for child in children]})
    elif children:
        io.table([child.row() for child in children], ("what", "pid", "host", "state"))
    else:
        io.result("nothing is running")
    if any(child.state == _ORPHANED for child in children):
        io.note("latch reap ends what dead hosts left")
    return 0


class _Child(NamedTuple):
    what: str
    pid: int | None
    host: int
    state: str

    def row(self) -> tuple[str, ...]:
        """Return it as cells."""
        return (self.what, "-" if self.pid is None else str(self.pid), str(self.host), self.state)


def _look(entry: Entry, uid: int) -> _Child | None:
    """Return what is to be listed of *entry*; None where a record is all that a dead host left."""
    init = None if entry.init is None else entry.init.pid
    if entry.host_alive:
        state = "starting" if init is None else "running"
        return _Child(entry.what, init, entry.host.pid, state)
    named = [process.pid for process in (entry.init, entry.monitor) if process and process.is_alive()]
    alive = named or bearers([entry.token], uid)
    return _Child(entry.what, alive[0], entry.host.pid, _ORPHANED) if alive else None
