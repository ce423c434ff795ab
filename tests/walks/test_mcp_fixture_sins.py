"""Each sin of the MCP fixture server is what it says, over each transport that it is for."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest

from tests.support.census import carriers
from tests.support.mcp_drivers import LEGACY, MODERN, Reply, driven, initialize_params, waits
from tests.support.mcp_peers import MCP_SERVER, stdio_command, told_methods, wait_until
from tests.support.pace import MS
from tests.support.raw_peer import PATIENCE_SECONDS, PeerEnded

Json = Any

TRANSPORTS = ("stdio", "http")
QUIET_SECONDS = 300 * MS
ECHO = {"name": "echo", "arguments": {"a": [1, None, "\u2028\u00e9"]}}


class Bench(NamedTuple):
    """Where a sin is tried."""

    transport: str
    place: Path

    def sinner(self, *sins: str, more: tuple[str, ...] = (), **manner: Any) -> Any:
        """Start a server that commits *sins* and records; *manner* as for :func:`driven`."""
        options = [part for sin in sins for part in ("--misbehave", sin)]
        record = ("--record", str(self.record))
        return driven(self.transport, *options, *record, *more, **manner)

    @property
    def record(self) -> Path:
        """Where it records."""
        return self.place / "record"


Check = Callable[[Bench], None]


def answer(
    sin: str,
    sees: Callable[[list[Json]], object],
    *,
    method: str = "tools/call",
    params: Json = None,
    era: str = "modern",
) -> Check:
    """Make a check that the messages which come for a request are what *sees* wants."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin, era=era) as driver:
            told = driver.exchange(method, ECHO if method == "tools/call" and params is None else params)
            assert sees(told), told

    return check


def result(sin: str, sees: Callable[[Json], object], **more: Any) -> Check:
    """Make a check of the result."""
    return answer(sin, lambda told: sees(told[-1]["result"]), **more)


def error(sin: str, code: int, **more: Any) -> Check:
    """Make a check of the error's code."""
    return answer(sin, lambda told: told[-1]["error"]["code"] == code, **more)


def listed(sin: str, sees: Callable[[list[Json]], object]) -> Check:
    """Make a check of the tools that are listed."""
    return result(sin, lambda value: sees(value["tools"]), method="tools/list")


def every(*checks: Check) -> Check:
    """Make one check of several."""

    def check(bench: Bench) -> None:
        for number, one in enumerate(checks):
            place = bench.place / str(number)
            place.mkdir()
            one(Bench(bench.transport, place))

    return check


def quiet(sin: str, method: str) -> Check:
    """Make a check that a request stays without an answer."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin) as driver:
            assert waits(driver, method, {}, record=bench.record, seconds=QUIET_SECONDS)

    return check


def start(bench: Bench, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run a server to its end, its input being empty."""
    command = [*stdio_command("--transport", bench.transport, *options)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )


def check_exit_at_once(bench: Bench) -> None:
    done = start(bench, "--misbehave", "exit-at-once")
    assert (done.returncode, done.stdout, b"cannot start" in done.stderr) == (3, b"", True)
    assert start(bench, "--misbehave", "exit-at-once:7").returncode == 7


def check_refuses_on_stdout(bench: Bench) -> None:
    done = start(bench, "--misbehave", "refuses-on-stdout")
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads(done.stdout)["error"] == "no key" and done.stdout.count(b"\n") > 2


def check_never_closes(bench: Bench) -> None:
    with bench.sinner("never-closes") as driver:
        driver.structured("echo")
        process = driver.peer.process
        process.stdin.close()
        process.terminate()
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(QUIET_SECONDS)


def check_grandchild(bench: Bench) -> None:
    marker = f"mark-{os.urandom(8).hex()}"
    with bench.sinner("grandchild", environment={"LATCH_TEST_MARKER": marker}) as driver:
        driver.structured("echo")
        assert driver.peer.end() == 0
        (child,) = carriers(marker)
        try:
            assert os.readlink(f"/proc/{child}/fd/1").startswith("pipe:")
        finally:
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: carriers(marker) == [])


