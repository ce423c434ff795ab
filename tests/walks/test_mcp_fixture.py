"""The MCP fixture server is a strict and good server in each era, over each transport.

It is driven raw, so that tests of the client may believe it. ``test_mcp_fixture_sins.py`` shows its sins.
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.mcp_drivers import LEGACY, META, MODERN, PREFIX, HttpDriver, driven, initialize_params
from tests.support.mcp_peers import HttpPeer, LinePeer, read_record, told_methods, wait_until
from tests.support.mcp_schemas import OfficialSchema

TRANSPORTS = ("stdio", "http")
ECHO = {"name": "echo", "arguments": {"a": 1}}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_modern_server_answers_without_a_handshake(transport: str) -> None:
    with driven(transport) as driver:
        discovered = driver.exchange("server/discover")[-1]["result"]
        assert discovered["supportedVersions"] == [MODERN]
        assert driver.structured("echo", a=1) == {"a": 1}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("lack", ["_meta", PREFIX + "protocolVersion", PREFIX + "clientCapabilities"])
def test_a_modern_server_refuses_a_request_without_its_meta(transport: str, lack: str) -> None:
    meta = {name: value for name, value in META.items() if name != lack}
    with driven(transport) as driver:
        params = {"_meta": {} if lack == "_meta" else meta}
        headers = (
            {"MCP_Protocol_Version": None}
            if transport == "http" and PREFIX + "protocolVersion" not in params["_meta"]
            else {}
        )
        (answer,) = driver.exchange("tools/list", params, **headers)
        assert answer["error"]["code"] == -32602
        assert transport == "stdio" or driver.reply.status == 400


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_modern_server_names_what_it_speaks(transport: str) -> None:
    with driven(transport) as driver:
        meta = {**META, PREFIX + "protocolVersion": "2027-01-01"}
        headers = {"MCP_Protocol_Version": "2027-01-01"} if transport == "http" else {}
        (answer,) = driver.exchange("server/discover", {"_meta": meta}, **headers)
        assert answer["error"]["code"] == -32022
        assert answer["error"]["data"] == {"supported": [MODERN], "requested": "2027-01-01"}
        assert transport == "stdio" or driver.reply.status == 400


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("method", ["ping", "initialize", "resources/list"])
def test_a_modern_server_knows_no_other_method(transport: str, method: str) -> None:
    with driven(transport) as driver:
        (answer,) = driver.exchange(method)
        assert answer["error"]["code"] == -32601
        assert transport == "stdio" or driver.reply.status == 404


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("asked", [*LEGACY, "1999-01-01"])
def test_a_legacy_server_agrees_on_a_version_it_speaks(transport: str, asked: str) -> None:
    with driven(transport, era="legacy", begins=False) as driver:
        answer = driver.begin(asked)
        assert answer["result"]["protocolVersion"] == (asked if asked in LEGACY else LEGACY[0])
        assert driver.exchange("ping")[-1]["result"] == {}
        assert driver.exchange("server/discover")[-1]["error"]["code"] == -32601


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_legacy_server_speaks_the_versions_it_was_told(transport: str) -> None:
    told = ("--version", "2025-03-26", "2024-11-05")
    with driven(transport, *told, era="legacy", begins=False) as driver:
        assert driver.begin()["result"]["protocolVersion"] == "2025-03-26"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_legacy_server_wants_both_steps_of_the_handshake(transport: str) -> None:
    with driven(transport, era="legacy", begins=False) as driver:
        assert driver.exchange("tools/list")[-1]["error"]["code"] == -32600
        driver.exchange("initialize", initialize_params(LEGACY[0]))
        assert driver.exchange("tools/list")[-1]["error"]["code"] == -32600
        driver.notify("notifications/initialized")
        assert "result" in driver.exchange("tools/list")[-1]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_dual_server_serves_each_request_by_how_it_looks(transport: str) -> None:
    with driven(transport, era="dual") as driver:
        driver.era = "modern"
        assert driver.structured("echo", a=1) == {"a": 1}
        driver.era = "legacy"
        driver.begin()
        assert "resultType" not in driver.call("echo", a=1)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("version", [MODERN, *LEGACY])
def test_what_a_good_server_says_is_valid(transport: str, version: str) -> None:
    schema = OfficialSchema(version)
    era = "modern" if version == MODERN else "legacy"
    with driven(transport, era=era, begins=False) as driver:
        first = driver.exchange("server/discover")[-1] if era == "modern" else driver.begin(version)
        assert (
            schema.faults("DiscoverResult" if era == "modern" else "InitializeResult", first["result"]) == []
        )
        listed = driver.exchange("tools/list")[-1]["result"]
        assert schema.faults("ListToolsResult", listed) == []
        for name in (tool["name"] for tool in listed["tools"] if tool["name"] != "refuse"):
            told = driver.exchange("tools/call", {"name": name, "arguments": {"bytes": 900, "seconds": 0}})
            assert schema.faults("CallToolResult", told[-1]["result"]) == []
            assert [schema.faults("ServerNotification", one) for one in told[:-1]] == [[]] * (len(told) - 1)


def test_official_schemas_are_not_satisfied_by_anything() -> None:
    assert OfficialSchema(MODERN).faults("CallToolResult", {"content": 5}) != []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tools_do_what_they_are_for(transport: str) -> None:
    with driven(transport) as driver:
        assert driver.structured("echo", a="\u2028") == {"a": "\u2028"}
        assert driver.structured("add", a=1, b=2) == {"sum": 3}
        assert driver.call("add", a=1)["isError"] is True
        assert driver.call("fail", message="no")["content"][0]["text"] == "no"
        refused = driver.exchange("tools/call", {"name": "refuse", "arguments": {"message": "no"}})[-1]
        assert refused["error"] == {"code": -32000, "message": "no", "data": {"tool": "refuse"}}
        unknown = driver.exchange("tools/call", {"name": "none"})[-1]
        assert unknown["error"]["code"] == -32602
        kinds = [block["type"] for block in driver.call("blocks")["content"]]
        assert kinds == ["text", "image", "audio", "resource_link", "resource", "resource"]
        assert driver.structured("count")["calls"] == {
            "echo": 1,
            "add": 2,
            "fail": 1,
            "refuse": 1,
            "blocks": 1,
            "count": 1,
        }


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("version", "kinds"),
    [("2025-03-26", {"text", "image", "audio", "resource"}), ("2024-11-05", {"text", "image", "resource"})],
)
def test_an_old_version_knows_fewer_blocks_and_nothing_structured(
    transport: str, version: str, kinds: set[str]
) -> None:
    with driven(transport, era="legacy", begins=False) as driver:
        driver.begin(version)
        assert {block["type"] for block in driver.call("blocks")["content"]} == kinds
        assert "structuredContent" not in driver.call("add", a=1, b=2)
        assert not any(
            "outputSchema" in tool for tool in driver.exchange("tools/list")[-1]["result"]["tools"]
        )


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_progress_is_told_under_the_token_that_was_given(transport: str, era: str) -> None:
    with driven(transport, era=era) as driver:
        meta = {**(META if era == "modern" else {}), "progressToken": "token"}
        told = driver.exchange("tools/call", {"name": "progress", "arguments": {"count": 2}, "_meta": meta})
        assert [one["params"]["progressToken"] for one in told[:-1]] == ["token"] * 2
        untold = driver.exchange("tools/call", {"name": "progress", "arguments": {"count": 2}})
        assert [one["method"] for one in untold[:-1]] == ["notifications/message"] * 2


@pytest.mark.parametrize("size", [500, 100_000, 4 * 1024 * 1024])
def test_a_big_answer_is_one_line_of_so_many_bytes(size: int) -> None:
    with driven("stdio") as driver:
        driver.ask("tools/call", {"name": "big", "arguments": {"bytes": size}})
        assert len(driver.peer.read_body()) == size


@pytest.mark.parametrize("answer", ["json", "sse"])
def test_a_big_answer_is_one_body_or_one_event_of_so_many_bytes(answer: str) -> None:
    with driven("http", "--answer", answer) as driver:
        driver.exchange("tools/call", {"name": "big", "arguments": {"bytes": 100_000}})
        around = 0 if answer == "json" else len(b"event: message\ndata: \n\n")
        assert len(driver.reply.body) == 100_000 + around


def test_an_answer_cannot_be_smaller_than_it_is() -> None:
    with driven("stdio") as driver:
        assert (
            driver.exchange("tools/call", {"name": "big", "arguments": {"bytes": 5}})[-1]["error"]["code"]
            == -32602
        )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_further_tools_come_in_pages(transport: str) -> None:
    with driven(transport, "--tools", "5", "--page-size", "6") as driver:
        pages = [driver.exchange("tools/list")[-1]["result"]]
        while "nextCursor" in pages[-1]:
            pages.append(driver.exchange("tools/list", {"cursor": pages[-1]["nextCursor"]})[-1]["result"])
        names = [tool["name"] for page in pages for tool in page["tools"]]
        assert [len(page["tools"]) for page in pages] == [6, 6, 3]
        assert len(set(names)) == 15 and names[-1] == "extra-005"
        assert driver.structured("extra-005", a=1) == {"a": 1}
        assert driver.exchange("tools/list", {"cursor": "none"})[-1]["error"]["code"] == -32602


def test_environment_tells_names_and_whether_the_workspace_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATCH_WORKSPACE", str(tmp_path / "absent"))
    with driven("stdio") as driver:
        told = driver.structured("environment")
        assert (told["cwd"], told["workspace"], told["writable"]) == (
            os.getcwd(),
            str(tmp_path / "absent"),
            False,
        )
        assert "LATCH_WORKSPACE" in told["names"] and str(tmp_path) not in told["names"]
    monkeypatch.setenv("LATCH_WORKSPACE", str(tmp_path))
    with driven("stdio") as driver:
        assert driver.structured("environment")["writable"] is True
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_cancelled_call_gets_no_answer(era: str, ms: float) -> None:
    with driven("stdio", era=era) as driver:
        slow = driver.ask("tools/call", {"name": "slow", "arguments": {"seconds": 30}})
        driver.notify("notifications/cancelled", {"requestId": slow["id"]})
        assert driver.structured("echo", a=1) == {"a": 1}
        with pytest.raises(TimeoutError):
            driver.peer.read(seconds=300 * ms)


def test_calls_are_served_side_by_side(ms: float) -> None:
    with driven("stdio") as driver:
        slow = driver.ask("tools/call", {"name": "slow", "arguments": {"seconds": 1000 * ms}})
        assert driver.structured("echo", a=1) == {"a": 1}
        assert driver.peer.read()["id"] == slow["id"]


@pytest.mark.parametrize("bad", [b"{\n", b"[]\n", b"5\n"])
def test_a_line_that_is_no_message_is_answered_without_an_id(bad: bytes) -> None:
    with driven("stdio") as driver:
        driver.peer.write(b"\n" + bad)
        answer = driver.peer.read()
        assert answer["id"] is None and answer["error"]["code"] in (-32700, -32600)


def test_an_id_may_be_used_once() -> None:
    with driven("stdio") as driver:
        driver.structured("echo")
        driver.last_id = 0
        assert driver.exchange("tools/list")[-1]["error"]["code"] == -32600


def test_the_end_of_its_input_is_its_own() -> None:
    with driven("stdio") as driver:
        assert driver.peer.end() == 0
    with HttpPeer() as peer:
        assert peer.end() == 0


def test_nothing_outlives_the_alarm() -> None:
    with LinePeer("--alarm", "1", "--misbehave", "never-closes") as peer:
        assert peer.wait() == -signal.SIGALRM


# HTTP


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Mcp_Method", None),
        ("Mcp_Method", "tools/list"),
        ("Mcp_Name", None),
        ("Mcp_Name", "Echo"),
        ("MCP_Protocol_Version", None),
        ("MCP_Protocol_Version", "2025-11-25"),
    ],
)
def test_a_modern_header_that_differs_is_refused(header: str, value: str | None) -> None:
    with driven("http") as driver:
        (answer,) = driver.exchange("tools/call", ECHO, **{header: value})
        assert (driver.reply.status, answer["error"]["code"], answer["id"]) == (400, -32020, 1)


ARGUMENTS = {"text": "Hello, \u4e16\u754c", "number": 42, "flag": True, "nested": {"deep": ""}, "plain": "x"}
PARAMETERS = {
    "Mcp_Param_Text": "=?base64?SGVsbG8sIOS4lueVjA==?=",
    "Mcp_Param_Number": "42",
    "Mcp_Param_Flag": "true",
    "Mcp_Param_Deep": "",
}


def test_headers_that_mirror_arguments_are_told() -> None:
    with driven("http") as driver:
        told = driver.exchange("tools/call", {"name": "headers", "arguments": ARGUMENTS}, **PARAMETERS)[-1]
        headers = told["result"]["structuredContent"]["headers"]
        assert headers["mcp-param-text"] == PARAMETERS["Mcp_Param_Text"]
        assert headers["mcp-name"] == "headers"
        assert "result" in driver.exchange("tools/call", {"name": "headers", "arguments": {"text": None}})[-1]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Mcp_Param_Text", "Hello"),
        ("Mcp_Param_Number", "43"),
        ("Mcp_Param_Flag", "True"),
        ("Mcp_Param_Deep", None),
    ],
)
def test_a_header_that_mirrors_something_else_is_refused(header: str, value: str | None) -> None:
    with driven("http") as driver:
        params = {"name": "headers", "arguments": ARGUMENTS}
        (answer,) = driver.exchange("tools/call", params, **{**PARAMETERS, header: value})
        assert (driver.reply.status, answer["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"Accept": "application/json"}, 406),
        ({"Accept": "text/event-stream"}, 406),
        ({"Content_Type": "text/plain"}, 415),
    ],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_types_must_be_right(era: str, header: dict[str, str], status: int) -> None:
    with driven("http", era=era) as driver:
        assert driver.post(driver.request("tools/list"), **header).status == status


def test_another_path_serves_nothing() -> None:
    with driven("http") as driver:
        assert driver.send("POST", driver.headers_for({}), b"{}", "/elsewhere").status == 404


@pytest.mark.parametrize("era", ["modern", "legacy", "dual"])
def test_without_sessions_there_is_nothing_to_get_or_delete(era: str) -> None:
    with driven("http", era=era) as driver:
        assert (driver.get().status, driver.delete().status) == (405, 405)
        assert "mcp-session-id" not in driver.reply.headers


def test_a_session_is_opened_wanted_and_ended() -> None:
    with driven("http", "--session", era="legacy") as driver:
        name = driver.more_headers["Mcp-Session-Id"]
        assert driver.reply.status == 202
        assert driver.structured("echo", a=1) == {"a": 1}
        for value, status in ((None, 400), ("other", 404)):
            assert driver.post(driver.request("tools/list"), Mcp_Session_Id=value).status == status
        assert [driver.delete().status for _ in range(2)] == [200, 404]
        assert driver.post(driver.request("tools/list"), Mcp_Session_Id=name).status == 404


def test_sessions_do_not_share_what_they_agreed_on() -> None:
    with driven("http", "--session", era="legacy") as driver:
        with driver.another() as other:
            other.more_headers = {}
            other.begin("2025-03-26")
            assert "structuredContent" in driver.call("echo", a=1)
            assert "structuredContent" not in other.call("echo", a=1)


@pytest.mark.parametrize(
    ("version", "header", "status"),
    [
        ("2025-11-25", None, 400),
        ("2025-11-25", "2025-06-18", 400),
        ("2025-06-18", None, 400),
        ("2025-06-18", MODERN, 400),
        ("2025-03-26", None, 200),
    ],
)
@pytest.mark.parametrize("session", [(), ("--session",)])
def test_the_version_is_named_from_2025_06_18_on(
    version: str, header: str | None, status: int, session: tuple[str, ...]
) -> None:
    with driven("http", *session, era="legacy", begins=False) as driver:
        driver.begin(version)
        assert driver.post(driver.request("tools/list"), MCP_Protocol_Version=header).status == status


def test_answers_come_as_a_stream_when_told_or_when_there_is_more_to_say() -> None:
    for options, count, kind in (
        ((), 0, "application/json"),
        ((), 1, "text/event-stream"),
        (("--answer", "sse"), 0, "text/event-stream"),
    ):
        with driven("http", *options) as driver:
            driver.exchange("tools/call", {"name": "progress", "arguments": {"count": count}})
            assert driver.reply.headers["content-type"] == kind


def test_a_client_that_closes_its_stream_is_noticed(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with driven("http", "--record", str(record)) as driver:
        driver.ask("tools/call", {"name": "slow", "arguments": {"seconds": 30}})
        wait_until(lambda: "tools/call" in told_methods(record))
        driver.connection.sock.close()
        wait_until(lambda: "closed" in [line.get("event") for line in read_record(record)])


def test_a_legacy_client_cancels_by_a_message(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with driven("http", "--session", "--record", str(record), era="legacy") as driver:
        message = driver.ask("tools/call", {"name": "slow", "arguments": {"seconds": 30}})
        wait_until(lambda: "tools/call" in told_methods(record))
        with driver.another() as other:
            other.notify("notifications/cancelled", {"requestId": message["id"]})
            assert other.reply.status == 202
        with pytest.raises(http.client.RemoteDisconnected):
            driver.answer()


def test_requests_are_served_side_by_side(ms: float) -> None:
    with driven("http") as driver:
        message = driver.ask("tools/call", {"name": "slow", "arguments": {"seconds": 1000 * ms}})
        with driver.another() as other:
            assert other.structured("echo", a=1) == {"a": 1}
        assert select.select([driver.connection.sock], [], [], 0)[0] == []
        assert driver.answer()[-1]["id"] == message["id"]


def test_many_clients_may_connect_at_once() -> None:
    with HttpPeer("--era", "modern") as peer, ExitStack() as stack:
        drivers = [stack.enter_context(closing(HttpDriver(peer, "modern"))) for _ in range(20)]
        assert [driver.structured("echo", a=1) for driver in drivers] == [{"a": 1}] * 20


# The record


def test_what_arrives_by_stdio_is_recorded(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with driven("stdio", "--record", str(record)) as driver:
        driver.peer.write(b"no json\n")
        driver.peer.read()
        driver.call("echo", a=1)
        driver.peer.end()
    start, text, call, end = read_record(record)
    assert (start["event"], end["event"]) == ("start", "end")
    assert text["body"] == "no json\n" and call["body"]["params"]["arguments"] == {"a": 1}
    assert start["pid"] == end["pid"] and start["at"] <= call["at"] <= time.monotonic()


def test_what_arrives_by_http_is_recorded(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with driven("http", "--record", str(record)) as driver:
        driver.call("echo", a=1)
        driver.delete()
        driver.peer.end()
    _, call, delete, end = read_record(record)
    assert (call["method"], call["path"], call["body"]["method"]) == ("POST", "/mcp", "tools/call")
    assert ["Mcp-Name", "echo"] in call["headers"]
    assert (delete["method"], delete["body"], end["event"]) == ("DELETE", None, "end")
