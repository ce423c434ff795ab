"""The machine and the user as we find them. The only reader of the process environment.

A :class:`Machine` is a snapshot: two reads may differ, one value never changes. Everything else
that needs the environment, the home directory or the standard places takes one as an argument.
Reading creates nothing.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Mapping

from ..settings import SandboxSettings

__all__ = ["DEFAULT_PATH", "Machine"]

# What a login shell of every listed distribution has; used when PATH is unset or empty.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Machine:
    """Who we are, where our files are and what the environment holds.

    ``home`` is the operator's ``HOME``, else the password database's, and always absolute.
    ``latch_directory`` is ``LATCH_DIRECTORY``, else ``~/.latch``; ``latchkey_directory`` likewise
    ``LATCHKEY_DIRECTORY``, else ``~/.latchkey``. None of them needs to exist.
    """

    uid: int
    gid: int
    user: str
    home: Path
    environment: Mapping[str, str]
    latch_directory: Path
    latchkey_directory: Path

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Machine:
        """Return the snapshot of this process; *environment* replaces the process's own."""
        known = dict(os.environ if environment is None else environment)
        uid = os.getuid()
        try:
            entry = pwd.getpwuid(uid)
            user, fallback = entry.pw_name, entry.pw_dir
        except KeyError:
            user, fallback = str(uid), "/"
        home = Path(known.get("HOME", "") or fallback or "/")
        if not home.is_absolute():
            home = Path(fallback or "/")
        return cls(
            uid=uid,
            gid=os.getgid(),
            user=user,
            home=home,
            environment=MappingProxyType(known),
            latch_directory=_place(known, "LATCH_DIRECTORY", home / ".latch"),
            latchkey_directory=_place(known, "LATCHKEY_DIRECTORY", home / ".latchkey"),
        )

    @property
    def search_path(self) -> str:
        """The operator's ``PATH``, or the system's default when it has none."""
        return self.environment.get("PATH") or DEFAULT_PATH

    @property
    def state_directory(self) -> Path:
        """Where state is kept unless the configuration says otherwise."""
        return self.latch_directory / "state"

    def state_directory_of(self, settings: SandboxSettings) -> Path:
        """Return where state is kept under *settings*: where they say, else the machine's own."""
        return settings.state_directory or self.state_directory


def _place(environment: Mapping[str, str], name: str, default: Path) -> Path:
    value = environment.get(name)
    return Path(os.path.abspath(value)) if value else default
