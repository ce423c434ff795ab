r"""The matcher: whether a pattern matches anywhere in a text, in time linear in the text.

A search walks states. A state is what the text so far can have led to: a set of positions and the kind of
the last character. For each state and next character there is one next state, whatever the pattern, so a
search never goes back. States and moves are made when they are first needed and kept up to a limit; when it
is reached all are forgotten, and made again as needed. At worst every character costs one step over the set
of positions, which no pattern can make more than so many operations on integers.

A move is decided in the gap before its character: first whether a match ended there, then what the character
leads to. Once a match ended, or none can come any more, nothing is read on.

A pattern may be searched by several threads at once. Every write to what they share replaces one value by an
equal one, or drops it.
"""

from __future__ import annotations

from enum import IntEnum

from ..errors import SchemaError
from ..limits import SchemaLimits
from .characters import WORD_CHARACTERS, CharacterSet
from .expressions import Anchor, Choice, Expression, Repeat, Sequence, count_states
from .positions import Gap, Moves, bits_of, moves_in, sets_of
from .verdicts import Run

__all__ = ["Pattern"]


class _Edge(IntEnum):
    """What is on one side of a gap."""

    OTHER = 0
    WORD = 1
    NOTHING = 2


class _State(dict):
    """Next state by character, as far as it was needed; ``verdict`` is set where the search is over."""

    __slots__ = ("positions", "before", "verdict")

    def __init__(self, positions: int, before: _Edge, verdict: bool | None = None) -> None:
        super().__init__()
        self.positions = positions
        self.before = before
        self.verdict = verdict


class Pattern:
    """One compiled pattern; get it from :func:`latch.schema.patterns.compile_pattern`.

    ``states`` is the number of characters, anchors and empty parts with repetitions written out.
    """

    def __init__(self, expression: Expression, limits: SchemaLimits) -> None:
        self.states = count_states(expression)
        self._expression = expression
        self._limits = limits
        anchors = frozenset(_anchors_in(expression))
        self._sees_start = Anchor.START in anchors
        self._sees_end = Anchor.END in anchors
        self._sees_words = not anchors.isdisjoint((Anchor.BOUNDARY, Anchor.NO_BOUNDARY))
        self._found = _State(0, _Edge.OTHER, True)
        self._lost = _State(0, _Edge.OTHER, False)
        # All below is made when it is first needed.
        self._moves: dict[Gap, Moves] = {}
        self._sets: dict[CharacterSet, int] = {}
        self._masks: dict[str, int] = {}
        self._states: dict[tuple[int, _Edge], _State] = {}
        self._kept = 0

    def search(self, text: str, run: Run | None = None) -> bool:
        """Return whether the pattern matches anywhere in *text*.

        *run* is the check whose budget is used, by default one of its own; :class:`SchemaError` when it is
        spent.
        """
        run = Run(self._limits) if run is None else run
        run.spend(1 + (len(text) >> 4))
        try:
            return self._walk(text, run)
        except RecursionError:
            raise SchemaError("too little stack is left to prepare a pattern") from None

    def _walk(self, text: str, run: Run) -> bool:
        state = self._state(0, _Edge.NOTHING)
        for character in text:
            try:
                state = state[character]
            except KeyError:
                if state.verdict is not None:
                    return state.verdict
                state = self._move(state, character, run)
        if state.verdict is None:
            return self._ends_in(state, self._allowed(state.before, _Edge.NOTHING))
        return state.verdict

    def _move(self, state: _State, character: str, run: Run) -> _State:
        """Return the state after *character*, which was not known, and keep it."""
        after = _Edge.WORD if self._sees_words and character in WORD_CHARACTERS else _Edge.OTHER
        moves = self._allowed(state.before, after)
        if self._ends_in(state, moves):
            following = self._found
        else:
            reached = (state.positions & moves.chain) << 1 | moves.first
            jumping = state.positions & moves.jumping
            for position in bits_of(jumping):
                reached |= moves.jumps[position]
            run.spend(8 + bin(jumping).count("1") // 4 + self.states // 500)
            reached &= self._mask(character, run)
            following = self._state(reached, after) if reached or self._may_begin() else self._lost
        if self._kept >= self._limits.max_kept_moves:
            self._forget()
        self._kept += 1
        state[character] = following
        return following

    def _ends_in(self, state: _State, moves: Moves) -> bool:
        return moves.nullable or bool(state.positions & moves.last)

    def _state(self, positions: int, before: _Edge) -> _State:
        if before is _Edge.NOTHING and not self._sees_start:
            before = _Edge.OTHER
        state = self._states.get((positions, before))
        if state is None:
            state = self._states.setdefault((positions, before), _State(positions, before))
        return state

    def _allowed(self, before: _Edge, after: _Edge) -> Moves:
        """Return the moves of the gap between two edges; gaps that no anchor tells apart are one."""
        gap = Gap(
            at_start=self._sees_start and before is _Edge.NOTHING,
            at_end=self._sees_end and after is _Edge.NOTHING,
            at_boundary=self._sees_words and (before is _Edge.WORD) is not (after is _Edge.WORD),
        )
        moves = self._moves.get(gap)
        if moves is None:
            moves = self._moves.setdefault(gap, moves_in(gap, self._expression))
        return moves

    def _may_begin(self) -> bool:
        """Return whether a match can begin behind the start of the text; what is anchored there cannot."""
        if not self._sees_start:
            return True
        gaps = [self._allowed(before, after) for before in (_Edge.OTHER, _Edge.WORD) for after in _Edge]
        return any(moves.nullable or moves.first for moves in gaps)

    def _mask(self, character: str, run: Run) -> int:
        """Return the positions that *character* can be at."""
        mask = self._masks.get(character)
        if mask is None:
            sets = self._sets or self._number_sets()
            run.spend(1 + len(sets) // 2)
            mask = 0
            for members, positions in sets.items():
                if character in members:
                    mask |= positions
            self._masks[character] = mask
        return mask

    def _number_sets(self) -> dict[CharacterSet, int]:
        numbered: dict[CharacterSet, int] = {}
        for position, members in enumerate(sets_of(self._expression)):
            numbered[members] = numbered.get(members, 0) | 1 << position
        self._sets = numbered
        return numbered

    def _forget(self) -> None:
        states, self._states = self._states, {}
        # States refer to one another; emptied, they need no garbage collector.
        for state in list(states.values()):
            state.clear()
        self._masks = {}
        self._kept = 0


def _anchors_in(expression: Expression) -> list[Anchor]:
    if isinstance(expression, Anchor):
        return [expression]
    if isinstance(expression, Repeat):
        return _anchors_in(expression.item)
    if isinstance(expression, (Sequence, Choice)):
        parts = expression.items if isinstance(expression, Sequence) else expression.options
        return [anchor for part in parts for anchor in _anchors_in(part)]
    return []
