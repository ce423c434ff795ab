"""cli/mcp_check.py: servers connected, listed and left, and what is told of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Operator
from tests.support.mcp_hosted import answered
from tests.support.mcp_peers import HttpPeer, told_methods
from tests.support.servers import serving

Json = Any

SECRET = "hunter2-hunter2"
NASTY = "\x1b[31mred \u202eevil\x07 \x9b2J"

needs_sandbox = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


@needs_sandbox
def test_the_report_says_what_each_server_is_and_nothing_is_called_or_left(
    operator: Operator, tmp_path: Path
) -> None:
    place = tmp_path / "records"
    place.mkdir()
    near = operator.server(
        *(
            "--era",
            "legacy",
            "--misbehave",
            "banner",
            "--misbehave",
            "null-schema",
            "--record",
            str(place / "near"),
        ),
        rw_paths=[str(place)],
    )
    with HttpPeer("--era", "modern", "--record", str(place / "far")) as server:
        per_call = operator.server(name="fresh", lifetime="call")
        operator.configure(servers=[near, operator.remote(server.url), per_call])
        done = operator.run("mcp", "--check")
    assert done.status == 0
    lines = done.text.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [head.partition(", connected in ")[0] for head in heads] == [
        "near: MCP 2025-11-25, 10 tools",
        "far: MCP 2026-07-28, 10 tools",
        "fresh: MCP 2026-07-28, 10 tools",
    ]
    assert heads[2].endswith(" s, a fresh process for every call")
    stages = [line.partition(": ")[2] for line in lines if line.startswith("  seconds: ")]
    assert [part.split()[0] for part in stages[0].split(", ")] == [
        "start",
        "server/discover",
        "initialize",
        "tools/list",
    ]
    assert '  skipped bad: its inputSchema is no object of the type "object"' in lines
    assert "  note: 8 lines on its standard output were no messages" in lines
    assert sorted(line.partition(": ")[0] for line in done.said.splitlines()) == [
        'MCP server "far"',
        'MCP server "fresh"',
        'MCP server "near"',
    ]
    assert {"tools/list"} <= set(told_methods(place / "near")) | set(told_methods(place / "far"))
    assert "tools/call" not in told_methods(place / "near") + told_methods(place / "far")
    assert operator.left() == []


def test_the_report_as_json(operator: Operator) -> None:
    with HttpPeer("--era", "modern", "--misbehave", "bad-header-annotations") as server:
        operator.configure(servers=[operator.remote(server.url)])
        done = operator.run("mcp", "--check", "--json")
    (report,) = done.value["servers"]
    assert done.err == b"" and done.status == 0
    assert (report["name"], report["transport"], report["protocol_version"], report["tools"]) == (
        "far",
        "streamable_http",
        "2026-07-28",
        10,
    )
    assert report["server_info"] == {"name": "fixture", "version": "1.0.0"}
    assert {"name": "bad-space", "reason": 'x-mcp-header must be a token of RFC 9110, found "A B"'} in report[
        "skipped"
    ]
    assert list(report["seconds"]) != [] and set(report["seconds"]) == {
        "start",
        "server/discover",
        "tools/list",
    }


def test_with_nothing_enabled_it_says_so(operator: Operator) -> None:
    operator.configure(servers=[operator.remote("http://127.0.0.1:9/", enabled=False)])
    done = operator.run("mcp", "--check")
    assert (done.status, done.out, done.err) == (0, b"no MCP server is enabled\n", b"")
    assert operator.run("mcp", "--check", "--json").value == {"v": 1, "servers": []}


def test_one_tool_is_one_and_a_server_with_only_http_entries_needs_no_sandbox(operator: Operator) -> None:
    listing = {"tools": [{"name": "only", "inputSchema": {"type": "object"}}]}
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    with serving(answered(found, listing)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        operator.configure(servers=[operator.remote(url)], sandbox={"bwrap": "/nowhere/bwrap"})
        done = operator.run("mcp", "--check", "-q")
    assert done.text.startswith("far: MCP 2026-07-28, 1 tool, connected in ")
    assert (done.status, done.err) == (0, b"")


@needs_sandbox
def test_each_failure_is_told_and_the_others_are_reported(operator: Operator, ms: float) -> None:
    with HttpPeer() as good, HttpPeer("--misbehave", "401") as closed:
        operator.configure(
            servers=[
                operator.server("--misbehave", "exit-at-once", name="ends"),
                operator.remote(good.url),
                operator.server("--misbehave", "silent", name="hung", timeout_seconds=1),
                operator.remote(closed.url, name="closed"),
                operator.remote("http://127.0.0.1:9/", name="absent"),
                operator.remote(good.url, name="unset", bearer_token_env="LATCH_ABSENT"),
            ]
        )
        done = operator.run("mcp", "--check", "-q")
    assert [line.partition(":")[0] for line in done.text.splitlines() if "MCP 20" in line] == ["far"]
    told = [line for line in done.said.splitlines() if line.startswith("latch: ")]
    assert [line.split('"')[1] for line in told] == ["ends", "hung", "closed", "absent", "unset"]
    assert "initialize: exited with status 3" in told[0] and "the database is locked" in told[0]
    assert "initialize: no answer within" in told[1] and "killed (signal 9)" in told[1]
    assert "HTTP status 401" in told[2] and "refused" in told[3]
    assert '"LATCH_ABSENT" is not set' in told[4]
    assert done.status == 6 and operator.left() == []


def test_a_variable_that_is_not_set_is_status_5(operator: Operator) -> None:
    operator.configure(servers=[operator.remote("http://127.0.0.1:9/", bearer_token_env="LATCH_ABSENT")])
    error = operator.run("mcp", "--check", "--json").error
    assert (error["exit"], error["code"]) == (5, "credential") and '"LATCH_ABSENT"' in error["message"]


@needs_sandbox
def test_verbose_shows_what_a_server_wrote_to_standard_error(operator: Operator) -> None:
    operator.configure(servers=[operator.server("--misbehave", "stderr-flood:0.0001")])
    plain = operator.run("mcp", "--check", "-q")
    assert plain.status == 0 and "flood" not in plain.said
    done = operator.run("mcp", "--check", "-q", "-v")
    assert done.said.startswith('MCP server "near" wrote to standard error:\nfixture: flood')


@needs_sandbox
def test_a_table_of_tools_shows_both_names_and_one_line_each(operator: Operator) -> None:
    operator.configure(servers=[operator.server("--misbehave", "bad-tool-name:newline")])
    done = operator.run("mcp", "tools", "near", "-q")
    assert done.status == 0
    header, *rows = done.text.splitlines()
    assert header.split() == ["NAME", "ARGUMENTS", "CATALOGUE", "NAME", "DESCRIPTION"]
    assert len(rows) == 11 and rows == sorted(rows)
    row = next(row for row in rows if row.startswith("add "))
    assert re.fullmatch(r"add +a b +mcp_near_[0-9a-f]{24}  Adds.*", row)
    value = operator.run("mcp", "tools", "near", "--json").value
    tool = next(tool for tool in value["tools"] if tool["name"] == "add")
    assert tool["input_schema"]["properties"]["a"] == {"type": "integer"}
    assert tool["output_schema"]["required"] == ["sum"] and tool["title"] == "add"
    assert tool["catalogue_name"].startswith("mcp_near_")
    assert operator.left() == []


def test_a_tool_that_was_left_out_is_told_beside_the_others(operator: Operator) -> None:
    listing = {
        "tools": [
            {"name": "odd", "inputSchema": {"type": "object", "properties": 5}},
            {"name": "bad", "inputSchema": None},
        ]
    }
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    reason = 'its inputSchema is no object of the type "object"'
    for flags in ((), ("--json",)):
        with serving(answered(found, listing)) as server:
            operator.configure(servers=[operator.remote(f"http://127.0.0.1:{server.port}/")])
            done = operator.run("mcp", "tools", "far", *flags)
        assert done.status == 0
        if flags:
            assert [tool["name"] for tool in done.value["tools"]] == ["odd"]
            assert done.value["skipped"] == [{"name": "bad", "reason": reason}]
        else:
            assert done.text.splitlines()[1].split()[:1] == ["odd"]
            assert f"left out: bad: {reason}" in done.said.splitlines()


def test_a_server_without_tools_offers_none(operator: Operator) -> None:
    with HttpPeer("--misbehave", "no-tools-capability") as server:
        operator.configure(servers=[operator.remote(server.url)])
        assert operator.run("mcp", "tools", "far").text == 'MCP server "far" offers no tools\n'
        assert operator.run("mcp", "tools", "far", "--json").value["tools"] == []
        assert "0 tools" in operator.run("mcp", "--check").text


def test_a_server_that_fails_has_no_catalogue(operator: Operator) -> None:
    operator.configure(servers=[operator.remote("http://127.0.0.1:9/")])
    done = operator.run("mcp", "tools", "far", "-q")
    assert (done.status, done.out) == (6, b"") and done.said.startswith('latch: MCP server "far": ')
    assert operator.run("mcp", "tools", "far", "--json").error["exit"] == 6


def test_text_of_a_server_reaches_no_terminal_raw(operator: Operator) -> None:
    listing = {
        "tools": [
            {"name": "t" + NASTY, "description": NASTY, "inputSchema": {"type": "object"}},
            {"name": "bad" + NASTY, "inputSchema": None},
        ]
    }
    found = {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": NASTY},
    }
    with serving(answered(found, listing)) as server:
        operator.configure(servers=[operator.remote(f"http://127.0.0.1:{server.port}/")])
        for arguments in (("--check",), ("tools", "far")):
            with operator.on_terminal("mcp", "-q", *arguments) as terminal:
                done = terminal.finish()
            assert done.status == 0 and "red" in done.said
            assert not set(done.said) & set("\x1b\x07\x9b\u202e"), done.said


@needs_sandbox
def test_t27_a_secret_is_shown_at_no_verbosity(operator: Operator) -> None:
    program = operator.place / "telltale.py"
    program.write_text(
        "import json, os, sys\n"
        "KEY = os.environ['LATCH_KEY']\n"
        "sys.stderr.write('key ' + KEY + '\\n'); print('key', KEY, flush=True)\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    found = {'supportedVersions': ['2026-07-28'], 'capabilities': {'tools': {}},\n"
        "             'serverInfo': {'name': KEY}}\n"
        "    tool = {'name': 't', 'description': KEY, 'inputSchema': {'type': 'object', 'title': KEY}}\n"
        "    listed = {'tools': [tool, {'name': KEY, 'inputSchema': {}}]}\n"
        "    called = {'content': [{'type': 'text', 'text': KEY}]}\n"
        "    known = {'server/discover': found, 'tools/list': listed, 'tools/call': called}\n"
        "    result = known[message['method']]\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': result}), flush=True)\n",
        encoding="utf-8",
    )
    entry = {"transport": "stdio", **operator.program(program, name="near", env_from=["LATCH_KEY"])}
    with HttpPeer("--era", "modern", "--misbehave", f"bearer-required:{SECRET}") as server:
        operator.configure(servers=[entry, operator.remote(server.url, bearer_token_env="LATCH_KEY")])
        environment = operator.environment(LATCH_KEY=SECRET)
        shown = b""
        for arguments in (
            ("mcp", "-vvv"),
            ("mcp", "--check", "-vvv"),
            ("mcp", "--check", "--json"),
            ("mcp", "tools", "near", "--json"),
            ("call", "-vvv", "near/t"),
            ("call", "-vvv", "--json", "far/refuse", json.dumps({"message": SECRET})),
            ("call", "-vvv", "far/headers"),
            ("config", "show", "-vvv"),
        ):
            done = operator.run(*arguments, env=environment)
            shown += done.out + done.err
    assert SECRET.encode() not in shown and b"hunter2" not in shown
    assert shown.count(b"[redacted]") >= 6
