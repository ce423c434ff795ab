"""Observe, transform and guard as values: no answer widens anything, none slips through malformed."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from latch.errors import WireError
from latch.extensions.hooks import Decision, GuardAnswer, check_transformed, parse_guard_answer, strictest

Json = Any

ALLOW = GuardAnswer(Decision.ALLOW)
ASK = GuardAnswer(Decision.ASK, ("a: sure?",))
DENY = GuardAnswer(Decision.DENY, ("b: no",))
FAILED = GuardAnswer(Decision.DENY, ("c: the guard failed: gone",), failed=True)


@pytest.mark.parametrize(
    ("answer", "decision", "reasons"),
    [
        ({"decision": "allow"}, Decision.ALLOW, ()),
        ({"decision": "allow", "reason": None, "more": 1}, Decision.ALLOW, ()),
        ({"decision": "allow", "reason": "fine"}, Decision.ALLOW, ("lint: fine",)),
        ({"decision": "ask", "reason": "sure?"}, Decision.ASK, ("lint: sure?",)),
        ({"decision": "ask"}, Decision.ASK, ("lint: wants approval",)),
        ({"decision": "deny", "reason": "no"}, Decision.DENY, ("lint: no",)),
        ({"decision": "deny"}, Decision.DENY, ("lint: denied",)),
        ({"decision": "deny", "reason": ""}, Decision.DENY, ("lint: denied",)),
    ],
)
def test_a_proper_answer_is_taken_with_its_reason(
    answer: Json, decision: Decision, reasons: tuple[str, ...]
) -> None:
    assert parse_guard_answer("lint", answer) == GuardAnswer(decision, reasons)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        *((value, "its answer is not an object") for value in (None, True, 1, "allow", ["allow"])),
        *(
            (value, "its decision is not allow, deny or ask")
            for value in (
                {},
                {"reason": "x"},
                {"decision": None},
                {"decision": True},
                {"decision": 1},
                {"decision": "Allow"},
                {"decision": "allow "},
                {"decision": ["allow"]},
                {"decision": {"allow": 1}},
                {"Decision": "allow"},
            )
        ),
        ({"decision": "allow", "reason": 5}, "its reason is not a string"),
        ({"decision": "allow", "reason": ["x"]}, "its reason is not a string"),
    ],
)
def test_anything_else_is_a_failed_deny(answer: Json, why: str) -> None:
    expected = GuardAnswer(Decision.DENY, (f"lint: the guard failed: {why}",), failed=True)
    assert parse_guard_answer("lint", answer) == expected


def test_nobody_asked_is_allow() -> None:
    assert strictest([]) == ALLOW


@pytest.mark.parametrize(
    ("answers", "decision"),
    [
        ((ALLOW,), Decision.ALLOW),
        ((ALLOW, ASK), Decision.ASK),
        ((ASK, DENY), Decision.DENY),
        ((ALLOW, ASK, DENY), Decision.DENY),
        ((ALLOW, FAILED), Decision.DENY),
        ((ASK, ASK), Decision.ASK),
    ],
)
def test_the_strictest_wins_in_whatever_order_and_every_reason_is_kept(
    answers: tuple[GuardAnswer, ...], decision: Decision
) -> None:
    for order in itertools.permutations(answers):
        combined = strictest(order)
        assert combined.decision is decision
        assert combined.reasons == tuple(reason for answer in order for reason in answer.reasons)
        assert combined.failed == (FAILED in order)


def test_combining_is_associative() -> None:
    for first, second, third in itertools.product((ALLOW, ASK, DENY, FAILED), repeat=3):
        assert strictest([strictest([first, second]), third]) == strictest(
            [first, strictest([second, third])]
        )


# -- transforms --------------------------------------------------------------------------------------

REQUEST: Json = {
    "system": "be kind",
    "messages": [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "t", "arguments": {"n": 1}}]},
        {"role": "tool", "content": "7", "tool_call_id": "c", "is_error": True},
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "assistant"},
    ],
    "tools": [{"name": "t", "description": "", "input_schema": {"type": "object"}}],
}
ARGUMENTS: Json = {"name": "t", "arguments": {"a": 1}}
RESULT: Json = {"name": "t", "isError": False, "content": "text"}
BEFORE = {"model_request": REQUEST, "tool_arguments": ARGUMENTS, "tool_result": RESULT}

REMOVED = object()
Path = tuple


def changed(structure: str, path: Path, value: Json) -> Json:
    """Return the structure's value with *value* at *path*, or nothing there."""
    result = copy.deepcopy(BEFORE[structure])
    place = result
    for step in path[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[path[-1]]
    elif isinstance(place, list) and path[-1] == len(place):
        place.append(value)
    else:
        place[path[-1]] = value
    return result


@pytest.mark.parametrize("structure", BEFORE)
def test_what_comes_back_equal_passes(structure: str) -> None:
    after = copy.deepcopy(BEFORE[structure])
    assert check_transformed(structure, BEFORE[structure], after) is after


@pytest.mark.parametrize(
    ("structure", "path", "value"),
    [
        ("model_request", ("messages", 0, "content"), "good day"),
        ("model_request", ("messages", 1, "content"), "now with text"),
        ("model_request", ("messages", 2, "content"), ""),
        ("tool_arguments", ("arguments",), {}),
        ("tool_arguments", ("arguments", "a"), [1, {"b": None}]),
        ("tool_result", ("content",), None),
        ("tool_result", ("content",), {"any": ["json"]}),
    ],
)
def test_what_may_change_may_change(structure: str, path: Path, value: Json) -> None:
    after = changed(structure, path, value)
    assert check_transformed(structure, BEFORE[structure], after) == after


@pytest.mark.parametrize(
    ("structure", "path", "value", "says"),
    [
        ("model_request", ("system",), "be rude", "system may not change"),
        ("model_request", ("system",), REMOVED, "system is missing"),
        ("model_request", ("more",), 1, "more may not change"),
        ("model_request", ("tools",), [], "tools may not change"),
        ("model_request", ("tools", 0, "name"), "u", "tools may not change"),
        ("model_request", ("messages",), REMOVED, "messages is not an array"),
        ("model_request", ("messages",), {}, "messages is not an array"),
        ("model_request", ("messages", 4), REMOVED, "messages has 4 entries instead of 5"),
        (
            "model_request",
            ("messages", 5),
            {"role": "user", "content": "x"},
            "messages has 6 entries instead of 5",
        ),
        ("model_request", ("messages", 0), "hello", "messages[0] is not an object"),
        ("model_request", ("messages", 0, "role"), "system", "messages[0]: role may not change"),
        ("model_request", ("messages", 0, "content"), None, "messages[0]: content is not a string"),
        ("model_request", ("messages", 0, "content"), [], "messages[0]: content is not a string"),
        ("model_request", ("messages", 0, "content"), REMOVED, "messages[0]: content is not a string"),
        ("model_request", ("messages", 0, "extra"), 1, "messages[0]: extra may not change"),
        (
            "model_request",
            ("messages", 1, "tool_calls", 0, "id"),
            "d",
            "messages[1]: tool_calls may not change",
        ),
        (
            "model_request",
            ("messages", 1, "tool_calls", 0, "arguments", "n"),
            True,
            "messages[1]: tool_calls may not",
        ),
        (
            "model_request",
            ("messages", 1, "tool_calls", 0, "arguments", "n"),
            1.0,
            "messages[1]: tool_calls may not",
        ),
        ("model_request", ("messages", 1, "tool_calls"), REMOVED, "messages[1]: tool_calls is missing"),
        ("model_request", ("messages", 2, "tool_call_id"), "d", "messages[2]: tool_call_id may not change"),
        ("model_request", ("messages", 2, "is_error"), False, "messages[2]: is_error may not change"),
        ("model_request", ("messages", 3, "content"), "text", "messages[3]: only text content may change"),
        (
            "model_request",
            ("messages", 3, "content", 0, "type"),
            "x",
            "messages[3]: only text content may change",
        ),
        ("model_request", ("messages", 3, "content"), REMOVED, "messages[3]: only text content may change"),
        ("model_request", ("messages", 4, "content"), "text", "messages[4]: only text content may change"),
        ("model_request", ("messages", 4, "content"), None, "messages[4]: only text content may change"),
        ("tool_arguments", ("name",), "u", "name may not change"),
        ("tool_arguments", ("name",), REMOVED, "name is missing"),
        ("tool_arguments", ("more",), 1, "more may not change"),
        ("tool_arguments", ("arguments",), [], "arguments is not an object"),
        ("tool_arguments", ("arguments",), None, "arguments is not an object"),
        ("tool_arguments", ("arguments",), REMOVED, "arguments is not an object"),
        ("tool_result", ("isError",), True, "isError may not change"),
        ("tool_result", ("isError",), 0, "isError may not change"),
        ("tool_result", ("name",), "u", "name may not change"),
        ("tool_result", ("content",), REMOVED, "content is missing"),
        ("tool_result", ("more",), None, "more may not change"),
    ],
)
def test_nothing_else_may_change(structure: str, path: Path, value: Json, says: str) -> None:
    with pytest.raises(WireError) as raised:
        check_transformed(structure, BEFORE[structure], changed(structure, path, value))
    assert raised.value.reason.startswith(says)


@pytest.mark.parametrize("structure", BEFORE)
@pytest.mark.parametrize("after", [None, [], "text", 1])
def test_another_shape_is_refused(structure: str, after: Json) -> None:
    with pytest.raises(WireError, match="the value is not an object"):
        check_transformed(structure, BEFORE[structure], after)


def test_a_structure_that_is_not_known_here_has_no_shape_to_keep() -> None:
    assert check_transformed("later", {"a": 1}, ["other"]) == ["other"]


def test_messages_may_not_change_places() -> None:
    after = changed("model_request", ("messages",), list(reversed(REQUEST["messages"])))
    with pytest.raises(WireError, match=r"messages\[0\]"):
        check_transformed("model_request", REQUEST, after)
