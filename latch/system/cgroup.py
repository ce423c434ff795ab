"""A bound on the number of processes for root, whom ``RLIMIT_NPROC`` does not bind.

One control group for each sandbox, made beside our own in the ``pids`` hierarchy (version 1) or
below it (version 2, where that is allowed). Where it cannot be made, the caller says so; nothing
here raises.

Moving a process takes a lock of the whole kernel, and so one to ten milliseconds. A thread that
moves itself takes none, so on version 1 the thread that starts a sandbox does, and what it starts
is born inside.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from .files import read_kernel_text

__all__ = [
    "NO_LIMIT",
    "can_make_pids_groups",
    "enter_pids_group",
    "inside_pids_group",
    "make_pids_group",
    "pids_groups",
    "remove_pids_group",
]

# cgroups(7): each thread by itself; version 1 only.
_TASKS = "tasks"

# How a plan and doctor say that root's children are not bounded (security.md T16).
NO_LIMIT = "no process limit (root)"


def make_pids_group(
    name: str, maximum: int, *, groups: Path | None = None, root: Path = Path("/")
) -> Path | None:
    """Make the group *name* that holds at most *maximum* tasks; None where that is impossible.

    bubblewrap's own processes count: its process 1, and its monitor where that is born inside.
    *groups* is what :func:`pids_groups` found, for who knows it already; *root* is a seam for tests.
    """
    parent = groups or pids_groups(root)
    if parent is None:
        return None
    group = parent / name
    try:
        os.mkdir(group)
    except OSError:
        return None
    if _write(group / "pids.max", str(maximum)):
        return group
    remove_pids_group(group)
    return None


def enter_pids_group(group: Path, pid: int, *, root: Path = Path("/")) -> bool:
    """Move process *pid* into *group* unless it was born there; False when the kernel refuses.

    *root* is a seam for tests.
    """
    lines = read_kernel_text(root / f"proc/{pid}/cgroup").splitlines()
    if any(line.endswith(f"/{group.name}") for line in lines):
        return True
    return _write(group / "cgroup.procs", str(pid))


@contextmanager
def inside_pids_group(group: Path | None) -> Iterator[None]:
    """Put the calling thread into *group* meanwhile, where threads can be moved alone (version 1)."""
    # NOTE: "0" is the thread that writes; any number, its own as well, would take the lock.
    moved = group is not None and os.path.exists(group / _TASKS) and _write(group / _TASKS, "0")
    try:
        yield
    finally:
        if group is not None and moved:
            _write(group.parent / _TASKS, "0")


def remove_pids_group(group: Path) -> bool:
    """Remove *group*; False when it still holds tasks."""
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def pids_groups(root: Path = Path("/")) -> Path | None:
    """Return the directory that groups of ours are made in; None where there is none.

    *root* is a seam for tests.
    """
    ours = _own_groups(root)
    for mount_root, point, kind, options in _mounts(root):
        if kind == "cgroup" and "pids" in options.split(","):
            inside = ours.get("pids")
        elif (
            kind == "cgroup2"
            and "pids" in read_kernel_text(root / point.lstrip("/") / "cgroup.subtree_control").split()
        ):
            inside = ours.get("")
        else:
            continue
        if inside is not None and (inside == mount_root or inside.startswith(mount_root.rstrip("/") + "/")):
            return root / point.lstrip("/") / inside[len(mount_root.rstrip("/")) :].lstrip("/")
    return None


def can_make_pids_groups(root: Path = Path("/")) -> bool:
    """Say whether :func:`make_pids_group` would make a group; creates nothing. *root* is a seam for tests."""
    parent = pids_groups(root)
    if parent is None or not os.access(parent, os.W_OK | os.X_OK):
        return False
    # Version 2 gives a group's children only the controllers that the group itself names.
    controllers = parent / "cgroup.subtree_control"
    return not os.path.exists(controllers) or "pids" in read_kernel_text(controllers).split()


def _own_groups(root: Path) -> dict[str, str]:
    """Map each controller of version 1, and "" for version 2, to the path of our own group."""
    groups = {}
    for line in read_kernel_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _mounts(root: Path) -> list[tuple[str, str, str, str]]:
    """Return (root inside the file system, mount point, type, super options) of each cgroup mount."""
    found = []
    for line in read_kernel_text(root / "proc/self/mountinfo").splitlines():
        # proc(5): id, parent, device, root, mount point, options, optional fields, "-", type, source, super
        # options
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(rest) >= 3 and rest[0] in ("cgroup", "cgroup2"):
            found.append((fields[3], fields[4], rest[0], rest[2]))
    return found


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text, encoding="ascii")
    except OSError:
        return False
    return True
