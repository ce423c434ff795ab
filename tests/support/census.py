"""Which processes carry a marker, and how many descriptors and threads this process has."""

from __future__ import annotations

import gc
import os
import time
from typing import Callable

from tests.support.pace import MS

PATIENCE_SECONDS = 10.0


def carriers(marker: str) -> list[int]:
    """Return the live processes whose environment holds *marker*, zombies and this process left out."""
    wanted = marker.encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as stream:
                    carries = wanted in stream.read()
            except OSError:
                continue
            if carries and not is_dead(int(name)):
                found.append(int(name))
    return found


def is_dead(pid: int) -> bool:
    """Tell whether process *pid* is gone, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def descriptors() -> frozenset[str]:
    """Return what this process has open, one text for each descriptor."""
    gc.collect()
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue
    return frozenset(found)


def opened_since(before: frozenset[str]) -> list[str]:
    """Return what is open now and was not when *before* was taken by :func:`descriptors`."""
    return sorted(descriptors() - before)


def eventually(holds: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> bool:
    """Return True as soon as *holds* does, False when it still does not after *seconds*.

    The seconds are those of a machine as slow as this one says it is.
    """
    end = time.monotonic() + seconds * 1000 * MS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
