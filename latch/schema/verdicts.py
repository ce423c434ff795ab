"""One check under way: what it may still cost, where it came by, and what it found.

A check of a keyword is a function of the instance and the :class:`Run`. It returns None, or the
:class:`Failure` it found, to which every level on the way out adds where it stands: a value that fits costs
nothing for its place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Optional, Set, Tuple, Union

from ..errors import SchemaError
from ..limits import SchemaLimits

if TYPE_CHECKING:
    from .references import Resource

__all__ = [
    "Check",
    "Collector",
    "Failure",
    "Json",
    "Run",
    "Token",
    "accept",
    "counted",
    "place_text",
    "pointer_of",
    "quoted",
]

# None, bool, int, float, str, list of Json, dict of str to Json: what a JSON text is read as.
Json = Any
# One step of a JSON Pointer: the name of a property or the index of an item.
Token = Union[str, int]

_ELLIPSIS = "..."


class Failure:
    """What does not fit: the *keyword*, the text of the reason, and the *trail*, innermost token first.

    *values* are JSON values, or failures, that the text has a ``{}`` for. They are written into it only when
    somebody asks: of the alternatives that were tried, most failures are dropped.
    """

    __slots__ = ("_text", "_values", "keyword", "trail")

    def __init__(self, keyword: str, text: str, *values: Json) -> None:
        self.keyword = keyword
        self._text = text
        self._values = values
        self.trail: list[Token] = []

    def reason(self, most: int) -> str:
        """Return the reason in one sentence, with at most *most* characters of each value."""
        shown = [one.reason(most) if isinstance(one, Failure) else quoted(one, most) for one in self._values]
        return self._text.format(*shown) if shown else self._text

    def within(self, token: Token) -> Failure:
        """Tell that all this is in the property or item *token*; returns the failure itself."""
        self.trail.append(token)
        return self


class Run:
    """The budget of one check and the schema resources it has entered, outermost first.

    One step is about one function call. When a budget is spent, :class:`SchemaError` ends the check: there
    is no verdict then. *interrupt* is called now and then, and ends it with what it raises. ``resources`` is the dynamic scope (Core 2020-12, section 7.1).
    """

    __slots__ = ("_deepest", "_interrupt", "_limits", "_mark", "_steps", "resources")

    def __init__(
        self, limits: SchemaLimits, *resources: Resource, interrupt: Callable[[], None] | None = None
    ) -> None:
        self._limits = limits
        self._interrupt = interrupt
        self._steps = limits.max_steps
        self._mark = max(0, self._steps - limits.max_steps_unseen) if interrupt is not None else 0
        self._deepest = limits.max_references + len(resources)
        self.resources: list[Resource] = [*resources]

    def spend(self, steps: int) -> None:
        """Take *steps* from the budget."""
        self._steps -= steps
        if self._steps < self._mark:
            self._look_up()

    def _look_up(self) -> None:
        if self._steps < 0:
            raise SchemaError(f"the check takes more than {self._limits.max_steps} steps (max_steps)")
        if self._interrupt is not None:
            self._interrupt()
        self._mark = max(0, self._steps - self._limits.max_steps_unseen)

    def enter(self, resource: Resource) -> None:
        """Follow a reference into *resource*; :meth:`leave` comes back from it."""
        if len(self.resources) >= self._deepest:
            most = self._limits.max_references
            raise SchemaError(f"the check follows over {most} references inside one another (max_references)")
        self.resources.append(resource)
        self.spend(1)

    def leave(self) -> None:
        """Come back from a reference."""
        self.resources.pop()


# Bound to what it compares with; a check belongs to the schema and keeps nothing between two calls.
Check = Callable[[Json, Run], Optional[Failure]]
# Adds the property names or item indexes that a schema evaluated of an instance that fits it.
Collector = Callable[[Json, Run, Set[Token]], None]


def accept(instance: Json, run: Run) -> Failure | None:
    """The check that every value passes; compared by identity where it can be left out."""
    return None


def quoted(value: Json, most: int) -> str:
    """Return *value* as a message shows it: as JSON, at most *most* characters of it, always in one line."""
    if isinstance(value, str):
        text = value[:most]
        shown = json.dumps(text, ensure_ascii=not text.isprintable())
        return shown if len(value) <= most else f'{shown[:-1]}{_ELLIPSIS}"'
    if isinstance(value, (list, dict)):
        kind, count = ("an array", len(value)) if isinstance(value, list) else ("an object", len(value))
        return f"{kind} of {count}"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"an integer of {value.bit_length()} bits"
    return json.dumps(value)


def counted(count: int, noun: str) -> str:
    """Return *count* with its *noun*, which is given in the singular: ``1 item``, ``2 properties``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def pointer_of(tokens: Tuple[Token, ...], most: int) -> str:
    """Return the JSON Pointer of *tokens*, at most *most* characters of it (RFC 6901, section 3)."""
    parts = []
    room = most
    for token in tokens:
        # What the pointer has no room for is not escaped either: names may be as long as a message.
        part = str(token)[: max(0, room)].replace("~", "~0").replace("/", "~1")
        parts.append(f"/{part}")
        room -= len(part) + 1
    pointer = "".join(parts)
    return pointer if len(pointer) <= most else pointer[:most] + _ELLIPSIS


def place_text(pointer: str) -> str:
    """Return *pointer* as messages begin with it: ``at "/a/0"``."""
    return f"at {quoted(pointer, len(pointer))}"
