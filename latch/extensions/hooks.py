"""Observe, transform and guard: what is sent and what an answer may be. Pure.

Three mechanisms with separate paths: an observer's answer can change nothing, a transform cannot
decide, a guard cannot rewrite.

What an observer is told, by event (``{"event", "payload"}``)::

    session_started     {"sessionId", "workspace", "mode"}
    user_message        {"text", "media": count of images, "sessionId"}
    model_request       {"sessionId", "provider", "model", "messages": count}
    model_response      {"sessionId", "text", "toolCalls": count}
    tool_requested      {"sessionId", "callId", "name", "originalName", "arguments"}
    tool_finished       {"sessionId", "callId", "name", "originalName", "isError"}
    permission_decided  {"sessionId", "callId", "decision", "source", "reasons"}
    session_ended       {"sessionId", "completion"}

Guard payloads, by action::

    tool.execute      {"name": catalogue name, "originalName": own name, "arguments": {...}}
    model.request     {"provider", "model", "messages": count}
    child.spawn       {"task", "mode"}
    session.complete  {"summary"}

A guard answers ``{"decision": "allow" | "deny" | "ask", "reason"?: string}``. Anything else, or
nothing, is deny.

Values a transform receives and returns, by structure::

    model_request   {"system", "messages": [{"role", "content", ...}], "tools": [...]}: only the text
                    of messages may change
    tool_arguments  {"name", "arguments": {...}}: only arguments may change, to another object
    tool_result     {"name", "isError", "content"}: only content may change
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Callable, Iterable

from ..errors import WireError
from ..wire.jsontext import Json

__all__ = ["Decision", "GuardAnswer", "check_transformed", "parse_guard_answer", "strictest"]


class Decision(Enum):
    """What a guard decided. Declared strictest first: deny, then ask, then allow."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


@dataclass(frozen=True)
class GuardAnswer:
    """One guard's answer: who, what, and every reason given. ``failed`` is True when there was no
    proper answer, which counts as deny."""

    decision: Decision
    reasons: tuple[str, ...] = ()
    failed: bool = False


_DEFAULT_REASONS = MappingProxyType({Decision.DENY: "denied", Decision.ASK: "wants approval"})


def parse_guard_answer(extension: str, value: Json) -> GuardAnswer:
    """Return the answer of *extension*'s guard; a malformed one is a failed deny."""
    if not isinstance(value, dict):
        return _failed(extension, "its answer is not an object")
    word, reason = value.get("decision"), value.get("reason")
    decision = next((one for one in Decision if one.value == word), None)
    if decision is None:
        return _failed(extension, "its decision is not allow, deny or ask")
    if reason is not None and not isinstance(reason, str):
        return _failed(extension, "its reason is not a string")
    text = reason or _DEFAULT_REASONS.get(decision)
    return GuardAnswer(decision, () if text is None else (f"{extension}: {text}",))


def _failed(extension: str, why: str) -> GuardAnswer:
    return GuardAnswer(Decision.DENY, (f"{extension}: the guard failed: {why}",), failed=True)


def strictest(answers: Iterable[GuardAnswer]) -> GuardAnswer:
    """Combine: deny beats ask beats allow, and every reason is kept in order."""
    decision, reasons, failed = Decision.ALLOW, [], False
    order = list(Decision)
    for answer in answers:
        decision = min(decision, answer.decision, key=order.index)
        reasons += answer.reasons
        failed = failed or answer.failed
    return GuardAnswer(decision, tuple(reasons), failed)


def check_transformed(structure: str, before: Json, after: Json) -> Json:
    """Return *after* when it has the shape of *structure* and changes only what it may.

    Raises :class:`WireError` naming the place; a structure that is not known passes as it is.
    """
    check = _CHECKS.get(structure)
    if check is not None:
        check(before, after)
    return after


def _check_model_request(before: Json, after: Json) -> None:
    old, new = _object(before), _object(after)
    _same_members(old, new, except_for="messages")
    old_messages, new_messages = old.get("messages"), new.get("messages")
    if not isinstance(old_messages, list) or not isinstance(new_messages, list):
        raise WireError("messages is not an array")
    if len(old_messages) != len(new_messages):
        raise WireError(f"messages has {len(new_messages)} entries instead of {len(old_messages)}")
    for index, (old_message, new_message) in enumerate(zip(old_messages, new_messages)):
        _check_message(index, old_message, new_message)


def _check_message(index: int, before: Json, after: Json) -> None:
    if not isinstance(after, dict) or not isinstance(before, dict):
        raise WireError(f"messages[{index}] is not an object")
    try:
        _same_members(before, after, except_for="content")
    except WireError as error:
        raise WireError(f"messages[{index}]: {error.reason}") from None
    if isinstance(before.get("content"), str):
        if not isinstance(after.get("content"), str):
            raise WireError(f"messages[{index}]: content is not a string")
    elif not _equal(_only(before, "content"), _only(after, "content")):
        raise WireError(f"messages[{index}]: only text content may change")


def _check_tool_arguments(before: Json, after: Json) -> None:
    new = _object(after)
    _same_members(_object(before), new, except_for="arguments")
    if not isinstance(new.get("arguments"), dict):
        raise WireError("arguments is not an object")


def _check_tool_result(before: Json, after: Json) -> None:
    new = _object(after)
    _same_members(_object(before), new, except_for="content")
    if "content" not in new:
        raise WireError("content is missing")


_CHECKS: MappingProxyType[str, Callable[[Json, Json], None]] = MappingProxyType(
    {
        "model_request": _check_model_request,
        "tool_arguments": _check_tool_arguments,
        "tool_result": _check_tool_result,
    }
)


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise WireError("the value is not an object")
    return value


def _same_members(before: dict[str, Json], after: dict[str, Json], *, except_for: str) -> None:
    for name in [*before, *[name for name in after if name not in before]]:
        if name == except_for:
            continue
        if name not in after:
            raise WireError(f"{name} is missing")
        if name not in before or not _equal(before[name], after[name]):
            raise WireError(f"{name} may not change")


def _only(value: dict[str, Json], name: str) -> dict[str, Json]:
    return {name: value[name]} if name in value else {}


def _equal(first: Json, second: Json) -> bool:
    # NOTE: not ==, for which 1, 1.0 and true are one value.
    if type(first) is not type(second):
        return False
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_equal, first, second))
    return first == second