def check_stderr_flood(bench: Bench) -> None:
    with bench.sinner("stderr-flood:0.125") as driver:
        driver.structured("echo")
        assert len(driver.peer.stderr()) == 2 * 128 * 1024


def check_dies_of_discover(bench: Bench) -> None:
    with bench.sinner("dies-of-discover", era="legacy", begins=False) as driver:
        assert waits(driver, "server/discover", {}, record=bench.record, seconds=QUIET_SECONDS)
        assert len(driver.peer.stderr()) > 5000 and driver.peer.process.poll() is None
        with pytest.raises(PeerEnded):
            driver.exchange("initialize", initialize_params(LEGACY[0]))
        assert driver.peer.wait() == 1


def check_ignores_cancel(bench: Bench) -> None:
    with bench.sinner("ignores-cancel", era="legacy") as driver:
        slow = driver.ask("tools/call", {"name": "slow", "arguments": {"seconds": 300 * MS}})
        with driver.another() as other:
            other.notify("notifications/cancelled", {"requestId": slow["id"]})
        assert driver.answer()[-1]["id"] == slow["id"]


def noisy(sin: str, count: int) -> Check:
    """Make a check that so many lines which are no JSON come before the first answer."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin) as driver:
            assert driver.structured("echo", a=1) == {"a": 1}
            assert len(driver.noise) == count

    return check


def check_blank_lines(bench: Bench) -> None:
    with bench.sinner("blank-lines") as driver:
        driver.structured("echo", a=1)
        assert driver.noise == [b"", b"\r"]
        driver.ask("tools/list")
        assert driver.peer.read_body().endswith(b"}\r")


def check_not_utf8_line(bench: Bench) -> None:
    with bench.sinner("not-utf8-line") as driver:
        driver.structured("echo")
        assert b"\xff\xfe" in driver.noise[0]


def check_multi_line_json(bench: Bench) -> None:
    with bench.sinner("multi-line-json") as driver:
        driver.ask("tools/call", ECHO)
        raw = driver.peer.read_raw(seconds=QUIET_SECONDS)
        assert raw.startswith(b"{\n") and json.loads(raw)["id"] == 1


def pieces(bench: Bench, sin: str, count: int, *options: str) -> list[bytes]:
    """Return what comes for a call: so many pieces, fewer where it ends or after two million bytes."""
    found: list[bytes] = []
    with bench.sinner(sin, more=options) as driver:
        driver.ask("tools/call", ECHO)
        source = driver.connection.sock if bench.transport == "http" else driver.peer.process.stdout
        while len(found) < count and sum(map(len, found)) < 2_000_000:
            assert select.select([source], [], [], PATIENCE_SECONDS)[0]
            found.append(os.read(source.fileno(), 65536))
            if not found[-1]:
                break
    return found


def check_half_utf8(bench: Bench) -> None:
    first, second = pieces(bench, f"half-utf8:{500 * MS}", 2)
    assert first.endswith(b"caf\xc3") and second.startswith(b"\xa9")


def check_drip(bench: Bench) -> None:
    begin = time.monotonic()
    found = pieces(bench, f"drip:{100 * MS}", 4)
    assert time.monotonic() - begin >= 300 * MS
    assert len(b"".join(found)) < 20


def check_dies_mid_answer(bench: Bench) -> None:
    told = b"".join(pieces(bench, "dies-mid-answer", 1000))
    assert b'"jsonrpc"' in told and not told.rstrip().endswith(b"}")


def check_endless_line(bench: Bench) -> None:
    for options in ((), ("--answer", "sse")) if bench.transport == "http" else ((),):
        told = b"".join(pieces(bench, "endless-line", 10000, *options))
        body = told.partition(b"\r\n\r\n")[2] or told
        assert len(body) > 1_000_000 and b"\n" not in body


def check_silent(bench: Bench) -> None:
    with bench.sinner("silent") as driver:
        assert waits(driver, "tools/call", ECHO, record=bench.record, seconds=QUIET_SECONDS)
        assert told_methods(bench.record) == ["tools/call"]


def check_late_answer(bench: Bench) -> None:
    with bench.sinner(f"late-answer:{300 * MS}") as driver:
        begin = time.monotonic()
        (first,), (second,) = (driver.exchange("tools/call", ECHO) for _ in range(2))
        assert time.monotonic() - begin >= 300 * MS
        assert (first["id"], second["id"]) == (1, 1)


def asks(sin: str, method: str, stage: str) -> Check:
    """Make a check that the server asks *method* before it answers, and takes the client's answer."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin, era="legacy", begins=stage != "initialize") as driver:
            message = driver.ask(stage, ECHO if stage == "tools/call" else initialize_params(LEGACY[0]))
            wait_until(lambda: message["method"] in told_methods(bench.record))
            with driver.another() as other:
                other.send_answer({"jsonrpc": "2.0", "id": "server-1", "result": {}})
            question, told = driver.answer()
            assert (question["id"], question["method"]) == ("server-1", method)
            assert told["id"] == message["id"] and "result" in told

    return check


