"""The syntax of patterns: what is read, what is refused and why, and the limits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from latch.errors import SchemaError
from latch.limits import SchemaLimits
from latch.schema.characters import CharacterSet, single
from latch.schema.expressions import Anchor, Characters, Repeat, Sequence
from latch.schema.patterns import Pattern, compile_pattern, parse_pattern
from tests.support.pattern_pairs import chance_patterns
from tests.support.schema_vectors import LIMITS, load_vectors, names_of
from tests.support.shallow import outcomes_near_the_end

GOOD = load_vectors("patterns")
BAD = load_vectors("bad_patterns")


def refusal(text: str, **limits: int) -> str:
    with pytest.raises(SchemaError) as raised:
        compile_pattern(text, SchemaLimits(**limits))
    return raised.value.reason


@pytest.mark.parametrize("vector", GOOD, ids=names_of(GOOD))
def test_a_pattern_is_found_where_it_should_be(vector: dict[str, Any]) -> None:
    pattern = compile_pattern(vector["pattern"], LIMITS)
    texts = [*vector["hits"], *vector["misses"]]
    assert [text for text in texts if pattern.search(text)] == vector["hits"]


@pytest.mark.parametrize("vector", BAD, ids=names_of(BAD))
def test_what_is_no_pattern_or_not_supported_is_refused_with_its_reason(vector: dict[str, Any]) -> None:
    assert refusal(vector["pattern"]) == vector["reason"]


def test_structure_is_all_that_is_left_of_groups_and_laziness() -> None:
    a, b = Characters(single(ord("a"))), Characters(single(ord("b")))
    plain = Sequence((a, Repeat(Sequence((a, b)), 1, None), Sequence((Anchor.END,))))
    assert parse_pattern("a(?:ab)+($)", LIMITS) == plain
    assert parse_pattern("(a)(?<n>(?:(ab)))+?(?:$)", LIMITS) == plain


def test_alternatives_of_single_characters_become_one_set() -> None:
    assert parse_pattern("a|[c-d]|b", LIMITS) == Characters(CharacterSet(((0x61, 0x64),)))


def test_the_bound_on_the_text_is_exact() -> None:
    compile_pattern("aaaaa", SchemaLimits(max_pattern_chars=5))
    assert refusal("aaaaaa", max_pattern_chars=5) == "the pattern has over 5 characters (max_pattern_chars)"


def test_the_bound_on_groups_is_exact_and_counts_nested_ones_only() -> None:
    compile_pattern("((a))(b)(c)", SchemaLimits(max_pattern_depth=2))
    assert "groups nested deeper than 2 (max_pattern_depth)" in refusal("((()))", max_pattern_depth=2)


def test_the_bound_on_states_is_exact() -> None:
    assert compile_pattern("^[ab]{3}c", SchemaLimits(max_pattern_states=5)).states == 5
    expected = "the pattern has over 4 states with its repetitions (max_pattern_states)"
    assert refusal("^[ab]{3}c", max_pattern_states=4) == expected


def test_the_deepest_pattern_is_read_and_searched() -> None:
    depth = LIMITS.max_pattern_depth
    text = "(" * depth + "a|bc" + ")+" * depth
    assert compile_pattern(text, LIMITS).search("xbc")


@pytest.mark.parametrize("part", [("(", ")"), ("(a|b", "c)+"), ("(?:a(b|", "){2})*")])
def test_little_stack_left_is_no_recursion_error(part: tuple[str, str]) -> None:
    text = part[0] * 30 + "a" + part[1] * 30
    found = outcomes_near_the_end(
        lambda: isinstance(compile_pattern(text, SchemaLimits(max_pattern_states=10**12)), Pattern)
    )
    assert found <= {True, "too little stack is left to read a pattern"}
    assert True in found


def test_whatever_a_text_is_it_is_a_pattern_or_refused_with_a_short_reason() -> None:
    for text in chance_patterns(31, count=3000):
        try:
            compile_pattern(text, LIMITS).search("ab-1")
        except SchemaError as error:
            assert 0 < len(error.reason) < 120, ascii(text)


def test_a_pattern_cut_short_anywhere_is_a_pattern_or_refused() -> None:
    source = random.Random(32)
    for vector in GOOD:
        text = vector["pattern"][: source.randrange(len(vector["pattern"]) + 1)]
        try:
            compile_pattern(text, LIMITS).search("a")
        except SchemaError as error:
            assert error.reason
