"""mcp/catalogue.py: the tools of one server, gathered from its pages."""

from __future__ import annotations

import json
import hashlib
import time
from dataclasses import replace
from typing import Any

import pytest

from latch.errors import WireError
from latch.limits import DEFAULT
from latch.mcp.catalogue import CatalogueBuilder, ToolCatalogue, catalogue_name
from latch.mcp.headers import Mirror

Json = Any

OBJECT = {"type": "object"}


def listed(name: Json, schema: Json = OBJECT, **members: Json) -> Json:
    return {"name": name, "inputSchema": schema, **members}


def builder(with_headers: bool = True, redact: Any = None, **limits: Any) -> CatalogueBuilder:
    known = replace(DEFAULT, mcp=replace(DEFAULT.mcp, **limits))
    return CatalogueBuilder("s", known, with_headers=with_headers, redact=redact)


def built(*tools: Json, **how: Any) -> ToolCatalogue:
    """The catalogue of one page."""
    making = builder(**how)
    assert making.add({"tools": list(tools)}) is None
    return making.build()


def fault_of(*pages: Json, **how: Any) -> WireError:
    """What the last of *pages* is refused for."""
    making = builder(**how)
    for page in pages[:-1]:
        making.add(page)
    with pytest.raises(WireError) as raised:
        making.add(pages[-1])
    return raised.value


# -- one tool ----------------------------------------------------------------------------------------


def test_a_tool_is_kept_as_it_was_listed() -> None:
    schema = {"type": "object", "$schema": "x", "properties": {"a": {"type": "integer"}}, "x-more": [None]}
    (tool,) = built(
        listed("t", schema, title="A title", description="Says hello", outputSchema={"type": "object"})
    ).tools
    assert (tool.name, tool.title, tool.description) == ("t", "A title", "s/t: Says hello")
    assert (dict(tool.input_schema), tool.output_schema) == (schema, {"type": "object"})
    assert (tool.mirrors, tool.needs_task) == ((), False)
    assert tool.arguments is not None and not tool.arguments.is_valid({"a": "x"})
    assert tool.results is not None and not tool.results.is_valid([])


def test_t29_the_catalogue_name_is_a_digest_of_the_raw_name() -> None:
    digest = hashlib.sha256("odd name/ü".encode()).hexdigest()[:24]
    assert catalogue_name("my-server", "odd name/ü") == f"mcp_my-server_{digest}"
    (tool,) = built(listed("odd name/ü")).tools
    assert (tool.name, tool.catalogue_name) == ("odd name/ü", f"mcp_s_{digest}")


def test_the_longest_names_fit_what_providers_take_and_do_not_collide() -> None:
    names = ["n" * 127 + last for last in "ab"] + ["N" * 127 + "a", "a.b", "a_b", "a b"]
    shown = {catalogue_name("x" * 32, name) for name in names}
    assert len(shown) == len(names) and {len(name) for name in shown} == {4 + 32 + 1 + 24}
    assert catalogue_name("s", "\ud800") != catalogue_name("s", "\ud801")


@pytest.mark.parametrize(
    ("members", "title"),
    [
        ({"title": "own", "annotations": {"title": "hinted"}}, "own"),
        ({"annotations": {"title": "hinted"}}, "hinted"),
        ({"title": 5, "annotations": {"title": "hinted"}}, "hinted"),
        ({"annotations": {"title": None}}, "t"),
        ({"annotations": "text"}, "t"),
        ({}, "t"),
    ],
)
def test_the_title_is_its_own_then_the_hinted_one_then_the_name(members: Json, title: str) -> None:
    assert built(listed("t", **members)).tools[0].title == title


@pytest.mark.parametrize("description", [None, "", 5, ["x"]])
def test_a_description_that_is_none_leaves_server_and_name(description: Json) -> None:
    assert built(listed("t", description=description)).tools[0].description == "s/t"


@pytest.mark.parametrize(
    ("execution", "needed"),
    [
        ({"taskSupport": "required"}, True),
        ({"taskSupport": "optional"}, False),
        ({"taskSupport": "forbidden"}, False),
        ({}, False),
        ("required", False),
        (None, False),
    ],
)
def test_a_tool_that_runs_only_as_a_task_is_known(execution: Json, needed: bool) -> None:
    assert built(listed("t", execution=execution)).tools[0].needs_task is needed


