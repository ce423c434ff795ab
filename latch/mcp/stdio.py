"""A server on stdio: one JSON message a line, over a child in its sandbox.

Lines are cut at the byte 0x0A alone and decoded afterwards. What is no message (a banner, a log line, an
empty line) is skipped, counted and bounded. Whatever goes wrong ends the whole tree: after it the stream
is in an unknown state, and no call is ever sent twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

from ..errors import (
    Cancelled,
    ConcurrentUse,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerProtocolError,
    UsageError,
    WireError,
)
from ..settings import McpServerSettings
from ..system import housekeeper
from ..system.faults import broken
from ..system.peer import PeerProcess, prepare_entry
from ..system.sandbox import Sandbox
from ..system.scope import Scope
from ..wire.excerpts import quote_end
from ..wire.httpfields import Redactor
from ..wire.jsonrpc import Failure, Response
from ..wire.jsontext import NotJson
from ..wire.lines import LineReader
from .conversation import Call, McpConversation, is_noise

__all__ = ["StdioTransport"]


class StdioTransport:
    """Carries the messages of one server process. It belongs to the thread that drives it."""

    repeats_arguments = False

    def __init__(
        self,
        entry: McpServerSettings,
        sandbox: Sandbox,
        *,
        workspace: Path,
        peer: str,
        environment: Mapping[str, str],
        conversation: McpConversation,
        redactor: Redactor | None = None,
    ) -> None:
        """*environment* is the server's own; *redactor* takes secrets out of its words, None where it has none."""
        self._entry = entry
        self._sandbox = sandbox
        self._workspace = workspace
        self._peer = peer
        self._environment = environment
        self._conversation = conversation
        self._redactor = redactor
        self._limits = sandbox.limits.mcp
        self._process: PeerProcess | None = None
        self._reader = LineReader(self._limits.max_message_bytes)
        self._call: Call | None = None
        self._late_fault: WireError | None = None
        self._answer: Response | Failure | None = None
        self._noise_since_answer = 0
        self._noise_end = ""
        self.noise_lines = 0

    @property
    def stderr_tail(self) -> str:
        """The last of what it wrote to its standard error, secrets taken out."""
        return "" if self._process is None else self._process.stderr_text()

    @property
    def failure(self) -> LatchError | None:
        """The error that ended it, also between two calls, or None while it is usable."""
        process = self._process
        if process is None or process.over is not None:
            return None if process is None else process.over
        fault = self._late_fault or process.child.fault
        if fault is not None:
            reason = fault.reason if isinstance(fault, WireError) else str(fault)
            return PeerProtocolError(reason, peer=self._peer, stage="idle")
        if process.child.has_exited():
            return PeerGone("it ended while nobody called it", peer=self._peer, stage="idle")
        return None

    def start(self, scope: Scope) -> None:
        """Start the server, or a fresh one after :meth:`probe` lost it; nothing is said yet."""
        bubblewrap = self._sandbox.ready(
            scope, wanted=self._peer, workspace=self._workspace, network=self._entry.network
        )
        prepared = prepare_entry(
            self._entry,
            self._sandbox,
            peer=self._peer,
            table="mcp_servers",
            workspace=self._workspace,
            environment=self._environment,
            features=bubblewrap.features,
        )
        child = self._sandbox.start(prepared, scope)
        self._process = PeerProcess(self._sandbox, prepared, child, peer=self._peer, redactor=self._redactor)
        self._reader = LineReader(self._limits.max_message_bytes)
        self._noise_since_answer = 0
        self._late_fault = None
        child.on_idle = self._hear_idle
        housekeeper.tend(child, self._sandbox.limits.process.housekeeping_seconds)

    def probe(self, call: Call, scope: Scope) -> Response | Failure | None:
        """Exchange the probe; None when it ended the server or was not answered in its own time.

        The server is gone then, and :meth:`start` is to be called again.
        """
        try:
            return self.exchange(call, scope)
        except PeerGone:
            return None
        except DeadlineMissed as error:
            if not error.own:
                raise
            return None

    def exchange(self, call: Call, scope: Scope) -> Response | Failure:
        """Send *call* and return its answer. Whatever is raised has ended the server, but for
        :class:`ConcurrentUse`."""
        process = self._running()
        return process.exchange(lambda: self._ask(call, scope), scope, settle=self._settle)

    def tell(self, body: bytes, scope: Scope) -> None:
        """Send a notification; waits only until the pipe took it."""
        process = self._running()
        process.exchange(lambda: self._say(body, scope), scope, settle=self._settle)

    def close(self, scope: Scope) -> None:
        """Close its stdin and wait a moment for its end, then kill it. Silent for one that is over.

        A cancel of *scope* kills it at once and is raised. Raises a :class:`PeerError` when its end could not
        be proven.
        """
        process = self._process
        if process is None or process.over is not None:
            return
        try:
            with process.child.driving():
                process.child.wait_exit(scope.within(self._limits.exit_seconds))
        except ConcurrentUse:
            # NOTE: another thread's call goes on; only a cancel ends it.
            raise
        except (LatchError, WireError, OSError):
            pass
        except BaseException:
            self.kill()
            raise
        self.kill()

    def kill(self) -> None:
        """End the whole tree at once. Raises a :class:`PeerError` when its end could not be proven."""
        if self._process is not None:
            self._process.kill(UsageError(f"{self._peer} was closed"))

    # -- the machinery ----------------------------------------------------------------------------

    def _running(self) -> PeerProcess:
        process = self._process
        assert process is not None, "start comes first"
        process.check_usable()
        return process

    def _ask(self, call: Call, scope: Scope) -> Response | Failure:
        process = self._running()
        if self._late_fault is not None:
            raise self._late_fault
        self._call, self._answer = call, None
        process.child.queue(call.body + b"\n")
        process.child.pump(self._hear, scope)
        assert self._answer is not None
        self._noise_since_answer = 0
        return self._answer

    def _say(self, body: bytes, scope: Scope) -> None:
        process = self._running()
        process.child.queue(body + b"\n")
        if not process.child.flush(scope):
            raise process.child.gone(scope, before="it was told")

    def _hear(self, chunk: bytes) -> bool:
        """Take in what it wrote; True once the answer that is waited for is there."""
        process = self._running()
        process.was_heard = True
        self._reader.feed(chunk)
        try:
            while (line := self._reader.next_line()) is not None:
                self._take(process, line)
        except WireError as fault:
            if self._answer is None:
                raise
            # NOTE: what comes after an answer does not undo it, however the pipe cut the two.
            self._late_fault = fault
        return self._answer is not None

    def _take(self, process: PeerProcess, line: bytes) -> None:
        if is_noise(line):
            self._count_noise(line)
            return
        try:
            heard = self._conversation.hear(line, self._call)
        except NotJson:
            self._count_noise(line)
            return
        if heard.answer is not None:
            self._answer, self._call = heard.answer, None
        for reply in heard.replies:
            self._reply(process, reply)

    def _hear_idle(self, chunk: bytes) -> None:
        self._hear(chunk)

    def _reply(self, process: PeerProcess, reply: bytes) -> None:
        most = self._limits.max_unread_answer_bytes
        if process.child.outbox_bytes > most:
            raise WireError(
                "it asks and does not read the answers", limit="max_unread_answer_bytes", amount=most
            )
        process.child.queue(reply + b"\n")

    def _count_noise(self, line: bytes) -> None:
        if not line.strip():
            return
        self.noise_lines += 1
        self._noise_since_answer += 1
        text = line.decode("utf-8", "replace")
        # NOTE: scrubbed before anything is cut off, because half a secret would pass.
        shown = text if self._redactor is None else self._redactor.text(text)
        self._noise_end = f"{self._noise_end} {shown}"[-2 * self._limits.max_quoted_chars :]
        most = self._limits.max_noise_lines
        if self._noise_since_answer > most:
            raise WireError(
                f"more than {most} lines on its standard output are no messages",
                limit="max_noise_lines",
                amount=most,
            )

    def _settle(self, error: BaseException, scope: Scope) -> None:
        """End the server because of *error*; raises what it means, if another."""
        process = self._process
        assert process is not None
        # NOTE: first, because the call that is under way may be that of another thread, which goes on.
        if isinstance(error, UsageError):
            return
        if isinstance(error, (Cancelled, DeadlineMissed)):
            self._say_farewell(process, error, scope)
        self._call = None
        if isinstance(error, WireError):
            raise self._end(process, broken(error, scope), scope) from None
        if isinstance(error, LatchError):
            raise self._end(process, error, scope) from error.__cause__
        if isinstance(error, OSError):
            gone = PeerGone(str(error), peer=scope.peer, stage=scope.stage)
            raise self._end(process, gone, scope) from error
        how = "was cancelled" if isinstance(error, Cancelled) else f"failed ({type(error).__name__})"
        self._end(process, PeerError(f"its use {how}", peer=self._peer, stage=scope.stage), scope)

    def _end(self, process: PeerProcess, error: LatchError, scope: Scope) -> LatchError:
        ended = process.end(error, scope)
        if isinstance(ended, PeerError) and self._noise_end:
            shown = quote_end(self._noise_end, self._limits.max_quoted_chars)
            ended.after(f"its standard output has lines that are no messages, which end: {shown}")
        return ended

    def _say_farewell(self, process: PeerProcess, error: BaseException, scope: Scope) -> None:
        """Tell the server that the call was given up, and let it end by itself for a moment."""
        # NOTE: what the pipe did not take yet must not follow; a message that was cut ends nothing but itself.
        if self._call is None or process.child.outbox_bytes:
            return
        why = "cancelled" if isinstance(error, Cancelled) else "no answer in time"
        notice = self._conversation.cancelled(self._call, why)
        if notice is None:
            return
        self._call = None
        try:
            process.child.queue(notice + b"\n")
            process.child.send_now()
            process.child.wait_exit(scope.shielded(self._limits.cancel_grace_seconds))
        except (LatchError, WireError, OSError):
            pass
