"""Equality of JSON values by keys, and exact multiples."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest

from latch.errors import SchemaError
from latch.limits import SchemaLimits
from latch.schema.equality import decimals_of, equality_key, is_multiple
from latch.schema.verdicts import Run

LIMITS = SchemaLimits()
# Each is unequal to every other.
APART: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, -1.5, 2**70, 1e300, 5e-324),
    *("", "a", "A", "None", "True", "1", "0x1", "1.5", '"', '\\"', "[]", "{}", "a,b", "\u00e9", "e\u0301"),
    *([], [[]], [1], [1, 1], [True], ["1"], ["a", "b"], ["a,b"], ['a","b'], [[1], 2], [[1, 2]], [None]),
    *({}, {"a": 1}, {"a": "1"}, {"a": None}, {"a": 1, "b": 2}, {"a": {"b": 2}}, {"a:1": 2}, {"": {}}, [{}]),
]


def key_of(value: Any) -> str:
    return equality_key(value, Run(LIMITS))


def test_unequal_values_have_unequal_keys() -> None:
    assert [(one, other) for one, other in combinations(APART, 2) if key_of(one) == key_of(other)] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (10**20, 1e20),
        ([1, [2.0]], [1.0, [2]]),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
        ({"a": [{"c": 0, "b": None}]}, {"a": [{"b": None, "c": -0.0}]}),
        (0.1, 1e-1),
    ],
)
def test_equal_values_have_equal_keys(one: Any, other: Any) -> None:
    assert key_of(one) == key_of(other)


def test_keys_are_made_in_time_linear_in_the_digits() -> None:
    assert len(key_of(1 << 4_000_000)) == 1_000_003


def test_a_key_is_paid_for_by_what_is_in_the_value() -> None:
    value = [[1, 2], {"a": [3]}]
    equality_key(value, Run(SchemaLimits(max_steps=6)))
    with pytest.raises(SchemaError):
        equality_key(value, Run(SchemaLimits(max_steps=5)))


def test_a_long_text_is_paid_for_by_its_length() -> None:
    equality_key("x" * 6400, Run(SchemaLimits(max_steps=100)))
    with pytest.raises(SchemaError):
        equality_key("x" * 6400, Run(SchemaLimits(max_steps=99)))


@pytest.mark.parametrize(
    "number", [0, 1, -7, 10**30, 0.5, -0.25, 0.1, 1e22, 1e-7, 1.5e300, 5e-324, 1.7976931348623157e308, -0.0]
)
def test_a_number_is_taken_as_it_is_written(number: int | float) -> None:
    digits, exponent = decimals_of(number)
    assert Decimal(digits).scaleb(exponent) == Decimal(repr(number))


@pytest.mark.parametrize(
    ("number", "divisor", "expected"),
    [
        (0.3, 0.1, True),
        (0.35, 0.1, False),
        (19.99, 0.01, True),
        (1e308, 5e-324, True),
        (1e308, 0.123456789, False),
        (1e308, 3, False),
        (12391239123, 1e-8, True),
        (5e-324, 1e308, False),
        (0, 1e308, True),
        (-6, 4, False),
        (-6, 3, True),
        (10**400, 10**399, True),
        (7.0, 7, True),
    ],
)
def test_multiples_are_exact(number: int | float, divisor: int | float, expected: bool) -> None:
    assert is_multiple(number, decimals_of(divisor)) is expected


def test_random_multiples_agree_with_decimal_arithmetic() -> None:
    source = random.Random(34)
    for _ in range(500):
        number = source.choice([source.randrange(-1000, 1000), source.randrange(10**4) / 100, 2.5e-3, 7e5])
        divisor = source.choice([source.randrange(1, 30), source.randrange(1, 500) / 100, 1e-4, 2e3])
        expected = Decimal(json.dumps(number)) % Decimal(json.dumps(divisor)) == 0
        assert is_multiple(number, decimals_of(divisor)) is expected, f"seed 34: {number} {divisor}"
