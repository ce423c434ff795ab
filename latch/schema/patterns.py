r"""The syntax of patterns: ECMA-262 with the u flag, as JSON Schema names it, read into an expression.

What is supported is what a matcher in linear time can do: characters, classes, groups of every kind,
alternation, greedy and lazy quantifiers, ``^``, ``$``, ``\b``, ``\B``, and ``\p{...}`` for general
categories. Refused as not supported: back references, looking ahead or behind, other properties than general
category, modifiers in groups. Everything that is an error with the u flag is one here, the escapes that mean
nothing (``\_``) and the lone brackets that a laxer mode would pass included.

Grammar, ECMA-262 section 22.2.1::

    Disjunction: Alternative { "|" Alternative }        Alternative: { Term }
    Term: Assertion | Atom [ Quantifier ]
    Quantifier: ( "*" | "+" | "?" | "{" n [ "," [ n ] ] "}" ) [ "?" ]
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Mapping

from ..errors import SchemaError
from ..limits import SchemaLimits
from .automaton import Pattern
from .characters import (
    ALL_BUT_LINE_ENDS,
    DIGITS,
    LAST_CODE,
    SPACES,
    WORD_CHARACTERS,
    CharacterSet,
    category_set,
    inverted,
    single,
    union,
)
from .expressions import Anchor, Characters, Choice, Expression, Repeat, Sequence, count_states

__all__ = ["Pattern", "compile_pattern", "parse_pattern"]

_SYNTAX_CHARACTERS = "^$\\.*+?()[]{}|"
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_DECIMAL = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CONTROLS: Mapping[str, int] = MappingProxyType({"t": 9, "n": 10, "v": 11, "f": 12, "r": 13})
_CLASSES: Mapping[str, CharacterSet] = MappingProxyType(
    {
        "d": DIGITS,
        "D": inverted(DIGITS),
        "s": SPACES,
        "S": inverted(SPACES),
        "w": WORD_CHARACTERS,
        "W": inverted(WORD_CHARACTERS),
    }
)
_ANCHORS: Mapping[str, Anchor] = MappingProxyType(
    {"^": Anchor.START, "$": Anchor.END, "b": Anchor.BOUNDARY, "B": Anchor.NO_BOUNDARY}
)
_QUANTIFIERS: Mapping[str, tuple[int, int | None]] = MappingProxyType(
    {"*": (0, None), "+": (1, None), "?": (0, 1)}
)
_LOOKING = ("?=", "?!", "?<=", "?<!")
# More than any limit on states lets pass; what has more digits counts as this.
_MANY = 10**9


def compile_pattern(text: str, limits: SchemaLimits) -> Pattern:
    """Return the matcher for *text*; :class:`SchemaError` says what of it is wrong or not supported."""
    try:
        expression = parse_pattern(text, limits)
        if count_states(expression) > limits.max_pattern_states:
            most = limits.max_pattern_states
            raise SchemaError(f"the pattern has over {most} states with its repetitions (max_pattern_states)")
        return Pattern(expression, limits)
    except RecursionError:
        raise SchemaError("too little stack is left to read a pattern") from None


def parse_pattern(text: str, limits: SchemaLimits) -> Expression:
    """Return what *text* says, whatever its size; otherwise as :func:`compile_pattern`, which calls it."""
    if len(text) > limits.max_pattern_chars:
        most = limits.max_pattern_chars
        raise SchemaError(f"the pattern has over {most} characters (max_pattern_chars)")
    return _Reader(text, limits).whole()


def _chosen(options: list[Expression]) -> Expression:
    """Return the choice between *options*: one set where each is one character, which saves states."""
    sets = [option.members for option in options if isinstance(option, Characters)]
    if len(sets) < len(options) or any(members.negated for members in sets):
        return Choice(tuple(options))
    return Characters(union(sets))


class _Reader:
    """Reads one pattern from left to right; ``_at`` is the next character."""

    def __init__(self, text: str, limits: SchemaLimits) -> None:
        self._text = text
        self._limits = limits
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def whole(self) -> Expression:
        expression = self._disjunction()
        if self._at < len(self._text):
            raise self._wrong('")" without "("')
        return expression

    # --- structure ------------------------------------------------------------------------------------

    def _disjunction(self) -> Expression:
        options = [self._alternative()]
        while self._take("|"):
            options.append(self._alternative())
        return options[0] if len(options) == 1 else _chosen(options)

    def _alternative(self) -> Expression:
        items = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            items.append(self._term())
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _term(self) -> Expression:
        character = self._next("a character")
        if character == "(":
            atom = self._group()
        elif character == "[":
            atom = Characters(self._class())
        elif character == "\\":
            atom = self._atom_escape()
        elif character == ".":
            atom = Characters(ALL_BUT_LINE_ENDS)
        elif character in "^$":
            atom = _ANCHORS[character]
        elif character in "*+?":
            raise self._wrong("nothing to repeat")
        elif character in "{}]":
            raise self._wrong(f'a lone "{character}"')
        else:
            atom = Characters(single(ord(character)))
        return self._quantified(atom)

    def _quantified(self, atom: Expression) -> Expression:
        character = self._peek()
        if character == "" or character not in "*+?{":
            return atom
        self._at += 1
        least, most = self._bounds() if character == "{" else _QUANTIFIERS[character]
        if isinstance(atom, Anchor):
            raise self._wrong("an anchor cannot be repeated")
        self._take("?")
        return Repeat(atom, least, most)

    def _bounds(self) -> tuple[int, int | None]:
        least = self._number()
        most: int | None = least
        if self._take(","):
            most = None if self._peek() == "}" else self._number()
        if not self._take("}"):
            raise self._wrong('a "{" that is no quantifier')
        if most is not None and most < least:
            raise self._wrong("a quantifier whose bounds are out of order")
        return least, most

    def _number(self) -> int:
        start = self._at
        while self._peek() in _DECIMAL:
            self._at += 1
        digits = self._text[start : self._at]
        if not digits:
            raise self._wrong('a "{" that is no quantifier')
        digits = digits.lstrip("0")
        return int(digits or "0") if len(digits) < 10 else _MANY

    def _group(self) -> Expression:
        self._depth += 1
        if self._depth > self._limits.max_pattern_depth:
            raise self._wrong(
                f"groups nested deeper than {self._limits.max_pattern_depth} (max_pattern_depth)"
            )
        if self._text.startswith(_LOOKING, self._at):
            raise self._unsupported("looking ahead or behind")
        if self._take("?"):
            if self._take("<"):
                self._group_name()
            elif not self._take(":"):
                raise self._unsupported("a group of this kind")
        inside = self._disjunction()
        if not self._take(")"):
            raise self._wrong('"(" without ")"')
        self._depth -= 1
        # A group may be repeated whatever is in it; an anchor by itself may not.
        return Sequence((inside,)) if isinstance(inside, Anchor) else inside

    def _group_name(self) -> None:
        name = self._until(">")
        if "\\" in name:
            raise self._unsupported("an escape in the name of a group")
        # NOTE: Python's identifiers are those of ECMA-262, which adds "$" and two joiners behind the start.
        plain = name.replace("$", "_")
        if not (plain[:1] + plain[1:].replace("\u200c", "_").replace("\u200d", "_")).isidentifier():
            raise self._wrong("a group with a bad name")
        if name in self._names:
            raise self._wrong("two groups of one name")
        self._names.add(name)

    # --- escapes and classes ----------------------------------------------------------------------------

    def _atom_escape(self) -> Expression:
        character = self._next("an escape")
        if character in "bB":
            return _ANCHORS[character]
        if character in "123456789" or character == "k":
            raise self._unsupported("a back reference")
        members = self._class_escape(character)
        return Characters(single(self._code(character)) if members is None else members)

    def _class_escape(self, character: str) -> CharacterSet | None:
        """Return the set that the escape of *character* stands for, or None when it is one character."""
        if character in "pP":
            members = self._property()
            return members if character == "p" else inverted(members)
        return _CLASSES.get(character)

    def _property(self) -> CharacterSet:
        if not self._take("{"):
            raise self._wrong("a property without braces")
        name, equals, value = self._until("}").partition("=")
        if equals and name not in ("General_Category", "gc"):
            raise self._unsupported("a property other than general category")
        members = category_set(value if equals else name)
        if members is None or equals and not members.categories:
            raise self._unsupported("a property other than general category")
        return members

    def _code(self, character: str) -> int:
        """Return the character that an escape stands for whose first *character* was read."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "c" and self._peek() in _LETTERS:
            return ord(self._next("a letter")) % 32
        if character == "0" and self._peek() not in _DECIMAL:
            return 0
        if character == "x":
            return self._hexadecimal(2)
        if character == "u":
            return self._unicode()
        if character in _SYNTAX_CHARACTERS or character == "/":
            return ord(character)
        raise self._wrong("an escape that means nothing")

    def _unicode(self) -> int:
        if self._take("{"):
            digits = self._until("}")
            if not digits or not _HEXADECIMAL.issuperset(digits) or int(digits, 16) > LAST_CODE:
                raise self._wrong("an escape that is no character")
            return int(digits, 16)
        code = self._hexadecimal(4)
        if 0xD800 <= code < 0xDC00 and self._text.startswith("\\u", self._at):
            back, self._at = self._at, self._at + 2
            second = 0 if self._peek() == "{" else self._hexadecimal(4)
            if 0xDC00 <= second < 0xE000:
                return 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00)
            self._at = back
        return code

    def _hexadecimal(self, count: int) -> int:
        digits = self._text[self._at : self._at + count]
        if len(digits) < count or not _HEXADECIMAL.issuperset(digits):
            raise self._wrong("an escape that is no character")
        self._at += count
        return int(digits, 16)

    def _class(self) -> CharacterSet:
        negated = self._take("^")
        members = []
        while not self._take("]"):
            start = self._class_atom()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                start = self._range(start, self._class_atom())
            members.append(single(start) if isinstance(start, int) else start)
        return union(members, negated=negated)

    def _range(self, start: int | CharacterSet, end: int | CharacterSet) -> CharacterSet:
        if not isinstance(start, int) or not isinstance(end, int):
            raise self._wrong("a range between classes")
        if end < start:
            raise self._wrong("a range out of order")
        return CharacterSet(((start, end),))

    def _class_atom(self) -> int | CharacterSet:
        character = self._next('"[" without "]"')
        if character != "\\":
            return ord(character)
        character = self._next("an escape")
        if character in "-b":
            return 8 if character == "b" else ord("-")
        members = self._class_escape(character)
        return self._code(character) if members is None else members

    # --- reading ------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _next(self, what: str) -> str:
        if self._at >= len(self._text):
            raise self._wrong(f"the end in the middle of {what}")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        start = self._at
        found = self._text.find(end, start)
        if found < 0:
            raise self._wrong(f'no "{end}" to end what began')
        self._at = found + 1
        return self._text[start:found]

    def _wrong(self, what: str) -> SchemaError:
        return SchemaError(f"not a pattern with the u flag: {what}, before character {self._at}")

    def _unsupported(self, what: str) -> SchemaError:
        return SchemaError(f"{what} is not supported, before character {self._at}")
