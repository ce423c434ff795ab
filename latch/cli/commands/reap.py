"""``latch reap``: end what killed hosts left behind, and say what that was."""

from __future__ import annotations

import argparse

from ...errors import seconds_text
from ...limits import DEFAULT
from ...tools.assembly import sandbox_for
from ..context import load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments: none."""


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Sweep once; status 1 when a process would not die."""
    settings = load_settings(options)
    swept = sandbox_for(settings, machine=options.machine).sweep(options.scope)
    if swept.surviving:
        pids = ", ".join(map(str, swept.surviving))
        io.error(
            f"could not end process {pids}",
            code="peer",
            exit_status=1,
            hint="the kernel may be holding it; try again",
        )
        return 1
    if io.as_json:
        io.json({"ended": list(swept.ended), "kept": swept.kept})
        return 0
    done = "nothing was left over"
    if swept.ended:
        noun = "process" if len(swept.ended) == 1 else "processes"
        done = f"ended {len(swept.ended)} left-over {noun}: {', '.join(map(str, swept.ended))}"
    if swept.kept:
        records = "1 record is" if swept.kept == 1 else f"{swept.kept} records are"
        wait = seconds_text(DEFAULT.process.dead_host_seconds)
        done += f"; {records} kept for {wait}, in case something of a dead host is still being born"
    io.result(done)
    return 0
