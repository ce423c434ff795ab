"""mcp/client.py: a server as its user sees it, over both transports: opened, called, lost, closed."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest

import latch
from latch.errors import (
    Cancelled,
    ConfigError,
    CredentialError,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    PeerRefused,
    UsageError,
)
from latch.mcp.catalogue import catalogue_name
from latch.mcp.client import McpClient
from latch.system.scope import Scope
from tests.support import census, hosted
from tests.support.hosted import later
from tests.support.mcp_hosted import PEER, local, machine, opened, patient, program, recorded, remote
from tests.support.mcp_peers import HttpPeer, read_record, told_methods
from tests.support.servers import HOLD, serving

Json = Any

SECRET = "hunter2-hunter2"
LOST = "whether the call took effect is unknown"
LOST_BEFORE = "whether the call that was lost then took effect is unknown"

needs_sandbox = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(30)


@pytest.fixture
def marker() -> Iterator[str]:
    """A mark for the server's environment; nothing that carries it may be left."""
    value = hosted.new_marker()
    yield value
    assert census.eventually(lambda: not census.carriers(value), seconds=2)


def failed(client: McpClient, scope: Scope, name: str = "echo", **arguments: Json) -> LatchError:
    with pytest.raises(LatchError) as raised:
        client.call_tool(name, arguments, scope)
    return raised.value


def disconnected(client: McpClient, scope: Scope, name: str = "echo") -> PeerGone:
    """What later calls say; they send nothing and take no time."""
    began = time.monotonic()
    error = failed(client, scope, name)
    assert time.monotonic() - began < 0.05
    assert isinstance(error, PeerGone) and error.reason.startswith("it was disconnected, because ")
    assert error.hint == "a new session connects again; nothing is sent a second time"
    return error


# -- opened ------------------------------------------------------------------------------------------


@needs_sandbox
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_server_on_stdio_is_opened_and_called(workspace: Path, scope: Scope, marker: str, era: str) -> None:
    with opened(local("--era", era, env=hosted.marked(marker)), workspace) as client:
        assert (client.name, client.settings.transport, client.is_per_call) == ("one", "stdio", False)
        assert client.protocol_version == ("2026-07-28" if era == "modern" else "2025-11-25")
        assert client.server_info == {"name": "fixture", "version": "1.0.0"}
        assert client.failure is None and client.skipped == () == client.diagnostics
        assert {"echo", "add"} <= {tool.name for tool in client.tools}
        assert list(client.timings)[:2] == ["start", "server/discover"]
        result = client.call_tool("add", {"a": 1, "b": 2}, scope)
        assert (result.structured_content, result.text, result.is_error) == ({"sum": 3}, '{"sum":3}', False)
        assert census.carriers(marker)
    assert not census.carriers(marker)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("form", ["json", "sse"])
def test_a_remote_server_is_opened_and_called_without_any_sandbox(
    workspace: Path, scope: Scope, era: str, form: str
) -> None:
    with HttpPeer("--era", era, "--answer", form) as server, opened(remote(server), workspace) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}, scope).structured_content == {"sum": 3}
        assert client.stderr_tail == ""


def test_t22_localhost_is_this_machine_and_is_not_looked_up(workspace: Path, scope: Scope) -> None:
    with HttpPeer("--era", "modern") as server:
        entry = remote(f"http://localhost:{server.port}/mcp")
        with opened(entry, workspace, RES_OPTIONS="no-such", HOSTALIASES="/nowhere") as client:
            assert client.call_tool("echo", {}, scope).text == "{}"


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_every_legacy_version_is_spoken(workspace: Path, scope: Scope, version: str) -> None:
    with HttpPeer("--era", "legacy", "--version", version) as server:
        with opened(remote(server), workspace) as client:
            assert client.protocol_version == version
            assert client.call_tool("add", {"a": 1, "b": 2}, scope).text == '{"sum":3}'


def test_the_public_name_opens_with_a_sandbox_of_its_own(workspace: Path, scope: Scope) -> None:
    with HttpPeer("--era", "modern") as server:
        for limits in (None, patient()):
            with latch.McpClient.open(
                remote(server), workspace=str(workspace), scope=scope, limits=limits
            ) as client:
                assert client.call_tool("echo", {}, scope).text == "{}"


def test_tools_stand_in_the_order_of_their_catalogue_names(workspace: Path) -> None:
    with HttpPeer("--era", "modern", "--tools", "20", "--page-size", "3") as server:
        with opened(remote(server), workspace) as client:
            shown = [tool.catalogue_name for tool in client.tools]
            assert shown == sorted(shown) and len(shown) >= 30
            assert shown == sorted(catalogue_name("one", tool.name) for tool in client.tools)


def test_skipped_tools_and_what_is_not_checked_are_told(workspace: Path) -> None:
    options = (
        "--misbehave",
        "bad-header-annotations",
        "--misbehave",
        "odd-schemas",
        "--misbehave",
        "null-schema",
    )
    with HttpPeer("--era", "modern", *options) as server, opened(remote(server), workspace) as client:
        names = {one.name for one in client.skipped}
        assert "bad" in names and {"bad-space", "bad-newline", "bad-twice"} <= names
        assert {tool.name for tool in client.tools} >= {"echo", "odd-network", "odd-cycle", "odd-look-ahead"}
        assert [text for text in client.diagnostics if '"odd-look-ahead"' in text]


