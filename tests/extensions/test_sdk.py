"""The author's SDK over real pipes: scripts as an author writes them, and the examples."""

from __future__ import annotations

import ast
import json
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from latch.extensions import sdk
from latch.extensions.hooks import check_transformed
from latch.limits import FrameLimits, JsonLimits
from latch.wire import jsonrpc
from tests.support.raw_peer import CHECKOUT, PeerEnded, RawPeer, initialize_params

SDK = CHECKOUT / "latch" / "extensions" / "sdk.py"
EXAMPLES = CHECKOUT / "fixtures" / "extensions"
MIB = 1024 * 1024
HOST = {"name": "latch", "version": "1.2.3"}

SCRIPT = """
import os, subprocess, sys, time
from sdk import Cancelled, Extension, allow, ask, deny, log

ext = Extension()
seen = []

@ext.tool()
def echo(arguments):
    "Return the arguments.\\n\\nA second paragraph."
    return arguments

@ext.tool(name="named", description="a text", input_schema={"type": "object", "required": ["a"]})
def anything(arguments):
    return None

@ext.tool()
def where(arguments):
    return [ext.workspace, ext.client]

@ext.tool()
def noise(arguments):
    print("from print")
    sys.__stdout__.write("from the old object\\n")
    sys.__stdout__.flush()
    os.write(1, b"from descriptor 1\\n")
    subprocess.run(["/bin/sh", "-c", "echo from a child"], check=True)
    return [sys.stdin.read(), subprocess.run(["cat"], stdout=subprocess.PIPE).stdout.decode()]

@ext.tool()
def say(arguments):
    print(arguments["text"], end="")

@ext.tool()
def fail(arguments):
    raise ValueError("a reason with half a pair: \\ud800")

@ext.tool()
def leave(arguments):
    sys.exit("not now")

@ext.tool()
def unencodable(arguments):
    return {"set": {1}, "nan": float("nan"), "half": "\\ud800"}[arguments["what"]]

@ext.tool()
def big(arguments):
    return "x" * arguments["length"]

@ext.tool()
def wait(arguments):
    log("waiting")
    while not ext.cancelled(within=5):
        pass
    log("stopped")
    if arguments.get("answer"):
        return "late"
    raise Cancelled

@ext.tool()
def look(arguments):
    return ext.cancelled()

@ext.command("greet", "Say hello.")
def greet(arguments):
    return ["hello", arguments]

@ext.observe("user_message")
def one(event, payload):
    seen.append(["one", event, payload])

@ext.observe("*")
def every(event, payload):
    seen.append(["every", event, payload])
    if payload == "break":
        raise KeyError("observer")

@ext.tool(name="seen")
def what_was_seen(arguments):
    return seen

def transform(structure, value):
    return [structure, value]

ext.transform("model_request")(transform)
ext.transform("tool_arguments")(transform)

@ext.guard("tool.execute")
def judge(action, payload):
    name = payload["name"]
    if name == "rm":
        return deny("never rm")
    if name == "deploy":
        return ask("sure?")
    return {"none": None, "word": {"decision": "perhaps"}, "text": "allow"}.get(name, allow())

@ext.guard("*")
def judge_all(action, payload):
    return deny("nothing on Sundays") if payload.get("day") == "sunday" else allow()

@ext.context_source(description="What is up.")
def news():
    return {"text": "no news"}

if __name__ == "__main__":
    print("printed before run")
    ext.run()
    print("printed after run")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Write the script with a copy of the SDK beside it, as an author would."""
    (tmp_path / "sdk.py").write_bytes(SDK.read_bytes())
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.fixture
def fresh(script: Path) -> Iterator[RawPeer]:
    """Start the script and say nothing to it yet; what it prints before it runs stays in its buffer."""
    with RawPeer([sys.executable, str(script)], environment={"PYTHONUNBUFFERED": ""}) as peer:
        yield peer


@pytest.fixture
def peer(fresh: RawPeer) -> RawPeer:
    """Start the script and shake hands."""
    fresh.start()
    return fresh