def check_double_answer(bench: Bench) -> None:
    with bench.sinner("double-answer") as driver:
        told = driver.exchange("tools/call", ECHO)
        told = [*told, driver.peer.read()] if bench.transport == "stdio" else told
        assert [one["id"] for one in told] == [1, 1]


def check_error(bench: Bench) -> None:
    every(
        error("error", -32000),
        error("error:-32601:tools/list", -32601, method="tools/list"),
        answer("error:-32600,400,null", lambda told: told[-1]["id"] is None),
        answer("error:-32600,400,server-error", lambda told: told[-1]["id"] == "server-error"),
    )(bench)
    with bench.sinner("error:-32601,200") as driver:
        driver.exchange("tools/call", ECHO)
        assert bench.transport == "stdio" or driver.reply.status == 200


def check_deaf(bench: Bench) -> None:
    with bench.sinner("deaf", more=("--times", "1")) as driver:
        assert waits(driver, "tools/call", ECHO, record=bench.record, seconds=QUIET_SECONDS)
        assert driver.structured("count")["calls"] == {"count": 1}


def check_unsupported_then_ok(bench: Bench) -> None:
    with bench.sinner("unsupported-then-ok") as driver:
        (first,), (second,) = (driver.exchange("server/discover") for _ in range(2))
        assert first["error"]["data"] == {"supported": [MODERN], "requested": MODERN}
        assert second["result"]["supportedVersions"] == [MODERN]


def cursor(sin: str, value: Json) -> Check:
    """Make a check that each of two pages ends with the same cursor, and lists no tool twice."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin) as driver:
            pages = [
                driver.exchange("tools/list", params)[-1]["result"] for params in ({}, {"cursor": value})
            ]
            assert [page["nextCursor"] for page in pages] == [value, value]
            assert len(pages[0]["tools"]) > 5 and pages[1]["tools"] == []

    return check


def check_catalogue_changes(bench: Bench) -> None:
    names = []
    for number in ("1", "2"):
        (bench.place / number).mkdir()
        with Bench(bench.transport, bench.place / number).sinner("catalogue-changes") as driver:
            lists = [driver.exchange("tools/list")[-1]["result"]["tools"][-1]["name"] for _ in range(2)]
            assert lists[0] == lists[1]
            names.append(lists[0])
    assert names[0] != names[1]


def status(sin: str, number: int, **headers: str) -> Check:
    """Make a check that POST, GET and DELETE get this status and these headers."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin, era="legacy", begins=False) as driver:
            replies = [driver.post(driver.request("initialize")), driver.get(), driver.delete()]
            assert [reply.status for reply in replies] == [number] * 3
            assert headers.items() <= replies[0].headers.items()

    return check


def check_redirect_away(bench: Bench) -> None:
    with bench.sinner("redirect-away") as driver:
        reply = driver.post(driver.request("tools/list"))
        assert (reply.status, reply.headers["location"]) == (307, f"http://localhost:{driver.peer.port}/mcp")


