"""The misbehaving peer itself: it behaves when told nothing, and a handful of its sins are what they say.

The rest of its rows are shown by the tests of the host, which is what they are for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_peer import CHECKOUT, PeerEnded, RawPeer, initialize_params

PROGRAM = CHECKOUT / "fixtures" / "peers" / "extension.py"
MIB = 1024 * 1024
METHODS = {"initialize": "initialize", "call": "tool.execute", "shutdown": "shutdown"}


def start(*options: str, **environment: str) -> RawPeer:
    return RawPeer([sys.executable, str(PROGRAM), "--alarm", "20", *options], environment=environment)


def sinner(*options: str) -> RawPeer:
    return start("--misbehave", *options)


def processes_of(marker: str) -> set[int]:
    """Return the living processes whose command line contains *marker*."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(") ")[2][0]
                if marker.encode() in (entry / "cmdline").read_bytes() and state != "Z":
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def test_without_a_sin_it_is_a_good_extension() -> None:
    with start("--tool", "odd name") as peer:
        registrations = peer.start()
        assert {message["method"].partition(".")[0] for message in registrations} == {
            "tool",
            "command",
            "hook",
            "context_source",
        }
        assert peer.tool("echo", {"a": 1}) == {"a": 1}
        assert peer.tool("odd name", {"a": 1}) == {"a": 1}
        assert peer.tool("null", {}) is None
        assert peer.tool("big", {"bytes": 100}) == "x" * 100
        assert peer.tool("sleep", {"seconds": 0.05}) == "slept"
        assert peer.call("tool.execute", {"name": "error"})["error"]["message"] == "the tool failed"
        assert peer.call("tool.execute", {"name": "none"})["error"]["code"] == -32601
        peer.notify("hook.observe", {"event": "user_message", "payload": 1})
        assert peer.tool("observed", {}) == [{"event": "user_message", "payload": 1}]
        assert len(peer.tool("answers", {})) == len(registrations)
        for name, decision in (("rm", "deny"), ("deploy", "ask"), ("ls", "allow")):
            answer = peer.result("hook.guard", {"action": "tool.execute", "payload": {"name": name}})
            assert answer["decision"] == decision
        assert peer.result("hook.transform", {"structure": "model_request", "value": [1]}) == [1]
        assert peer.result("context_source.get", {"name": "peer"}) == "context of the peer"
        assert peer.result("command.execute", {"name": "peer", "arguments": 1})["command"] == "peer"
        assert peer.finish() == 0


def test_options_choose_what_it_registers_and_answers() -> None:
    options = ["--register", "guard,transform", "--actions", "*,child.spawn", "--no-ids"]
    with start(*options, "--guard", "unknown", "--transform", "mark") as peer:
        registrations = peer.start()
        assert [(message["method"], message["params"]) for message in registrations] == [
            ("hook.transform", {"structure": "model_request"}),
            ("hook.guard", {"action": "*"}),
            ("hook.guard", {"action": "child.spawn"}),
        ]
        assert not any("id" in message for message in registrations)
        assert peer.result("hook.guard", {"action": "x", "payload": {}}) == {"decision": "perhaps"}
        assert peer.result("hook.transform", {"structure": "x", "value": {}}) == {
            "content": [None, "transformed"]
        }


def test_every_sin_is_listed_and_an_unknown_one_refused() -> None:
    listed = subprocess.run([sys.executable, str(PROGRAM), "--list"], stdout=subprocess.PIPE, check=True)
    names = [line.split()[0] for line in listed.stdout.decode().splitlines()]
    assert len(names) == len(set(names))
    assert {"silent", "fork-loop", "bad-registration:long-name"} <= set(names)
    with sinner("virtue") as peer:
        assert peer.wait() == 2