def frame(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def echo_frame(size: int) -> bytes:
    """Return a request for ``echo`` whose body has exactly *size* bytes."""
    params = b'{"name":"echo","arguments":{"n":1}}'
    head = b'{"jsonrpc":"2.0","id":77,"method":"tool.execute","params":' + params + b',"pad":"'
    return b"Content-Length: %d\r\n\r\n" % size + head + b"x" * (size - len(head) - 2) + b'"}'


def test_the_file_imports_nothing_but_the_standard_library_and_nothing_relative() -> None:
    tree = ast.parse(SDK.read_text(encoding="utf-8"), feature_version=(3, 7))
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert relative == []
    assert names == {"collections", "json", "os", "re", "select", "sys", "traceback"}


def test_registrations_come_in_the_order_they_were_made_each_with_its_own_id(fresh: RawPeer) -> None:
    registrations = fresh.start()
    assert [message["id"] for message in registrations] == list(range(1, len(registrations) + 1))
    hooks = [message for message in registrations if "hook" in message["method"]]
    assert [(message["method"], message["params"]) for message in hooks] == [
        ("hook.observe", {"event": "user_message"}),
        ("hook.observe", {"event": "*"}),
        ("hook.transform", {"structure": "model_request"}),
        ("hook.transform", {"structure": "tool_arguments"}),
        ("hook.guard", {"action": "tool.execute"}),
        ("hook.guard", {"action": "*"}),
    ]
    tools = [message["params"] for message in registrations if message["method"] == "tool.register"]
    assert tools[0] == {"name": "echo", "description": "Return the arguments."}
    schema = {"type": "object", "required": ["a"]}
    assert tools[1] == {"name": "named", "description": "a text", "inputSchema": schema}
    assert tools[2] == {"name": "where"}
    named = ("command.register", "context_source.register")
    assert [message["params"] for message in registrations if message["method"] in named] == [
        {"name": "greet", "description": "Say hello."},
        {"name": "news", "description": "What is up."},
    ]


def test_the_answer_to_initialize_repeats_the_version_and_nothing_is_registered_before_initialized(
    fresh: RawPeer,
) -> None:
    assert fresh.result("initialize", initialize_params("/w")) == {"protocolVersion": "0.1"}
    with pytest.raises(TimeoutError):
        fresh.read(seconds=0.2)


@pytest.mark.parametrize("version", ["0.2", "0.10", 0.1, None])
def test_another_version_is_refused_and_exit_still_works(fresh: RawPeer, version: Any) -> None:
    params = {**initialize_params("/w"), "protocolVersion": version}
    error = fresh.call("initialize", params)["error"]
    assert error["code"] == -32602
    assert json.dumps(version) in error["message"]
    fresh.notify("exit", {})
    assert fresh.wait() == 0


def test_a_call_before_initialize_is_refused(fresh: RawPeer) -> None:
    error = fresh.call("tool.execute", {"name": "echo", "arguments": {}})["error"]
    assert (error["code"], error["message"]) == (-32600, "initialize comes first")


def test_a_second_initialized_registers_nothing_again(peer: RawPeer) -> None:
    peer.notify("initialized", {})
    assert peer.tool("echo", {}) == {}


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("tool.execute", {"name": "echo", "arguments": {"a": ["ü", None, 1.5]}}, {"a": ["ü", None, 1.5]}),
        ("tool.execute", {"name": "echo"}, {}),
        ("tool.execute", {"name": "named", "arguments": {}}, None),
        ("tool.execute", {"name": "where", "arguments": {}}, ["/workspace", HOST]),
        ("command.execute", {"name": "greet", "arguments": "you"}, ["hello", "you"]),
        ("hook.transform", {"structure": "model_request", "value": {"s": 1}}, ["model_request", {"s": 1}]),
        ("hook.transform", {"structure": "tool_arguments", "value": None}, ["tool_arguments", None]),
        ("hook.guard", {"action": "tool.execute", "payload": {"name": "ls"}}, {"decision": "allow"}),
        (
            "hook.guard",
            {"action": "tool.execute", "payload": {"name": "rm"}},
            {"decision": "deny", "reason": "never rm"},
        ),
        (
            "hook.guard",
            {"action": "tool.execute", "payload": {"name": "deploy"}},
            {"decision": "ask", "reason": "sure?"},
        ),
        (
            "hook.guard",
            {"action": "tool.execute", "payload": {"name": "deploy", "day": "sunday"}},
            {"decision": "deny", "reason": "nothing on Sundays"},
        ),
        ("hook.guard", {"action": "model.request", "payload": {"name": "rm"}}, {"decision": "allow"}),
        ("context_source.get", {"name": "news"}, {"text": "no news"}),
        ("shutdown", {}, None),
    ],
)
def test_each_request_reaches_its_function(peer: RawPeer, method: str, params: Any, result: Any) -> None:
    answer = peer.call(method, params)
    assert answer == {"jsonrpc": "2.0", "id": answer["id"], "result": result}


