"""mcp/stdio.py: lines to and from a real server in the real sandbox, and every way to an end."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest

from latch.errors import (
    Cancelled,
    ConcurrentUse,
    ConfigError,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    UsageError,
)
from latch.limits import Limits
from latch.mcp.conversation import McpConversation
from latch.mcp.stdio import StdioTransport
from latch.settings import McpServerSettings
from latch.system.machine import Machine
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from latch.wire.jsonrpc import Failure, Response
from latch.wire.httpfields import Redactor
from tests.support import census, hosted
from tests.support.hosted import later
from tests.support.mcp_hosted import PEER, local, patient, program, recorded
from tests.support.mcp_peers import read_record, told_methods

Json = Any

pytestmark = pytest.mark.usefixtures("sandbox")

MODERN, LEGACY, BATCHES = "2026-07-28", "2025-11-25", "2025-03-26"


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(30).within(None, peer=PEER, stage="tools/call")


class Line:
    """A transport over its own conversation, in *version*."""

    def __init__(
        self,
        entry: McpServerSettings,
        workspace: Path,
        *,
        version: str | None = MODERN,
        limits: Limits | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.limits = limits or patient()
        self.said = McpConversation(self.limits, client_version="9")
        if version is not None:
            self.said.agree(version)
        self.transport = StdioTransport(
            entry,
            Sandbox(entry.sandbox, limits=self.limits),
            workspace=workspace,
            peer=PEER,
            environment=dict(entry.env),
            conversation=self.said,
            redactor=redactor,
        )

    def call(self, name: str, scope: Scope, **arguments: Json) -> Response | Failure:
        """Call a tool of the server."""
        call = self.said.request("tools/call", {"name": name, "arguments": arguments})
        return self.transport.exchange(call, scope)

    def structured(self, name: str, scope: Scope, **arguments: Json) -> Json:
        """Call a tool that works and return its structured content."""
        answer = self.call(name, scope, **arguments)
        assert isinstance(answer, Response)
        return answer.result["structuredContent"]


@contextmanager
def started(
    workspace: Path, *options: str, entry: McpServerSettings | None = None, **how: Any
) -> Iterator[Line]:
    """Start the fixture server, modern unless *options* say otherwise, or *entry*; nothing of it is left."""
    marker = hosted.new_marker()
    known = entry or local("--era", "modern", *options)
    known = McpServerSettings(**{**vars(known), "env": {**known.env, **hosted.marked(marker)}})
    line = Line(known, workspace, **how)
    try:
        line.transport.start(Scope.root(30).within(None, peer=PEER, stage="start"))
        yield line
    finally:
        line.transport.kill()
    assert census.eventually(lambda: not census.carriers(marker), seconds=2)


def lost(line: Line, scope: Scope, name: str = "echo", **arguments: Json) -> LatchError:
    """Call what must fail; return why. The server is gone, and stays gone."""
    with pytest.raises(LatchError) as raised:
        line.call(name, scope, **arguments)
    assert line.transport.failure is raised.value
    with pytest.raises(LatchError) as again:
        line.call(name, scope)
    assert again.value is raised.value
    return raised.value


# -- what works --------------------------------------------------------------------------------------


def test_calls_are_answered_one_after_the_other(workspace: Path, scope: Scope) -> None:
    with started(workspace) as line:
        for number in range(20):
            assert line.structured("echo", scope, number=number) == {"number": number}
        assert line.transport.failure is None and line.transport.noise_lines == 0


def test_an_error_answer_leaves_it_usable(workspace: Path, scope: Scope) -> None:
    with started(workspace) as line:
        answer = line.call("refuse", scope, message="no")
        assert isinstance(answer, Failure) and answer.raw["message"] == "no"
        assert line.structured("echo", scope) == {}


def test_separators_of_unicode_do_not_end_a_line(workspace: Path, scope: Scope) -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\r\ng\U0001f600"
    with started(workspace) as line:
        assert line.structured("echo", scope, text=text) == {"text": text}


@pytest.mark.parametrize(
    "sin", ["blank-lines", "half-utf8:0.05", "double-answer", "string-id", "no-id-error"]
)
def test_what_is_odd_but_clear_is_understood(workspace: Path, scope: Scope, sin: str) -> None:
    with started(workspace, "--misbehave", sin) as line:
        for _ in range(2):
            answer = line.call("add", scope, a=1, b=2)
            assert isinstance(answer, Failure if sin == "no-id-error" else Response)
        assert line.transport.failure is None and line.transport.noise_lines == 0


def test_notifications_without_number_change_nothing(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "10000-notifications") as line:
        assert line.structured("count", scope)["count"] == 1
        assert line.said.ignored == 10000


def test_a_large_answer_and_a_full_stderr_do_not_block_each_other(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "stderr-flood") as line:
        answer = line.call("big", scope, bytes=3 * 1024 * 1024)
        assert isinstance(answer, Response) and len(answer.result["content"][0]["text"]) > 3_000_000
        assert 0 < len(line.transport.stderr_tail) < 10_000


def test_a_batch_is_understood_where_it_was_agreed_on(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "batch", "--era", "legacy", version=None) as line:
        line.transport.exchange(line.said.initialize(), scope)
        line.said.agree(BATCHES)
        line.transport.tell(line.said.initialized(), scope)
        assert isinstance(line.call("echo", scope), Response)
        assert line.said.ignored == 1


def test_a_ping_before_the_answer_is_answered(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--era", "legacy", "--misbehave", "ping-first", version=None) as line:
        assert isinstance(line.transport.exchange(line.said.initialize(), scope), Response)


def test_a_question_that_is_not_offered_is_answered_so(workspace: Path, scope: Scope, tmp_path: Path) -> None:
    record, keys = recorded(tmp_path / "record")
    options = ("--era", "legacy", "--misbehave", "asks-sampling", "--record", str(record))
    with started(workspace, entry=local(*options, **keys), version=None) as line:
        line.transport.exchange(line.said.initialize(), scope)
        line.said.agree(LEGACY)
        line.transport.tell(line.said.initialized(), scope)
        assert isinstance(line.call("echo", scope), Response)
    (answer,) = [said["body"] for said in read_record(record) if "error" in said.get("body", ())]
    assert (answer["id"], answer["error"]["code"]) == ("server-1", -32601)


def test_a_legacy_server_that_pings_while_idle_is_answered(workspace: Path, scope: Scope, ms: float) -> None:
    body = (
        "hello = take(); answer(hello, protocolVersion='2025-11-25', capabilities={})\n"
        "say(id='idle', method='ping')\n"
        "pong = take()\n"
        "message = take()\n"
        "answer(message, content=[], pong=pong)\n"
        "take()\n"
    )
    with started(workspace, entry=program(workspace.parent, body), version=None) as line:
        line.transport.exchange(line.said.initialize(), scope)
        line.said.agree(LEGACY)
        # the housekeeper answers it meanwhile; the server reads that answer before anything else
        time.sleep(300 * ms)
        answer = line.call("t", scope)
        assert isinstance(answer, Response)
        assert answer.result["pong"] == {"jsonrpc": "2.0", "id": "idle", "result": {}}


# -- noise -------------------------------------------------------------------------------------------


def test_banners_are_skipped_and_counted(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "banner") as line:
        assert line.structured("echo", scope, a=1) == {"a": 1}
        assert line.structured("echo", scope, a=2) == {"a": 2}
        assert line.transport.noise_lines == 6


def test_sixty_four_lines_of_noise_before_each_answer_are_borne(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "noise-65:64") as line:
        for _ in range(2):
            assert line.structured("echo", scope) == {}
        assert line.transport.noise_lines == 128


def test_sixty_five_lines_of_noise_are_too_many(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "noise-65") as line:
        error = lost(line, scope)
    assert isinstance(error, PeerLimit)
    assert (error.limit, error.amount, error.stage) == ("max_noise_lines", 64, "tools/call")
    assert str(error).startswith(
        f"{PEER}: tools/call: more than 64 lines on its standard output are no messages; killed (signal 9); "
        'its standard output has lines that are no messages, which end: "...'
    )
    assert str(error).endswith('noise 62 noise 63 noise 64"') and len(str(error)) < 600


def test_a_log_line_that_quotes_a_message_is_noise(workspace: Path, scope: Scope) -> None:
    body = (
        "def call(message):\n"
        '    raw(b\'[debug] -> {"jsonrpc": "2.0", "id": 1, "result": {}}\\n\')\n'
        "    answer(message, content=[])\n"
        "serve(call)\n"
    )
    with started(workspace, entry=program(workspace.parent, body)) as line:
        assert line.call("t", scope) == Response(1, {"content": []})
        assert line.transport.noise_lines == 1


def test_a_line_of_bytes_that_are_no_text_is_noise_and_quoted_safely(workspace: Path, scope: Scope) -> None:
    body = "def call(message):\n    raw(b'\\xff\\xfe caf\\xe9\\n'); os._exit(3)\nserve(call)\n"
    with started(workspace, entry=program(workspace.parent, body)) as line:
        error = lost(line, scope, "t")
    assert isinstance(error, PeerGone) and error.status == 3
    assert 'no messages, which end: "\ufffd\ufffd caf\ufffd"' in str(error)


def test_t27_noise_and_stderr_are_scrubbed(workspace: Path, scope: Scope) -> None:
    body = (
        "def call(message):\n"
        "    raw(b'token secret-9\\n'); sys.stderr.write('secret-9 too'); sys.stderr.flush(); os._exit(3)\n"
        "serve(call)\n"
    )
    entry = program(workspace.parent, body)
    with started(workspace, entry=entry, redactor=Redactor(["secret-9"])) as line:
        error = lost(line, scope, "t")
        assert line.transport.stderr_tail == "[redacted] too"
    assert "secret" not in str(error) and str(error).count("[redacted]") == 2


def test_t27_noise_is_scrubbed_before_it_is_cut(workspace: Path, scope: Scope) -> None:
    body = "def call(message):\n    raw(b'secret-9' + b'x' * 297 + b'\\n'); os._exit(3)\nserve(call)\n"
    entry = program(workspace.parent, body)
    with started(workspace, entry=entry, redactor=Redactor(["secret-9"])) as line:
        assert "ret-9" not in str(lost(line, scope, "t")).partition("no messages")[2]


# -- what breaks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [0, 1])
def test_a_line_of_four_mebibytes_is_read_and_not_one_byte_more(
    workspace: Path, scope: Scope, extra: int
) -> None:
    size = 4 * 1024 * 1024 + extra
    with started(workspace) as line:
        if not extra:
            answer = line.call("big", scope, bytes=size)
            assert isinstance(answer, Response)
            return
        error = lost(line, scope, "big", bytes=size)
    assert isinstance(error, PeerLimit) and (error.limit, error.amount) == (
        "max_message_bytes",
        4 * 1024 * 1024,
    )


def test_a_line_without_end_is_bounded(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "endless-line") as line:
        error = lost(line, scope)
    assert isinstance(error, PeerLimit) and error.limit == "max_message_bytes"


BROKEN = {
    "a batch": ("--misbehave", "batch"),
    "a question": ("--misbehave", "asks-sampling"),
}


@pytest.mark.parametrize("options", BROKEN.values(), ids=list(BROKEN))
def test_what_breaks_the_protocol_ends_the_server(
    workspace: Path, scope: Scope, options: tuple[str, ...]
) -> None:
    with started(workspace, *options) as line:
        error = lost(line, scope)
    assert isinstance(error, PeerProtocolError) and (error.peer, error.stage) == (PEER, "tools/call")
    assert "killed (signal 9)" in error.aftermath


def test_a_modern_server_that_asks_is_not_answered(workspace: Path, scope: Scope, tmp_path: Path) -> None:
    record, keys = recorded(tmp_path / "record")
    options = ("--era", "modern", "--misbehave", "asks-sampling", "--record", str(record))
    with started(workspace, entry=local(*options, **keys)) as line:
        lost(line, scope)
    assert told_methods(record) == ["tools/call"]


def test_a_server_that_asks_and_never_reads_the_answers_is_bounded(workspace: Path, scope: Scope) -> None:
    body = (
        "hello = take(); answer(hello, protocolVersion='2025-11-25', capabilities={})\n"
        "take()\n"
        'while True: raw(b\'{"jsonrpc":"2.0","id":"\' + b\'x\' * 60000 + b\'","method":"ping"}\\n\')\n'
    )
    with started(workspace, entry=program(workspace.parent, body), version=None) as line:
        line.transport.exchange(line.said.initialize(), scope)
        line.said.agree(LEGACY)
        error = lost(line, scope, "t")
    assert isinstance(error, PeerLimit) and error.limit == "max_unread_answer_bytes"


def test_a_server_that_dies_in_the_middle_of_its_answer_is_named_with_its_status(
    workspace: Path, scope: Scope
) -> None:
    with started(workspace, "--misbehave", "dies-mid-answer") as line:
        error = lost(line, scope)
    assert isinstance(error, PeerGone) and error.status == 1
    assert error.reason == "exited with status 1 before it answered"


def test_a_fault_while_idle_is_told_by_the_next_call(workspace: Path, scope: Scope, ms: float) -> None:
    body = (
        "def call(message):\n"
        "    answer(message, content=[]); time.sleep(0.1); say(id=1, method='ping')\n"
        "serve(call)\n"
    )
    with started(workspace, entry=program(workspace.parent, body)) as line:
        line.call("t", scope)
        time.sleep(400 * ms)
        error = lost(line, scope, "t")
    assert isinstance(error, PeerProtocolError) and 'the request "ping"' in error.reason


def test_a_death_while_idle_is_told_by_the_next_call(workspace: Path, scope: Scope, ms: float) -> None:
    body = "def call(message):\n    answer(message, content=[]); os._exit(5)\nserve(call)\n"
    with started(workspace, entry=program(workspace.parent, body)) as line:
        line.call("t", scope)
        time.sleep(300 * ms)
        error = lost(line, scope, "t")
    assert isinstance(error, PeerGone) and error.status == 5


def test_a_notification_to_a_server_that_is_gone_fails(workspace: Path, scope: Scope) -> None:
    with started(workspace, entry=program(workspace.parent, "os._exit(4)")) as line:
        child = line.transport._process.child  # type: ignore[union-attr]
        assert census.eventually(child.has_exited)
        with pytest.raises(PeerGone) as raised:
            line.transport.tell(line.said.initialized(), scope)
    assert raised.value.status == 4 and "before it was told" in raised.value.reason


def test_a_notification_that_is_not_taken_in_time_ends_the_server(
    workspace: Path, scope: Scope, ms: float
) -> None:
    with started(workspace, entry=program(workspace.parent, "time.sleep(60)")) as line:
        with pytest.raises(DeadlineMissed):
            line.transport.tell(b"x" * 1024 * 1024, scope.within(200 * ms))
        assert isinstance(line.transport.failure, DeadlineMissed)


def test_a_pipe_that_fails_is_told_in_the_words_of_the_system(workspace: Path, scope: Scope) -> None:
    with started(workspace) as line:
        # The one place that looks inside: no server can make our own end of its pipe fail.
        ours = line.transport._process.child._pipes.stdin  # type: ignore[union-attr]
        unwritable = os.open(os.devnull, os.O_RDONLY)
        os.dup2(unwritable, ours)
        os.close(unwritable)
        error = lost(line, scope)
    assert isinstance(error, PeerGone) and "Bad file descriptor" in error.reason


# -- deadlines, cancel -------------------------------------------------------------------------------


@pytest.mark.parametrize("sin", ["silent", "deaf", "drip", "wrong-id", "multi-line-json", "late-answer:60"])
def test_an_answer_that_does_not_come_in_time_ends_the_server(
    workspace: Path, scope: Scope, ms: float, sin: str
) -> None:
    with started(workspace, "--misbehave", sin) as line:
        began = time.monotonic()
        error = lost(line, scope.within(300 * ms, missing="answer"))
        took = time.monotonic() - began
    assert isinstance(error, DeadlineMissed) and error.own
    assert (error.peer, error.stage) == (PEER, "tools/call") and "no answer within" in error.reason
    assert 300 * ms <= took < 300 * ms + 1000 * ms * line.limits.mcp.cancel_grace_seconds + 600 * ms


@pytest.mark.parametrize("how", ["deadline", "cancel"])
@pytest.mark.parametrize("version", [MODERN, LEGACY])
def test_a_server_is_told_that_its_call_was_given_up(
    workspace: Path, scope: Scope, ms: float, tmp_path: Path, how: str, version: str
) -> None:
    record, keys = recorded(tmp_path / "record")
    era = "modern" if version == MODERN else "legacy"
    entry = local("--era", era, "--record", str(record), **keys)
    with started(workspace, entry=entry, version=version if era == "modern" else None) as line:
        if era == "legacy":
            line.transport.exchange(line.said.initialize(), scope)
            line.said.agree(version)
            line.transport.tell(line.said.initialized(), scope)
        if how == "cancel":
            later(300 * ms, lambda: scope.cancel("SIGINT"))
        with pytest.raises((Cancelled, DeadlineMissed)):
            line.call("slow", scope.within(None if how == "cancel" else 300 * ms), seconds=60)
        assert line.transport.failure is not None
    bodies = [said["body"] for said in read_record(record) if "body" in said]
    (call,) = [body for body in bodies if body["method"] == "tools/call"]
    reason = "cancelled" if how == "cancel" else "no answer in time"
    assert bodies[-1] == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": call["id"], "reason": reason},
    }


def test_initialize_is_never_cancelled(workspace: Path, scope: Scope, ms: float, tmp_path: Path) -> None:
    record, keys = recorded(tmp_path / "record")
    options = ("--era", "legacy", "--misbehave", "silent", "--record", str(record))
    with started(workspace, entry=local(*options, **keys), version=None) as line:
        with pytest.raises(DeadlineMissed):
            line.transport.exchange(line.said.initialize(), scope.within(300 * ms))
    assert told_methods(record) == ["initialize"]


def test_a_cancel_ends_a_server_that_hears_none_within_a_second(
    workspace: Path, scope: Scope, ms: float
) -> None:
    with started(workspace, "--misbehave", "ignores-cancel", "--misbehave", "never-closes") as line:
        line.call("echo", scope)
        later(100 * ms, lambda: scope.cancel("SIGINT"))
        began = time.monotonic()
        with pytest.raises(Cancelled) as raised:
            line.call("slow", scope, seconds=60)
        assert time.monotonic() - began < 900 * ms
        assert (raised.value.peer, raised.value.stage) == (PEER, "tools/call")
        failure = line.transport.failure
        assert isinstance(failure, PeerError) and failure.reason == "its use was cancelled"


def test_an_interrupt_ends_the_server(workspace: Path, scope: Scope, ms: float) -> None:
    with started(workspace) as line:
        line.call("echo", scope)
        main = threading.main_thread().ident
        later(200 * ms, lambda: signal.pthread_kill(main, signal.SIGINT))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            line.call("slow", scope, seconds=60)
        failure = line.transport.failure
        assert isinstance(failure, PeerError) and failure.reason == "its use failed (KeyboardInterrupt)"


def test_a_second_thread_may_not_drive_it(workspace: Path, scope: Scope, ms: float) -> None:
    with started(workspace) as line:
        line.call("echo", scope)
        found: list[BaseException] = []

        def intrude() -> None:
            try:
                line.call("echo", Scope.root(5))
            except BaseException as error:
                found.append(error)

        later(150 * ms, intrude)
        assert line.structured("slow", scope, seconds=0.5 * ms / 0.001) is not None
        assert [type(error) for error in found] == [ConcurrentUse]
        assert line.structured("echo", scope, still="usable") == {"still": "usable"}


# -- the probe ---------------------------------------------------------------------------------------


def test_a_probe_is_answered_like_a_call(workspace: Path, scope: Scope) -> None:
    with started(workspace) as line:
        answer = line.transport.probe(line.said.discover(MODERN), scope)
        assert isinstance(answer, Response) and answer.result["supportedVersions"] == [MODERN]


@pytest.mark.parametrize("sin", ["dies-of-discover", "silent-discover", "exit-at-once"])
def test_a_server_that_the_probe_ended_or_silenced_can_be_started_again(
    workspace: Path, scope: Scope, ms: float, sin: str
) -> None:
    with started(workspace, "--era", "dual", "--misbehave", sin, version=None) as line:
        assert line.transport.probe(line.said.discover(MODERN), scope.within(500 * ms)) is None
        assert line.transport.failure is not None
        line.transport.start(scope)
        assert line.transport.failure is None
        if sin != "exit-at-once":
            assert isinstance(line.transport.exchange(line.said.initialize(), scope), Response)


def test_a_probe_that_runs_into_the_callers_deadline_is_no_verdict(workspace: Path, ms: float) -> None:
    with started(workspace, "--misbehave", "silent-discover") as line:
        outer = Scope.root(300 * ms)
        with pytest.raises(DeadlineMissed) as raised:
            line.transport.probe(line.said.discover(MODERN), outer.within(60))
        assert not raised.value.own


# -- the start ---------------------------------------------------------------------------------------


def test_a_server_that_cannot_start_is_told_with_its_status_and_last_words(
    workspace: Path, scope: Scope
) -> None:
    with started(workspace, "--misbehave", "exit-at-once:7") as line:
        error = lost(line, scope)
    assert isinstance(error, PeerGone) and error.status == 7
    assert 'its stderr ends: "fixture: cannot start: the database is locked"' in str(error)


def test_a_server_that_says_why_on_its_stdout_is_quoted(workspace: Path, scope: Scope) -> None:
    with started(workspace, "--misbehave", "refuses-on-stdout") as line:
        error = lost(line, scope)
    assert isinstance(error, PeerGone) and error.status == 1
    assert 'no messages, which end: "{ "error": "no key", "hint": "set one" }"' in str(error)


def test_a_fault_of_the_entry_is_one_of_its_configuration(workspace: Path, scope: Scope) -> None:
    line = Line(local(ro_paths=(Path.home(),)), workspace)
    with pytest.raises(ConfigError) as raised:
        line.transport.start(scope)
    assert raised.value.problems[0].entry == 'mcp_servers "one"'
    assert (line.transport.failure, line.transport.stderr_tail) == (None, "")
    line.transport.close(scope)
    line.transport.kill()


# -- the end -----------------------------------------------------------------------------------------


def test_a_server_ends_when_its_stdin_is_closed(workspace: Path, scope: Scope, tmp_path: Path) -> None:
    record, keys = recorded(tmp_path / "record")
    with started(workspace, entry=local("--era", "modern", "--record", str(record), **keys)) as line:
        line.call("echo", scope)
        line.transport.close(scope)
        assert isinstance(line.transport.failure, UsageError)
        assert read_record(record)[-1]["event"] == "end"
        line.transport.close(scope)
        with pytest.raises(UsageError, match="was closed"):
            line.call("echo", scope)


@pytest.mark.parametrize("sin", ["never-closes", "grandchild"])
def test_a_server_that_does_not_end_is_killed_with_all_it_started(
    workspace: Path, scope: Scope, ms: float, sin: str
) -> None:
    with started(workspace, "--misbehave", sin) as line:
        line.call("echo", scope)
        began = time.monotonic()
        line.transport.close(scope)
        assert time.monotonic() - began < 300 * ms + 500 * ms


def test_a_flood_does_not_hold_up_the_end(workspace: Path, scope: Scope, ms: float) -> None:
    body = (
        "def call(message):\n"
        "    answer(message, content=[])\n"
        "    while True: say(method='notifications/message')\n"
        "serve(call)\n"
    )
    with started(workspace, entry=program(workspace.parent, body)) as line:
        line.call("t", scope)
        began = time.monotonic()
        line.transport.close(scope)
        assert time.monotonic() - began < 300 * ms + 700 * ms


def test_noise_at_the_end_ends_it_all_the_same(workspace: Path, scope: Scope) -> None:
    body = (
        "def call(message):\n    answer(message, content=[]); sys.stdin.buffer.read()\n"
        "    raw(b'bye\\n' * 100); os._exit(0)\nserve(call)\n"
    )
    with started(workspace, entry=program(workspace.parent, body)) as line:
        line.call("t", scope)
        line.transport.close(scope)
        assert line.transport.failure is not None


def test_what_the_process_of_a_peer_sees_is_its_own(workspace: Path, scope: Scope) -> None:
    with started(workspace, entry=local("--era", "modern", env={"OWN": "x"})) as line:
        seen = line.structured("environment", scope)
    assert (seen["cwd"], seen["workspace"], seen["writable"]) == (
        "/run/peer",
        str(workspace.resolve()),
        False,
    )
    assert "OWN" in seen["names"] and not set(seen["names"]) & {"LATCH_DIRECTORY", "PYTEST_CURRENT_TEST"}
    assert "PYTEST_CURRENT_TEST" in Machine.read().environment and os.getcwd() != "/run/peer"


def test_a_line_that_is_no_utf8_or_no_json_is_skipped_and_counted(workspace: Path, scope: Scope) -> None:
    body = (
        "def call(message):\n"
        '    raw(b\'{"jsonrpc": "2.0", \\xff}\\n\'); raw(b\'{"jsonrpc": "2.0", "id": 1,\\n\')\n'
        "    answer(message, content=[])\n"
        "serve(call)\n"
    )
    with started(workspace, entry=program(workspace.parent, body)) as line:
        assert isinstance(line.call("t", scope), Response)
        assert line.transport.noise_lines == 2


def test_what_comes_after_an_answer_in_one_piece_does_not_undo_it(workspace: Path, scope: Scope) -> None:
    body = (
        "def call(message):\n"
        "    answer = json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': {'content': []}})\n"
        '    raw(answer.encode() + b\'\\n{"jsonrpc": "1.0"}\\n\')\n'
        "serve(call)\n"
    )
    with started(workspace, entry=program(workspace.parent, body)) as line:
        assert isinstance(line.call("t", scope), Response)
        assert isinstance(line.transport.failure, PeerProtocolError)
        with pytest.raises(PeerProtocolError, match='jsonrpc must be "2.0"'):
            line.call("t", scope)