def test_annotations_of_a_tool_are_not_kept() -> None:
    hints = {"readOnlyHint": True, "destructiveHint": False, "title": "t"}
    (tool,) = built(listed("t", annotations=hints)).tools
    assert "readOnlyHint" not in repr(tool) and not hasattr(tool, "annotations")


def test_a_listed_schema_is_plain_json_to_be_handed_on() -> None:
    (tool,) = built(listed("t")).tools
    assert json.loads(json.dumps(tool.input_schema)) == tool.input_schema == {"type": "object"}


# -- tools that are left out -------------------------------------------------------------------------

LEFT_OUT = {
    "no object": ("text", "#1", "it has no name"),
    "null": (None, "#1", "it has no name"),
    "no name": ({"inputSchema": OBJECT}, "#1", "it has no name"),
    "a name that is a number": (listed(5), "#1", "it has no name"),
    "an empty name": (listed(""), "", "its name must have 1 to 128 bytes"),
    "a name of 129 bytes": (listed("n" * 129), "n" * 128, "its name must have 1 to 128 bytes"),
    "a name of 130 bytes in 65 characters": (listed("ü" * 65), "ü" * 65, "its name must have 1 to 128 bytes"),
    "no schema": ({"name": "bad"}, "bad", 'its inputSchema is no object of the type "object"'),
    "a schema that is null": (
        listed("bad", None),
        "bad",
        'its inputSchema is no object of the type "object"',
    ),
    "a schema that is a text": (
        listed("bad", "object"),
        "bad",
        'its inputSchema is no object of the type "object"',
    ),
    "a schema of a string": (
        listed("bad", {"type": "string"}),
        "bad",
        'its inputSchema is no object of the type "object"',
    ),
    "a header that is no token": (
        listed("bad", {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A B"}}}),
        "bad",
        'x-mcp-header must be a token of RFC 9110, found "A B"',
    ),
}


@pytest.mark.parametrize(("tool", "name", "reason"), LEFT_OUT.values(), ids=list(LEFT_OUT))
def test_a_tool_that_cannot_be_offered_costs_no_other_one(tool: Json, name: str, reason: str) -> None:
    catalogue = built(tool, listed("good"))
    assert [one.name for one in catalogue.tools] == ["good"]
    assert [(one.name, one.reason) for one in catalogue.skipped] == [(name, reason)]


def test_a_name_of_128_bytes_is_offered() -> None:
    names = ["n" * 128, "ü" * 64, "a", "two\nlines"]
    assert {one.name for one in built(*map(listed, names)).tools} == set(names)


def test_header_annotations_matter_only_where_arguments_are_repeated() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    good = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    assert built(listed("t", bad), with_headers=False).tools[0].mirrors == ()
    assert built(listed("t", good), with_headers=False).tools[0].mirrors == ()
    assert built(listed("t", good)).tools[0].mirrors == (Mirror(("a",), "Mcp-Param-A", "string"),)


# -- schemas -----------------------------------------------------------------------------------------

ODD = {
    "a local reference": {"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/n"}}},
    "a pointer into properties": {"properties": {"a": {"type": "integer"}, "n": {"$ref": "#/properties/a"}}},
    "a cycle": {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}},
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"type": "integer"}},
        "properties": {"n": {"$ref": "#/definitions/n"}},
    },
}


@pytest.mark.parametrize("schema", ODD.values(), ids=list(ODD))
def test_references_inside_the_document_are_followed(schema: Json) -> None:
    catalogue = built(listed("t", {"type": "object", **schema}))
    (tool,) = catalogue.tools
    assert catalogue.diagnostics == () and tool.arguments is not None
    assert tool.arguments.is_valid({"n": 5}) and not tool.arguments.is_valid({"n": "five"})


