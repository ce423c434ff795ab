"""Tables of positions: what may begin, follow and end a match in each kind of gap."""

from __future__ import annotations

import pytest

from latch.schema.characters import DIGITS, SPACES
from latch.schema.expressions import Anchor, Characters, Choice, Expression, Repeat, Sequence
from latch.schema.positions import Gap, Moves, bits_of, moves_in, sets_of

A, B = Characters(DIGITS), Characters(SPACES)
GAP = Gap()


def follow_of(moves: Moves) -> dict[int, set[int]]:
    """Return what follows each position, chain and jumps together."""
    follow = {position: {position + 1} for position in bits_of(moves.chain)}
    for position, others in moves.jumps.items():
        follow.setdefault(position, set()).update(bits_of(others))
    return follow


def told(expression: Expression, gap: Gap = GAP) -> tuple[bool, set[int], set[int], dict[int, set[int]]]:
    moves = moves_in(gap, expression)
    assert set(bits_of(moves.jumping)) == set(moves.jumps)
    return moves.nullable, set(bits_of(moves.first)), set(bits_of(moves.last)), follow_of(moves)


@pytest.mark.parametrize("numbers", [[], [0], [3], [0, 1, 70, 200]])
def test_bits_are_told_in_order(numbers: list[int]) -> None:
    assert list(bits_of(sum(1 << number for number in numbers))) == numbers


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Sequence(()), (True, set(), set(), {})),
        (A, (False, {0}, {0}, {})),
        (Sequence((A, B)), (False, {0}, {1}, {0: {1}})),
        (Choice((A, B)), (False, {0, 1}, {0, 1}, {})),
        (Choice((A, Sequence(()))), (True, {0}, {0}, {})),
        (Sequence((Choice((A, B)), A)), (False, {0, 1}, {2}, {0: {2}, 1: {2}})),
        (Repeat(A, 0, None), (True, {0}, {0}, {0: {0}})),
        (Repeat(A, 1, None), (False, {0}, {0}, {0: {0}})),
        (Repeat(A, 2, None), (False, {0}, {1}, {0: {1}, 1: {1}})),
        (Repeat(A, 0, 1), (True, {0}, {0}, {})),
        (Repeat(A, 0, 0), (True, set(), set(), {})),
        (Repeat(A, 2, 2), (False, {0}, {1}, {0: {1}})),
        (Repeat(A, 1, 3), (False, {0}, {0, 1, 2}, {0: {1}, 1: {2}})),
        (Repeat(A, 0, 3), (True, {0}, {0, 1, 2}, {0: {1}, 1: {2}})),
        (Repeat(Repeat(A, 0, 1), 2, 2), (True, {0, 1}, {0, 1}, {0: {1}})),
        (Sequence((A, Repeat(B, 0, 1), A)), (False, {0}, {2}, {0: {1, 2}, 1: {2}})),
        (Repeat(Sequence((A, B)), 1, None), (False, {0}, {1}, {0: {1}, 1: {0}})),
    ],
)
def test_a_part_is_told_by_its_ends_and_links(expression: Expression, expected: object) -> None:
    assert told(expression) == expected


@pytest.mark.parametrize(
    ("anchor", "gap", "holds"),
    [
        (Anchor.START, Gap(at_start=True), True),
        (Anchor.START, Gap(at_end=True, at_boundary=True), False),
        (Anchor.END, Gap(at_end=True), True),
        (Anchor.END, Gap(at_start=True, at_boundary=True), False),
        (Anchor.BOUNDARY, Gap(at_boundary=True), True),
        (Anchor.BOUNDARY, Gap(), False),
        (Anchor.NO_BOUNDARY, Gap(at_boundary=True), False),
        (Anchor.NO_BOUNDARY, Gap(), True),
    ],
)
def test_an_anchor_is_the_empty_text_where_it_holds_and_nothing_elsewhere(
    anchor: Anchor, gap: Gap, holds: bool
) -> None:
    assert gap.holds(anchor) is holds
    assert told(anchor, gap)[0] is holds
    linked = told(Sequence((A, anchor, B)), gap)[3]
    assert linked == ({0: {1}} if holds else {})


def test_positions_have_their_sets_in_every_gap() -> None:
    expression = Sequence((Anchor.START, Repeat(Choice((A, B)), 2, 2), A))
    assert sets_of(expression) == (DIGITS, SPACES, DIGITS, SPACES, DIGITS)


def test_a_count_makes_a_chain_and_no_jumps() -> None:
    moves = moves_in(GAP, Sequence((A, Repeat(B, 0, 3000), Repeat(A, 1000, None))))
    assert len(moves.jumps) <= 3000 + 2
    assert list(bits_of(moves.chain)) == list(range(4000))


def test_optional_copies_of_one_character_need_no_jumps() -> None:
    assert moves_in(GAP, Repeat(A, 10, 4000)).jumps == {}
