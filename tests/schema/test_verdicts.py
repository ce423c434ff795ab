"""Budgets, failures with their places, and how values and places are quoted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from latch.errors import SchemaError
from latch.limits import SchemaLimits
from latch.schema.references import Document
from latch.schema.verdicts import Failure, Run, accept, counted, place_text, pointer_of, quoted


def test_the_bound_on_steps_is_exact() -> None:
    run = Run(SchemaLimits(max_steps=10))
    run.spend(4)
    run.spend(6)
    with pytest.raises(SchemaError) as raised:
        run.spend(1)
    assert raised.value.reason == "the check takes more than 10 steps (max_steps)"


def test_the_bound_on_references_counts_those_inside_one_another() -> None:
    limits = SchemaLimits(max_references=2)
    resource = Document(True, limits).root.resource
    run = Run(limits, resource)
    for _ in range(5):
        run.enter(resource)
        run.enter(resource)
        run.leave()
        run.leave()
    run.enter(resource)
    run.enter(resource)
    with pytest.raises(SchemaError) as raised:
        run.enter(resource)
    assert raised.value.reason == "the check follows over 2 references inside one another (max_references)"


def test_the_resources_entered_are_kept_in_order() -> None:
    limits = SchemaLimits()
    first, second = (Document(True, limits).root.resource for _ in range(2))
    run = Run(limits, first)
    run.enter(second)
    assert run.resources == [first, second]
    run.leave()
    assert run.resources == [first]


def test_following_a_reference_costs_a_step() -> None:
    limits = SchemaLimits(max_steps=1)
    resource = Document(True, limits).root.resource
    run = Run(limits, resource)
    run.enter(resource)
    run.leave()
    with pytest.raises(SchemaError):
        run.enter(resource)


def test_a_failure_learns_its_place_from_the_inside() -> None:
    failure = Failure("type", "is wrong")
    assert failure.within(0) is failure
    failure.within("a")
    assert (failure.trail, failure.keyword) == ([0, "a"], "type")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Failure("a", "is wrong"), "is wrong"),
        (Failure("a", "does not match {2}"), "does not match {2}"),
        (Failure("a", "lacks {} and {}", "abcdefgh", 1), 'lacks "abcde..." and 1'),
        (
            Failure("a", "has {}, which {}", "{}", Failure("b", "is not {}", "x")),
            'has "{}", which is not "x"',
        ),
    ],
)
def test_a_reason_has_its_values_in_it_up_to_a_limit(failure: Failure, reason: str) -> None:
    assert failure.reason(5) == reason


def test_everything_passes_the_check_that_accepts() -> None:
    run = Run(SchemaLimits(max_steps=0))
    assert [accept(value, run) for value in (None, 1, {}, "a")] == [None] * 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("short", '"short"'),
        ("0123456789", '"0123456789"'),
        ("0123456789a", '"0123456789..."'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("\u00fc\u6f22", '"\u00fc\u6f22"'),
        ("a\n\x1b[2J", '"a\\n\\u001b[2J"'),
        ("\u202eabc", '"\\u202eabc"'),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (12345, "12345"),
        (-(2**39), str(-(2**39))),
        (2**40, "an integer of 41 bits"),
        (10**100_000, "an integer of 332193 bits"),
        ([1, 2], "an array of 2"),
        ({}, "an object of 0"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_quoted_in_one_line_that_no_terminal_obeys(value: Any, expected: str) -> None:
    assert quoted(value, 10) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((), ""),
        (("a", 0, ""), "/a/0/"),
        (("a/b", "c~d", "~1"), "/a~1b/c~0d/~01"),
        (("a" * 19,), "/" + "a" * 19),
        (("a" * 20,), "/" + "a" * 19 + "..."),
        (("a" * 18, "b", "c"), "/" + "a" * 18 + "/..."),
        (tuple("abcdefghijklmnop"), "/a/b/c/d/e/f/g/h/i/j..."),
    ],
)
def test_a_pointer_is_escaped_and_has_its_bound(tokens: tuple[Any, ...], expected: str) -> None:
    assert pointer_of(tokens, 20) == expected


def test_a_pointer_of_a_long_name_is_cut_before_it_is_escaped() -> None:
    assert len(pointer_of(("~" * 10_000_000, "b"), 20)) < 30


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (0, "item", "0 items"),
        (1, "item", "1 item"),
        (1, "property", "1 property"),
        (2, "property", "2 properties"),
    ],
)
def test_a_count_has_its_noun(count: int, noun: str, expected: str) -> None:
    assert counted(count, noun) == expected


def test_a_place_is_a_pointer_in_quotes() -> None:
    assert place_text('/a"b/0') == 'at "/a\\"b/0"'
    assert json.loads(place_text("/\n").removeprefix("at ")) == "/\n"
