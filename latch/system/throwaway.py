"""Places that live for one run: a workspace, a state directory, removed when the run ends.

They lie below one directory of this user whose name every run knows, so that the sweep of a later run
finds the ledger of one that was killed, and removes its place. Whoever made a place holds a lock on it,
which ends with the process: what can be locked was left.

Anybody may put something of that name there first. So the directory must be no link, ours and closed
to others, in one where nobody else can put another in its stead; and only what bears the name of a
place is ever removed from it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from ..errors import StoreError
from .files import check_private, ensure_directory

__all__ = ["base_of", "remove_left_places", "state_in", "states_of_places", "throw_away_place"]

# NOTE: not TMPDIR, which every run may have set otherwise, even to a place that a child can write.
_DIRECTORY = Path("/tmp")
_PREFIX = "run-"


@contextmanager
def throw_away_place(*, uid: int) -> Iterator[Path]:
    """Make an empty directory for this run, yield it, and remove it with its content.

    Raises :class:`StoreError` when it cannot be made, or others can reach the directory it lies in.
    """
    base = base_of(uid)
    if not _is_kept_for_its_owner(base.parent):
        raise StoreError(
            str(base.parent), "anybody may change what lies in it", hint=f"chmod +t {base.parent}"
        )
    place, lock = _claim(base, uid)
    try:
        yield place
    finally:
        _remove(place)
        os.close(lock)
        with suppress(OSError):
            os.rmdir(base)


def state_in(place: Path) -> Path:
    """Return the state directory of a run whose place is *place*."""
    return place / "state"


def states_of_places(uid: int) -> list[Path]:
    """Return the state directory of every place of *uid*, in use or left; creates nothing."""
    return [state_in(place) for place in _places(uid)]


def remove_left_places(uid: int) -> None:
    """Remove each place of *uid* whose run is over and whose ledger names nothing any more."""
    for place in _places(uid):
        lock = _lock(place)
        if lock is None:
            continue
        try:
            ledger = state_in(place) / "ledger"
            if not os.path.isdir(ledger) or not os.listdir(ledger):
                _remove(place)
        finally:
            os.close(lock)
    if _is_ours(base_of(uid), uid):
        with suppress(OSError):
            os.rmdir(base_of(uid))


def base_of(uid: int) -> Path:
    """Return the directory below which the places of *uid* lie; it need not exist."""
    return _DIRECTORY / f"latch-{uid}"


def _is_kept_for_its_owner(directory: Path) -> bool:
    """Say whether only the owner of an entry of *directory* can put another in its stead."""
    try:
        mode = os.stat(directory).st_mode
    except OSError:
        return True
    return not mode & 0o022 or bool(mode & stat.S_ISVTX)


def _is_ours(base: Path, uid: int) -> bool:
    try:
        check_private(base, uid=uid, directory=True, links=False)
    except StoreError:
        return False
    return _is_kept_for_its_owner(base.parent)


def _places(uid: int) -> list[Path]:
    base = base_of(uid)
    if not _is_ours(base, uid):
        return []
    try:
        return [base / name for name in sorted(os.listdir(base)) if name.startswith(_PREFIX)]
    except OSError:
        return []


def _claim(base: Path, uid: int) -> tuple[Path, int]:
    while True:
        ensure_directory(base)
        check_private(base, uid=uid, directory=True, links=False)
        try:
            place = _make(base)
        except FileNotFoundError:
            # Another run has just removed the directory, being the last in it.
            continue
        except OSError as error:
            raise StoreError(str(base), f"cannot be written: {str(error.strerror).lower()}") from error
        lock = _lock(place)
        if lock is not None:
            return place, lock


def _lock(place: Path) -> int | None:
    """Lock *place* and return the descriptor that holds the lock; None when another has it, or it is gone."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # NOTE: a sweep may have taken it for left, and removed it, between its making and its lock.
        if os.fstat(descriptor).st_nlink > 0 and os.path.isdir(place):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _make(base: Path) -> Path:
    # NOTE: here and below, because every start looks for left places and few find or make one.
    import tempfile

    return Path(tempfile.mkdtemp(dir=base, prefix=_PREFIX))


def _remove(place: Path) -> None:
    import shutil

    shutil.rmtree(place, ignore_errors=True)
