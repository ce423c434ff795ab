"""``latch reap``: end what killed hosts left behind, and say what that was."""

from __future__ import annotations

import argparse

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
    elif swept.ended:
        noun = "process" if len(swept.ended) == 1 else "processes"
        io.result(f"ended {len(swept.ended)} left-over {noun}: {', '.join(map(str, swept.ended))}")
    else:
        io.result("nothing was left over")
    return 0
