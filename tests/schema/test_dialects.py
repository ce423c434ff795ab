"""Which dialect an address chooses, and which schemas lie right inside one."""

from __future__ import annotations

from typing import Any

import pytest

from latch.schema.dialects import DRAFT_7, DRAFT_2020_12, Dialect, dialect_of, inner_schemas

BOTH = (DRAFT_2020_12, DRAFT_7)


@pytest.mark.parametrize(
    ("address", "dialect"),
    [
        ("https://json-schema.org/draft/2020-12/schema", DRAFT_2020_12),
        ("https://json-schema.org/draft/2020-12/schema#", DRAFT_2020_12),
        ("http://json-schema.org/draft/2020-12/schema", DRAFT_2020_12),
        ("http://json-schema.org/draft-07/schema#", DRAFT_7),
        ("http://json-schema.org/draft-07/schema", DRAFT_7),
        ("https://json-schema.org/draft-07/schema#", DRAFT_7),
        ("http://json-schema.org/draft-04/schema#", None),
        ("https://json-schema.org/draft/2019-09/schema", None),
        ("", None),
        (None, None),
        (7, None),
        ({}, None),
    ],
)
def test_an_address_chooses_a_dialect(address: Any, dialect: Dialect | None) -> None:
    assert dialect_of(address) is dialect


def places(schema: dict[str, Any], dialect: Dialect) -> list[tuple[Any, ...]]:
    found = list(inner_schemas(schema, dialect))
    assert all(isinstance(value, (dict, bool)) for _, value in found)
    return [tokens for tokens, _ in found]


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_schemas_are_found_in_every_shape(dialect: Dialect) -> None:
    schema = {"not": {}, "allOf": [True, {}], "properties": {"a": {}, "b": False}, "x": {}, "const": {}}
    assert places(schema, dialect) == [
        ("not",),
        ("allOf", 0),
        ("allOf", 1),
        ("properties", "a"),
        ("properties", "b"),
    ]


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_what_is_misshapen_holds_no_schemas(dialect: Dialect) -> None:
    schema = {"not": [{}], "if": 1, "allOf": {"a": {}}, "anyOf": [1, "a", None], "properties": [{}]}
    assert places({**schema, "dependencies": {"a": ["b"]}}, dialect) == []


@pytest.mark.parametrize(
    ("schema", "in_2020_12", "in_draft_7"),
    [
        ({"items": [{}]}, [], [("items", 0)]),
        ({"items": {}}, [("items",)], [("items",)]),
        ({"prefixItems": [{}]}, [("prefixItems", 0)], []),
        ({"additionalItems": {}}, [], [("additionalItems",)]),
        ({"$defs": {"a": {}}}, [("$defs", "a")], []),
        ({"definitions": {"a": {}}}, [("definitions", "a")], [("definitions", "a")]),
        ({"unevaluatedItems": {}}, [("unevaluatedItems",)], []),
        ({"dependentSchemas": {"a": {}}}, [("dependentSchemas", "a")], []),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_the_drafts_differ_in_where_schemas_lie(
    schema: dict[str, Any], in_2020_12: list[Any], in_draft_7: list[Any]
) -> None:
    assert (places(schema, DRAFT_2020_12), places(schema, DRAFT_7)) == (in_2020_12, in_draft_7)


def test_only_in_draft_7_a_reference_rules_alone() -> None:
    assert [dialect.reference_rules_alone for dialect in BOTH] == [False, True]
