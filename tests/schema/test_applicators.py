"""Keywords that hold schemas: vectors, uncertainty, references, and the bounds of their work."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import SchemaError
from tests.support.schema_vectors import compiled, issue_of, load_vectors, names_of, told_of

VECTORS = load_vectors("applicators")


@pytest.mark.parametrize("vector", VECTORS, ids=names_of(VECTORS))
def test_a_keyword_applies_its_schemas(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


UNCERTAIN = load_vectors("uncertain")
REFERENCES = load_vectors("references")
REFUSED = [vector for vector in load_vectors("bad") if isinstance(vector["schema"], dict)]


@pytest.mark.parametrize("vector", UNCERTAIN, ids=names_of(UNCERTAIN))
def test_what_is_not_checked_accepts_too_much_and_never_too_little(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


@pytest.mark.parametrize("vector", REFERENCES, ids=names_of(REFERENCES))
def test_a_reference_is_followed(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


@pytest.mark.parametrize("vector", REFUSED, ids=names_of(REFUSED))
def test_a_value_that_a_keyword_cannot_have_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as raised:
        compiled(vector["schema"])
    assert raised.value.reason == vector["reason"]


def doubled(levels: int, last: Any) -> dict[str, Any]:
    """Return a schema whose references fan out twice on each of *levels*."""
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**twice, f"d{levels}": last}}


def test_references_that_fan_out_end_at_the_budget() -> None:
    with pytest.raises(SchemaError, match=r"more than 100000 steps \(max_steps\)"):
        compiled(doubled(60, {"type": "integer"}), max_steps=100_000).is_valid(1)
    assert compiled(doubled(8, {"type": "integer"}), max_steps=100_000).is_valid(1)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"not": {"$ref": "#"}}]},
        {"oneOf": [{"$ref": "#"}, False]},
        {"if": {"$ref": "#"}, "else": False},
        {"not": {"$ref": "#"}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_a_circle_on_one_value_ends_at_the_limit_on_references(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"over 50 references inside one another \(max_references\)"):
        compiled(schema, max_references=50).is_valid({"a": 1})


LONG = {str(number): 0 for number in range(1001)}


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"allOf": [{"minimum": 0}] * 1001}, 1),
        ({"anyOf": [{"maximum": 0}] * 1001}, 1),
        ({"oneOf": [{"maximum": 0}] * 1001}, 1),
        ({"items": {"not": {"maximum": 0}}}, [1] * 501),
        ({"items": {"if": {"maximum": 0}, "then": False}}, [1] * 501),
        ({"dependentSchemas": dict.fromkeys(LONG, False)}, {}),
        ({"dependencies": {"a": ["a"] * 1001}}, {"a": 1}),
        ({"properties": dict.fromkeys(LONG, {"minimum": 0})}, {}),
        ({"patternProperties": {"x": {"minimum": 0}}}, LONG),
        ({"additionalProperties": {"minimum": 0}}, LONG),
        ({"propertyNames": {"minLength": 1}}, LONG),
        ({"prefixItems": [{"minimum": 0}] * 1001}, [1] * 1001),
        ({"items": {"minimum": 0}}, [1] * 1001),
        ({"contains": {"minimum": 0}}, [1] * 1001),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_what_a_keyword_looks_at_is_paid_for(schema: Any, instance: Any) -> None:
    with pytest.raises(SchemaError, match="max_steps"):
        compiled(schema, max_steps=1000).is_valid(instance)


def test_what_is_quoted_of_names_has_its_limit() -> None:
    schema = compiled({"properties": {}, "additionalProperties": False}, max_quoted_chars=5)
    expected = ["", "additionalProperties", 'has the property "xxxxx...", which is not allowed']
    assert issue_of(schema, {"x" * 100: 1}) == expected
