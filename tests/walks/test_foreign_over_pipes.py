"""Two extensions without our SDK, over raw pipes: what they show is that the protocol alone is enough."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.support.raw_peer import CHECKOUT, RawPeer

EXAMPLES = CHECKOUT / "fixtures" / "extensions"
MESSAGES = [
    {"role": "user", "content": 'say "hi"'},
    {"content": [{"type": "image", "content": "x"}], "role": "user"},
    {"role": "assistant", "tool_calls": [{"id": "c", "arguments": {"content": "as it is"}}]},
    {"role": "tool", "content": "", "tool_call_id": "c"},
]
REQUEST = {"system": 'Be "kind".', "messages": MESSAGES, "tools": [{"name": "t", "input_schema": {}}]}


@pytest.fixture(params=["bash", "node"])
def language(request: pytest.FixtureRequest) -> str:
    """Name each interpreter that is here."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed on this machine")
    return request.param


def start(language: str) -> RawPeer:
    script = EXAMPLES / {"bash": "foreign.sh", "node": "foreign.js"}[language]
    return RawPeer([language, str(script)])


def test_it_registers_one_of_each_with_ids_of_every_type_and_without(language: str) -> None:
    with start(language) as peer:
        registrations = peer.start()
        kinds = {type(message["id"]) for message in registrations if "id" in message}
        assert kinds == {int, str, float, bool, type(None), list, dict}
        assert any("id" not in message for message in registrations)
        assert {message["method"] for message in registrations} == {
            "tool.register",
            "command.register",
            "hook.observe",
            "hook.transform",
            "hook.guard",
            "context_source.register",
        }
        ids = [message["id"] for message in registrations if "id" in message]
        assert json.dumps(peer.tool("answered", {})) == json.dumps(ids)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"a": 1, "id": 9, "method": "exit"},
        {"text": 'quote " backslash \\ brace } bracket ] ü \n'},
        {"deep": [[{"x": [1, {}]}]]},
    ],
)
def test_its_tool_returns_what_it_got(language: str, arguments: Any) -> None:
    with start(language) as peer:
        peer.start()
        assert peer.tool("echo", arguments) == arguments


def test_its_tool_takes_a_large_text(language: str) -> None:
    with start(language) as peer:
        peer.start()
        assert peer.tool("echo", {"text": "x" * 300000}) == {"text": "x" * 300000}


def test_null_is_a_result_and_a_failing_tool_an_error(language: str) -> None:
    with start(language) as peer:
        peer.start()
        assert peer.tool("nothing", {}) is None
        error = peer.call("tool.execute", {"name": "fails", "arguments": {}})["error"]
        assert error["code"] == -32000 and "always fails" in error["message"]
        assert peer.call("no.such", {})["error"]["code"] == -32601


@pytest.mark.parametrize(("name", "decision"), [("rm", "deny"), ("deploy", "ask"), ("ls", "allow")])
def test_its_guard_judges_by_name(language: str, name: str, decision: str) -> None:
    with start(language) as peer:
        peer.start()
        payload = {"arguments": {"name": "other"}, "name": name}
        answer = peer.result("hook.guard", {"action": "tool.execute", "payload": payload})
    assert answer["decision"] == decision


def test_its_transform_changes_the_text_of_messages_alone(language: str) -> None:
    with start(language) as peer:
        peer.start()
        value = peer.result("hook.transform", {"structure": "model_request", "value": REQUEST})
    texts = {0: 'say "hi"', 3: ""}
    changed = [
        {**message, "content": f"[{language}] {texts[number]}"} if number in texts else message
        for number, message in enumerate(MESSAGES)
    ]
    assert value == {**REQUEST, "messages": changed}


def test_its_transform_takes_a_request_without_messages(language: str) -> None:
    with start(language) as peer:
        peer.start()
        value = {**REQUEST, "messages": []}
        assert peer.result("hook.transform", {"structure": "model_request", "value": value}) == value


def test_it_observes_gives_context_and_has_a_command(language: str) -> None:
    payloads = [{"text": "first", "media": 0}, {"text": "second, with {", "media": 1}]
    with start(language) as peer:
        peer.start()
        for payload in payloads:
            peer.notify("hook.observe", {"event": "user_message", "payload": payload})
        assert peer.tool("seen", {}) == payloads
        context = peer.result("context_source.get", {"name": "foreign"})
        assert context == {"name": "foreign", "content": f"told by {language}"}
        command = peer.result("command.execute", {"name": "foreign", "arguments": ""})
        assert command == f"a command in {language}"


def test_it_refuses_another_version(language: str) -> None:
    with start(language) as peer:
        assert "0.1" in peer.call("initialize", {"protocolVersion": "0.2"})["error"]["message"]


def test_it_shuts_down_and_exits_with_status_0_and_says_nothing_on_stderr(language: str) -> None:
    with start(language) as peer:
        peer.start()
        assert peer.finish() == 0
        assert peer.stderr() == ""


def test_it_takes_its_input_byte_by_byte(language: str) -> None:
    params = {"protocolVersion": "0.1"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    with start(language) as peer:
        for byte in f"Content-Length: {len(body)}\r\n\r\n{body}".encode():
            peer.write(bytes([byte]))
        assert peer.read()["result"]["protocolVersion"] == "0.1"


def test_the_end_of_the_input_ends_it(language: str) -> None:
    with start(language) as peer:
        peer.start()
        peer.process.stdin.close()
        assert peer.wait() == 0
