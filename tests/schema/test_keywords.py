"""Keywords that look at the instance itself: vectors, and the bounds of their work."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import SchemaError
from tests.support.schema_vectors import compiled, issue_of, load_vectors, names_of, told_of

VECTORS = load_vectors("keywords")


@pytest.mark.parametrize("vector", VECTORS, ids=names_of(VECTORS))
def test_a_keyword_tells_what_does_not_fit(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


REFUSED = [vector for vector in load_vectors("bad") if isinstance(vector["schema"], dict)]


@pytest.mark.parametrize("vector", REFUSED, ids=names_of(REFUSED))
def test_a_value_that_a_keyword_cannot_have_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as raised:
        compiled(vector["schema"])
    assert raised.value.reason == vector["reason"]


def test_a_pattern_without_a_matcher_is_not_checked() -> None:
    schema = compiled({"pattern": "(?=a)"})
    assert schema.is_valid("b")
    assert len(schema.unchecked) == 1


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"uniqueItems": True}, list(range(1001))),
        ({"uniqueItems": True}, [[0] * 1000, 1]),
        ({"const": 1}, {str(number): number for number in range(1001)}),
        ({"enum": [[1], {}]}, [[0] * 600, [0] * 600]),
        ({"pattern": "b"}, "a" * 20_000),
        ({"items": {"multipleOf": 1}}, [1] * 300),
        ({"items": {"required": ["a"] * 10}}, [{"a": 1}] * 101),
        ({"items": {"dependentRequired": {str(number): [] for number in range(10)}}}, [{}] * 101),
        ({"items": {"dependentRequired": {"a": ["a"] * 10}}}, [{"a": 1}] * 101),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_keyword_looks_at_is_paid_for(schema: Any, instance: Any) -> None:
    with pytest.raises(SchemaError, match="max_steps"):
        compiled(schema, max_steps=1000).is_valid(instance)


def test_equal_hashes_do_not_make_unique_items_slow() -> None:
    modulus = 2**61 - 1
    instance = [number * modulus for number in range(20_000)]
    assert len({hash(item) for item in instance}) == 1
    assert compiled({"uniqueItems": True}).is_valid(instance)


def test_what_is_quoted_of_values_has_its_limit() -> None:
    schema = compiled({"enum": ["x" * 100], "type": "string"}, max_quoted_chars=5)
    assert issue_of(schema, "y") == ["", "enum", 'is none of the values allowed: "xxxxx..."']
