"""A real extension in the real sandbox: calls, hooks, cancel, settings, and every way to an end."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from latch.errors import (
    Cancelled,
    CommandUnusable,
    ConcurrentUse,
    ConfigError,
    DeadlineMissed,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    PeerRefused,
    SandboxUnavailable,
    UsageError,
)
from latch.extensions.hooks import Decision
from latch.extensions.host import ExtensionHost
from latch.extensions.registrations import METHODS
from latch.limits import DEFAULT, ExtensionLimits
from latch.settings import ExtensionSettings, SandboxSettings
from latch.system.machine import Machine
from latch.system.sandbox import Sandbox
from latch.system.scope import CancelToken, Scope
from tests.support import census, hosted
from tests.support.fake_bwrap import program as executable
from tests.support.hosted import BARE, LateClock, Trace, later, open_peer, peer

Json = Any

pytestmark = pytest.mark.usefixtures("sandbox")

TEXT = {"system": "s", "messages": [{"role": "user", "content": "x"}], "tools": []}


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(30)


@pytest.fixture
def marker() -> Iterator[str]:
    """A mark for the extension's environment; nothing that carries it may be left."""
    value = hosted.new_marker()
    yield value
    assert census.eventually(lambda: not census.carriers(value), seconds=2)


def program(tmp_path: Path, body: str, **changes: Any) -> ExtensionSettings:
    """An extension of a few lines: ``take()`` reads a message, ``say()`` writes one, ``start()`` begins."""
    script = tmp_path / "extension.py"
    script.write_text(
        "import json, os, sys\n"
        "def take():\n"
        "    size = int(sys.stdin.buffer.readline().split(b':')[1]); sys.stdin.buffer.readline()\n"
        "    return json.loads(sys.stdin.buffer.read(size))\n"
        "def say(**message):\n"
        "    body = json.dumps({'jsonrpc': '2.0', **message}).encode()\n"
        "    sys.stdout.buffer.write(b'Content-Length: %d\\r\\n\\r\\n%b' % (len(body), body))\n"
        "    sys.stdout.buffer.flush()\n"
        "def start(*registrations):\n"
        "    global first\n"
        "    first = take(); say(id=first['id'], result={'protocolVersion': '0.1'}); take()\n"
        "    for method, params in registrations: say(method=method, params=params)\n"
        "    say(method='ready', params={})\n" + body
    )
    known: dict[str, Any] = {"name": "small", "command": sys.executable, "args": (BARE, str(script))}
    return ExtensionSettings(**{**known, **changes})


ANSWER_ALL = """
start(('tool.register', {'name': 't'}))
while True:
    message = take()
    if message['method'] == 'exit': break
    say(id=message['id'], result=RESULT)
"""


def told(workspace: Path, tmp_path: Path, result: str, **changes: Any) -> Json:
    """Return what a small extension says that *result*, a Python expression, is inside the sandbox."""
    settings = program(tmp_path, ANSWER_ALL.replace("RESULT", result), **changes)
    with ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30)) as host:
        return host.call_tool("t", {}, Scope.root(30))


# -- one good extension --------------------------------------------------------------------------------


def test_what_it_registered_is_there_and_everything_can_be_called(
    workspace: Path, scope: Scope, marker: str
) -> None:
    with open_peer(workspace, "--transform", "mark", env=hosted.marked(marker)) as host:
        assert host.name == "peer" and host.failure is None
        assert "echo" in {tool.name for tool in host.registrations.tools}
        assert host.call_tool("echo", {"a": [1, None, "ü"]}, scope) == {"a": [1, None, "ü"]}
        assert host.call_tool("null", {}, scope) is None
        assert host.run_command("peer", "rest of the line", scope) == {
            "command": "peer",
            "arguments": "rest of the line",
        }
        assert host.guard("tool.execute", {"name": "rm", "arguments": {}}, scope).decision is Decision.DENY
        assert host.guard("tool.execute", {"name": "deploy", "arguments": {}}, scope).decision is Decision.ASK
        assert host.guard("tool.execute", {"name": "ls", "arguments": {}}, scope).decision is Decision.ALLOW
        changed = host.transform("model_request", TEXT, scope)
        assert changed == {**TEXT, "messages": [{"role": "user", "content": "x [transformed]"}]}
        assert host.context("peer", scope) == "context of the peer"
        host.observe("user_message", {"text": "hi", "media": 0}, scope)
        assert host.call_tool("observed", {}, scope) == [
            {"event": "user_message", "payload": {"text": "hi", "media": 0}}
        ]
        assert list(host.timings) == ["spawn", "initialize", "registration"]
        assert census.carriers(marker)
    assert list(host.timings)[3:] == ["shutdown", "exit"]
    assert all(0 < seconds < 20 for seconds in host.timings.values())


def test_a_name_that_was_not_registered_is_our_callers_mistake(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace, "--register", "command", "--tool", "one") as host:
        for call in (
            lambda: host.call_tool("two", {}, scope),
            lambda: host.run_command("two", None, scope),
            lambda: host.context("two", scope),
        ):
            with pytest.raises(UsageError, match='extension "peer" has no .* "two"') as raised:
                call()
            assert raised.value.hint in ("it has: one", "it has: peer", "it has: none")
        assert host.call_tool("one", {"still": "usable"}, scope) == {"still": "usable"}


def test_arguments_that_are_no_json_are_our_callers_mistake(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace) as host:
        for bad in ({"a": {1}}, {"a": float("inf")}, {"a": "\ud800"}, {"a": "x" * (16 * 1024 * 1024)}):
            with pytest.raises(UsageError, match="the arguments cannot be sent"):
                host.call_tool("echo", bad, scope)
            with pytest.raises(UsageError, match="the arguments cannot be sent"):
                host.observe("user_message", bad, scope)
            answer = host.guard("tool.execute", bad, scope)
            assert answer.decision is Decision.DENY and answer.failed
        assert host.call_tool("echo", {}, scope) == {}


@pytest.mark.parametrize("bad", [[1], None, "text", 7])
def test_arguments_of_a_tool_that_are_no_mapping_are_our_callers_mistake(
    workspace: Path, scope: Scope, bad: Any
) -> None:
    with open_peer(workspace) as host:
        with pytest.raises(UsageError, match=f"must be a mapping, not {type(bad).__name__}"):
            host.call_tool("echo", bad, scope)
        assert host.call_tool("echo", {}, scope) == {}


def test_large_values_go_both_ways(workspace: Path, scope: Scope) -> None:
    text = "x" * (8 * 1024 * 1024)
    with open_peer(workspace) as host:
        assert host.call_tool("echo", {"text": text}, scope) == {"text": text}


