"""Extensions hosted for real: settings for the fixture programs, and the search for what they leave behind.

Every process that the sandbox runs carries ``LATCH_TEST_MARKER`` in its environment, whatever session or
parent it has moved to; bubblewrap's own processes are children of this one.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

from latch.extensions.host import ExtensionHost
from latch.limits import DEFAULT, LifecycleLimits, Limits
from latch.settings import ExtensionSettings
from latch.system.scope import Scope
from latch.wire.jsontext import Json

CHECKOUT = Path(__file__).resolve().parents[2]
PEER = CHECKOUT / "fixtures" / "peers" / "extension.py"
EXAMPLES = CHECKOUT / "fixtures" / "extensions"
MARKER = "LATCH_TEST_MARKER"
# Flags that make any Python start in half the time; the programs need neither site nor user packages.
BARE = "-ES"

__all__ = [
    "BARE",
    "CHECKOUT",
    "EXAMPLES",
    "MARKER",
    "PEER",
    "Trace",
    "descriptors",
    "later",
    "marked",
    "new_marker",
    "open_peer",
    "own_children",
    "peer",
    "processes_marked",
    "wait_until",
]


def new_marker() -> str:
    """Return a value that no other process carries."""
    return secrets.token_hex(8)


def peer(*options: str, name: str = "peer", stages: dict[str, float] | None = None, **changes: Any) -> ExtensionSettings:
    """Return an entry that runs ``fixtures/peers/extension.py`` with *options*.

    *stages* are deadlines by the names of ``[extension_lifecycle]`` less ``_seconds``.
    """
    lifecycle = LifecycleLimits(**{f"{stage}_seconds": seconds for stage, seconds in (stages or {}).items()})
    known = {"command": sys.executable, "args": (BARE, str(PEER), *options), "lifecycle": lifecycle}
    return ExtensionSettings(name=name, **{**known, **changes})


def open_peer(
    workspace: Path, *options: str, scope: Scope | None = None, limits: Limits = DEFAULT, **changes: Any
) -> ExtensionHost:
    """Open the fixture program; *changes* as for :func:`peer`."""
    return ExtensionHost.open(peer(*options, **changes), workspace=workspace, scope=scope or Scope.root(30), limits=limits)


def marked(marker: str) -> dict[str, str]:
    """Return the environment entry by which :func:`processes_marked` finds a process."""
    return {MARKER: marker}


def processes_marked(marker: str) -> list[int]:
    """Return the numbers of the living processes that carry *marker*."""
    entry = f"{MARKER}={marker}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and entry in _read(f"/proc/{name}/environ").split(b"\0"):
            if b"State:\tZ" not in _read(f"/proc/{name}/status"):
                found.append(int(name))
    return found


def own_children() -> list[int]:
    """Return the numbers of this process's children, zombies included."""
    wanted = b"PPid:\t%d\n" % os.getpid()
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    return [int(name) for name in numbers if wanted in _read(f"/proc/{name}/status")]


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def wait_until(holds: Callable[[], bool], seconds: float = 2.0) -> bool:
    """Return whether *holds* became true within *seconds*."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def later(seconds: float, act: Callable[[], object]) -> threading.Timer:
    """Do *act* in another thread after *seconds*; returns the running timer."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


class Trace:
    """What a host was told to trace: each frame's direction and message, and when it passed."""

    def __init__(self) -> None:
        self.frames: list[tuple[float, str, dict[str, Json]]] = []

    def __call__(self, direction: str, body: bytes) -> None:
        self.frames.append((time.monotonic(), direction, json.loads(body)))

    def sent(self, method: str) -> float:
        """Return when the host said *method*."""
        return next(moment for moment, way, message in self.frames if way == "->" and message.get("method") == method)

    def told(self, direction: str) -> list[dict[str, Json]]:
        """Return the messages that went in *direction*, in order."""
        return [message for _, way, message in self.frames if way == direction]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
