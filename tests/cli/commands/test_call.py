"""cli/commands/call.py: one tool call, and every way in which it ends."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Operator
from tests.support.fake_bwrap import RAN, failing_bwrap
from tests.support.mcp_hosted import answered
from tests.support.mcp_peers import HttpPeer, told_methods
from tests.support.servers import serving
from tests.support.tree import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")

NASTY = "\x1b[31mred \u202eevil\x07 \x9b2J"
PEER_SDK = ROOT / "latch" / "extensions"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_the_result_is_all_there_is_on_stdout(operator: Operator) -> None:
    operator.configure(operator.peer())
    done = operator.run("call", "one/echo", '{"word": "ümläut"}')
    assert (done.status, json.loads(done.out)) == (0, {"word": "ümläut"})
    assert "ümläut" in done.text
    assert [line.partition(" (")[0] for line in done.said.splitlines()] == ['extension "one" is ready']
    assert operator.left() == []


def test_a_text_is_printed_as_it_is_and_arguments_may_be_left_out(operator: Operator) -> None:
    operator.configure(operator.peer())
    assert operator.run("call", "-q", "one/sleep", '{"seconds": 0}').out == b"slept\n"
    assert operator.run("call", "-q", "one/echo").out == b"{}\n"
    assert operator.run("call", "-q", "one/null").out == b"null\n"


@pytest.mark.parametrize("flags", [("--json", "call"), ("call", "--json")])
def test_json_is_one_document_and_no_progress(operator: Operator, flags: tuple[str, ...]) -> None:
    operator.configure(operator.peer())
    done = operator.run(*flags, "one/echo", '{"a": 1}')
    assert done.value == {
        "v": 1,
        "extension": "one",
        "tool": "echo",
        "catalogue_name": "echo",
        "result": {"a": 1},
    }
    assert (done.status, done.err) == (0, b"")


# name, options of the peer, keys of its entry, arguments of the call, exit status, code, words of the message
FAILURES = (
    ("tool error", (), {}, ("one/error",), 1, "peer_refused",
     'tool.execute: answered with an error: "the tool failed"'),
    ("no tool name", (), {}, ("one/",), 2, "usage", '"one/" is neither NAME/TOOL nor a catalogue name'),
    ("no extension", (), {}, ("/echo",), 2, "usage", '"/echo" is neither NAME/TOOL nor a catalogue name'),
    ("no name", (), {}, ("",), 2, "usage", '"" is neither NAME/TOOL nor a catalogue name'),
    ("no catalogue name", (), {}, ("none",), 2, "usage", 'there is no tool "none"'),
    ("not JSON", (), {}, ("one/echo", "{"), 2, "usage", "the arguments are not JSON"),
    ("twice a key", (), {}, ("one/echo", '{"a": 1, "a": 2}'), 2, "usage", "the arguments are not JSON"),
    ("not an object", (), {}, ("one/echo", "[]"), 2, "usage", "the arguments are not a JSON object"),
    ("no such extension", (), {}, ("two/echo",), 2, "usage", 'no extension or MCP server "two" is configured'),
    ("disabled", (), {"enabled": False}, ("one/echo",), 2, "usage", 'extension "one" is disabled'),
    ("no such tool", (), {}, ("one/none",), 2, "usage", 'extension "one" has no tool "none"'),
    ("no such program", (), {"command": "nowhere"}, ("one/echo",), 2, "command", '"nowhere" was not found'),
    ("guard denies", ("--tool", "rm"), {}, ("one/rm",), 3, "denied",
     'tool "rm" was denied by a guard: one: the peer denies'),
    ("guard asks", ("--tool", "deploy"), {}, ("one/deploy",), 4, "approval_needed",
     "needs approval: one: the peer asks"),
    ("guard broken", ("--guard", "missing"), {}, ("one/echo",), 3, "denied", "one: the guard failed"),
    ("dies", ("--misbehave", "kills-itself:tool.execute"), {}, ("one/echo",), 6, "peer_gone",
     "tool.execute: died of signal 9"),
    ("late", (), {"lifecycle": {"request_seconds": 0.2}}, ("one/sleep", '{"seconds": 60}'), 6, "deadline",
     "within 0.2 s"),
    ("out of time", (), {}, ("one/sleep", '{"seconds": 60}', "--timeout", "0.8"), 6, "deadline",
     "the caller's 0.8 s"),
    ("never ready", ("--misbehave", "silent"), {"lifecycle": {"initialize_seconds": 0.2}}, ("one/echo",),
     6, "deadline",
     'extension "one": initialize: no answer within 0.2 s'),
    ("wrong words", ("--misbehave", "bad-json"), {}, ("one/echo",), 6, "peer_protocol",
     'extension "one": initialize'),
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "keys", "arguments", "status", "code", "words"),
    [row[1:] for row in FAILURES],
    ids=[row[0] for row in FAILURES],
)
def test_each_failure_has_its_status_and_its_code(
    operator: Operator,
    options: tuple[str, ...],
    keys: dict[str, Any],
    arguments: tuple[str, ...],
    status: int,
    code: str,
    words: str,
) -> None:
    operator.configure(operator.peer(*options, **keys))
    done = operator.run("call", "--json", *arguments)
    assert (done.status, done.error["exit"], done.error["code"]) == (status, status, code), done
    assert words in done.error["message"]
    assert done.err.count(b"\n") == 1
    assert operator.left() == []


def test_a_failure_in_words_names_the_cure(operator: Operator) -> None:
    operator.configure(operator.peer("--tool", "deploy"))
    done = operator.run("call", "-q", "one/deploy")
    assert (done.status, done.out) == (4, b"")
    assert done.said.splitlines() == [
        'latch: tool "deploy" needs approval: one: the peer asks',
        "hint: latch call cannot ask; change the guard's rule, or call another tool",
    ]


def test_every_enabled_extension_may_guard_and_the_strictest_answer_holds(operator: Operator) -> None:
    operator.configure(
        operator.peer(),
        operator.peer("--guard", "deny", name="strict"),
        operator.peer("--guard", "ask", name="asking"),
        operator.peer("--guard", "deny", name="off", enabled=False),
    )
    message = operator.run("call", "--json", "one/echo").error["message"]
    assert message.endswith(") was denied by a guard: asking: the peer asks; strict: the peer denies it")


def test_the_arguments_go_through_the_transforms_before_a_guard_sees_them(operator: Operator) -> None:
    program = operator.place / "swap.py"
    program.write_text(
        "import sys\n"
        f"sys.path.append({str(PEER_SDK)!r})\n"
        "from sdk import Extension, allow, deny\n"
        "ext = Extension()\n"
        "@ext.transform('tool_arguments')\n"
        "def swap(structure, value):\n"
        "    return {**value, 'arguments': {'word': value['arguments']['word'][::-1]}}\n"
        "@ext.guard('tool.execute')\n"
        "def judge(action, payload):\n"
        "    return deny(str(payload)) if payload['arguments']['word'] == 'desrever' else allow()\n"
        "ext.run()\n",
        encoding="utf-8",
    )
    keys = {"allow": ["transform:tool_arguments"], "ro_paths": [str(PEER_SDK)]}
    operator.configure(operator.peer(), operator.program(program, name="swap", **keys))
    assert json.loads(operator.run("call", "-q", "one/echo", '{"word": "abc"}').out) == {"word": "cba"}
    denied = operator.run("call", "--json", "one/echo", '{"word": "reversed"}').error
    assert denied["exit"] == 3
    assert "{'name': 'echo', 'originalName': 'echo', 'arguments': {'word': 'desrever'}}" in denied["message"]


def test_t29_a_tool_is_called_by_its_own_name_or_by_the_one_a_model_sees(operator: Operator) -> None:
    operator.configure(operator.peer("--tool", "lock the door"), operator.peer(name="two"))
    mapped = f"ext_one_{hashlib.sha256(b'lock the door').hexdigest()[:24]}"
    for name in ("one/lock the door", mapped):
        value = operator.run("call", "--json", name, '{"a": 1}').value
        assert (value["extension"], value["tool"], value["catalogue_name"]) == (
            "one",
            "lock the door",
            mapped,
        )
    # a name of two extensions is nobody's own
    error = operator.run("call", "--json", "echo").error
    assert (error["exit"], error["message"]) == (2, 'there is no tool "echo"')
    value = operator.run("call", "--json", "two/echo").value
    assert value["catalogue_name"] == f"ext_two_{hashlib.sha256(b'echo').hexdigest()[:24]}"


def test_t29_a_guard_is_told_both_names_and_a_refusal_shows_both(operator: Operator) -> None:
    operator.configure(operator.peer("--tool", "Read-File", "--guard", "deny"))
    done = operator.run("call", "--json", "one/Read-File")
    mapped = f"ext_one_{hashlib.sha256(b'Read-File').hexdigest()[:24]}"
    assert done.error["message"] == (
        f'tool "Read-File" (as {mapped}) was denied by a guard: one: the peer denies it'
    )


def test_an_unknown_tool_is_answered_with_those_there_are(operator: Operator) -> None:
    operator.configure(operator.peer("--register", "", "--tool", "lock the door", "--tool", "b"))
    assert operator.run("call", "--json", "one/none").error["hint"] == "known are: lock the door, b"
    mapped = f"ext_one_{hashlib.sha256(b'lock the door').hexdigest()[:24]}"
    hint = operator.run("call", "--json", "none").error["hint"]
    assert hint == f"NAME/TOOL calls one of an MCP server; known are: {mapped}, b"


def test_the_file_to_write_is_named_where_there_is_none(operator: Operator) -> None:
    error = operator.run("call", "--json", "one/echo").error
    assert (error["message"], error["hint"]) == (
        'no extension or MCP server "one" is configured',
        f"none is configured; add [[extensions]] or [[mcp_servers]] to {operator.file}",
    )
    error = operator.run("call", "--json", "echo").error
    assert (error["message"], error["hint"]) == (
        'there is no tool "echo"',
        f"no extension is enabled; add [[extensions]] or [[mcp_servers]] to {operator.file}",
    )


def test_an_extension_that_is_not_configured_is_answered_with_those_that_are(operator: Operator) -> None:
    operator.configure(operator.peer(), operator.peer(name="two", enabled=False))
    assert (
        operator.run("call", "--json", "six/echo").error["hint"] == f"configured in {operator.file}: one, two"
    )


def test_an_extension_is_no_tool_and_is_answered_with_its_tools(operator: Operator) -> None:
    operator.configure(
        operator.peer("--register", "", "--tool", "lock", "--tool", "b"), operator.peer(name="two")
    )
    error = operator.run("call", "--json", "one").error
    assert (error["exit"], error["message"], error["hint"]) == (
        2,
        '"one" is an extension, not a tool',
        "its tools are: one/lock, one/b",
    )


def test_where_another_extension_does_not_start_it_says_how_to_go_on(operator: Operator) -> None:
    operator.configure(operator.peer(), operator.peer("--misbehave", "wrong-version", name="bad"))
    cure = 'enabled = false for extension "bad" lets the others go on without it'
    assert operator.run("call", "--json", "one/echo").error["hint"] == cure
    assert operator.run("call", "--json", "bad/echo").error["hint"] is None


FAILING = """
import sys; sys.path.append({sdk!r})
from sdk import Extension, allow
ext = Extension()
@ext.tool()
def fails(arguments):
    return {{}}["a key that is not there"]