def test_an_error_leaves_it_usable_and_its_message_survives(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace) as host:
        with pytest.raises(PeerRefused) as raised:
            host.call_tool("error", {"message": "no such file:\n  x"}, scope)
        error = raised.value
        assert str(error) == 'extension "peer": tool.execute: answered with an error: "no such file: x"'
        assert error.data == {"code": -32000, "message": "no such file:\n  x"}
        assert (error.peer, error.stage) == ('extension "peer"', "tool.execute")
        assert host.failure is None and host.call_tool("echo", {}, scope) == {}


def test_an_error_text_is_quoted_only_in_part(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace) as host:
        with pytest.raises(PeerRefused) as raised:
            host.call_tool("error", {"message": "y" * 100000}, scope)
        assert len(str(raised.value)) < 500 and len(raised.value.data["message"]) == 100000


def test_registrations_with_and_without_ids_are_answered_or_not(workspace: Path, scope: Scope) -> None:
    for options, answered in ((), True), (("--no-ids",), False):
        trace = Trace()
        with ExtensionHost.open(peer(*options), workspace=workspace, scope=scope, trace=trace) as host:
            registrations = [message for message in trace.told("<-") if message.get("method") in METHODS]
            oks = [message for message in trace.told("->") if message.get("result") == {"ok": True}]
            assert len(registrations) > 6
            assert [message["id"] for message in oks] == [
                message["id"] for message in registrations if answered
            ]
            assert host.call_tool("answers", {}, scope) == oks


def test_the_trace_sees_both_directions_of_a_whole_life(workspace: Path, scope: Scope) -> None:
    trace = Trace()
    settings = peer("--register", "", "--tool", "one")
    with ExtensionHost.open(settings, workspace=workspace, scope=scope, trace=trace) as host:
        host.call_tool("one", {"a": 1}, scope)
    told = [(way, message.get("method", message.get("id"))) for way, message in trace.frames]
    assert told == [
        ("->", "initialize"),
        ("<-", 1),
        ("->", "initialized"),
        ("<-", "tool.register"),
        ("->", 100),
        ("<-", "ready"),
        ("->", "tool.execute"),
        ("<-", 2),
        ("->", "shutdown"),
        ("<-", 3),
        ("->", "exit"),
    ]
    assert trace.told("->")[0]["params"]["workspace"] == str(workspace.resolve())


def test_an_unknown_request_is_answered_at_once_while_a_call_waits(workspace: Path, scope: Scope) -> None:
    # the peer waits for that answer before it gives its own
    with open_peer(workspace, "--misbehave", "unknown-request:tool.execute") as host:
        assert host.call_tool("echo", {"a": 1}, scope) == {"a": 1}


def test_unknown_notifications_are_counted_and_change_nothing(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace, "--misbehave", "notifications") as host:
        before = host.ignored
        assert before > 5
        assert host.call_tool("echo", {"a": 1}, scope) == {"a": 1}
        assert host.ignored == before + 1


def test_a_late_registration_is_refused_and_told_once(workspace: Path, scope: Scope) -> None:
    with open_peer(
        workspace, "--misbehave", "late-registration:idle", "--misbehave", "late-registration:call"
    ) as host:
        for _ in range(3):
            host.call_tool("echo", {}, scope)
        answers = [one for one in host.call_tool("answers", {}, scope) if one["id"] == "late"]
        assert {answer["error"]["code"] for answer in answers} == {-32600}
        assert host.diagnostics == ('"tool.register" came after ready and was not registered',)
        with pytest.raises(UsageError):
            host.call_tool("late", {}, scope)


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("missing-name", "tool.register: name is missing"),
        ("number-name", "tool.register: name is a number, not a string"),
        ("empty-name", "tool.register: name has 0 bytes, allowed are 1 to 128"),
        ("long-name", "tool.register: name has 129 bytes, allowed are 1 to 128"),
        ("params-list", "tool.register: params is an array, not an object"),
        ("number-description", "tool.register: description is a number, not a string"),
        ("schema-list", 'tool.register: inputSchema of "bad" is an array, not an object'),
        ("schema-string", 'tool.register: inputSchema of "bad" must have type "object"'),
        ("duplicate-tool", 'tool.register: name "twin" is registered twice'),
        ("duplicate-command", 'command.register: name "twin" is registered twice'),
        ("missing-command", "command.register: name is missing"),
        ("missing-event", "hook.observe: event is missing"),
        ("number-event", "hook.observe: event is a number, not a string"),
        ("missing-structure", "hook.transform: structure is missing"),
        ("missing-action", "hook.guard: action is missing"),
        ("missing-source", "context_source.register: name is missing"),
    ],
)
def test_an_invalid_registration_ends_the_start_naming_all(
    workspace: Path, scope: Scope, marker: str, which: str, says: str
) -> None:
    trace = Trace()
    settings = peer("--misbehave", f"bad-registration:{which}", env=hosted.marked(marker))
    with pytest.raises(PeerProtocolError) as raised:
        ExtensionHost.open(settings, workspace=workspace, scope=scope, trace=trace)
    error = raised.value
    assert (error.peer, error.stage, error.reason) == ('extension "peer"', "registration", says)
    assert str(error).startswith(f'extension "peer": registration: {says}')
    assert [message["error"]["code"] for message in trace.told("->") if "error" in message] == [-32602]