@pytest.mark.parametrize("request_id", [0, -1, 2.5, "text", "", None, True, [1, "a"], {"a": 1}])
def test_an_id_of_any_type_comes_back_unchanged(peer: RawPeer, request_id: Any) -> None:
    params = {"name": "echo", "arguments": {}}
    peer.send({"jsonrpc": "2.0", "id": request_id, "method": "tool.execute", "params": params})
    assert json.dumps(peer.read()["id"]) == json.dumps(request_id)


@pytest.mark.parametrize(
    ("method", "params", "code", "part"),
    [
        ("no.such", {}, -32601, '"no.such"'),
        (7, {}, -32601, "7"),
        ("tool.execute", {"name": "nobody"}, -32601, '"nobody"'),
        ("tool.execute", {"name": 5}, -32602, '"name"'),
        ("tool.execute", [], -32602, '"name"'),
        ("command.execute", {"name": "echo"}, -32601, '"echo"'),
        ("hook.transform", {"structure": "other", "value": 1}, -32601, '"other"'),
        ("context_source.get", {"name": "other"}, -32601, '"other"'),
        ("tool.execute", {"name": "fail"}, -32000, "ValueError: a reason with half a pair: ?"),
        ("tool.execute", {"name": "leave"}, -32000, "SystemExit: not now"),
        ("tool.execute", {"name": "unencodable", "arguments": {"what": "set"}}, -32000, "TypeError"),
        ("tool.execute", {"name": "unencodable", "arguments": {"what": "nan"}}, -32000, "ValueError"),
        ("tool.execute", {"name": "unencodable", "arguments": {"what": "half"}}, -32000, "UnicodeEncode"),
        ("tool.execute", {"name": "big", "arguments": {"length": 16 * MIB}}, -32000, "over 16777216"),
        ("hook.guard", {"action": "tool.execute", "payload": {"name": "none"}}, -32000, "TypeError"),
        ("hook.guard", {"action": "tool.execute", "payload": {"name": "word"}}, -32000, "perhaps"),
        ("hook.guard", {"action": "tool.execute", "payload": {"name": "text"}}, -32000, "'allow'"),
        ("hook.guard", {"action": "tool.execute", "payload": {}}, -32000, "KeyError: 'name'"),
    ],
)
def test_what_cannot_be_answered_is_an_error_and_the_extension_lives(
    peer: RawPeer, method: Any, params: Any, code: int, part: str
) -> None:
    error = peer.call(method, params)["error"]
    assert error["code"] == code
    assert part in error["message"]
    assert ("Traceback" in peer.stderr()) == (code == -32000)
    assert peer.tool("echo", {"alive": True}) == {"alive": True}


