"""What README shows is what happens: its commands are run as they stand there, and their output compared.

Numbers may differ, and so may the order of a command's two streams. Progress on stderr is left out there, as
README says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

import latch
from tests.support.tree import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")

TEXT = (ROOT / "README.rst").read_text(encoding="utf-8")
ITS_HOME = "/home/me"
ITS_WORKSPACE = f"{ITS_HOME}/project"
PROGRESS = re.compile(r'^(extension|MCP server) "[^"]*"(: started| is ready)')
NUMBER = re.compile(r"\d+(\.\d+)*")
ENTRY = re.compile(r"(extensions|mcp_servers)\.[^.]+\.[^.]+$")


class Shown(NamedTuple):
    """A command with its here-document, and what is shown below it."""

    command: str
    output: list[str]


def section(title: str) -> str:
    """Return what stands under the heading *title*."""
    start = TEXT.index(f"\n{title}\n{'-' * len(title)}\n")
    end = re.compile(r"\n[^\n]+\n-{3,}\n").search(TEXT, start + len(title) + 2)
    return TEXT[start : end.start() if end else len(TEXT)]


def blocks(text: str) -> Iterator[str]:
    """Yield every indented block of *text*."""
    for found in re.finditer(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE):
        yield textwrap.dedent(found[0]).strip("\n")


def shown() -> Iterator[Shown]:
    """Yield the commands of the tour in order."""
    for block in blocks(section("Two minutes")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            length = lines.index("END") + 1 if "<<" in lines[0] else 1
            yield Shown("\n".join(lines[:length]), lines[length:])


def alike(lines: list[str]) -> list[str]:
    """Return *lines* without what may differ."""
    return sorted(NUMBER.sub("N", line.rstrip()) for line in lines if not PROGRESS.match(line))


@pytest.fixture
def shell(own_home: Path) -> dict[str, str]:
    """The environment of a new user, in whose home the tour is taken."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("LATCH")}
    # The interpreter of the tests is this user's python3.
    path = os.pathsep.join([os.path.dirname(sys.executable), known["PATH"]])
    return {**known, "HOME": str(own_home), "PATH": path}


def say(command: str, shell: dict[str, str]) -> list[str]:
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=shell, stdin=subprocess.DEVNULL, stdout=-1, stderr=-2, timeout=60
    )
    return done.stdout.decode().splitlines()


def take_tour(shell: dict[str, str]) -> list[Shown]:
    """Run every command of the tour and return what each said."""
    return [
        # Setting up is no part of what is shown; the target runs this.
        Shown(command, say("bin/latch demo" if command == "make demo" else command, shell))
        for command, _ in shown()
    ]


def test_the_tour_says_what_readme_shows(shell: dict[str, str]) -> None:
    expected = [Shown(command, alike(output)) for command, output in shown()]
    assert len(expected) >= 8
    assert [Shown(command, alike(output)) for command, output in take_tour(shell)] == expected


def test_the_conversation_and_the_python_of_readme_are_real(own_home: Path, shell: dict[str, str]) -> None:
    take_tour(shell)
    project = str(own_home / "project")
    (conversation,) = (block for block in blocks(section("Writing an extension")) if block.startswith("-> "))
    told = say("bin/latch -C ~/project extensions --trace hello", shell)
    frames = [line.replace(project, ITS_WORKSPACE) for line in told if line[:3] in ("-> ", "<- ")]
    assert frames == conversation.splitlines()
    (program,) = (block for block in blocks(section("From Python")) if block.startswith("import latch"))
    done = subprocess.run(
        [sys.executable, "-c", program.replace(ITS_HOME, str(own_home))],
        cwd=own_home,
        env={**shell, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (printed,) = (block for block in blocks(section("From Python")) if block.startswith("Hello, Ana!"))
    assert (done.returncode, done.stdout.splitlines()) == (0, printed.splitlines()), done.stderr


def test_the_configuration_of_readme_is_taken_as_it_stands(own_home: Path) -> None:
    (text,) = (block for block in blocks(section("Configuration")) if "[[mcp_servers]]" in block)
    file = own_home / ".latch" / "config.toml"
    file.parent.mkdir(mode=0o700)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    settings = latch.Settings.load()
    assert [entry.name for entry in settings.extensions] == ["lint"]
    assert [entry.name for entry in settings.mcp_servers] == ["files", "remote"]
    # Every key of an entry is shown, and none is left out that a reader would have to guess.
    unshown = [key for key, origin in settings.origins.items() if origin == "default" and ENTRY.match(key)]
    assert unshown == []
