"""mcp/connection.py: start, negotiation and listing over a transport in memory, and what failures leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from latch.errors import (
    Cancelled,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    PeerRefused,
)
from latch.limits import DEFAULT
from latch.mcp.connection import Connection
from latch.mcp.conversation import McpConversation
from latch.system.scope import Scope
from tests.support.mcp_hosted import PEER, ScriptedTransport, answers

Json = Any

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
NO_METHOD = {"error": {"code": -32601, "message": "no method"}}


def connection(*script: Any, redact: Any = None, **limits: Any) -> tuple[Connection, ScriptedTransport]:
    known = replace(DEFAULT, mcp=replace(DEFAULT.mcp, **limits))
    transport = ScriptedTransport(*script)
    told = McpConversation(known, client_version="9")
    return Connection(transport, told, server="one", limits=known, redact=redact), transport


def opened(*script: Any, seconds: float | None = 30, **how: Any) -> tuple[Connection, ScriptedTransport]:
    one, transport = connection(*script, **how)
    one.open(Scope.root(seconds).within(None, peer=PEER, stage="start"))
    return one, transport


def failed(*script: Any, **how: Any) -> tuple[LatchError, ScriptedTransport]:
    """Open what must fail; return why. Nothing is left of it."""
    one, transport = connection(*script, **how)
    with pytest.raises(LatchError) as raised:
        one.open(Scope.root(30).within(None, peer=PEER, stage="start"))
    assert transport.log[-1] == "kill"
    return raised.value, transport


def hello(version: Json = "2025-11-25", **members: Json) -> Json:
    return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, **members}}


def found(*versions: str, **members: Json) -> Json:
    return {"result": {"supportedVersions": list(versions), "capabilities": {"tools": {}}, **members}}


def page(*names: str, **members: Json) -> Json:
    return {
        "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **members}
    }


def methods(transport: ScriptedTransport) -> list[str]:
    return [said["method"] for said in transport.said]


# -- negotiation -------------------------------------------------------------------------------------


def test_a_modern_server_is_asked_for_its_version_and_its_tools_and_nothing_else() -> None:
    one, transport = opened(*answers("a", "b"))
    assert transport.log == ["start", "server/discover", "tools/list"]
    assert (one.version, {tool.name for tool in one.catalogue.tools}) == (MODERN, {"a", "b"})
    assert one.notes == [] and list(one.timings) == ["start", "server/discover", "tools/list"]


@pytest.mark.parametrize("version", LEGACY)
def test_a_legacy_server_is_initialised_in_any_of_its_versions(version: str) -> None:
    one, transport = opened(*answers("a", version=version))
    assert transport.log == [
        "start",
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]
    assert one.version == version
    assert transport.said[1]["params"]["protocolVersion"] == "2025-11-25"
    assert "_meta" not in transport.said[3]["params"]


@pytest.mark.parametrize("code", [-32600, -32601, -32602, -32603, -32000, -32001, -32004, 0])
def test_an_error_that_proves_nothing_falls_back(code: int) -> None:
    one, transport = opened({"error": {"code": code, "message": "m"}}, hello(), page())
    assert one.version == "2025-11-25" and "initialize" in transport.log


@pytest.mark.parametrize(
    "answer", [{"result": {}}, found(), found("2025-11-25"), found("2099-01-01"), {"result": None}]
)
def test_a_result_that_is_no_discovery_falls_back(answer: Json) -> None:
    one, transport = opened(answer, hello(), page())
    assert one.version == "2025-11-25"


@pytest.mark.parametrize("members", [{}, {"id": None}])
@pytest.mark.parametrize(
    ("code", "data", "words"),
    [
        (-32020, None, "it says that our header fields do not match the message"),
        (-32021, {"requiredCapabilities": {"sampling": {}}}, "it requires of its clients sampling"),
        (-32022, {"supported": ["2025-11-25"]}, "it supports no version of ours"),
        (-32022, None, "it supports no version of ours"),
    ],
)
def test_a_recognised_modern_error_never_falls_back(members: Json, code: int, data: Json, words: str) -> None:
    error, transport = failed({**members, "error": {"code": code, "message": "m", "data": data}})
    assert isinstance(error, PeerRefused) and words in error.reason
    assert (error.peer, error.stage) == (PEER, "server/discover")
    assert error.data["code"] == code
    assert methods(transport) == ["server/discover"]


def test_an_unsupported_version_is_probed_once_more_with_the_one_that_is_named() -> None:
    refusal = {"error": {"code": -32022, "message": "m", "data": {"supported": [MODERN, "2025-11-25"]}}}
    one, transport = opened(refusal, *answers("a"))
    assert one.version == MODERN
    assert methods(transport) == ["server/discover", "server/discover", "tools/list"]
    error, transport = failed(refusal, refusal)
    assert methods(transport) == ["server/discover", "server/discover"]
    assert isinstance(error, PeerRefused) and "refuses the version that it names itself" in error.reason


def test_a_server_that_names_versions_without_end_is_quoted_in_part() -> None:
    data = {"supported": ["x" * 100] * 1000}
    error, _ = failed({"error": {"code": -32022, "message": "m", "data": data}})
    assert len(str(error)) < 500 and "without initialize we speak 2026-07-28" in error.reason


def test_a_server_that_the_probe_ended_is_started_once_more_and_initialised() -> None:
    def lost(call: Any) -> None:
        transport.failure = PeerGone("exited", peer=PEER, stage="server/discover")

    one, transport = connection(lost, hello(), page("a"))
    one.open(Scope.root(30))
    assert transport.log == [
        "start",
        "server/discover",
        "start",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]
    (note,) = one.notes
    assert note.startswith("it was started a second time, because it did not answer server/discover")
    assert list(one.timings) == ["start", "server/discover", "restart", "initialize", "tools/list"]


@pytest.mark.parametrize("version", LEGACY)
def test_a_server_that_is_known_to_be_legacy_is_not_probed_again(version: str) -> None:
    one, transport = connection(*answers("a", version=version)[1:])
    one.open(Scope.root(30), version=version)
    assert methods(transport) == ["initialize", "notifications/initialized", "tools/list"]
    assert one.version == version


def test_a_server_that_is_known_to_be_modern_is_probed_all_the_same() -> None:
    one, transport = connection(*answers("a"))
    one.open(Scope.root(30), version=MODERN)
    assert methods(transport) == ["server/discover", "tools/list"]


def test_an_unanswered_probe_that_ended_nothing_is_followed_by_initialize() -> None:
    _, transport = opened(None, hello(), page())
    assert transport.log.count("start") == 1


def test_the_probe_waits_ten_seconds_at_most() -> None:
    _, transport = opened(*answers(), seconds=None)
    assert transport.scopes[1].seconds == DEFAULT.mcp.probe_seconds == 10


def test_the_probe_waits_half_of_what_is_left_of_the_start_at_most() -> None:
    now = [0.0]

    def late(call: Any) -> Json:
        return found(MODERN)

    one, transport = connection(late, page())
    scope = Scope.root(6, clock=lambda: now[0])
    start = transport.start

    def slow_start(within: Scope) -> None:
        now[0] += 2.0
        start(within)

    transport.start = slow_start  # type: ignore[method-assign]
    one.open(scope)
    assert transport.scopes[1].seconds == 2.0


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("2026-07-28", '"2026-07-28"'),
        ("1999-01-01", '"1999-01-01"'),
        ("x" * 1000, '"' + "x" * 300 + '..."'),
        (None, "none"),
        (20251125, "none"),
        (["2025-11-25"], "none"),
    ],
)
def test_a_version_that_we_do_not_speak_is_an_error_with_both(version: Json, shown: str) -> None:
    error, transport = failed(NO_METHOD, hello(version))
    assert isinstance(error, PeerProtocolError)
    assert error.reason == (
        f"it answered with the protocol version {shown}; ours are "
        "2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"
    )
    assert (error.peer, error.stage) == (PEER, "initialize")
    assert "notifications/initialized" not in transport.log


@pytest.mark.parametrize("result", [None, [], "x"])
def test_an_answer_to_initialize_that_is_no_object_is_an_error(result: Json) -> None:
    error, _ = failed(NO_METHOD, {"result": result})
    assert isinstance(error, PeerProtocolError) and "protocol version none" in error.reason


def test_an_error_in_answer_to_initialize_is_told() -> None:
    error, _ = failed(NO_METHOD, {"error": {"code": -32000, "message": "not today"}})
    assert str(error) == f'{PEER}: initialize: answered with an error: "not today"'


# -- identity ----------------------------------------------------------------------------------------

INFO = "io.modelcontextprotocol/serverInfo"


@pytest.mark.parametrize(
    ("members", "info"),
    [
        ({"_meta": {INFO: {"name": "a"}}}, {"name": "a"}),
        ({"serverInfo": {"name": "b"}}, {"name": "b"}),
        ({"_meta": {INFO: {"name": "a"}}, "serverInfo": {"name": "b"}}, {"name": "a"}),
        ({"_meta": {INFO: "text"}, "serverInfo": {"name": "b"}}, {"name": "b"}),
        ({"_meta": [], "serverInfo": "text"}, {}),
        ({}, {}),
    ],
)
def test_what_a_server_says_of_itself_is_kept_and_not_required(members: Json, info: Json) -> None:
    assert opened(found(MODERN, **members), page())[0].server_info == info
    assert opened(NO_METHOD, hello(**members), page())[0].server_info == info


@pytest.mark.parametrize("capabilities", [{}, None, {"tools": None}, {"prompts": {}}, []])
def test_a_server_without_tools_is_not_asked_for_them(capabilities: Json) -> None:
    for script in (
        (found(MODERN, capabilities=capabilities),),
        (NO_METHOD, hello(capabilities=capabilities)),
    ):
        one, transport = opened(*script)
        assert "tools/list" not in transport.log
        assert one.catalogue.tools == () and one.notes == ["it says that it has no tools"]


# -- the catalogue -----------------------------------------------------------------------------------


def test_pages_are_asked_for_until_there_is_none() -> None:
    one, transport = opened(
        found(MODERN), page("a", nextCursor="x"), page("b", nextCursor=""), page("c", nextCursor=None)
    )
    asked = [said["params"].get("cursor") for said in transport.said[1:]]
    assert asked == [None, "x", ""]
    assert {tool.name for tool in one.catalogue.tools} == {"a", "b", "c"}


def test_a_repeated_cursor_is_the_servers_error_and_nothing_is_left() -> None:
    error, transport = failed(found(MODERN), page("a", nextCursor="x"), page("b", nextCursor="x"))
    assert isinstance(error, PeerProtocolError)
    assert str(error) == f'{PEER}: tools/list: the cursor "x" came a second time'


def test_a_duplicate_tool_is_the_servers_error() -> None:
    error, _ = failed(found(MODERN), page("a", "a"))
    assert str(error) == f'{PEER}: tools/list: the tool "a" is listed twice'


def test_one_tool_too_many_is_a_limit() -> None:
    error, _ = failed(found(MODERN), page("a", "b", "c"), max_tools=2)
    assert isinstance(error, PeerLimit) and (error.limit, error.amount) == ("max_tools", 2)


def test_an_error_in_answer_to_tools_list_is_told() -> None:
    error, _ = failed(found(MODERN), {"error": {"code": -32602, "message": "bad cursor"}})
    assert isinstance(error, PeerRefused)
    assert str(error) == f'{PEER}: tools/list: answered with an error: "bad cursor"'


@pytest.mark.parametrize(("version", "left"), [(MODERN, 0), ("2025-11-25", 1)])
def test_header_annotations_are_checked_in_the_modern_era_alone(version: str, left: int) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    script = (*answers(version=version)[:-1], {"result": {"tools": [{"name": "t", "inputSchema": schema}]}})
    catalogue = opened(*script)[0].catalogue
    assert (len(catalogue.tools), len(catalogue.skipped)) == (left, 1 - left)


def test_t27_what_is_listed_is_redacted() -> None:
    one, _ = opened(
        found(MODERN),
        {"result": {"tools": [{"name": "t", "description": "secret", "inputSchema": {"type": "object"}}]}},
        redact=lambda value: {**value, "description": "[redacted]"},
    )
    assert one.catalogue.tools[0].description == "one/t: [redacted]"


# -- a call ------------------------------------------------------------------------------------------


def test_a_call_names_its_tool_in_the_body_and_for_the_header() -> None:
    one, _ = opened(*answers("a"))
    call = one.call_of("a", {"x": 1}, (("Mcp-Param-X", "1"),))
    assert (call.method, call.name, call.headers) == ("tools/call", "a", (("Mcp-Param-X", "1"),))
    assert b'"name":"a","arguments":{"x":1}' in call.body


# -- failure -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize(
    "error",
    [
        PeerGone("exited", peer=PEER, stage="x"),
        DeadlineMissed("late", seconds=1, peer=PEER, stage="x"),
        Cancelled("SIGINT"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_ends_the_start_leaves_nothing(at: int, error: BaseException) -> None:
    steps: list[Any] = list(answers("a", version="2025-11-25"))
    steps[at] = error
    one, transport = connection(*steps)
    with pytest.raises(type(error)) as raised:
        one.open(Scope.root(30))
    assert raised.value is error and transport.log[-1] == "kill" and len(transport.said) <= at + 2


def test_a_start_that_fails_leaves_nothing() -> None:
    one, transport = connection()
    scope = Scope.root(30)
    scope.cancel("SIGINT")

    def start(within: Scope) -> None:
        within.check()

    transport.start = start  # type: ignore[method-assign]
    with pytest.raises(Cancelled) as raised:
        one.open(scope)
    assert raised.value.stage == "start" and transport.log == ["kill"]


@pytest.mark.parametrize(("at", "stage"), [(0, "server/discover"), (1, "initialize"), (2, "tools/list")])
def test_a_missed_deadline_names_its_stage(at: int, stage: str) -> None:
    steps: list[Any] = list(answers("a", version="2025-11-25"))
    now = [0.0]
    step = steps[at]

    def late(call: Any) -> Json:
        now[0] += 100.0
        transport.scopes[-1].check()
        return step(call)

    steps[at] = late
    one, transport = connection(*steps)
    with pytest.raises(DeadlineMissed) as raised:
        one.open(Scope.root(5, clock=lambda: now[0]).within(None, peer=PEER, stage="start"))
    assert (raised.value.peer, raised.value.stage) == (PEER, stage)
    assert isinstance(raised.value, PeerError) and "no answer within" in raised.value.reason
