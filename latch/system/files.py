"""Files: contained reads of what others wrote, checks and removal of what lies on disk.

Contained reads walk from a root by descriptor, one component at a time, and follow no link, so that
nothing below the root can point the host at a file outside it or make it wait. Operator files are
read with links allowed, but must be plain files. A removal follows no link either.

Not here: which files are read, and what their bytes mean.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from ..errors import ContainmentError, StoreError

__all__ = [
    "check_private",
    "ensure_directory",
    "find_contained",
    "find_regular",
    "read_contained",
    "read_contained_head",
    "read_contained_text",
    "read_head",
    "read_kernel_text",
    "read_regular",
    "remove_tree",
]

# PyPy's os has no O_PATH; the number is that of every architecture PyPy runs on.
_DIRECTORY = getattr(os, "O_PATH", 0o10000000) | os.O_DIRECTORY | os.O_CLOEXEC
# NONBLOCK: opening a FIFO nobody writes to would wait; NOCTTY: a terminal must not become ours.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_contained(root: Path, relative: str, *, max_bytes: int) -> bytes:
    """Return the bytes of the plain file *relative* below *root*.

    Every refusal is a :class:`ContainmentError`: an absolute path, ``..``, a NUL, a link in any
    component, a second hard link, anything but a regular file, more than *max_bytes*, absence.
    *root* itself may be reached through links.
    """
    data = find_contained(root, relative, max_bytes=max_bytes)
    if data is None:
        raise ContainmentError(_shown(root, relative), "does not exist")
    return data


def read_contained_text(root: Path, relative: str, *, max_bytes: int) -> str:
    """Return :func:`read_contained` as text; bytes that are not UTF-8 are a :class:`ContainmentError`."""
    data = read_contained(root, relative, max_bytes=max_bytes)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContainmentError(_shown(root, relative), f"is not UTF-8 (byte {error.start})") from error


def find_contained(root: Path, relative: str, *, max_bytes: int) -> bytes | None:
    """Return what :func:`read_contained` does, or None when there is nothing at that path."""
    with _contained(root, relative) as descriptor:
        if descriptor is None:
            return None
        return _read_whole(descriptor, _shown(root, relative), max_bytes)


def read_contained_head(root: Path, relative: str, *, max_bytes: int) -> bytes:
    """Return the first *max_bytes* of a file that may be longer, refused like :func:`read_contained`."""
    with _contained(root, relative) as descriptor:
        if descriptor is None:
            raise ContainmentError(_shown(root, relative), "does not exist")
        return _read_upto(descriptor, _shown(root, relative), max_bytes)


def read_regular(path: Path, *, max_bytes: int) -> bytes:
    """Return the bytes of the operator's file *path*, refused like :func:`find_regular` or when absent."""
    data = find_regular(path, max_bytes=max_bytes)
    if data is None:
        raise ContainmentError(str(path), "does not exist")
    return data


def find_regular(path: Path, *, max_bytes: int, trusted_uids: tuple[int, ...] = ()) -> bytes | None:
    """Return the bytes of the operator's file *path*, links followed, or None when it is absent.

    With *trusted_uids* the file must belong to one of them and be writable by its owner alone.
    Raises :class:`ContainmentError` for that, for anything but a regular file, and for more than
    *max_bytes*.
    """
    with _regular(path) as descriptor:
        if descriptor is None:
            return None
        if trusted_uids:
            _check_trusted(descriptor, path, trusted_uids)
        return _read_whole(descriptor, str(path), max_bytes)


def read_head(path: Path, *, max_bytes: int) -> bytes:
    """Return the first *max_bytes* of the operator's file *path*, refused like :func:`read_regular`."""
    with _regular(path) as descriptor:
        if descriptor is None:
            raise ContainmentError(str(path), "does not exist")
        return _read_upto(descriptor, str(path), max_bytes)


