"""One MCP server as its user sees it: opened, its tools called, closed.

::

    with McpClient.open(entry, workspace=path, scope=scope) as client:
        client.call_tool("add", {"a": 1, "b": 2}, scope)

No call is ever sent twice. A call that failed on its way may have taken effect: the error says so, the
client is disconnected for good and its catalogue stays as it was. An answer that is an error, a tool that
failed and a call that asks for what is not offered leave it usable. The secrets of its entry are taken out
of all that comes from the server before anybody sees it (security.md T27).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Mapping

from .. import __version__
from ..errors import (
    Cancelled,
    ConcurrentUse,
    ConfigError,
    CredentialError,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerProtocolError,
    PeerRefused,
    SchemaError,
    UsageError,
    WireError,
    seconds_text,
)
from ..limits import Limits
from ..settings import McpServerSettings, subject_of
from ..system.faults import broken, refused
from ..system.peer import problem_of
from ..system.sandbox import Sandbox
from ..system.scope import Scope
from ..wire.excerpts import shorten
from ..wire.httpfields import Redactor
from ..wire.jsonrpc import Failure
from ..wire.jsontext import Json
from .catalogue import RemoteTool, Skipped, ToolCatalogue
from .connection import Connection, Transport
from .conversation import McpConversation
from .headers import mirror_arguments
from .results import McpResult, Unsupported, check_result, result_of
from .secrets import read_secrets
from .stdio import StdioTransport
from .versions import HEADER_MISMATCH

__all__ = ["McpClient"]

_CALL = "tools/call"
_LOST = "whether the call took effect is unknown"
_LOST_BEFORE = "whether the call that was lost then took effect is unknown"


class McpClient:
    """A connected server. Make one with :meth:`open`; it is a context manager.

    On stdio it belongs to the thread that is driving it (:class:`ConcurrentUse` otherwise); over HTTP
    several threads may call at once. Any thread may cancel the scope that was passed.
    """

    def __init__(
        self,
        entry: McpServerSettings,
        limits: Limits,
        connect: Callable[[Scope, str], Connection],
        redactor: Redactor | None,
    ) -> None:
        """Use :meth:`open`."""
        self._entry = entry
        self._peer = subject_of(entry)
        self._limits = limits
        self._connect = connect
        self._redactor = redactor
        self._connection: Connection | None = None
        self._catalogue = ToolCatalogue()
        self._version = ""
        self._server_info: Mapping[str, Json] = {}
        self._timings: Mapping[str, float] = {}
        self._notes: tuple[str, ...] = ()
        self._over: LatchError | None = None
        self._has_lost = False

    # -- life -------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        entry: McpServerSettings,
        *,
        workspace: Path | str,
        scope: Scope,
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
    ) -> McpClient:
        """Connect to the server of *entry*, list its tools and return the client.

        *sandbox* is shared by the peers of one configuration; None makes one from ``entry.sandbox``, and
        a server over HTTP starts nothing in it. *limits* None are those of *sandbox*. Raises
        :class:`CredentialError` for a variable that is not set and for credentials that were refused,
        :class:`SandboxUnavailable`, :class:`CommandUnusable`, :class:`ConfigError`, a :class:`PeerError`
        naming the stage, and what *scope* raises; then nothing is left running.
        """
        sandbox = sandbox or Sandbox(entry.sandbox, **({} if limits is None else {"limits": limits}))
        limits = limits or sandbox.limits
        _check_entry(entry, limits)
        known = sandbox.machine.environment
        secrets = read_secrets(entry, known)
        redactor = Redactor(secrets.values) if secrets.values else None
        if redactor is not None:
            # NOTE: an excerpt of what does not parse might begin or end in the middle of a secret.
            limits = replace(limits, json=replace(limits.json, max_quoted_chars=0))

        def connect(within: Scope, version: str) -> Connection:
            conversation = McpConversation(limits, client_version=__version__)
            transport: Transport
            if entry.transport == "stdio":
                transport = StdioTransport(
                    entry,
                    sandbox,
                    workspace=Path(workspace),
                    peer=subject_of(entry),
                    environment={**secrets.environment, **entry.env},
                    conversation=conversation,
                    redactor=redactor,
                )
            else:
                # NOTE: here, because a server on stdio must not pay for what speaks HTTP.
                from .streamable import StreamableTransport

                transport = StreamableTransport(
                    entry,
                    secrets=secrets.fields,
                    redactor=redactor,
                    environment=known,
                    peer=subject_of(entry),
                    conversation=conversation,
                    limits=limits,
                )
            connection = Connection(
                transport,
                conversation,
                server=entry.name,
                limits=limits,
                redact=None if redactor is None else redactor.json,
            )
            connection.open(within, version=version)
            return connection

        client = cls(entry, limits, connect, redactor)
        try:
            client._start(scope)
        except (LatchError, Cancelled) as error:
            client._redact(error)
            _hint(error, entry)
            raise
        return client

    def close(self, scope: Scope | None = None) -> None:
        """End the connection: stdin closed and a moment for the exit, or the session's DELETE.

        Idempotent, and silent for one that is over already. *scope* None is one that nobody cancels.
        Raises a :class:`PeerError` when the end of a process could not be proven, what *scope* raises on
        cancel once it is gone, and :class:`ConcurrentUse` while another thread's call goes on.
        """
        within = (scope or Scope.root()).within(None, peer=self._peer, stage="close")
        self._end(lambda transport: transport.close(within))

    def kill(self) -> None:
        """End it at once, without a word to it. Idempotent; raises as :meth:`close` does."""
        self._end(lambda transport: transport.kill())

    def _end(self, end: Callable[[Transport], None]) -> None:
        over = self.failure or UsageError(f"{self._peer} was closed")
        try:
            if self._connection is not None:
                end(self._connection.transport)
        except ConcurrentUse:
            raise
        except BaseException:
            self._over = over
            raise
        self._over = over

    def __enter__(self) -> McpClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        try:
            self.kill()
        except PeerError as unproven:
            if not isinstance(error, (LatchError, Cancelled)):
                raise
            error.after(str(unproven))

    # -- what is known ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of its configuration entry."""
        return self._entry.name

    @property
    def settings(self) -> McpServerSettings:
        """Its configuration entry."""
        return self._entry

    @property
    def protocol_version(self) -> str:
        """The revision that was agreed on, such as ``2025-11-25``."""
        return self._version

    @property
    def server_info(self) -> Mapping[str, Json]:
        """What the server says of itself; for people, never for decisions. Empty when it says nothing."""
        return MappingProxyType(self._redacted(dict(self._server_info)))

    @property
    def tools(self) -> tuple[RemoteTool, ...]:
        """Its tools as they were first listed, in the order of their catalogue names."""
        return self._catalogue.tools

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Tools that are not offered, and why."""
        return self._catalogue.skipped

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """What is worth telling its operator: what is not checked, what was unusual about its start."""
        noise = 0 if self._connection is None else self._connection.transport.noise_lines
        lines: tuple[str, ...] = ()
        if noise:
            counted = "1 line" if noise == 1 else f"{noise} lines"
            told = "was no message" if noise == 1 else "were no messages"
            lines = (f"{counted} on its standard output {told}",)
        return tuple(map(self._redacted, (*self._catalogue.diagnostics, *self._notes, *lines)))

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds each stage of its start took, in order."""
        return MappingProxyType(dict(self._timings))

    @property
    def stderr_tail(self) -> str:
        """The last of what a server on stdio wrote to its standard error, also after its end."""
        return "" if self._connection is None else self._connection.transport.stderr_tail

    @property
    def is_per_call(self) -> bool:
        """True for one that is started afresh for every call."""
        return self._entry.transport == "stdio" and self._entry.lifetime == "call"

    @property
    def failure(self) -> LatchError | None:
        """The error that ended it, or None while it is usable."""
        if self._over is not None or self._connection is None or self.is_per_call:
            return self._over
        return self._connection.transport.failure

    # -- calls ------------------------------------------------------------------------------------

    def call_tool(self, name: str, arguments: Mapping[str, Json], scope: Scope) -> McpResult:
        """Call the tool that the server calls *name* and return its result, ``is_error`` included.

        Raises :class:`UsageError` for an unknown name and for arguments that do not fit the tool's input
        schema or cannot be sent, :class:`PeerRefused` when the server answered with an error or asks for
        what is not offered (it stays usable), any other :class:`PeerError` when the exchange failed, and
        what *scope* raises; after these it is disconnected.
        """
        try:
            tool = self._find(name)
            if type(arguments) is not dict:
                arguments = _as_dict(arguments)
            self._check_usable()
            within = scope.within(self._entry.timeout_seconds, peer=self._peer, stage=_CALL, missing="answer")
            fields = self._check_arguments(tool, arguments, within)
            if self.is_per_call:
                return self._call_afresh(tool, arguments, fields, within)
            assert self._connection is not None, "open comes first"
            return self._exchange(self._connection, tool, arguments, fields, within)
        except (LatchError, Cancelled) as error:
            self._redact(error)
            raise

    def _call_afresh(
        self,
        tool: RemoteTool,
        arguments: Mapping[str, Json],
        fields: tuple[tuple[str, str], ...],
        scope: Scope,
    ) -> McpResult:
        """Start the server for this one call; a catalogue that is not the session's fails closed."""
        connection = self._connection = self._connect(scope, self._version)
        try:
            if (connection.version, connection.catalogue.digest) != (self._version, self._catalogue.digest):
                raise PeerProtocolError(
                    "its protocol version or its tools are not those of the start of the session; the call "
                    "was not sent",
                    hint="a new session takes the new ones",
                    peer=scope.peer,
                    stage="tools/list",
                )
            result = self._exchange(connection, tool, arguments, fields, scope)
        except BaseException:
            connection.transport.kill()
            raise
        try:
            connection.transport.close(scope)
        except (Cancelled, DeadlineMissed):
            # NOTE: it is gone all the same, and the call was answered.
            pass
        return result

    def _exchange(
        self,
        connection: Connection,
        tool: RemoteTool,
        arguments: Mapping[str, Json],
        fields: tuple[tuple[str, str], ...],
        scope: Scope,
    ) -> McpResult:
        call = connection.call_of(tool.name, arguments, fields)
        # NOTE: here, because what the transport raises says that something may have been sent.
        scope.check()
        try:
            answer = connection.transport.exchange(call, scope)
        except (ConcurrentUse, CredentialError):
            raise
        except BaseException as error:
            self._has_lost = True
            if isinstance(error, (PeerError, Cancelled)):
                error.after(_LOST)
            raise
        if isinstance(answer, Failure):
            raise self._refusal(answer, scope)
        try:
            result = check_result(
                answer.result,
                tool,
                version=self._version,
                quoted_chars=self._limits.mcp.max_quoted_chars,
                interrupt=scope.check,
            )
            # NOTE: only now, or what is taken out might make a sound answer look unsound.
            return result if self._redactor is None else result_of(self._redactor.json(result.raw))
        except Unsupported as error:
            raise PeerRefused(error.reason, data=answer.result, peer=scope.peer, stage=scope.stage) from None
        except WireError as error:
            connection.transport.kill()
            failure = broken(error, scope)
            if not self.is_per_call:
                self._over = failure
            raise failure from None

    def _find(self, name: str) -> RemoteTool:
        tool = self._catalogue.find(name)
        if tool is None:
            offered = ", ".join(one.name for one in self.tools) or "none"
            raise UsageError(
                f'{self._peer} has no tool "{name}"',
                hint=f"it has: {shorten(offered, self._limits.mcp.max_quoted_chars)}",
            )
        if tool.needs_task:
            raise PeerRefused(
                f'the tool "{name}" runs only as an asynchronous task, which Latch does not offer',
                peer=self._peer,
                stage=_CALL,
            )
        return tool

    def _check_arguments(
        self, tool: RemoteTool, arguments: Mapping[str, Json], scope: Scope
    ) -> tuple[tuple[str, str], ...]:
        """Return the header fields of the call; :class:`UsageError` for arguments that do not fit."""
        subject = f'{self._peer}: the arguments of "{tool.name}"'
        if tool.arguments is not None:
            try:
                issue = tool.arguments.first_issue(arguments, interrupt=scope.check)
            except SchemaError as error:
                raise UsageError(f"{subject} cannot be checked: {error.reason}") from None
            if issue is not None:
                raise UsageError(f"{subject} do not fit its inputSchema: {issue}")
        if not tool.mirrors:
            return ()
        return mirror_arguments(tool.mirrors, arguments, max_bytes=self._limits.mcp.max_mirrored_bytes)

    def _check_usable(self) -> None:
        failure = self.failure
        if isinstance(failure, UsageError):
            raise failure
        if failure is not None:
            gone = PeerGone(
                f"it was disconnected, because {failure.reason}",
                hint="a new session connects again; nothing is sent a second time",
                peer=self._peer,
                stage=_CALL,
            )
            if self._has_lost:
                gone.after(_LOST_BEFORE)
            raise gone

    def _refusal(self, answer: Failure, scope: Scope) -> PeerRefused:
        error = refused(self._redacted(answer.raw), scope, quoted_chars=self._limits.mcp.max_quoted_chars)
        if answer.error is not None and answer.error.code == HEADER_MISMATCH:
            error.after("its catalogue has changed since it was listed, and nothing was sent again")
            error.hint = "a new session lists its tools anew"
        return error

    # -- the machinery ----------------------------------------------------------------------------

    def _start(self, scope: Scope) -> None:
        within = scope.within(
            self._entry.timeout_seconds, peer=self._peer, stage="start", missing="connected server"
        )
        connection = self._connect(within, self._version)
        self._version = connection.version
        self._server_info = connection.server_info
        self._catalogue = connection.catalogue
        self._timings = connection.timings
        self._notes = tuple(connection.notes)
        self._connection = connection
        if self.is_per_call:
            connection.transport.close(within)

    def _redacted(self, value: Json) -> Json:
        return value if self._redactor is None else self._redactor.json(value)

    def _redact(self, error: LatchError | Cancelled) -> None:
        """Take the secrets of the entry out of what is about to be raised."""
        if self._redactor is not None:
            _take_out(self._redactor, error)