NOT_CHECKED = {
    "a network reference": ({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}, "127.0.0.1"),
    "an unknown dialect": ({"$schema": "https://example.org/dialect"}, "https://example.org/dialect"),
    "a look-ahead": ({"properties": {"a": {"type": "string", "pattern": "^(?!x)"}}}, "pattern"),
    "a back reference": ({"properties": {"a": {"type": "string", "pattern": "(a)\\1"}}}, "pattern"),
}


@pytest.mark.parametrize(("schema", "word"), NOT_CHECKED.values(), ids=list(NOT_CHECKED))
def test_t15_what_cannot_be_checked_is_told_and_keeps_its_tool(schema: Json, word: str) -> None:
    catalogue = built(listed("t", {"type": "object", **schema}), listed("good"))
    assert {tool.name for tool in catalogue.tools} == {"t", "good"}
    (sentence,) = catalogue.diagnostics
    assert sentence.startswith('"t": of its arguments: ') and word in sentence
    assert catalogue.find("t").arguments.is_valid({"a": "xyz"})  # type: ignore[union-attr]


@pytest.mark.parametrize("which", ["arguments", "results"])
def test_a_schema_that_cannot_be_used_is_told_and_keeps_its_tool(which: str) -> None:
    broken = {"type": "object", "required": 5}
    tool = listed("t", broken) if which == "arguments" else listed("t", outputSchema=broken)
    catalogue = built(tool)
    assert getattr(catalogue.tools[0], which) is None
    (sentence,) = catalogue.diagnostics
    assert sentence.startswith(f'"t": its {which} are not checked: ')


def test_t15_a_hostile_pattern_takes_no_time(ms: float) -> None:
    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    (tool,) = built(listed("t", pattern)).tools
    began = time.monotonic()
    assert not tool.arguments.is_valid({"a": "a" * 5000 + "b"})  # type: ignore[union-attr]
    assert time.monotonic() - began < 1000 * ms


# -- pages -------------------------------------------------------------------------------------------


def test_pages_are_followed_to_the_end_and_the_order_is_that_of_catalogue_names() -> None:
    making = builder()
    assert making.add({"tools": [listed("a"), listed("b")], "nextCursor": "1"}) == "1"
    assert making.add({"tools": [], "nextCursor": "2"}) == "2"
    assert making.add({"tools": [listed("c")], "ttlMs": 0}) is None
    tools = making.build().tools
    assert {tool.name for tool in tools} == {"a", "b", "c"}
    assert [tool.catalogue_name for tool in tools] == sorted(tool.catalogue_name for tool in tools)


def test_a_cursor_that_is_null_is_the_end() -> None:
    assert builder().add({"tools": [], "nextCursor": None}) is None


def test_an_empty_cursor_is_a_cursor_once() -> None:
    making = builder()
    assert making.add({"tools": [], "nextCursor": ""}) == ""
    with pytest.raises(WireError, match='the cursor "" came a second time'):
        making.add({"tools": [], "nextCursor": ""})


def test_a_repeated_cursor_ends_the_listing_also_when_others_came_between() -> None:
    pages = [{"tools": [], "nextCursor": cursor} for cursor in ("a", "b", "a")]
    assert fault_of(*pages).reason == 'the cursor "a" came a second time'


@pytest.mark.parametrize("cursor", [5, True, ["a"], {}])
def test_a_cursor_that_is_no_string_ends_the_listing(cursor: Json) -> None:
    assert fault_of({"tools": [], "nextCursor": cursor}).reason == "nextCursor is no string"


@pytest.mark.parametrize("page", [None, [], "x", {}, {"tools": None}, {"tools": {"name": "t"}}], ids=repr)
def test_a_page_without_tools_ends_the_listing(page: Json) -> None:
    assert fault_of(page).reason == "the result has no list of tools"


def test_pages_without_end_are_bounded() -> None:
    making = builder(max_pages=3)
    assert [making.add({"tools": [], "nextCursor": str(number)}) for number in range(2)] == ["0", "1"]
    with pytest.raises(WireError, match="more than 3 pages of tools") as raised:
        making.add({"tools": [], "nextCursor": "2"})
    assert (raised.value.limit, raised.value.amount) == ("max_pages", 3)


def test_as_many_pages_as_allowed_are_read() -> None:
    making = builder(max_pages=2)
    assert making.add({"tools": [], "nextCursor": "0"}) == "0"
    assert making.add({"tools": []}) is None