def test_an_invalid_registration_is_answered_before_the_end(workspace: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    body = (
        "first = take(); say(id=first['id'], result={'protocolVersion': '0.1'}); take()\n"
        "say(id='bad', method='tool.register', params={})\n"
        f"open({str(kept / 'answer')!r}, 'w').write(json.dumps(take()))\n"
    )
    clock = LateClock()

    def hold_the_kill(way: str, message: bytes) -> None:
        if b'"error"' in message:
            clock.seconds = 0.5

    with pytest.raises(PeerProtocolError, match="name is missing"):
        ExtensionHost.open(
            program(tmp_path, body, rw_paths=(kept,)),
            workspace=workspace,
            scope=Scope.root(30, clock=clock),
            trace=hold_the_kill,
        )
    answer = json.loads((kept / "answer").read_text())
    assert (answer["id"], answer["error"]["code"]) == ("bad", -32602)


def test_an_unknown_registration_is_answered_as_an_unknown_request(workspace: Path, scope: Scope) -> None:
    trace = Trace()
    settings = peer("--misbehave", "bad-registration:unknown-method")
    with ExtensionHost.open(settings, workspace=workspace, scope=scope, trace=trace) as host:
        assert host.registrations.tools == ()
    assert [message["error"]["code"] for message in trace.told("->") if "error" in message] == [-32601]


def test_an_error_for_initialize_ends_the_start(workspace: Path, scope: Scope, marker: str) -> None:
    with pytest.raises(PeerRefused, match='answered with an error: "busy"') as raised:
        open_peer(workspace, "--misbehave", "answers-error:busy:initialize", env=hosted.marked(marker))
    assert (raised.value.peer, raised.value.stage) == ('extension "peer"', "initialize")


def test_one_that_does_not_wait_for_us_is_heard_all_the_same(
    workspace: Path, tmp_path: Path, scope: Scope
) -> None:
    # answer, registrations and ready leave in one write, as soon as initialize came
    body = (
        "first, held = take(), []\n"
        "write = sys.stdout.buffer.write\n"
        "def frame(**message):\n"
        "    text = json.dumps(message).encode()\n"
        "    return b'Content-Length: %d\\r\\n\\r\\n' % len(text) + text\n"
        "write(frame(jsonrpc='2.0', id=first['id'], result={'protocolVersion': '0.1'})\n"
        "    + frame(jsonrpc='2.0', id=1, method='tool.register', params={'name': 't'})\n"
        "    + frame(jsonrpc='2.0', method='ready'))\n"
        "sys.stdout.buffer.flush()\n"
        "heard = [take() for _ in range(3)]\n"
        "say(id=heard[2]['id'], result=[one.get('method', one.get('id')) for one in heard])\n"
        "say(id=take()['id'], result=None); take()\n"
    )
    settings = program(tmp_path, body)
    with ExtensionHost.open(settings, workspace=workspace, scope=scope) as host:
        assert host.settings is settings
        assert host.call_tool("t", {}, scope) == ["initialized", 1, "tool.execute"]


# -- hooks -----------------------------------------------------------------------------------------------


GUARDED = {"name": "x", "originalName": "x", "arguments": {}}


@pytest.mark.parametrize(
    ("option", "decision", "reason"),
    [
        ("allow", Decision.ALLOW, None),
        ("ask", Decision.ASK, "peer: the peer asks"),
        ("deny", Decision.DENY, "peer: the peer denies it"),
        ("bare-deny", Decision.DENY, "peer: denied"),
    ],
)
def test_a_guard_decides(
    workspace: Path, scope: Scope, option: str, decision: Decision, reason: str | None
) -> None:
    with open_peer(workspace, "--guard", option) as host:
        answer = host.guard("tool.execute", GUARDED, scope)
        assert (answer.decision, answer.failed) == (decision, False)
        assert answer.reasons == (() if reason is None else (reason,))


@pytest.mark.parametrize("option", ["missing", "number", "unknown", "text", "null", "error"])
def test_a_guard_without_a_proper_answer_denies_and_stays_usable(
    workspace: Path, scope: Scope, option: str
) -> None:
    with open_peer(workspace, "--guard", option) as host:
        answer = host.guard("tool.execute", GUARDED, scope)
        assert answer.decision is Decision.DENY and answer.failed
        assert answer.reasons[0].startswith("peer: the guard failed: ")
        assert host.failure is None and host.call_tool("echo", {}, scope) == {}


@pytest.mark.parametrize(
    ("sin", "says"),
    [
        ("silent:hook.guard", "no answer within 0.2 s"),
        ("kills-itself:hook.guard", "died of signal 9"),
        ("exits-at-once:hook.guard", "exited with status 0 before it answered"),
        ("bad-json:hook.guard", "hook.guard: "),
        ("wrong-id:hook.guard", "an answer to no outstanding request came"),
    ],
)
def test_a_guard_that_is_late_or_dead_denies_now_and_ever_after(
    workspace: Path, scope: Scope, marker: str, sin: str, says: str
) -> None:
    request = 0.2 if sin.startswith("silent") else 20
    host = open_peer(workspace, "--misbehave", sin, stages={"request": request}, env=hosted.marked(marker))
    for _ in range(2):
        answer = host.guard("tool.execute", GUARDED, scope)
        assert answer.decision is Decision.DENY and answer.failed
        assert says in answer.reasons[0] and 'extension "peer": hook.guard: ' in answer.reasons[0]
    assert not census.carriers(marker)
    assert host.failure is not None
    host.close()


def test_a_guard_that_was_closed_or_cancelled_never_allows(workspace: Path, scope: Scope) -> None:
    host = open_peer(workspace)
    cancelled = Scope.root(30)
    cancelled.cancel("enough")
    with pytest.raises(Cancelled):
        host.guard("tool.execute", GUARDED, cancelled)
    host.close()
    answer = host.guard("tool.execute", GUARDED, scope)
    assert answer.decision is Decision.DENY and answer.failed and "was closed" in answer.reasons[0]


def test_what_nobody_guards_transforms_or_observes_asks_nobody(workspace: Path, scope: Scope) -> None:
    options = [
        "--actions",
        "*",
        "--structures",
        "tool_result,model_request",
        "--events",
        "*",
        "--guard",
        "deny",
    ]
    with open_peer(workspace, *options, "--transform", "mark", allow=("guard:child.spawn",)) as host:
        assert host.guard("model.request", {}, scope).decision is Decision.ALLOW
        assert host.guard("child.spawn", {}, scope).decision is Decision.DENY
        assert host.guard("tool.execute", GUARDED, scope).decision is Decision.DENY
        value = {"name": "t", "isError": False, "content": "c"}
        assert host.transform("tool_result", value, scope) is value
        assert host.transform("tool_arguments", value, scope) is value
        host.observe("tool_finished", {}, scope)
        host.observe("user_message", {}, scope)
        assert [one["event"] for one in host.call_tool("observed", {}, scope)] == ["user_message"]
        assert host.call_tool("received", {}, scope).count("hook.guard") == 2
        assert "hook.transform" not in host.call_tool("received", {}, scope)
        assert [text.split(" fires")[0].split(" never")[0] for text in host.diagnostics] == [
            'observe "*"',
            'transform "tool_result"',
            'guard "*"',
        ]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("wrong-shape", "model_request: the value is not an object"),
        ("null", "model_request: the value is not an object"),
        ("overreach", "model_request: system may not change"),
    ],
)
def test_a_transform_that_oversteps_fails_and_leaves_it_usable(
    workspace: Path, scope: Scope, option: str, says: str
) -> None:
    with open_peer(workspace, "--transform", option) as host:
        with pytest.raises(PeerProtocolError) as raised:
            host.transform("model_request", TEXT, scope)
        assert str(raised.value) == f'extension "peer": hook.transform: {says}'
        assert (raised.value.peer, raised.value.stage) == ('extension "peer"', "hook.transform")
        assert host.failure is None and host.call_tool("echo", {}, scope) == {}


