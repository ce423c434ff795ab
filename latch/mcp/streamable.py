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
    UsageError,
    WireError,
)
from ..limits import Limits, McpLimits
from ..settings import McpServerSettings
from ..system.http import HttpClient, HttpReply
from ..system.faults import broken
from ..system.scope import CancelToken, Scope
from ..wire import jsonrpc
from ..wire.excerpts import quote_whole
from ..wire.httpfields import Redactor, check_field_value, media_type
from ..wire.jsonrpc import Failure, Response
from ..wire.jsontext import parse_json
from ..wire.sse import EventStreamReader, ServerEvent
from .conversation import Call, McpConversation
from .headers import encode_value
from .versions import Era, has_version_header

__all__ = ["StreamableTransport"]

_ACCEPT = ("Accept", "application/json, text/event-stream")
_POST_FIELDS = (("Content-Type", "application/json"), _ACCEPT)
_JSON, _EVENTS = "application/json", "text/event-stream"
# what servers call the body of an error
_MAY_BE_JSON = (_JSON, "text/plain", "")
# MCP 2025-11-25, "Session Management": visible ASCII
_SESSION_ID = re.compile(r"[\x21-\x7e]+")
_NO_EVENT_TRANSPORT = (
    "the separate HTTP+SSE transport is not supported; configure the server's Streamable HTTP endpoint as url"
)


class StreamableTransport:
    """Carries the messages of one remote server. Several threads may have calls under way."""

    repeats_arguments = True

    def __init__(
        self,
        entry: McpServerSettings,
        *,
        secrets: Sequence[tuple[str, str]],
        redactor: Redactor | None = None,
        environment: Mapping[str, str],
        peer: str,
        conversation: McpConversation,
        limits: Limits,
    ) -> None:
        """*secrets* are the header fields (name, value) that only this server gets; *redactor* takes them out
        of its words, None where it has none; *environment* is where
        the variables that name certificates are looked up."""
        self._client = HttpClient(
            entry.url, limits=limits.http, ca_bundle=entry.ca_bundle, environment=environment
        )
        self._secrets = tuple(secrets)
        self._redactor = redactor
        self._credential_hint = _credential_hint(entry)
        self._peer = peer
        self._conversation = conversation
        self._limits = limits
        self._session: str | None = None
        self._probe_status: int | None = None
        self._over: LatchError | None = None
        self._stop = CancelToken()
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
        except (PeerProtocolError, WireError, _StreamEnded):
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
            return self._ask(call, scope.also(self._stop))
        except BaseException as error:
            raise self._settle(error, call, scope) from error.__cause__

    def tell(self, body: bytes, scope: Scope) -> None:
        """POST a notification; any 2xx is good, and its body is dropped."""
        with self._post(body, self._fields(None), scope) as reply:
            self._check_reachable(reply, scope)
            if not 200 <= reply.status < 300:
                raise self._refused(reply, scope)
            self._drop_body(reply, scope)

    def close(self, scope: Scope) -> None:
        """End the session of a legacy server with DELETE, bounded, and every connection.

        Raises nothing but what *scope* raises on cancel, once all is closed.
        """
        self._shut(scope.within(self._limits.mcp.farewell_seconds))

    def kill(self) -> None:
        """The same at once: a call that is under way fails."""
        self._shut(Scope.root().shielded(self._limits.mcp.farewell_seconds))

    def _shut(self, scope: Scope) -> None:
        self._over = self._over or PeerError("was closed", peer=self._peer, stage="close")
        self._stop.cancel("the connection was closed")
        try:
            self._end_session(scope)
        finally:
            self._client.close()

    # -- failures ---------------------------------------------------------------------------------

    def _settle(self, error: BaseException, call: Call, scope: Scope) -> BaseException:
        """Give the server up because of *error*, and return what it means to the caller."""
        lost = PeerGone(
            "it was disconnected while the call was under way", peer=scope.peer, stage=scope.stage
        )
        if isinstance(error, Cancelled) and all(token.reason is None for token in scope.tokens):
            return lost
        if isinstance(error, UsageError):
            # NOTE: one that says that the client is closed: another call's failure closed it.
            return error if self._over is None else lost
        if isinstance(error, WireError):
            error = broken(error, scope)
        elif isinstance(error, OSError) and not isinstance(error, LatchError):
            error = PeerGone(str(error), peer=scope.peer, stage=scope.stage)
        if isinstance(error, LatchError):
            over, why = error, "no answer in time" if isinstance(error, DeadlineMissed) else None
        else:
            why = "cancelled" if isinstance(error, Cancelled) else f"failed ({type(error).__name__})"
            over = PeerError(f"its use was {why}", peer=scope.peer, stage=scope.stage)
        self._end(over, scope, None if why is None else self._conversation.cancelled(call, why))
        return error

    def _end(self, error: LatchError, scope: Scope, notice: bytes | None) -> None:
        """Disconnect because of *error*. A legacy server gets *notice* of the call that was given up, and the
        end of its session; a modern one sees its stream closed."""
        self._over = self._over or error
        self._stop.cancel("another call failed")
        within = scope.shielded(self._limits.mcp.farewell_seconds)
        if notice is not None and self._conversation.era is Era.LEGACY:
            try:
                self.tell(notice, within)
            except LatchError:
                # NOTE: it is given up whether the server learns of it or not.
                pass
        self._end_session(within)
        self._client.close()

    def _end_session(self, scope: Scope) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        fields = [*self._fields(None), ("Mcp-Session-Id", session)]
        try:
            with self._send("DELETE", fields, None, scope):
                pass
        except LatchError:
            # NOTE: a server that cannot be told forgets its sessions by itself.
            pass

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
        return self._send("POST", [*_POST_FIELDS, *fields], body, scope)

    def _send(
        self, method: str, fields: list[tuple[str, str]], body: bytes | None, scope: Scope
    ) -> HttpReply:
        try:
            return self._client.send(method, fields, body, scope)
        except OSError as error:
            if isinstance(error, LatchError):
                # NOTE: a missed deadline is one as well, to the language.
                raise
            hint = "free what is missing (descriptors, memory), then connect again"
            raise PeerGone(
                f"cannot be reached from here: {error.strerror}",
                hint=hint,
                peer=scope.peer,
                stage=scope.stage,
            ) from error

    def _fields(self, call: Call | None) -> list[tuple[str, str]]:
        """Return the header fields of a message, where every POST gets them from: no path can skip one."""
        fields = list(self._secrets)
        version = self._conversation.version
        if call is not None and call.version is not None:
            fields += [("MCP-Protocol-Version", call.version), ("Mcp-Method", call.method)]
            if call.name is not None:
                fields.append(("Mcp-Name", encode_value(call.name)))
            fields += call.headers
        elif version is not None and has_version_header(version):
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
                hint=self._credential_hint,
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
            # NOTE: without its query, in which some keep a key.
            location = (reply.headers.get("Location") or "nowhere").partition("?")[0]
            shown = location if self._redactor is None else self._redactor.text(location)
            target = quote_whole(shown, self._limits.mcp.max_quoted_chars)
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
            shown = quote_whole(kind, self._limits.mcp.max_quoted_chars)
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
        raise _StreamEnded("its event stream ended before the answer", peer=scope.peer, stage=scope.stage)

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
        with self._send("GET", fields, None, scope) as reply:
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

    def _drop_body(self, reply: HttpReply, scope: Scope) -> None:
        # NOTE: a stream may be kept open for ever; its connection is closed with it.
        if media_type(reply.headers.get("Content-Type") or "") != _EVENTS:
            reply.read_all(scope, self._limits.mcp.max_message_bytes)

    def _send_replies(self, replies: Sequence[bytes], scope: Scope) -> None:
        for body in replies:
            try:
                with self._post(body, self._fields(None), scope) as reply:
                    self._drop_body(reply, scope)
            except DeadlineMissed:
                raise
            except PeerError:
                # NOTE: a server that does not take an answer to its own question may still answer ours.
                self._conversation.ignored += 1


