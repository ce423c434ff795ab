"""MCP servers over HTTP through public names: a story of each era, of secrets, redirects and proxies."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import latch
from latch import McpServerSettings
from tests.support.census import eventually
from tests.support.command_line import Operator
from tests.support.mcp_peers import HttpPeer, read_record, told_methods
from tests.support.servers import REQUEST, answer, serving

Json = Any

SECRET = "hunter2-hunter2"
LOST = "whether the call took effect is unknown"
PROMPT_MS = 1000
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def entry(server: HttpPeer, **keys: Any) -> McpServerSettings:
    """A server as an embedder configures it."""
    return McpServerSettings(name="far", transport="streamable_http", url=server.url, **keys)


def headers_of(line: Json) -> dict[str, str]:
    """The header fields of a recorded request by their names in lower case."""
    return {name.lower(): value for name, value in line["headers"]}


def requests_of(record: Path) -> list[Json]:
    """What a server received, in order, its own events left out."""
    return [line for line in read_record(record) if "headers" in line]


@pytest.mark.parametrize("form", ["json", "sse"])
def test_the_story_of_a_modern_server(workspace: Path, tmp_path: Path, form: str, ms: float) -> None:
    record = tmp_path / "record"
    scope = latch.Scope.root(seconds=30)
    with HttpPeer("--era", "modern", "--answer", form, "--record", str(record)) as server:
        with latch.McpClient.open(entry(server), workspace=workspace, scope=scope) as client:
            assert client.protocol_version == "2026-07-28"
            given = {"text": "Hello, 世界", "number": 42, "flag": False, "nested": {"deep": "line1\nline2"}}
            sent = client.call_tool("headers", given, scope).structured_content["headers"]
            assert sent["mcp-param-text"] == "=?base64?SGVsbG8sIOS4lueVjA==?="
            assert sent["mcp-param-deep"] == "=?base64?bGluZTEKbGluZTI=?="
            assert (sent["mcp-param-number"], sent["mcp-param-flag"]) == ("42", "false")
            assert (sent["mcp-method"], sent["mcp-name"]) == ("tools/call", "headers")
            names = [tool.catalogue_name for tool in client.tools]

            with pytest.raises(latch.DeadlineMissed) as late:
                client.call_tool("slow", {"seconds": 60}, scope.within(300 * ms))
            assert LOST in str(late.value)
            with pytest.raises(latch.PeerGone, match="it was disconnected"):
                client.call_tool("echo", {}, scope)
            assert [tool.catalogue_name for tool in client.tools] == names
        assert eventually(lambda: any(line.get("event") == "closed" for line in read_record(record)))
    assert told_methods(record) == ["server/discover", "tools/list", "tools/call", "tools/call"]
    for line in requests_of(record):
        assert line["method"] == "POST" and "mcp-session-id" not in headers_of(line)
        assert headers_of(line)["mcp-protocol-version"] == "2026-07-28"
        assert line["body"]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}


def test_the_story_of_a_legacy_session(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    scope = latch.Scope.root(seconds=30)
    options = (
        "--era",
        "legacy",
        "--session",
        "--answer",
        "sse",
        "--misbehave",
        "ping-first",
        "--misbehave",
        "sse-closes",
    )
    with HttpPeer(*options, "--record", str(record)) as server:
        with latch.McpClient.open(entry(server), workspace=workspace, scope=scope) as client:
            assert client.protocol_version == "2025-11-25"
            # its stream ends early and is taken up again: the call is made once
            assert client.call_tool("count", {}, scope).structured_content["count"] == 1
    lines = requests_of(record)
    said = [(line["method"], (line["body"] or {}).get("method")) for line in lines]
    assert said == [
        ("POST", "server/discover"),
        ("POST", "initialize"),
        ("POST", None),
        ("POST", "notifications/initialized"),
        ("POST", "tools/list"),
        ("POST", "tools/call"),
        ("GET", None),
        ("DELETE", None),
    ]
    sessions = {headers_of(line).get("mcp-session-id") for line in lines[3:]}
    assert len(sessions) == 1 and None not in sessions
    assert "mcp-protocol-version" not in headers_of(lines[1])
    assert {headers_of(line)["mcp-protocol-version"] for line in lines[3:]} == {"2025-11-25"}


def test_a_session_that_has_ended_is_not_begun_again_by_itself(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    scope = latch.Scope.root(seconds=30)
    options = ("--era", "legacy", "--session", "--misbehave", "404-session:tools/call", "--times", "1")
    with HttpPeer(*options, "--record", str(record)) as server:
        with latch.McpClient.open(entry(server), workspace=workspace, scope=scope) as client:
            with pytest.raises(latch.PeerGone, match="its session has ended"):
                client.call_tool("echo", {}, scope)
            assert client.failure is not None
            with pytest.raises(latch.PeerGone, match="it was disconnected, because its session has ended"):
                client.call_tool("echo", {}, scope)
        # a new one connects anew
        with latch.McpClient.open(entry(server), workspace=workspace, scope=scope) as client:
            assert client.call_tool("echo", {}, scope).text == "{}"
    assert told_methods(record).count("tools/call") == 2


@pytest.mark.parametrize("sin", ["header-mismatch", "missing-capability", "unsupported-version"])
@pytest.mark.parametrize("form", ["json", "sse"])
def test_a_recognised_modern_error_is_never_followed_by_initialize(
    workspace: Path, tmp_path: Path, sin: str, form: str
) -> None:
    record = tmp_path / "record"
    options = ("--era", "dual", "--answer", form, "--misbehave", sin, "--record", str(record))
    with HttpPeer(*options) as server:
        with pytest.raises(latch.PeerRefused) as raised:
            latch.McpClient.open(entry(server), workspace=workspace, scope=latch.Scope.root(seconds=30))
    assert raised.value.stage == "server/discover" and told_methods(record) == ["server/discover"]


@pytest.mark.parametrize(
    ("era", "status"), [("modern", 301), ("modern", 307), ("legacy", 302), ("legacy", 308)]
)
def test_a_redirect_is_named_and_neither_the_call_nor_the_bearer_goes_on(
    operator: Operator, tmp_path: Path, era: str, status: int
) -> None:
    record = tmp_path / "record"
    options = ("--era", era, "--misbehave", f"redirect-away:{status}:tools/call", "--record", str(record))
    with HttpPeer(*options) as server:
        operator.configure(servers=[operator.remote(server.url, bearer_token_env="LATCH_TOKEN")])
        environment = operator.environment(LATCH_TOKEN=SECRET)
        done = operator.run("call", "-vv", "far/echo", env=environment)
    assert done.status == 1
    assert f'redirects to "http://localhost:{server.port}/mcp" (HTTP status {status})' in done.said
    calls = [line for line in requests_of(record) if (line["body"] or {}).get("method") == "tools/call"]
    assert len(calls) == 1 and headers_of(calls[0])["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in done.said + done.text


def test_secrets_go_to_their_own_server_alone(operator: Operator, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    with HttpPeer("--era", "modern", "--record", str(own)) as one, HttpPeer("--record", str(other)) as two:
        keys = {"bearer_token_env": "LATCH_TOKEN", "headers_from_env": {"X-Api-Key": "LATCH_KEY"}}
        operator.configure(servers=[operator.remote(one.url, **keys), operator.remote(two.url, name="other")])
        environment = operator.environment(LATCH_TOKEN=SECRET, LATCH_KEY="a-key-of-mine")
        shown = ""
        for arguments in (
            ("mcp", "--check", "-vv"),
            ("call", "-vv", "far/headers"),
            ("call", "other/headers"),
            ("mcp", "--json"),
        ):
            done = operator.run(*arguments, env=environment)
            assert done.status == 0
            shown += done.said + done.text
    for line in requests_of(own):
        assert headers_of(line)["authorization"] == f"Bearer {SECRET}"
        assert headers_of(line)["x-api-key"] == "a-key-of-mine"
    assert not [line for line in requests_of(other) if {"authorization", "x-api-key"} & set(headers_of(line))]
    assert SECRET not in shown and "a-key-of-mine" not in shown
    assert "Bearer [redacted]" in shown


def test_proxies_and_passwords_of_the_environment_are_not_used(operator: Operator) -> None:
    with serving([REQUEST, answer(b"", status="502 Proxy")]) as proxy, HttpPeer("--era", "modern") as server:
        (operator.home / ".netrc").write_text("machine 127.0.0.1 login me password netrc-secret\n")
        operator.configure(servers=[operator.remote(server.url)])
        known = dict.fromkeys(PROXIES, f"http://127.0.0.1:{proxy.port}")
        environment = operator.environment(**known, NO_PROXY=None, no_proxy=None)
        done = operator.run("call", "-q", "--json", "far/headers", env=environment)
        assert proxy.connections == 0
    assert "authorization" not in done.value["result"]["structuredContent"]["headers"]


@pytest.mark.parametrize("sin", ["endpoint-event", "405-everything", "status:404"])
def test_the_separate_event_transport_is_named_with_the_remedy(operator: Operator, sin: str) -> None:
    with HttpPeer("--misbehave", sin) as server:
        operator.configure(servers=[operator.remote(server.url)])
        error = operator.run("mcp", "--check", "--json").error
    assert error["exit"] == 6 and "HTTP+SSE transport is not supported" in str(error["hint"])
    assert "Streamable HTTP endpoint" in error["hint"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_ctrl_c_ends_a_call_and_the_server_learns_of_it(
    operator: Operator, tmp_path: Path, ms: float, era: str
) -> None:
    record = tmp_path / "record"
    options = ("--era", era, "--record", str(record), *(("--session",) if era == "legacy" else ()))
    with HttpPeer(*options) as server:
        operator.configure(servers=[operator.remote(server.url)])
        with operator.start("call", "-q", "far/slow", '{"seconds": 60}') as process:
            try:
                assert eventually(lambda: "tools/call" in told_methods(record))
                began = time.monotonic()
                process.send_signal(signal.SIGINT)
                assert process.wait(20) == 130
                assert time.monotonic() - began < PROMPT_MS * ms
                _, err = process.communicate()
            finally:
                process.kill()
        assert eventually(
            lambda: any(line.get("event") == "closed" for line in read_record(record)) or era == "legacy"
        )
    assert err.decode() == f'latch: MCP server "far": tools/call: cancelled (SIGINT); {LOST}\n'
    said = [(line["method"], (line["body"] or {}).get("method")) for line in requests_of(record)]
    if era == "legacy":
        assert said[-2:] == [("POST", "notifications/cancelled"), ("DELETE", None)]
    else:
        assert said[-1] == ("POST", "tools/call")


def test_what_a_remote_server_says_is_one_document_of_data(operator: Operator) -> None:
    with HttpPeer("--era", "modern") as server:
        operator.configure(servers=[operator.remote(server.url)])
        value = operator.run("call", "--json", "far/blocks").value
    kinds = [block["type"] for block in value["result"]["content"]]
    assert kinds == ["text", "image", "audio", "resource_link", "resource", "resource"]
    assert json.dumps(value["result"]["content"][1]).count("bm90IGEgcGljdHVyZQ==") == 1