def test_a_guard_nobody_registered_is_no_allow(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from sdk import Extension\nExtension().run()\n", encoding="utf-8")
    (tmp_path / "sdk.py").write_bytes(SDK.read_bytes())
    with RawPeer([sys.executable, str(script)]) as peer:
        assert peer.start() == []
        assert peer.call("hook.guard", {"action": "tool.execute", "payload": {}})["error"]["code"] == -32601


def test_observers_of_the_event_and_of_all_are_told_and_nothing_is_answered(peer: RawPeer) -> None:
    peer.notify("hook.observe", {"event": "user_message", "payload": {"text": "hi"}})
    peer.notify("hook.observe", {"event": "session_ended", "payload": "break"})
    peer.notify("hook.observe", {"event": 5})
    peer.notify("no.such", {})
    assert peer.tool("seen", {}) == [
        ["one", "user_message", {"text": "hi"}],
        ["every", "user_message", {"text": "hi"}],
        ["every", "session_ended", "break"],
    ]
    assert "KeyError: 'observer'" in peer.stderr()


def test_what_is_printed_never_reaches_the_protocol_and_functions_read_none_of_it(peer: RawPeer) -> None:
    assert peer.tool("noise", {}) == ["", ""]
    assert peer.finish() == 0
    with pytest.raises(PeerEnded) as ended:
        peer.read()
    assert ended.value.rest == b""
    assert set(peer.stderr().splitlines()) == {
        "printed before run",
        "from print",
        "from the old object",
        "from descriptor 1",
        "from a child",
        "printed after run",
    }


def test_what_a_function_printed_is_on_stderr_before_the_next_request_is_answered(peer: RawPeer) -> None:
    peer.tool("say", {"text": "half a line"})
    peer.tool("echo", {})
    assert peer.stderr() == "printed before run\nhalf a line"


def test_both_pipes_are_closed_when_run_returns(script: Path) -> None:
    lingering = script.with_name("lingering.py")
    text = "import time\nfrom sdk import Extension\nExtension().run()\ntime.sleep(60)\n"
    lingering.write_text(text, encoding="utf-8")
    with RawPeer([sys.executable, str(lingering)]) as peer:
        peer.start()
        peer.notify("exit", {})
        with pytest.raises(PeerEnded):
            peer.read()
        with pytest.raises(BrokenPipeError):
            peer.notify("exit", {})
        assert peer.process.poll() is None


def test_a_refused_registration_is_named_on_stderr(fresh: RawPeer) -> None:
    fresh.result("initialize", initialize_params("/w"))
    fresh.notify("initialized", {})
    first = fresh.read()
    fresh.send({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -32602, "message": "no good"}})
    fresh.send({"jsonrpc": "2.0", "id": "never asked", "error": {"code": 1, "message": "lost"}})
    fresh.notify("exit", {})
    assert fresh.wait() == 0
    assert 'refused tool.register "echo": {"code": -32602, "message": "no good"}' in fresh.stderr()
    assert 'refused a message: {"code": 1, "message": "lost"}' in fresh.stderr()


def test_a_running_tool_hears_that_its_own_request_was_cancelled(peer: RawPeer) -> None:
    request_id = peer.ask("tool.execute", {"name": "wait", "arguments": {}})
    peer.notify("$/cancelRequest", {"id": float(request_id) + 0.5})
    with pytest.raises(TimeoutError):
        peer.read(seconds=0.3)
    began = time.monotonic()
    peer.notify("$/cancelRequest", {"id": request_id})
    answer = peer.read()
    assert answer == {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32800, "message": "cancelled"}}
    assert time.monotonic() - began < 2
    params = {"name": "look", "arguments": {}}
    peer.send({"jsonrpc": "2.0", "id": request_id, "method": "tool.execute", "params": params})
    assert peer.read()["result"] is False


def test_a_cancelled_tool_may_still_answer_and_what_arrived_is_served_in_order(peer: RawPeer) -> None:
    first = peer.ask("tool.execute", {"name": "wait", "arguments": {"answer": True}})
    peer.notify("hook.observe", {"event": "model_request", "payload": 1})
    second = peer.ask("tool.execute", {"name": "echo", "arguments": {}})
    third = peer.ask("tool.execute", {"name": "seen", "arguments": {}})
    with pytest.raises(TimeoutError):
        peer.read(seconds=0.3)
    peer.notify("$/cancelRequest", {"id": second})
    peer.notify("$/cancelRequest", {"id": first})
    assert peer.read()["result"] == "late"
    cancelled = {"code": -32800, "message": "cancelled"}
    assert peer.read() == {"jsonrpc": "2.0", "id": second, "error": cancelled}
    assert peer.read() == {"jsonrpc": "2.0", "id": third, "result": [["every", "model_request", 1]]}


def test_a_cancellation_of_an_answered_request_is_forgotten(peer: RawPeer) -> None:
    request_id = peer.ask("tool.execute", {"name": "echo", "arguments": {}})
    peer.read()
    peer.notify("$/cancelRequest", {"id": request_id})
    peer.notify("$/cancelRequest", None)
    params = {"name": "echo", "arguments": {"again": 1}}
    peer.send({"jsonrpc": "2.0", "id": request_id, "method": "tool.execute", "params": params})
    assert peer.read()["result"] == {"again": 1}