@ext.guard("tool.execute")
def judge(action, payload):
    return allow() if payload["arguments"].get("allowed", True) else 1 / 0
ext.run()
"""


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        ("{}", 1, 'return {}["a key that is not there"]'),
        ('{"allowed": false}', 3, 'return allow() if payload["arguments"].get("allowed", True) else 1 / 0'),
    ],
)
def test_verbose_shows_the_traceback_of_what_failed_in_an_extension(
    operator: Operator, arguments: str, status: int, line: str
) -> None:
    program = operator.place / "failing.py"
    program.write_text(FAILING.format(sdk=str(PEER_SDK)), encoding="utf-8")
    operator.configure(operator.peer(), operator.program(program, name="mine", ro_paths=[str(PEER_SDK)]))
    plain = operator.run("call", "-q", "mine/fails", arguments)
    assert plain.status == status and "Traceback" not in plain.said
    done = operator.run("call", "-q", "-v", "mine/fails", arguments)
    shown = done.said.splitlines()
    assert done.status == status and 'extension "mine" wrote to standard error:' in shown
    assert "Traceback (most recent call last):" in shown and line in [text.strip() for text in shown]
    assert shown[-1].startswith("latch: " if status == 3 else "latch: extension")
    error = operator.run("call", "-v", "--json", "mine/fails", arguments).error
    assert error["exit"] == status


def test_a_tool_that_failed_with_words_of_its_own_says_how_to_see_them(operator: Operator) -> None:
    program = operator.place / "failing.py"
    program.write_text(FAILING.format(sdk=str(PEER_SDK)), encoding="utf-8")
    operator.configure(operator.program(program, name="mine", ro_paths=[str(PEER_SDK)]), operator.peer())
    hint = "latch -v call shows what it wrote to standard error"
    assert operator.run("call", "--json", "mine/fails").error["hint"] == hint
    assert operator.run("call", "--json", "one/error").error["hint"] is None


def test_a_bad_end_after_a_failed_tool_is_told_with_it(operator: Operator) -> None:
    operator.configure(operator.peer("--misbehave", "exits-nonzero"))
    done = operator.run("call", "--json", "one/error")
    assert (done.status, done.error["code"], done.error["exit"]) == (1, "peer_refused", 1)
    assert done.said.splitlines()[0] == 'latch: extension "one": exit: exited with status 3 instead of 0'


def test_a_reason_of_any_length_and_shape_is_one_short_line(operator: Operator) -> None:
    program = operator.place / "wordy.py"
    program.write_text(
        f"import sys; sys.path.append({str(PEER_SDK)!r})\n"
        "from sdk import Extension, deny\n"
        "ext = Extension()\n"
        "ext.tool('t')(print)\n"
        "ext.guard('tool.execute')(lambda action, payload: deny('no\\nlatch: ' + 'x' * 100000))\n"
        "ext.run()\n",
        encoding="utf-8",
    )
    operator.configure(operator.program(program, name="wordy", ro_paths=[str(PEER_SDK)]))
    done = operator.run("call", "-q", "wordy/t")
    assert done.status == 3 and done.said.count("\n") == 1 and len(done.said) < 500
    assert done.said.startswith('latch: tool "t" was denied by a guard: wordy: no latch: xxx')


def test_an_extension_that_ends_badly_after_its_answer_is_a_note(operator: Operator) -> None:
    operator.configure(operator.peer("--misbehave", "exits-nonzero"))
    done = operator.run("call", "--json", "one/echo")
    assert (done.status, done.value["result"]) == (0, {})
    assert done.said == 'latch: extension "one": exit: exited with status 3 instead of 0\n'


def test_text_of_a_peer_reaches_no_terminal_raw(operator: Operator) -> None:
    operator.configure(operator.peer())
    arguments = json.dumps({"message": NASTY})
    with operator.on_terminal("call", "-q", "one/error", arguments) as terminal:
        failed = terminal.finish()
    with operator.on_terminal("call", "-q", "one/echo", arguments) as terminal:
        answered = terminal.finish()
    assert (failed.status, answered.status) == (1, 0)
    for done in (failed, answered):
        screen = done.said
        assert "red" in screen and "evil" in screen
        assert not set(screen) & set(NASTY) - set("red evil[31m2J"), screen
    assert "\\x1b[31mred \\u{202E}evil\\x07 \\x9b2J" in failed.said


def test_progress_is_drawn_on_a_terminal_even_with_json(operator: Operator) -> None:
    operator.configure(operator.peer())
    with operator.on_terminal("call", "--json", "one/echo", stdout=-1) as terminal:
        done = terminal.finish()
    assert done.value["result"] == {}
    assert 'extension "one" is ready' in done.said and done.said.endswith("\r\x1b[K")


def test_without_a_sandbox_nothing_runs(operator: Operator) -> None:
    fake = failing_bwrap(
        operator.place / "fake" / "bwrap",
        "bwrap: Unexpected capabilities but not setuid, old file caps config?",
    )
    operator.configure(operator.peer(), sandbox={"bwrap": str(fake)})
    done = operator.run("call", "--json", "one/echo")
    assert (done.status, done.error["code"]) == (8, "sandbox_unavailable")
    assert (
        'cannot start extension "one"' in done.error["message"]
        and "nothing was run unsandboxed" in done.error["message"]
    )
    assert "ambient" in done.error["message"] and "AmbientCapabilities" in done.error["hint"]
    assert fake.with_name(RAN).exists() and operator.left() == []


# -- MCP servers -----------------------------------------------------------------------------------------


def shown_as(tool: str, server: str = "near") -> str:
    """Return the catalogue name of a server's tool."""
    return f"mcp_{server}_{hashlib.sha256(tool.encode()).hexdigest()[:24]}"