def test_an_observer_that_does_not_read_is_bounded_and_then_over(
    workspace: Path, scope: Scope, marker: str
) -> None:
    host = open_peer(
        workspace, "--misbehave", "silent:idle", stages={"request": 0.2}, env=hosted.marked(marker)
    )
    began = time.monotonic()
    with pytest.raises(DeadlineMissed) as raised:
        for _ in range(40):
            host.observe("user_message", {"text": "x" * 100000}, scope)
    assert raised.value.stage == "hook.observe" and "no reader within 0.2 s" in str(raised.value)
    assert time.monotonic() - began < 5
    with pytest.raises(DeadlineMissed):
        host.observe("user_message", {}, scope)


def test_an_observer_that_died_is_told_of(workspace: Path, scope: Scope) -> None:
    host = open_peer(workspace, "--misbehave", "exits-at-once:idle")
    assert census.eventually(lambda: _observing_fails(host, scope), seconds=5)
    assert "exited with status 0 before it was told" in str(host.failure)


def _observing_fails(host: ExtensionHost, scope: Scope) -> bool:
    try:
        host.observe("user_message", {}, scope)
    except PeerGone:
        return True
    return False


# -- the end of one that misbehaves in a call ---------------------------------------------------------------


def test_a_missed_call_deadline_is_the_end_and_later_calls_say_the_same(
    workspace: Path, scope: Scope, marker: str
) -> None:
    host = open_peer(
        workspace, "--misbehave", "silent:call", stages={"request": 0.2}, env=hosted.marked(marker)
    )
    with pytest.raises(DeadlineMissed) as raised:
        host.call_tool("echo", {}, scope)
    error = raised.value
    assert str(error) == 'extension "peer": tool.execute: no answer within 0.2 s; killed (signal 9)'
    assert (error.peer, error.stage, error.seconds, error.own) == (
        'extension "peer"',
        "tool.execute",
        0.2,
        True,
    )
    assert not census.carriers(marker) and host.failure is error
    began = time.monotonic()
    for call in (
        lambda: host.call_tool("echo", {}, scope),
        lambda: host.context("peer", scope),
        lambda: host.transform("model_request", TEXT, scope),
        lambda: host.observe("user_message", {}, scope),
    ):
        with pytest.raises(DeadlineMissed) as again:
            call()
        assert again.value is error
    assert time.monotonic() - began < 0.2
    host.close()
    host.kill()


def test_the_callers_shorter_deadline_is_named_as_the_callers(workspace: Path) -> None:
    host = open_peer(workspace, "--misbehave", "silent:call")
    with pytest.raises(DeadlineMissed) as raised:
        host.call_tool("echo", {}, Scope.root(0.2))
    assert "no answer within the caller's 0.2 s" in str(raised.value) and not raised.value.own


def test_one_that_died_while_idle_is_seen_at_once_by_the_next_call(
    workspace: Path, scope: Scope, ms: float
) -> None:
    host = open_peer(workspace, "--misbehave", "exits-nonzero:7:idle")
    # long enough for the housekeeper to have seen it before the call
    time.sleep(3 * DEFAULT.process.housekeeping_seconds)
    began = time.monotonic()
    with pytest.raises(PeerGone) as raised:
        host.call_tool("echo", {}, scope)
    assert time.monotonic() - began < 1000 * ms
    assert raised.value.status == 7
    assert str(raised.value) == 'extension "peer": tool.execute: exited with status 7 before it answered'


def test_what_it_broke_while_idle_is_raised_by_the_next_call(
    workspace: Path, tmp_path: Path, scope: Scope
) -> None:
    begin = "import time\nstart(('tool.register', {'name': 't'}))\n"
    body = begin + "time.sleep(0.1)\nprint('oops', flush=True)\ntake()\n"
    host = ExtensionHost.open(program(tmp_path, body), workspace=workspace, scope=scope)
    time.sleep(0.1 + 3 * DEFAULT.process.housekeeping_seconds)
    with pytest.raises(PeerProtocolError, match="oops") as raised:
        host.call_tool("t", {}, scope)
    assert raised.value.stage == "tool.execute"


def test_the_last_of_its_stderr_stands_in_the_error(workspace: Path, tmp_path: Path, scope: Scope) -> None:
    body = "start()\nsys.stderr.write('x' * 20000 + ' the\\n reason'); sys.stderr.flush(); os._exit(4)"
    with pytest.raises(PeerGone) as raised:
        with ExtensionHost.open(program(tmp_path, body), workspace=workspace, scope=scope) as host:
            host.close()
    assert str(raised.value).endswith('x the reason"') and len(str(raised.value)) < 600
    assert raised.value.status == 4
    assert len(raised.value.stderr_tail) <= DEFAULT.process.stderr_tail_bytes + 3


def test_one_that_asks_and_never_reads_is_ended_at_the_limit(
    workspace: Path, scope: Scope, marker: str
) -> None:
    limits = replace(DEFAULT, extension=ExtensionLimits(max_unread_answer_bytes=100_000))
    host = open_peer(
        workspace, "--misbehave", "flood-requests:call", limits=limits, env=hosted.marked(marker)
    )
    with pytest.raises(PeerLimit) as raised:
        host.call_tool("echo", {}, scope)
    assert (raised.value.limit, raised.value.amount) == ("max_unread_answer_bytes", 100_000)
    assert raised.value.stage == "tool.execute"


def test_more_registrations_than_the_limit_end_the_start(workspace: Path, scope: Scope) -> None:
    limits = replace(DEFAULT, extension=ExtensionLimits(max_registrations=3))
    with pytest.raises(PeerLimit, match="more than 3 registrations") as raised:
        open_peer(workspace, limits=limits)
    assert (raised.value.limit, raised.value.stage) == ("max_registrations", "registration")


# -- cancel ------------------------------------------------------------------------------------------------


def test_a_cancel_that_is_honoured_leaves_it_usable(workspace: Path, scope: Scope, ms: float) -> None:
    with open_peer(workspace) as host:
        token = CancelToken()
        timer = later(0.2, lambda: token.cancel("enough"))
        began = time.monotonic()
        with pytest.raises(Cancelled) as raised:
            host.call_tool("sleep", {"seconds": 20}, scope.also(token))
        assert 0.15 < time.monotonic() - began < 0.2 + 500 * ms
        assert str(raised.value) == 'extension "peer": tool.execute: cancelled (enough)'
        assert host.failure is None and host.call_tool("echo", {"a": 1}, scope) == {"a": 1}
        timer.join()


def test_a_cancel_answered_within_the_grace_counts(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace, "--misbehave", "honours-cancel:0.2") as host:
        token = CancelToken()
        later(0.1, lambda: token.cancel("enough"))
        with pytest.raises(Cancelled):
            host.call_tool("sleep", {"seconds": 20}, scope.also(token))
        assert host.call_tool("echo", {}, scope) == {}