def read_kernel_text(path: Path) -> str:
    """Return what the kernel says in *path*, a file of ``/proc`` or ``/sys``; nothing where it is silent."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def remove_tree(path: Path) -> None:
    """Remove *path*, a file, a link or a directory with all that lies in it; links are not followed.

    However deep the directory is, few descriptors and no recursion are needed: what lies in a
    directory of it is first moved up. Raises :class:`OSError` when something cannot be removed.
    """
    if not _is_directory(path, None):
        os.unlink(path)
        return
    top = _open_for_removal(path, None)
    try:
        while True:
            names = os.listdir(top)
            if not names:
                break
            for name in names:
                _remove_or_raise_up(name, top)
    finally:
        os.close(top)
    os.rmdir(path)


def check_private(path: Path, *, uid: int, directory: bool, links: bool = True, closed: int = 0o077) -> None:
    """Raise :class:`StoreError` unless *path* is *uid*'s own and closed to everybody else.

    *directory* says which kind it must be; a link to one is judged by its target, or, without *links*,
    refused. *closed* are the bits of its mode that nobody else may have.
    """
    try:
        found = os.stat(path, follow_symlinks=links)
    except OSError as error:
        raise StoreError(str(path), f"cannot be examined: {_text(error)}") from error
    if directory and not stat.S_ISDIR(found.st_mode):
        raise StoreError(str(path), f"is {_kind(found)}, must be a directory")
    if not directory and not stat.S_ISREG(found.st_mode):
        raise StoreError(str(path), f"is {_kind(found)}, must be a file")
    if found.st_uid != uid:
        raise StoreError(str(path), f"belongs to uid {found.st_uid}, must belong to uid {uid}")
    mode = stat.S_IMODE(found.st_mode)
    if mode & closed:
        what = "closed to others" if closed & 0o044 else "writable by its owner alone"
        cure = f"chmod {mode & ~closed:o} {path}"
        raise StoreError(str(path), f"has mode {mode:04o}, must be {what}", hint=cure)


def ensure_directory(path: Path, *, mode: int = 0o700) -> None:
    """Create the directory *path* with *mode* where it is absent, its missing parents with 0700."""
    try:
        if os.path.isdir(path):
            return
        ensure_directory(path.parent)
        os.mkdir(path, 0o700)
        if mode != 0o700:
            os.chmod(path, mode)
    except FileExistsError as error:
        # Another process may have made it since.
        if not os.path.isdir(path):
            raise StoreError(str(path), "must be a directory") from error
    except OSError as error:
        raise StoreError(str(path), f"cannot be created: {_text(error)}") from error


def _shown(root: Path, relative: str) -> str:
    return os.path.join(root, relative)


def _text(error: OSError) -> str:
    return str(error.strerror).lower()


def _is_directory(name: Path | str, directory: int | None) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def _open_for_removal(name: Path | str, directory: int | None) -> int:
    """Open a directory whatever its mode, which becomes 0700; a link put there meanwhile is not followed."""
    place = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


def _remove_or_raise_up(name: str, top: int) -> None:
    """Remove the entry *name* of *top*, a directory only once its own entries are entries of *top*."""
    if not _is_directory(name, top):
        os.unlink(name, dir_fd=top)
        return
    inner = _open_for_removal(name, top)
    try:
        for entry in os.listdir(inner):
            if _is_directory(entry, inner):
                # Moving a directory writes its "..".
                os.close(_open_for_removal(entry, inner))
            os.rename(entry, os.urandom(12).hex(), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _kind(found: os.stat_result) -> str:
    return next((name for test, name in _KINDS if test(found.st_mode)), "a regular file")


def _components(root: Path, relative: str) -> list[str]:
    shown = _shown(root, relative)
    if "\0" in relative:
        raise ContainmentError(relative.replace("\0", "\\0"), "contains a NUL character")
    if relative.startswith("/"):
        raise ContainmentError(shown, "is absolute")
    try:
        os.fsencode(relative)
    except UnicodeEncodeError as error:
        raise ContainmentError(ascii(shown), "cannot be a file name") from error
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ContainmentError(shown, 'contains ".."')
    if not parts or relative.endswith("/"):
        raise ContainmentError(shown, "names no file")
    return parts


@contextmanager
def _contained(root: Path, relative: str) -> Iterator[int | None]:
    """Yield a descriptor of the file, checked to be plain; None where a component is absent."""
    parts = _components(root, relative)
    shown = _shown(root, relative)
    descriptor = _walk(root, parts, shown)
    if descriptor is None:
        yield None
        return
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ContainmentError(shown, f"is {_kind(found)}, not a regular file")
        if found.st_nlink != 1:
            raise ContainmentError(shown, f"has {found.st_nlink} hard links, must have one")
        yield descriptor
    finally:
        os.close(descriptor)


def _walk(root: Path, parts: list[str], shown: str) -> int | None:
    try:
        directory = os.open(root, _DIRECTORY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ContainmentError(str(root), f"cannot be opened: {_text(error)}") from error
    try:
        for part in parts[:-1]:
            deeper = _step(part, _DIRECTORY, directory, shown)
            if deeper is None:
                return None
            os.close(directory)
            directory = deeper
        return _step(parts[-1], _FILE, directory, shown)
    finally:
        os.close(directory)


def _step(part: str, flags: int, directory: int, shown: str) -> int | None:
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ContainmentError(shown, _step_reason(part, directory, error)) from error


def _step_reason(part: str, directory: int, error: OSError) -> str:
    # For the text only: O_DIRECTORY reports a link and a file alike, a socket opens with ENXIO.
    try:
        found = os.stat(part, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return f'"{part}" cannot be opened: {_text(error)}'
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return f'"{part}" is {_kind(found)}'
    return f'"{part}" cannot be opened: {_text(error)}'


@contextmanager
def _regular(path: Path) -> Iterator[int | None]:
    descriptor = _open_regular(path)
    if descriptor is None:
        yield None
        return
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ContainmentError(str(path), f"is {_kind(found)}, not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _open_regular(path: Path) -> int | None:
    try:
        return os.open(path, _FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ContainmentError(str(path), f"cannot be opened: {_text(error)}") from error


def _check_trusted(descriptor: int, path: Path, trusted_uids: tuple[int, ...]) -> None:
    found = os.fstat(descriptor)
    if found.st_uid not in trusted_uids:
        allowed = " or ".join(str(uid) for uid in trusted_uids)
        raise ContainmentError(str(path), f"belongs to uid {found.st_uid}, must belong to uid {allowed}")
    if found.st_mode & 0o022:
        reason = f"has mode {stat.S_IMODE(found.st_mode):04o}, must be writable by its owner alone"
        raise ContainmentError(str(path), reason, hint=f"chmod go-w {path}")


def _read_upto(descriptor: int, shown: str, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    left = max_bytes
    try:
        while left > 0:
            chunk = os.read(descriptor, left)
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise ContainmentError(shown, f"cannot be read: {_text(error)}") from error
    return b"".join(chunks)


def _read_whole(descriptor: int, shown: str, max_bytes: int) -> bytes:
    # NOTE: the size is not asked beforehand; the file may grow while it is read.
    data = _read_upto(descriptor, shown, max_bytes + 1)
    if len(data) > max_bytes:
        raise ContainmentError(shown, f"is larger than {max_bytes} bytes")
    return data
