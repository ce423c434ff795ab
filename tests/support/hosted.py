"""Extensions hosted for real: settings for the fixture program, a clock and a trace that tests can use.

A test that looks for what is left gives its extension a marker (:func:`marked`), which every process in
the sandbox carries in its environment whatever session or parent it moved to, and asks ``census.carriers``;
bubblewrap's own processes are children of this one (:func:`own_children`).
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
# Flags that make any Python start in half the time; the programs need neither site nor user packages.
BARE = "-ES"


def new_marker() -> str:
    """Return a value that no other process carries."""
    return secrets.token_hex(8)


def peer(
    *options: str, name: str = "peer", stages: dict[str, float] | None = None, **changes: Any
) -> ExtensionSettings:
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
    return ExtensionHost.open(
        peer(*options, **changes), workspace=workspace, scope=scope or Scope.root(30), limits=limits
    )


def marked(marker: str) -> dict[str, str]:
    """Return the environment by which a census finds a process."""
    return {"LATCH_TEST_MARKER": marker}


def own_children() -> list[int]:
    """Return the numbers of this process's children, zombies included."""
    wanted = b"PPid:\t%d\n" % os.getpid()
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    return [int(name) for name in numbers if wanted in _read(f"/proc/{name}/status")]


def later(seconds: float, act: Callable[[], object]) -> threading.Timer:
    """Do *act* in another thread after *seconds*; returns the running timer."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


class LateClock:
    """A clock that stands still once when told: its next reader is held for *seconds*."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        held, self.seconds = self.seconds, 0.0
        time.sleep(held)
        return time.monotonic()


class Trace:
    """What a host was told to trace: each frame's direction and body, and when it passed.

    Nothing is parsed before it is asked for, so that a flood is not slowed down. A body that is no JSON
    stands as an empty message.
    """

    def __init__(self) -> None:
        self._frames: list[tuple[float, str, bytes]] = []

    def __call__(self, direction: str, body: bytes) -> None:
        self._frames.append((time.monotonic(), direction, body))

    @property
    def frames(self) -> list[tuple[str, dict[str, Json]]]:
        """Directions and messages, in order."""
        return [(direction, _parse(body)) for _, direction, body in self._frames]

    def told(self, direction: str) -> list[dict[str, Json]]:
        """Return the messages that went in *direction*, in order."""
        return [message for way, message in self.frames if way == direction]

    def sent(self, method: str) -> float:
        """Return when the host said *method*."""
        said = ((moment, _parse(body)) for moment, way, body in self._frames if way == "->")
        return next(moment for moment, message in said if message.get("method") == method)


def _parse(body: bytes) -> dict[str, Json]:
    try:
        message = json.loads(body)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
