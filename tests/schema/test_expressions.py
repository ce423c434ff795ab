"""The size of an expression with its repetitions written out."""

from __future__ import annotations

import pytest

from latch.schema.characters import DIGITS
from latch.schema.expressions import Anchor, Characters, Choice, Expression, Repeat, Sequence, count_states

ONE = Characters(DIGITS)
PAIR = Sequence((ONE, ONE))


@pytest.mark.parametrize(
    ("expression", "states"),
    [
        (ONE, 1),
        (Anchor.END, 1),
        (Sequence(()), 1),
        (PAIR, 2),
        (Choice((PAIR, ONE, Sequence(()))), 4),
        (Repeat(PAIR, 0, None), 2),
        (Repeat(PAIR, 1, None), 2),
        (Repeat(PAIR, 3, None), 6),
        (Repeat(PAIR, 0, 5), 10),
        (Repeat(PAIR, 0, 0), 0),
        (Repeat(Sequence((Anchor.START, ONE)), 4, 4), 8),
        (Repeat(Repeat(Repeat(ONE, 10**9, 10**9), 10**9, 10**9), 0, 10**9), 10**27),
    ],
)
def test_every_character_anchor_and_empty_part_counts(expression: Expression, states: int) -> None:
    assert count_states(expression) == states
