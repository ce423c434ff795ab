"""What ``/proc`` says about processes: identity, owner, environment. Reads only.

A process is identified by its number *and* its start time, because numbers are used again. Zombies
count as dead. Every function answers None (or False) for a process that is gone, whatever the moment
it went, and raises :class:`OSError` where this process lacks what it takes to look.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

__all__ = [
    "ProcessId",
    "environment_of",
    "here",
    "identify",
    "is_want",
    "own_processes",
    "parent_of",
    "uptime_seconds",
]


@dataclass(frozen=True)
class ProcessId:
    """One process: its number and its start time in clock ticks after boot."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        """Return whether this very process still runs."""
        return identify(self.pid) == self


@dataclass(frozen=True)
class Here:
    """Which machine run and which pid namespace a process number belongs to."""

    boot: str
    namespace: int


def here() -> Here:
    """Return the boot id and the inode of our pid namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        boot = stream.read().strip()
    return Here(boot=boot, namespace=os.stat("/proc/self/ns/pid").st_ino)


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the live process *pid*, or None when there is none (or a zombie)."""
    fields = _stat_fields(pid)
    # proc(5): after the parenthesised name come the state (field 3) and, as field 22, the start time
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return ProcessId(pid, int(fields[19]))


def parent_of(pid: int) -> int | None:
    """Return the process number of the parent of *pid*, or None when *pid* is gone."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[1])


def environment_of(pid: int) -> bytes:
    """Return the environment *pid* was started with, NUL-separated; empty when unreadable or gone."""
    return _read(f"/proc/{pid}/environ") or b""


def own_processes(uid: int) -> list[int]:
    """Return the numbers of all processes whose real uid is *uid*."""
    # NOTE: /proc/PID itself belongs to root for a process that is not dumpable; status does not lie.
    wanted = str(uid).encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        status = _read(f"/proc/{name}/status") or b""
        for line in status.splitlines():
            if line.startswith(b"Uid:"):
                if line.split()[1] == wanted:
                    found.append(int(name))
                break
    return found


def uptime_seconds() -> float:
    """Return the seconds since boot, suspended time included; the same for every process."""
    with open("/proc/uptime", encoding="ascii") as stream:
        return float(stream.read().split()[0])


def is_want(error: OSError) -> bool:
    """Say whether *error* is a want of ours, of descriptors or memory, and tells nothing of what was asked."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _stat_fields(pid: int) -> list[bytes] | None:
    text = _read(f"/proc/{pid}/stat")
    # NOTE: the name may hold blanks and parentheses; only the last parenthesis ends it.
    return text[text.rindex(b")") + 2 :].split() if text else None


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        # NOTE: want of a descriptor says nothing about the process, which must not pass for dead.
        if is_want(error):
            raise
        return None
