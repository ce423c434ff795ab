"""A directory whose modules must not be imported: each says so and ends the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Sequence

import pytest

# What our start imports from the standard library on some interpreter, and what could pass for us.
NAMES = (
    "argparse",
    "collections",
    "contextlib",
    "dataclasses",
    "difflib",
    "importlib",
    "json",
    "pathlib",
    "posix",
    "pwd",
    "re",
    "select",
    "shutil",
    "signal",
    "subprocess",
    "threading",
    "traceback",
    "typing",
    "unicodedata",
)
CAUGHT = 99


def lay_decoys(place: Path, *extra: str) -> None:
    """Write a decoy for each name into *place*; *extra* names more, one with a slash a package's module."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ and sys.version_info < (3, 10):
        pytest.skip("this coverage starts in every child before us, and imports the decoys itself")
    text = f"import os\nos.write(2, b'decoy ' + __name__.encode())\nos._exit({CAUGHT})\n"
    for name in (*NAMES, *extra):
        file = place / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def run_in(place: Path, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run *command* in *place* with *environment* on top of what this process has."""
    # Coverage would start in the child before us, and import from the decoys itself.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
    return subprocess.run(
        command,
        cwd=place,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def old_interpreter() -> str | None:
    """Return a Python 3 below our floor, if this machine has one."""
    for name in ("python3.6", "python3.7", "python3.8"):
        root = Path(os.environ.get("PYENV_ROOT", "/nonexistent"), "versions")
        # Another user's, whose variable came along, cannot be listed.
        kept = sorted(root.glob(f"{name[6:]}.*/bin/python")) if os.access(root, os.R_OK) else []
        found = [*map(str, kept)] or [shutil.which(name)]
        if found[0]:
            return found[0]
    return None
