"""Exchanges with one HTTP service: one request, one answer, under one scope.

The calling thread does all the sending and receiving and waits on its scope alone, so an exchange ends at
its deadline or when it is cancelled, whatever the peer does: takes nothing, says nothing, or drips. What
fails leaves no connection behind.

What is never done: a request is not sent again once a byte of it was written; redirects are answers; there
are no cookies, no proxies, no stored passwords, no coding but identity. An error names peer and stage by its
scope and quotes neither a header's value nor the query.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Mapping, Sequence

from ..errors import PeerGone, PeerLimit, UsageError, WireError
from ..limits import HttpLimits
from ..wire.httpfields import Fields, check_field_name, check_field_value, hop_by_hop_names, is_token
from ..wire.httpreply import ReplyHead, ReplyReader
from ..wire.httpurl import HttpUrl, parse_url
from .faults import broken
from .httpsocket import SYSTEM_RESOLVER, Channel, Resolver, open_channel
from .scope import Scope
from .tls import tls_context

__all__ = ["HttpClient", "HttpReply"]

# What the client says itself, beside the fields of a connection.
_OURS = hop_by_hop_names(()) | {"accept-encoding", "content-length", "expect", "host"}
# RFC 9110, "Content-Length": methods whose request announces its body even when there is none
_WITH_BODY = ("PATCH", "POST", "PUT")
# A body up to this length goes out in one piece with its head: copying it is cheaper than a second call.
_SENT_TOGETHER_BYTES = 65536


class HttpClient:
    """A client of the service at *url*.

    Any number of threads may have an exchange in progress; finished ones leave their connection for the
    next. *ca_bundle* and the variables of *environment* say whom TLS trusts (see ``tls``); *resolver* is
    the seam for tests. Raises :class:`UsageError` for a URL that is not accepted, :class:`ConfigError` and
    :class:`MissingDependency` for authorities.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: HttpLimits,
        ca_bundle: Path | None = None,
        environment: Mapping[str, str] | None = None,
        resolver: Resolver = SYSTEM_RESOLVER,
    ) -> None:
        try:
            self._url = parse_url(url)
        except WireError as error:
            raise UsageError(error.reason) from None
        secure = self._url.scheme == "https"
        self._context = tls_context(ca_bundle=ca_bundle, environment=environment or {}) if secure else None
        self._limits = limits
        self._resolver = resolver
        # Connections with the time at which something last came from them.
        self._idle: list[tuple[Channel, float]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"HttpClient({self._url})"

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self, method: str, headers: Sequence[tuple[str, str]], body: bytes | None, scope: Scope
    ) -> HttpReply:
        """Send one request and return its answer as soon as its head is there; the caller closes it.

        Host, length, coding and connection are ours to say; *headers* are the rest, sent as they are.
        Raises :class:`UsageError` for a header that cannot be sent and for a closed client,
        :class:`PeerGone` when there is no connection or it is lost, :class:`PeerProtocolError` and
        :class:`PeerLimit` for an answer that is not accepted, and what *scope* raises.
        """
        head = _request_head(self._url, method, headers, body)
        exchange = _Exchange(self._open(scope), ReplyReader(method, self._limits), self._limits)
        try:
            exchange.send(head, body or b"", scope)
            answer = exchange.read_head(scope)
        except WireError as error:
            exchange.channel.close()
            raise broken(error, scope) from None
        except BaseException:
            exchange.channel.close()
            raise
        return HttpReply(self, exchange, answer)

    def close(self) -> None:
        """Close the idle connections; those in use follow when their answers are closed. Idempotent."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for channel, _ in idle:
            channel.close()

    @property
    def url(self) -> HttpUrl:
        """The address of the service."""
        return self._url

    def _open(self, scope: Scope) -> Channel:
        if self._is_closed:
            raise UsageError("the HTTP client was closed")
        scope.check()
        while kept := self._take_idle():
            channel, heard = kept
            if scope.now() - heard < self._limits.idle_seconds and channel.is_idle():
                return channel
            channel.close()
        return open_channel(
            self._url, context=self._context, resolver=self._resolver, limits=self._limits, scope=scope
        )

    def _take_idle(self) -> tuple[Channel, float] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _settle(self, exchange: _Exchange) -> None:
        """Keep the connection of *exchange* when it is good for another one, and close it otherwise."""
        with self._lock:
            keep = exchange.is_reusable and not self._is_closed
            if keep and len(self._idle) < self._limits.max_idle_connections:
                self._idle.append((exchange.channel, exchange.heard))
                return
        exchange.channel.close()


class HttpReply:
    """The answer to one request; it belongs to the thread that sent it. A context manager."""

    def __init__(self, client: HttpClient, exchange: _Exchange, head: ReplyHead) -> None:
        self._client = client
        self._exchange = exchange
        self._head = head
        self._is_closed = False
        self._is_read = False

    def __repr__(self) -> str:
        return f"HttpReply({self.status})"

    def __enter__(self) -> HttpReply:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def status(self) -> int:
        """The status, from 200 on."""
        return self._head.status

    @property
    def reason(self) -> str:
        """What the peer says of the status; may be empty."""
        return self._head.reason

    @property
    def headers(self) -> Fields:
        """The header fields."""
        return self._head.fields

    @property
    def url(self) -> str:
        """The address that was asked, without its query."""
        return str(self._client.url)

    def read(self, scope: Scope) -> bytes:
        """Return what there is of the body, at least a byte, as soon as it is there; ``b""`` at its end.

        A body that was cut is a :class:`PeerGone`, never an end; one that is framed wrongly a
        :class:`PeerProtocolError`. After either, as after what *scope* raises, the answer is closed.
        """
        if self._is_read:
            return b""
        if self._is_closed:
            raise UsageError("the answer was closed before its end")
        try:
            piece = self._exchange.read_piece(scope)
        except WireError as error:
            self._give_up()
            raise broken(error, scope) from None
        except BaseException:
            self._give_up()
            raise
        if not piece:
            self._is_read = True
            self.close()
        return piece

    def read_all(self, scope: Scope, max_bytes: int) -> bytes:
        """Return the whole body that is left; :class:`PeerLimit` when it is over *max_bytes*."""
        if (self._head.length or 0) > max_bytes:
            raise self._too_long(scope, max_bytes)
        pieces, size = [], 0
        while piece := self.read(scope):
            size += len(piece)
            if size > max_bytes:
                raise self._too_long(scope, max_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Keep the connection for the next exchange when the body was read to its end, else close it.
        Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._client._settle(self._exchange)

    def _give_up(self) -> None:
        self._is_closed = True
        self._exchange.channel.close()

    def _too_long(self, scope: Scope, max_bytes: int) -> PeerLimit:
        self._give_up()
        return PeerLimit(
            f"the body of the answer is over {max_bytes} bytes",
            limit="max_body_bytes",
            amount=max_bytes,
            peer=scope.peer,
            stage=scope.stage,
        )


class _Exchange:
    """One request and its answer on a channel, which it does not close."""

    __slots__ = ("_is_sent", "_limits", "_reader", "channel", "heard")

    def __init__(self, channel: Channel, reader: ReplyReader, limits: HttpLimits) -> None:
        self.channel = channel
        self.heard = 0.0
        self._reader = reader
        self._limits = limits
        self._is_sent = False

    @property
    def is_reusable(self) -> bool:
        return self._is_sent and self._reader.is_reusable

    def send(self, head: bytes, body: bytes, scope: Scope) -> None:
        """Send the request; stop early when the peer takes no more of it, whose answer then says why."""
        parts = [head + body] if len(body) <= _SENT_TOGETHER_BYTES else [head, body]
        self._is_sent = all(self._send_part(memoryview(part), scope) for part in parts)

    def _send_part(self, rest: memoryview, scope: Scope) -> bool:
        while rest:
            scope.check()
            try:
                sent = self.channel.send(rest)
            except OSError:
                return False
            if sent:
                rest = rest[sent:]
            elif self._is_refused(scope):
                return False
        return True

    def _is_refused(self, scope: Scope) -> bool:
        """Wait until more may be sent; return whether the peer has answered with a failure by then."""
        answer = self._reader.next_head()
        if answer is not None:
            self.channel.wait_writable(scope)
        elif self.channel.wait_sent(scope):
            self._receive(scope)
            answer = self._reader.next_head()
        return answer is not None and answer.status >= 400

    def read_head(self, scope: Scope) -> ReplyHead:
        while True:
            head = self._reader.next_head()
            if head is not None:
                return head
            self._fill(scope)

    def read_piece(self, scope: Scope) -> bytes:
        while True:
            piece = self._reader.next_piece()
            if piece is not None:
                return piece
            self._fill(scope)

    def _fill(self, scope: Scope) -> None:
        scope.check()
        while not self._receive(scope):
            self.channel.wait_received(scope)

    def _receive(self, scope: Scope) -> bool:
        """Take in what is there; return whether that was anything, the end of the stream included."""
        try:
            data = self.channel.receive(self._limits.read_bytes)
        except OSError as error:
            told = self._reader.end() or "closed the connection before the end of its answer"
            reason = f"{told}: {(error.strerror or 'lost').lower()}"
            raise PeerGone(reason, peer=scope.peer, stage=scope.stage) from error
        if data is None:
            return False
        self.heard = scope.now()
        if data:
            self._reader.feed(data)
        else:
            cut = self._reader.end()
            if cut is not None:
                raise PeerGone(cut, peer=scope.peer, stage=scope.stage)
        return True


def _request_head(url: HttpUrl, method: str, headers: Sequence[tuple[str, str]], body: bytes | None) -> bytes:
    if not is_token(method):
        raise UsageError("the method of a request must be a token")
    lines = [f"{method} {url.target} HTTP/1.1", f"Host: {url.authority}", "Accept-Encoding: identity"]
    if body is not None or method in _WITH_BODY:
        lines.append(f"Content-Length: {len(body or b'')}")
    try:
        for name, value in headers:
            if check_field_name(name).lower() in _OURS:
                raise UsageError(f"the header {name} is the client's own")
            lines.append(f"{name}: {check_field_value(value, name=name)}")
    except WireError as error:
        raise UsageError(error.reason) from None
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")
