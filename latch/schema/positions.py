r"""From the expression of a pattern to the tables that its matcher walks.

The construction is Glushkov's. Every character that the pattern names, with repetitions written out, is a
*position*. A set of positions is an integer, one bit each, and a search holds the set that the text read so
far may have ended in. What can follow what is told by four values, for any part of the pattern: whether the
part may be *nullable*, the positions it may begin with (*first*), those it may end with (*last*), and the
links from the end of one part to the beginning of the next.

``^``, ``$``, ``\b`` and ``\B`` stand between two characters, and between two characters each of them is
either true or not: that depends on nothing but the :class:`Gap`. So the values are made once for each kind of
gap, with every anchor read as the empty text where it is true and as nothing at all where it is not. A gap
is passed when the next character is read, and by then its kind is known.

Most links go from a position to the one with the next number. These are one mask, the *chain*, followed by
a shift for all positions at once; the others are kept per position, as *jumps*. Parts of a sequence are
joined from the right, so that a nullable part costs no more than another: the work is proportional to the
positions, in operations on integers of as many bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Callable, Iterator, Mapping, Tuple

from .characters import CharacterSet
from .expressions import Anchor, Characters, Choice, Expression, Repeat, Sequence

__all__ = ["Gap", "Moves", "bits_of", "moves_in", "sets_of"]


@dataclass(frozen=True)
class Gap:
    """A place between two characters: at the start or end of the text, on a word's edge or not."""

    at_start: bool = False
    at_end: bool = False
    at_boundary: bool = False

    def holds(self, anchor: Anchor) -> bool:
        """Return whether *anchor* is true here."""
        if anchor is Anchor.START:
            return self.at_start
        if anchor is Anchor.END:
            return self.at_end
        return self.at_boundary is (anchor is Anchor.BOUNDARY)


@dataclass(frozen=True)
class Moves:
    """What one kind of gap allows.

    A match may be of no character when ``nullable``, may begin with the positions of ``first`` and have ended
    with those of ``last``. Each position of ``chain`` leads to the next; each of ``jumping`` to those that
    ``jumps`` holds for it.
    """

    nullable: bool
    first: int
    last: int
    chain: int
    jumping: int
    jumps: Mapping[int, int]


# nullable, first and last of a part
_Part = Tuple[bool, int, int]
_EMPTY: _Part = (True, 0, 0)
_NOTHING: _Part = (False, 0, 0)


def bits_of(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set in *mask*, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def sets_of(expression: Expression) -> tuple[CharacterSet, ...]:
    """Return the character set of every position, by its number."""
    builder = _Builder(Gap())
    builder.part(expression)
    return tuple(builder.sets)


def moves_in(gap: Gap, expression: Expression) -> Moves:
    """Return what *gap* allows; positions have the same numbers in every gap."""
    builder = _Builder(gap)
    nullable, first, last = builder.part(expression)
    jumping = sum(1 << position for position in builder.jumps)
    return Moves(nullable, first, last, builder.chain, jumping, MappingProxyType(builder.jumps))


class _Builder:
    """Walks an expression once, for one gap; numbers positions from left to right."""

    def __init__(self, gap: Gap) -> None:
        self._gap = gap
        self.sets: list[CharacterSet] = []
        self.chain = 0
        self.jumps: dict[int, int] = {}

    def part(self, expression: Expression) -> _Part:
        if isinstance(expression, Characters):
            self.sets.append(expression.members)
            bit = 1 << (len(self.sets) - 1)
            return False, bit, bit
        if isinstance(expression, Anchor):
            return _EMPTY if self._gap.holds(expression) else _NOTHING
        if isinstance(expression, Choice):
            return _either([self.part(option) for option in expression.options])
        if isinstance(expression, Sequence):
            return self._folded([self.part(item) for item in expression.items], _unchanged)
        return self._repeated(expression)

    def _repeated(self, repeat: Repeat) -> _Part:
        copies = max(1, repeat.least) if repeat.most is None else repeat.most
        parts = [self.part(repeat.item) for _ in range(copies)]
        if repeat.most is None:
            _, first, last = parts[-1]
            self._link(last, first)
        # What follows the last copy that must be there is optional, each copy inside the one before.
        optional = self._folded(parts[repeat.least :], _optional)
        return self._folded([*parts[: repeat.least], optional], _unchanged)

    def _folded(self, parts: list[_Part], finish: Callable[[_Part], _Part]) -> _Part:
        whole = _EMPTY
        for nullable, first, last in reversed(parts):
            rest_nullable, rest_first, rest_last = whole
            self._link(last, rest_first)
            whole = finish(
                (
                    nullable and rest_nullable,
                    first | rest_first if nullable else first,
                    last | rest_last if rest_nullable else rest_last,
                )
            )
        return whole

    def _link(self, ends: int, beginnings: int) -> None:
        for position in bits_of(ends):
            following = 1 << (position + 1)
            if beginnings & following:
                self.chain |= 1 << position
            others = beginnings & ~following
            if others:
                self.jumps[position] = self.jumps.get(position, 0) | others


def _unchanged(part: _Part) -> _Part:
    return part


def _optional(part: _Part) -> _Part:
    _, first, last = part
    return True, first, last


def _either(parts: list[_Part]) -> _Part:
    nullable, first, last = _NOTHING
    for one_nullable, one_first, one_last in parts:
        nullable, first, last = nullable or one_nullable, first | one_first, last | one_last
    return nullable, first, last