@needs_sandbox
@pytest.mark.parametrize("sin", ["dies-of-discover", "silent-discover"])
def test_a_server_that_the_probe_kills_is_started_again_and_works(
    workspace: Path, scope: Scope, ms: float, marker: str, sin: str
) -> None:
    entry = local("--era", "dual", "--misbehave", sin, env=hosted.marked(marker))
    with opened(entry, workspace, limits=patient(probe_seconds=400 * ms)) as client:
        assert client.protocol_version == "2025-11-25"
        (note,) = client.diagnostics
        assert note.startswith("it was started a second time, because it did not answer server/discover")
        assert client.call_tool("count", {}, scope).structured_content["count"] == 1


def test_a_server_that_never_answers_the_probe_is_initialised_over_http(workspace: Path, ms: float) -> None:
    with HttpPeer("--era", "dual", "--misbehave", "silent-discover") as server:
        with opened(remote(server), workspace, limits=patient(probe_seconds=200 * ms)) as client:
            assert client.protocol_version == "2025-11-25"


# -- not opened --------------------------------------------------------------------------------------

NOT_OPENED = {
    "silent": (("--misbehave", "silent"), DeadlineMissed, "initialize: no answer within"),
    "exits": (("--misbehave", "exit-at-once"), PeerGone, "exited with status 3"),
    "says why on stdout": (("--misbehave", "refuses-on-stdout"), PeerGone, "exited with status 1"),
    "unsupported": (("--misbehave", "unsupported-version"), PeerRefused, "supports no version of ours"),
    "duplicate": (("--misbehave", "duplicate-tool"), PeerProtocolError, "listed twice"),
    "dies in the list": (("--misbehave", "dies-mid-answer:tools/list"), PeerGone, "tools/list: exited"),
}


@needs_sandbox
@pytest.mark.parametrize(("options", "kind", "words"), NOT_OPENED.values(), ids=list(NOT_OPENED))
def test_a_start_that_fails_names_server_and_stage_and_leaves_nothing(
    workspace: Path, ms: float, marker: str, options: tuple[str, ...], kind: type[LatchError], words: str
) -> None:
    entry = local(*options, env=hosted.marked(marker), timeout_seconds=1600 * ms)
    with pytest.raises(kind) as raised:
        opened(entry, workspace, limits=patient(probe_seconds=400 * ms))
    assert str(raised.value).startswith(PEER + ": ") and words in str(raised.value)
    assert not census.carriers(marker)


