"""Sets of characters: membership, unions, opposites, general categories."""

from __future__ import annotations

import sys
from unicodedata import category

import pytest

from latch.schema.characters import (
    ALL_BUT_LINE_ENDS,
    DIGITS,
    SPACES,
    WORD_CHARACTERS,
    CharacterSet,
    category_set,
    inverted,
    single,
    union,
)

SAMPLE = [chr(code) for code in range(0, sys.maxunicode + 1, 97)] + [chr(code) for code in range(0x3100)]


def members(one: CharacterSet) -> str:
    return "".join(character for character in map(chr, range(0x80)) if character in one)


@pytest.mark.parametrize(
    ("one", "inside", "outside"),
    [
        (CharacterSet(), "", "a\0"),
        (single(ord("b")), "b", "ac"),
        (CharacterSet(((0x61, 0x63), (0x78, 0x78))), "abcx", "`dwy"),
        (CharacterSet(((0x61, 0x63),), frozenset(["Nd"])), "b7\u0663", "d-"),
        (CharacterSet(((0x61, 0x63),), frozenset(["Nd"]), negated=True), "d-", "b7\u0663"),
        (CharacterSet(((0x10FFFF, 0x10FFFF),)), "\U0010ffff", "\0"),
        (DIGITS, "09", "/:\u0663"),
        (WORD_CHARACTERS, "azAZ09_", "`{@[/:-\u00e9"),
        (
            SPACES,
            "\t\n\x0b\f\r \u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
            "\x08\x0e\x85\u1681\u200b\u2027\u202a\u2fff\u3001\ufefe\uff00",
        ),
        (ALL_BUT_LINE_ENDS, "a\x0b\x85\u2027\u202a\U0001f600", "\n\r\u2028\u2029"),
    ],
)
def test_a_set_holds_what_it_says(one: CharacterSet, inside: str, outside: str) -> None:
    assert [character in one for character in inside + outside] == [True] * len(inside) + [False] * len(
        outside
    )


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], ()),
        ([(5, 6), (1, 2)], ((1, 2), (5, 6))),
        ([(1, 4), (2, 3)], ((1, 4),)),
        ([(1, 4), (3, 8)], ((1, 8),)),
        ([(1, 4), (5, 8)], ((1, 8),)),
        ([(1, 4), (6, 8)], ((1, 4), (6, 8))),
    ],
)
def test_a_union_is_in_order_and_has_no_overlaps(ranges: list[tuple[int, int]], expected: object) -> None:
    assert union([CharacterSet((one,)) for one in ranges]).ranges == expected


def test_a_union_keeps_categories_and_can_be_negated() -> None:
    one = union([single(0x61), CharacterSet(categories=frozenset(["Lu"]))], negated=True)
    assert one == CharacterSet(((0x61, 0x61),), frozenset(["Lu"]), negated=True)


@pytest.mark.parametrize(
    "one",
    [
        CharacterSet(),
        DIGITS,
        WORD_CHARACTERS,
        SPACES,
        CharacterSet(((0, 5),)),
        CharacterSet(((5, 0x10FFFF),)),
        CharacterSet(((0, 0x10FFFF),)),
        CharacterSet(categories=frozenset(["Lu", "Nd"])),
    ],
    ids=repr,
)
def test_the_opposite_holds_what_the_set_does_not(one: CharacterSet) -> None:
    other = inverted(one)
    assert all((character in one) is not (character in other) for character in SAMPLE)


@pytest.mark.parametrize(
    ("name", "categories"),
    [
        ("Lu", {"Lu"}),
        ("Uppercase_Letter", {"Lu"}),
        ("L", {"Lu", "Ll", "Lt", "Lm", "Lo"}),
        ("Letter", {"Lu", "Ll", "Lt", "Lm", "Lo"}),
        ("LC", {"Lu", "Ll", "Lt"}),
        ("Combining_Mark", {"Mn", "Mc", "Me"}),
        ("Unassigned", {"Cn"}),
        ("punct", {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}),
    ],
)
def test_a_category_has_a_short_and_a_long_name(name: str, categories: set[str]) -> None:
    found = category_set(name)
    assert found is not None and found.categories == categories


@pytest.mark.parametrize("name", ["", "lu", "letter", "L ", "Greek", "Lx", "Alphabetic", "Number_"])
def test_what_is_no_category_has_no_set(name: str) -> None:
    assert category_set(name) is None


def test_the_groups_part_all_characters() -> None:
    groups = [category_set(name) for name in "LMNPSZC"]
    assert all(sum(character in group for group in groups if group) == 1 for character in SAMPLE)


def test_ascii_any_and_assigned_are_known() -> None:
    ascii_only, anything, assigned = (category_set(name) for name in ("ASCII", "Any", "Assigned"))
    assert ascii_only is not None and anything is not None and assigned is not None
    for character in SAMPLE:
        told = (character in ascii_only, character in anything, character in assigned)
        assert told == (character.isascii(), True, category(character) != "Cn")
