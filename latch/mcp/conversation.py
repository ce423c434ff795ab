"""What is said to a server and what it may say, in each era. Bytes in, bytes out: no I/O.

::

    call = conversation.request("tools/list", {})        # bytes to send: call.body
    heard = conversation.hear(body, call)                 # each message that came
    heard.answer                                          # the answer to the call, once it is there
    heard.replies                                         # bodies to send back

=================================  ==========================  =============================================
what a server sends                modern                      legacy, and before its era is known
=================================  ==========================  =============================================
the answer to the call             handed on                   handed on
an answer to something else        counted                     counted
``ping``                           breaks the protocol         answered
any other request                  breaks the protocol         answered with -32601
a notification                     counted                     counted
a batch                            breaks the protocol         taken apart where 2025-03-26 was agreed on
=================================  ==========================  =============================================

A line that is no message at all, such as a banner, is for :func:`is_noise` to tell apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from typing import Mapping

from ..errors import UsageError, WireError
from ..limits import Limits
from ..wire import jsonrpc
from ..wire.excerpts import quote_whole
from ..wire.jsonrpc import Failure, Message, Request, Response
from ..wire.jsontext import Json, parse_json
from .versions import LEGACY_VERSIONS, Era, era_of, has_batches

__all__ = ["Call", "Heard", "McpConversation", "is_noise"]

_CLIENT_NAME = "latch"
_PREFIX = "io.modelcontextprotocol/"
_OPENS_MESSAGE = re.compile(rb"\s*(?:\[\s*)?\{")


@dataclass(frozen=True)
class Call:
    """One request of ours. ``body`` is what is sent, ``version`` the modern version it is said in, or None;
    ``name`` is the ``params.name`` in it, ``headers`` what HTTP repeats of its arguments as (field, value).
    """

    id: int
    method: str
    body: bytes
    version: str | None = None
    name: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Heard:
    """What one message meant: the answer to the call or None, and what to send back."""

    answer: Response | Failure | None = None
    replies: tuple[bytes, ...] = ()


_NOTHING = Heard()


def is_noise(line: bytes) -> bool:
    """Say whether a *line* of stdout was never meant as a message: a banner, a log line, an empty line."""
    # NOTE: a log line may begin with a bracket and quote a message, so what opens must be an object or a batch.
    return _OPENS_MESSAGE.match(line) is None or b'"jsonrpc"' not in line


class McpConversation:
    """One conversation. ``version`` is the revision agreed on, None before; ``ignored`` counts messages
    that changed nothing. Raises :class:`WireError` for what breaks the protocol."""

    def __init__(self, limits: Limits, *, client_version: str) -> None:
        """*client_version* is the product's."""
        self.version: str | None = None
        self.ignored = 0
        self._limits = limits
        self._client: dict[str, Json] = {"name": _CLIENT_NAME, "version": client_version}
        self._meta: dict[str, Json] | None = None
        self._ids = count(1)

    @property
    def era(self) -> Era | None:
        """The era of the agreed version, or None before there is one."""
        return None if self.version is None else era_of(self.version)

    def agree(self, version: str) -> None:
        """Go on in *version*, one of ours."""
        self.version = version
        self._meta = self._meta_of(version) if era_of(version) is Era.MODERN else None

    # -- what we say ------------------------------------------------------------------------------

    def discover(self, version: str) -> Call:
        """Return the probe in the modern *version*."""
        return self._call("server/discover", {"_meta": self._meta_of(version)}, version)

    def initialize(self) -> Call:
        """Return the first request to a legacy server."""
        params = {
            "protocolVersion": LEGACY_VERSIONS[0],
            "capabilities": {},
            "clientInfo": self._client,
        }
        return self._call("initialize", params)

    def initialized(self) -> bytes:
        """Return the notification that follows the answer to ``initialize``."""
        return jsonrpc.encode_notification("notifications/initialized")

    def request(
        self,
        method: str,
        params: Mapping[str, Json],
        *,
        name: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Call:
        """Return a request in the agreed version; *name* and *headers* as in :class:`Call`.

        Raises :class:`UsageError` when it cannot be encoded or is too long: nothing is sent then.
        """
        modern = self.version if self._meta is not None else None
        said = {**params, "_meta": self._meta} if modern else params
        try:
            call = self._call(method, said, modern, name=name, headers=headers)
        except WireError as error:
            raise UsageError(f"the arguments cannot be sent: {error.reason}") from None
        most = self._limits.mcp.max_message_bytes
        if len(call.body) > most:
            raise UsageError(f"the request has {len(call.body)} bytes, {most} are allowed")
        return call

    def cancelled(self, call: Call, reason: str) -> bytes | None:
        """Return the notification that *call* was given up, or None for what is never cancelled."""
        if call.method == "initialize":
            return None
        return jsonrpc.encode_notification(
            "notifications/cancelled", {"requestId": call.id, "reason": reason}
        )

    def _call(
        self,
        method: str,
        params: Mapping[str, Json],
        version: str | None = None,
        *,
        name: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Call:
        # NOTE: one step, because several threads may call over HTTP.
        number = next(self._ids)
        return Call(number, method, jsonrpc.encode_request(number, method, params), version, name, headers)

    def _meta_of(self, version: str) -> dict[str, Json]:
        return {
            _PREFIX + "protocolVersion": version,
            _PREFIX + "clientCapabilities": {},
            _PREFIX + "clientInfo": self._client,
        }

    # -- what we hear -----------------------------------------------------------------------------

    def hear(self, body: bytes, call: Call | None) -> Heard:
        """Return what one message means while *call* waits for its answer, None while nothing does."""
        value = parse_json(body, self._limits.json)
        if type(value) is not list:
            return self._take(jsonrpc.message_of(value), call)
        if not has_batches(self.version):
            raise WireError("a batch came, which this version of the protocol does not have")
        answer: Response | Failure | None = None
        replies: list[bytes] = []
        for item in value:
            heard = self._take(jsonrpc.message_of(item), call)
            answer = answer or heard.answer
            replies += heard.replies
        return Heard(answer, tuple(replies))

    def _take(self, message: Message, call: Call | None) -> Heard:
        if isinstance(message, (Response, Failure)):
            if call is not None and _answers(message, call):
                return Heard(message)
        elif isinstance(message, Request):
            return self._answer(message)
        self.ignored += 1
        return _NOTHING

    def _answer(self, message: Request) -> Heard:
        if self.era is Era.MODERN:
            shown = quote_whole(message.method, self._limits.mcp.max_quoted_chars)
            raise WireError(f"it sent the request {shown}, which a {self.version} server may not")
        if message.method == "ping":
            return Heard(replies=(jsonrpc.encode_result(message.id, {}),))
        failure = jsonrpc.encode_failure(message.id, jsonrpc.METHOD_NOT_FOUND, "not offered by this client")
        return Heard(replies=(failure,))


def _answers(message: Response | Failure, call: Call) -> bool:
    # NOTE: some servers send our number back as text; one that could not read the request has no id to send.
    if type(message.id) is int:
        return message.id == call.id
    if isinstance(message, Failure) and message.id is None:
        return True
    return message.id == str(call.id)
