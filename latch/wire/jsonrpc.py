"""JSON-RPC 2.0 messages as values, one message to a body.

What a body is follows from its members and never from its id, because the ids of the two directions are
separate spaces and a peer may pick any:

=======================================  ==============
members                                  value
=======================================  ==============
``method`` and ``id``                    `Request`
``method`` alone                         `Notification`
``error`` that is not null               `Failure`
``result``, or ``error`` that is null    `Response`
=======================================  ==============

An id may be any JSON value, null included, and is kept exactly. A null ``result`` is a result. A null
``method`` counts as absent; a failure may lack an id, because its sender may not have been able to read
one. ``jsonrpc`` must be ``"2.0"``: every peer we know sends it, and no other version is defined. Unknown
members are ignored. Batches are refused.

No order of messages is known here and no method; ``params`` is handed on as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..errors import WireError
from ..limits import JsonLimits
from .jsontext import Json, canonical_json, encode_json, parse_json

__all__ = [
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "Failure",
    "Message",
    "Notification",
    "Request",
    "Response",
    "RpcFault",
    "encode_failure",
    "encode_notification",
    "encode_request",
    "encode_result",
    "message_of",
    "parse_message",
    "same_id",
]

# JSON-RPC 2.0, section 5.1
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

_KINDS = {list: "a batch", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


@dataclass(frozen=True)
class Request:
    """A call that wants an answer with the same id. ``params`` is None when absent."""

    id: Json
    method: str
    params: Json = None


@dataclass(frozen=True)
class Notification:
    """A call that wants no answer. ``params`` is None when absent."""

    method: str
    params: Json = None


@dataclass(frozen=True)
class Response:
    """The answer to a request that worked."""

    id: Json
    result: Json


@dataclass(frozen=True)
class RpcFault:
    """An error object as the protocol defines it. ``data`` is None when absent."""

    code: int
    message: str
    data: Json = None


@dataclass(frozen=True)
class Failure:
    """The answer to a request that failed. ``raw`` is the ``error`` member as sent, ``error`` the same
    as a value, or None when the peer sent something else than the protocol defines. ``id`` is None also
    when absent."""

    id: Json
    error: RpcFault | None
    raw: Json


Message = Union[Request, Notification, Response, Failure]


def parse_message(body: bytes, limits: JsonLimits) -> Message:
    """Return the message in *body*; :class:`WireError` when it is not exactly one."""
    return message_of(parse_json(body, limits))


def message_of(members: Json) -> Message:
    """Return the message that a parsed body or an item of a batch is; :class:`WireError` when it is none."""
    if type(members) is not dict:
        raise WireError(f"expected one message object, got {_KINDS.get(type(members), 'null')}")
    if members.get("jsonrpc") != "2.0":
        raise WireError('the member jsonrpc must be "2.0"')
    method = members.get("method")
    if method is None:
        return _parse_answer(members)
    if type(method) is not str:
        raise WireError("the member method must be a string")
    if members.get("result") is not None or members.get("error") is not None:
        raise WireError("a message with a method has a result or an error")
    if "id" in members:
        return Request(members["id"], method, members.get("params"))
    return Notification(method, members.get("params"))


def same_id(first: Json, second: Json) -> bool:
    """Tell whether two ids are the same JSON value: 1, 1.0, true and "1" are four different ones."""
    if isinstance(first, (list, dict)):
        return canonical_json(first) == canonical_json(second)
    return type(first) is type(second) and bool(first == second)


def encode_request(id: Json, method: str, params: Json = None) -> bytes:
    """Return the body of a request; ``params`` is left out when it is None."""
    if params is None:
        return encode_json({"jsonrpc": "2.0", "id": id, "method": method})
    return encode_json({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: Json = None) -> bytes:
    """Return the body of a notification; ``params`` is left out when it is None."""
    if params is None:
        return encode_json({"jsonrpc": "2.0", "method": method})
    return encode_json({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(id: Json, result: Json) -> bytes:
    """Return the body of an answer that worked; a None ``result`` is written as null."""
    return encode_json({"jsonrpc": "2.0", "id": id, "result": result})


def encode_failure(id: Json, code: int, message: str, data: Json = None) -> bytes:
    """Return the body of an answer that failed; ``data`` is left out when it is None."""
    error: dict[str, Json] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode_json({"jsonrpc": "2.0", "id": id, "error": error})


def _parse_answer(members: dict[str, Json]) -> Message:
    error = members.get("error")
    if error is not None:
        return Failure(members.get("id"), _fault_of(error), error)
    if "result" not in members and "error" not in members:
        raise WireError("a message has none of method, result and error")
    if "id" not in members:
        raise WireError("a result has no id")
    return Response(members["id"], members.get("result"))


def _fault_of(error: Json) -> RpcFault | None:
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        return None
    return RpcFault(error["code"], error["message"], error.get("data"))