class _StreamEnded(PeerGone):
    """A stream that came to its end without the answer, as against one that was cut."""


class _Position:
    """How far the stream of one call was read, over all connections that carried it."""

    def __init__(self) -> None:
        # As a header field has it; empty where the stream cannot be taken up.
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
            self.last_event_id = _field_of(event.id)
        if event.retry_ms is not None:
            self._retry_ms = event.retry_ms

    def wait_seconds(self, limits: McpLimits) -> float:
        """Return how long to wait before the next connection, in seconds."""
        if self._retry_ms is None:
            return limits.reconnect_seconds
        return max(self._retry_ms / 1000, limits.min_reconnect_seconds)


def _field_of(event_id: str) -> str:
    """Return *event_id* as UTF-8 in a header field (WHATWG HTML, "Last-Event-ID"), or "" where none can hold it."""
    value = event_id.encode("utf-8").decode("latin-1")
    try:
        return check_field_value(value, name="Last-Event-ID")
    except WireError:
        return ""


def _credential_hint(entry: McpServerSettings) -> str:
    variables = [*entry.headers_from_env.values()]
    if entry.bearer_token_env is not None:
        variables.append(entry.bearer_token_env)
    if not variables:
        return "set bearer_token_env, or headers_from_env, and the variable that it names"
    return f"look at the value of {', '.join(variables)}, which was sent"
