"""``latch ps``: what this user's Latch processes have running, from the ledger. Creates nothing."""

from __future__ import annotations

import argparse

from ...system.ledger import Entry
from ...tools.assembly import sandbox_for
from ..context import load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments: none."""


def run(options: argparse.Namespace, io: Terminal) -> int:
    """List every child that was not yet proven dead, and whether its host lives."""
    settings = load_settings(options)
    entries = sandbox_for(settings, machine=options.machine).entries()
    if io.as_json:
        io.json({"children": [_value(entry) for entry in entries]})
    elif entries:
        io.table([_row(entry) for entry in entries], ("what", "pid", "host", "state"))
    else:
        io.result("nothing is running")
    if any(not entry.host_alive for entry in entries):
        io.note("latch reap ends what dead hosts left")
    return 0


def _value(entry: Entry) -> dict[str, object]:
    return {
        "what": entry.what,
        "pid": None if entry.init is None else entry.init.pid,
        "host": entry.host.pid,
        "state": _state(entry),
    }


def _row(entry: Entry) -> tuple[str, ...]:
    return (
        entry.what,
        "-" if entry.init is None else str(entry.init.pid),
        str(entry.host.pid),
        _state(entry),
    )


def _state(entry: Entry) -> str:
    if entry.host_alive:
        return "running" if entry.init is not None else "starting"
    alive = [process for process in (entry.init, entry.monitor) if process is not None and process.is_alive()]
    return "orphaned" if alive else "left by a dead host"