def test_a_waiting_tool_hears_that_the_host_has_gone(peer: RawPeer) -> None:
    peer.ask("tool.execute", {"name": "wait", "arguments": {}})
    peer.process.stdin.close()
    assert peer.read()["error"]["code"] == -32800
    assert peer.wait() == 0


def test_shutdown_then_exit_ends_with_status_0(peer: RawPeer) -> None:
    assert peer.finish() == 0


def test_the_end_of_the_input_ends_it_with_status_0(fresh: RawPeer) -> None:
    fresh.process.stdin.close()
    assert fresh.wait() == 0


def test_a_host_that_no_longer_reads_is_no_traceback(peer: RawPeer) -> None:
    peer.process.stdout.close()
    peer.ask("tool.execute", {"name": "echo", "arguments": {}})
    assert peer.wait() == 0
    assert "Traceback" not in peer.stderr()
    assert "the host closed the pipe" in peer.stderr()


def test_input_may_come_byte_by_byte_and_several_frames_at_once(fresh: RawPeer) -> None:
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params("/ü")}
    for byte in frame(initialize):
        fresh.write(bytes([byte]))
    assert fresh.read()["result"] == {"protocolVersion": "0.1"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tool.execute", "params": {"name": "where"}}
    fresh.write(frame(call) + frame({**call, "id": 3}) + frame({**call, "id": 4})[:-5])
    assert [fresh.read()["id"], fresh.read()["id"]] == [2, 3]
    fresh.write(frame({**call, "id": 4})[-5:])
    assert fresh.read()["result"][0] == "/ü"


@pytest.mark.parametrize(
    "header",
    [
        b"content-length: %d\n\n",
        b"CONTENT-LENGTH:%d\r\nContent-Type: application/json; charset=utf-8\r\n\r\n",
        b"X-Unknown: a:b\nContent-Length: 00%d\r\n\n",
        b"Content-Length: %d\r\ncontent-length: %d\r\n\r\n",
        b"Content-Length: %d\r\nX: " + b"x" * 8100 + b"\r\n\r\n",
    ],
    ids=["lower case, LF", "upper case, type", "unknown, mixed ends, zeros", "twice the same", "long"],
)
def test_headers_are_read_leniently(peer: RawPeer, header: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":5,"method":"tool.execute","params":{"name":"echo"}}'
    peer.write(header.replace(b"%d", b"%d" % len(body)) + body)
    assert peer.read()["id"] == 5


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"Content-Type: x\r\n\r\n", "needs one Content-Length"),
        (b"\r\n", "needs one Content-Length"),
        (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "needs one Content-Length"),
        (b"Content-Length: two\r\n\r\n{}", "is not a number"),
        (b"Content-Length:\r\n\r\n{}", "is not a number"),
        (b"Content-Length: -2\r\n\r\n{}", "is not a number"),
        (b"Content-Length: %b\r\n\r\n{}" % (b"9" * 5000), "the body is over 16777216 bytes"),
        (b"Content-Length: 16777217\r\n\r\n", "the body is over 16777216 bytes"),
        (b"hello\r\n\r\n", "has no colon"),
        (b"X: " + b"x" * 8192, "the header is over 8192 bytes"),
        (b"Content-Length: 2\r\nX: " + b"x" * 8192 + b"\r\n\r\n{}", "the header is over 8192 bytes"),
        (b"Content-Length: 3\r\n\r\n{x}", "line 1 column 2"),
        (b'Content-Length: 3\r\n\r\n"\xff"', "can't decode byte 0xff"),
        (b"Content-Length: 2\r\n\r\n[]", "is not a JSON object"),
        (b"Content-Length: 200000\r\n\r\n" + b"[" * 200000, "nested too deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value[:30]),
)
def test_a_bad_frame_ends_it_with_a_message_and_status_1(peer: RawPeer, raw: bytes, part: str) -> None:
    peer.write(raw)
    assert peer.wait() == 1
    assert "bad frame: " in peer.stderr()
    assert part in peer.stderr()
    assert "Traceback" not in peer.stderr()


@pytest.mark.parametrize("raw", [b"Content-Le", b"Content-Length: 5\r\n\r\n", b"Content-Length: 5\r\n\r\n{"])
def test_an_input_that_ends_inside_a_frame_is_a_bad_frame(peer: RawPeer, raw: bytes) -> None:
    peer.write(raw)
    peer.process.stdin.close()
    assert peer.wait() == 1
    assert "the stream ended inside a frame" in peer.stderr()


def test_frames_before_a_bad_one_are_still_answered(peer: RawPeer) -> None:
    call = {"jsonrpc": "2.0", "id": 2, "method": "tool.execute", "params": {"name": "wait"}}
    peer.write(frame(call))
    peer.write(b"nonsense\n\n")
    assert peer.read()["error"]["code"] == -32800
    assert peer.wait() == 1


def test_a_body_of_16_mib_is_read_and_one_byte_more_is_fatal(peer: RawPeer) -> None:
    peer.write(echo_frame(16 * MIB))
    assert peer.read()["result"] == {"n": 1}
    peer.write(b"Content-Length: %d\r\n\r\n" % (16 * MIB + 1))
    assert peer.wait() == 1


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        # the message itself is the first level
        ("nested(127)", None),
        ("nested(128)", "ValueError: a message is nested deeper than 128 levels"),
        ("nested(100000)", "ValueError: a message is nested deeper than 128 levels"),
        ("[[]] * 1000", None),
        ("10 ** 399", None),
        ("10 ** 400", "ValueError: a number of a message has over 400 characters"),
        ("-(10 ** 398)", None),
        ("{'a': [-(10 ** 399)]}", "ValueError: a number of a message has over 400 characters"),
        ("'9' * 5000 + '[' * 5000", None),
    ],
)
def test_a_result_that_no_host_would_read_is_an_error_of_its_tool(
    tmp_path: Path, value: str, refusal: str | None
) -> None:
    script = tmp_path / "shapes.py"
    script.write_text(
        f"import sys; sys.path.append({str(SDK.parent)!r})\n"
        "from sdk import Extension\n"
        "def nested(depth):\n"
        "    value = []\n"
        "    for _ in range(depth - 1): value = [value]\n"
        "    return value\n"
        "ext = Extension()\n"
        f"ext.tool('t')(lambda arguments: {value})\n"
        "ext.tool('well')(lambda arguments: 'well')\n"
        "ext.run()\n",
        encoding="utf-8",
    )
    with RawPeer([sys.executable, "-ES", str(script)]) as peer:
        peer.start()
        request = peer.ask("tool.execute", {"name": "t", "arguments": {}})
        body = peer.read_body()
        if refusal is None:
            assert isinstance(jsonrpc.parse_message(body, JsonLimits()), jsonrpc.Response)
        else:
            answer = json.loads(body)
            assert (answer["id"], answer["error"]) == (request, {"code": -32000, "message": refusal})
        assert peer.tool("well", {}) == "well"


