"""A user's machine made up for one test: a home, a state directory, a workspace, and starts on it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Iterator, Mapping

import pytest

from latch.errors import LatchError
from latch.limits import DEFAULT, Limits, ResourceLimits
from latch.settings import SandboxSettings
from latch.system.bubblewrap import HARDENING_OPTIONS
from latch.system.command import CommandResult, run_prepared, run_sandboxed
from latch.system.machine import Machine
from latch.system.plan import SandboxPlan
from latch.system.planning import Prepared
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope

__all__ = [
    "ROOT",
    "SYSTEM_PATH",
    "Place",
    "fails",
    "git",
    "needs",
    "outside_of_scratch",
    "place_in",
    "system_python",
]

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PATIENCE_SECONDS = 30.0
SMALL = ResourceLimits(home_bytes=32 << 20, tmp_bytes=32 << 20, var_tmp_bytes=16 << 20, shm_bytes=16 << 20)


@dataclass(frozen=True)
class Place:
    """Where everything of the made-up user lies, and what is set for starts on it."""

    home: Path
    workspace: Path
    path: str = SYSTEM_PATH
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: SandboxSettings = field(default_factory=SandboxSettings)
    limits: Limits = DEFAULT

    @property
    def machine(self) -> Machine:
        """The machine as this user's environment makes it."""
        return Machine.read({"HOME": str(self.home), "PATH": self.path, **self.environment})

    @property
    def sandbox(self) -> Sandbox:
        """A new sandbox of these settings."""
        return Sandbox(self.settings, machine=self.machine, limits=self.limits)

    def at(self, workspace: Path) -> Place:
        """Return the same user with another workspace."""
        return replace(self, workspace=workspace)

    def with_path(self, *entries: Path | str) -> Place:
        """Return the same user with *entries* before the system's in PATH."""
        return replace(self, path=":".join([*map(str, entries), SYSTEM_PATH]))

    def with_settings(self, **changes: Any) -> Place:
        """Return the same user with changed sandbox settings."""
        return replace(self, settings=replace(self.settings, **changes))

    def run(self, *argv: str, **how: Any) -> CommandResult:
        """Run a command to its end."""
        return run_sandboxed(
            argv,
            workspace=self.workspace,
            scope=Scope.root(PATIENCE_SECONDS),
            sandbox=self.sandbox,
            limits=self.limits,
            **how,
        )

    def say(self, *argv: str, **how: Any) -> str:
        """Run a command that must succeed and return what it said."""
        result = self.run(*argv, **how)
        assert result.status == 0, result
        return result.stdout.decode().strip()

    def python(self, program: str, *words: str, **how: Any) -> Any:
        """Run a Python program inside and return the JSON it printed."""
        result = self.run(system_python(), "-I", "-c", program, *words, **how)
        assert result.status == 0, result.stderr.decode()
        return json.loads(result.stdout)

    def prepare(
        self, *argv: str, writable: bool = False, network: bool = False, git_metadata: bool = False
    ) -> Prepared:
        """Plan a command with every option of today's bubblewrap."""
        return self.sandbox.planner.prepare_command(
            argv,
            workspace=self.workspace,
            writable=writable,
            network=network,
            git_metadata=git_metadata,
            features=EVERY_FEATURE,
        )

    def plan(self, *argv: str, **how: Any) -> SandboxPlan:
        """Return the plan of a command, ``true`` unless it is named."""
        return self.prepare(*(argv or ("true",)), **how).plan

    def prepare_peer(self, command: str, *args: str, **how: Any) -> Prepared:
        """Plan a peer with every option of today's bubblewrap."""
        how = {"environment": {}, "features": EVERY_FEATURE, "workspace": self.workspace, **how}
        return self.sandbox.planner.prepare_peer('extension "probe"', command, args, **how)

    def peer(self, command: str, *args: str, **how: Any) -> tuple[int | None, str, str]:
        """Run a peer to its end; return its status and what it wrote."""
        scope, sandbox = Scope.root(PATIENCE_SECONDS), self.sandbox
        bubblewrap = sandbox.ready(scope, wanted="a peer", network=how.get("network", True))
        prepared = self.prepare_peer(command, *args, features=bubblewrap.features, **how)
        out, errors = bytearray(), bytearray()
        ended = run_prepared(sandbox, prepared, scope, on_stdout=out.extend, on_stderr=errors.extend)
        return ended.status, out.decode(), errors.decode()


EVERY_FEATURE = frozenset(HARDENING_OPTIONS)


def place_in(directory: Path) -> Place:
    """Make a home and a workspace below it in *directory*."""
    home = directory / "home" / "someone"
    workspace = home / "projects" / "one"
    workspace.mkdir(parents=True)
    return Place(home=home, workspace=workspace, settings=SandboxSettings(resources=SMALL))


@contextmanager
def outside_of_scratch() -> Iterator[Path]:
    """Yield an empty directory that no sandbox covers by a scratch directory of its own."""
    candidates = [ROOT / "build", Path(pwd.getpwuid(os.getuid()).pw_dir)]
    scratch = ("/tmp/", "/var/tmp/", "/dev/shm/")
    place = ""
    for parent in [*(path for path in candidates if not f"{path}/".startswith(scratch)), *candidates]:
        try:
            parent.mkdir(exist_ok=True)
            place = tempfile.mkdtemp(prefix="test-", dir=parent)
            break
        except OSError:
            continue
    try:
        yield Path(os.path.realpath(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def system_python() -> str:
    """Return a Python that every sandbox shows."""
    return needs("python3")


def needs(name: str) -> str:
    """Return the system's program *name*; the test is skipped where there is none."""
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        pytest.skip(f"this machine has no {name}")
    return found


def git(directory: Path, *words: str) -> str:
    """Run git on the host, as the user would, and return what it said."""
    named = (
        "-c",
        "user.name=Some One",
        "-c",
        "user.email=one@example.org",
        "-c",
        "protocol.file.allow=always",
    )
    done = subprocess.run(
        [needs("git"), *named, *words],
        cwd=directory,
        env={"PATH": SYSTEM_PATH, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def fails(place: Place, *argv: str, **how: bool) -> LatchError:
    """Run a command that must not start, with a mark that shows whether it did."""
    with pytest.raises(LatchError) as caught:
        place.run(*(argv or ("touch", "ran")), writable=True, **how)
    assert not (place.workspace / "ran").exists()
    return caught.value
