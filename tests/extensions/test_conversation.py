"""The conversation as a table: every pair of state and message, every way of feeding, every answer."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from latch.errors import WireError
from latch.extensions.conversation import (
    MOVES,
    Answered,
    Became,
    Event,
    ExtensionConversation,
    Ignored,
    Kind,
    Refused,
    State,
)
from latch.limits import DEFAULT, FrameLimits
from latch.wire.framing import FrameReader

from tests.support.feeds import feedings

Json = Any

INITIALIZED = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "0.1"}}
READY = {"jsonrpc": "2.0", "method": "ready", "params": {}}
TOOL = {"jsonrpc": "2.0", "id": 7, "method": "tool.register", "params": {"name": "t"}}
IDS = [0, 1, -1, 2.5, "one", "", True, False, None, [1, "a"], {"a": [None]}]


def frame(message: Json) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def request(method: str, params: Json = None, *, id: Json = 9) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def sent(conversation: ExtensionConversation) -> list[Json]:
    """Take the output apart, by another reader than the one under test uses."""
    reader = FrameReader(DEFAULT.frame)
    reader.feed(conversation.take_output())
    messages = []
    while (body := reader.next_frame()) is not None:
        messages.append(json.loads(body))
    assert reader.at_boundary
    return messages


def hear(conversation: ExtensionConversation, *messages: Json) -> list[Event]:
    return conversation.receive(b"".join(frame(message) for message in messages))


def initializing() -> ExtensionConversation:
    conversation = ExtensionConversation(DEFAULT)
    conversation.initialize(workspace="/w", version="1")
    return conversation


def registering() -> ExtensionConversation:
    conversation = initializing()
    hear(conversation, INITIALIZED)
    return conversation


def ready() -> ExtensionConversation:
    conversation = registering()
    hear(conversation, READY)
    return conversation


def calling() -> ExtensionConversation:
    conversation = ready()
    conversation.request("tool.execute", {"name": "t", "arguments": {}})
    return conversation


def stopping() -> ExtensionConversation:
    conversation = ready()
    conversation.shutdown()
    return conversation


def exited() -> ExtensionConversation:
    conversation = stopping()
    hear(conversation, {"jsonrpc": "2.0", "id": 2, "result": None})
    return conversation


REACH = {
    State.SPAWNED: lambda: ExtensionConversation(DEFAULT),
    State.INITIALIZING: initializing,
    State.REGISTERING: registering,
    State.READY: ready,
    State.CALLING: calling,
    State.STOPPING: stopping,
    State.EXITED: exited,
}

# The id of the request that is outstanding when a state was reached that way.
AWAITED = {State.INITIALIZING: 1, State.CALLING: 2, State.STOPPING: 2}


def in_state(state: State) -> ExtensionConversation:
    """Return a conversation that got to *state* by the messages of a good peer, its output taken."""
    conversation = REACH[state]()
    assert conversation.state is state
    conversation.take_output()
    return conversation


def message_of(kind: Kind, conversation: ExtensionConversation) -> Json:
    answer = {"jsonrpc": "2.0", "id": AWAITED.get(conversation.state), "result": {"protocolVersion": "0.1"}}
    return {
        Kind.ANSWER: answer,
        Kind.STRAY: {**answer, "id": 4711},
        Kind.REGISTRATION: TOOL,
        Kind.READY: READY,
        Kind.REQUEST: request("peer/unknown"),
        Kind.NOTIFICATION: {"jsonrpc": "2.0", "method": "log", "params": {}},
    }[kind]


# What each pair leads to, written out once more by hand: (next state, kinds of events, error codes sent).
BREACH = None
OUTCOMES: dict[tuple[State, Kind], Any] = {
    **{pair: BREACH for pair in itertools.product(State, Kind)},
    **{(state, Kind.REQUEST): (state, [], [-32601]) for state in State},
    **{(state, Kind.NOTIFICATION): (state, [Ignored("log", late=False)], []) for state in State},
    (State.INITIALIZING, Kind.ANSWER): (State.REGISTERING, [Became(State.REGISTERING)], []),
    (State.REGISTERING, Kind.REGISTRATION): (State.REGISTERING, [], []),
    (State.REGISTERING, Kind.READY): (State.READY, [Became(State.READY)], []),
    (State.CALLING, Kind.ANSWER): (State.READY, [Answered({"protocolVersion": "0.1"})], []),
    (State.STOPPING, Kind.ANSWER): (State.EXITED, [Answered({"protocolVersion": "0.1"})], []),
    **{
        (state, Kind.REGISTRATION): (state, [Ignored("tool.register", late=True)], [-32600])
        for state in (State.READY, State.CALLING, State.STOPPING)
    },
    **{
        (state, Kind.READY): (state, [Ignored("ready", late=True)], [])
        for state in (State.READY, State.CALLING, State.STOPPING)
    },
    (State.EXITED, Kind.REGISTRATION): (State.EXITED, [Ignored("tool.register", late=False)], []),
    (State.EXITED, Kind.READY): (State.EXITED, [Ignored("ready", late=False)], []),
    (State.EXITED, Kind.REQUEST): (State.EXITED, [Ignored("peer/unknown", late=False)], []),
}


def pair_name(value: Any) -> str:
    return value.name.lower() if isinstance(value, (State, Kind)) else ""


@pytest.mark.parametrize(("state", "kind"), list(itertools.product(State, Kind)), ids=pair_name)
def test_every_pair_of_state_and_message_leads_where_the_table_says(state: State, kind: Kind) -> None:
    conversation = in_state(state)
    if kind is Kind.ANSWER and state not in AWAITED:
        # without an outstanding request no message is its answer
        assert (state, kind) not in MOVES
        return
    message = message_of(kind, conversation)
    expected = OUTCOMES[state, kind]
    assert ((state, kind) in MOVES) == (expected is not BREACH)
    if expected is BREACH:
        with pytest.raises(WireError) as raised:
            hear(conversation, message)
        assert message.get("method", "an answer") in raised.value.reason
        return
    following, events, codes = expected
    assert hear(conversation, message) == events
    assert conversation.state is following
    assert [reply["error"]["code"] for reply in sent(conversation) if "error" in reply] == codes


@pytest.mark.parametrize("state", State, ids=pair_name)
def test_a_stray_answer_is_fatal_in_every_state_and_stays_so(state: State) -> None:
    conversation = in_state(state)
    for message in (message_of(Kind.STRAY, conversation), INITIALIZED):
        with pytest.raises(WireError, match="an answer to no outstanding request came"):
            hear(conversation, message)


def test_initialize_says_who_we_are_and_what_we_expect() -> None:
    conversation = ExtensionConversation(DEFAULT)
    conversation.initialize(workspace="/a/ü", version="1.2.3")
    assert sent(conversation) == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "0.1",
                "client": {"name": "latch", "version": "1.2.3"},
                "workspace": "/a/ü",
                "permissionContract": "cooperative-audit",
            },
        }
    ]
    assert sent(conversation) == []


def test_the_answer_to_initialize_is_followed_by_initialized() -> None:
    conversation = in_state(State.INITIALIZING)
    hear(conversation, {**INITIALIZED, "result": {"protocolVersion": "0.1", "capabilities": {}}, "more": 1})
    assert sent(conversation) == [{"jsonrpc": "2.0", "method": "initialized", "params": {}}]
    with pytest.raises(WireError, match="an answer to no outstanding request came"):
        hear(conversation, INITIALIZED)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({}, "has no protocolVersion"),
        (None, "has no protocolVersion"),
        ("0.1", "has no protocolVersion"),
        ({"protocolVersion": None}, "has no protocolVersion"),
        ({"protocolVersion": "0.2"}, 'protocolVersion is "0.2"'),
        ({"protocolVersion": "0.1 "}, 'protocolVersion is "0.1 "'),
        ({"protocolVersion": 0.1}, "protocolVersion is something else"),
        ({"protocolVersion": "9" * 301}, f'protocolVersion is "{"9" * 300}..."; '),
    ],
)
def test_only_the_exact_version_is_taken(result: Json, shown: str) -> None:
    conversation = in_state(State.INITIALIZING)
    with pytest.raises(WireError) as raised:
        hear(conversation, {**INITIALIZED, "result": result})
    assert shown in raised.value.reason and 'must be "0.1"' in raised.value.reason
    assert sent(conversation) == []


@pytest.mark.parametrize("id", ["1", 1.0, True, None, [1]])
def test_an_id_of_another_type_is_another_id(id: Json) -> None:
    with pytest.raises(WireError, match="no outstanding request"):
        hear(in_state(State.INITIALIZING), {**INITIALIZED, "id": id})


@pytest.mark.parametrize("id", IDS, ids=repr)
@pytest.mark.parametrize("method", ["tool.register", "peer/unknown"])
def test_the_peers_ids_of_every_json_type_come_back_unchanged(method: str, id: Json) -> None:
    conversation = in_state(State.REGISTERING)
    hear(conversation, request(method, {"name": "t"}, id=id))
    (answer,) = sent(conversation)
    assert json.dumps(answer["id"]) == json.dumps(id)
    if method == "tool.register":
        assert answer["result"] == {"ok": True}
    else:
        assert answer["error"] == {"code": -32601, "message": "no such method"}


def test_the_ids_of_both_directions_are_separate() -> None:
    conversation = in_state(State.CALLING)
    assert hear(conversation, request("peer/unknown", id=2)) == []
    assert hear(conversation, {"jsonrpc": "2.0", "id": 2, "result": "mine"}) == [Answered("mine")]


def test_our_ids_count_up_and_shutdown_takes_the_next() -> None:
    conversation = in_state(State.READY)
    for number in (2, 3):
        conversation.request("tool.execute", {"name": "t", "arguments": {}})
        assert hear(conversation, {"jsonrpc": "2.0", "id": number, "result": 0}) == [Answered(0)]
    conversation.shutdown()
    assert [message["id"] for message in sent(conversation)] == [2, 3, 4]


@pytest.mark.parametrize("error", [{"code": -1, "message": "no"}, "text", 5, False, [], {"a": 1}], ids=repr)
@pytest.mark.parametrize("state", [State.INITIALIZING, State.CALLING, State.STOPPING], ids=pair_name)
def test_any_error_that_is_not_null_refuses_the_request(state: State, error: Json) -> None:
    conversation = in_state(state)
    message = {"jsonrpc": "2.0", "id": AWAITED[state], "error": error}
    assert hear(conversation, message) == [Refused(error)]


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}], ids=repr)
def test_every_json_value_is_a_result_null_included(result: Json) -> None:
    conversation = in_state(State.CALLING)
    assert hear(conversation, {"jsonrpc": "2.0", "id": 2, "result": result}) == [Answered(result)]
    assert conversation.state is State.READY


@pytest.mark.parametrize("state", [state for state in State if state is not State.READY], ids=pair_name)
def test_requests_are_made_only_when_it_is_ready(state: State) -> None:
    conversation = in_state(state)
    for speak in (lambda: conversation.request("tool.execute", {}), conversation.shutdown):
        with pytest.raises(WireError, match="cannot be sent in state"):
            speak()
    if state is not State.SPAWNED:
        with pytest.raises(WireError, match="initialize cannot be sent"):
            conversation.initialize(workspace="/w", version="1")
    assert sent(conversation) == [] and conversation.state is state


def test_what_cannot_be_encoded_changes_nothing() -> None:
    conversation = in_state(State.READY)
    for params in ({"a": {1, 2}}, {"a": float("nan")}, {"a": "\ud800"}):
        with pytest.raises(WireError):
            conversation.request("tool.execute", params)
    assert conversation.state is State.READY and sent(conversation) == []
    conversation.request("tool.execute", {})
    assert sent(conversation)[0]["id"] == 2


def test_our_own_frames_keep_the_body_limit() -> None:
    limits = replace(DEFAULT, frame=FrameLimits(max_body_bytes=200))
    conversation = ExtensionConversation(limits)
    with pytest.raises(WireError) as raised:
        conversation.initialize(workspace="/" + "w" * 200, version="1")
    assert raised.value.limit == "max_body_bytes"
    assert conversation.state is State.SPAWNED and conversation.take_output() == b""


def test_cancel_names_the_outstanding_request_and_says_nothing_without_one() -> None:
    conversation = in_state(State.CALLING)
    conversation.cancel()
    assert sent(conversation) == [{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}}]
    idle = in_state(State.READY)
    idle.cancel()
    assert sent(idle) == []


def test_an_invalid_registration_is_answered_and_ends_the_conversation() -> None:
    conversation = in_state(State.REGISTERING)
    with pytest.raises(WireError) as raised:
        hear(conversation, request("tool.register", {}, id="mine"), READY)
    assert raised.value.reason == "tool.register: name is missing"
    assert sent(conversation) == [
        {
            "jsonrpc": "2.0",
            "id": "mine",
            "error": {"code": -32602, "message": "tool.register: name is missing"},
        }
    ]
    with pytest.raises(WireError, match="name is missing"):
        conversation.receive(b"")


def test_an_invalid_registration_without_an_id_is_not_answered() -> None:
    conversation = in_state(State.REGISTERING)
    with pytest.raises(WireError, match="hook.guard: action is missing"):
        hear(conversation, {"jsonrpc": "2.0", "method": "hook.guard", "params": {}})
    assert sent(conversation) == []


def test_nothing_registers_after_ready() -> None:
    conversation = in_state(State.READY)
    events = hear(conversation, TOOL, {"jsonrpc": "2.0", "method": "hook.guard", "params": {"action": "*"}})
    assert events == [Ignored("tool.register", late=True), Ignored("hook.guard", late=True)]
    (answer,) = sent(conversation)
    assert answer["id"] == 7 and answer["error"]["code"] == -32600
    assert conversation.registrations.tools == () and conversation.registrations.guards == ()


@pytest.mark.parametrize("id", [{}, {"id": 3}, {"id": None}])
def test_ready_is_taken_with_or_without_an_id_and_never_answered(id: dict[str, Json]) -> None:
    conversation = in_state(State.REGISTERING)
    assert hear(conversation, {**READY, **id}) == [Became(State.READY)]
    assert sent(conversation) == []


def test_a_reserved_command_is_answered_as_an_invalid_registration() -> None:
    conversation = ExtensionConversation(DEFAULT, reserved=("help",))
    conversation.initialize(workspace="/w", version="1")
    hear(conversation, INITIALIZED)
    conversation.take_output()
    with pytest.raises(WireError, match='command.register: name "Help" is that of a built-in command'):
        hear(conversation, request("command.register", {"name": "Help"}))
    assert [reply["error"]["code"] for reply in sent(conversation)] == [-32602]


def test_a_method_that_came_too_early_is_named() -> None:
    for method in ("tool.register", "ready"):
        with pytest.raises(WireError) as raised:
            hear(ExtensionConversation(DEFAULT), {"jsonrpc": "2.0", "method": method})
        assert raised.value.reason == f'"{method}" came before the handshake was complete'


def test_the_allow_list_reaches_the_registrations() -> None:
    conversation = ExtensionConversation(DEFAULT, allow=("guard:child.spawn",))
    conversation.initialize(workspace="/w", version="1")
    hear(conversation, INITIALIZED, request("hook.guard", {"action": "child.spawn"}), READY)
    assert conversation.registrations.guards_action("child.spawn")


# The whole of one good conversation, and what a host sees of it however it is cut.

SCRIPT: list[tuple[str, Json]] = [
    ("before anything", {"jsonrpc": "2.0", "method": "log", "params": {"text": "early ü"}}),
    ("initialize", INITIALIZED),
    ("registers", TOOL),
    ("registers", {"jsonrpc": "2.0", "method": "hook.observe", "params": {"event": "*"}}),
    ("asks", request("peer/unknown", id=[1])),
    ("ready", READY),
    ("late", TOOL),
]


def story(pieces: list[bytes]) -> tuple[list[Event], list[Json]]:
    conversation = ExtensionConversation(DEFAULT)
    conversation.initialize(workspace="/w", version="1")
    events: list[Event] = []
    for piece in pieces:
        events += conversation.receive(piece)
    assert [tool.name for tool in conversation.registrations.tools] == ["t"]
    return events, sent(conversation)


def test_any_cut_of_the_same_bytes_tells_the_same_story() -> None:
    data = b"".join(frame(message) for _, message in SCRIPT)
    expected = [
        Ignored("log", late=False),
        Became(State.REGISTERING),
        Became(State.READY),
        Ignored("tool.register", late=True),
    ]
    told = {label: story(pieces) for label, pieces in feedings(data)}
    for label, (events, output) in told.items():
        assert events == expected, label
        assert output == told["whole"][1], label
    assert [message.get("method", message.get("id")) for message in told["whole"][1]] == [
        "initialize",
        "initialized",
        7,
        [1],
        7,
    ]


def test_any_cut_of_a_broken_stream_ends_at_the_same_place() -> None:
    data = b"".join(frame(message) for _, message in SCRIPT) + b"oops, a print\n" + frame(READY)
    for label, pieces in feedings(data):
        conversation = ExtensionConversation(DEFAULT)
        conversation.initialize(workspace="/w", version="1")
        with pytest.raises(WireError, match="oops, a print"):
            for piece in pieces:
                conversation.receive(piece)
        assert conversation.state is State.READY, label


def test_the_trace_sees_every_body_both_ways_in_order() -> None:
    seen: list[tuple[str, Json]] = []
    conversation = ExtensionConversation(
        DEFAULT, trace=lambda way, body: seen.append((way, json.loads(body)))
    )
    conversation.initialize(workspace="/w", version="1")
    hear(conversation, INITIALIZED, TOOL, READY)
    assert [(way, message.get("method", message.get("id"))) for way, message in seen] == [
        ("->", "initialize"),
        ("<-", 1),
        ("->", "initialized"),
        ("<-", "tool.register"),
        ("->", 7),
        ("<-", "ready"),
    ]


def test_the_trace_sees_the_frame_that_broke_the_protocol() -> None:
    seen: list[bytes] = []
    conversation = ExtensionConversation(DEFAULT, trace=lambda way, body: seen.append(body))
    with pytest.raises(WireError):
        conversation.receive(b"Content-Length: 4\r\n\r\n{no}")
    assert seen == [b"{no}"]
