"""The matcher: linear work whatever the pattern, bounded memory, and agreement with ``re``."""

from __future__ import annotations

import os
import random
import re
import threading
from pathlib import Path

import pytest

from latch.errors import SchemaError
from latch.limits import SchemaLimits
from latch.schema.patterns import Pattern, compile_pattern
from latch.schema.verdicts import Run
from tests.support.pattern_pairs import pattern_pairs
from tests.support.schema_vectors import LIMITS
from tests.support.shallow import outcomes_near_the_end
from tests.support.tree import PACKAGE, imports, sources, tree_of

MEGA = 1_000_000
PATTERNS = 4000 if os.environ.get("LATCH_SOAK") == "1" else 400
# Patterns on which matchers that go back take exponential or quadratic time, and texts that make them.
BLOW_UPS = [
    (r"(a+)+$", "a" * MEGA + "b", False),
    (r"(a|a)*b", "a" * MEGA, False),
    (r"(a|aa)+$", "a" * MEGA + "b", False),
    (r"(.*)*x", "a" * MEGA, False),
    (r"(.*.*.*=.*)x$", "=" * MEGA, False),
    (r"^(\w+\s?)*$", "word " * (MEGA // 5) + "!", False),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * MEGA, False),
    (r"(?:a?){500}a{500}", "a" * 499 + "b" * MEGA, False),
    (r"(?:a?){500}a{500}", "b" * MEGA + "a" * 500, True),
    (r"^(?:a*){50}(?:b*){50}$", "a" * MEGA + "c", False),
    (r"a.*b.*c.*d.*e", "abcd" * (MEGA // 4), False),
    (r"\s+$", " " * MEGA + "x", False),
    (r"([0-9a-f]{2}:?){6}$", "0a:" * (MEGA // 3) + "!", False),
    (r"\b\w+\b.*\B$", "a " * (MEGA // 2) + "a", False),
    (r"^\p{L}+$", "\u6f22\u5b57" * (MEGA // 2), True),
]


def pattern_of(text: str, **limits: int) -> Pattern:
    return compile_pattern(text, SchemaLimits(**limits))


@pytest.mark.parametrize(("text", "subject", "expected"), BLOW_UPS, ids=[text for text, _, _ in BLOW_UPS])
def test_t15_a_megabyte_is_searched_in_linear_work_whatever_the_pattern(
    text: str, subject: str, expected: bool
) -> None:
    # A sixteenth of a step a character, and what making states costs, which does not grow with the text.
    run = Run(SchemaLimits(max_steps=len(subject) // 16 + 100_000))
    assert pattern_of(text).search(subject, run) is expected


def test_t15_a_pattern_that_needs_a_new_state_for_every_character_stays_linear() -> None:
    pattern = pattern_of("(?:a|b)*a(?:a|b){200}c")
    subject = "".join(random.Random(38).choices("ab", k=100_000))
    assert not pattern.search(subject, Run(SchemaLimits(max_steps=12 * len(subject))))


def test_t15_no_pattern_from_outside_runs_on_re() -> None:
    own = {
        (path, name)
        for path in sources()
        if path.startswith("latch/schema/")
        for name, _ in imports(tree_of(path), path)
        if name == "re" or name.startswith("re.")
    }
    # It reads the index in a JSON Pointer with a pattern of our own.
    assert own == {("latch/schema/references.py", "re")}
    calls = re.findall(
        r"\bre\.\w+\([^)]*\)", Path(PACKAGE, "schema", "references.py").read_text(encoding="utf-8")
    )
    assert calls == ['re.compile(r"0|[1-9][0-9]{0,8}")']


@pytest.mark.soak
def test_the_matcher_agrees_with_re() -> None:
    seed, last, pattern, other = 33, None, None, None
    for label, written, text in pattern_pairs(seed, patterns=PATTERNS, texts=5):
        if written is not last:
            last, pattern, other = written, compile_pattern(written.ecma, LIMITS), re.compile(written.python)
        assert pattern is not None and other is not None
        expected = other.search(text) is not None
        assert pattern.search(text) is expected, f"{label}: {written.ecma!a} in {text!a}"


def test_the_invented_pairs_are_hits_and_misses_alike() -> None:
    found = [re.search(written.python, text) for _, written, text in pattern_pairs(33, patterns=200, texts=5)]
    assert 200 < sum(one is None for one in found) < 800


def test_states_are_forgotten_at_the_limit_and_the_answer_is_the_same() -> None:
    forgetful = pattern_of("^(?:[a-m]b?|[n-z]+c){2,}$", max_kept_moves=3)
    remembering = pattern_of("^(?:[a-m]b?|[n-z]+c){2,}$")
    for text in ["abab", "nnnncab", "a", "", "abc", "nca", "ncnc", "nn", "aabbaa"] * 3:
        assert forgetful.search(text) is remembering.search(text), text


def test_what_is_kept_does_not_grow_beyond_the_limit() -> None:
    pattern = pattern_of("^[^\\d]*$", max_kept_moves=50)
    assert pattern.search("".join(map(chr, range(0x4000, 0x8000))))
    states = pattern._states.values()
    assert sum(len(state) for state in states) <= 50
    assert len(pattern._masks) <= 50


def test_nothing_is_read_behind_the_end_of_a_match_or_when_none_can_come() -> None:
    early = SchemaLimits(max_steps=1000)
    for text, expected in (("^ab", True), ("^xb", False)):
        pattern = pattern_of(text)
        assert pattern.search("abc" * 1000, Run(early)) is expected
        # Letters that were never seen before would each cost a move.
        assert pattern.search("abc" + "".join(map(chr, range(0x4000, 0x5000))), Run(early)) is expected


def test_a_search_that_exceeds_its_budget_has_no_answer() -> None:
    with pytest.raises(SchemaError, match=r"more than 100 steps \(max_steps\)"):
        pattern_of("a(?:b|cd)*e").search(
            "".join(map(chr, range(0x4000, 0x5000))), Run(SchemaLimits(max_steps=100))
        )


@pytest.mark.parametrize(
    ("text", "subject", "least"),
    [
        # A new state for each of 300 characters; 500 positions that each lead to many; 4800 in a chain.
        ("(?:a|b)*a(?:a|b){200}c", "".join(random.Random(37).choices("ab", k=300)), 8 * 300),
        ("^(?:a?){500}$", "a" * 400, 400 * 8 + 400 * 25),
        ("^(?:ab){2400}$", "ab" * 400, 800 * 16),
    ],
    ids=["states", "jumps", "positions"],
)
def test_a_move_costs_what_it_does(text: str, subject: str, least: int) -> None:
    pattern_of(text).search(subject, Run(SchemaLimits(max_steps=4 * least)))
    with pytest.raises(SchemaError):
        pattern_of(text).search(subject, Run(SchemaLimits(max_steps=least)))


def test_a_search_by_itself_has_the_whole_budget() -> None:
    with pytest.raises(SchemaError, match=r"more than 70 steps \(max_steps\)"):
        pattern_of("b", max_steps=70).search("a" * 2000)
    assert not pattern_of("b", max_steps=200).search("a" * 2000)


def test_a_long_text_costs_its_length_before_it_is_looked_at() -> None:
    pattern = pattern_of("^b")
    with pytest.raises(SchemaError):
        pattern.search("b" * 16_000, Run(SchemaLimits(max_steps=999)))
    assert pattern.search("b" * 16_000, Run(SchemaLimits(max_steps=1100)))


def test_several_threads_share_a_pattern_that_keeps_forgetting() -> None:
    pattern = pattern_of("(?:ab|ba|c[ab])+d$", max_kept_moves=4)
    texts = ["ab" * 50 + "d", "ba" * 50 + "cd", "cacbab" * 20 + "d", "c" * 30]
    expected = [True, False, True, False]
    wrong: list[list[bool]] = []

    def work() -> None:
        for _ in range(50):
            found = [pattern.search(text) for text in texts]
            if found != expected:
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_little_stack_left_is_no_recursion_error() -> None:
    # Each is searched once, because what a search has prepared it keeps.
    ready = iter([compile_pattern("(a(?:" * 15 + "b" + ")*)+" * 15, LIMITS) for _ in range(200)])
    found = outcomes_near_the_end(lambda: next(ready).search("a" * 15 + "b"))
    assert found <= {True, "too little stack is left to prepare a pattern"}
    assert True in found