def test_a_cancel_that_is_ignored_kills_within_the_grace_and_says_so(
    workspace: Path, scope: Scope, marker: str, ms: float
) -> None:
    host = open_peer(workspace, "--misbehave", "ignores-cancel", env=hosted.marked(marker))
    token = CancelToken()
    later(0.2, lambda: token.cancel("enough"))
    began = time.monotonic()
    with pytest.raises(Cancelled) as raised:
        host.call_tool("sleep", {"seconds": 20}, scope.also(token))
    grace = DEFAULT.extension.cancel_grace_seconds
    assert 0.2 + grace - 0.05 < time.monotonic() - began < 0.2 + grace + 300 * ms
    assert str(raised.value) == (
        'extension "peer": tool.execute: cancelled (enough); it did not answer $/cancelRequest and was killed'
    )
    assert not census.carriers(marker)
    with pytest.raises(UsageError, match=r"was killed, because it did not answer \$/cancelRequest"):
        host.call_tool("echo", {}, scope)
    host.close()


@pytest.mark.parametrize(
    ("sin", "stage"),
    [
        ("silent:start", "initialize"),
        ("silent:initialize", "initialize"),
        ("silent:registration", "registration"),
    ],
)
def test_a_cancel_during_the_start_ends_it_at_once(
    workspace: Path, marker: str, ms: float, sin: str, stage: str
) -> None:
    scope = Scope.root(30)
    timer = later(0.4, lambda: scope.cancel("enough"))
    with pytest.raises(Cancelled) as raised:
        open_peer(workspace, "--misbehave", sin, scope=scope, env=hosted.marked(marker))
    timer.join()
    assert (raised.value.peer, raised.value.stage) == ('extension "peer"', stage)
    assert not census.carriers(marker)


@pytest.mark.parametrize(("sin", "stage"), [("silent:shutdown", "shutdown"), ("ignores-exit", "exit")])
def test_a_cancel_during_close_kills(workspace: Path, marker: str, ms: float, sin: str, stage: str) -> None:
    host = open_peer(workspace, "--misbehave", sin, env=hosted.marked(marker))
    scope = Scope.root(30)
    later(0.2, lambda: scope.cancel("enough"))
    began = time.monotonic()
    with pytest.raises(Cancelled) as raised:
        host.close(scope)
    assert time.monotonic() - began < 0.2 + 1000 * ms
    assert raised.value.stage == stage
    assert not census.carriers(marker)
    host.close()


def test_a_scope_that_was_cancelled_before_starts_nothing(workspace: Path, marker: str) -> None:
    scope = Scope.root(30)
    scope.cancel("before")
    with pytest.raises(Cancelled, match="before"):
        open_peer(workspace, scope=scope, env=hosted.marked(marker))


def test_another_thread_may_only_cancel(workspace: Path, scope: Scope) -> None:
    with open_peer(workspace) as host:
        failures: list[BaseException] = []
        driving = threading.Thread(target=lambda: host.call_tool("sleep", {"seconds": 0.6}, scope))
        driving.start()
        time.sleep(0.2)
        for use in (
            lambda: host.call_tool("echo", {}, scope),
            lambda: host.guard("tool.execute", GUARDED, scope),
            lambda: host.observe("user_message", {}, scope),
            host.close,
            host.kill,
        ):
            with pytest.raises(ConcurrentUse):
                use()
        driving.join()
        assert not failures and host.failure is None
        assert host.call_tool("echo", {"a": 1}, scope) == {"a": 1}


# -- idle ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sin", ["stderr-idle", "requests-idle"])
def test_one_that_is_busy_while_idle_is_not_stalled(workspace: Path, scope: Scope, sin: str) -> None:
    # 100 lines of 1 KiB a second: a pipe that nobody drains is full after 0.6 s
    with open_peer(workspace, "--misbehave", sin) as host:
        time.sleep(1.0)
        counts = [host.call_tool("count", {}, scope)]
        time.sleep(0.3)
        counts.append(host.call_tool("count", {}, scope))
        assert counts[1] > counts[0] > (70 if sin == "stderr-idle" else 5)


# -- what an entry sets ------------------------------------------------------------------------------------


def test_it_gets_its_own_environment_and_only_the_named_part_of_ours(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINT_TOKEN", "t0ken")
    monkeypatch.setenv("OTHER_SECRET", "no")
    monkeypatch.setenv("BOTH", "ours")
    seen = told(
        workspace,
        tmp_path,
        "dict(os.environ)",
        env={"LINT_LEVEL": "2", "BOTH": "the entry's"},
        env_from=("LINT_TOKEN", "BOTH"),
    )
    assert (seen["LINT_LEVEL"], seen["LINT_TOKEN"], seen["BOTH"]) == ("2", "t0ken", "the entry's")
    assert seen["LATCH_WORKSPACE"] == str(workspace)
    assert "OTHER_SECRET" not in seen and "LATCH_DIRECTORY" not in seen


def test_a_variable_of_env_from_that_is_not_set_is_the_operators_mistake(
    workspace: Path, tmp_path: Path
) -> None:
    file = tmp_path / "elsewhere" / "config.toml"
    settings = peer(env_from=("UNSET_A", "UNSET_B"), sandbox=SandboxSettings(config_file=file))
    with pytest.raises(ConfigError) as raised:
        ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30))
    assert [str(problem) for problem in raised.value.problems] == [
        f'{file}: extensions "peer": env_from: "{name}" is not set in the environment of this process'
        for name in ("UNSET_A", "UNSET_B")
    ]


def test_the_environment_is_that_of_the_sandboxes_machine(workspace: Path, tmp_path: Path) -> None:
    machine = Machine.read({**os.environ, "LINT_TOKEN": "from the machine"})
    settings = program(
        tmp_path, ANSWER_ALL.replace("RESULT", "os.environ['LINT_TOKEN']"), env_from=("LINT_TOKEN",)
    )
    sandbox = Sandbox(SandboxSettings(), machine=machine)
    with ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30), sandbox=sandbox) as host:
        assert host.call_tool("t", {}, Scope.root(30)) == "from the machine"


@pytest.mark.parametrize("cwd", ["private", "workspace"])
def test_it_starts_in_a_private_directory_or_in_the_workspace(
    workspace: Path, tmp_path: Path, cwd: str
) -> None:
    (workspace / "theirs").touch()
    here, names = told(workspace, tmp_path, "[os.getcwd(), os.listdir('.')]", cwd=cwd)
    assert (here == str(workspace)) == (cwd == "workspace")
    assert names == (["theirs"] if cwd == "workspace" else [])


WRITES = """
def tries(path):
    try:
        open(path, 'w').write('x')
        return 'written'
    except OSError as error:
        return type(error).__name__
"""


