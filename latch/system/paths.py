"""How two absolute paths stand to each other. Only links are looked at, nothing is read.

Paths are compared as text, so callers hand in real paths, or both names of a path.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..limits import FileLimits

__all__ = ["both_names", "lies_in", "lies_in_any", "passes_through", "real_path", "relation_of"]


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


def relation_of(path: str, other: str) -> str | None:
    """Return ``is``, ``lies in`` or ``contains`` for how *path* stands to *other*, or None."""
    if path == other:
        return "is"
    return "lies in" if lies_in(path, other) else "contains" if lies_in(other, path) else None
