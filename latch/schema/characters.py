"""Sets of characters as patterns name them: ranges, general categories, and the classes of ECMA-262.

A character is one code point. The classes are those of ECMA-262 without the i flag, which differ from
``re``: ``\\d`` and ``\\w`` are ASCII, ``\\s`` is white space and line terminators of that standard, and the
dot leaves out four line terminators. General categories are those of the interpreter's own Unicode tables;
interpreters differ in characters that newer versions of Unicode added.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from types import MappingProxyType
from typing import Iterable, Mapping
from unicodedata import category

__all__ = [
    "ALL_BUT_LINE_ENDS",
    "CharacterSet",
    "DIGITS",
    "LAST_CODE",
    "SPACES",
    "WORD_CHARACTERS",
    "category_set",
    "inverted",
    "single",
    "union",
]

LAST_CODE = 0x10FFFF


@dataclass(frozen=True)
class CharacterSet:
    """The characters in *ranges* or of one of *categories*; with *negated* all others.

    ``ranges`` are pairs of first and last code point, ascending, neither overlapping nor touching.
    ``categories`` are two-letter general categories.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    categories: frozenset[str] = frozenset()
    negated: bool = False

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        at = bisect_right(self.ranges, (code, LAST_CODE)) - 1
        inside = at >= 0 and code <= self.ranges[at][1]
        inside = inside or bool(self.categories) and category(character) in self.categories
        return inside is not self.negated


def single(code: int) -> CharacterSet:
    """Return the set of one character."""
    return CharacterSet(((code, code),))


def union(sets: Iterable[CharacterSet], *, negated: bool = False) -> CharacterSet:
    """Return what is in any of *sets*, none of which is negated, or with *negated* in none of them."""
    ranges: list[tuple[int, int]] = []
    categories: set[str] = set()
    for one in sets:
        ranges.extend(one.ranges)
        categories.update(one.categories)
    return CharacterSet(_merged(ranges), frozenset(categories), negated)


def inverted(one: CharacterSet) -> CharacterSet:
    """Return all characters that are not in *one*, which is not negated and has ranges or categories."""
    if one.categories:
        return CharacterSet(categories=_ALL_CATEGORIES - one.categories)
    return CharacterSet(_complement(one.ranges))


def category_set(name: str) -> CharacterSet | None:
    """Return the characters of the general category *name*, short or long, or None when there is none.

    Any, Assigned and ASCII, which ECMA-262 adds to the categories, are known too.
    """
    if name in _SPECIAL:
        return _SPECIAL[name]
    short = _LONG_NAMES.get(name, name)
    categories = _GROUPS.get(short, (short,) if short in _ALL_CATEGORIES else ())
    return CharacterSet(categories=frozenset(categories)) if categories else None


def _merged(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _complement(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    gaps = []
    start = 0
    for first, last in ranges:
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    return tuple([*gaps, (start, LAST_CODE)] if start <= LAST_CODE else gaps)


# Unicode Standard Annex 44, table 12; LC is a group that the letters alone do not name.
_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "L": ("Lu", "Ll", "Lt", "Lm", "Lo"),
        "LC": ("Lu", "Ll", "Lt"),
        "M": ("Mn", "Mc", "Me"),
        "N": ("Nd", "Nl", "No"),
        "P": ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"),
        "S": ("Sm", "Sc", "Sk", "So"),
        "Z": ("Zs", "Zl", "Zp"),
        "C": ("Cc", "Cf", "Cs", "Co", "Cn"),
    }
)
_ALL_CATEGORIES = frozenset(one for group in _GROUPS.values() for one in group)

# Unicode's PropertyValueAliases.txt, property gc; ECMA-262 takes these names and no other spelling.
_LONG_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Letter": "L",
        "Cased_Letter": "LC",
        "Uppercase_Letter": "Lu",
        "Lowercase_Letter": "Ll",
        "Titlecase_Letter": "Lt",
        "Modifier_Letter": "Lm",
        "Other_Letter": "Lo",
        "Mark": "M",
        "Combining_Mark": "M",
        "Nonspacing_Mark": "Mn",
        "Spacing_Mark": "Mc",
        "Enclosing_Mark": "Me",
        "Number": "N",
        "Decimal_Number": "Nd",
        "digit": "Nd",
        "Letter_Number": "Nl",
        "Other_Number": "No",
        "Punctuation": "P",
        "punct": "P",
        "Connector_Punctuation": "Pc",
        "Dash_Punctuation": "Pd",
        "Open_Punctuation": "Ps",
        "Close_Punctuation": "Pe",
        "Initial_Punctuation": "Pi",
        "Final_Punctuation": "Pf",
        "Other_Punctuation": "Po",
        "Symbol": "S",
        "Math_Symbol": "Sm",
        "Currency_Symbol": "Sc",
        "Modifier_Symbol": "Sk",
        "Other_Symbol": "So",
        "Separator": "Z",
        "Space_Separator": "Zs",
        "Line_Separator": "Zl",
        "Paragraph_Separator": "Zp",
        "Other": "C",
        "Control": "Cc",
        "cntrl": "Cc",
        "Format": "Cf",
        "Surrogate": "Cs",
        "Private_Use": "Co",
        "Unassigned": "Cn",
    }
)
_SPECIAL: Mapping[str, CharacterSet] = MappingProxyType(
    {
        "Any": CharacterSet(((0, LAST_CODE),)),
        "ASCII": CharacterSet(((0, 0x7F),)),
        "Assigned": CharacterSet(categories=_ALL_CATEGORIES - {"Cn"}),
    }
)

# ECMA-262, CharacterClassEscape.
DIGITS = CharacterSet(((0x30, 0x39),))
WORD_CHARACTERS = CharacterSet(((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
# WhiteSpace and LineTerminator: tab to carriage return, the space separators, and the byte order mark.
SPACES = CharacterSet(
    (
        (0x09, 0x0D),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200A),
        (0x2028, 0x2029),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    )
)
# The dot without the s flag.
ALL_BUT_LINE_ENDS = CharacterSet(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)), negated=True)