def check_bearer_required(bench: Bench) -> None:
    with bench.sinner("bearer-required:token") as driver:
        for header, wanted in (
            ({}, 401),
            ({"Authorization": "Bearer tokem"}, 401),
            ({"Authorization": "Bearer token"}, 200),
        ):
            assert driver.post(driver.request("tools/list"), **header).status == wanted


def check_404_session(bench: Bench) -> None:
    with bench.sinner("404-session:tools/call", era="legacy", more=("--session", "--times", "1")) as driver:
        (lost,) = driver.exchange("tools/call", ECHO)
        assert (driver.reply.status, lost["error"]["code"], lost["id"]) == (404, -32001, None)
        driver.begin()
        assert driver.structured("count")["calls"] == {"count": 1}
    with bench.sinner("404-session", era="legacy", more=("--session",)) as driver:
        assert (driver.reply.status, driver.delete().status) == (404, 404)


def check_endpoint_event(bench: Bench) -> None:
    with bench.sinner("endpoint-event", era="legacy", begins=False) as driver:
        driver.ask("initialize")
        with driver.stream() as stream:
            assert stream.getheader("Content-Type") == "text/event-stream"
            lines = [stream.readline() for _ in range(2)]
            assert lines == [b"event: endpoint\n", b"data: /messages?sessionId=1\n"]


def notified(sin: str, number: int, body: bytes) -> Check:
    """Make a check of what a notification is answered, requests being answered as ever."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin, era="legacy") as driver:
            assert (driver.reply.status, driver.reply.body) == (number, body)
            assert driver.structured("echo", a=1) == {"a": 1}

    return check


def check_refuses_answers(bench: Bench) -> None:
    with bench.sinner("refuses-answers", era="legacy") as driver:
        assert driver.reply.status == 202
        assert driver.post({"jsonrpc": "2.0", "id": "server-1", "result": {}}).status == 400


def replied(
    sin: str, sees: Callable[[Reply], object], *, method: str = "tools/call", era: str = "modern"
) -> Check:
    """Make a check of the HTTP answer."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin, era=era) as driver:
            reply = driver.post(driver.request(method, ECHO if method == "tools/call" else {}))
            assert sees(reply), reply

    return check


def check_content_length_lies(bench: Bench) -> None:
    with bench.sinner("content-length-lies") as driver:
        with pytest.raises(http.client.IncompleteRead):
            driver.exchange("tools/call", ECHO)
    with bench.sinner("content-length-lies:less") as driver:
        with pytest.raises(ValueError):
            driver.exchange("tools/call", ECHO)


def check_closes_unanswered(bench: Bench) -> None:
    for sin, fault in (
        ("closes-unanswered", http.client.RemoteDisconnected),
        ("closes-unanswered:reset", ConnectionResetError),
    ):
        with bench.sinner(sin, more=("--times", "1")) as driver:
            with pytest.raises(fault):
                driver.exchange("tools/call", ECHO)
            assert driver.structured("count")["calls"] == {"echo": 1, "count": 1}


def check_closes_idle(bench: Bench) -> None:
    with bench.sinner("closes-idle") as driver:
        driver.structured("echo")
        assert "connection" not in driver.reply.headers
        assert driver.connection.sock.recv(1) == b""


