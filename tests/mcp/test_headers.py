"""mcp/headers.py: which arguments HTTP repeats, and that nothing in them can end a header field."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from latch.errors import UsageError, WireError
from latch.mcp.headers import Mirror, encode_value, find_mirrors, mirror_arguments

Json = Any

TEXT = {"type": "string"}


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def annotated(token: Json, kind: Json = "string") -> Json:
    return {"type": kind, "x-mcp-header": token}


# -- annotations -------------------------------------------------------------------------------------


def test_annotated_properties_are_found_with_their_paths_and_types() -> None:
    found = find_mirrors(
        schema(
            region=annotated("Region"),
            count=annotated("Count", "integer"),
            deep=schema(flag=annotated("Flag", "boolean"), deeper=schema(text=annotated("Text"))),
            plain=TEXT,
        )
    )
    assert found == (
        Mirror(("region",), "Mcp-Param-Region", "string"),
        Mirror(("count",), "Mcp-Param-Count", "integer"),
        Mirror(("deep", "flag"), "Mcp-Param-Flag", "boolean"),
        Mirror(("deep", "deeper", "text"), "Mcp-Param-Text", "string"),
    )


@pytest.mark.parametrize("value", [{}, schema(), schema(a=TEXT), True, None, [], "text"], ids=repr)
def test_a_schema_without_annotations_has_none(value: Json) -> None:
    assert find_mirrors(value) == ()


@pytest.mark.parametrize("token", ["Method", "Name", "Authorization", "Host", "Mcp-Session-Id"])
def test_no_annotation_can_collide_with_a_field_of_the_protocol(token: str) -> None:
    (mirror,) = find_mirrors(schema(a=annotated(token)))
    assert mirror.field == "Mcp-Param-" + token


@pytest.mark.parametrize("token", ["a", "0", "!#$%&'*+-.^_`|~", "X-Y.Z"])
def test_any_token_will_do(token: str) -> None:
    assert find_mirrors(schema(a=annotated(token)))[0].field == "Mcp-Param-" + token


@pytest.mark.parametrize(
    "token",
    ["", "A B", "A:B", "A\r\nB: c", "A\n", "ü", "A\0", "(A)", "A/B", 5, None, True, {}, ["A"]],
    ids=repr,
)
def test_an_annotation_that_is_no_token_is_refused(token: Json) -> None:
    with pytest.raises(WireError, match="x-mcp-header must be a token of RFC 9110"):
        find_mirrors(schema(a=annotated(token)))


def test_the_reason_quotes_an_injected_line_in_one_line() -> None:
    with pytest.raises(WireError) as raised:
        find_mirrors(schema(a=annotated("A\r\nAuthorization: x" + "y" * 500)))
    assert "\n" not in raised.value.reason and len(raised.value.reason) < 150


@pytest.mark.parametrize("second", ["Region", "REGION", "region"])
def test_two_annotations_that_are_one_field_are_refused(second: str) -> None:
    with pytest.raises(WireError, match=f'x-mcp-header "{second}" stands twice'):
        find_mirrors(schema(a=annotated("Region"), deep=schema(b=annotated(second))))


@pytest.mark.parametrize(
    "kind", ["number", "null", "object", "array", ["string"], ["string", "null"], None, 5]
)
def test_only_strings_integers_and_booleans_are_repeated(kind: Json) -> None:
    with pytest.raises(WireError, match='x-mcp-header "A" needs the type string, integer or boolean'):
        find_mirrors(schema(a=annotated("A", kind)))


def test_a_property_without_type_is_refused() -> None:
    with pytest.raises(WireError, match="needs the type"):
        find_mirrors(schema(a={"x-mcp-header": "A"}))


INSIDE = annotated("A")
UNREACHABLE = {
    "the root": {**schema(), "x-mcp-header": "A", "type": "string"},
    "items": schema(a={"type": "array", "items": INSIDE}),
    "items as a list": schema(a={"items": [INSIDE]}),
    "prefixItems": schema(a={"prefixItems": [INSIDE]}),
    "additionalItems": schema(a={"additionalItems": INSIDE}),
    "contains": schema(a={"contains": INSIDE}),
    "additionalProperties": schema(a={"additionalProperties": INSIDE}),
    "unevaluatedItems": schema(a={"unevaluatedItems": INSIDE}),
    "unevaluatedProperties": schema(a={"unevaluatedProperties": INSIDE}),
    "patternProperties": schema(a={"patternProperties": {"x": INSIDE}}),
    "propertyNames": schema(a={"propertyNames": INSIDE}),
    "allOf": {"allOf": [INSIDE]},
    "anyOf": schema(a={"anyOf": [INSIDE]}),
    "oneOf": schema(a={"oneOf": [TEXT, INSIDE]}),
    "not": schema(a={"not": INSIDE}),
    "if": {"if": schema(a=INSIDE)},
    "then": {"then": schema(a=INSIDE)},
    "else": {"else": schema(a=INSIDE)},
    "$defs": {"$defs": {"a": INSIDE}},
    "definitions": {"definitions": {"a": INSIDE}},
    "dependentSchemas": {"dependentSchemas": {"a": schema(a=INSIDE)}},
    "dependencies": {"dependencies": {"a": schema(a=INSIDE)}},
    "contentSchema": schema(a={"contentSchema": INSIDE}),
    "properties below items": schema(a={"items": schema(b=INSIDE)}),
    "properties below allOf": {"allOf": [schema(a=INSIDE)]},
}


@pytest.mark.parametrize("value", UNREACHABLE.values(), ids=list(UNREACHABLE))
def test_an_annotation_that_properties_alone_do_not_reach_is_refused(value: Json) -> None:
    with pytest.raises(
        WireError, match='x-mcp-header "A" is not at a property that is reached by properties'
    ):
        find_mirrors(value)


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples", "x-other", "$comment"])
def test_what_looks_like_an_annotation_inside_data_is_none(keyword: str) -> None:
    assert find_mirrors(schema(a={"type": "object", keyword: {"x-mcp-header": "A B"}})) == ()
    assert find_mirrors(schema(a={"type": "object", keyword: [annotated("A B")]})) == ()


def test_a_property_may_be_called_like_the_annotation() -> None:
    assert find_mirrors(schema(**{"x-mcp-header": TEXT})) == ()


def test_a_reference_is_never_followed() -> None:
    assert find_mirrors(schema(a={"$ref": "#"})) == ()


@pytest.mark.parametrize("keyword", ["properties", "$defs", "allOf", "items", "not"])
def test_a_broken_keyword_holds_no_annotations(keyword: str) -> None:
    assert find_mirrors({keyword: 5}) == ()


# -- arguments ---------------------------------------------------------------------------------------

MOST = 8192
MIRRORS = (
    Mirror(("text",), "Mcp-Param-Text", "string"),
    Mirror(("number",), "Mcp-Param-Number", "integer"),
    Mirror(("flag",), "Mcp-Param-Flag", "boolean"),
    Mirror(("nested", "deep"), "Mcp-Param-Deep", "string"),
)


def test_each_argument_goes_into_its_field_in_order() -> None:
    arguments = {"flag": True, "nested": {"deep": "d", "other": 1}, "text": "t", "number": -42, "plain": "p"}
    assert mirror_arguments(MIRRORS, arguments, max_bytes=MOST) == (
        ("Mcp-Param-Text", "t"),
        ("Mcp-Param-Number", "-42"),
        ("Mcp-Param-Flag", "true"),
        ("Mcp-Param-Deep", "d"),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"text": None},
        {"nested": {}},
        {"nested": None},
        {"nested": {"deep": None}},
        {"nested": "text"},
        {"nested": [1]},
    ],
    ids=repr,
)
def test_an_argument_that_is_absent_or_null_has_no_field(arguments: Json) -> None:
    assert mirror_arguments(MIRRORS, arguments, max_bytes=MOST) == ()


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("text", "", ""),
        ("number", 0, "0"),
        ("number", 42.0, "42"),
        ("number", 2**53 - 1, "9007199254740991"),
        ("number", -(2**53) + 1, "-9007199254740991"),
        ("flag", False, "false"),
    ],
)
def test_values_are_rendered_as_every_server_expects(name: str, value: Json, shown: str) -> None:
    assert [text for _, text in mirror_arguments(MIRRORS, {name: value}, max_bytes=MOST)] == [shown]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", 5),
        ("text", True),
        ("text", ["t"]),
        ("number", "5"),
        ("number", True),
        ("number", 1.5),
        ("number", 2**53),
        ("number", -(2**53)),
        ("number", 1e300),
        ("number", float("inf")),
        ("number", float("nan")),
        ("flag", 1),
        ("flag", "true"),
    ],
    ids=repr,
)
def test_an_argument_that_does_not_fit_is_refused_before_anything_is_sent(name: str, value: Json) -> None:
    with pytest.raises(UsageError, match=f'the argument "{name}" does not fit its type'):
        mirror_arguments(MIRRORS, {name: value}, max_bytes=MOST)


def test_the_path_of_a_nested_argument_is_named() -> None:
    with pytest.raises(UsageError, match=r'"nested\.deep" does not fit its type string'):
        mirror_arguments(MIRRORS, {"nested": {"deep": 1}}, max_bytes=MOST)


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "a", "us-west1", "a b  c", "=?base64?", "?=", "=?utf-8?x?=", 'a:b,c;d"\\']
)
def test_what_is_safe_goes_as_it_is(text: str) -> None:
    assert encode_value(text) == text


# MCP 2026-07-28, "Value Encoding": the first four rows
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("\t", "=?base64?CQ==?="),
        ("a\tb", "=?base64?YQli?="),
        ("=?BASE64?x?=", "=?base64?PT9CQVNFNjQ/eD89?="),
    ],
)
def test_everything_else_goes_as_base64_of_its_utf8(text: str, value: str) -> None:
    assert encode_value(text) == value
    assert base64.b64decode(value[9:-2]).decode() == text


@pytest.mark.parametrize("number", [*range(0x20), *range(0x7F, 0x110), 0x2028, 0xFEFF, 0x1F600, 0xD800])
def test_no_character_can_end_a_field(number: int) -> None:
    for text in (chr(number), f"a{chr(number)}b", f"{chr(number)}b", f"a{chr(number)}"):
        value = encode_value(text)
        assert value.startswith("=?base64?") and value.isascii() and value.isprintable()