@pytest.mark.parametrize("apart", [False, True])
def test_two_tools_of_one_name_end_the_listing(apart: bool) -> None:
    pages = (
        [{"tools": [listed("t")], "nextCursor": "1"}, {"tools": [listed("t", {"type": "string"})]}]
        if apart
        else [{"tools": [listed("t"), listed("t")]}]
    )
    assert fault_of(*pages).reason == 'the tool "t" is listed twice'


def test_a_tool_that_is_left_out_has_its_name_nevertheless() -> None:
    assert fault_of({"tools": [listed("t", None), listed("t")]}).reason == 'the tool "t" is listed twice'


def test_512_tools_are_offered_and_513_end_the_listing() -> None:
    tools = [listed(f"t{number}") for number in range(513)]
    assert len(built(*tools[:512]).tools) == 512
    error = fault_of({"tools": tools[:300], "nextCursor": "1"}, {"tools": tools[300:]})
    assert (error.reason, error.limit, error.amount) == ("more than 512 tools", "max_tools", 512)


def test_tools_that_are_left_out_count() -> None:
    assert fault_of({"tools": [None] * 513}).reason == "more than 512 tools"


def test_a_long_name_or_cursor_is_quoted_in_part() -> None:
    for page in (
        {"tools": [listed("n" * 5000)] * 2},
        {"tools": [], "nextCursor": "c" * 5000},
    ):
        pages = [page, page] if "nextCursor" in page else [page]
        assert len(fault_of(*pages, max_quoted_chars=20).reason) < 80


# -- the whole ---------------------------------------------------------------------------------------


def test_a_tool_is_found_by_the_name_its_server_gave_it() -> None:
    catalogue = built(listed("a"), listed("b"))
    assert catalogue.find("b") is catalogue.tools[[tool.name for tool in catalogue.tools].index("b")]
    assert catalogue.find("mcp_s_b") is None and ToolCatalogue().find("a") is None


def test_the_digest_is_that_of_everything_that_was_listed_in_any_order() -> None:
    one = built(listed("a", description="x"), listed("b")).digest
    assert one == built(listed("b"), listed("a", description="x")).digest
    changes = (
        [listed("a", description="y"), listed("b")],
        [listed("a", description="x")],
        [listed("a", description="x"), listed("b"), listed("c")],
        [listed("a", description="x"), listed("b", annotations={"readOnlyHint": True})],
        [listed("a", description="x"), listed("b", None)],
    )
    assert len({one, *(built(*tools).digest for tools in changes)}) == 1 + len(changes)


def test_the_digest_does_not_depend_on_how_pages_were_cut() -> None:
    making = builder()
    making.add({"tools": [listed("a")], "nextCursor": "1"})
    making.add({"tools": [listed("b")]})
    assert making.build().digest == built(listed("a"), listed("b")).digest


def without_secret(value: Json) -> Json:
    """As a redactor of the secret ``hunter2-hunter2`` would."""
    if isinstance(value, dict):
        return {key: without_secret(item) for key, item in value.items()}
    return value.replace("hunter2-hunter2", "[redacted]") if isinstance(value, str) else value


def test_t27_a_secret_in_what_a_server_says_of_a_tool_is_taken_out() -> None:
    schema = {"type": "object", "default": "hunter2-hunter2"}
    said = listed(
        "t", schema, title="hunter2-hunter2", description="it is hunter2-hunter2", outputSchema=schema
    )
    catalogue = built(said, redact=without_secret)
    assert "hunter2" not in repr(catalogue)
    assert catalogue.tools[0].description == "s/t: it is [redacted]"
    assert catalogue.tools[0].input_schema["default"] == "[redacted]"


def test_t27_a_tool_with_a_secret_in_its_name_cannot_be_offered() -> None:
    catalogue = built(listed("get-hunter2-hunter2"), listed("good"), redact=without_secret)
    assert [tool.name for tool in catalogue.tools] == ["good"]
    (left_out,) = catalogue.skipped
    assert (left_out.name, left_out.reason) == ("get-[redacted]", "its name holds a secret of its entry")