def test_a_tool_of_a_server_is_called_by_its_own_name_or_by_the_one_a_model_sees(operator: Operator) -> None:
    operator.configure(servers=[operator.server("--era", "modern")])
    done = operator.run("call", "near/add", '{"a": 1, "b": 2}')
    assert (done.status, done.out) == (0, b'{"sum":3}\n')
    assert [line.partition(" (")[0] for line in done.said.splitlines()] == ['MCP server "near" is ready']
    value = operator.run("call", "--json", shown_as("add"), '{"a": 1, "b": 2}').value
    assert (value["server"], value["tool"], value["catalogue_name"]) == ("near", "add", shown_as("add"))
    assert value["result"]["structuredContent"] == {"sum": 3}
    assert operator.left() == []


def test_of_the_servers_only_the_one_that_is_called_is_started(operator: Operator, tmp_path: Path) -> None:
    place = tmp_path / "records"
    place.mkdir()
    other = operator.server("--record", str(place / "other"), name="other", rw_paths=[str(place)])
    broken = operator.server(name="broken", command="nowhere")
    with HttpPeer() as server:
        operator.configure(servers=[other, broken, operator.remote(server.url)])
        assert operator.run("call", "-q", "far/echo", '{"x": 1}').out == b'{"x":1}\n'
        assert operator.run("call", "-q", shown_as("echo", "far"), '{"x": 1}').out == b'{"x":1}\n'
    assert not (place / "other").exists()