@pytest.mark.parametrize(
    ("sin", "part"),
    [
        ("half-frame", b'"jsonrpc"'),
        ("half-frame:header", b"Content-"),
        ("lying-length", b"Content-Length: 75\r\n"),
        ("lying-length:less", b"Content-Length: 55\r\n"),
        ("no-length", b"X-Filler: x\r\n\r\n"),
        ("no-length:-5", b"Content-Length: -5\r\n"),
        ("bad-json", b'{"protocolVersion": "0.1"'),
        ("not-object:[1]", b"Content-Length: 3\r\n\r\n[1]"),
        ("duplicate-keys", b'"padding": 1, "padding": 2'),
        ("deep-json:3", b'"padding": [[[]]]'),
        ("nan", b'"padding": NaN'),
        ("huge-number", b"9" * 5000),
        ("lone-surrogate", b'"\\ud800"'),
        ("invalid-utf8", b'"\xff"'),
        ("batch", b'[{"jsonrpc"'),
        ("no-jsonrpc", b'\r\n\r\n{"id": 1'),
        ("huge-header", b"x" * MIB),
        ("greeting", b"Welcome to this extension\nContent-Length"),
        ("wrong-id", b'"id": 9999'),
        ("wrong-id:text", b'"id": "1"'),
        ("wrong-version", b'{"protocolVersion": "0.2"}'),
        ("wrong-version:missing", b'"result": {}'),
        ("wrong-version:number", b'{"protocolVersion": 0.1}'),
        ("answers-error:no:initialize", b'"message": "no"'),
        ("early-registration", b'"tool.register"'),
        ("notifications", b'"method": "log"'),
        ("unasked-response:initialize", b'"id": 9999'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sin_at_initialize_sends_these_bytes(sin: str, part: bytes) -> None:
    with sinner(sin) as peer:
        peer.ask("initialize", initialize_params("/w"))
        raw = b""
        end = time.monotonic() + 10
        while part not in raw and time.monotonic() < end:
            raw += peer.read_raw(seconds=0.1)
        assert part in raw


@pytest.mark.parametrize(("sin", "size"), [("exact-16m", 16 * MIB), ("over-16m", 16 * MIB + 1)])
def test_a_body_has_the_size_it_was_to_have(sin: str, size: int) -> None:
    with sinner(sin) as peer:
        peer.ask("initialize", initialize_params("/w"))
        body = peer.read_body()
        assert len(body) == size
        assert json.loads(body)["result"] == {"protocolVersion": "0.1"}


@pytest.mark.parametrize("stage", ["start", "initialize", "registration", "idle", "call", "shutdown", "exit"])
def test_silence_falls_at_its_stage_and_outlives_the_end_of_the_input(stage: str) -> None:
    falls = {"start": "initialize", "idle": "call"}.get(stage, stage)
    with sinner("silent", "--stage", stage) as peer:
        for step in ("initialize", "registration", "call", "shutdown"):
            if step == "registration":
                peer.notify("initialized", {})
            else:
                peer.ask(METHODS[step], {**initialize_params("/w"), "name": "null"})
            if step == falls:
                with pytest.raises(TimeoutError):
                    peer.read(seconds=0.3)
                break
            while "result" not in (message := peer.read()) and message["method"] != "ready":
                pass
        peer.notify("exit", {})
        peer.process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            peer.process.wait(0.2)


def test_a_sin_may_be_bound_to_one_method() -> None:
    with sinner("answers-error:hook.guard") as peer:
        peer.start()
        assert peer.tool("null", {}) is None
        assert "error" in peer.call("hook.guard", {"action": "tool.execute", "payload": {"name": "ls"}})
        assert peer.result("context_source.get", {"name": "peer"})


@pytest.mark.parametrize("which", ["missing-name", "long-name", "schema-string", "duplicate-tool"])
def test_a_bad_registration_comes_alone_and_is_followed_by_ready(which: str) -> None:
    with sinner("bad-registration:" + which) as peer:
        registrations = peer.start()
        assert len(registrations) == (2 if which == "duplicate-tool" else 1)
        assert registrations[0]["method"] == "tool.register"


def test_an_unknown_request_waits_for_its_answer_and_tells_it() -> None:
    with sinner("unknown-request") as peer:
        peer.start()
        request_id = peer.ask("tool.execute", {"name": "null", "arguments": {}})
        question = peer.read()
        assert "id" in question and question["method"] == "peer/unknown"
        peer.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32601, "message": "what?"}})
        assert peer.read() == {"jsonrpc": "2.0", "id": request_id, "result": None}
        assert '"code": -32601' in peer.stderr()


