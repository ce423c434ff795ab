"""How two absolute paths stand to each other, and whether one still is what it was.

Only links are looked at, nothing is read. Paths are compared as text, so callers hand in real paths,
or both names of a path.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import ContainmentError
from ..limits import FileLimits

__all__ = [
    "both_names",
    "changed_since_plan",
    "hold_path",
    "lies_in",
    "lies_in_any",
    "passes_through",
    "real_path",
    "relation_of",
]

# open(2). Some interpreters do not name it; it is the same on every architecture that they run on.
_O_PATH = getattr(os, "O_PATH", 0o10000000)


def both_names(path: Path) -> list[str]:
    """Return *path* as it is named and where it really is, each once."""
    return list(dict.fromkeys([os.path.abspath(path), real_path(path)]))


def real_path(path: str | Path) -> str:
    """Return where *path* really is, as far as it exists."""
    try:
        return os.path.realpath(path)
    except OSError:
        # Python 3.9 and a link that may not be read, as some of /proc.
        return os.path.abspath(path)


def lies_in(path: str, tree: str) -> bool:
    """Say whether *path* is *tree* or below it."""
    return path == tree or path.startswith(tree if tree == "/" else tree + "/")


def lies_in_any(path: str, trees: list[str]) -> bool:
    """Say whether *path* is or lies below one of *trees*."""
    return any(lies_in(path, tree) for tree in trees)


def passes_through(path: str | Path, trees: list[str], limits: FileLimits = FileLimits()) -> bool:
    """Say whether *path* lies below one of *trees* as it is named, where it really is, or on the way there.

    Whoever may write a link on the way decides where it leads. Too many links are a way through anything.
    """
    place, links = "/", 0
    # NOTE: not normalised, because ".." behind a link leads elsewhere.
    pending = os.path.join(os.getcwd(), path).split("/")[::-1]
    while pending:
        part = pending.pop()
        if part == "..":
            place = os.path.dirname(place)
        if part in ("", ".", ".."):
            continue
        place = os.path.join(place, part)
        if lies_in_any(place, trees):
            return True
        try:
            target = os.readlink(place)
        except OSError:
            continue
        links += 1
        if links > limits.max_links:
            return True
        pending.extend(target.split("/")[::-1])
        place = "/" if target.startswith("/") else os.path.dirname(place)
    return lies_in_any(os.path.abspath(path), trees) or lies_in_any(real_path(path), trees)


def hold_path(path: str, kind: int = 0) -> int:
    """Return a descriptor of what real *path* names, which only names it: nothing can be read through it.

    *kind* is what it must be (``stat.S_IFDIR``), 0 for anything. Raises :class:`ContainmentError` when it
    is another kind or gone, or when a link now leads there or is there. The caller owns the descriptor.
    """
    try:
        descriptor = os.open(path, _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise changed_since_plan(path) from error
    try:
        found = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if found == stat.S_IFLNK or found != (kind or found):
            raise changed_since_plan(path)
        # NOTE: the whole way counts, because a directory on it may have become a link.
        if os.readlink(f"/proc/self/fd/{descriptor}") != path:
            raise changed_since_plan(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def changed_since_plan(path: str) -> ContainmentError:
    """Return the error for a *path* that is not what it was when it was judged."""
    return ContainmentError(
        path,
        "changed while it was being started: it is not what the plan was made for",
        hint="try again when nothing else writes there",
    )


def relation_of(path: str, other: str) -> str | None:
    """Return ``is``, ``lies in`` or ``contains`` for how *path* stands to *other*, or None."""
    if path == other:
        return "is"
    return "lies in" if lies_in(path, other) else "contains" if lies_in(other, path) else None
