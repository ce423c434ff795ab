"""One connection to one server: started, its revision negotiated, its tools listed, ended.

The same for both transports; what differs is behind :class:`Transport`. All that happens before the first
call has the one deadline of the server's entry, and each stage says its name when it is missed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator, Mapping, Protocol

from ..errors import LatchError, PeerProtocolError, PeerRefused, WireError, seconds_text
from ..limits import Limits
from ..system.faults import broken, refused
from ..system.scope import Scope
from ..wire.excerpts import quote, shorten
from ..wire.jsonrpc import Failure, Response
from ..wire.jsontext import Json
from .catalogue import CatalogueBuilder, ToolCatalogue
from .conversation import Call, McpConversation
from .results import Unsupported, check_kind
from .versions import LEGACY_VERSIONS, MODERN_VERSIONS, Era, Outcome, judge_probe

__all__ = ["Connection", "Transport"]


class Transport(Protocol):
    """What carries messages to one server: ``stdio.py`` or ``streamable.py``."""

    noise_lines: int
    # Whether header fields repeat what the annotations of a tool say.
    repeats_arguments: bool

    @property
    def failure(self) -> LatchError | None:
        """The error that ended it, or None while it is usable."""

    @property
    def stderr_tail(self) -> str:
        """The last of what the server wrote to its standard error."""

    def start(self, scope: Scope) -> None:
        """Start what there is to start, also again after a probe that got None."""

    def probe(self, call: Call, scope: Scope) -> Response | Failure | None:
        """Exchange the probe; None when nothing speaks for a modern server."""

    def exchange(self, call: Call, scope: Scope) -> Response | Failure:
        """Send *call* once and return its answer."""

    def tell(self, body: bytes, scope: Scope) -> None:
        """Send a notification."""

    def close(self, scope: Scope) -> None:
        """End it politely, bounded."""

    def kill(self) -> None:
        """End it at once."""


class Connection:
    """A negotiated connection and the catalogue that was listed over it."""

    def __init__(
        self,
        transport: Transport,
        conversation: McpConversation,
        *,
        server: str,
        limits: Limits,
        redact: Callable[[Json], Json] | None = None,
    ) -> None:
        """*server* is the name of the entry; *redact* takes its secrets out of what is listed, None where it
        has none. The transport becomes this object's, which ends it."""
        self.transport = transport
        self.catalogue = ToolCatalogue()
        self.server_info: Mapping[str, Json] = {}
        self.timings: dict[str, float] = {}
        self.notes: list[str] = []
        self._conversation = conversation
        self._server = server
        self._limits = limits
        self._redact = redact
        self._has_tools = True

    @property
    def version(self) -> str:
        """The protocol revision in use."""
        assert self._conversation.version is not None, "open comes first"
        return self._conversation.version

    def open(self, scope: Scope, *, version: str | None = None) -> None:
        """Start the server, agree on a revision and list its tools. Nothing is left of it when this raises.

        *version* is the one that was agreed on before with a server of the same entry: a legacy one is not
        probed again.
        """
        try:
            with self._timed("start", scope.within(None, stage="start", missing="started server")) as within:
                self.transport.start(within)
            if version in LEGACY_VERSIONS:
                self._initialize(scope)
            else:
                self._negotiate(scope)
            with self._timed(
                "tools/list", scope.within(None, stage="tools/list", missing="answer")
            ) as within:
                self._list_tools(within)
        except BaseException:
            self.transport.kill()
            raise

    def call_of(self, name: str, arguments: Mapping[str, Json], fields: tuple[tuple[str, str], ...]) -> Call:
        """Return the call of the tool *name*; *fields* are what HTTP repeats of *arguments*.

        Raises :class:`UsageError` when it cannot be sent at all.
        """
        params = {"name": name, "arguments": arguments}
        return self._conversation.request("tools/call", params, name=name, headers=fields)

    # -- negotiation ------------------------------------------------------------------------------

    def _negotiate(self, scope: Scope) -> None:
        version, is_first = MODERN_VERSIONS[0], True
        while True:
            call = self._conversation.discover(version)
            with self._timed("server/discover", self._probe_scope(scope)) as within:
                answer = self.transport.probe(call, within)
            verdict = judge_probe(answer, is_first=is_first)
            if verdict.outcome is not Outcome.AGAIN:
                break
            version, is_first = verdict.version, False
        if verdict.outcome is Outcome.UNUSABLE:
            data = self._redacted(answer.raw) if isinstance(answer, Failure) else None
            reason = shorten(self._redacted(verdict.reason), self._limits.mcp.max_quoted_chars)
            raise PeerRefused(reason, data=data, peer=scope.peer, stage="server/discover")
        if verdict.outcome is Outcome.MODERN:
            assert isinstance(answer, Response)
            self._conversation.agree(verdict.version)
            self._take_identity(answer.result)
            return
        if self.transport.failure is not None:
            self.notes.append(
                f"it was started a second time, because {verdict.reason}: waiting for that took "
                f"{seconds_text(self.timings['server/discover'])} of its start"
            )
            with self._timed(
                "restart", scope.within(None, stage="start", missing="started server")
            ) as within:
                self.transport.start(within)
        self._initialize(scope)

    def _probe_scope(self, scope: Scope) -> Scope:
        """Half of what is left of the start, ten seconds at most: the fallback needs time of its own."""
        left = scope.remaining()
        seconds = self._limits.mcp.probe_seconds
        return scope.within(
            seconds if left is None else min(seconds, left / 2), stage="server/discover", missing="answer"
        )

    def _initialize(self, scope: Scope) -> None:
        with self._timed("initialize", scope.within(None, stage="initialize", missing="answer")) as within:
            self._say_initialize(within)

    def _say_initialize(self, scope: Scope) -> None:
        answer = self.transport.exchange(self._conversation.initialize(), scope)
        if isinstance(answer, Failure):
            raise self._refusal(answer, scope)
        result = answer.result if isinstance(answer.result, dict) else {}
        version = result.get("protocolVersion")
        if version not in LEGACY_VERSIONS:
            theirs = "none"
            if isinstance(version, str):
                theirs = quote(self._redacted(version), self._limits.mcp.max_quoted_chars)
            ours = ", ".join((*MODERN_VERSIONS, *LEGACY_VERSIONS))
            raise PeerProtocolError(
                f"it answered with the protocol version {theirs}; ours are {ours}",
                peer=scope.peer,
                stage=scope.stage,
            )
        self._conversation.agree(version)
        self._take_identity(result)
        self.transport.tell(self._conversation.initialized(), scope)

    def _take_identity(self, result: Json) -> None:
        assert isinstance(result, dict)
        meta = result.get("_meta")
        known = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
        told = known if isinstance(known, dict) else result.get("serverInfo")
        self.server_info = told if isinstance(told, dict) else {}
        capabilities = result.get("capabilities")
        self._has_tools = isinstance(capabilities, dict) and isinstance(capabilities.get("tools"), dict)

    # -- the catalogue ----------------------------------------------------------------------------

    def _list_tools(self, scope: Scope) -> None:
        with_headers = self._conversation.era is Era.MODERN and self.transport.repeats_arguments
        builder = CatalogueBuilder(self._server, self._limits, with_headers=with_headers, redact=self._redact)
        if not self._has_tools:
            self.notes.append("it says that it has no tools")
            self.catalogue = builder.build()
            return
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            answer = self.transport.exchange(self._conversation.request("tools/list", params), scope)
            if isinstance(answer, Failure):
                raise self._refusal(answer, scope)
            try:
                check_kind(
                    answer.result, version=self.version, quoted_chars=self._limits.mcp.max_quoted_chars
                )
                cursor = builder.add(answer.result, check=scope.check)
            except WireError as error:
                raise broken(error, scope) from None
            except Unsupported as error:
                raise PeerRefused(error.reason, peer=scope.peer, stage=scope.stage) from None
            if cursor is None:
                break
        self.catalogue = builder.build()

    def _refusal(self, answer: Failure, scope: Scope) -> PeerRefused:
        most = self._limits.mcp.max_quoted_chars
        # NOTE: redacted before anything of it is cut off.
        return refused(self._redacted(answer.raw), scope, quoted_chars=most)

    def _redacted(self, value: Json) -> Json:
        return value if self._redact is None else self._redact(value)

    @contextmanager
    def _timed(self, stage: str, scope: Scope) -> Iterator[Scope]:
        began = scope.now()
        try:
            yield scope
        finally:
            self.timings[stage] = self.timings.get(stage, 0.0) + scope.now() - began