def test_its_bounds_are_those_of_the_host() -> None:
    json_limits, frame = JsonLimits(), FrameLimits()
    assert (sdk.MAX_DEPTH, sdk.MAX_NUMBER_CHARS) == (json_limits.max_depth, json_limits.max_number_chars)
    assert (sdk.MAX_BODY_BYTES, sdk.MAX_HEADER_BYTES) == (frame.max_body_bytes, frame.max_header_bytes)


def test_a_result_of_exactly_16_mib_is_sent(peer: RawPeer) -> None:
    overhead = len('{"jsonrpc":"2.0","id":7,"result":""}')
    length = 16 * MIB - overhead
    params = {"name": "big", "arguments": {"length": length}}
    peer.send({"jsonrpc": "2.0", "id": 7, "method": "tool.execute", "params": params})
    body = peer.read_body()
    assert len(body) == 16 * MIB
    params["arguments"]["length"] = length + 1
    peer.send({"jsonrpc": "2.0", "id": 7, "method": "tool.execute", "params": params})
    assert peer.read()["error"]["code"] == -32000


def test_pipes_that_do_not_block_are_served_the_same(script: Path) -> None:
    unblocked = script.with_name("unblocked.py")
    text = "import os, script\nfor fd in (0, 1):\n    os.set_blocking(fd, False)\nscript.ext.run()\n"
    unblocked.write_text(text, encoding="utf-8")
    with RawPeer([sys.executable, str(unblocked)]) as peer:
        peer.start()
        peer.ask("tool.execute", {"name": "big", "arguments": {"length": MIB}})
        time.sleep(0.1)
        assert peer.read()["result"] == "x" * MIB
        assert peer.finish() == 0