def _take_out(redactor: Redactor, error: LatchError | Cancelled) -> None:
    error.reason = redactor.text(error.reason)
    error.args = (error.reason,)
    error.aftermath[:] = map(redactor.text, error.aftermath)
    if isinstance(error, LatchError) and error.hint is not None:
        error.hint = redactor.text(error.hint)
    if isinstance(error, PeerRefused):
        error.data = redactor.json(error.data)
    if isinstance(error, PeerGone):
        error.stderr_tail = redactor.text(error.stderr_tail)


def _check_entry(entry: McpServerSettings, limits: Limits) -> None:
    """Refuse an entry, built in code, that cannot be used; a configuration is checked when it is loaded."""
    most = limits.mcp.max_timeout_seconds
    faults = {
        "transport": entry.transport not in ("stdio", "streamable_http")
        and 'must be "stdio" or "streamable_http"',
        "lifetime": entry.lifetime not in ("session", "call") and 'must be "session" or "call"',
        "timeout_seconds": not 0 < entry.timeout_seconds <= most and f"must be above 0 and at most {most}",
        "args": isinstance(entry.args, str) and "must be a sequence of strings",
        "command": entry.transport == "stdio" and not entry.command and "is missing",
        "url": entry.transport == "streamable_http" and not entry.url and "is missing",
    }
    for key, fault in faults.items():
        if fault:
            raise ConfigError([problem_of(entry, "mcp_servers", fault, key)])


def _hint(error: LatchError | Cancelled, entry: McpServerSettings) -> None:
    """Add what an operator may look at, where a start failed and nothing better is known."""
    if isinstance(error, ConfigError):
        error.peer = error.peer or subject_of(entry)
    if not isinstance(error, PeerError) or error.hint is not None:
        return
    if isinstance(error, DeadlineMissed):
        if error.own:
            error.hint = (
                f"timeout_seconds of the entry, {seconds_text(entry.timeout_seconds)}, bounds its whole start"
            )
    elif not isinstance(error, PeerGone):
        return
    elif entry.transport == "stdio":
        words = " ".join([entry.command, *entry.args])
        error.hint = f"latch sandbox -- {words} shows what it does by itself; words of args are handed on as they stand"
    else:
        error.hint = "look whether the server runs, and at url: its scheme, host and port"


def _as_dict(arguments: Mapping[str, Json]) -> dict[str, Json]:
    if not isinstance(arguments, Mapping):
        raise UsageError(f"the arguments of a tool must be a mapping, not {type(arguments).__name__}")
    return dict(arguments)