def test_the_workspace_is_read_only_and_only_rw_paths_are_not(workspace: Path, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("own", "shown", "unseen")}
    for place in places.values():
        place.mkdir()
        (place / "file").write_text("content")
    tried = [str(workspace / "x"), str(places["own"] / "x"), str(places["shown"] / "x"), "x"]
    shown, unseen = str(places["shown"] / "file"), str(places["unseen"] / "file")
    result = f"[*map(tries, {tried}), open({shown!r}).read(), os.path.exists({unseen!r})]"
    body = WRITES + ANSWER_ALL.replace("RESULT", result)
    settings = program(tmp_path, body, rw_paths=(places["own"],), ro_paths=(places["shown"],))
    with ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30)) as host:
        seen = host.call_tool("t", {}, Scope.root(30))
    assert seen == ["OSError", "written", "OSError", "written", "content", False]
    assert (places["own"] / "x").read_text() == "x" and not (workspace / "x").exists()


def test_network_false_leaves_it_only_its_own_loopback(workspace: Path, tmp_path: Path) -> None:
    interfaces = "sorted(line.split(':')[0].strip() for line in list(open('/proc/net/dev'))[2:])"
    assert told(workspace, tmp_path, interfaces, network=False) == ["lo"]
    assert told(workspace, tmp_path, interfaces) == sorted(os.listdir("/sys/class/net"))


@pytest.mark.parametrize(
    ("command", "status"),
    [("no-such-program", 127), ("{tmp}/plain", 126), ("{tmp}/broken", 127), ("./relative", 127)],
)
def test_a_program_that_cannot_run_is_named_with_its_extension(
    workspace: Path, tmp_path: Path, command: str, status: int
) -> None:
    executable(tmp_path / "plain", "#!/bin/sh\n", mode=0o644)
    executable(tmp_path / "broken", "#!/no/such/interpreter\n")
    command = command.format(tmp=tmp_path)
    with pytest.raises(CommandUnusable) as raised:
        open_peer(workspace, command=command, args=())
    assert raised.value.status == status
    assert str(raised.value).startswith('extension "peer": ') and command in str(raised.value)
    assert hosted.own_children() == []


def test_a_program_that_the_sandbox_cannot_execute_is_explained(workspace: Path, tmp_path: Path) -> None:
    garbage = executable(tmp_path / "garbage", "#!/etc/passwd\n")
    with pytest.raises(CommandUnusable) as raised:
        open_peer(workspace, command=str(garbage), args=())
    assert raised.value.status == 126
    assert 'extension "peer"' in str(raised.value) and str(garbage) in str(raised.value)
    assert hosted.own_children() == []


@pytest.mark.parametrize("key", ["ro_paths", "rw_paths"])
def test_a_path_that_may_not_be_shown_is_a_fault_of_the_configuration(
    workspace: Path, own_home: Path, key: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        open_peer(workspace, **{key: (own_home,)})
    (problem,) = raised.value.problems
    assert (problem.file, problem.entry) == ("settings", 'extensions "peer"')
    assert problem.reason == f'"{own_home}": {key}: is the home directory'
    assert raised.value.hint == "name a place that holds nothing private"


def test_a_program_in_a_private_directory_is_a_fault_with_its_cure(
    workspace: Path, own_home: Path, tmp_path: Path
) -> None:
    place = own_home / ".latch"
    place.mkdir(mode=0o700, exist_ok=True)
    program = executable(place / "peer", "#!/bin/sh\n")
    with pytest.raises(ConfigError, match="its command needs it: .*, which is private") as raised:
        open_peer(workspace, command=str(program), args=())
    assert raised.value.hint == "move the program, with what it needs, to a directory of its own"


def test_without_a_sandbox_nothing_is_started(workspace: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    witness.mkdir()
    settings = program(tmp_path, f"open({str(witness / 'ran')!r}, 'w')", rw_paths=(witness,))
    absent = SandboxSettings(bwrap=tmp_path / "no-bwrap")
    with pytest.raises(SandboxUnavailable) as raised:
        ExtensionHost.open(replace(settings, sandbox=absent), workspace=workspace, scope=Scope.root(30))
    assert 'extension "small"' in str(raised.value)
    assert not (witness / "ran").exists()


# -- closing ---------------------------------------------------------------------------------------------


def test_close_is_idempotent_and_later_use_says_that_it_was_closed(
    workspace: Path, scope: Scope, marker: str
) -> None:
    host = open_peer(workspace, env=hosted.marked(marker))
    host.close()
    assert not census.carriers(marker)
    for end in (host.close, host.kill, host.close):
        end()
    with pytest.raises(UsageError, match='extension "peer" was closed'):
        host.call_tool("echo", {}, scope)


def test_kill_is_idempotent_and_leaves_nothing(workspace: Path, scope: Scope, marker: str) -> None:
    host = open_peer(workspace, "--misbehave", "daemonises:idle", env=hosted.marked(marker))
    assert census.eventually(lambda: len(census.carriers(marker)) == 3)
    for end in (host.kill, host.kill, host.close):
        end()
    assert not census.carriers(marker)
    with pytest.raises(UsageError, match="was closed"):
        host.call_tool("echo", {}, scope)


def test_leaving_the_block_with_an_error_kills_and_keeps_the_error(workspace: Path, marker: str) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        with open_peer(workspace, "--misbehave", "silent:shutdown", env=hosted.marked(marker)):
            raise RuntimeError("mine")
    assert not census.carriers(marker)


@pytest.mark.parametrize(
    ("sin", "kind", "stage", "says"),
    [
        ("shutdown-error:busy", PeerRefused, "shutdown", 'answered with an error: "busy"'),
        ("shutdown-wrong-id", PeerProtocolError, "shutdown", "an answer to no outstanding request came"),
        ("shutdown-wrong-id:text", PeerProtocolError, "shutdown", "an answer to no outstanding request came"),
        ("ignores-shutdown", DeadlineMissed, "shutdown", "no answer within 0.3 s; killed (signal 9)"),
        ("ignores-exit", DeadlineMissed, "exit", "no exit within 0.3 s; killed (signal 9)"),
        ("exits-nonzero", PeerGone, "exit", "exited with status 3 instead of 0"),
        ("kills-itself:15:exit", PeerGone, "exit", "died of signal 15 instead of 0"),
        ("exits-at-once:shutdown", PeerGone, "shutdown", "exited with status 0 before it answered"),
    ],
)
def test_a_bad_end_is_reported_and_is_the_end(
    workspace: Path, scope: Scope, marker: str, sin: str, kind: type[PeerError], stage: str, says: str
) -> None:
    deadline = 0.3 if kind is DeadlineMissed else 20
    host = open_peer(
        workspace,
        "--misbehave",
        sin,
        stages={"shutdown": deadline, "exit": deadline},
        env=hosted.marked(marker),
    )
    with pytest.raises(kind) as raised:
        host.close()
    assert str(raised.value).startswith(f'extension "peer": {stage}: {says}')
    assert (raised.value.peer, raised.value.stage) == ('extension "peer"', stage)
    assert not census.carriers(marker)
    host.close()
    with pytest.raises(kind):
        host.call_tool("echo", {}, scope)


def test_null_or_anything_answers_shutdown_and_a_daemon_is_ended_with_it(
    workspace: Path, marker: str
) -> None:
    for sin in ("leaves-stdout-open-in-daemon", "notifications"):
        host = open_peer(workspace, "--misbehave", sin, env=hosted.marked(marker))
        host.close()
        assert not census.carriers(marker)


# -- a monitor that is killed ------------------------------------------------------------------------------


def kill_monitors(before: set[int]) -> None:
    """Kill bubblewrap's outer halves that this process started since *before*, as an out-of-memory killer."""
    for pid in set(hosted.own_children()) - before:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "stage"),
    [
        (("--misbehave", "silent:start"), "initialize"),
        (("--misbehave", "silent:registration"), "registration"),
    ],
)
def test_a_killed_monitor_is_a_peer_that_went_and_no_missing_sandbox(
    workspace: Path, scope: Scope, marker: str, options: tuple[str, ...], stage: str
) -> None:
    before = set(hosted.own_children())

    def kill() -> None:
        assert census.eventually(lambda: census.carriers(marker))
        time.sleep(0.2)
        kill_monitors(before)

    later(0, kill)
    with pytest.raises(PeerGone) as raised:
        open_peer(workspace, *options, scope=scope, env=hosted.marked(marker))
    assert (raised.value.peer, raised.value.stage, raised.value.status) == ('extension "peer"', stage, 137)
    assert str(raised.value) == (
        f'extension "peer": {stage}: ended before it answered; its sandbox died of signal 9'
    )


