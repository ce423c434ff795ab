"""A keyword at its place: what its compiler may ask for, and how it says that its value is wrong.

A keyword's compiler is a function of its :class:`Site` that returns a :class:`Rule`, or None when there is
nothing to check. What cannot be checked is not guessed at: the site is told so, the rule is left out, and the
schema around it counts as uncertain from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Callable, Mapping, Optional

from ..errors import SchemaError
from ..limits import SchemaLimits
from .patterns import Pattern, compile_pattern
from .references import Document, Node
from .verdicts import Check, Json, Token, quoted

__all__ = ["ANY", "ARRAY", "Compiler", "Omissions", "NUMBER", "OBJECT", "Rule", "STRING", "Site"]

# The types of Python that a rule is for.
ANY: tuple[type, ...] = (dict, list, str, int, float, bool, type(None))
ARRAY: tuple[type, ...] = (list,)
NUMBER: tuple[type, ...] = (int, float)
OBJECT: tuple[type, ...] = (dict,)
STRING: tuple[type, ...] = (str,)


@dataclass(frozen=True)
class Rule:
    """What one keyword asks of instances of *types*."""

    types: tuple[type, ...]
    check: Check


class Omissions:
    """What of one schema is not checked, and the patterns it has.

    ``sentences`` are in the order they were found, at most ``max_unchecked``, with a last one that counts the
    rest. ``doubts`` are sites with the schemas that must be certain for them to be checked in full.
    """

    def __init__(self, limits: SchemaLimits) -> None:
        self._limits = limits
        self._told: dict[str, None] = {}
        self.doubts: list[tuple[Site, tuple[Node, ...]]] = []
        # The matcher of each pattern, or why it has none.
        self._patterns: dict[str, Pattern | str] = {}
        self._states_left = limits.max_all_pattern_states

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is not checked and why, each with its place."""
        most = self._limits.max_unchecked
        told = list(self._told)
        return tuple(told if len(told) <= most else [*told[:most], f"and {len(told) - most} more places"])

    def tell(self, sentence: str) -> None:
        """Note that something is not checked."""
        self._told[sentence] = None

    def pattern(self, text: str) -> Pattern:
        """Return the matcher for *text*; :class:`SchemaError` without a place where there is none."""
        known = self._patterns.get(text)
        if known is None:
            known = self._patterns[text] = self._compiled(text)
        if isinstance(known, str):
            raise SchemaError(known)
        return known

    def _compiled(self, text: str) -> Pattern | str:
        if self._states_left >= 0:
            try:
                pattern = compile_pattern(text, self._limits)
            except SchemaError as error:
                # It was read for nothing, but it was read.
                self._states_left -= len(text)
                return error.reason
            self._states_left -= pattern.states
        if self._states_left >= 0:
            return pattern
        most = self._limits.max_all_pattern_states
        return f"the patterns of the schema have over {most} states (max_all_pattern_states)"


class Site:
    """One keyword of one schema of *document*, while it is compiled. ``value`` is what the keyword has."""

    def __init__(
        self, node: Node, keyword: str, *, document: Document, omissions: Omissions, limits: SchemaLimits
    ) -> None:
        self.node = node
        self.keyword = keyword
        self.value: Json = node.value[keyword]
        self.schema: Mapping[str, Json] = node.value
        self.document = document
        self.limits = limits
        self._omissions = omissions

    # --- what a keyword may have ------------------------------------------------------------------------

    def wrong(self, expected: str, *more: Token) -> SchemaError:
        """Return the error that the value here, or what *more* leads to in it, is not what is *expected*."""
        value = self.value
        for token in more:
            value = value[token]
        place = self.node.place(self.limits.max_path_chars, self.keyword, *more)
        return SchemaError(f"{place}: {quoted(value, self.limits.max_quoted_chars)} is not {expected}")

    def count(self) -> int:
        """Return the value as a whole number that is not negative."""
        value = self.value
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or value < 0:
            raise self.wrong("a whole number of 0 or more")
        return value

    def number(self) -> int | float:
        """Return the value as a number."""
        # NOTE: a whole number is finite, and may be too large for a float to say so.
        if type(self.value) not in NUMBER or type(self.value) is float and not isfinite(self.value):
            raise self.wrong("a number")
        return self.value

    def text(self) -> str:
        """Return the value as a text."""
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def names(self, *more: Token) -> tuple[str, ...]:
        """Return the value, or what *more* leads to in it, as a list of strings."""
        value = self.value
        for token in more:
            value = value[token]
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.wrong("a list of strings", *more)
        return tuple(value)

    def items(self) -> list[Json]:
        """Return the value as a list that is not empty."""
        if not isinstance(self.value, list) or not self.value:
            raise self.wrong("a list with something in it")
        return self.value

    def mapping(self) -> Mapping[str, Json]:
        """Return the value as an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    # --- schemas inside -----------------------------------------------------------------------------------

    def inner(self, *more: Token) -> Node:
        """Return the schema that the value is, or that *more* leads to in it."""
        node = self.node.inner.get((self.keyword, *more))
        if node is None:
            raise self.wrong("a schema", *more)
        return node

    def sibling(self, keyword: str) -> Site | None:
        """Return the site of another *keyword* of the same schema, or None when it has none."""
        if keyword not in self.schema:
            return None
        return Site(self.node, keyword, document=self.document, omissions=self._omissions, limits=self.limits)

    def target(self) -> Node | None:
        """Return the schema that the reference here leads to, or tell that it leads out of the document."""
        target = self.node.links[self.keyword]
        if target is None:
            self.leave_out(f"{quoted(self.value, self.limits.max_quoted_chars)} is outside of this schema")
        return target

    def dynamic_name(self) -> str | None:
        """Return the name that the dynamic reference here looks for, or None when it is an ordinary one."""
        return self.document.dynamic_name(self.node, self.text())

    # --- what is not checked --------------------------------------------------------------------------------

    def pattern(self, text: str, *more: Token) -> Pattern | None:
        """Return the matcher for *text*, or tell that it is not checked and return None."""
        try:
            return self._omissions.pattern(text)
        except SchemaError as error:
            self.leave_out(error.reason, *more)
            return None

    def known_pattern(self, text: str) -> Pattern | None:
        """Return the matcher for *text*, or None when it has none; tells nobody."""
        try:
            return self._omissions.pattern(text)
        except SchemaError:
            return None

    def doubt(self, *nodes: Node) -> None:
        """Tell that the value here is not checked in full if one of *nodes* turns out to be uncertain."""
        self._omissions.doubts.append((self, nodes))

    def leave_out(self, why: str, *more: Token) -> None:
        """Tell that the value here, or what *more* leads to in it, is not checked, and *why*."""
        self.node.is_uncertain = True
        place = self.node.place(self.limits.max_path_chars, self.keyword, *more)
        self._omissions.tell(f"{place}: not checked, {why}")


# The compiler of one keyword.
Compiler = Callable[[Site], Optional[Rule]]