def test_a_decorator_hands_the_function_back() -> None:
    ext = sdk.Extension()

    def function(arguments: Any) -> Any:
        return arguments

    assert ext.tool()(function) is function
    assert ext.guard("*")(function) is function


@pytest.mark.parametrize("kind", ["tool", "command", "observe", "transform", "guard", "context_source"])
def test_a_decorator_without_parentheses_is_refused_when_it_is_written(kind: str) -> None:
    with pytest.raises(TypeError, match="with parentheses"):
        getattr(sdk.Extension(), kind)(lambda arguments: None)


@pytest.mark.parametrize("kind", ["tool", "command", "observe", "transform", "guard", "context_source"])
def test_a_name_is_registered_once_for_each_kind(kind: str) -> None:
    ext = sdk.Extension()
    getattr(ext, kind)("twice")(lambda: None)
    with pytest.raises(ValueError, match='"twice" is there already'):
        getattr(ext, kind)("twice")(lambda: None)


def test_nothing_is_registered_once_it_runs(script: Path) -> None:
    late = script.with_name("late.py")
    late.write_text(
        "from sdk import Extension\next = Extension()\n"
        "@ext.tool()\ndef late(arguments):\n    ext.tool('later')(late)\next.run()\n",
        encoding="utf-8",
    )
    with RawPeer([sys.executable, str(late)]) as peer:
        peer.start()
        error = peer.call("tool.execute", {"name": "late"})["error"]
    assert error["message"] == "RuntimeError: an extension registers before it runs"


def test_workspace_and_client_are_unknown_before_the_host_introduced_itself() -> None:
    ext = sdk.Extension()
    assert (ext.workspace, ext.client) == (None, None)


def example(name: str, **environment: str) -> RawPeer:
    return RawPeer([sys.executable, str(EXAMPLES / name)], environment=environment)


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.py"))])
def test_each_example_starts_and_ends(name: str) -> None:
    with example(name) as peer:
        assert peer.start() != []
        assert peer.finish() == 0
        assert peer.stderr() == ""


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.py"))])
def test_each_example_takes_the_sdk_from_the_directory_it_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "sdk.py").write_text("raise SystemExit(42)\n", encoding="utf-8")
    with example(name, LATCH_SDK=str(tmp_path)) as peer:
        assert peer.wait() == 42


def test_the_tool_example_does_what_it_says(tmp_path: Path) -> None:
    absent = tmp_path / "absent" / "file"
    with example("tool.py", LETTER="x") as peer:
        peer.start(workspace=str(tmp_path))
        assert peer.tool("echo", {"a": 1}) == {"a": 1}
        assert peer.tool("add", {"a": 2, "b": 0.5}) == 2.5
        assert peer.tool("sleep", {"seconds": 0.05}) == "slept"
        assert peer.tool("write", {"path": str(tmp_path / "f"), "text": "t"})["written"] is True
        assert peer.tool("read", {"path": str(tmp_path / "f")})["text"] == "t"
        assert peer.tool("read", {"path": str(absent)})["error"] == "ENOENT"
        refused = peer.tool("write", {"path": str(absent)})
        assert (refused["written"], refused["error"]) == (False, "ENOENT")
        assert peer.tool("whoami", {})["workspace"] == str(tmp_path)
        assert peer.tool("whoami", {})["pid"] == peer.process.pid
        assert peer.tool("environ", {})["LETTER"] == "x"
        request_id = peer.ask("tool.execute", {"name": "sleep", "arguments": {"seconds": 30}})
        peer.notify("$/cancelRequest", {"id": request_id})
        assert peer.read(seconds=5)["error"]["code"] == -32800


def test_the_command_example_greets() -> None:
    with example("command.py") as peer:
        peer.start()
        for arguments, word in (("you", "you"), ({"name": "you"}, "you"), (["a", "b"], "a b"), ({}, "who")):
            assert word in peer.result("command.execute", {"name": "greet", "arguments": arguments})
        assert peer.result("command.execute", {"name": "where", "arguments": {}}) == "/workspace"


