"""What a start loads: the list of modules, not the time, which depends on the machine.

Each command runs in a fresh interpreter; what that interpreter had loaded before is not counted.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.tree import ROOT

LIST = """
import sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
from latch.cli.main import main
status = main(sys.argv[2:])
sys.stderr.write("\\n" + " ".join(sorted(set(sys.modules) - before)))
sys.exit(status)
"""
# What costs as much as the interpreter's own start, or more.
DEAR = {
    "asyncio",
    "http.client",
    "http.server",
    "importlib.metadata",
    "requests",
    "sqlite3",
    "ssl",
    "urllib3",
    "yaml",
}
AT_MOST = {"latch", "latch.cli", "latch.cli.main", "__future__"}


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LIST, str(ROOT), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("\n")[2].split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("help",), ()])
def test_version_and_help_load_nothing_but_the_command_table(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) <= AT_MOST


@pytest.mark.parametrize(
    "arguments", [("extensions",), ("extensions", "--json"), ("ps",), ("config", "show")]
)
def test_an_offline_listing_loads_nothing_dear(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)
    assert loaded & DEAR == set()
    commands = {name for name in loaded if name.startswith("latch.cli.commands.")}
    assert commands == {f"latch.cli.commands.{arguments[0]}"}


def test_the_listing_of_modules_would_show_a_dear_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, http.client; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "http.client" in DEAR & set(done.stdout.split())