def test_a_monitor_killed_during_a_call_is_a_peer_that_went(
    workspace: Path, scope: Scope, marker: str
) -> None:
    before = set(hosted.own_children())
    host = open_peer(workspace, env=hosted.marked(marker))
    later(0.2, lambda: kill_monitors(before))
    with pytest.raises(PeerGone) as raised:
        host.call_tool("sleep", {"seconds": 20}, scope)
    assert (raised.value.stage, raised.value.status) == ("tool.execute", 137)
    assert host.failure is raised.value and not census.carriers(marker)


def test_an_init_killed_during_a_call_is_a_peer_that_went(workspace: Path, scope: Scope, marker: str) -> None:
    host = open_peer(workspace, env=hosted.marked(marker))
    (inside,) = census.carriers(marker)
    later(0.2, lambda: os.kill(inside, signal.SIGKILL))
    with pytest.raises(PeerGone, match="tool.execute: died of signal 9 before it answered") as raised:
        host.call_tool("sleep", {"seconds": 20}, scope)
    assert raised.value.status == 137


# -- an end that cannot be proven --------------------------------------------------------------------------


# No time at all for the proof: the kill is sent and what becomes of it is never seen.
UNPROVEN = replace(DEFAULT, process=replace(DEFAULT.process, kill_seconds=0))


@pytest.fixture
def unproven(workspace: Path, marker: str) -> Iterator[ExtensionHost]:
    """A good extension whose end will not be proven; what is left of it is reaped."""
    with open_peer(workspace):
        # the probe needs time to end what it started, so its verdict has to be known by now
        before = set(hosted.own_children())
    host = open_peer(workspace, limits=UNPROVEN, env=hosted.marked(marker))
    (monitor,) = set(hosted.own_children()) - before
    yield host
    assert census.eventually(lambda: census.is_dead(monitor))
    if monitor in hosted.own_children():
        os.waitpid(monitor, 0)


def test_a_kill_that_could_not_be_proven_names_the_process_and_the_cure(
    unproven: ExtensionHost, scope: Scope
) -> None:
    for _ in range(2):
        with pytest.raises(PeerError, match=r"process [0-9]+ could not be proven dead") as raised:
            unproven.kill()
        assert (raised.value.peer, raised.value.stage) == ('extension "peer"', "kill")
        assert raised.value.hint == "once this process has ended, latch reap ends it"
    with pytest.raises(UsageError, match="was closed"):
        unproven.call_tool("echo", {}, scope)


def test_an_unproven_kill_after_a_failure_of_ours_stands_in_it(unproven: ExtensionHost) -> None:
    with pytest.raises(UsageError, match="mine; .*process [0-9]+ could not be proven dead"):
        with unproven:
            raise UsageError("mine")


def test_an_unproven_kill_after_somebody_elses_failure_is_raised_with_it(unproven: ExtensionHost) -> None:
    with pytest.raises(PeerError, match="could not be proven dead") as raised:
        with unproven:
            raise RuntimeError("mine")
    assert isinstance(raised.value.__context__, RuntimeError)


def test_an_end_in_a_call_that_could_not_be_proven_says_so(unproven: ExtensionHost) -> None:
    with pytest.raises(DeadlineMissed, match="process [0-9]+ could not be proven dead") as raised:
        unproven.call_tool("sleep", {"seconds": 20}, Scope.root(0.2))
    assert raised.value.hint == "once this process has ended, latch reap ends it"


# -- a start that fails on our side ------------------------------------------------------------------------


NO_THREAD = """
import os, sys, threading
from pathlib import Path
from latch.extensions.host import ExtensionHost
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from tests.support import census, hosted

settings = hosted.peer(env=hosted.marked("MARKER"))
sandbox = Sandbox(settings.sandbox)
sandbox.ready(Scope.root(20), wanted="a test")
threading.stack_size(1 << 46)
try:
    ExtensionHost.open(settings, workspace=Path(sys.argv[1]), scope=Scope.root(20), sandbox=sandbox)
except OSError as error:
    print(error.strerror)
print(len(census.carriers("MARKER")), len(hosted.own_children()))
"""