def test_the_observe_example_keeps_events_in_memory_and_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with example("observe.py", OBSERVE_LOG=str(log)) as peer:
        peer.start()
        peer.notify("hook.observe", {"event": "user_message", "payload": {"text": "hi"}})
        assert peer.tool("seen", {}) == [{"event": "user_message", "payload": {"text": "hi"}}]
    assert json.loads(log.read_text(encoding="utf-8")) == {"event": "user_message", "payload": {"text": "hi"}}


def test_the_observe_example_outlives_a_log_it_cannot_write() -> None:
    with example("observe.py", OBSERVE_LOG="/proc/none") as peer:
        peer.start()
        peer.notify("hook.observe", {"event": "user_message", "payload": 1})
        assert len(peer.tool("seen", {})) == 1
        assert "cannot write /proc/none" in peer.stderr()


def test_the_transform_example_keeps_the_shape() -> None:
    last = {"role": "assistant", "content": "hello"}
    request = {"system": "Be kind.", "messages": [{"role": "user", "content": "hi"}, last], "tools": []}
    with example("transform.py") as peer:
        peer.start(workspace="/w")
        once = peer.result("hook.transform", {"structure": "model_request", "value": request})
        said = {"role": "user", "content": "hi\nAnswer in at most three sentences."}
        assert once == check_transformed("model_request", request, {**request, "messages": [said, last]})
        assert peer.result("hook.transform", {"structure": "model_request", "value": once}) == once
        value = {"name": "t", "arguments": {"path": "$WORKSPACE/a", "more": [{"p": "$WORKSPACE"}, 5]}}
        assert peer.result("hook.transform", {"structure": "tool_arguments", "value": value}) == {
            "name": "t",
            "arguments": {"path": "/w/a", "more": [{"p": "/w"}, 5]},
        }


@pytest.mark.parametrize(
    ("payload", "decision"),
    [
        ({"name": "rm", "arguments": {}}, "deny"),
        ({"name": "ls", "arguments": {"a": [{"b": "some forbidden text"}]}}, "deny"),
        ({"name": "ls", "arguments": {"forbidden": 1}}, "deny"),
        ({"name": "deploy", "arguments": {}}, "ask"),
        ({"name": "deploy", "arguments": {"to": "forbidden"}}, "deny"),
        ({"name": "ls", "arguments": {}}, "allow"),
    ],
)
def test_the_guard_example_judges_by_its_table(payload: Any, decision: str) -> None:
    with example("guard.py") as peer:
        peer.start()
        answer = peer.result("hook.guard", {"action": "tool.execute", "payload": payload})
    assert answer["decision"] == decision
    assert ("reason" in answer) == (decision != "allow")


def test_the_context_example_reads_the_workspace(tmp_path: Path) -> None:
    with example("context.py") as peer:
        peer.start(workspace=str(tmp_path))
        assert peer.result("context_source.get", {"name": "todo"}) == "nothing is on the list"
        (tmp_path / "TODO.txt").write_text("title\n- one\n- two\n", encoding="utf-8")
        assert peer.result("context_source.get", {"name": "todo"}) == "- one\n- two"
        assert peer.result("context_source.get", {"name": "clock"})[4] == "-"


def test_the_example_of_everything_registers_one_of_each_and_all_work() -> None:
    with example("all.py") as peer:
        methods = [message["method"] for message in peer.start()]
        assert methods == [
            "tool.register",
            "command.register",
            "hook.observe",
            "hook.transform",
            "hook.guard",
            "context_source.register",
        ]
        peer.notify("hook.observe", {"event": "user_message", "payload": {}})
        assert peer.tool("count_words", {"text": "a b c"}) == {"words": 3}
        assert peer.result("command.execute", {"name": "status"}) == "1 messages, 1 calls"
        request = {"system": "s", "messages": [{"role": "user", "content": "hi"}], "tools": []}
        value = peer.result("hook.transform", {"structure": "model_request", "value": request})
        check_transformed("model_request", request, value)
        assert "count_words" in value["messages"][0]["content"]
        for length, decision in ((10, "allow"), (10001, "deny")):
            payload = {"name": "count_words", "arguments": {"text": "x" * length}}
            answer = peer.result("hook.guard", {"action": "tool.execute", "payload": payload})
            assert answer["decision"] == decision
        assert peer.result("context_source.get", {"name": "statistics"}) == {"messages": 1, "calls": 1}
