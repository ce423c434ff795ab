"""Places that live for one run: a workspace, a state directory, removed when the run ends.

They lie below one directory of this user whose name every run knows, so that the sweep of a later run
finds the ledger of one that was killed, and removes its place. Whoever made a place holds a lock on it,
which ends with the process: what can be locked was left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from ..errors import StoreError
from .files import check_private, ensure_directory

__all__ = ["remove_left_places", "state_in", "states_of_places", "throw_away_place"]

# Where places of a run with another TMPDIR may lie as well.
_COMMON = "/tmp"


@contextmanager
def throw_away_place(*, uid: int) -> Iterator[Path]:
    """Make an empty directory for this run, yield it, and remove it with its content.

    Raises :class:`StoreError` when it cannot be made, or others can reach the directory it lies in.
    """
    base = _base(tempfile.gettempdir(), uid)
    place, lock = _claim(base, uid)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
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
            if not ledger.is_dir() or not os.listdir(ledger):
                shutil.rmtree(place, ignore_errors=True)
        finally:
            os.close(lock)
    for directory in _directories():
        with suppress(OSError):
            os.rmdir(_base(directory, uid))


def _directories() -> list[str]:
    return list(dict.fromkeys([tempfile.gettempdir(), _COMMON]))


def _base(directory: str, uid: int) -> Path:
    return Path(directory, f"latch-{uid}")


def _places(uid: int) -> list[Path]:
    found = []
    for directory in _directories():
        base = _base(directory, uid)
        try:
            # NOTE: anybody may make a directory of this name.
            check_private(base, uid=uid, directory=True)
            found += sorted(path for path in base.iterdir() if path.is_dir())
        except (OSError, StoreError):
            continue
    return found


def _claim(base: Path, uid: int) -> tuple[Path, int]:
    while True:
        ensure_directory(base)
        check_private(base, uid=uid, directory=True)
        try:
            place = Path(tempfile.mkdtemp(dir=base, prefix=""))
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
        if os.fstat(descriptor).st_nlink > 0 and place.is_dir():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
