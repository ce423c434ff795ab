"""What unevaluatedProperties and unevaluatedItems leave over: vectors, and the bounds of their work."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import SchemaError
from tests.support.schema_vectors import compiled, issue_of, load_vectors, names_of, told_of

VECTORS = load_vectors("evaluated")


@pytest.mark.parametrize("vector", VECTORS, ids=names_of(VECTORS))
def test_what_was_evaluated_is_known(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


UNCERTAIN = [vector for vector in load_vectors("uncertain") if "unevaluated" in str(vector["schema"])]


@pytest.mark.parametrize("vector", UNCERTAIN, ids=names_of(UNCERTAIN))
def test_what_is_not_checked_may_have_evaluated_anything(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


LONG = {str(number): 0 for number in range(400)}


# What is beside the keyword, an instance, and steps that suffice for all but the collecting.
@pytest.mark.parametrize(
    ("beside", "instance", "steps"),
    [
        ({"allOf": [{"properties": {"a": True}}] * 400}, {}, 300),
        ({"anyOf": [{"minProperties": 1}] * 400}, {"a": 0}, 600),
        ({"properties": dict.fromkeys(LONG, True)}, {}, 300),
        ({"dependentSchemas": dict.fromkeys(LONG, {"minProperties": 1})}, {}, 600),
        ({"additionalProperties": True}, LONG, 600),
        ({"patternProperties": {"[0-9]": True}}, LONG, 600),
        ({"prefixItems": [True] * 400}, [0] * 400, 1000),
        ({"contains": {"maximum": 0}}, [0] * 400, 1000),
        ({"items": True}, [0] * 400, 600),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_collecting_is_paid_for(beside: dict[str, Any], instance: Any, steps: int) -> None:
    keyword = "unevaluatedItems" if isinstance(instance, list) else "unevaluatedProperties"
    schema = {keyword: {"maximum": 0}, **beside}
    assert compiled(schema).is_valid(instance)
    assert compiled({**schema, keyword: True}, max_steps=steps).is_valid(instance)
    with pytest.raises(SchemaError, match="max_steps"):
        compiled(schema, max_steps=steps).is_valid(instance)


def test_nested_alternatives_that_are_asked_again_end_at_the_budget() -> None:
    schema: Any = {"properties": {"a": True}}
    for _ in range(40):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    with pytest.raises(SchemaError, match="max_steps"):
        compiled(schema, max_steps=100_000).is_valid({"a": 1})


def test_collecting_follows_references_up_to_the_limit() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(30)}
    schema = {
        "$ref": "#/$defs/d0",
        "unevaluatedItems": False,
        "$defs": {**chain, "d30": {"prefixItems": [True]}},
    }
    assert compiled(schema, max_references=31).is_valid([1])
    assert not compiled(schema, max_references=31).is_valid([1, 2])
