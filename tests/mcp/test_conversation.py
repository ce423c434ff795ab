"""mcp/conversation.py: what is said in each era, and what each message that comes means."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from latch.errors import UsageError, WireError
from latch.limits import DEFAULT
from latch.mcp.conversation import Call, McpConversation, is_noise
from latch.mcp.versions import Era
from latch.wire.jsonrpc import Failure, Response

Json = Any

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PREFIX = "io.modelcontextprotocol/"
META = {
    PREFIX + "protocolVersion": MODERN,
    PREFIX + "clientCapabilities": {},
    PREFIX + "clientInfo": {"name": "latch", "version": "9.9"},
}


def conversation(version: str | None = None, **limits: Any) -> McpConversation:
    """A conversation in *version*, before there is one when None; *limits* are those of MCP."""
    told = McpConversation(replace(DEFAULT, mcp=replace(DEFAULT.mcp, **limits)), client_version="9.9")
    if version is not None:
        told.agree(version)
    return told


def encoded(**message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def heard_back(replies: tuple[bytes, ...]) -> list[Json]:
    return [json.loads(reply) for reply in replies]


# -- what is said ------------------------------------------------------------------------------------


def test_the_probe_carries_version_capabilities_and_client_and_nothing_else() -> None:
    call = conversation().discover(MODERN)
    assert json.loads(call.body) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "server/discover",
        "params": {"_meta": META},
    }
    assert (call.id, call.method, call.version, call.name, call.headers) == (
        1,
        "server/discover",
        MODERN,
        None,
        (),
    )


def test_initialize_offers_the_newest_legacy_version_and_no_capability() -> None:
    call = conversation().initialize()
    assert json.loads(call.body)["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "latch", "version": "9.9"},
    }
    assert (call.method, call.version) == ("initialize", None)


def test_initialized_is_a_notification_without_params() -> None:
    assert json.loads(conversation().initialized()) == {
        "jsonrpc": "2.0",
        "method": "notifications/initialized",
    }


def test_every_modern_request_carries_the_metadata() -> None:
    told = conversation(MODERN)
    for params in ({}, {"cursor": "x"}, {"name": "t", "arguments": {"_meta": 1}}):
        call = told.request("any/method", params)
        assert json.loads(call.body)["params"] == {**params, "_meta": META}
        assert call.version == MODERN


@pytest.mark.parametrize("version", LEGACY)
def test_a_legacy_request_carries_none(version: str) -> None:
    call = conversation(version).request("tools/list", {"cursor": "x"})
    assert json.loads(call.body)["params"] == {"cursor": "x"}
    assert call.version is None


def test_a_call_keeps_its_name_and_its_header_fields_for_http() -> None:
    call = conversation(MODERN).request(
        "tools/call", {"name": "t"}, name="t", headers=(("Mcp-Param-A", "1"),)
    )
    assert (call.name, call.headers) == ("t", (("Mcp-Param-A", "1"),))


def test_no_id_is_used_twice_whatever_is_asked_and_however_many_ask() -> None:
    told = conversation()
    ids = [told.discover(MODERN).id, told.discover(MODERN).id, told.initialize().id]
    told.agree("2025-11-25")

    def ask() -> None:
        ids.extend(told.request("ping", {}).id for _ in range(200))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == len(set(ids)) == 803 and all(type(number) is int for number in ids)


def test_text_is_sent_as_utf8_in_one_line() -> None:
    call = conversation(MODERN).request("tools/call", {"name": "a\nb\u2028\u2029\x85ü"})
    assert b"\n" not in call.body and "\u2028\u2029\x85ü".encode() in call.body


def test_a_request_may_have_four_mebibytes_and_not_a_byte_more() -> None:
    told = conversation(MODERN)
    most = 4 * 1024 * 1024
    assert told._limits.mcp.max_message_bytes == most
    bare = len(told.request("tools/call", {"name": ""}).body)
    # the same number of digits in the id as before
    assert len(told.request("tools/call", {"name": "x" * (most - bare)}).body) == most
    with pytest.raises(UsageError, match=f"the request has {most + 1} bytes, {most} are allowed"):
        told.request("tools/call", {"name": "x" * (most - bare + 1)})


@pytest.mark.parametrize("bad", ["\ud800", float("nan"), {1}, {1: 2}], ids=repr)
def test_what_cannot_be_encoded_is_our_callers_mistake(bad: Json) -> None:
    with pytest.raises(UsageError, match="the arguments cannot be sent"):
        conversation(MODERN).request("tools/call", {"arguments": bad})


@pytest.mark.parametrize("version", [MODERN, *LEGACY])
def test_a_cancelled_notification_names_the_request_by_an_id_of_its_type(version: str) -> None:
    told = conversation(version)
    call = told.request("tools/call", {})
    notice = told.cancelled(call, "no answer in time")
    assert notice is not None
    assert json.loads(notice) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": call.id, "reason": "no answer in time"},
    }


def test_initialize_is_never_cancelled() -> None:
    told = conversation()
    assert told.cancelled(told.initialize(), "cancelled") is None


# -- what is heard -----------------------------------------------------------------------------------


def test_the_era_is_that_of_the_agreed_version() -> None:
    assert conversation().era is None
    assert conversation(MODERN).era is Era.MODERN
    assert conversation("2024-11-05").era is Era.LEGACY


ANSWERS = {
    "a result": (encoded(id=1, result={"a": [1, None]}), Response(1, {"a": [1, None]})),
    "a result that is null": (encoded(id=1, result=None), Response(1, None)),
    "the id as text": (encoded(id="1", result={}), Response("1", {})),
    "blanks around": (b" \t" + encoded(id=1, result={}) + b" \r", Response(1, {})),
    "unknown members": (encoded(id=1, result={}, more=1), Response(1, {})),
}


@pytest.mark.parametrize(("body", "answer"), ANSWERS.values(), ids=list(ANSWERS))
@pytest.mark.parametrize("version", [None, MODERN, *LEGACY])
def test_the_answer_to_the_call_is_handed_on(version: str | None, body: bytes, answer: Response) -> None:
    told = conversation(version)
    call = told.request("tools/call", {})
    heard = told.hear(body, call)
    assert (heard.answer, heard.replies, told.ignored) == (answer, (), 0)


@pytest.mark.parametrize("members", [{"id": 1}, {"id": "1"}, {"id": None}, {}])
def test_an_error_is_the_answer_also_where_its_sender_could_read_no_id(members: Json) -> None:
    told = conversation(MODERN)
    heard = told.hear(
        encoded(**members, error={"code": -32600, "message": "no"}), told.request("tools/call", {})
    )
    assert isinstance(heard.answer, Failure) and heard.answer.raw == {"code": -32600, "message": "no"}


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("other", [2, 1.0, True, "01", "2", None, [1], {"id": 1}], ids=repr)
def test_an_answer_to_something_else_is_noise(version: str, other: Json) -> None:
    told = conversation(version)
    heard = told.hear(encoded(id=other, result={}), told.request("tools/call", {}))
    assert (heard.answer, heard.replies, told.ignored) == (None, (), 1)


@pytest.mark.parametrize("other", [2, True, "server-error"], ids=repr)
def test_an_error_under_another_id_is_noise(other: Json) -> None:
    told = conversation(MODERN)
    heard = told.hear(encoded(id=other, error={"code": 1, "message": ""}), told.request("tools/call", {}))
    assert (heard.answer, told.ignored) == (None, 1)


@pytest.mark.parametrize(
    "body", [encoded(id=1, result={}), encoded(id=None, error={"code": 1, "message": "m"})]
)
def test_while_nothing_waits_every_answer_is_noise(body: bytes) -> None:
    told = conversation("2025-11-25")
    heard = told.hear(body, None)
    assert (heard.answer, heard.replies, told.ignored) == (None, (), 1)


@pytest.mark.parametrize("version", [None, MODERN, *LEGACY])
@pytest.mark.parametrize(
    "method",
    ["notifications/progress", "notifications/message", "notifications/cancelled", "ping", "unknown"],
)
def test_a_notification_is_counted_and_never_answered(version: str | None, method: str) -> None:
    told = conversation(version)
    heard = told.hear(encoded(method=method, params={}), told.request("tools/call", {}))
    assert (heard.answer, heard.replies, told.ignored) == (None, (), 1)


@pytest.mark.parametrize("version", [None, *LEGACY])
@pytest.mark.parametrize("number", [7, "seven", None], ids=repr)
def test_a_legacy_server_that_pings_is_answered_with_an_empty_result(
    version: str | None, number: Json
) -> None:
    told = conversation(version)
    for call in (None, told.request("tools/call", {})):
        heard = told.hear(encoded(id=number, method="ping"), call)
        assert heard_back(heard.replies) == [{"jsonrpc": "2.0", "id": number, "result": {}}]
        assert heard.answer is None


@pytest.mark.parametrize("version", [None, *LEGACY])
@pytest.mark.parametrize(
    "method",
    ["roots/list", "sampling/createMessage", "elicitation/create", "tasks/get", "tools/call", "unknown"],
)
def test_a_legacy_server_that_asks_for_more_is_told_that_it_is_not_offered(
    version: str | None, method: str
) -> None:
    told = conversation(version)
    heard = told.hear(encoded(id="q", method=method, params={}), told.request("tools/call", {}))
    (reply,) = heard_back(heard.replies)
    assert (reply["id"], reply["error"]["code"], heard.answer) == ("q", -32601, None)


@pytest.mark.parametrize("method", ["ping", "sampling/createMessage", "roots/list", "unknown"])
def test_a_modern_server_that_asks_breaks_the_protocol_and_gets_no_answer(method: str) -> None:
    told = conversation(MODERN)
    with pytest.raises(WireError) as raised:
        told.hear(encoded(id=1, method=method), told.request("tools/call", {}))
    assert raised.value.reason == f'it sent the request "{method}", which a 2026-07-28 server may not'


def test_a_long_method_of_a_forbidden_request_is_not_quoted_in_part() -> None:
    told = conversation(MODERN, max_quoted_chars=10)
    with pytest.raises(WireError) as raised:
        told.hear(encoded(id=1, method="two\nlines " + "x" * 1000), None)
    assert raised.value.reason.startswith("it sent the request a text of 1010 characters, which ")


def test_a_batch_is_taken_apart_where_the_version_has_it() -> None:
    told = conversation("2025-03-26")
    call = told.request("tools/call", {})
    batch = [
        {"jsonrpc": "2.0", "method": "notifications/message"},
        {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "result": {"first": True}},
        {"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage"},
        {"jsonrpc": "2.0", "id": 1, "result": {"second": True}},
    ]
    heard = told.hear(json.dumps(batch).encode(), call)
    assert heard.answer == Response(1, {"first": True})
    assert [reply["id"] for reply in heard_back(heard.replies)] == ["p", "s"]
    assert told.ignored == 1


@pytest.mark.parametrize("version", [None, MODERN, "2025-11-25", "2025-06-18", "2024-11-05"])
def test_a_batch_breaks_every_other_version(version: str | None) -> None:
    told = conversation(version)
    with pytest.raises(WireError, match="a batch came"):
        told.hear(b"[" + encoded(id=1, result={}) + b"]", told.request("tools/call", {}))


BROKEN = {
    "no json": b'{"jsonrpc": "2.0", ',
    "no utf-8": b'{"jsonrpc": "2.0", "method": "\xff"}',
    "half a character": encoded(id=1, result={"x": "é"}, z="é")[:-2] + "é".encode()[:1] + b'"}',
    "a key twice": b'{"jsonrpc": "2.0", "id": 1, "id": 2, "result": {}}',
    "a lone surrogate": b'{"jsonrpc": "2.0", "id": 1, "result": "\\ud800"}',
    "not a number": b'{"jsonrpc": "2.0", "id": 1, "result": NaN}',
    "a number without end": b'{"jsonrpc": "2.0", "id": 1, "result": ' + b"1" * 401 + b"}",
    "a number too large": b'{"jsonrpc": "2.0", "id": 1, "result": 1e999}',
    "nested too deeply": b'{"jsonrpc": "2.0", "id": 1, "result": ' + b"[" * 200 + b"]" * 200 + b"}",
    "another version": b'{"jsonrpc": "1.0", "id": 1, "result": {}}',
    "a result without id": encoded(result={}),
    "neither result nor error": encoded(id=1),
    "a method that is a number": encoded(id=1, method=5),
    "a number": b"5",
    "null": b"null",
    "nothing": b"",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=list(BROKEN))
def test_t26_what_is_no_message_or_could_not_be_recorded_breaks_the_protocol(body: bytes) -> None:
    told = conversation(MODERN)
    with pytest.raises(WireError):
        told.hear(body, told.request("tools/call", {}))


# -- noise -------------------------------------------------------------------------------------------

NOISE = (
    b"",
    b"   \t",
    b"Welcome to the fixture",
    b"[12:00:00] ready {not json}",
    b'[debug] -> {"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    b'got {"jsonrpc": "2.0", "id": 1, "result": {}}',
    b'{"level": "info", "message": "listening"}',
    b"{",
    b'  "jsonrpc": "2.0",',
    b"{'jsonrpc': '2.0'}",
    b"\xff\xfe",
    b"[]",
    b"null",
)
MESSAGES = (
    encoded(id=1, result={}),
    b"  \t" + encoded(id=1, result={}),
    b"[" + encoded(id=1, result={}) + b"]",
    b"[ \t" + encoded(id=1, result={}) + b" ]",
    # broken, but meant as one: skipping it would make the call wait in vain
    b'{"jsonrpc": "2.0", "id": 1, "resu',
    b'{"jsonrpc": "2.0", "method": "\xff"}',
)


@pytest.mark.parametrize("line", NOISE, ids=repr)
def test_a_line_that_was_never_meant_as_a_message_is_noise(line: bytes) -> None:
    assert is_noise(line)


@pytest.mark.parametrize("line", MESSAGES, ids=repr)
def test_a_line_that_was_meant_as_a_message_is_none(line: bytes) -> None:
    assert not is_noise(line)


def test_a_call_is_a_value() -> None:
    assert Call(1, "m", b"x") == Call(1, "m", b"x", None, None, ())