def test_a_cancelled_start_ends_within_a_second_and_leaves_nothing(
    sandbox: Path, workspace: Path, ms: float, marker: str
) -> None:
    scope = Scope.root(30)
    entry = local("--misbehave", "silent", "--misbehave", "never-closes", env=hosted.marked(marker))
    later(400 * ms, lambda: scope.cancel("SIGINT"))
    began = time.monotonic()
    with pytest.raises(Cancelled) as raised:
        opened(entry, workspace, scope=scope)
    assert time.monotonic() - began < 1400 * ms and raised.value.peer == PEER
    assert not census.carriers(marker)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"bearer_token_env": "LATCH_ABSENT"}, 'bearer_token_env: "LATCH_ABSENT" is not set'),
        (
            {"headers_from_env": {"X-A": "LATCH_A", "X-B": "LATCH_B"}},
            'headers_from_env: "LATCH_A", "LATCH_B" is not set',
        ),
        ({"bearer_token_env": "LATCH_EMPTY"}, 'bearer_token_env: "LATCH_EMPTY" is empty'),
    ],
)
def test_a_variable_that_is_not_set_is_named_before_anything_is_sent(
    workspace: Path, keys: Json, reason: str
) -> None:
    with serving([HOLD]) as server:
        with pytest.raises(CredentialError) as raised:
            opened(remote(f"http://127.0.0.1:{server.port}/", **keys), workspace, LATCH_EMPTY="")
        assert server.connections == 0
    assert raised.value.reason == f"{reason} in the environment of this process"
    assert (raised.value.peer, raised.value.stage) == (PEER, "start")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"transport": "carrier-pigeon"}, "transport"),
        ({"lifetime": "for ever"}, "lifetime"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": 3601}, "timeout_seconds"),
        ({"args": "--flag"}, "args"),
        ({"command": ""}, "command"),
        ({"transport": "streamable_http"}, "url"),
    ],
)
def test_an_entry_that_no_configuration_could_hold_is_refused(workspace: Path, keys: Json, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        opened(replace(local(), **keys), workspace)
    (problem,) = raised.value.problems
    assert (problem.entry, problem.key) == ('mcp_servers "one"', key)


@needs_sandbox
def test_a_start_that_fails_says_where_to_look(workspace: Path, ms: float) -> None:
    for entry, words in (
        (local("--misbehave", "exit-at-once"), "latch sandbox -- "),
        (remote("http://127.0.0.1:9/"), "look whether the server runs"),
        (remote("http://127.0.0.1:9/", ca_bundle=None, bearer_token_env="LATCH_KEY"), "at url"),
    ):
        with pytest.raises(PeerGone) as raised:
            opened(entry, workspace, LATCH_KEY=SECRET)
        assert words in str(raised.value.hint)
    with HttpPeer("--misbehave", "401") as server, pytest.raises(CredentialError) as refused:
        opened(remote(server, bearer_token_env="LATCH_KEY"), workspace, LATCH_KEY=SECRET)
    assert "LATCH_KEY" in str(refused.value.hint) and SECRET not in str(refused.value.hint)


def test_a_variable_for_a_server_on_stdio_must_be_set_too(workspace: Path) -> None:
    with pytest.raises(CredentialError, match='env_from: "LATCH_ABSENT" is not set'):
        opened(local(env_from=("LATCH_ABSENT",)), workspace)


@pytest.mark.parametrize("value", [f"{SECRET}\r\nX-Evil: yes", f"{SECRET}\n", f"{SECRET}\0", f"{SECRET}–"])
@pytest.mark.parametrize("key", ["bearer_token_env", "headers_from_env"])
def test_a_secret_that_is_no_value_of_a_field_is_refused_and_not_quoted(
    workspace: Path, key: str, value: str
) -> None:
    keys: Json = {key: "LATCH_TOKEN" if key == "bearer_token_env" else {"X-Key": "LATCH_TOKEN"}}
    with serving([HOLD]) as server:
        with pytest.raises(CredentialError) as raised:
            opened(remote(f"http://127.0.0.1:{server.port}/", **keys), workspace, LATCH_TOKEN=value)
        assert server.connections == 0
    assert SECRET not in f"{raised.value} {raised.value!r} {raised.value.to_dict()}"
    assert raised.value.peer == PEER and key in raised.value.reason


# -- calls -------------------------------------------------------------------------------------------


@pytest.fixture
def modern() -> Iterator[HttpPeer]:
    """A modern server over HTTP."""
    with HttpPeer("--era", "modern") as server:
        yield server


def test_an_unknown_tool_is_our_callers_mistake(workspace: Path, scope: Scope, modern: HttpPeer) -> None:
    with opened(remote(modern), workspace) as client:
        for name in ("none", client.tools[0].catalogue_name, ""):
            error = failed(client, scope, name)
            assert isinstance(error, UsageError) and str(error) == f'{PEER} has no tool "{name}"'
            assert error.hint is not None and error.hint.startswith("it has: ") and "echo" in error.hint


def test_a_server_without_tools_has_none_to_call(workspace: Path, scope: Scope) -> None:
    with HttpPeer("--misbehave", "no-tools-capability") as server:
        with opened(remote(server), workspace) as client:
            assert client.tools == () and client.diagnostics == ("it says that it has no tools",)
            error = failed(client, scope)
            assert isinstance(error, UsageError) and error.hint == "it has: none"


@pytest.mark.parametrize("bad", [[1], None, "text", 7])
def test_arguments_that_are_no_mapping_are_our_callers_mistake(
    workspace: Path, scope: Scope, modern: HttpPeer, bad: Any
) -> None:
    with opened(remote(modern), workspace) as client:
        with pytest.raises(UsageError, match=f"must be a mapping, not {type(bad).__name__}"):
            client.call_tool("echo", bad, scope)


class Sized(dict):  # type: ignore[type-arg]
    """A mapping that is no plain dict."""


def test_any_mapping_will_do(workspace: Path, scope: Scope, modern: HttpPeer) -> None:
    with opened(remote(modern), workspace) as client:
        assert client.call_tool("echo", Sized(a=1), scope).structured_content == {"a": 1}


def test_arguments_are_checked_before_anything_is_sent(workspace: Path, scope: Scope, tmp_path: Path) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--era", "modern", "--record", str(record)) as server:
        with opened(remote(server), workspace) as client:
            error = failed(client, scope, "add", a="one", b=2)
            assert isinstance(error, UsageError)
            assert str(error).startswith(f'{PEER}: the arguments of "add" do not fit its inputSchema: ')
            assert "/a" in str(error)
            assert client.call_tool("add", {"a": 1, "b": 2}, scope).structured_content == {"sum": 3}
    assert told_methods(record).count("tools/call") == 1


@pytest.mark.parametrize("bad", ["\ud800", float("inf"), {1}])
def test_t26_arguments_that_cannot_be_sent_are_our_callers_mistake(
    workspace: Path, scope: Scope, modern: HttpPeer, bad: Any
) -> None:
    with opened(remote(modern), workspace) as client:
        for name in ("echo", "headers"):
            with pytest.raises(UsageError):
                client.call_tool(name, {"text": bad}, scope)
        assert client.call_tool("echo", {}, scope).text == "{}"


def test_a_request_over_four_mebibytes_is_our_callers_mistake(
    workspace: Path, scope: Scope, modern: HttpPeer
) -> None:
    with opened(remote(modern), workspace) as client:
        assert isinstance(failed(client, scope, text="x" * 4 * 1024 * 1024), UsageError)
        assert client.failure is None


def test_arguments_that_take_too_long_to_check_are_refused(workspace: Path, scope: Scope) -> None:
    limits = replace(patient(), schema=replace(patient().schema, max_steps=5))
    with HttpPeer("--misbehave", "odd-schemas") as server:
        with opened(remote(server), workspace, limits=limits) as client:
            deep: Json = {}
            for _ in range(50):
                deep = {"next": deep}
            with pytest.raises(UsageError, match='the arguments of "odd-cycle" cannot be checked'):
                client.call_tool("odd-cycle", deep, scope)


def test_arguments_for_a_schema_that_cannot_be_used_go_as_they_are(
    workspace: Path, scope: Scope, tmp_path: Path
) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--misbehave", "null-schema:broken", "--record", str(record)) as server:
        with opened(remote(server), workspace) as client:
            assert isinstance(failed(client, scope, "bad", any="thing"), PeerRefused)
    assert told_methods(record).count("tools/call") == 1


def test_mirrored_arguments_reach_a_strict_server_whatever_they_hold(
    workspace: Path, scope: Scope, modern: HttpPeer
) -> None:
    given = {"text": "a\r\nX-Evil: yes", "number": -3, "flag": True, "nested": {"deep": " ü "}, "plain": "p"}
    with opened(remote(modern), workspace) as client:
        sent = client.call_tool("headers", given, scope).structured_content["headers"]
        assert "x-evil" not in sent and sent["mcp-param-number"] == "-3" and "mcp-param-plain" not in sent
        assert client.call_tool("headers", {}, scope).is_error is False


def test_a_failure_of_the_tool_is_a_result_and_leaves_it_usable(
    workspace: Path, scope: Scope, modern: HttpPeer
) -> None:
    with opened(remote(modern), workspace) as client:
        result = client.call_tool("fail", {"message": "no such file"}, scope)
        assert (result.is_error, result.text) == (True, "no such file")
        assert client.failure is None


def test_an_error_answer_leaves_it_usable(workspace: Path, scope: Scope, modern: HttpPeer) -> None:
    with opened(remote(modern), workspace) as client:
        error = failed(client, scope, "refuse", message="not you")
        assert isinstance(error, PeerRefused)
        assert str(error) == f'{PEER}: tools/call: answered with an error: "not you"'
        assert error.data["data"] == {"tool": "refuse"}
        assert client.call_tool("echo", {}, scope).text == "{}"


def test_a_header_mismatch_says_that_the_catalogue_changed_and_sends_nothing_again(
    workspace: Path, scope: Scope, tmp_path: Path
) -> None:
    record, _ = recorded(tmp_path / "record")
    options = ("--era", "modern", "--misbehave", "header-mismatch:tools/call", "--record", str(record))
    with HttpPeer(*options) as server, opened(remote(server), workspace) as client:
        error = failed(client, scope)
        assert isinstance(error, PeerRefused) and error.hint == "a new session lists its tools anew"
        assert "its catalogue has changed since it was listed, and nothing was sent again" in str(error)
    assert told_methods(record).count("tools/call") == 1


@pytest.mark.parametrize(
    ("sin", "words"),
    [
        ("input-required", "it asks for elicitation/create, which Latch does not offer"),
        ("input-required:state", "it asks for more input, which Latch does not offer"),
    ],
)
def test_what_a_server_asks_for_is_an_error_that_names_it(
    workspace: Path, scope: Scope, sin: str, words: str
) -> None:
    with HttpPeer("--era", "modern", "--misbehave", sin, "--times", "1") as server:
        with opened(remote(server), workspace) as client:
            error = failed(client, scope)
            assert isinstance(error, PeerRefused) and error.reason == words
            assert error.data["resultType"] == "input_required"
            assert client.call_tool("echo", {}, scope).text == "{}"


def test_a_tool_that_must_run_as_a_task_is_refused_without_a_word_to_the_server(
    workspace: Path, scope: Scope, tmp_path: Path
) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--misbehave", "task-required", "--record", str(record)) as server:
        with opened(remote(server), workspace) as client:
            error = failed(client, scope, "task")
    assert isinstance(error, PeerRefused) and "runs only as an asynchronous task" in error.reason
    assert "tools/call" not in told_methods(record)


@pytest.mark.parametrize(
    ("sin", "words"),
    [
        ("bad-envelope", "the result has no list of content"),
        ("bad-envelope:number-text", "a text without one"),
        ("bad-envelope:text-error", "isError is not true or false"),
        ("bad-structured", "structuredContent does not fit the tool's outputSchema"),
        ("bad-structured:missing", "its result no structuredContent"),
        ("unknown-result-type", 'resultType is "later"'),
    ],
)
def test_an_envelope_that_is_broken_disconnects(workspace: Path, scope: Scope, sin: str, words: str) -> None:
    with HttpPeer("--era", "modern", "--misbehave", sin) as server:
        with opened(remote(server), workspace) as client:
            error = failed(client, scope, "add", a=1, b=2)
            assert isinstance(error, PeerProtocolError) and words in error.reason
            assert client.failure is error
            assert words in disconnected(client, scope).reason


@needs_sandbox
def test_an_envelope_that_is_broken_ends_the_process(workspace: Path, scope: Scope, marker: str) -> None:
    entry = local("--era", "modern", "--misbehave", "bad-envelope", env=hosted.marked(marker))
    with opened(entry, workspace) as client:
        assert isinstance(failed(client, scope), PeerProtocolError)
        assert not census.carriers(marker)
        disconnected(client, scope)


@pytest.mark.parametrize("sin", ["structured-on-error", "no-result-type", "string-id", "10000-notifications"])
def test_what_is_odd_but_clear_is_a_result(workspace: Path, scope: Scope, sin: str) -> None:
    with (
        HttpPeer("--era", "modern", "--misbehave", sin) as server,
        opened(remote(server), workspace) as client,
    ):
        result = client.call_tool("add", {"a": 1, "b": 2}, scope)
        assert result.text == ("the real error" if sin == "structured-on-error" else '{"sum":3}')


# -- lost calls --------------------------------------------------------------------------------------


@needs_sandbox
@pytest.mark.parametrize("sin", ["dies-mid-answer", "silent:tools/call", "endless-line"])
def test_a_lost_call_disconnects_is_never_sent_again_and_says_what_is_unknown(
    workspace: Path, scope: Scope, ms: float, marker: str, tmp_path: Path, sin: str
) -> None:
    record, keys = recorded(tmp_path / "record")
    options = ("--era", "modern", "--misbehave", sin, "--record", str(record))
    entry = local(*options, env=hosted.marked(marker), **keys)
    with opened(entry, workspace) as client:
        names = [tool.catalogue_name for tool in client.tools]
        error = failed(client, scope.within(400 * ms), "count")
        assert isinstance(error, PeerError) and error.stage == "tools/call" and LOST in str(error)
        assert not census.carriers(marker)
        for _ in range(3):
            assert LOST_BEFORE in str(disconnected(client, scope))
        assert [tool.catalogue_name for tool in client.tools] == names
        assert client.protocol_version == "2026-07-28"
    assert told_methods(record).count("tools/call") == 1


@pytest.mark.parametrize(
    "sin",
    [
        "dies-mid-answer",
        "closes-unanswered",
        "closes-unanswered:reset",
        "sse-lost",
        "sse-cut",
        "content-length-lies",
        "gzip",
        "wrong-content-type",
        "status:500:tools/call",
    ],
)
def test_a_lost_call_over_http_is_never_sent_again(
    workspace: Path, scope: Scope, tmp_path: Path, sin: str
) -> None:
    record, _ = recorded(tmp_path / "record")
    options = ("--era", "modern", "--misbehave", sin, "--record", str(record))
    with HttpPeer(*options) as server, opened(remote(server), workspace) as client:
        error = failed(client, scope, "count")
        assert isinstance(error, PeerError) and error.stage == "tools/call" and LOST in str(error)
        assert LOST_BEFORE in str(disconnected(client, scope))
    assert told_methods(record).count("tools/call") == 1


@needs_sandbox
def test_a_cancelled_call_disconnects_and_later_ones_say_so(workspace: Path, ms: float, marker: str) -> None:
    with opened(local("--era", "modern", env=hosted.marked(marker)), workspace) as client:
        scope = Scope.root(30)
        later(200 * ms, lambda: scope.cancel("SIGINT"))
        with pytest.raises(Cancelled) as raised:
            client.call_tool("slow", {"seconds": 60}, scope)
        assert str(raised.value) == f"{PEER}: tools/call: cancelled (SIGINT); {LOST}"
        assert not census.carriers(marker)
        error = disconnected(client, Scope.root(5))
        assert error.reason == "it was disconnected, because its use was cancelled"
        assert LOST_BEFORE in str(error)


def test_the_deadline_of_the_entry_is_that_of_every_call(workspace: Path, scope: Scope, ms: float) -> None:
    with HttpPeer("--era", "modern") as server:
        with opened(remote(server, timeout_seconds=600 * ms), workspace) as client:
            began = time.monotonic()
            error = failed(client, scope, "slow", seconds=30)
            assert isinstance(error, DeadlineMissed) and error.own and error.seconds == 600 * ms
            assert 600 * ms <= time.monotonic() - began < 1200 * ms


# -- a process for every call ------------------------------------------------------------------------


@needs_sandbox
def test_a_process_for_every_call_keeps_no_state_and_leaves_nothing(
    workspace: Path, scope: Scope, marker: str
) -> None:
    with opened(local(lifetime="call", env=hosted.marked(marker)), workspace) as client:
        assert client.is_per_call and client.failure is None
        for _ in range(2):
            assert not census.carriers(marker)
            assert client.call_tool("count", {}, scope).structured_content["count"] == 1
        error = failed(client, scope, "refuse")
        assert isinstance(error, PeerRefused)
        assert not census.carriers(marker) and client.failure is None
    with pytest.raises(UsageError, match="was closed"):
        client.call_tool("count", {}, scope)


@needs_sandbox
def test_a_catalogue_that_changed_between_calls_fails_closed_and_sends_no_call(
    workspace: Path, scope: Scope, marker: str, tmp_path: Path
) -> None:
    record, keys = recorded(tmp_path / "record")
    options = ("--misbehave", "catalogue-changes", "--record", str(record))
    with opened(local(*options, lifetime="call", env=hosted.marked(marker), **keys), workspace) as client:
        error = failed(client, scope)
        assert isinstance(error, PeerProtocolError) and (error.peer, error.stage) == (PEER, "tools/list")
        assert "the call was not sent" in error.reason and LOST not in str(error)
        assert error.hint == "a new session takes the new ones"
        assert not census.carriers(marker)
    assert "tools/call" not in told_methods(record)


@needs_sandbox
def test_a_version_that_changed_between_calls_fails_closed(
    workspace: Path, scope: Scope, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    body = (
        f"again = os.path.exists({str(place)!r} + '/seen'); open({str(place)!r} + '/seen', 'w').close()\n"
        "if not again: serve(None)\n"
        "say(id=take()['id'], error={'code': -32601, 'message': 'no'})\n"
        "answer(take(), protocolVersion='2025-11-25', capabilities={'tools': {}}); take()\n"
        "answer(take(), tools=TOOLS); take()\n"
    )
    with opened(program(tmp_path, body, lifetime="call", rw_paths=(place,)), workspace) as client:
        assert client.protocol_version == "2026-07-28"
        error = failed(client, scope, "t")
        assert isinstance(error, PeerProtocolError) and "its protocol version or its tools" in error.reason


@needs_sandbox
@pytest.mark.parametrize("sin", ["dies-mid-answer", "bad-envelope"])
def test_a_call_that_is_lost_ends_its_process_alone(
    workspace: Path, scope: Scope, marker: str, tmp_path: Path, sin: str
) -> None:
    record, keys = recorded(tmp_path / "record")
    options = ("--era", "modern", "--misbehave", sin, "--record", str(record))
    with opened(local(*options, lifetime="call", env=hosted.marked(marker), **keys), workspace) as client:
        for _ in range(2):
            assert isinstance(failed(client, scope), PeerError)
            assert not census.carriers(marker)
        assert client.failure is None
    assert told_methods(record).count("tools/call") == 2


# -- secrets -----------------------------------------------------------------------------------------

TELLTALE = """
SECRET = os.environ["LATCH_KEY"]
SCHEMA = {"type": "object", "description": SECRET}
TOOLS = [{"name": "t", "title": SECRET, "description": "key " + SECRET, "inputSchema": SCHEMA},
         {"name": "has " + SECRET, "inputSchema": SCHEMA}]
def call(message):
    how = message["params"]["arguments"].get("how")
    sys.stderr.write("stderr " + SECRET + "\\n"); sys.stderr.flush()
    raw(("noise " + SECRET + "\\n").encode())
    if how == "error":
        say(id=message["id"], error={"code": 1, "message": SECRET, "data": {SECRET: [SECRET]}})
    elif how == "ask":
        answer(message, resultType="input_required", inputRequests={"a": {"method": SECRET}})
    elif how == "break":
        answer(message, content=[], resultType=SECRET)
    elif how == "die":
        os._exit(3)
    else:
        text = {"type": "text", "text": "it is " + SECRET}
        answer(message, content=[text], structuredContent={SECRET: SECRET})
serve(call, TOOLS)
"""


@needs_sandbox
def test_t27_a_secret_that_a_server_echoes_is_seen_nowhere(
    workspace: Path, scope: Scope, tmp_path: Path
) -> None:
    entry = program(tmp_path, TELLTALE, env_from=("LATCH_KEY",))
    seen: list[str] = []
    client = opened(entry, workspace, LATCH_KEY=SECRET)
    with client:
        (tool,) = client.tools
        seen += [repr(client.tools), repr(dict(tool.input_schema)), repr(client.skipped)]
        assert tool.description == "one/t: key [redacted]"
        result = client.call_tool("t", {}, scope)
        assert result.text == "it is [redacted]"
        seen += [repr(result), repr(result.raw)]
        for how in ("error", "ask"):
            error = failed(client, scope, "t", how=how)
            seen += [str(error), repr(error), json.dumps(error.to_dict()), repr(error.args)]
        # it is read between calls, ten times a second
        assert census.eventually(lambda: "stderr [redacted]" in client.stderr_tail)
        seen += [client.stderr_tail, repr(client.diagnostics)]
        error = failed(client, scope, "t", how="break")
        assert "[redacted]" in error.reason
        seen += [str(error), repr(error), str(disconnected(client, scope, "t"))]
    with opened(entry, workspace, LATCH_KEY=SECRET) as client:
        error = failed(client, scope, "t", how="die")
        assert isinstance(error, PeerGone) and "[redacted]" in error.stderr_tail
        seen += [str(error), repr(error), error.stderr_tail, repr(vars(error))]
    assert not [text for text in seen if SECRET in text]


def test_t27_a_bearer_that_a_server_echoes_is_seen_nowhere_in_any_form(workspace: Path, scope: Scope) -> None:
    with HttpPeer("--era", "modern") as server:
        entry = remote(server, bearer_token_env="LATCH_TOKEN", headers_from_env={"X-Key": "LATCH_KEY"})
        with opened(entry, workspace, LATCH_TOKEN=SECRET, LATCH_KEY="key-key-key") as client:
            sent = client.call_tool("headers", {}, scope)
            assert sent.structured_content["headers"]["authorization"] == "Bearer [redacted]"
            assert sent.structured_content["headers"]["x-key"] == "[redacted]"
            error = failed(
                client, scope, "refuse", message=f"{SECRET} aHVudGVyMi1odW50ZXIy hunter2%2Dhunter2"
            )
            assert str(error).endswith('"[redacted] [redacted] [redacted]"')
            assert SECRET not in repr(vars(client)) + repr(client) + repr(entry)


def test_t27_a_bearer_goes_to_its_own_server_and_to_no_other(
    workspace: Path, scope: Scope, tmp_path: Path
) -> None:
    records = [recorded(tmp_path / name)[0] for name in "abc"]
    with HttpPeer("--record", str(records[0])) as own, HttpPeer("--record", str(records[1])) as other:
        away = ("--misbehave", "redirect-away:tools/call", "--record", str(records[2]))
        with HttpPeer("--era", "modern", *away) as redirecting:
            entries = [
                (remote(own, name="own", bearer_token_env="LATCH_TOKEN"), "echo"),
                (remote(other, name="other"), "echo"),
                (remote(redirecting, name="away", bearer_token_env="LATCH_TOKEN"), None),
            ]
            for entry, name in entries:
                with opened(entry, workspace, LATCH_TOKEN=SECRET) as client:
                    if name is None:
                        assert isinstance(failed(client, scope), PeerRefused)
                    else:
                        client.call_tool(name, {}, scope)
    assert SECRET in records[0].read_text() and SECRET in records[2].read_text()
    assert SECRET not in records[1].read_text()
    # what was redirected came once, and the place it was sent to, the same server by another name, never
    calls = [
        line for line in read_record(records[2]) if (line.get("body") or {}).get("method") == "tools/call"
    ]
    assert len(calls) == 1


@needs_sandbox
def test_a_server_gets_the_variables_of_its_entry_and_no_others(workspace: Path, scope: Scope) -> None:
    entry = local("--era", "modern", env={"LATCH_OWN": "x"}, env_from=("LATCH_KEY",))
    with opened(entry, workspace, LATCH_KEY=SECRET, LATCH_OTHER="other") as client:
        names = client.call_tool("environment", {}, scope).structured_content["names"]
    assert {"LATCH_OWN", "LATCH_KEY"} <= set(names) and "LATCH_OTHER" not in names


# -- closed ------------------------------------------------------------------------------------------


@needs_sandbox
def test_what_it_wrote_is_known_after_its_end(workspace: Path, scope: Scope) -> None:
    body = "sys.stderr.write('hello from stderr'); sys.stderr.flush(); raw(b'banner\\n'); serve(None)\n"
    for lifetime in ("session", "call"):
        client = opened(program(workspace.parent, body, lifetime=lifetime), workspace)
        client.close(scope)
        client.close()
        assert client.stderr_tail == "hello from stderr"
        assert client.diagnostics == ("1 line on its standard output was no message",)


@needs_sandbox
@pytest.mark.parametrize("how", ["close", "kill"])
def test_a_closed_one_says_so_and_keeps_its_catalogue(
    workspace: Path, scope: Scope, marker: str, how: str
) -> None:
    client = opened(local(env=hosted.marked(marker)), workspace)
    names = [tool.name for tool in client.tools]
    for _ in range(2):
        getattr(client, how)()
    assert not census.carriers(marker)
    error = failed(client, scope)
    assert isinstance(error, UsageError) and str(error) == f"{PEER} was closed"
    assert [tool.name for tool in client.tools] == names and isinstance(client.failure, UsageError)


@needs_sandbox
def test_leaving_by_an_error_ends_it_at_once(workspace: Path, ms: float, marker: str) -> None:
    began = 0.0
    with pytest.raises(RuntimeError, match="ours"):
        with opened(local("--misbehave", "never-closes", env=hosted.marked(marker)), workspace):
            began = time.monotonic()
            raise RuntimeError("ours")
    assert time.monotonic() - began < 250 * ms and not census.carriers(marker)


class Unending:
    """A connection whose process cannot be proven to have ended."""

    def __init__(self) -> None:
        self.transport = self
        self.failure = None

    def kill(self) -> None:
        """Fail, as the end of a process may."""
        raise PeerError("process 7 may still run", peer=PEER, stage="kill")


@pytest.mark.parametrize(
    "error", [RuntimeError("ours"), PeerError("ours", peer=PEER, stage="x"), Cancelled("ours")]
)
def test_an_end_that_is_not_proven_is_told_with_what_failed_before(
    workspace: Path, modern: HttpPeer, error: BaseException
) -> None:
    client = opened(remote(modern), workspace)
    client.kill()
    client._connection = Unending()  # type: ignore[assignment]
    with pytest.raises(BaseException) as raised:
        with client:
            raise error
    if isinstance(error, RuntimeError):
        assert isinstance(raised.value, PeerError) and raised.value.__context__ is error
    else:
        assert raised.value is error and "process 7 may still run" in str(error)


def test_the_helper_shows_the_environment_it_was_given() -> None:
    assert machine(LATCH_X="y").environment["LATCH_X"] == "y"


# -- what was mended -----------------------------------------------------------------------------------


@needs_sandbox
def test_a_call_that_was_cancelled_or_late_before_it_was_sent_is_never_sent(
    workspace: Path, tmp_path: Path, scope: Scope
) -> None:
    record, keys = recorded(tmp_path / "record")
    with opened(local("--era", "modern", "--record", str(record), **keys), workspace) as client:
        given_up = Scope.root(30)
        given_up.cancel("enough")
        with pytest.raises(Cancelled) as raised:
            client.call_tool("count", {}, given_up)
        assert LOST not in str(raised.value)
        assert LOST not in str(failed(client, Scope.root(0), "count"))
        assert client.call_tool("count", {}, scope).structured_content["count"] == 1
    assert told_methods(record).count("tools/call") == 1


@needs_sandbox
@pytest.mark.parametrize("lifetime", ["session", "call"])
def test_a_cancel_while_a_server_that_does_not_end_is_closed_kills_it_and_is_raised(
    workspace: Path, marker: str, ms: float, lifetime: str
) -> None:
    entry = local(
        "--era", "modern", "--misbehave", "never-closes", lifetime=lifetime, env=hosted.marked(marker)
    )
    stop, cancelled = Scope.root(30), []

    def cancel() -> None:
        cancelled.append(time.monotonic())
        stop.cancel("enough")

    later(0.8, cancel)
    with pytest.raises(Cancelled):
        opened(entry, workspace, limits=patient(exit_seconds=20), scope=stop).close(stop)
    assert time.monotonic() - cancelled[0] < 1000 * ms
    assert not census.carriers(marker)


@needs_sandbox
def test_a_server_that_ends_or_chatters_between_two_calls_is_not_usable_and_nothing_is_lost(
    workspace: Path, scope: Scope
) -> None:
    for body in (
        "def call(message):\n    answer(message, content=[]); time.sleep(0.1); os._exit(0)\nserve(call)\n",
        'def call(message):\n    answer(message, content=[]); raw(b\'{"jsonrpc": "3"}\\n\')\nserve(call)\n',
    ):
        with opened(program(workspace.parent, body), workspace) as client:
            client.call_tool("t", {}, scope)
            assert census.eventually(lambda: client.failure is not None)
            error = disconnected(client, scope, "t")
            assert LOST not in str(error) and LOST_BEFORE not in str(error)


@needs_sandbox
def test_a_result_that_a_redaction_would_spoil_is_sound(workspace: Path, scope: Scope) -> None:
    body = (
        "TOOLS = [{'name': 't', 'inputSchema': SCHEMA, 'outputSchema': {'properties': {'n': {'type': 'integer'}}}}]\n"
        "def call(message):\n"
        "    answer(message, content=[], resultType='complete', structuredContent={'n': 1234567890123})\n"
        "serve(call, TOOLS)\n"
    )
    entry = program(workspace.parent, body, env_from=("NUMBER", "WORD"))
    with opened(entry, workspace, NUMBER="12345678", WORD="complete") as client:
        result = client.call_tool("t", {}, scope)
    assert result.structured_content == {"n": "[redacted]90123"}
    assert result.raw["resultType"] == "[redacted]"


@needs_sandbox
def test_t27_a_secret_that_a_quotation_would_cut_is_not_quoted_in_part(workspace: Path, scope: Scope) -> None:
    for body in (
        "raw(b'\\x7b\"jsonrpc\": \"2.0\", ' + b'n' * 45 + os.environ['TOKEN'].encode() + b'}\\n')\n" * 65,
        "m = take(); say(id=m['id'], error={'code': -1, 'message': 'no'}); m = take()\n"
        "answer(m, protocolVersion='v' * 290 + os.environ['TOKEN'], capabilities={})\n",
        "m = take(); say(id=m['id'], error={'code': -1, 'message': 'no'}); m = take()\n"
        "say(id=m['id'], error={'code': -1, 'message': os.environ['TOKEN'] + 'e' * 290})\n",
        "name = 'n' * 290 + os.environ['TOKEN']\n"
        "serve(None, [{'name': name, 'inputSchema': SCHEMA}] * 2)\n",
    ):
        entry = program(workspace.parent, body, env_from=("TOKEN",))
        with pytest.raises(LatchError) as raised:
            opened(entry, workspace, limits=patient(probe_seconds=0.5), TOKEN=SECRET)
        told = str(raised.value) + str(raised.value.hint)
        assert not any(SECRET[at : at + 6] in told for at in range(len(SECRET) - 6)), told


@needs_sandbox
def test_tools_of_a_server_on_stdio_need_no_sound_annotations_for_header_fields(
    workspace: Path, scope: Scope
) -> None:
    schema = "{'type': 'object', 'properties': {'n': {'type': 'number', 'x-mcp-header': 'N'}}}"
    body = (
        f"TOOLS = [{{'name': 't', 'inputSchema': {schema}}}]\n"
        "serve(lambda message: answer(message, content=[]), TOOLS)\n"
    )
    with opened(program(workspace.parent, body), workspace) as client:
        assert client.skipped == ()
        client.call_tool("t", {"n": 1.5}, scope)


@needs_sandbox
@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ("answer(m, tools=[], resultType='input_required')", "asks for more input"),
        ("answer(m, tools=[], resultType='later')", 'resultType is "later"'),
        ("answer(m, tools=[], nextCursor='c' * 3_000_000 + str(m['id']))", "its tools are more than"),
    ],
)
def test_a_listing_that_is_none_or_never_ends_is_refused(
    workspace: Path, scope: Scope, pages: str, reason: str
) -> None:
    body = (
        "m = take(); answer(m, supportedVersions=['2026-07-28'], capabilities={'tools': {}})\n"
        f"while True:\n    m = take(); {pages}\n"
    )
    with pytest.raises(PeerError, match=reason):
        opened(program(workspace.parent, body), workspace)


