"""``latch sandbox [--write] [--network] [--plan] -- COMMAND``: one command, exactly as Latch would run it.

It has as long as any command of Latch's, unless ``--timeout`` says how long. Its status is passed
through. Ours are 125 (we failed; the JSON error says which exit of the table it would be), 126 (cannot
execute) and 127 (not found).
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from ...errors import CommandUnusable, LatchError, UsageError
from ...limits import DEFAULT
from ...system.command import WorkspaceWatch, run_prepared, tell_changes
from ...system.planning import Prepared
from ...system.sandbox import Sandbox
from ...system.scope import Scope
from ...tools.assembly import sandbox_for
from ..context import load_settings
from ..failures import tell
from ..terminal import OutputClosed, Terminal

__all__ = ["USAGE_STATUS", "configure", "run"]

_WE_FAILED = 125
# What wrong arguments of this command end with, instead of the table's 2.
USAGE_STATUS = _WE_FAILED


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.epilog = (
        "What is piped or redirected in is handed on as its standard input. A terminal is not: an "
        "interactive program, such as a shell, reads nothing and ends."
    )
    parser.add_argument("--write", action="store_true", help="let it write the workspace (-C, or here)")
    parser.add_argument("--network", action="store_true", help="share the network")
    parser.add_argument("--plan", action="store_true", help="print the plan and run nothing")
    parser.add_argument(
        "command", nargs="*", metavar="COMMAND", help="the program and its arguments, after --"
    )


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Run the command, its output passed on as it comes, and return its status."""
    try:
        return _run(options, io)
    except CommandUnusable as error:
        tell(io, error)
        return error.status
    except LatchError as error:
        tell(io, error)
        return _WE_FAILED


def _run(options: argparse.Namespace, io: Terminal) -> int:
    if not options.command:
        raise UsageError("no command was given", hint="latch sandbox -- COMMAND ARGUMENTS")
    sandbox: Sandbox = sandbox_for(load_settings(options), machine=options.machine)
    wanted = f'command "{options.command[0]}"'
    bubblewrap = sandbox.ready(options.scope, wanted=wanted, workspace=options.cwd, network=options.network)
    prepared = sandbox.planner.prepare_command(
        tuple(options.command),
        workspace=options.cwd,
        writable=options.write,
        network=options.network,
        features=bubblewrap.features,
    )
    if options.plan:
        lines = prepared.plan.lines()
        if io.as_json:
            io.json({"plan": lines})
        else:
            io.result("\n".join(lines))
        return 0
    if sys.stdout is None:
        raise LatchError("standard output is closed")
    within = options.scope
    if options.timeout is None:
        within = within.within(DEFAULT.process.command_seconds, peer=wanted)
    watch = WorkspaceWatch(sandbox, Path(prepared.workspace), writable=options.write)
    try:
        return _run_watched(sandbox, prepared, within)
    finally:
        for line in tell_changes(*watch.end()):
            io.note(f"latch: {line}")


def _run_watched(sandbox: Sandbox, prepared: Prepared, within: Scope) -> int:
    ended = run_prepared(
        sandbox,
        prepared,
        within,
        on_stdout=partial(_write_stdout, within),
        on_stderr=partial(_write_stderr, within),
        stdin=_stdin(),
    )
    return _WE_FAILED if ended.status is None else ended.status


def _stdin() -> int | None:
    # NOTE: a terminal is not handed in: a command that Latch runs has no one typing to it.
    try:
        return None if sys.stdin is None or os.isatty(0) else 0
    except OSError:
        return None


def _write_stdout(scope: Scope, chunk: bytes) -> None:
    try:
        _write_all(1, chunk, scope)
    except BrokenPipeError:
        raise OutputClosed from None
    except LatchError:
        # NOTE: a missed deadline is an OSError as well.
        raise
    except OSError as error:
        raise LatchError(f"standard output: {error.strerror}") from None


def _write_stderr(scope: Scope, chunk: bytes) -> None:
    # NOTE: had it been closed when we were started, its number would be another file's by now.
    if sys.stderr is None:
        return
    try:
        _write_all(2, chunk, scope)
    except LatchError:
        raise
    except OSError:
        # Nobody can be told that nobody can be told.
        pass


def _write_all(descriptor: int, chunk: bytes, scope: Scope) -> None:
    view, at_once = memoryview(chunk), os.fpathconf(descriptor, "PC_PIPE_BUF")
    while view:
        scope.wait((), [descriptor])
        try:
            # NOTE: a pipe with room takes so many bytes without blocking, and no more for certain.
            view = view[os.write(descriptor, view[:at_once]) :]
        except BlockingIOError:
            continue