def test_content_that_is_more_than_text_is_printed_as_json(operator: Operator) -> None:
    with HttpPeer("--era", "modern") as server:
        operator.configure(servers=[operator.remote(server.url)])
        value = json.loads(operator.run("call", "-q", "far/blocks").out)
    assert [block["type"] for block in value["content"]][:3] == ["text", "image", "audio"]


def test_a_large_result_goes_through_a_pipe_whole(operator: Operator) -> None:
    operator.configure(servers=[operator.server("--era", "modern")])
    done = operator.run("call", "-q", "near/big", '{"bytes": 3000000}')
    assert done.status == 0 and len(done.out) > 2_999_000 and done.out.strip(b"x") == b"\n"


# options of the server, keys of its entry, arguments of the call, exit status, code, words of the message
SERVER_FAILURES = {
    "tool failed": ((), {}, ("far/fail", '{"message": "no such file"}'), 1, "tool_failed",
        f'MCP server "far": tool "fail" (as {shown_as("fail", "far")}) failed: no such file'),
    "failed without words": ((), {}, ("far/fail", '{"message": ""}'), 1, "tool_failed",
        "failed"),
    "refused": ((), {}, ("far/refuse",), 1, "peer_refused",
        'tools/call: answered with an error: "the tool refuses"'),
    "no such tool": ((), {}, ("far/none",), 2, "usage",
        'MCP server "far" has no tool "none"'),
    "no such catalogue name": ((), {}, ("mcp_far_000000000000000000000000",), 2, "usage",
        'there is no tool "mcp_far_000000000000000000000000"'),
    "no such server": ((), {}, ("six/echo",), 2, "usage",
        'no extension or MCP server "six" is configured'),
    "disabled": ((), {"enabled": False}, ("far/echo",), 2, "usage",
        'MCP server "far" is disabled'),
    "arguments": ((), {}, ("far/add", '{"a": "x"}'), 2, "usage",
        'the arguments of "add" do not fit its inputSchema'),
    "asks for input": (("--misbehave", "input-required"), {}, ("far/echo",), 1, "peer_refused",
        "elicitation/create"),
    "needs a task": (("--misbehave", "task-required"), {}, ("far/task",), 1, "peer_refused",
        "asynchronous task"),
    "breaks off": (("--misbehave", "dies-mid-answer"), {}, ("far/echo",), 6, "peer_gone",
        "took effect is unknown"),
    "bad envelope": (("--misbehave", "bad-envelope"), {}, ("far/echo",), 6, "peer_protocol",
        "no list of content"),
    "late": ((), {"timeout_seconds": 1}, ("far/slow", '{"seconds": 60}'), 6, "deadline",
        "tools/call: no answer within 1 s; whether the call took effect is unknown"),
    "out of time": ((), {}, ("far/slow", '{"seconds": 60}', "--timeout", "0.9"), 6, "deadline",
        "the caller's 0.9 s"),
    "401": (("--misbehave", "401"), {}, ("far/echo",), 5, "credential",
        "HTTP status 401"),
    "not set": ((), {"bearer_token_env": "LATCH_ABSENT"}, ("far/echo",), 5, "credential",
        '"LATCH_ABSENT" is not set'),
    "redirect": (("--misbehave", "redirect"), {}, ("far/echo",), 6, "peer_refused",
        "which is never followed"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "keys", "arguments", "status", "code", "words"),
    SERVER_FAILURES.values(),
    ids=list(SERVER_FAILURES),
)
def test_each_failure_of_a_server_has_its_status_and_its_code(
    operator: Operator,
    options: tuple[str, ...],
    keys: dict[str, Any],
    arguments: tuple[str, ...],
    status: int,
    code: str,
    words: str,
) -> None:
    with HttpPeer("--era", "modern", *options) as server:
        operator.configure(servers=[operator.remote(server.url, **keys)])
        done = operator.run("call", "--json", *arguments)
    assert (done.status, done.error["exit"], done.error["code"]) == (status, status, code), done
    assert words in done.error["message"] and done.err.count(b"\n") == 1


