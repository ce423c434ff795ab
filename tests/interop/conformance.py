"""The client runs of the official conformance suite, one by one, with what each of them checked.

A run succeeds when every check passed that must, none failed or warned, and the client ended with status 0.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping

from tests.interop.outcome import Outcome
from tests.support.tree import ROOT

SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
# The suite splits a command at blanks, so it is said without a folder that may have one.
ADAPTER = "python3 tests/interop/conformance_adapter.py"
CLIENT_SECONDS = 60
RUN_SECONDS = 90


def run_scenario(given: Mapping[str, Any], *, node: Path, folder: Path, results: Path) -> Outcome:
    """Run one ``[[conformance]]`` table and return what came of it.

    *node* is the Node program, *folder* the one the suite is installed in, *results* where its files go.
    """
    outcome = Outcome(f"{given['scenario']} {given['revision']}")
    into = results / f"{given['scenario']}-{given['revision']}"
    shutil.rmtree(into, ignore_errors=True)
    words = ["--command", ADAPTER, "--scenario", given["scenario"], "--spec-version", given["revision"]]
    bounds = ["--timeout", str(CLIENT_SECONDS * 1000), "--output-dir", str(into)]
    with outcome.timed():
        try:
            done = subprocess.run(
                [str(node), str(folder / SUITE), "client", *words, *bounds],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "NO_COLOR": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=RUN_SECONDS,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            outcome.fail(f"the suite did not end within {RUN_SECONDS} s")
            return outcome
    judge(outcome, given, sorted(into.glob("*/checks.json")))
    if done.returncode != 0:
        outcome.fail(f"the suite ended with status {done.returncode}")
    if outcome.problems:
        outcome.fail(done.stdout.strip())
    return outcome


def judge(outcome: Outcome, given: Mapping[str, Any], files: list[Path]) -> None:
    """Add to *outcome* what the files of checks that a run left mean for its ``[[conformance]]`` table."""
    if len(files) != 1:
        outcome.fail(f"the suite left {len(files)} files of checks, not one")
        return
    checks = json.loads(files[0].read_text(encoding="utf-8"))
    count = {word: sum(check["status"] == word for check in checks) for word in ("SUCCESS", "SKIPPED")}
    bad = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    outcome.note(f"{count['SUCCESS']} passed, {len(bad)} failed, {count['SKIPPED']} skipped")
    if count["SUCCESS"] < given["passes"]:
        outcome.fail(f"{given['passes']} checks must pass, {count['SUCCESS']} did")
    for check in bad:
        outcome.fail(
            f"{check['status']} {check['id']}: {check.get('errorMessage') or check.get('description')}"
        )
