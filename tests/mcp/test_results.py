"""mcp/results.py: what the answer to a call may be, in each revision."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from latch.errors import WireError
from latch.limits import DEFAULT
from latch.mcp.catalogue import CatalogueBuilder, RemoteTool
from latch.mcp.results import McpResult, Unsupported, check_result

Json = Any

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STRUCTURED = ("2025-11-25", "2025-06-18", MODERN)
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def tool(output: Json = None) -> RemoteTool:
    """A tool as it is listed, with *output* as its ``outputSchema`` unless that is None."""
    listed = {"name": "t", "inputSchema": {"type": "object"}}
    builder = CatalogueBuilder("s", DEFAULT, with_headers=False)
    builder.add({"tools": [listed if output is None else {**listed, "outputSchema": output}]})
    (one,) = builder.build().tools
    return one


def checked(result: Json, version: str = MODERN, output: Json = None) -> McpResult:
    return check_result(result, tool(output), version=version, quoted_chars=40)


def fault_of(result: Json, version: str = MODERN, output: Json = None) -> str:
    with pytest.raises(WireError) as raised:
        checked(result, version, output)
    return raised.value.reason


def test_a_result_is_kept_whole() -> None:
    raw = {"content": [{"type": "text", "text": "a"}], "structuredContent": {"x": 1}, "more": [1]}
    result = checked(raw)
    assert (result.is_error, result.structured_content, dict(result.raw)) == (False, {"x": 1}, raw)
    assert [dict(block) for block in result.content] == raw["content"]


def test_the_text_is_that_of_all_text_blocks() -> None:
    blocks = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "text", "text": "two\n"},
    ]
    assert checked({"content": blocks}).text == "one\ntwo\n"
    assert checked({"content": []}).text == ""


def test_media_and_unknown_blocks_stay_json() -> None:
    blocks = [
        {"type": "image", "data": "bm90IGEgcGljdHVyZQ==", "mimeType": "image/png"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///etc/passwd", "blob": "eA=="}},
        {"type": "resource_link", "uri": "file:///etc/passwd", "name": "p"},
        {"type": "of the future", "x": [None]},
    ]
    assert [dict(block) for block in checked({"content": blocks}).content] == blocks


def test_a_result_is_plain_json_to_be_handed_on() -> None:
    given = {"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": [1]}}
    result = checked(given)
    assert json.loads(json.dumps(result.raw)) == given
    assert json.loads(json.dumps([*result.content, result.structured_content])) == [
        {"type": "text", "text": "a"},
        {"a": [1]},
    ]


@pytest.mark.parametrize("version", [MODERN, *LEGACY])
@pytest.mark.parametrize("given", [{"isError": True}, {"isError": False}, {"isError": None}, {}])
def test_a_failure_of_the_tool_is_a_result(version: str, given: Json) -> None:
    assert checked({"content": [], **given}, version).is_error is bool(given.get("isError"))


BAD = {
    "null": (None, "the result is no object"),
    "a list": ([], "the result is no object"),
    "no content": ({"isError": False}, "the result has no list of content"),
    "content null": ({"content": None}, "the result has no list of content"),
    "content an object": ({"content": {"type": "text", "text": "x"}}, "the result has no list of content"),
    "a block that is a text": ({"content": ["x"]}, "a block of the content is no object with a type"),
    "a block without type": ({"content": [{"text": "x"}]}, "a block of the content is no object with a type"),
    "a type that is a number": (
        {"content": [{"type": 1}]},
        "a block of the content is no object with a type",
    ),
    "a text that is a number": (
        {"content": [{"type": "text", "text": 5}]},
        "a block of the content is a text without one",
    ),
    "a text without text": ({"content": [{"type": "text"}]}, "a block of the content is a text without one"),
    "isError a text": ({"content": [], "isError": "false"}, "isError is not true or false"),
    "isError a number": ({"content": [], "isError": 1}, "isError is not true or false"),
}


@pytest.mark.parametrize(("result", "reason"), BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("version", [MODERN, *LEGACY])
def test_an_envelope_that_is_broken_is_named(version: str, result: Json, reason: str) -> None:
    assert fault_of(result, version) == reason


# -- what kind of result -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{}, {"resultType": "complete"}])
def test_a_result_without_kind_is_complete(kind: Json) -> None:
    assert checked({"content": [], **kind}).content == ()


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("later", '"later"'),
        ("Complete", '"Complete"'),
        ("", '""'),
        (None, "no string"),
        (5, "no string"),
        (["complete"], "no string"),
        ("x" * 1000, "a text of 1000 characters"),
    ],
)
def test_an_unknown_kind_of_result_is_an_error(kind: Json, shown: str) -> None:
    reason = fault_of({"content": [], "resultType": kind})
    assert reason == f'resultType is {shown}, neither "complete" nor "input_required"'


@pytest.mark.parametrize("version", LEGACY)
def test_the_kind_is_an_unknown_member_before_it_was_invented(version: str) -> None:
    assert checked({"content": [], "resultType": "later"}, version).is_error is False


@pytest.mark.parametrize(
    ("members", "asked"),
    [
        ({"inputRequests": {"who": {"method": "elicitation/create", "params": {}}}}, "elicitation/create"),
        (
            {"inputRequests": {"b": {"method": "sampling/createMessage"}, "a": {"method": "roots/list"}}},
            "roots/list, sampling/createMessage",
        ),
        ({"requestState": "opaque"}, "more input"),
        ({"inputRequests": {}}, "more input"),
        ({"inputRequests": ["x"]}, "more input"),
        ({"inputRequests": {"a": "x", "b": {"method": 5}}}, "more input"),
    ],
)
def test_what_a_server_asks_for_is_named_and_not_offered(members: Json, asked: str) -> None:
    with pytest.raises(Unsupported) as raised:
        checked({"resultType": "input_required", **members})
    assert raised.value.reason == f"it asks for {asked}, which Latch does not offer"


# -- structured content ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[1], "text", 5, False], ids=repr)
def test_structured_content_is_an_object_before_the_modern_era_and_anything_in_it(value: Json) -> None:
    result = {"content": [], "structuredContent": value}
    assert checked(result).structured_content == value
    for version in LEGACY:
        assert fault_of(result, version) == "structuredContent is no object"


@pytest.mark.parametrize("version", STRUCTURED)
def test_structured_content_is_checked_and_nothing_around_it(version: str) -> None:
    good = {"content": [], "structuredContent": {"sum": 3}}
    assert checked(good, version, SUM).structured_content == {"sum": 3}
    # the envelope itself would not fit, and is not asked to
    assert checked({**good, "sum": "three"}, version, SUM).structured_content == {"sum": 3}


@pytest.mark.parametrize("version", STRUCTURED)
def test_a_mismatch_is_the_servers_error_and_names_the_place(version: str) -> None:
    reason = fault_of({"content": [], "structuredContent": {"sum": "three"}}, version, SUM)
    assert reason.startswith("structuredContent does not fit the tool's outputSchema: ") and "/sum" in reason


@pytest.mark.parametrize("version", STRUCTURED)
def test_a_promised_structure_that_is_missing_is_the_servers_error(version: str) -> None:
    reason = fault_of({"content": []}, version, SUM)
    assert reason == "the tool has an outputSchema and its result no structuredContent"


@pytest.mark.parametrize("structured", [{}, {"structuredContent": {"code": 7}}, {"structuredContent": {}}])
def test_nothing_is_checked_of_a_failure(structured: Json) -> None:
    result = checked(
        {"content": [{"type": "text", "text": "real"}], "isError": True, **structured}, output=SUM
    )
    assert (result.is_error, result.text) == (True, "real")


@pytest.mark.parametrize("version", ["2025-03-26", "2024-11-05"])
def test_an_output_schema_is_an_unknown_member_before_it_was_invented(version: str) -> None:
    assert checked({"content": []}, version, SUM).structured_content is None


def test_a_null_that_is_allowed_is_a_structure() -> None:
    assert (
        checked({"content": [], "structuredContent": None}, output={"type": "null"}).structured_content
        is None
    )
    assert "outputSchema" in fault_of({"content": [], "structuredContent": None}, output=SUM)


def test_a_schema_that_cannot_be_used_checks_nothing() -> None:
    assert checked({"content": []}, output=5).structured_content is None


def test_a_check_that_takes_too_long_is_an_error() -> None:
    value: Json = {}
    for _ in range(100):
        value = {"next": value}
    deep = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    few = replace(DEFAULT, schema=replace(DEFAULT.schema, max_steps=5))
    builder = CatalogueBuilder("s", few, with_headers=False)
    builder.add({"tools": [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": deep}]})
    (one,) = builder.build().tools
    with pytest.raises(WireError, match="structuredContent cannot be checked: "):
        check_result({"content": [], "structuredContent": value}, one, version=MODERN, quoted_chars=40)