def streamed(sin: str, *parts: bytes) -> Check:
    """Make a check that a stream carries the whole answer and has these parts."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin) as driver:
            assert driver.structured("echo", a="\u2028") == {"a": "\u2028"}
            assert driver.reply.headers["content-type"] == "text/event-stream"
            assert all(part in driver.reply.body for part in parts), driver.reply.body

    return check


def check_sse_cr(bench: Bench) -> None:
    with bench.sinner("sse-cr") as driver:
        driver.structured("echo")
        assert b"\n" not in driver.reply.body and driver.reply.body.endswith(b"\r\r")


def check_sse_closes(bench: Bench) -> None:
    with bench.sinner("sse-closes:250", era="legacy", more=("--session", "--times", "1")) as driver:
        assert driver.exchange("tools/call", ECHO) == []
        assert driver.reply.body == b"id: event-1\nretry: 250\ndata: \n\n"
        assert driver.get(Last_Event_ID="event-2").status == 405
        resumed = driver.get(Last_Event_ID="event-1")
        assert resumed.messages[-1]["result"]["structuredContent"] == ECHO["arguments"]
        assert driver.structured("count")["calls"] == {"echo": 1, "count": 1}


def lost(sin: str, part: bytes) -> Check:
    """Make a check that a stream ends, and cleanly, without a complete answer."""

    def check(bench: Bench) -> None:
        with bench.sinner(sin) as driver:
            reply = driver.post(driver.request("tools/call", ECHO))
            assert part in reply.body
            assert not any("result" in message for message in reply.messages)

    return check


def check_sse_no_end(bench: Bench) -> None:
    with bench.sinner("sse-no-end") as driver:
        driver.set_patience(QUIET_SECONDS)
        driver.ask("tools/call", ECHO)
        with driver.stream() as stream:
            assert b"notifications/message" in stream.readline() + stream.readline()
            with pytest.raises((TimeoutError, socket.timeout)):
                stream.read()


def check_sse_cut(bench: Bench) -> None:
    with bench.sinner("sse-cut") as driver:
        reply = driver.post(driver.request("tools/call", ECHO))
        assert (
            reply.body.startswith(b"data: {") and reply.body.endswith(b"}\n") and reply.body.count(b"\n") == 1
        )


CHECKS: dict[str, Check] = {
    # of the process
    "exit-at-once": check_exit_at_once,
    "refuses-on-stdout": check_refuses_on_stdout,
    "never-closes": check_never_closes,
    "grandchild": check_grandchild,
    "stderr-flood": check_stderr_flood,
    "dies-of-discover": check_dies_of_discover,
    "ignores-cancel": check_ignores_cancel,
    # of bytes
    "banner": noisy("banner", 6),
    "noise-65": every(noisy("noise-65", 65), noisy("noise-65:64", 64)),
    "blank-lines": check_blank_lines,
    "not-utf8-line": check_not_utf8_line,
    "multi-line-json": check_multi_line_json,
    "half-utf8": check_half_utf8,
    "drip": check_drip,
    "dies-mid-answer": check_dies_mid_answer,
    "endless-line": check_endless_line,
    # of messages
    "silent": check_silent,
    "deaf": check_deaf,
    "silent-discover": every(quiet("silent-discover", "server/discover"), result("silent-discover", bool)),
    "wrong-id": answer("wrong-id", lambda told: told[-1]["id"] == 987654321 and "result" in told[-1]),
    "string-id": answer("string-id", lambda told: told[-1]["id"] == "1" and "result" in told[-1]),
    "no-id-error": every(
        answer("no-id-error", lambda told: "error" in told[-1] and "id" not in told[-1]),
        answer("no-id-error:null", lambda told: "error" in told[-1] and told[-1]["id"] is None),
    ),
    "batch": answer("batch", lambda told: [one.get("id") for one in told[-1]] == [None, 2], era="legacy"),
    "double-answer": check_double_answer,
    "10000-notifications": every(
        answer("10000-notifications", lambda told: len(told) == 10001),
        answer("10000-notifications:3", lambda told: len(told) == 4),
    ),
    "ping-first": asks("ping-first", "ping", "initialize"),
    "asks-sampling": asks("asks-sampling", "sampling/createMessage", "tools/call"),
    "late-answer": check_late_answer,
    "error": check_error,
    # of the era
    "unsupported-version": answer(
        "unsupported-version",
        lambda told: told[-1]["error"]["code"] == -32022
        and told[-1]["error"]["data"] == {"supported": list(LEGACY), "requested": MODERN},
        method="server/discover",
    ),
    "unsupported-then-ok": check_unsupported_then_ok,
    "header-mismatch": every(
        error("header-mismatch", -32020, method="server/discover"),
        error("header-mismatch:tools/call", -32020),
    ),
    "missing-capability": answer(
        "missing-capability",
        lambda told: told[-1]["error"]["code"] == -32021
        and told[-1]["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}},
        method="server/discover",
    ),
    "discover-200-result-empty": result(
        "discover-200-result-empty", lambda value: value == {}, method="server/discover"
    ),
    "discover-versions": every(
        *(
            result(
                sin,
                lambda value, wanted=wanted: value.get("supportedVersions") == wanted,
                method="server/discover",
            )
            for sin, wanted in (
                ("discover-versions", ["2025-11-25"]),
                ("discover-versions:1,2", ["1", "2"]),
                ("discover-versions:text", MODERN),
                ("discover-versions:numbers", [20260728]),
                ("discover-versions:none", None),
            )
        )
    ),
    "no-tools-capability": result(
        "no-tools-capability", lambda value: value["capabilities"] == {}, method="server/discover"
    ),
    # of the catalogue
    "repeat-cursor": cursor("repeat-cursor", "again"),
    "empty-cursor": cursor("empty-cursor", ""),
    "null-cursor": cursor("null-cursor", None),
    "duplicate-tool": listed("duplicate-tool", lambda tools: tools[-1] == tools[0]),
    "tools-513": every(
        *(
            listed(sin, lambda tools, total=total: len({tool["name"] for tool in tools}) == total)
            for sin, total in (("tools-513", 513), ("tools-513:512", 512))
        )
    ),
    "null-schema": every(
        listed("null-schema", lambda tools: tools[-1] == {"name": "bad", "inputSchema": None}),
        listed("null-schema:missing", lambda tools: tools[-1] == {"name": "bad"}),
        listed("null-schema:output", lambda tools: tools[-1]["outputSchema"] == 5),
    ),
    "bad-tool-name": every(
        listed("bad-tool-name", lambda tools: tools[-1]["name"] == "odd name/\u00fc"),
        listed("bad-tool-name:long", lambda tools: len(tools[-1]["name"]) == 129),
        listed("bad-tool-name:number", lambda tools: tools[-1]["name"] == 5),
    ),
    "bad-header-annotations": listed(
        "bad-header-annotations",
        lambda tools: len([tool for tool in tools if tool["name"][:4] == "bad-"]) == 10,
    ),
    "odd-schemas": listed(
        "odd-schemas", lambda tools: len([tool for tool in tools if tool["name"][:4] == "odd-"]) == 7
    ),
    "task-required": listed(
        "task-required", lambda tools: tools[-1]["execution"] == {"taskSupport": "required"}
    ),
    "catalogue-changes": check_catalogue_changes,
    # of results
    "bad-envelope": every(
        result("bad-envelope", lambda value: value == {"resultType": "complete", "isError": False}),
        result("bad-envelope", lambda value: value == {"isError": False}, era="legacy"),
        result("bad-envelope:list", lambda value: value == []),
        result("bad-envelope:text-error", lambda value: value["isError"] == "false"),
    ),
    "bad-structured": every(
        result("bad-structured", lambda value: value["structuredContent"] == {"sum": "three"}),
        result("bad-structured:missing", lambda value: "structuredContent" not in value),
    ),
    "structured-on-error": result(
        "structured-on-error", lambda value: value["isError"] and value["structuredContent"] == {"code": 7}
    ),
    "unknown-result-type": result("unknown-result-type", lambda value: value["resultType"] == "later"),
    "no-result-type": result(
        "no-result-type", lambda value: "content" in value and "resultType" not in value
    ),
    "input-required": every(
        result(
            "input-required", lambda value: value["inputRequests"]["who"]["method"] == "elicitation/create"
        ),
        result(
            "input-required:state",
            lambda value: value == {"resultType": "input_required", "requestState": "opaque"},
        ),
    ),
    # of HTTP
    "status": every(status("status", 500), status("status:418", 418)),
    "401": status("401", 401, **{"www-authenticate": "Bearer"}),
    "403": status("403", 403),
    "405-everything": status("405-everything", 405),
    "redirect": every(
        status("redirect", 307, location="/elsewhere"), status("redirect:301", 301, location="/elsewhere")
    ),
    "redirect-away": check_redirect_away,
    "bearer-required": check_bearer_required,
    "404-session": check_404_session,
    "endpoint-event": check_endpoint_event,
    "no-content-202": notified("no-content-202", 204, b""),
    "empty-200": notified("empty-200", 200, b""),
    "null-202": notified("null-202", 202, b"null"),
    "text-202": notified("text-202", 202, b"Accepted"),
    "refuses-answers": check_refuses_answers,
    "discover-500": replied(
        "discover-500",
        lambda reply: reply.status == 500 and reply.messages[0]["error"]["code"] == -32603,
        method="server/discover",
    ),
    "session-header": every(
        replied("session-header", lambda reply: reply.headers["mcp-session-id"] == "not a session"),
        replied("session-header:one", lambda reply: reply.headers["mcp-session-id"] == "one"),
    ),
    "gzip": replied(
        "gzip",
        lambda reply: reply.headers["content-encoding"] == "gzip"
        and json.loads(gzip.decompress(reply.body))["id"] == 1,
    ),
    "content-length-lies": check_content_length_lies,
    "wrong-content-type": every(
        replied("wrong-content-type", lambda reply: reply.headers["content-type"] == "text/html"),
        replied("wrong-content-type:plain", lambda reply: reply.headers["content-type"] == "text/plain"),
    ),
    "closes-unanswered": check_closes_unanswered,
    "closes-idle": check_closes_idle,
    # of the stream
    "sse-crlf": streamed("sse-crlf", b"event: message\r\ndata: {", b"}\r\n\r\n"),
    "sse-cr": check_sse_cr,
    "sse-multiline": streamed("sse-multiline", b'data: {\ndata: "jsonrpc": "2.0",\n'),
    "sse-keepalive": streamed("sse-keepalive", b": keep-alive\n\n"),
    "sse-priming": streamed("sse-priming", b"id: first\nretry: 5000\ndata: \n\n", b"\nevent: other\n"),
    "sse-bom": streamed("sse-bom", b"\xef\xbb\xbf: begin\n\n"),
    "sse-closes": check_sse_closes,
    "sse-lost": lost("sse-lost", b"last words"),
    "sse-cut": check_sse_cut,
    "sse-no-end": check_sse_no_end,
}
HTTP_ALONE = list(CHECKS)[list(CHECKS).index("status") :]
STDIO_ALONE = (
    *("refuses-on-stdout", "dies-of-discover", "banner", "noise-65", "blank-lines", "not-utf8-line"),
    *("multi-line-json",),
)
TRIALS = [
    (name, transport)
    for name in CHECKS
    for transport in TRANSPORTS
    if name not in (HTTP_ALONE if transport == "stdio" else STDIO_ALONE)
]


@pytest.mark.parametrize(("sin", "transport"), TRIALS)
def test_a_sin_is_what_it_says(sin: str, transport: str, tmp_path: Path) -> None:
    CHECKS[sin](Bench(transport, tmp_path))


def test_every_sin_is_tried_over_every_transport_it_is_for() -> None:
    done = subprocess.run([sys.executable, str(MCP_SERVER), "--list"], stdout=subprocess.PIPE, check=True)
    rows = [line.split()[:3] for line in done.stdout.decode("utf-8").splitlines()]
    offered = {(name, way) for name, _, ways in rows for way in (TRANSPORTS if ways == "both" else (ways,))}
    assert set(TRIALS) == offered


@pytest.mark.parametrize("sin", ["virtue", "status", "gzip"])
def test_an_unknown_sin_and_one_of_the_other_transport_are_refused(sin: str, tmp_path: Path) -> None:
    done = start(Bench("stdio", tmp_path), "--misbehave", sin)
    assert done.returncode == 2 and b"error:" in done.stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_sins_may_be_several_each_at_a_stage_and_so_often(transport: str, tmp_path: Path) -> None:
    sins = ("wrong-id:tools/list", "double-answer:tools/list", "error:-32001:tools/call")
    with Bench(transport, tmp_path).sinner(*sins, more=("--times", "1")) as driver:
        assert driver.exchange("tools/call", ECHO)[-1]["error"]["code"] == -32001
        assert driver.structured("echo", a=1) == {"a": 1}
        assert driver.exchange("tools/list")[-1]["id"] == 987654321
