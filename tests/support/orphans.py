"""A process that outlived the Latch that started it, with the ledger that this one left behind."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from tests.support.command_line import ROOT, Operator

__all__ = ["Orphan", "leave_orphan"]

# A host that is killed right after a start: it writes what a host writes, and no end.
_HOST = """
import os, signal, sys
from pathlib import Path
from latch.system.ledger import TOKEN_VARIABLE, Ledger
from latch.system.processes import identify
ledger = Ledger(Path(sys.argv[1]))
token = ledger.begin('extension \\x1b[31m"x"')
print(f"{TOKEN_VARIABLE}={token}", flush=True)
pid = int(sys.stdin.readline())
if pid:
    ledger.started(token, init=identify(pid), monitor=None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True)
class Orphan:
    """The living process, a child of the test's, and the number of the host that is gone."""

    process: subprocess.Popen[bytes]
    host: int


@contextmanager
def leave_orphan(
    operator: Operator, *, state: Path | None = None, is_recorded: bool = True
) -> Iterator[Orphan]:
    """Leave one behind in *state* of *operator*; it ends with the block at the latest.

    One that is not recorded is known by its token alone.
    """
    place = operator.directory / "state" if state is None else state
    if state is None:
        operator.directory.mkdir(mode=0o700, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _HOST, str(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=operator.environment(PYTHONPATH=str(ROOT)),
    ) as host:
        token = host.stdout.readline().decode().strip()
        process = subprocess.Popen(["sleep", "60"], env=dict([token.split("=")]))
        try:
            host.stdin.write(b"%d\n" % (process.pid if is_recorded else 0))
            host.stdin.close()
            host.wait()
            yield Orphan(process, host.pid)
        finally:
            process.kill()
            process.wait()
