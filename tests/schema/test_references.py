"""Places, addresses and anchors: where a reference leads, and how much of a document there may be."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import SchemaError
from latch.limits import SchemaLimits
from latch.schema.references import Document
from tests.support.schema_vectors import LIMITS, load_vectors, names_of, told_of

VECTORS = load_vectors("references")


@pytest.mark.parametrize("vector", VECTORS, ids=names_of(VECTORS))
def test_a_reference_leads_where_it_should(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


def reason_of(schema: Any, reference: str, **limits: int) -> str:
    with pytest.raises(SchemaError) as raised:
        document = Document(schema, SchemaLimits(**limits))
        document.target_of(document.root, reference)
    return raised.value.reason


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("#/x/y", 'there is nothing at "/x/y"'),
        ("#/allOf/1", 'there is nothing at "/allOf/1"'),
        ("#/allOf/00", 'there is nothing at "/allOf/00"'),
        ("#/allOf/-1", 'there is nothing at "/allOf/-1"'),
        ("#/allOf/9999999999999999999", 'there is nothing at "/allOf/9999999999999999999"'),
        ("#/number/0", 'there is nothing at "/number/0"'),
        ("#/number", 'at "/number": 1 is not a schema'),
        ("#nowhere", 'nothing has the anchor "nowhere"'),
        ("#twice", 'two schemas have the anchor "twice"'),
        ("b", 'two schemas have the address "b"'),
        ("//[", '"//[" is no address'),
        ("a" * 2049, "an address of over 2048 characters (max_address_chars)"),
        (f"#/{'x' * 100}", f'there is nothing at "/{"x" * 59}..."'),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(reference: str, reason: str) -> None:
    definitions = {"c": {"$anchor": "twice"}, "d": {"$anchor": "twice"}, "e": {"$id": "b"}, "f": {"$id": "b"}}
    assert reason_of({"allOf": [True], "number": 1, "$defs": definitions}, reference) == reason


@pytest.mark.parametrize("reference", ["a.json", "https://example.com/", "urn:x#/a", "?a", "/#/x"])
def test_a_reference_out_of_the_document_leads_to_none(reference: str) -> None:
    document = Document({"$id": "https://example.org/a/b"}, LIMITS)
    assert document.target_of(document.root, reference) is None
    assert document.dynamic_name(document.root, reference) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$id": "https://[x"}, 'at "/$id": "https://[x" is no address'),
        ({"$defs": {"a": {"$id": "//["}}}, 'at "/$defs/a/$id": "//[" is no address'),
    ],
)
def test_an_id_that_is_no_address_is_told(schema: Any, reason: str) -> None:
    assert reason_of(schema, "#") == reason


def test_a_place_is_the_same_schema_however_it_is_reached() -> None:
    document = Document({"$id": "https://example.com/", "x": {"y": {}}, "not": {"$anchor": "n"}}, LIMITS)
    ways = ["#/not", "#n", "https://example.com/#/not", "#/%6eot"]
    assert len({document.target_of(document.root, way) for way in ways}) == 1
    assert document.target_of(document.root, "#/x/y") is document.target_of(document.root, "#/x/y")


def test_a_dynamic_name_and_its_targets_are_those_of_dynamic_anchors() -> None:
    inner = {"$id": "inner", "$defs": {"x": {"$dynamicAnchor": "n"}, "y": {"$anchor": "m"}}}
    document = Document({"$dynamicAnchor": "n", "$defs": {"inner": inner, "z": {"$id": "z"}}}, LIMITS)
    names = [document.dynamic_name(document.root, way) for way in ("#n", "inner#n", "inner#m", "#", "z#n")]
    assert names == ["n", "n", None, None, None]
    assert len(list(document.dynamic_targets("n"))) == 2
    assert list(document.dynamic_targets("m")) == []


def test_the_bound_on_schemas_is_exact() -> None:
    schema = {"allOf": [True, {"not": {}}], "x": {}}
    document = Document(schema, SchemaLimits(max_nodes=4))
    with pytest.raises(SchemaError, match=r"more than 4 schemas in one \(max_nodes\)"):
        document.target_of(document.root, "#/x")
    assert reason_of(schema, "#", max_nodes=3) == "more than 3 schemas in one (max_nodes)"


def test_names_as_long_as_a_message_cost_nothing_below_them() -> None:
    schema: Any = {"properties": {str(number): {"not": {}} for number in range(2000)}}
    for _ in range(20):
        schema = {"properties": {"x" * 100_000: schema}}
    document = Document(schema, LIMITS)
    place = document.root.place(LIMITS.max_path_chars, "properties", "y" * 10**6)
    assert len(place) < LIMITS.max_path_chars + 10


def test_a_dialect_that_is_not_ours_is_noted() -> None:
    unknown = [
        Document(value, LIMITS).dialect_is_unknown for value in ({"$schema": "x"}, {"$schema": 1}, {}, True)
    ]
    assert unknown == [True, True, False, False]