@needs_sandbox
def test_the_schemas_of_a_listing_are_given_up_at_the_deadline(workspace: Path, ms: float) -> None:
    body = (
        "deep = {'type': 'object', 'allOf': [{'pattern': 'a{1,200}' * 5 + str(n)} for n in range(100)]}\n"
        "serve(None, [{'name': str(n), 'inputSchema': deep} for n in range(500)])\n"
    )
    entry, began = program(workspace.parent, body, timeout_seconds=1), time.monotonic()
    with pytest.raises(DeadlineMissed):
        opened(entry, workspace)
    assert time.monotonic() - began < 3000 * ms


def test_a_call_that_fails_disconnects_the_calls_of_other_threads_as_lost(
    workspace: Path, scope: Scope
) -> None:
    with HttpPeer("--era", "modern", "--misbehave", "silent:tools/call") as server:
        client = opened(remote(server), workspace)
        outcome: list[LatchError] = []
        other = threading.Thread(target=lambda: outcome.append(failed(client, scope, "count")))
        other.start()
        time.sleep(0.3)
        failed(client, scope.within(0.2), "count")
        other.join(10)
        assert isinstance(outcome[0], PeerGone) and LOST in str(outcome[0])
        disconnected(client, scope)
        client.close()


def test_a_kill_ends_a_call_that_is_under_way(workspace: Path, scope: Scope) -> None:
    with HttpPeer("--era", "modern", "--misbehave", "silent:tools/call") as server:
        client = opened(remote(server), workspace)
        later(0.3, client.kill)
        began = time.monotonic()
        error = failed(client, scope, "count")
        assert time.monotonic() - began < 5
        assert isinstance(error, PeerGone) and LOST in str(error)


def test_a_mirrored_argument_that_no_header_field_should_hold_is_not_sent(
    workspace: Path, scope: Scope
) -> None:
    with HttpPeer("--era", "modern") as server, opened(remote(server), workspace) as client:
        tool = next(tool for tool in client.tools if tool.mirrors)
        mirror = next(one for one in tool.mirrors if one.type == "string" and len(one.path) == 1)
        with pytest.raises(UsageError, match="8192 are allowed"):
            client.call_tool(tool.name, {mirror.path[0]: "x" * 9000}, scope)
        assert client.failure is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"transport": "sse"}, "transport: must be"),
        ({"lifetime": "forever"}, "lifetime: must be"),
        ({"timeout_seconds": 0}, "timeout_seconds: must be"),
        ({"args": "ab"}, "args: must be"),
        ({"command": ""}, "command: is missing"),
        ({"transport": "streamable_http", "url": ""}, "url: is missing"),
    ],
)
def test_an_entry_that_no_configuration_could_hold_is_refused(
    workspace: Path, scope: Scope, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f'mcp_servers "one": {reason}'):
        opened(replace(local(), **changes), workspace)