def test_what_a_failed_tool_says_is_told_whole(operator: Operator) -> None:
    words = "no such file\n" + "x" * 1000
    arguments = ("far/fail", json.dumps({"message": words}))
    with HttpPeer("--era", "modern") as server:
        operator.configure(servers=[operator.remote(server.url)])
        done = operator.run("call", "-q", *arguments)
        error = operator.run("call", "--json", *arguments).error
    first = f'latch: MCP server "far": tool "fail" (as {shown_as("fail", "far")}) failed'
    assert (done.status, done.out, done.said) == (1, b"", f"{first}\n{words}\n")
    assert error["result"]["isError"] is True and error["result"]["content"] == [
        {"type": "text", "text": words}
    ]
    assert len(error["message"]) < 500 and "failed: no such file xxx" in error["message"]


def test_a_failed_tool_that_says_more_than_text_is_told_as_json(operator: Operator) -> None:
    failed = {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": True}
    listing = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    with serving(answered(found, listing, failed)) as server:
        operator.configure(servers=[operator.remote(f"http://127.0.0.1:{server.port}/")])
        done = operator.run("call", "-q", "far/t")
    first, _, rest = done.said.partition("\n")
    assert done.status == 1 and first.endswith(" failed") and json.loads(rest)["content"] == failed["content"]


def test_what_a_failed_tool_wrote_beside_is_shown_or_hinted_at(operator: Operator) -> None:
    operator.configure(servers=[operator.server("--misbehave", "stderr-flood:0.0001")])
    arguments = ("near/fail", '{"message": "no"}')
    hint = operator.run("call", "--json", *arguments).error["hint"]
    assert hint == "latch -v call shows what it wrote to standard error"
    done = operator.run("call", "-q", "-v", *arguments)
    assert (
        'MCP server "near" wrote to standard error:\nfixture: flood' in done.said and "hint:" not in done.said
    )


def test_a_server_is_no_tool_and_a_tool_that_was_left_out_says_why(operator: Operator) -> None:
    with HttpPeer("--misbehave", "null-schema") as server:
        operator.configure(servers=[operator.remote(server.url)])
        error = operator.run("call", "--json", "far").error
        assert (error["message"], error["hint"]) == (
            '"far" is an MCP server, not a tool',
            "latch mcp tools far lists its tools",
        )
        message = operator.run("call", "--json", "far/bad").error["message"]
    assert message.startswith('MCP server "far" has a tool "bad", which was left out: its inputSchema is no')


def test_a_guard_is_asked_before_a_tool_of_a_server_is_called(operator: Operator, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with HttpPeer("--era", "modern", "--record", str(record)) as server:
        operator.configure(operator.peer("--guard", "deny"), servers=[operator.remote(server.url)])
        done = operator.run("call", "--json", "far/echo")
    assert (done.status, done.error["code"]) == (3, "denied")
    assert f'tool "echo" (as {shown_as("echo", "far")}) was denied by a guard: one:' in done.error["message"]
    assert "tools/call" not in told_methods(record)


def test_words_of_a_server_that_failed_are_shown_when_asked_for(operator: Operator) -> None:
    operator.configure(servers=[operator.server("--misbehave", "stderr-flood:0.0001")])
    plain = operator.run("call", "--json", "near/refuse").error
    assert plain["hint"] == "latch -v call shows what it wrote to standard error"
    done = operator.run("call", "-q", "-v", "near/refuse")
    assert 'MCP server "near" wrote to standard error:\nfixture: flood' in done.said
    gone = operator.run("call", "-q", "-v", "near/slow", '{"seconds": 60}', "--timeout", "0.9")
    assert gone.status == 6 and 'MCP server "near" wrote to standard error:' in gone.said


def test_a_fresh_process_for_every_call_is_called_like_any_other(operator: Operator) -> None:
    operator.configure(servers=[operator.server(lifetime="call")])
    done = operator.run("call", "-q", "near/count")
    assert json.loads(done.out)["count"] == 1 and operator.left() == []