def test_a_housekeeper_that_cannot_start_leaves_no_child(workspace: Path, marker: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_THREAD.replace("MARKER", marker), str(workspace)],
        cwd=hosted.CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(hosted.CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["can't start new thread", "0 0"], done


# -- a trace that raises -----------------------------------------------------------------------------------


class Breaking:
    """A trace that raises *fault* at the first frame that holds *word*."""

    def __init__(self, word: bytes, fault: BaseException) -> None:
        self._word = word
        self._fault = fault

    def __call__(self, direction: str, body: bytes) -> None:
        if self._word in body:
            raise self._fault


FAULTS: dict[str, Callable[[], BaseException]] = {
    "somebody else's": lambda: ZeroDivisionError("mine"),
    "of the system": lambda: OSError("mine"),
    "a mistake": lambda: UsageError("mine"),
    "of another peer": lambda: PeerGone("mine", peer="x", stage="y"),
    "a cancel": lambda: Cancelled("mine"),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("word", [b'"initialize"', b'"ready"'])
def test_a_trace_that_raises_during_the_start_ends_it_and_comes_out(
    workspace: Path, scope: Scope, marker: str, word: bytes, kind: str
) -> None:
    fault = FAULTS[kind]()
    settings = peer(env=hosted.marked(marker))
    with pytest.raises(type(fault)) as raised:
        ExtensionHost.open(settings, workspace=workspace, scope=scope, trace=Breaking(word, fault))
    assert raised.value is fault
    assert not census.carriers(marker)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("word", [b'"arguments"', b"-32000"])
def test_a_trace_that_raises_during_a_call_ends_the_extension_and_comes_out(
    workspace: Path, scope: Scope, marker: str, word: bytes, kind: str
) -> None:
    fault = FAULTS[kind]()
    settings = peer(env=hosted.marked(marker))
    host = ExtensionHost.open(settings, workspace=workspace, scope=scope, trace=Breaking(word, fault))
    with pytest.raises(type(fault)) as raised:
        host.call_tool("error", {"message": "an answer"}, scope)
    assert raised.value is fault
    assert not census.carriers(marker)
    with pytest.raises(UsageError, match="was ended, because its trace failed"):
        host.call_tool("echo", {}, scope)
    assert host.guard("tool.execute", GUARDED, scope).decision is Decision.DENY
    host.close()


def test_a_trace_that_raises_between_calls_is_met_by_the_next_one_and_others_are_looked_after(
    workspace: Path, scope: Scope, marker: str
) -> None:
    fault = ZeroDivisionError("mine")
    settings = peer("--misbehave", "requests-idle", env=hosted.marked(marker))
    trace = Breaking(b"peer/unknown", fault)
    with open_peer(workspace, "--misbehave", "requests-idle") as other:
        host = ExtensionHost.open(settings, workspace=workspace, scope=scope, trace=trace)
        time.sleep(4 * DEFAULT.process.housekeeping_seconds)
        with pytest.raises(ZeroDivisionError) as raised:
            host.call_tool("echo", {}, scope)
        assert raised.value is fault and not census.carriers(marker)
        with pytest.raises(UsageError, match="was ended, because its trace failed"):
            host.call_tool("echo", {}, scope)
        before = other.call_tool("count", {}, scope)
        time.sleep(4 * DEFAULT.process.housekeeping_seconds)
        assert other.call_tool("count", {}, scope) > before + 1


def test_an_interrupt_inside_a_message_ends_the_extension(workspace: Path, scope: Scope, marker: str) -> None:
    host = open_peer(workspace, env=hosted.marked(marker))
    later(0.2, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        host.call_tool("sleep", {"seconds": 20}, scope)
    assert not census.carriers(marker)
    with pytest.raises(UsageError, match="was ended, because its use failed"):
        host.call_tool("echo", {}, scope)


# -- limits ------------------------------------------------------------------------------------------------


def test_the_deadlines_of_the_limits_hold_where_the_entry_says_nothing(workspace: Path) -> None:
    limits = replace(DEFAULT, lifecycle=replace(DEFAULT.lifecycle, request_seconds=0.2))
    for entry, seconds in ((None, 0.2), (replace(DEFAULT.lifecycle, request_seconds=0.3), 0.3)):
        settings = replace(peer("--misbehave", "silent:call"), lifecycle=entry)
        host = ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30), limits=limits)
        with pytest.raises(DeadlineMissed) as raised:
            host.call_tool("echo", {}, Scope.root(30))
        assert raised.value.seconds == seconds


def test_the_limits_are_those_of_the_sandbox_unless_others_are_given(workspace: Path) -> None:
    few = replace(DEFAULT, extension=ExtensionLimits(max_registrations=3))
    sandbox = Sandbox(SandboxSettings(), limits=few)
    with pytest.raises(PeerLimit, match="more than 3 registrations"):
        ExtensionHost.open(peer(), workspace=workspace, scope=Scope.root(30), sandbox=sandbox)
    ExtensionHost.open(
        peer(), workspace=workspace, scope=Scope.root(30), sandbox=sandbox, limits=DEFAULT
    ).close()


def test_a_hint_lists_names_only_in_part(workspace: Path, scope: Scope) -> None:
    names = [f"tool-{number:0100}" for number in range(50)]
    options = [option for name in names for option in ("--tool", name)]
    with open_peer(workspace, "--register", "", *options) as host:
        with pytest.raises(UsageError) as raised:
            host.call_tool("x", {}, scope)
    assert raised.value.hint.startswith(f"it has: {names[0]}, ") and raised.value.hint.endswith("...")
    assert len(raised.value.hint) == len("it has: ...") + DEFAULT.extension.max_quoted_chars


def test_unknown_notifications_are_logged_at_debug(
    workspace: Path, scope: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="latch.extensions.host"):
        with open_peer(workspace, "--misbehave", "notifications") as host:
            ignored = host.ignored
    assert 0 < ignored <= len(caplog.records)
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert {record.getMessage() for record in caplog.records} == {
        'extension "peer": unknown notification "log" ignored'
    }


# -- nothing is kept ---------------------------------------------------------------------------------------


def test_what_was_cancelled_or_late_before_it_was_said_is_never_said(workspace: Path) -> None:
    trace = hosted.Trace()
    entry = hosted.peer("--register", "", "--tool", "t")
    with ExtensionHost.open(entry, workspace=workspace, scope=Scope.root(30), trace=trace) as host:
        cancelled = Scope.root(30)
        cancelled.cancel("enough")
        with pytest.raises(Cancelled):
            host.call_tool("t", {}, cancelled)
        with pytest.raises(DeadlineMissed):
            host.call_tool("t", {}, Scope.root(0))
        assert host.failure is None
    assert not any(message.get("method") == "tool.execute" for message in trace.told("->"))


def test_descriptors_and_threads_are_as_before_after_many_lives(workspace: Path) -> None:
    def life(number: int) -> None:
        silent = ["--misbehave", "silent:call"] if number % 3 == 2 else []
        host = open_peer(workspace, "--register", "", "--tool", "t", *silent)
        if number % 3 == 0:
            host.kill()
        elif number % 3 == 1:
            host.close()
        else:
            with pytest.raises(DeadlineMissed):
                host.call_tool("t", {}, Scope.root(0.2))
            assert host.failure is not None

    life(0)
    before, threads = census.descriptors(), threading.active_count()
    for number in range(50):
        life(number)
    assert census.eventually(lambda: len(census.descriptors()) <= len(before)), (before, census.descriptors())
    assert threading.active_count() == threads
    assert hosted.own_children() == []
