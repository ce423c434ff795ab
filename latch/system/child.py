"""One running child: its three pipes, its end, and the proof that nothing of it is left.

The calling thread drives the pipes: one wait over stdin, stdout, stderr, the child's exit and
cancel, bounded by a scope. A child belongs to the thread that is driving it; any other thread may
only cancel (:class:`ConcurrentUse` otherwise). Between exchanges the housekeeper calls
:meth:`Child.tend`, which never blocks.

Under bubblewrap a closed pipe end is not seen, so neither the end of stdout nor a full stdin tells
anything: only deadlines and the exit of the sandbox do. The exit is the end of the status pipe,
whose only writer is the monitor.

This module does not know what the bytes mean, how the child was started, or what a frame is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import termios
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, Iterator

from ..errors import Cancelled, ConcurrentUse, LatchError, PeerError, PeerGone
from ..limits import ProcessLimits
from . import kernelcalls
from .bubblewrap import parse_exit_code, parse_init_pid
from .processes import environment_of, identify, is_want, parent_of
from .scope import Scope

if TYPE_CHECKING:
    import subprocess

__all__ = ["Child", "ChildExit", "Pipes"]


@dataclass
class Pipes:
    """Our ends of a child's pipes; the child object owns and closes them.

    ``info`` and ``status`` are bubblewrap's ``--info-fd`` and ``--json-status-fd``; ``gate`` is the
    write end of the pipe at which the sandbox waits. -1 stands for one that is closed or absent.
    """

    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    info: int = -1
    status: int = -1
    gate: int = -1

    def close(self, *names: str) -> None:
        """Close the named pipes, or all; closing twice is safe."""
        for name in names or tuple(vars(self)):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                os.close(descriptor)


@dataclass(frozen=True)
class ChildExit:
    """How a child ended: ``status`` as a shell has it (128 + N for signal N), None when unknown.

    ``executed`` is False when bubblewrap gave up by itself before it could start the program; one that
    died of a signal did not give up. ``killed`` is True when we ended it.
    """

    status: int | None
    executed: bool
    killed: bool

    def __str__(self) -> str:
        if self.killed:
            return "killed (signal 9)"
        if self.status is None:
            return "ended with an unknown status"
        # signal(7): the highest is 64
        if 128 < self.status <= 192:
            return f"died of signal {self.status - 128}"
        return f"exited with status {self.status}"


@dataclass
class _Reports:
    """What bubblewrap says on its two descriptors, collected as it arrives."""

    info: bytearray = field(default_factory=bytearray)
    status: bytearray = field(default_factory=bytearray)
    info_is_whole: bool = False
    ended: bool = False


class Child:
    """A sandboxed process tree, from its gate to its proven end.

    ``on_idle`` receives what the child writes to stdout while nobody drives it, and may raise; such
    a failure is kept in ``fault`` and raised by the next exchange. ``on_end`` is called once, after
    the proof of death.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        *,
        token_entry: bytes,
        limits: ProcessLimits,
        on_end: Callable[[], None],
    ) -> None:
        self._process = process
        self._pipes = pipes
        self._token_entry = token_entry
        self._limits = limits
        self._on_end = on_end
        self._reports = _Reports()
        self._outbox: deque[memoryview] = deque()
        self._outbox_bytes = 0
        self._stdin_broken = False
        self._stderr_tail = bytearray()
        self._stderr_bytes = 0
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._driver: int | None = None
        self._init_pid: int | None = None
        self._init_descriptor = -1
        self._owner = os.getpid()
        self._exit: ChildExit | None = None
        self.on_idle: Callable[[bytes], None] | None = None
        self.on_stderr: Callable[[bytes], None] | None = None
        self.fault: Exception | None = None
        self.is_proven_dead = False
        for descriptor in (pipes.stdin, pipes.stdout, pipes.stderr, pipes.status):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)

    # -- what is known ----------------------------------------------------------------------------

    @property
    def monitor_pid(self) -> int:
        """The process we started: bubblewrap's outer half, leader of its own group."""
        return self._process.pid

    @property
    def init_pid(self) -> int | None:
        """Process 1 of the sandbox as this machine numbers it, or None while that is unknown."""
        return self._init_pid

    @property
    def exit(self) -> ChildExit | None:
        """How it ended, or None before the proof of death."""
        return self._exit

    @property
    def outbox_bytes(self) -> int:
        """How much was queued and not yet taken by the child."""
        return self._outbox_bytes

    def has_exited(self) -> bool:
        """Return whether the sandbox was seen to end."""
        return self._exit is not None or self._reports.ended

    @property
    def is_stderr_cut(self) -> bool:
        """Whether it wrote more to stderr than :meth:`stderr_text` holds."""
        return self._stderr_bytes > len(self._stderr_tail)

    def stderr_text(self) -> str:
        """Return the last of what it wrote to stderr, undecodable bytes replaced."""
        text = bytes(self._stderr_tail).decode("utf-8", "replace")
        return "..." + text if self.is_stderr_cut else text

    # -- the gate ---------------------------------------------------------------------------------

    def read_init_pid(self, scope: Scope) -> int | None:
        """Return process 1 of the sandbox, or None when the sandbox could not be set up."""
        while True:
            scope.wait([self._pipes.info])
            if self._read_info():
                break
        self._pipes.close("info")
        self._adopt_init(checked_by_parent=True)
        return self._init_pid

    def open_gate(self) -> None:
        """Let the sandbox go on; it waits until now."""
        try:
            os.write(self._pipes.gate, b"g")
        except BrokenPipeError:
            pass
        self._pipes.close("gate")

    def _adopt_init(self, *, checked_by_parent: bool) -> None:
        pid = parse_init_pid(bytes(self._reports.info))
        if pid is None:
            return
        try:
            descriptor = kernelcalls.open_process(pid)
        except OSError as error:
            if is_want(error) and checked_by_parent:
                raise
            if error.errno == errno.ENOSYS and parent_of(pid) == self.monitor_pid:
                self._init_pid = pid
            return
        # NOTE: while its parent is the monitor, or it carries our token, the number is still its own.
        ours = parent_of(pid) == self.monitor_pid if checked_by_parent else False
        if ours or self._token_entry in _carried_by(pid).split(b"\0"):
            self._init_pid, self._init_descriptor = pid, descriptor
        else:
            os.close(descriptor)

    # -- an exchange ------------------------------------------------------------------------------

    def queue(self, data: bytes) -> None:
        """Add *data* to what the child is to read; :meth:`pump` sends it."""
        if not data or self._stdin_broken or self._pipes.stdin < 0:
            return
        self._outbox.append(memoryview(data))
        self._outbox_bytes += len(data)

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the child for one exchange, as :meth:`hold` and :meth:`release` do."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        """Make the calling thread this child's driver, which an exchange and its waits need.

        Raises :class:`ConcurrentUse` while another thread holds it, and the fault an idle pass met.
        """
        if self._owner != os.getpid():
            raise ConcurrentUse("this peer belongs to the process that started it, not to a fork of it")
        # NOTE: where there is no driver, the lock is the housekeeper's for one pass that never blocks, or
        # belongs to an end, which has its bound; two that come at once must not wait for one another.
        with self._turn:
            if self._driver is not None:
                raise ConcurrentUse("another thread is driving this peer; it may only be cancelled from here")
            # NOTE: first, or an interrupt between the two would leave a lock that its end waits for in vain.
            self._driver = threading.get_ident()
            self._lock.acquire()
        if self._exit is not None or self.fault is not None:
            self.release()
            raise self.fault or ConcurrentUse("another thread has ended this peer")

    def release(self) -> None:
        """Give the child back; the housekeeper looks after it again."""
        self._driver = None
        self._lock.release()

    def pump(self, on_output: Callable[[bytes], bool], scope: Scope) -> None:
        """Send what is queued and hand stdout to *on_output* until it returns True and all is sent.

        Raises what *scope* and *on_output* raise, and :class:`PeerGone` when the child ended first.
        After any failure the stream's state is unknown: end the child.
        """
        self._pump(on_output, scope, done=False)

    def flush(self, scope: Scope) -> bool:
        """Send what is queued; what the child writes meanwhile goes to ``on_idle``.

        Returns False when the child ended before it took everything.
        """
        self._pump(self._take_idle, scope, done=True)
        return not self._stdin_broken

    def send_now(self) -> None:
        """Send what the pipe takes without waiting, as a last word to a child about to be ended."""
        self._send()

    def wait_exit(self, scope: Scope) -> None:
        """Close stdin and wait until the sandbox ends; its stdout goes to ``on_idle``."""
        self._drop_outbox()
        self._pipes.close("stdin")
        while not self._reports.ended:
            ready, _ = scope.wait(self._open_reads())
            if self._pipes.stderr in ready:
                self._read_stderr()
            if self._pipes.stdout in ready:
                self._take_idle(self._read("stdout"))
            if self._pipes.status in ready:
                self._read_status()
        self._drain_stderr()
        self._drain_stdout(self._take_idle)

    def gone(self, scope: Scope, *, before: str = "it answered") -> PeerGone:
        """Return the error that says how the child ended, and *before* what; for one seen to have ended."""
        self._drain_stderr()
        self._read_status()
        status = parse_exit_code(bytes(self._reports.status))
        how = "ended" if status is None else str(ChildExit(status, executed=True, killed=False))
        return PeerGone(
            f"{how} before {before}",
            status=status,
            stderr_tail=self.stderr_text(),
            peer=scope.peer,
            stage=scope.stage,
        )

    def _pump(self, on_output: Callable[[bytes], bool], scope: Scope, *, done: bool) -> None:
        # NOTE: a peer that shares our core has often answered by the time that its request was written.
        if not done and self._outbox and self._pipes.stdout >= 0:
            scope.check()
            self._send()
            chunk = self._read("stdout")
            done = bool(chunk) and on_output(chunk)
        while True:
            if self._outbox:
                self._send()
            # NOTE: first of all, because an idle pass may have seen the end already.
            if self._reports.ended:
                done = self._drain_stdout(on_output) or done
                if not done:
                    raise self.gone(scope)
                self._break_stdin()
            if done and not self._outbox:
                return
            ready, _ = scope.wait(self._open_reads(), [self._pipes.stdin] if self._outbox else ())
            if self._pipes.stderr in ready:
                self._read_stderr()
            if self._pipes.stdout in ready:
                chunk = self._read("stdout")
                done = (bool(chunk) and on_output(chunk)) or done
            # NOTE: what is still to be heard is drained after the end; output without end must not hide it.
            if self._pipes.status in ready:
                self._read_status()

    def _open_reads(self) -> list[int]:
        return [fd for fd in (self._pipes.stdout, self._pipes.stderr, self._pipes.status) if fd >= 0]

    def tend(self) -> None:
        """One pass that never blocks, for a child that nobody drives; failures go to ``fault``."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._exit is not None or self.fault is not None:
                return
            self._send()
            left = self._limits.idle_read_bytes
            while left > 0 and self._pipes.stderr >= 0 and (count := self._read_stderr()):
                left -= count
            while left > 0 and self._pipes.stdout >= 0 and (chunk := self._read("stdout")):
                self._take_idle(chunk)
                left -= len(chunk)
            self._send()
            self._read_status()
        except Exception as error:  # whatever reads for it may raise; the next exchange raises it
            self.fault = error
        finally:
            self._lock.release()

    # -- the end ----------------------------------------------------------------------------------

    def run_out(
        self, scope: Scope, *, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]
    ) -> ChildExit:
        """Hand over all that it writes until it ends, its stdin closed, and return how it ended.

        It is gone whatever happens: what *scope* and the readers raise comes out once it is. Raises
        :class:`PeerError` when its end could not be proven.
        """
        self.on_idle, self.on_stderr = on_stdout, on_stderr
        try:
            with self.driving():
                self.wait_exit(scope)
        except BaseException as error:
            self.end_after(error, scope)
            raise
        ended = self.end(scope.shielded(self._limits.kill_seconds))
        unproven = self.unproven(peer=scope.peer, stage=scope.stage)
        if unproven is not None:
            raise unproven
        return ended

    def end_after(self, error: BaseException, scope: Scope) -> None:
        """End it because of *error*, which learns where the end could not be proven; *scope* is shielded here."""
        self.end(scope.shielded(self._limits.kill_seconds))
        unproven = self.unproven(peer=scope.peer, stage=scope.stage)
        if unproven is not None and isinstance(error, (LatchError, Cancelled)):
            error.after(unproven.reason)

    def unproven(self, *, peer: str | None, stage: str | None) -> PeerError | None:
        """Return the error that says which process may have outlived :meth:`end`, or None when none did."""
        if self.is_proven_dead:
            return None
        return PeerError(
            f"process {self._init_pid or self.monitor_pid} could not be proven dead",
            hint="once this process has ended, latch reap ends it",
            peer=peer,
            stage=stage,
        )

    def end(self, scope: Scope) -> ChildExit:
        """Kill whatever is left of the tree, prove it, reap, and return how it ended. Idempotent, and tried
        again as long as the end was not proven.

        *scope* is a shielded one. The order matters (spec/sandbox.md): process 1 by its descriptor,
        the monitor's group, the pid that the dead monitor may still have told, the proof.
        """
        try:
            return self._end(scope)
        except ConcurrentUse:
            raise
        except BaseException:
            # NOTE: an interrupt must not leave what nobody would come back for.
            self._end(scope.shielded(self._limits.kill_seconds))
            raise

    def _end(self, scope: Scope) -> ChildExit:
        if self._owner != os.getpid():
            raise ConcurrentUse("this peer belongs to the process that started it, not to a fork of it")
        if self._exit is not None and self.is_proven_dead:
            return self._exit
        with self._ending():
            if self._exit is None:
                # NOTE: what is still read of it is for the tail alone: nobody's reader may keep it from its end.
                self.on_stderr = None
                self._read_status()
                ended_by_itself = self._reports.ended
                proven = self._kill(scope)
                self._drain_stderr()
                self._read_status()
                self._exit = self._read_exit(ended_by_itself=ended_by_itself)
                self._drop_outbox()
                self._pipes.close("stdin", "stdout", "stderr", "status", "gate")
            elif not self.is_proven_dead:
                proven = self._kill(scope)
            else:
                return self._exit
            if proven:
                self._on_end()
                self._pipes.close()
                # NOTE: said last, because whoever comes back after an interrupt does nothing once it is said.
                descriptor, self._init_descriptor = self._init_descriptor, -1
                self.is_proven_dead = True
                if descriptor >= 0:
                    os.close(descriptor)
            return self._exit

    def _kill(self, scope: Scope) -> bool:
        """Kill what is there and return whether it was seen to be gone, all of it."""
        self._kill_init()
        # NOTE: only a monitor whose sandbox was killed just now is about to end by itself.
        patience = self._limits.drain_seconds if self._init_pid is not None else 0.0
        self._wait_monitor(scope.shielded(patience))
        self._kill_monitor_group()
        if self._init_descriptor < 0:
            self._learn_init_of_dead_monitor(scope)
            self._kill_init()
        return self._reap_monitor(scope) and self._wait_init(scope)

    def _kill_init(self) -> None:
        try:
            if self._init_descriptor >= 0:
                kernelcalls.signal_process(self._init_descriptor, signal.SIGKILL)
            elif self._init_pid is not None and parent_of(self._init_pid) == self.monitor_pid:
                os.kill(self._init_pid, signal.SIGKILL)
        except OSError:
            pass

    def _kill_monitor_group(self) -> None:
        # NOTE: before it is reaped, so that the number cannot have been used again, and also when it is dead: one
        # that died early leaves a process 1 in its group that nobody will ever let go or end.
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                pass

    def _learn_init_of_dead_monitor(self, scope: Scope) -> None:
        try:
            while self._pipes.info >= 0:
                scope.wait([self._pipes.info])
                if self._read_info():
                    break
        except TimeoutError:
            pass
        if self._init_pid is None:
            self._adopt_init(checked_by_parent=False)

    def _wait_monitor(self, scope: Scope) -> None:
        """Wait until the monitor is dead, without reaping it, or *scope* has ended."""
        try:
            while self._process.returncode is None and not _is_gone(self._process.pid):
                self._wait_status(scope)
        except TimeoutError:
            pass

    def _reap_monitor(self, scope: Scope) -> bool:
        try:
            while self._process.poll() is None:
                self._wait_status(scope)
        except TimeoutError:
            return self._process.poll() is not None
        return True

    def _wait_status(self, scope: Scope) -> None:
        # NOTE: the end of the status pipe comes just before the process can be reaped.
        reads = [self._pipes.status] if self._pipes.status >= 0 and not self._reports.ended else []
        ready, _ = scope.wait(reads, at_most=self._limits.reap_poll_seconds)
        if ready:
            self._read_status()

    def _wait_init(self, scope: Scope) -> bool:
        if self._init_descriptor < 0:
            return self._reports.info_is_whole and self._wait_told_init(scope)
        try:
            scope.wait([self._init_descriptor])
        except TimeoutError:
            return False
        return True

    def _wait_told_init(self, scope: Scope) -> bool:
        """Wait for the end of a process 1 that could not be adopted: it was dying, or is gone already."""
        pid = self._init_pid or parse_init_pid(bytes(self._reports.info))
        try:
            while pid is not None and not _is_gone(pid):
                carried = _carried_by(pid)
                # NOTE: ours carries its token until it dies, when nothing can be read; another has taken the number.
                if carried and self._token_entry not in carried.split(b"\0"):
                    break
                scope.pause(self._limits.reap_poll_seconds)
        except TimeoutError:
            return False
        return True

    def _read_exit(self, *, ended_by_itself: bool) -> ChildExit:
        told, code = parse_exit_code(bytes(self._reports.status)), self._process.returncode
        # NOTE: killed by us, the monitor still tells the status of a process that died of SIGKILL.
        killed = not ended_by_itself and told in (None, 128 + signal.SIGKILL)
        if told is not None or code is None:
            return ChildExit(told, executed=killed or told is not None, killed=killed)
        status = 128 - code if code < 0 else code
        return ChildExit(status, executed=killed or code < 0, killed=killed)

    # -- pipes ------------------------------------------------------------------------------------

    def _send(self) -> None:
        while self._outbox:
            head = self._outbox[0]
            try:
                sent = os.write(self._pipes.stdin, head)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # NOTE: not an error of its own: what the child said before it went is still to be read.
                self._break_stdin()
                return
            self._outbox_bytes -= sent
            if sent == len(head):
                self._outbox.popleft()
            else:
                self._outbox[0] = head[sent:]

    def _break_stdin(self) -> None:
        self._stdin_broken = True
        self._drop_outbox()

    def _drop_outbox(self) -> None:
        self._outbox.clear()
        self._outbox_bytes = 0

    def _read(self, name: str) -> bytes:
        descriptor = getattr(self._pipes, name)
        try:
            chunk = os.read(descriptor, self._limits.read_bytes)
        except BlockingIOError:
            return b""
        if not chunk:
            self._pipes.close(name)
        return chunk

    def _read_stderr(self) -> int:
        chunk = self._read("stderr")
        self._stderr_bytes += len(chunk)
        self._stderr_tail += chunk[-self._limits.stderr_tail_bytes :]
        del self._stderr_tail[: -self._limits.stderr_tail_bytes]
        if self.on_stderr is not None and chunk:
            self.on_stderr(chunk)
        return len(chunk)

    def _read_info(self) -> bool:
        chunk = os.read(self._pipes.info, self._limits.read_bytes)
        self._reports.info += chunk
        self._reports.info_is_whole = not chunk
        return not chunk

    def _read_status(self) -> None:
        while self._pipes.status >= 0 and (chunk := self._read("status")):
            self._reports.status += chunk
        self._reports.ended = self._pipes.status < 0

    def _drain_stdout(self, on_output: Callable[[bytes], bool]) -> bool:
        done, left = False, self._waiting_bytes("stdout")
        while not done and left > 0 and (chunk := self._read("stdout")):
            left -= len(chunk)
            done = on_output(chunk)
        return done

    def _drain_stderr(self) -> None:
        left = self._waiting_bytes("stderr")
        while left > 0 and (count := self._read_stderr()):
            left -= count

    def _waiting_bytes(self, name: str) -> int:
        """Return how much lies in a pipe now: a process that outlives its monitor may write for ever."""
        descriptor = getattr(self._pipes, name)
        if descriptor < 0:
            return 0
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)

    def _take_idle(self, chunk: bytes) -> bool:
        if chunk and self.on_idle is not None:
            self.on_idle(chunk)
        return False

    @contextmanager
    def _ending(self) -> Iterator[None]:
        if self._driver == threading.get_ident():
            yield
            return
        with self._turn:
            if self._driver is not None:
                raise ConcurrentUse("another thread is driving this peer; cancel it instead of ending it")
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


def _is_gone(pid: int) -> bool:
    try:
        return identify(pid) is None
    except OSError:
        # Where it cannot be looked at, nothing is claimed of it.
        return False


def _carried_by(pid: int) -> bytes:
    try:
        return environment_of(pid)
    except OSError:
        return b""
