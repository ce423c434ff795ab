"""Extensions written from the protocol alone, in bash and JavaScript, through the host in the sandbox."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest

from latch.errors import PeerRefused
from latch.extensions.hooks import Decision
from latch.extensions.host import ExtensionHost
from latch.settings import ExtensionSettings
from latch.system.scope import Scope
from latch.tools.names import catalogue_names
from tests.support import census, hosted
from tests.support.hosted import EXAMPLES, Trace

Json = Any

SCRIPTS = {"bash": "foreign.sh", "node": "foreign.js"}


class Foreign:
    """One running foreign extension, its language and its trace."""

    def __init__(self, language: str, host: ExtensionHost, trace: Trace) -> None:
        self.language = language
        self.host = host
        self.trace = trace
        self.scope = Scope.root(30)


@pytest.fixture(params=SCRIPTS)
def foreign(request: pytest.FixtureRequest, sandbox: Path, workspace: Path) -> Iterator[Foreign]:
    """The example in each language, open; afterwards it is shut down by the rules and nothing is left."""
    language: str = request.param
    program = shutil.which(language)
    if program is None:
        pytest.skip(f"{language} is not installed on this machine")
    marker, trace = hosted.new_marker(), Trace()
    settings = ExtensionSettings(
        name="foreign",
        command=program,
        args=(str(EXAMPLES / SCRIPTS[language]),),
        env=hosted.marked(marker),
        allow=("guard:*",),
    )
    with ExtensionHost.open(settings, workspace=workspace, scope=Scope.root(30), trace=trace) as host:
        yield Foreign(language, host, trace)
    assert not census.carriers(marker)


def test_it_registers_one_of_each(foreign: Foreign) -> None:
    known = foreign.host.registrations
    names = [tool.name for tool in known.tools]
    assert {"echo", "answered", "seen", "nothing", "fails"} <= set(names)
    assert [command.name for command in known.commands] == ["foreign"]
    assert [source.name for source in known.context_sources] == ["foreign"]
    assert (known.observers, known.transforms) == (("user_message",), ("model_request",))
    assert known.guards == (("tool.execute",) if foreign.language == "bash" else ("*",))
    assert foreign.host.diagnostics == ()
    mapped = [name for (_, name), shown in catalogue_names([foreign.host]).items() if shown != name]
    assert mapped == ([] if foreign.language == "bash" else ["js.add"])


def test_ids_of_every_json_type_come_back_and_what_has_none_is_not_answered(foreign: Foreign) -> None:
    registrations = [message for message in foreign.trace.told("<-") if str(message.get("method")) != "ready"]
    asked = [message["id"] for message in registrations if "id" in message and "method" in message]
    assert {type(one) for one in asked} == {int, str, float, bool, type(None), list, dict}
    answers = [message for message in foreign.trace.told("->") if "result" in message]
    assert json.dumps([answer["id"] for answer in answers]) == json.dumps(asked)
    assert all(answer["result"] == {"ok": True} for answer in answers)
    assert any("id" not in message for message in registrations)
    # and this is what arrived there
    assert json.dumps(foreign.host.call_tool("answered", {}, foreign.scope)) == json.dumps(asked)


def test_its_tools_answer_with_any_json_or_an_error(foreign: Foreign) -> None:
    call, scope = foreign.host.call_tool, foreign.scope
    for arguments in (
        {},
        {"text": 'quote " backslash \\ brace } ü \n'},
        {"deep": [[{"x": [1, {}]}]], "id": 9},
    ):
        assert call("echo", arguments, scope) == arguments
    assert call("echo", {"text": "x" * 300_000}, scope) == {"text": "x" * 300_000}
    assert call("nothing", {}, scope) is None
    with pytest.raises(PeerRefused, match="this tool always fails"):
        call("fails", {}, scope)
    assert call("echo", {"still": "here"}, scope) == {"still": "here"}
    if foreign.language == "node":
        assert call("js.add", {"a": 1, "b": 2.5}, scope) == 3.5
    assert foreign.host.run_command("foreign", "", scope) == f"a command in {foreign.language}"


@pytest.mark.parametrize(
    ("name", "decision"), [("rm", Decision.DENY), ("deploy", Decision.ASK), ("ls", Decision.ALLOW)]
)
def test_its_guard_decides(foreign: Foreign, name: str, decision: Decision) -> None:
    payload = {"name": name, "originalName": name, "arguments": {"name": "other"}}
    answer = foreign.host.guard("tool.execute", payload, foreign.scope)
    assert (answer.decision, answer.failed) == (decision, False)
    says = {
        Decision.DENY: (f"foreign: {foreign.language} says no",),
        Decision.ASK: (f"foreign: {foreign.language} wants to know",),
        Decision.ALLOW: (),
    }
    assert answer.reasons == says[decision]
    everything = foreign.host.guard("child.spawn", {"task": "t", "mode": "ASK", "name": name}, foreign.scope)
    assert everything.decision is (Decision.ALLOW if foreign.language == "bash" else decision)


def test_its_transform_changes_text_and_is_taken(foreign: Foreign) -> None:
    value = {
        "system": 'Be "kind".',
        "messages": [
            {"role": "user", "content": "hi, {you}"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "name": "t", "arguments": {"content": "x"}}],
            },
        ],
        "tools": [{"name": "t", "description": "", "input_schema": {"type": "object"}}],
    }
    changed = foreign.host.transform("model_request", value, foreign.scope)
    before = f"[{foreign.language}] "
    assert [message["content"] for message in changed["messages"]] == [before + "hi, {you}", before]


def test_it_observes_and_gives_context(foreign: Foreign) -> None:
    payloads = [{"text": "first", "media": 0, "sessionId": "s"}, {"text": "second, with {", "media": 1}]
    for payload in payloads:
        foreign.host.observe("user_message", payload, foreign.scope)
    assert foreign.host.call_tool("seen", {}, foreign.scope) == payloads
    assert foreign.host.context("foreign", foreign.scope) == {
        "name": "foreign",
        "content": f"told by {foreign.language}",
    }


def test_threads_may_take_turns(foreign: Foreign) -> None:
    results: list[Json] = []
    for number in range(5):
        thread = threading.Thread(
            target=lambda: results.append(foreign.host.call_tool("echo", {"n": number}, foreign.scope))
        )
        thread.start()
        thread.join()
    assert results == [{"n": number} for number in range(5)]