@pytest.mark.parametrize(("sin", "result"), [("honours-cancel", -32800), ("ignores-cancel", "slept")])
def test_a_cancellation_is_honoured_or_not(sin: str, result: Any) -> None:
    with sinner(sin) as peer:
        peer.start()
        request_id = peer.ask("tool.execute", {"name": "sleep", "arguments": {"seconds": 1}})
        peer.notify("$/cancelRequest", {"id": request_id})
        answer = peer.read()
        assert (answer["error"]["code"] if "error" in answer else answer["result"]) == result


def test_idle_sins_count_what_they_managed() -> None:
    with sinner("stderr-idle") as peer:
        peer.start()
        end = time.monotonic() + 10
        while len(peer.stderr()) < 5 * 1024 and time.monotonic() < end:
            time.sleep(0.02)
        assert peer.tool("count", {}) >= 5
    with sinner("requests-idle") as peer:
        peer.start()
        for _ in range(3):
            peer.send({"jsonrpc": "2.0", "id": peer.read()["id"], "error": {"code": -32601, "message": ""}})
        peer.read()
        assert peer.tool("count", {}) == 3


def test_flooding_stderr_is_followed_by_the_usual() -> None:
    with sinner("flood-stderr:1") as peer:
        peer.start()
        assert len(peer.stderr()) == 1_000_000


@pytest.mark.parametrize(("sin", "status"), [("exits-at-once", 0), ("exits-nonzero:7:start", 7)])
def test_it_exits_with_the_status_it_was_told(sin: str, status: int) -> None:
    with sinner(sin) as peer:
        assert peer.wait() == status


def test_closing_its_output_ends_the_stream_and_not_the_process() -> None:
    with sinner("closes-stdout") as peer:
        peer.ask("initialize", initialize_params("/w"))
        with pytest.raises(PeerEnded):
            peer.read()
        assert peer.process.poll() is None


def test_it_survives_polite_signals_when_told_to() -> None:
    with sinner("ignores-sigterm:start", "--misbehave", "notifications", "--then", "usual") as peer:
        peer.read()
        peer.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            peer.process.wait(0.3)


@pytest.mark.parametrize(("sin", "descendants"), [("daemonises", 2), ("fork-loop:3", 3), ("stops-itself", 1)])
def test_its_descendants_carry_the_marker(sin: str, descendants: int) -> None:
    marker = f"marker-{os.getpid()}-{sin}"
    with sinner(sin, "--stage", "start", "--marker", marker) as peer:
        end = time.monotonic() + 10
        while len(processes_of(marker)) < descendants + 1 and time.monotonic() < end:
            time.sleep(0.02)
        found = processes_of(marker)
        assert len(found) == descendants + 1
        for process in found - {peer.process.pid}:
            os.kill(process, signal.SIGKILL)


def test_a_daemon_that_keeps_the_output_open_outlives_its_parent() -> None:
    marker = f"marker-{os.getpid()}-open"
    with sinner("leaves-stdout-open-in-daemon", "--marker", marker) as peer:
        peer.start()
        assert peer.finish() == 0
        with pytest.raises(TimeoutError):
            peer.read(seconds=0.2)
        (daemon,) = processes_of(marker)
        os.kill(daemon, signal.SIGKILL)
        with pytest.raises(PeerEnded):
            peer.read()


def test_everything_ends_by_itself_at_the_alarm() -> None:
    marker = f"marker-{os.getpid()}-alarm"
    options = ["daemonises:start", "--misbehave", "fork-loop:2:start", "--then", "usual", "--marker", marker]
    with RawPeer([sys.executable, str(PROGRAM), "--alarm", "1", "--misbehave", *options]) as peer:
        assert peer.wait() == -signal.SIGALRM
    end = time.monotonic() + 5
    while processes_of(marker) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_of(marker) == set()
