"""What a pattern says, as a tree. Groups have become structure, and lazy is no different from greedy: only
whether there is a match is ever asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Union

from .characters import CharacterSet

__all__ = ["Anchor", "Characters", "Choice", "Expression", "Repeat", "Sequence", "count_states"]


class Anchor(Enum):
    """A condition on the gap between two characters: start or end of the text, on a word's edge or not."""

    START = "^"
    END = "$"
    BOUNDARY = "\\b"
    NO_BOUNDARY = "\\B"


@dataclass(frozen=True)
class Characters:
    """One character of a set."""

    members: CharacterSet


@dataclass(frozen=True)
class Sequence:
    """One after the other; without items the empty text."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice:
    """One of several, of which there are two or more."""

    options: tuple[Expression, ...]


@dataclass(frozen=True)
class Repeat:
    """*item*, *least* to *most* times; None means without end."""

    item: Expression
    least: int
    most: int | None


Expression = Union[Anchor, Characters, Sequence, Choice, Repeat]


def count_states(expression: Expression) -> int:
    """Return how many characters, anchors and empty parts there are when every repetition is written out."""
    if isinstance(expression, Repeat):
        copies = max(1, expression.least) if expression.most is None else expression.most
        return copies * count_states(expression.item)
    if isinstance(expression, (Characters, Anchor)):
        return 1
    parts = expression.items if isinstance(expression, Sequence) else expression.options
    return sum(count_states(part) for part in parts) or 1
