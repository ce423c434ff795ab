"""Coverage of each module by its own test file alone, run by ``make mirror``.

A module that only other tests exercise is not tested where a reader would look. Every module is
measured in a run of its own test file; those below the floor are listed and the status is 1. Modules named
on the command line are measured alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.tree import OUTSIDE, ROOT, mirrored  # noqa: E402

FLOOR_PERCENT = 80.0
BUILD = ROOT / "build" / "mirror"


def measure(module: str, test: str) -> float | None:
    """Return the branch coverage of *module* by *test* in percent, or None when the test fails."""
    data = BUILD / "data"
    for old in BUILD.glob("data*"):
        old.unlink()
    environment = {
        **os.environ,
        "COVERAGE_FILE": str(data),
        "COVERAGE_RCFILE": str(ROOT / "tests" / "coverage.ini"),
    }
    suite = ["-m", "pytest", "-c", "tests/pytest.ini", "--rootdir=.", "-q", test]
    run = subprocess.run(
        [sys.executable, "-m", "coverage", "run", *suite],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if run.returncode != 0:
        sys.stdout.write(run.stdout[-2000:] + run.stderr[-2000:])
        return None
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "-q"], cwd=ROOT, env=environment, check=True)
    report = BUILD / "report.json"
    asked = [*coverage, "json", "-q", f"--include={module}", "--fail-under=0", "-o", str(report)]
    if subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True).returncode != 0:
        return 0.0
    return float(json.loads(report.read_text(encoding="utf-8"))["totals"]["percent_covered"])


def main() -> int:
    """Measure every module, print a line for each, and return the exit status."""
    BUILD.mkdir(parents=True, exist_ok=True)
    below = []
    for module, test in sorted(mirrored().items()):
        if module in OUTSIDE or sys.argv[1:] and module not in sys.argv[1:]:
            continue
        percent = measure(module, test) if (ROOT / test).is_file() else None
        print(f"{'   -  ' if percent is None else f'{percent:5.1f} '} {module}", flush=True)
        if percent is None or percent < FLOOR_PERCENT:
            below.append(module)
    print(
        f"{len(below)} below {FLOOR_PERCENT:.0f} %: {', '.join(below)}"
        if below
        else "every module is above the floor"
    )
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
