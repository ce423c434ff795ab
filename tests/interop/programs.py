"""The programs of ``tests/peers``, each of which compares Latch with somebody else's code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping

from tests.interop.installs import TOOLS, Installs
from tests.interop.outcome import Outcome
from tests.support.tree import ROOT

FOLDER = ROOT / "tests" / "peers"
PROGRAM_SECONDS = 900


def needs(given: Mapping[str, Any]) -> set[str]:
    """Return the names of the installs that the ``[[programs]]`` table *given* uses."""
    return {given.get("install", TOOLS)}


def unlisted(listed: list[Mapping[str, Any]]) -> list[str]:
    """Return the programs in the folder that no table names."""
    return sorted({path.name for path in FOLDER.glob("*.py")} - {one["name"] for one in listed})


def run_program(given: Mapping[str, Any], installs: Installs) -> Outcome:
    """Run the program of one ``[[programs]]`` table, whose installs are there."""
    outcome = Outcome(given["name"])
    own = installs.folder(given["install"]) / "bin" / "python" if "install" in given else Path(sys.executable)
    arguments = [word.replace("{node}", str(installs.node)) for word in given.get("arguments", ())]
    with outcome.timed():
        try:
            done = subprocess.run(
                [str(own), str(FOLDER / given["name"]), *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PROGRAM_SECONDS,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            outcome.fail(f"it did not end within {PROGRAM_SECONDS} s")
            return outcome
    lines = done.stdout.strip().splitlines()
    outcome.note(lines[-1] if lines else "it printed nothing")
    if done.returncode != 0:
        outcome.fail("\n".join([f"status {done.returncode}", *lines[-40:]]))
    return outcome
