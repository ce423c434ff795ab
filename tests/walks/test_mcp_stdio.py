"""MCP servers on stdio through public names: stories of one, of ten that are interrupted, of a kill."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import latch
from latch import McpServerSettings
from tests.support import census, hosted
from tests.support.census import eventually
from tests.support.command_line import Operator
from tests.support.mcp_peers import BARE, MCP_SERVER, read_record, told_methods

Json = Any

pytestmark = pytest.mark.usefixtures("sandbox")

LOST = "whether the call took effect is unknown"
# A second, for whoever presses the keys; the interpreter's end is in it.
PROMPT_MS = 1000
KILLS = 60 if os.environ.get("LATCH_SOAK") == "1" else 4
LOOKS_AROUND = """
import json, os, sys
def look(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return error.strerror
def write(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as error:
        return error.strerror
for line in sys.stdin:
    message = json.loads(line)
    method, result = message["method"], {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        home = message["params"]["arguments"]["home"]
        seen = {
            "environment": dict(os.environ),
            "cwd": os.getcwd(),
            "here": look("."),
            "home": look(home),
            "state": look(home + "/.latch"),
            "in_cwd": write("mine"),
            "in_workspace": write(os.environ["LATCH_WORKSPACE"] + "/theirs"),
            "workspace": look(os.environ["LATCH_WORKSPACE"]),
        }
        result = {"content": [], "structuredContent": seen}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def entry(*options: str, **keys: Any) -> McpServerSettings:
    """The fixture server as an embedder configures it."""
    known = {"command": sys.executable, "args": (BARE, str(MCP_SERVER), *options), "network": False}
    return McpServerSettings(name="near", transport="stdio", **{**known, **keys})


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_story_of_one_server(workspace: Path, tmp_path: Path, marker: str, era: str, ms: float) -> None:
    place = tmp_path / "record"
    place.mkdir()
    settings = entry(
        *(
            "--era",
            era,
            "--misbehave",
            "banner",
            "--misbehave",
            "stderr-flood",
            "--record",
            str(place / "record"),
        ),
        env=hosted.marked(marker),
        rw_paths=(place,),
    )
    scope = latch.Scope.root(seconds=30)
    with latch.McpClient.open(settings, workspace=workspace, scope=scope) as client:
        assert client.protocol_version == ("2026-07-28" if era == "modern" else "2025-11-25")
        assert "add" in {tool.name for tool in client.tools}
        names = [tool.catalogue_name for tool in client.tools]

        # an answer, a failure of the tool, and an error: it goes on after each
        assert client.call_tool("add", {"a": 1, "b": 2}, scope).structured_content == {"sum": 3}
        assert client.call_tool("fail", {"message": "no"}, scope).is_error
        with pytest.raises(latch.PeerRefused, match='MCP server "near": tools/call: .*"not you"'):
            client.call_tool("refuse", {"message": "not you"}, scope)
        with pytest.raises(latch.UsageError, match="do not fit its inputSchema"):
            client.call_tool("add", {"a": "one"}, scope)

        # a call that is not answered in time ends it, and is not made again
        with pytest.raises(latch.DeadlineMissed) as late:
            client.call_tool("slow", {"seconds": 60}, scope.within(300 * ms))
        assert LOST in str(late.value) and not census.carriers(marker)
        began = time.monotonic()
        with pytest.raises(latch.PeerGone, match="it was disconnected") as gone:
            client.call_tool("add", {"a": 1, "b": 2}, scope)
        assert time.monotonic() - began < 50 * ms
        assert gone.value.hint == "a new session connects again; nothing is sent a second time"
        assert [tool.catalogue_name for tool in client.tools] == names
    calls = [
        line["body"]["params"]["name"]
        for line in read_record(place / "record")
        if line.get("body", {}).get("method") == "tools/call"
    ]
    assert calls == ["add", "fail", "refuse", "slow"]
    assert told_methods(place / "record")[-1] == "notifications/cancelled"


def test_t6_a_server_sees_its_own_directory_its_own_variables_and_a_workspace_it_cannot_change(
    operator: Operator,
) -> None:
    (operator.workspace / "README").write_text("hello", encoding="utf-8")
    (operator.home / "private").write_text("mine", encoding="utf-8")
    script = operator.place / "server.py"
    script.write_text(LOOKS_AROUND, encoding="utf-8")
    server = {"transport": "stdio", **operator.program(script, name="near", env_from=["LATCH_GIVEN"])}
    operator.configure(servers=[server])
    environment = operator.environment(LATCH_GIVEN="x", LATCH_NOT_GIVEN="y", EXAMPLE_TOKEN="z")
    arguments = f'{{"home": "{operator.home}"}}'
    done = operator.run("call", "--json", "near/look", arguments, env=environment)
    seen = done.value["result"]["structuredContent"]
    assert (seen["cwd"], seen["here"]) == ("/run/peer", [])
    assert seen["environment"]["LATCH_GIVEN"] == "x"
    assert not {"LATCH_NOT_GIVEN", "EXAMPLE_TOKEN", "LATCH_DIRECTORY"} & set(seen["environment"])
    assert "private" not in seen["home"] and seen["state"] in ([], "No such file or directory")
    assert seen["in_cwd"] == "written"
    assert (seen["in_workspace"], seen["workspace"]) == ("Read-only file system", ["README"])
    assert not (operator.workspace / "theirs").exists() and operator.left() == []


def test_ctrl_c_ends_the_check_of_ten_servers_with_the_one_that_hangs(operator: Operator, ms: float) -> None:
    good = [operator.server(name=f"good-{number}") for number in range(9)]
    hung = operator.server("--misbehave", "silent", "--misbehave", "never-closes", name="hung")
    operator.configure(servers=[hung, *good])
    with operator.start("mcp", "--check") as process:
        try:
            for _ in good:
                assert b"started in" in process.stderr.readline()
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert time.monotonic() - began < PROMPT_MS * ms
            assert process.communicate()[1].decode().splitlines()[-1] == (
                'latch: MCP server "hung": server/discover: cancelled (SIGINT)'
            )
        finally:
            process.kill()
    assert operator.left() == []


@pytest.mark.parametrize("sin", ["ignores-cancel", "never-closes"])
def test_ctrl_c_ends_a_call_and_says_what_is_unknown(
    operator: Operator, tmp_path: Path, ms: float, sin: str
) -> None:
    place = tmp_path / "record"
    place.mkdir()
    record = place / "record"
    options = ("--misbehave", sin, "--record", str(record))
    operator.configure(servers=[operator.server(*options, rw_paths=[str(place)])])
    with operator.start("call", "-q", "near/slow", '{"seconds": 60}') as process:
        try:
            assert eventually(lambda: "tools/call" in told_methods(record))
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert time.monotonic() - began < PROMPT_MS * ms
            out, err = process.communicate()
        finally:
            process.kill()
    assert out == b""
    assert err.decode() == f'latch: MCP server "near": tools/call: cancelled (SIGINT); {LOST}\n'
    assert told_methods(record)[-2:] == ["tools/call", "notifications/cancelled"]
    assert operator.left() == []


@pytest.mark.soak
@pytest.mark.parametrize("number", range(KILLS))
def test_nothing_is_left_after_a_kill_9_and_a_reap(operator: Operator, number: int) -> None:
    operator.configure(
        servers=[
            operator.server(),
            operator.server("--misbehave", "never-closes", "--misbehave", "silent:tools/list", name="hung"),
        ]
    )
    arguments = ("mcp", "--check", "-q") if number % 2 else ("call", "-q", "near/slow", '{"seconds": 60}')
    source = random.Random(number)
    with operator.start(*arguments) as process:
        assert eventually(lambda: operator.ledger.is_dir() and any(operator.ledger.iterdir()))
        time.sleep(source.uniform(0, 0.4))
        assert process.poll() is None
        process.kill()
        process.communicate()
    assert operator.run("reap", "--json").status == 0
    assert operator.left() == []


def test_a_process_for_every_call_and_a_catalogue_that_changes(
    workspace: Path, tmp_path: Path, marker: str
) -> None:
    place = tmp_path / "record"
    place.mkdir()
    record = place / "record"
    scope = latch.Scope.root(seconds=30)
    fresh = entry(lifetime="call", env=hosted.marked(marker))
    with latch.McpClient.open(fresh, workspace=workspace, scope=scope) as client:
        for _ in range(2):
            assert client.call_tool("count", {}, scope).structured_content["count"] == 1
            assert not census.carriers(marker)
    options = ("--misbehave", "catalogue-changes", "--record", str(record))
    changing = entry(*options, lifetime="call", env=hosted.marked(marker), rw_paths=(place,))
    with latch.McpClient.open(changing, workspace=workspace, scope=scope) as client:
        with pytest.raises(latch.PeerProtocolError, match="the call was not sent"):
            client.call_tool("count", {}, scope)
    assert "tools/call" not in told_methods(record)


@pytest.mark.parametrize(
    ("sin", "kind"),
    [
        ("dies-mid-answer", latch.PeerGone),
        ("drip", latch.DeadlineMissed),
        ("half-utf8:30", latch.DeadlineMissed),
        ("endless-line", latch.PeerLimit),
    ],
)
def test_whatever_becomes_of_an_answer_it_is_bounded_and_the_call_made_once(
    workspace: Path, tmp_path: Path, marker: str, ms: float, sin: str, kind: type[latch.LatchError]
) -> None:
    place = tmp_path / "record"
    place.mkdir()
    record = place / "record"
    options = ("--era", "modern", "--misbehave", sin, "--record", str(record))
    settings = entry(*options, env=hosted.marked(marker), rw_paths=(place,))
    scope = latch.Scope.root(seconds=30)
    with latch.McpClient.open(settings, workspace=workspace, scope=scope) as client:
        began = time.monotonic()
        with pytest.raises(kind) as raised:
            client.call_tool("count", {}, scope.within(500 * ms))
        assert time.monotonic() - began < 1500 * ms
        error = raised.value
        assert (error.peer, error.stage) == ('MCP server "near"', "tools/call") and LOST in str(error)
        assert not census.carriers(marker) and client.failure is error
        with pytest.raises(latch.PeerGone):
            client.call_tool("count", {}, scope)
    assert told_methods(record).count("tools/call") == 1


def test_ten_thousand_notifications_are_no_answer_and_no_harm(workspace: Path, marker: str) -> None:
    scope = latch.Scope.root(seconds=30)
    settings = entry("--misbehave", "10000-notifications", env=hosted.marked(marker))
    with latch.McpClient.open(settings, workspace=workspace, scope=scope) as client:
        assert client.call_tool("count", {}, scope).structured_content["count"] == 1
        assert client.failure is None
