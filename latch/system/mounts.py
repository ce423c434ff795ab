"""Whether a sandbox that waits at its gate shows what was planned, and nothing else of this machine.

Bubblewrap resolves every source and place by name, one after the other, and a source that is handed over
as a descriptor as well. Who may write a directory on the way can have a name lead elsewhere for just that
moment, so no look beforehand is enough (security.md T1). What counts is what was mounted in the end: the
kernel tells it (proc(5), mountinfo), and until the gate opens nothing has run that could see it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Iterable

from .paths import changed_since_plan, hold_path, lies_in
from .plan import Operation

__all__ = [
    "ExpectedMounts",
    "Mount",
    "expect_mounts",
    "find_unplanned",
    "is_set_up",
    "parse_mounts",
    "read_mounts",
]

_BINDS = ("--bind", "--ro-bind")
# What bubblewrap itself shows below /dev.
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
_READ_BYTES = 65536
_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. ``origin`` is what is mounted: the file system, and the path in that."""

    number: int
    origin: tuple[str, str]
    place: str
    read_only: bool


@dataclass(frozen=True)
class ExpectedMounts:
    """What a plan may mount: of which origins at each place, what of it must be there, and which places are
    made for the sandbox.

    ``first`` are places whose first mount comes before any name that others may change: bubblewrap's devices
    and the system's own. ``devices`` are the file systems of this machine; any other is the sandbox's.
    """

    allowed: dict[str, set[tuple[str, str]]]
    bound: tuple[tuple[str, tuple[str, str]], ...]
    made: tuple[str, ...]
    first: frozenset[str]
    devices: frozenset[str]


def read_mounts(process: int | str) -> list[Mount]:
    """Return the mounts that *process*, a number or ``self``, sees. Raises :class:`OSError`."""
    return parse_mounts(_read(f"/proc/{process}/mountinfo"))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while True:
            chunk = os.read(descriptor, _READ_BYTES)
            if not chunk:
                return text
            text += chunk
    finally:
        os.close(descriptor)


def parse_mounts(text: bytes) -> list[Mount]:
    """Return the mounts that *text*, a mountinfo of proc(5), lists."""
    found = []
    for line in text.splitlines():
        number, _, device, root, place, options = line.split(b" ", 6)[:6]
        origin = (device.decode("ascii"), _unescape(root))
        found.append(Mount(int(number), origin, _unescape(place), b"ro" in options.split(b",")))
    return found


def _unescape(name: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), name))


def expect_mounts(operations: Iterable[Operation]) -> ExpectedMounts:
    """Look up where the pinned sources of *operations* are now, and return what will be seen mounted.

    Raises :class:`ContainmentError` for one that is not what was planned, or gone.
    """
    mounts = read_mounts("self")
    known = {mount.number: mount for mount in mounts}
    allowed: dict[str, set[tuple[str, str]]] = {}
    bound, made, first = [], [], [*_DEVICES]
    for operation in operations:
        if operation.option == "--tmpfs":
            made.append(operation.arguments[0])
        if operation.option not in _BINDS:
            continue
        source, place = operation.arguments
        if operation.pinned:
            origin = _origin(source, operation.kind, known)
            allowed.setdefault(place, set()).add(origin)
            bound.append((place, origin))
        else:
            first.append(place)
            source = os.path.realpath(source)
        # What is mounted in it comes along.
        for mount in mounts:
            if mount.place.startswith(source) and mount.place != source and lies_in(mount.place, source):
                below = os.path.join(place, os.path.relpath(mount.place, source))
                allowed.setdefault(below, set()).add(mount.origin)
    devices = frozenset(mount.origin[0] for mount in mounts)
    return ExpectedMounts(allowed, tuple(bound), tuple(made), frozenset(first), devices)


def _origin(path: str, kind: int, known: dict[int, Mount]) -> tuple[str, str]:
    """Return what a mount of the real *path* shows."""
    descriptor = hold_path(path, kind)
    try:
        facts = _read(f"/proc/self/fdinfo/{descriptor}")
    finally:
        os.close(descriptor)
    number = next(int(line[7:]) for line in facts.splitlines() if line.startswith(b"mnt_id:"))
    mount = known.get(number)
    if mount is None:
        # It was mounted in this moment.
        raise changed_since_plan(path)
    below = os.path.relpath(path, mount.place)
    root = mount.origin[1] if below == "." else os.path.join(mount.origin[1], below)
    return mount.origin[0], root


def may_be_set_up(process: int) -> bool:
    """Say whether it is worth to look at the mounts of *process*: a look keeps them from being made.

    Its root is then another, and no longer the one in which bubblewrap keeps the old root.
    """
    root = f"/proc/{process}/root"
    return os.stat(root).st_dev != os.stat("/").st_dev and not os.path.lexists(f"{root}/oldroot")


def is_set_up(mounts: list[Mount], expected: ExpectedMounts) -> bool:
    """Say whether a sandbox has made all of its *mounts*: its sealed root is the only one there is."""
    roots = [mount for mount in mounts if mount.place == "/"]
    return len(roots) == 1 and roots[0].read_only and roots[0].origin[0] not in expected.devices


def find_unplanned(mounts: list[Mount], expected: ExpectedMounts) -> str | None:
    """Return the place at which *mounts* are not as *expected*, or None.

    What was planned there is not, or something of this machine is that was not planned there.
    """
    present: set[tuple[str, tuple[str, str] | None]] = set()
    strays, first = [], set(expected.first)
    for mount in mounts:
        is_own = mount.origin[0] not in expected.devices
        present.add((mount.place, None if is_own else mount.origin))
        if not is_own and mount.place in first:
            first.remove(mount.place)
        elif not is_own and mount.origin not in expected.allowed.get(mount.place, ()):
            strays.append(mount.place)
    absent = [place for place, origin in expected.bound if (place, origin) not in present]
    absent += [place for place in expected.made if (place, None) not in present]
    return next(iter([*absent, *strays]), None)
