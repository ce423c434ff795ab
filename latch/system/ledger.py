"""The record of what this user's Latch processes have started, and the sweep of what dead ones left.

One append-only file for each host process lies in ``<state>/ledger``; it exists only while
something runs. Before a spawn the host writes a random token that is bubblewrap's only environment
entry; after the spawn it adds the pids; after the proof of death an end mark. A host that was killed
leaves its file behind, and the sweep ends every process it names, or that carries one of its tokens
(security.md T24).

A record is written, not synced: it must outlive the host, not the machine. Files of another boot or
another pid namespace are left alone. No command line, environment or secret is ever recorded.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Collection, Iterator

from ..errors import ConfigProblem, ContainmentError, StoreError, UnsafeModes
from ..limits import ProcessLimits
from . import kernelcalls
from .cgroup import remove_pids_group
from .files import check_private, ensure_directory, find_regular
from .processes import (
    ProcessId,
    environment_of,
    here,
    identify,
    is_want,
    own_processes,
    uptime_seconds,
)
from .scope import Scope

__all__ = [
    "TOKEN_VARIABLE",
    "Entry",
    "Ledger",
    "Swept",
    "bearers",
    "check_state",
    "group_name",
    "has_dead_host",
    "read_entries",
    "sweep",
]

TOKEN_VARIABLE = "LATCH_PROCESS_TOKEN"
_TOKEN_BYTES = 16
# The host's process number and start, and a word of its own, for a host that makes several.
_FILE_NAME = re.compile(r"([0-9]+)-([0-9]+)-[0-9a-f]{8}\.jsonl")
_CURE = "make it writable, or set LATCH_DIRECTORY or state_dir to a directory that is"


@dataclass(frozen=True)
class Entry:
    """One unfinished start: who asked, what was started, and the processes as far as they are known.

    ``host_alive`` is False for what a killed host left. ``init`` is process 1 of the sandbox.
    """

    token: str
    what: str
    host: ProcessId
    host_alive: bool
    init: ProcessId | None
    monitor: ProcessId | None
    group: str | None


@dataclass(frozen=True)
class Swept:
    """What a sweep did: processes ended, processes that would not die, files of dead hosts kept."""

    ended: tuple[int, ...]
    surviving: tuple[int, ...]
    kept: int


class Ledger:
    """The writing side of one host process. Safe to use from several threads."""

    def __init__(self, directory: Path, *, limits: ProcessLimits = ProcessLimits()) -> None:
        """*directory* is the state directory; nothing is created before the first :meth:`begin`."""
        self._directory = directory / "ledger"
        self._limits = limits
        self._lock = threading.Lock()
        self._open: dict[str, list[dict[str, object]]] = {}
        self._written_bytes = 0
        self._descriptor = -1
        self._path: Path | None = None
        self._owner = 0

    def begin(self, what: str, *, groups: Path | None = None) -> str:
        """Record that *what* is about to be started and return its token.

        *groups* is the directory in which a control group :func:`group_name` will be made for it, if
        any. Raises :class:`StoreError` when that cannot be written: then nothing may be started.
        """
        token = os.urandom(_TOKEN_BYTES).hex()
        group = None if groups is None else str(groups / group_name(token))
        with self._lock:
            try:
                self._ensure_file()
                record: dict[str, object] = {"begin": token, "what": what, "group": group}
                self._append(record)
            except (OSError, StoreError) as error:
                raise _unwritable(self._directory, error) from error
            self._open[token] = [record]
        return token

    def started(self, token: str, *, init: ProcessId | None, monitor: ProcessId | None) -> None:
        """Add what is known of the processes of *token*; raises :class:`StoreError`."""
        with self._lock:
            record: dict[str, object] = {"started": token, "init": _pair(init), "monitor": _pair(monitor)}
            try:
                self._append(record)
            except OSError as error:
                raise _unwritable(self._directory, error) from error
            self._open.get(token, []).append(record)

    def ended(self, token: str) -> None:
        """Mark *token* as proven dead. Never raises: a missing mark only costs the next sweep a look."""
        with self._lock:
            self._open.pop(token, None)
            try:
                if not self._open:
                    self._remove_file()
                elif self._written_bytes < self._limits.max_ledger_bytes // 2:
                    self._append({"end": token})
                else:
                    self._renew_file()
            except (OSError, StoreError):
                pass

    def _ensure_file(self) -> None:
        if self._descriptor >= 0 and self._owner == os.getpid():
            return
        # NOTE: after a fork the file and its open entries belong to the parent.
        self._open, self._owner = {}, os.getpid()
        ensure_directory(self._directory)
        self._path, self._descriptor, self._written_bytes = self._make_file()

    def _renew_file(self) -> None:
        """Begin anew with what is open: a host that always has some child would fill its file for ever."""
        made = self._make_file()
        os.close(self._descriptor)
        if self._path is not None:
            os.unlink(self._path)
        self._path, self._descriptor, self._written_bytes = made

    def _make_file(self) -> tuple[Path, int, int]:
        """Write a file with what is open; return its path, its descriptor and how much is in it."""
        host, place = identify(self._owner), here()
        if host is None:
            raise StoreError(str(self._directory), "/proc does not show this process")
        head = {"v": 1, "boot": place.boot, "namespace": place.namespace, "host": _pair(host)}
        known = [record for records in self._open.values() for record in records]
        path = self._directory / f"{host.pid}-{host.start}-{os.urandom(4).hex()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            return path, descriptor, sum(_write(descriptor, record) for record in [head, *known])
        except OSError:
            # NOTE: a file without its first line means nothing to a sweep, whatever else is in it.
            os.close(descriptor)
            os.unlink(path)
            raise

    def _append(self, record: dict[str, object]) -> None:
        self._written_bytes += _write(self._descriptor, record)

    def _remove_file(self) -> None:
        if self._path is not None and self._owner == os.getpid():
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            os.unlink(self._path)


def _write(descriptor: int, record: dict[str, object]) -> int:
    line = _line(record)
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return len(line)


def _unwritable(directory: Path, error: OSError | StoreError) -> StoreError:
    why = error.strerror if isinstance(error, OSError) else error.reason
    return StoreError(str(directory), f"cannot record a process start: {why}", hint=_CURE)


def group_name(token: str) -> str:
    """Return the name of the control group of the start *token*."""
    return f"latch-{token}"


def check_state(directory: Path, uid: int) -> None:
    """Raise :class:`UnsafeModes` when others than *uid* may change what the ledger in the state *directory*
    says: what it names is killed. Nothing needs to exist."""
    for place, closed in ((directory, 0o022), (directory / "ledger", 0o077)):
        if os.path.lexists(place):
            try:
                check_private(place, uid=uid, directory=True, closed=closed)
            except StoreError as error:
                reason = error.reason.removeprefix(f'"{place}": ')
                raise UnsafeModes([ConfigProblem(str(place), reason)], hint=error.hint) from error


def read_entries(directory: Path, limits: ProcessLimits = ProcessLimits()) -> list[Entry]:
    """Return every unfinished entry below the state *directory*, of live and dead hosts; creates nothing."""
    return [entry for _, host in _hosts(directory / "ledger", limits) for entry in host.entries]


def has_dead_host(directory: Path) -> bool:
    """Return whether a file below the state *directory* is that of a host that does not live here.

    By the files' names alone, so that every start can afford to ask; a file of another boot or pid
    namespace may look like one of a dead host, and a sweep then leaves it alone.
    """
    try:
        names = os.listdir(directory / "ledger")
    except OSError as error:
        if is_want(error):
            raise
        return False
    hosts = map(_host_in, names)
    return any(host is not None and not host.is_alive() for host in hosts)


def bearers(tokens: Collection[str], uid: int) -> list[int]:
    """Return the live processes of *uid* that were started for one of *tokens*."""
    entries = [_environment_entry(token) for token in tokens]
    return [pid for pid in own_processes(uid) if _carries(pid, entries)] if entries else []


def sweep(directory: Path, *, uid: int, limits: ProcessLimits, scope: Scope) -> Swept:
    """End what killed hosts left behind below the state *directory*, and prove it.

    Two scans, ``limits.rescan_seconds`` apart, because a host killed between fork and exec leaves a
    late bubblewrap. The file of a dead host is removed by a sweep that finds nothing at least
    ``limits.dead_host_seconds`` after the host was first seen dead. Only processes of *uid* are
    touched. Another process's sweep is waited for, but no longer than ``limits.sweep_wait_seconds``:
    two at once are safe, and one that was stopped must not stop the others.
    """
    ledger = directory / "ledger"
    if not _dead_hosts(ledger, limits):
        return Swept((), (), 0)
    ended: set[int] = set()
    surviving: set[int] = set()
    with _turn_to_sweep(ledger, limits, scope):
        for scan in range(2):
            if scan:
                scope.pause(limits.rescan_seconds)
            for _, host in _dead_hosts(ledger, limits):
                killed, stubborn = _end_processes(host, uid, scope.shielded(limits.kill_seconds))
                ended |= killed
                surviving |= stubborn
        kept = 0
        for path, host in _dead_hosts(ledger, limits):
            groups = [_remove_group(entry) for entry in host.entries if entry.group is not None]
            quiet = not ended and not surviving and all(groups)
            kept += not _retire(path, host, quiet=quiet, limits=limits)
    return Swept(tuple(sorted(ended)), tuple(sorted(surviving - ended)), kept)


@dataclass(frozen=True)
class _Host:
    """What the file of one host says. ``is_whole`` is False for one that was killed before its first line."""

    process: ProcessId
    alive: bool
    entries: tuple[Entry, ...]
    seen_dead: float | None
    is_whole: bool


def _hosts(ledger: Path, limits: ProcessLimits) -> list[tuple[Path, _Host]]:
    try:
        names = sorted(os.listdir(ledger))
    except OSError as error:
        if is_want(error):
            raise
        return []
    found = []
    for name in names:
        if name.endswith(".jsonl"):
            host = _read_host(ledger / name, limits)
            if host is not None:
                found.append((ledger / name, host))
    return found


def _dead_hosts(ledger: Path, limits: ProcessLimits) -> list[tuple[Path, _Host]]:
    return [(path, host) for path, host in _hosts(ledger, limits) if not host.alive]


def _read_host(path: Path, limits: ProcessLimits) -> _Host | None:
    try:
        known = find_regular(path, max_bytes=limits.max_ledger_bytes)
    except ContainmentError as error:
        if isinstance(error.__cause__, OSError) and is_want(error.__cause__):
            raise error.__cause__ from None
        return None
    if known is None:
        return None
    records = []
    for line in known.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            # NOTE: a line torn by a kill or a full disk names nothing that was let run.
            continue
        if isinstance(record, dict):
            records.append(record)
    place = here()
    # NOTE: not the first line for certain: a sweep may have marked the file before its host wrote to it.
    head = next((record for record in records if "host" in record), None)
    if head is not None and (head.get("boot"), head.get("namespace")) != (place.boot, place.namespace):
        return None
    if head is not None:
        process = _process(head.get("host"))
    else:
        process = None if any("seen_dead" not in one for one in records) else _host_in(path.name)
    if process is None:
        return None
    alive = process.is_alive()
    open_entries: dict[str, Entry] = {}
    seen_dead = None
    for record in records:
        if "begin" in record:
            token = str(record["begin"])
            group = record.get("group") if isinstance(record.get("group"), str) else None
            open_entries[token] = Entry(token, str(record.get("what")), process, alive, None, None, group)
        elif "started" in record:
            token = str(record["started"])
            if token in open_entries:
                init, monitor = _process(record.get("init")), _process(record.get("monitor"))
                open_entries[token] = replace(open_entries[token], init=init, monitor=monitor)
        elif "end" in record:
            open_entries.pop(str(record["end"]), None)
        elif isinstance(record.get("seen_dead"), (int, float)) and seen_dead is None:
            seen_dead = float(record["seen_dead"])
    return _Host(process, alive, tuple(open_entries.values()), seen_dead, is_whole=head is not None)


def _end_processes(host: _Host, uid: int, scope: Scope) -> tuple[set[int], set[int]]:
    named = {process for entry in host.entries for process in (entry.init, entry.monitor) if process}
    tokens = [_environment_entry(entry.token) for entry in host.entries]
    numbers = {process.pid for process in named}
    suspects = [pid for pid in own_processes(uid) if pid in numbers or _carries(pid, tokens)]
    watched: dict[int, int] = {}
    try:
        for pid in suspects:
            descriptor = _kill_checked(pid, named, tokens)
            if descriptor is not None:
                watched[descriptor] = pid
        waiting = set(watched)
        while waiting:
            ready, _ = scope.wait(waiting, at_most=scope.remaining())
            if not ready:
                break
            waiting -= set(ready)
        stubborn = {watched[descriptor] for descriptor in waiting}
    except TimeoutError:
        stubborn = {watched[descriptor] for descriptor in waiting}
    finally:
        for descriptor in watched:
            os.close(descriptor)
    return set(watched.values()) - stubborn, stubborn


def _kill_checked(pid: int, named: set[ProcessId], tokens: list[bytes]) -> int | None:
    try:
        descriptor = kernelcalls.open_process(pid)
    except OSError as error:
        # NOTE: it is gone, or this kernel has no such descriptors; anything else must not pass for that.
        if error.errno in (errno.ESRCH, errno.ENOSYS):
            return None
        raise
    try:
        # NOTE: checked after the descriptor was opened, so that the number cannot have been used again.
        known = identify(pid)
        if known is not None and (known in named or _carries(pid, tokens)):
            with suppress(ProcessLookupError):
                kernelcalls.signal_process(descriptor, signal.SIGKILL)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _environment_entry(token: str) -> bytes:
    return f"{TOKEN_VARIABLE}={token}".encode()


def _carries(pid: int, tokens: list[bytes]) -> bool:
    present = environment_of(pid).split(b"\0")
    return any(token in present for token in tokens)


def _retire(path: Path, host: _Host, *, quiet: bool, limits: ProcessLimits) -> bool:
    now = uptime_seconds()
    unfinished = bool(host.entries) or not host.is_whole
    try:
        if not unfinished or (
            quiet and host.seen_dead is not None and now - host.seen_dead >= limits.dead_host_seconds
        ):
            os.unlink(path)
            return True
        if host.seen_dead is None:
            with open(path, "ab") as stream:
                stream.write(_line({"seen_dead": now}))
    except OSError:
        pass
    return False


def _remove_group(entry: Entry) -> bool:
    # NOTE: whatever a record says, nothing but a group of this start is removed.
    group = Path(entry.group or "")
    return group.name != group_name(entry.token) or remove_pids_group(group)


@contextmanager
def _turn_to_sweep(ledger: Path, limits: ProcessLimits, scope: Scope) -> Iterator[None]:
    # NOTE: a lock on the directory itself, so that nothing is created where all may be read-only.
    try:
        descriptor = os.open(ledger, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        # A throw-away place whose owner has just removed it.
        yield
        return
    end = scope.now() + limits.sweep_wait_seconds
    try:
        while not _try_lock(descriptor) and scope.now() < end:
            scope.pause(limits.rescan_seconds)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _line(record: dict[str, object]) -> bytes:
    # NOTE: the newline comes first, so that a torn line never swallows the record after it.
    return b"\n" + json.dumps(record, separators=(",", ":")).encode()


def _host_in(name: str) -> ProcessId | None:
    found = _FILE_NAME.fullmatch(name)
    return ProcessId(int(found.group(1)), int(found.group(2))) if found else None


def _pair(process: ProcessId | None) -> list[int] | None:
    return None if process is None else [process.pid, process.start]


def _process(value: object) -> ProcessId | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return ProcessId(value[0], value[1])
    return None
