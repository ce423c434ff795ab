"""JSON-RPC messages: what bodies mean, how ids compare, and what is written."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest

from latch.errors import WireError
from latch.limits import JsonLimits
from latch.wire import jsonrpc
from latch.wire.jsonrpc import Failure, Message, Notification, Request, Response, RpcFault
from tests.support import feeds

VECTORS = feeds.load_vectors("jsonrpc")
GOOD = [vector for vector in VECTORS if "message" in vector]
BAD = [vector for vector in VECTORS if "error" in vector]
ECHOED = [vector for vector in VECTORS if "answer" in vector]
LIMITS = JsonLimits()
KINDS = {"request": Request, "notification": Notification, "response": Response, "failure": Failure}

IDS = [None, True, False, 0, 1, 1.0, -1, 2**70, "", "1", "null"]
IDS += [[], [1], [1.0], [True], {}, {"a": 1}, {"a": True}]


def parse(body: str) -> Message:
    return jsonrpc.parse_message(body.encode("utf-8"), LIMITS)


def message_of(vector: dict[str, Any]) -> Message:
    fields = dict(vector["message"])
    kind = KINDS[fields.pop("kind")]
    if kind is Failure and fields["error"] is not None:
        fields["error"] = RpcFault(**fields["error"])
    return kind(**fields)


@pytest.mark.parametrize("vector", GOOD, ids=feeds.names_of(GOOD))
def test_a_body_means_its_message(vector: dict[str, Any]) -> None:
    # repr tells 1, 1.0 and True apart, which equality does not
    assert repr(parse(vector["body"])) == repr(message_of(vector))


@pytest.mark.parametrize("vector", BAD, ids=feeds.names_of(BAD))
def test_a_bad_body_is_refused_with_its_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(WireError) as caught:
        parse(vector["body"])
    assert vector["error"]["reason"] in caught.value.reason


@pytest.mark.parametrize("vector", ECHOED, ids=feeds.names_of(ECHOED))
def test_an_id_is_echoed_as_it_came(vector: dict[str, Any]) -> None:
    request = parse(vector["body"])
    assert isinstance(request, Request)
    assert jsonrpc.encode_result(request.id, None) == vector["answer"].encode("utf-8")


def test_the_limits_on_json_are_kept() -> None:
    body = b'{"jsonrpc":"2.0","method":"m","params":[[]]}'
    assert jsonrpc.parse_message(body, JsonLimits(max_depth=3)) == Notification("m", [[]])
    with pytest.raises(WireError) as caught:
        jsonrpc.parse_message(body, JsonLimits(max_depth=2))
    assert caught.value.limit == "max_depth"


@pytest.mark.parametrize("first, second", list(itertools.product(range(len(IDS)), repeat=2)))
def test_ids_are_the_same_only_as_the_same_json_value(first: int, second: int) -> None:
    copy = json.loads(json.dumps(IDS[second]))
    assert jsonrpc.same_id(IDS[first], copy) is (first == second)


def test_the_order_of_members_does_not_make_another_id() -> None:
    assert jsonrpc.same_id({"a": 1, "b": [2]}, {"b": [2], "a": 1})


@pytest.mark.parametrize(
    "body, text",
    [
        (
            jsonrpc.encode_request(1, "m", {"a": None}),
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":null}}',
        ),
        (jsonrpc.encode_request("x", "m", []), '{"jsonrpc":"2.0","id":"x","method":"m","params":[]}'),
        (jsonrpc.encode_request(None, "m"), '{"jsonrpc":"2.0","id":null,"method":"m"}'),
        (jsonrpc.encode_notification("ready", {}), '{"jsonrpc":"2.0","method":"ready","params":{}}'),
        (jsonrpc.encode_notification("exit"), '{"jsonrpc":"2.0","method":"exit"}'),
        (jsonrpc.encode_result(1.0, None), '{"jsonrpc":"2.0","id":1.0,"result":null}'),
        (jsonrpc.encode_result(2, {"ok": True}), '{"jsonrpc":"2.0","id":2,"result":{"ok":true}}'),
        (
            jsonrpc.encode_failure(3, jsonrpc.METHOD_NOT_FOUND, "no \u00fc"),
            '{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no \u00fc"}}',
        ),
        (
            jsonrpc.encode_failure(None, -32700, "bad", {"at": 0}),
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"bad","data":{"at":0}}}',
        ),
        (
            jsonrpc.encode_failure(4, -32603, "bad", False),
            '{"jsonrpc":"2.0","id":4,"error":{"code":-32603,"message":"bad","data":false}}',
        ),
    ],
)
def test_a_message_is_written_with_its_members_and_no_others(body: bytes, text: str) -> None:
    assert body == text.encode("utf-8")


def test_what_is_written_is_read_back() -> None:
    assert [
        parse(body.decode())
        for body in (
            jsonrpc.encode_request([1], "m", {"a": 1}),
            jsonrpc.encode_notification("m", {"a": 1}),
            jsonrpc.encode_result("x", {"a": 1}),
            jsonrpc.encode_failure(5, jsonrpc.INVALID_PARAMS, "why", [1]),
        )
    ] == [
        Request([1], "m", {"a": 1}),
        Notification("m", {"a": 1}),
        Response("x", {"a": 1}),
        Failure(5, RpcFault(-32602, "why", [1]), {"code": -32602, "message": "why", "data": [1]}),
    ]


def test_a_value_that_is_not_json_is_not_written() -> None:
    with pytest.raises(WireError):
        jsonrpc.encode_request(1, "m", {"a": {1: 2}})


def test_the_codes_are_those_of_the_protocol() -> None:
    codes = [jsonrpc.INVALID_REQUEST, jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS]
    assert codes == [-32600, -32601, -32602]


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse('{"jsonrpc":"2.0","method":"m"}').method = "x"  # type: ignore[union-attr, misc]
