"""The one thread that starts processes. The only importer of ``subprocess``.

``--die-with-parent`` is bound to the *thread* that spawned, so this thread never ends. It has an
empty signal mask, a session keyring of its own and, where the kernel can, no reach to abstract
Unix sockets made outside; what it starts inherits all three. It does nothing but start: waiting,
reading and killing happen in the thread that drives the peer.
"""

from __future__ import annotations

import errno
import os
import queue
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from ..errors import UsageError
from ..limits import DEFAULT, ProcessLimits
from . import kernelcalls
from .cgroup import inside_pids_group
from .scope import Scope

__all__ = ["Hardening", "SpawnRequest", "end_group", "hardening", "spawn"]


@dataclass(frozen=True)
class SpawnRequest:
    """One process to start. ``descriptors`` are inherited under their own numbers; the three standard
    streams are descriptors too. :func:`spawn` takes all of them over and closes them. ``group`` is the
    control group it is to be born in, where that is possible."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    stdin: int
    stdout: int
    stderr: int
    descriptors: tuple[int, ...] = ()
    group: Path | None = None

    def close(self) -> None:
        """Close every descriptor of the request."""
        for descriptor in {self.stdin, self.stdout, self.stderr, *self.descriptors}:
            os.close(descriptor)


@dataclass(frozen=True)
class Hardening:
    """What the spawner thread could give everything it starts."""

    keyring: bool
    abstract_sockets: bool


class _Job:
    """One request on its way: the answer, and a pipe that becomes readable with it.

    The request's descriptors are the job's until the spawner thread has closed them: a caller that
    stopped waiting must not close numbers that a fork in progress is about to inherit.
    """

    def __init__(self, request: SpawnRequest, kill_seconds: float) -> None:
        self.request = request
        self.kill_seconds = kill_seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.error: BaseException | None = None
        self._abandoned = False
        self._lock = threading.Lock()
        self.done, self._signal = os.pipe()

    def is_wanted(self) -> bool:
        """Return whether somebody still waits for the answer."""
        with self._lock:
            return not self._abandoned

    def finish(self, process: subprocess.Popen[bytes] | None, error: BaseException | None) -> bool:
        """Hand over the answer; False when nobody waits for it any more."""
        with self._lock:
            self.process, self.error = process, error
            os.close(self._signal)
            return not self._abandoned

    def abandon(self) -> subprocess.Popen[bytes] | None:
        """Stop waiting; returns the process when it exists already, else the thread will end it."""
        with self._lock:
            self._abandoned = True
            return self.process


class _Spawner:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.hardening = Hardening(keyring=False, abstract_sockets=False)
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._ready = threading.Event()
        try:
            threading.Thread(target=self._run, name=f"{__name__}", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        self._ready.wait()

    def submit(self, job: _Job) -> None:
        self._jobs.put(job)

    def _run(self) -> None:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            self.hardening = Hardening(
                keyring=kernelcalls.join_new_session_keyring(),
                abstract_sockets=kernelcalls.restrict_abstract_sockets(),
            )
        finally:
            self._ready.set()
        while True:
            _start(self._jobs.get())


# NOTE: one spawner for the process, made on first use; a thread cannot be passed down from every
# caller, because die-with-parent needs the *same* thread for all of them.
_ONLY: dict[str, _Spawner] = {}
_MAKING = threading.Lock()


def hardening() -> Hardening:
    """Return what the spawner thread could set up; starts the thread."""
    return _only().hardening


def spawn(
    request: SpawnRequest, scope: Scope, *, limits: ProcessLimits = DEFAULT.process
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own and return it; the caller reaps it.

    Takes over the descriptors of *request*, whatever happens.
    Raises :class:`OSError` when it cannot be executed, :class:`UsageError` when this process ignores
    SIGCHLD or a word cannot be passed to any program, and what *scope* raises; then nothing is left
    running, or about to be: what the thread starts too late it ends.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        request.close()
        raise UsageError(
            "this process ignores SIGCHLD, so the end of a child could not be seen",
            hint="set its disposition to SIG_DFL before starting anything",
        )
    try:
        spawner, job = _only(), _Job(request, limits.kill_seconds)
    except BaseException:
        # NOTE: no thread or no descriptor left: nobody else will close them.
        request.close()
        raise
    try:
        spawner.submit(job)
        scope.wait([job.done])
    except BaseException:
        process = job.abandon()
        if process is not None:
            end_group(process, seconds=limits.kill_seconds)
        raise
    finally:
        os.close(job.done)
    if isinstance(job.error, (ValueError, TypeError)):
        raise UsageError(f"no program can be started with these words: {job.error}") from job.error
    if job.error is not None:
        raise job.error
    assert job.process is not None
    return job.process


def _only() -> _Spawner:
    with _MAKING:
        spawner = _ONLY.get("spawner")
        # NOTE: the thread does not exist in a forked child.
        if spawner is None or spawner.pid != os.getpid():
            spawner = _ONLY["spawner"] = _Spawner()
        return spawner


def _start(job: _Job) -> None:
    process, failure = None, None
    # NOTE: this thread is the only one there will be, so nothing that a request holds may end it.
    try:
        process = _popen(job)
    except BaseException as error:  # it is raised again by the thread that asked for the start
        failure = error
    if not job.finish(process, failure) and process is not None:
        end_group(process, seconds=job.kill_seconds)


def _popen(job: _Job) -> subprocess.Popen[bytes] | None:
    request = job.request
    try:
        if not job.is_wanted():
            return None
        with inside_pids_group(request.group):
            return subprocess.Popen(
                list(request.argv),
                env=dict(request.environment),
                cwd="/",
                stdin=request.stdin,
                stdout=request.stdout,
                stderr=request.stderr,
                pass_fds=request.descriptors,
                start_new_session=True,
            )
    finally:
        request.close()


def end_group(process: subprocess.Popen[bytes], *, seconds: float) -> bool:
    """Kill the group that *process* leads and reap it; False when it was not seen to end in *seconds*.

    Enough for what waits at its gate; the ledger covers the rest.
    """
    # NOTE: before it is reaped, so that the number cannot have been used again, and also when it is dead: a
    # bubblewrap that died early leaves a process 1 in its group that nobody will ever let go or end.
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
