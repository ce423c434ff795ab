"""A server over Streamable HTTP: every message its own POST, the answer JSON or an event stream.

What a status means depends on the message it answers: to the probe it is a verdict about the era, to all
others a failure. A JSON-RPC error in the body of a refused POST belongs to that POST, whatever its id. A
stream that ends before the answer is a lost call, but for one of a legacy server that named an event: it
is taken up again where it ended, which sends nothing a second time. Redirects are never followed.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping, Sequence

from ..errors import (
    Cancelled,
    CredentialError,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerProtocolError,
    PeerRefused,
    WireError,
)
from ..limits import Limits, McpLimits
from ..settings import McpServerSettings
from ..system.http import HttpClient, HttpReply
from ..system.faults import broken
from ..system.scope import Scope
from ..wire import jsonrpc
from ..wire.excerpts import quote
from ..wire.httpfields import media_type
from ..wire.jsonrpc import Failure, Response
from ..wire.jsontext import parse_json
from ..wire.sse import EventStreamReader, ServerEvent
from .conversation import Call, McpConversation
from .headers import encode_value
from .versions import Era

__all__ = ["StreamableTransport"]

_ACCEPT = ("Accept", "application/json, text/event-stream")
_POST_FIELDS = (("Content-Type", "application/json"), _ACCEPT)
_JSON, _EVENTS = "application/json", "text/event-stream"
# what servers call the body of an error
_MAY_BE_JSON = (_JSON, "text/plain", "")
# MCP 2025-06-18, "Protocol Version Header": the first revision that has it
_FIRST_WITH_VERSION_HEADER = "2025-06-18"
# MCP 2025-11-25, "Session Management": visible ASCII
_SESSION_ID = re.compile(r"[\x21-\x7e]+")
_NO_EVENT_TRANSPORT = (
    "the separate HTTP+SSE transport is not supported; configure the server's Streamable HTTP endpoint as url"
)


class StreamableTransport:
    """Carries the messages of one remote server. Several threads may have calls under way."""

    def __init__(
        self,
        entry: McpServerSettings,
        *,
        secrets: Sequence[tuple[str, str]],
        environment: Mapping[str, str],
        peer: str,
        conversation: McpConversation,
        limits: Limits,
    ) -> None:
        """*secrets* are the header fields (name, value) that only this server gets; *environment* is where
        the variables that name certificates are looked up."""
        self._client = HttpClient(
            entry.url, limits=limits.http, ca_bundle=entry.ca_bundle, environment=environment
        )
        self._secrets = tuple(secrets)
        self._peer = peer
        self._conversation = conversation
        self._limits = limits
        self._session: str | None = None
        self._probe_status: int | None = None
        self._over: LatchError | None = None
        self.noise_lines = 0

    @property
    def stderr_tail(self) -> str:
        """Always empty: a remote server has no standard error here."""
        return ""

    @property
    def failure(self) -> LatchError | None:
        """The error that ended it, or None while it is usable."""
        return self._over

    def start(self, scope: Scope) -> None:
        """Nothing: the first message opens the first connection."""

    def probe(self, call: Call, scope: Scope) -> Response | Failure | None:
        """Exchange the probe; None when the answer says nothing of a modern server, or none came in time.

        Raises what is no verdict about the era: refused credentials, a redirect, an outage.
        """
        try:
            with self._post(call.body, self._fields(call), scope) as reply:
                self._check_reachable(reply, scope)
                self._probe_status = reply.status
                if reply.status == 200:
                    return self._read_answer(reply, call, _Position(), scope)
                failure = self._read_failure(reply, scope)
                if failure is None and reply.status >= 500:
                    raise self._refused(reply, scope)
                return failure
        except (PeerProtocolError, WireError):
            return None
        except DeadlineMissed as error:
            if not error.own:
                raise
            return None

    def exchange(self, call: Call, scope: Scope) -> Response | Failure:
        """POST *call* and return its answer. Whatever is raised has ended the client's use of the server."""
        if self._over is not None:
            raise self._over
        try:
            return self._ask(call, scope)
        except WireError as error:
            raise self._end(broken(error, scope), scope) from None
        except DeadlineMissed as error:
            raise self._end(error, scope, self._conversation.cancelled(call, "no answer in time"))
        except LatchError as error:
            raise self._end(error, scope)
        except Cancelled:
            over = PeerError("its use was cancelled", peer=scope.peer, stage=scope.stage)
            self._end(over, scope, self._conversation.cancelled(call, "cancelled"))
            raise

    def tell(self, body: bytes, scope: Scope) -> None:
        """POST a notification; any 2xx is good, and its body is dropped."""
        with self._post(body, self._fields(None), scope) as reply:
            self._check_reachable(reply, scope)
            if not 200 <= reply.status < 300:
                raise self._refused(reply, scope)
            reply.read_all(scope, self._limits.mcp.max_message_bytes)

    def close(self, scope: Scope) -> None:
        """End the session of a legacy server with DELETE, bounded, and every connection. Never raises."""
        if self._over is None:
            self._end_session(scope.shielded(self._limits.mcp.farewell_seconds))
        self.kill()

    def kill(self) -> None:
        """Close every connection at once."""
        self._over = self._over or PeerError("was closed", peer=self._peer, stage="close")
        self._client.close()

    # -- one exchange -----------------------------------------------------------------------------

    def _ask(self, call: Call, scope: Scope) -> Response | Failure:
        position = _Position()
        with self._post(call.body, self._fields(call), scope) as reply:
            self._check_reachable(reply, scope)
            if reply.status == 404 and self._session is not None:
                self._session = None
                raise PeerGone("its session has ended", peer=scope.peer, stage=scope.stage)
            if reply.status == 200:
                if call.method == "initialize":
                    self._take_session(reply)
                answer = self._read_answer(reply, call, position, scope)
            else:
                answer = self._read_failure(reply, scope)
                if answer is None:
                    raise self._refused(reply, scope)
        while answer is None:
            answer = self._take_up(call, position, scope)
        return answer

    def _post(self, body: bytes, fields: list[tuple[str, str]], scope: Scope) -> HttpReply:
        return self._client.send("POST", [*_POST_FIELDS, *fields], body, scope)

    def _fields(self, call: Call | None) -> list[tuple[str, str]]:
        """Return the header fields of a message, where every POST gets them from: no path can skip one."""
        fields = list(self._secrets)
        version = self._conversation.version
        if call is not None and call.version is not None:
            fields += [("MCP-Protocol-Version", call.version), ("Mcp-Method", call.method)]
            if call.name is not None:
                fields.append(("Mcp-Name", encode_value(call.name)))
            fields += call.headers
        elif version is not None and version >= _FIRST_WITH_VERSION_HEADER:
            fields.append(("MCP-Protocol-Version", version))
        if self._session is not None:
            fields.append(("Mcp-Session-Id", self._session))
        return fields

    def _take_session(self, reply: HttpReply) -> None:
        session = reply.headers.get("Mcp-Session-Id")
        if session is not None and not _SESSION_ID.fullmatch(session):
            raise WireError("its session id is not visible ASCII")
        self._session = session

    def _check_reachable(self, reply: HttpReply, scope: Scope) -> None:
        """Raise what a status says of the way to the server, and not of the message."""
        if reply.status == 401:
            raise CredentialError(
                "the server wants a credential, or refused the one it got (HTTP status 401)",
                hint="set bearer_token_env, and the variable that it names",
                peer=scope.peer,
                stage=scope.stage,
            )
        if reply.status == 403:
            raise PeerRefused(
                "the server forbids it (HTTP status 403)",
                hint="look at the credential, and at the host name in url: some servers allow only localhost",
                peer=scope.peer,
                stage=scope.stage,
            )
        if 300 <= reply.status < 400:
            target = quote(reply.headers.get("Location") or "nowhere", self._limits.mcp.max_quoted_chars)
            raise PeerRefused(
                f"the server redirects to {target} (HTTP status {reply.status}), which is never followed",
                hint="if that is where the server is, make it the url",
                peer=scope.peer,
                stage=scope.stage,
            )

    def _refused(self, reply: HttpReply, scope: Scope) -> PeerRefused:
        missing = (404, 405)
        both = scope.stage == "initialize" and self._probe_status in missing and reply.status in missing
        return PeerRefused(
            f"the server answered with HTTP status {reply.status}",
            hint=_NO_EVENT_TRANSPORT if both else None,
            peer=scope.peer,
            stage=scope.stage,
        )

    def _read_failure(self, reply: HttpReply, scope: Scope) -> Failure | None:
        """Return the JSON-RPC error that a refused POST carries, whatever its id; None for any other body."""
        kind, most = media_type(reply.headers.get("Content-Type") or ""), self._limits.mcp.max_message_bytes
        if kind == _EVENTS:
            events = self._events_of(reply, _Position(), scope)
            failures = (self._failure_in(event.data) for event in events)
            return next((failure for failure in failures if failure is not None), None)
        return self._failure_in(reply.read_all(scope, most)) if kind in _MAY_BE_JSON else None

    def _failure_in(self, body: bytes) -> Failure | None:
        try:
            message = jsonrpc.message_of(parse_json(body, self._limits.json))
        except WireError:
            return None
        return message if isinstance(message, Failure) else None

    def _read_answer(
        self, reply: HttpReply, call: Call, position: _Position, scope: Scope
    ) -> Response | Failure | None:
        """Return the answer to *call*; None when its stream ended before and can be taken up again."""
        kind = media_type(reply.headers.get("Content-Type") or "")
        if kind == _EVENTS:
            return self._read_events(reply, call, position, scope)
        if kind != _JSON:
            shown = quote(kind, self._limits.mcp.max_quoted_chars)
            raise WireError(f"the Content-Type is {shown}, neither JSON nor an event stream")
        body = reply.read_all(scope, self._limits.mcp.max_message_bytes)
        heard = self._conversation.hear(body, call)
        self._send_replies(heard.replies, scope)
        if heard.answer is None:
            raise WireError("the body holds no answer to the request")
        return heard.answer

    # -- event streams ----------------------------------------------------------------------------

    def _read_events(
        self, reply: HttpReply, call: Call, position: _Position, scope: Scope
    ) -> Response | Failure | None:
        can_go_on = self._conversation.era is not Era.MODERN
        try:
            for event in self._events_of(reply, position, scope):
                answer = self._take_event(event, call, scope)
                if answer is not None:
                    return answer
        except PeerGone:
            if not (can_go_on and position.last_event_id):
                raise
        if can_go_on and position.last_event_id:
            return None
        raise PeerGone("its event stream ended before the answer", peer=scope.peer, stage=scope.stage)

    def _events_of(self, reply: HttpReply, position: _Position, scope: Scope) -> Iterator[ServerEvent]:
        reader = EventStreamReader(self._limits.event_stream)
        while chunk := reply.read(scope):
            position.add(len(chunk), self._limits.mcp.max_message_bytes)
            reader.feed(chunk)
            while (event := reader.next_event()) is not None:
                position.note(event)
                yield event

    def _take_event(self, event: ServerEvent, call: Call, scope: Scope) -> Response | Failure | None:
        if event.event == "endpoint":
            raise PeerProtocolError(
                "it speaks the separate HTTP+SSE transport",
                hint=_NO_EVENT_TRANSPORT,
                peer=scope.peer,
                stage=scope.stage,
            )
        if event.event != "message" or not event.data:
            return None
        heard = self._conversation.hear(event.data, call)
        self._send_replies(heard.replies, scope)
        return heard.answer

    def _take_up(self, call: Call, position: _Position, scope: Scope) -> Response | Failure | None:
        """Wait as long as the server asked for, then read on where the stream of *call* ended."""
        scope.pause(position.wait_seconds(self._limits.mcp))
        fields = [("Accept", _EVENTS), ("Last-Event-ID", position.last_event_id), *self._fields(None)]
        with self._client.send("GET", fields, None, scope) as reply:
            self._check_reachable(reply, scope)
            if reply.status != 200 or media_type(reply.headers.get("Content-Type") or "") != _EVENTS:
                raise PeerGone(
                    f"its event stream ended before the answer, and HTTP status {reply.status} came instead "
                    "of the rest",
                    peer=scope.peer,
                    stage=scope.stage,
                )
            return self._read_events(reply, call, position, scope)

    # -- beside the exchange ----------------------------------------------------------------------

    def _send_replies(self, replies: Sequence[bytes], scope: Scope) -> None:
        for body in replies:
            try:
                with self._post(body, self._fields(None), scope) as reply:
                    reply.read_all(scope, self._limits.mcp.max_message_bytes)
            except DeadlineMissed:
                raise
            except PeerError:
                # NOTE: a server that does not take an answer to its own question may still answer ours.
                self._conversation.ignored += 1

    def _end(self, error: LatchError, scope: Scope, notice: bytes | None = None) -> LatchError:
        """Give the server up because of *error*, which is returned. A legacy one gets *notice* of the call
        that was given up, and the end of its session; a modern one sees its stream closed."""
        self._over = error
        within = scope.shielded(self._limits.mcp.farewell_seconds)
        if notice is not None and self._conversation.era is Era.LEGACY:
            try:
                self.tell(notice, within)
            except LatchError:
                # NOTE: it is given up whether the server learns of it or not.
                pass
        self._end_session(within)
        self._client.close()
        return error

    def _end_session(self, scope: Scope) -> None:
        if self._session is None:
            return
        try:
            with self._client.send("DELETE", self._fields(None), None, scope):
                pass
        except LatchError:
            # NOTE: a server that cannot be told forgets its sessions by itself.
            pass
        self._session = None


class _Position:
    """How far the stream of one call was read, over all connections that carried it."""

    def __init__(self) -> None:
        self.last_event_id = ""
        self._retry_ms: int | None = None
        self._received_bytes = 0

    def add(self, count: int, most: int) -> None:
        """Count *count* bytes more; :class:`WireError` beyond *most* in all."""
        self._received_bytes += count
        if self._received_bytes > most:
            raise WireError(
                f"more than {most} bytes of events before the answer", limit="max_message_bytes", amount=most
            )

    def note(self, event: ServerEvent) -> None:
        """Keep what *event* says of going on after an end."""
        if event.id is not None:
            self.last_event_id = event.id
        if event.retry_ms is not None:
            self._retry_ms = event.retry_ms

    def wait_seconds(self, limits: McpLimits) -> float:
        """Return how long to wait before the next connection, in seconds."""
        if self._retry_ms is None:
            return limits.reconnect_seconds
        return max(self._retry_ms / 1000, limits.min_reconnect_seconds)
