"""mcp/streamable.py: one POST a message, to the fixture server and to sockets that do what a script says."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Sequence

import pytest

from latch.errors import (
    Cancelled,
    CredentialError,
    DeadlineMissed,
    LatchError,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    PeerRefused,
)
from latch.limits import Limits
from latch.mcp.conversation import McpConversation
from latch.mcp.streamable import StreamableTransport
from latch.system.scope import Scope
from latch.wire.jsonrpc import Failure, Response
from tests.support.hosted import later
from tests.support.mcp_hosted import PEER, patient, recorded, remote
from tests.support.mcp_peers import HttpPeer, read_record, told_methods, wait_until
from tests.support.servers import HEAD, HOLD, REQUEST, RESET, Server, answer, serving

Json = Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
MOST = 4 * 1024 * 1024
JSON = "Content-Type: application/json"
EVENTS = "Content-Type: text/event-stream"
NO_EVENT_TRANSPORT = (
    "the separate HTTP+SSE transport is not supported; configure the server's Streamable HTTP endpoint as url"
)


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(30).within(None, peer=PEER, stage="tools/call")


class Wire:
    """A transport over its own conversation, in *version*."""

    def __init__(
        self,
        server: HttpPeer | Server,
        *,
        version: str | None = MODERN,
        limits: Limits | None = None,
        secrets: Sequence[tuple[str, str]] = (),
    ) -> None:
        url = server.url if isinstance(server, HttpPeer) else f"http://127.0.0.1:{server.port}/mcp?key=q"
        limits = limits or patient(farewell_seconds=0.5)
        self.said = McpConversation(limits, client_version="9")
        if version is not None:
            self.said.agree(version)
        self.transport = StreamableTransport(
            remote(url),
            secrets=secrets,
            environment={},
            peer=PEER,
            conversation=self.said,
            limits=limits,
        )

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *failure: object) -> None:
        self.transport.kill()

    def call(self, name: str, scope: Scope, headers: Any = (), **arguments: Json) -> Response | Failure:
        """Call a tool of the server."""
        params = {"name": name, "arguments": arguments}
        call = self.said.request("tools/call", params, name=name, headers=headers)
        return self.transport.exchange(call, scope)

    def structured(self, name: str, scope: Scope, headers: Any = (), **arguments: Json) -> Json:
        """Call a tool that works and return its structured content."""
        said = self.call(name, scope, headers, **arguments)
        assert isinstance(said, Response)
        return said.result["structuredContent"]

    def initialise(self, scope: Scope) -> None:
        """Shake hands with a legacy server."""
        said = self.transport.exchange(self.said.initialize(), scope.within(None, stage="initialize"))
        assert isinstance(said, Response)
        self.said.agree(said.result["protocolVersion"])
        self.transport.tell(self.said.initialized(), scope)


def lost(wire: Wire, scope: Scope, name: str = "echo", **arguments: Json) -> LatchError:
    """Call what must fail; return why. The client is disconnected, and says so without sending."""
    with pytest.raises(LatchError) as raised:
        wire.call(name, scope, **arguments)
    assert wire.transport.failure is raised.value
    with pytest.raises(LatchError) as again:
        wire.call(name, scope)
    assert again.value is raised.value
    return raised.value


def result(number: Json = 1, **members: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": members}).encode()


def failure(code: int, number: Json = 1) -> bytes:
    error = {"code": code, "message": "m"}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()


def stream(*events: bytes) -> bytes:
    """An answer that is a stream of these events, which ends with its connection."""
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\n".encode()
    return head + b"".join(b"data: " + event + b"\n\n" for event in events)


def fields_of(request: bytes) -> dict[str, str]:
    """The header fields of a request by their names in lower case."""
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


# -- what is sent ------------------------------------------------------------------------------------


def test_a_modern_request_repeats_what_its_body_says(scope: Scope) -> None:
    with serving([REQUEST, answer(result(), JSON)]) as server, Wire(server) as wire:
        wire.call("echo", scope, headers=(("Mcp-Param-Region", "eu"),))
        sent = fields_of(server.requests[0])
    assert server.requests[0].startswith(b"POST /mcp?key=q HTTP/1.1\r\n")
    body = server.requests[0].partition(b"\r\n\r\n")[2]
    known = {name: sent.pop(name) for name in list(sent) if name not in ("host", "content-length")}
    assert known == {
        "accept-encoding": "identity",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "echo",
        "mcp-param-region": "eu",
    }
    assert json.loads(body)["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN


@pytest.mark.parametrize("name", ["Hello, 世界", "two\r\nX-Evil: yes", " padded", "=?base64?literal?="])
def test_no_name_of_a_tool_can_end_its_field(scope: Scope, name: str) -> None:
    with serving([REQUEST, answer(result(), JSON)]) as server, Wire(server) as wire:
        wire.call(name, scope)
        sent = fields_of(server.requests[0])
    assert sent["mcp-name"].startswith("=?base64?") and "x-evil" not in sent


def test_mirrored_arguments_are_what_a_strict_server_expects(scope: Scope) -> None:
    with HttpPeer("--era", "modern") as server, Wire(server) as wire:
        headers = (("Mcp-Param-Text", "=?base64?w7w=?="), ("Mcp-Param-Number", "5"))
        said = wire.structured("headers", scope, headers, text="ü", number=5)
        assert said["headers"]["mcp-param-number"] == "5"
        refused = wire.call("headers", scope, text="ü")
        assert isinstance(refused, Failure) and refused.error is not None and refused.error.code == -32020
        assert wire.transport.failure is None


@pytest.mark.parametrize(
    ("version", "named"),
    [(None, False), (LEGACY, True), ("2025-06-18", True), ("2025-03-26", False), ("2024-11-05", False)],
)
def test_a_legacy_request_names_its_version_from_the_revision_that_asks_for_it(
    scope: Scope, version: str | None, named: bool
) -> None:
    with serving([REQUEST, answer(result(), JSON)]) as server, Wire(server, version=version) as wire:
        wire.transport.exchange(wire.said.initialize(), scope)
        sent = fields_of(server.requests[0])
    assert sent.get("mcp-protocol-version") == (version if named else None)
    assert not [name for name in sent if name in ("mcp-method", "mcp-name")]


def test_t27_a_secret_goes_into_its_field_and_into_no_error(scope: Scope) -> None:
    secrets = [("Authorization", "Bearer hunter2-hunter2"), ("X-Key", "k")]
    with serving([REQUEST, answer(b"", status="500 Oh")]) as server:
        with Wire(server, secrets=secrets) as wire:
            error = lost(wire, scope)
            assert "hunter2" not in f"{error} {error!r} {wire.transport!r} {vars(error)}"
    sent = fields_of(server.requests[0])
    assert (sent["authorization"], sent["x-key"]) == ("Bearer hunter2-hunter2", "k")


# -- answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("form", ["json", "sse"])
def test_answers_come_as_json_or_as_events(scope: Scope, era: str, form: str) -> None:
    with HttpPeer("--era", era, "--answer", form) as server:
        with Wire(server, version=MODERN if era == "modern" else None) as wire:
            if era == "legacy":
                wire.initialise(scope)
            assert wire.structured("echo", scope, text="ü\u2028") == {"text": "ü\u2028"}
            assert wire.structured("progress", scope, count=3) == {"count": 3}
            assert wire.said.ignored == 3


@pytest.mark.parametrize(
    ("form", "sin"),
    [
        ("sse", "sse-crlf"),
        ("sse", "sse-cr"),
        ("sse", "sse-multiline"),
        ("sse", "sse-keepalive"),
        ("sse", "sse-priming"),
        ("sse", "sse-bom"),
        ("sse", "double-answer"),
        ("json", "half-utf8:0.05"),
        ("sse", "half-utf8:0.05"),
        ("json", "string-id"),
        ("sse", "string-id"),
        ("json", "no-id-error:null"),
        ("sse", "no-id-error:null"),
    ],
)
def test_what_is_odd_but_clear_is_understood(scope: Scope, sin: str, form: str) -> None:
    with HttpPeer("--era", "modern", "--answer", form, "--misbehave", sin) as server, Wire(server) as wire:
        for number in range(2):
            said = wire.call("add", scope, a=number, b=1)
            if not sin.startswith("no-id"):
                assert isinstance(said, Response) and said.result["structuredContent"] == {"sum": number + 1}
            else:
                assert isinstance(said, Failure)
        assert wire.transport.failure is None


def test_a_stream_may_be_cut_anywhere(scope: Scope) -> None:
    said_first = b'{"jsonrpc":"2.0","method":"n"}'
    last = '{"jsonrpc":"2.0","id":1,"result":{"text":"caf\u00e9 \u2028"}}'.encode()
    head, _, body = stream(said_first, last).partition(b"\r\n\r\n")
    # inside of a character, and between CR and LF
    pieces = [bytes([byte]) for byte in body.replace(b"\n", b"\r\n")]
    with serving([REQUEST, head + b"\r\n\r\n", *pieces]) as server, Wire(server) as wire:
        said = wire.call("echo", scope)
    assert isinstance(said, Response) and said.result == {"text": "caf\u00e9 \u2028"}


def test_what_follows_the_answer_is_not_waited_for(scope: Scope, ms: float) -> None:
    with serving([REQUEST, stream(result()), HOLD]) as server, Wire(server) as wire:
        began = time.monotonic()
        assert isinstance(wire.call("echo", scope), Response)
        assert time.monotonic() - began < 1000 * ms
        assert wire.transport.failure is None


def test_several_threads_may_call_at_once(scope: Scope) -> None:
    with HttpPeer("--era", "modern") as server, Wire(server) as wire:
        found: dict[int, Json] = {}

        def call(number: int) -> None:
            found[number] = wire.structured("echo", scope, number=number)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert found == {number: {"number": number} for number in range(8)}


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_error_in_a_refused_post_belongs_to_it_whatever_its_id(
    scope: Scope, form: str, status: int
) -> None:
    for number in (1, None, "server-error", 99):
        body = failure(-32000, number)
        given = answer(body, JSON) if form == "json" else stream(body)
        given = given.replace(b"200 OK", str(status).encode() + b" No")
        with serving([REQUEST, given]) as server, Wire(server) as wire:
            said = wire.call("echo", scope)
            assert isinstance(said, Failure) and said.raw == {"code": -32000, "message": "m"}
            assert wire.transport.failure is None


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "text/plain"])
def test_a_refused_post_is_judged_by_its_body(scope: Scope, kind: str) -> None:
    given = answer(failure(-32602), f"Content-Type: {kind}", status="400 No")
    with serving([REQUEST, given]) as server, Wire(server) as wire:
        assert isinstance(wire.call("echo", scope), Failure)


REFUSED = {
    "no body": (b"", ()),
    "a text": (b"Not Found", ("Content-Type: text/plain",)),
    "a page": (b"<html>no</html>", ("Content-Type: text/html",)),
    "JSON that is no message": (b'{"error": "no"}', (JSON,)),
    "a result": (result(), (JSON,)),
    "half a message": (b'{"jsonrpc": "2.0", "err', (JSON,)),
    "an empty stream": (b"", (EVENTS,)),
    "a stream with a result": (b"data: " + result() + b"\n\n", (EVENTS,)),
    "a stream of noise": (b": hello\n\ndata: x\n\n", (EVENTS,)),
}


@pytest.mark.parametrize(("body", "fields"), REFUSED.values(), ids=list(REFUSED))
@pytest.mark.parametrize("status", [400, 404, 405, 500, 503])
def test_a_status_without_an_error_disconnects(
    scope: Scope, status: int, body: bytes, fields: tuple[str, ...]
) -> None:
    with serving([REQUEST, answer(body, *fields, status=f"{status} No")]) as server, Wire(server) as wire:
        error = lost(wire, scope)
    assert isinstance(error, PeerRefused)
    assert str(error) == f"{PEER}: tools/call: the server answered with HTTP status {status}"
    assert server.connections == 1


WRONG = {
    "another id": (answer(result(99), JSON), "the body holds no answer to the request"),
    "a notification": (answer(b'{"jsonrpc":"2.0","method":"n"}', JSON), "the body holds no answer"),
    "no type": (answer(result()), "the Content-Type is"),
    "a page": (answer(result(), "Content-Type: text/html"), 'the Content-Type is "text/html"'),
    "no json": (answer(b"{", JSON), "ends in the middle"),
    "a batch": (answer(b"[" + result() + b"]", JSON), "a batch came"),
    "a batch in an event": (stream(b"[" + result() + b"]"), "a batch came"),
    "a question": (stream(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', result()), 'the request "ping"'),
    "an event that is no message": (stream(b"{}"), "jsonrpc"),
    "a coding": (answer(b"x", JSON, "Content-Encoding: gzip"), "gzip"),
}


@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=list(WRONG))
def test_what_breaks_the_protocol_disconnects(scope: Scope, given: bytes, words: str) -> None:
    with serving([REQUEST, given, HOLD]) as server, Wire(server) as wire:
        error = lost(wire, scope)
        assert isinstance(error, PeerProtocolError) and words in error.reason
        assert (error.peer, error.stage) == (PEER, "tools/call")
        assert server.connections == 1


def test_a_batch_is_understood_where_it_was_agreed_on(scope: Scope) -> None:
    batch = b'[{"jsonrpc":"2.0","method":"n"},' + result(1, a=1) + b"]"
    for given in (answer(batch, JSON), stream(batch)):
        with serving([REQUEST, given]) as server, Wire(server, version="2025-03-26") as wire:
            said = wire.call("echo", scope)
            assert isinstance(said, Response) and said.result == {"a": 1}


GONE = {
    "a clean end before the answer": stream(b'{"jsonrpc":"2.0","method":"n"}'),
    "an end inside the answer": stream(b"")[:-2] + b"data: " + result(),
    "an end before anything": b"",
    "an end inside the head": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "a body cut short": answer(result(), JSON)[:-3],
    "a chunk cut short": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n40\r\ndata: ",
}


@pytest.mark.parametrize("given", GONE.values(), ids=list(GONE))
@pytest.mark.parametrize("version", [MODERN, LEGACY])
def test_a_cut_is_a_lost_call_and_is_never_sent_again(scope: Scope, given: bytes, version: str) -> None:
    with serving([REQUEST, given]) as server, Wire(server, version=version) as wire:
        error = lost(wire, scope)
        assert isinstance(error, PeerGone) and (error.peer, error.stage) == (PEER, "tools/call")
        assert server.connections == len(server.requests) == 1


def test_a_reset_is_a_lost_call(scope: Scope) -> None:
    with serving([REQUEST, RESET]) as server, Wire(server) as wire:
        assert isinstance(lost(wire, scope), PeerGone)
        assert server.connections == 1


def test_a_server_that_is_not_there_is_gone(scope: Scope) -> None:
    with serving([REQUEST]) as server:
        pass
    with Wire(server) as wire:
        error = lost(wire, scope)
    assert isinstance(error, PeerGone) and "refused" in error.reason


def test_an_idle_connection_that_was_closed_is_not_used(scope: Scope) -> None:
    script = [REQUEST, answer(result(1), JSON)]
    with serving(script, [REQUEST, answer(result(2), JSON)]) as server, Wire(server) as wire:
        assert isinstance(wire.call("echo", scope), Response)
        wait_until(lambda: server.ended == 1)
        assert isinstance(wire.call("echo", scope), Response)
        assert server.connections == 2


# -- limits ------------------------------------------------------------------------------------------


def padded(size: int, *, around: int = 0) -> bytes:
    """An answer of *size* bytes, less *around*."""
    bare = len(result(1, text=""))
    return result(1, text="x" * (size - around - bare))


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_four_mebibytes_is_read_and_not_one_byte_more(
    scope: Scope, announced: bool, extra: int
) -> None:
    body = padded(MOST + extra)
    assert len(body) == MOST + extra
    head = f"HTTP/1.1 200 OK\r\n{JSON}\r\nConnection: close\r\n\r\n".encode()
    given = answer(body, JSON) if announced else head + body
    with serving([REQUEST, given]) as server, Wire(server) as wire:
        if not extra:
            assert isinstance(wire.call("echo", scope), Response)
            return
        error = lost(wire, scope)
    assert isinstance(error, PeerLimit) and error.amount == MOST


@pytest.mark.parametrize("extra", [0, 1])
def test_an_event_of_four_mebibytes_is_read_and_not_one_byte_more(scope: Scope, extra: int) -> None:
    frame = len(b"data: \n\n")
    given = stream(padded(MOST + extra, around=frame))
    assert len(given.partition(b"\r\n\r\n")[2]) == MOST + extra
    with serving([REQUEST, given]) as server, Wire(server) as wire:
        if not extra:
            assert isinstance(wire.call("echo", scope), Response)
            return
        error = lost(wire, scope)
    assert isinstance(error, PeerLimit) and error.amount == MOST


@pytest.mark.parametrize("extra", [0, 1])
def test_all_events_of_a_call_have_four_mebibytes_together(scope: Scope, extra: int) -> None:
    note = b'{"jsonrpc":"2.0","method":"' + b"n" * 1000 + b'"}'
    before = [note] * 1000
    rest = MOST + extra - sum(len(b"data: \n\n") + len(event) for event in before)
    given = stream(*before, padded(rest, around=len(b"data: \n\n")))
    assert len(given.partition(b"\r\n\r\n")[2]) == MOST + extra
    with serving([REQUEST, given]) as server, Wire(server) as wire:
        if not extra:
            assert isinstance(wire.call("echo", scope), Response)
            return
        error = lost(wire, scope)
    assert isinstance(error, PeerLimit) and (error.limit, error.amount) == ("max_message_bytes", MOST)


@pytest.mark.parametrize("form", ["json", "sse"])
def test_an_answer_without_end_is_bounded(scope: Scope, form: str) -> None:
    options = ("--era", "modern", "--answer", form, "--misbehave", "endless-line")
    with HttpPeer(*options) as server, Wire(server) as wire:
        assert isinstance(lost(wire, scope), PeerLimit)


def test_the_sum_goes_on_where_a_stream_is_taken_up(scope: Scope) -> None:
    note = b'{"jsonrpc":"2.0","method":"' + b"n" * 400 + b'"}'
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\n".encode()
    part = head + b"id: 1\nretry: 1\ndata: " + note + b"\n\n"
    limits = patient(max_message_bytes=2000)
    with serving([REQUEST, part]) as server, Wire(server, version=LEGACY, limits=limits) as wire:
        error = lost(wire, scope)
        assert isinstance(error, PeerLimit) and error.limit == "max_message_bytes"
        assert 4 <= server.connections <= 6


# -- the way to the server ---------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["probe", "call"])
def test_refused_credentials_are_told_as_such(scope: Scope, when: str) -> None:
    with HttpPeer("--misbehave", "bearer-required") as server, Wire(server) as wire:
        with pytest.raises(CredentialError) as raised:
            if when == "probe":
                wire.transport.probe(wire.said.discover(MODERN), scope)
            else:
                wire.call("echo", scope)
        assert "HTTP status 401" in raised.value.reason and "bearer_token_env" in str(raised.value.hint)
    secrets = [("Authorization", "Bearer open-sesame")]
    with HttpPeer("--misbehave", "bearer-required") as server, Wire(server, secrets=secrets) as wire:
        assert isinstance(wire.call("echo", scope), Response)


@pytest.mark.parametrize("when", ["probe", "call", "tell"])
@pytest.mark.parametrize(
    ("sin", "words"),
    [
        ("403", "the server forbids it (HTTP status 403)"),
        ("redirect", 'the server redirects to "/elsewhere" (HTTP status 307), which is never followed'),
        ("redirect-away:301", "(HTTP status 301), which is never followed"),
        ("redirect:302", "(HTTP status 302)"),
        ("redirect:308", "(HTTP status 308)"),
    ],
)
def test_what_is_no_verdict_about_the_era_is_told_and_nothing_follows(
    scope: Scope, tmp_path: Path, when: str, sin: str, words: str
) -> None:
    record, _ = recorded(tmp_path / "record")
    secrets = [("Authorization", "Bearer hunter2-hunter2")]
    with HttpPeer("--misbehave", sin, "--record", str(record)) as server:
        with Wire(server, secrets=secrets) as wire, pytest.raises(PeerRefused) as raised:
            if when == "probe":
                wire.transport.probe(wire.said.discover(MODERN), scope)
            elif when == "call":
                wire.call("echo", scope)
            else:
                wire.transport.tell(wire.said.initialized(), scope)
    assert words in raised.value.reason and raised.value.hint is not None
    assert len([line for line in read_record(record) if "body" in line]) == 1


def test_a_redirect_without_target_and_one_of_any_length_are_told(scope: Scope) -> None:
    for fields, shown in (((), '"nowhere"'), (("Location: /" + "x" * 5000,), "a text of 5001")):
        with serving([REQUEST, answer(b"", *fields, status="302 Found")]) as server, Wire(server) as wire:
            error = lost(wire, scope)
            assert shown in error.reason and len(error.reason) < 500


def test_proxies_of_the_environment_are_not_asked(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([REQUEST, answer(b"", status="500 No")]) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with HttpPeer("--era", "modern") as server, Wire(server) as wire:
            assert wire.structured("echo", scope) == {}
        assert proxy.connections == 0


# -- the probe ---------------------------------------------------------------------------------------


def probed(scope: Scope, *options: str) -> Any:
    with HttpPeer(*options) as server, Wire(server, version=None) as wire:
        said = wire.transport.probe(wire.said.discover(MODERN), scope)
        assert wire.transport.failure is None
        return said


def test_a_discovery_is_an_answer(scope: Scope) -> None:
    for form in ("json", "sse"):
        said = probed(scope, "--era", "modern", "--answer", form)
        assert isinstance(said, Response) and said.result["supportedVersions"] == [MODERN]


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("status", [200, 400, 404, 500])
@pytest.mark.parametrize("number", [1, None])
@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_recognised_modern_error_is_seen_in_any_status_and_form(
    scope: Scope, form: str, status: int, number: Json, code: int
) -> None:
    body = failure(code, number)
    given = answer(body, JSON) if form == "json" else stream(body)
    given = given.replace(b"200 OK", str(status).encode() + b" Status")
    with serving([REQUEST, given]) as server, Wire(server, version=None) as wire:
        said = wire.transport.probe(wire.said.discover(MODERN), scope)
    assert isinstance(said, Failure) and said.raw["code"] == code


@pytest.mark.parametrize(
    "sin",
    [
        "error:-32601",
        "error:-32601,200",
        "error:-32000,400,null",
        "error:-32600,400,server-error",
        "error:-32603,500",
        "discover-500",
    ],
)
def test_any_error_of_the_protocol_is_an_answer_to_the_probe(scope: Scope, sin: str) -> None:
    said = probed(scope, "--misbehave", f"{sin}:server/discover")
    assert isinstance(said, Failure)


UNSAID = {
    "400 and a text": answer(b"no", "Content-Type: text/plain", status="400 No"),
    "404 and a page": answer(b"<html>", "Content-Type: text/html", status="404 No"),
    "405 and nothing": answer(b"", status="405 No"),
    "406 and nothing": answer(b"", status="406 No"),
    "200 and a page": answer(b"<html>", "Content-Type: text/html"),
    "200 and no message": answer(b"{}", JSON),
    "200 and another id": answer(result(99), JSON),
    "a stream and no answer": stream(b'{"jsonrpc":"2.0","method":"n"}'),
    "an endpoint": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /m\n\n",
}


@pytest.mark.parametrize("given", UNSAID.values(), ids=list(UNSAID))
def test_what_says_nothing_of_a_modern_server_falls_back(scope: Scope, given: bytes) -> None:
    with serving([REQUEST, given]) as server, Wire(server, version=None) as wire:
        said = wire.transport.probe(wire.said.discover(MODERN), scope)
        assert wire.transport.failure is None
    assert said is None


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_failing_server_without_an_error_of_the_protocol_is_an_outage(scope: Scope, status: int) -> None:
    given = answer(b"<html>", "Content-Type: text/html", status=f"{status} No")
    with serving([REQUEST, given]) as server, Wire(server, version=None) as wire:
        with pytest.raises(PeerRefused, match=f"HTTP status {status}"):
            wire.transport.probe(wire.said.discover(MODERN), scope)


@pytest.mark.parametrize("script", [[REQUEST], [REQUEST, RESET]])
def test_an_outage_is_no_verdict(scope: Scope, script: Any) -> None:
    with serving(script) as server, Wire(server, version=None) as wire:
        with pytest.raises(PeerGone):
            wire.transport.probe(wire.said.discover(MODERN), scope)


@pytest.mark.parametrize("script", [[HEAD, HOLD], [REQUEST, HOLD], [REQUEST, b"HTTP/1.1 200 OK\r\n", HOLD]])
def test_a_probe_without_answer_falls_back_in_its_own_time_alone(
    scope: Scope, script: Any, ms: float
) -> None:
    with serving(script) as server, Wire(server, version=None) as wire:
        assert wire.transport.probe(wire.said.discover(MODERN), scope.within(100 * ms)) is None
        with pytest.raises(DeadlineMissed) as raised:
            wire.transport.probe(wire.said.discover(MODERN), Scope.root(100 * ms).within(60))
        assert not raised.value.own


def test_the_event_transport_is_named_after_two_statuses_that_speak_of_it(scope: Scope) -> None:
    for status in (404, 405):
        script = [REQUEST, answer(b"", "Connection: close", status=f"{status} No")]
        with serving(script, script) as server, Wire(server, version=None) as wire:
            assert wire.transport.probe(wire.said.discover(MODERN), scope) is None
            within = scope.within(None, stage="initialize")
            with pytest.raises(PeerRefused) as raised:
                wire.transport.exchange(wire.said.initialize(), within)
            assert raised.value.hint == NO_EVENT_TRANSPORT


def test_the_event_transport_is_named_by_its_first_event(scope: Scope) -> None:
    with HttpPeer("--misbehave", "endpoint-event") as server, Wire(server, version=None) as wire:
        assert wire.transport.probe(wire.said.discover(MODERN), scope) is None
        with pytest.raises(PeerProtocolError) as raised:
            wire.transport.exchange(wire.said.initialize(), scope)
        assert "HTTP+SSE" in raised.value.reason and raised.value.hint == NO_EVENT_TRANSPORT


def test_a_legacy_server_that_refuses_initialize_otherwise_is_not_taken_for_that(scope: Scope) -> None:
    script = [REQUEST, answer(b"", "Connection: close", status="400 No")]
    with serving(script, script) as server, Wire(server, version=None) as wire:
        assert wire.transport.probe(wire.said.discover(MODERN), scope) is None
        with pytest.raises(PeerRefused) as raised:
            wire.transport.exchange(wire.said.initialize(), scope.within(None, stage="initialize"))
        assert raised.value.hint is None


# -- sessions ----------------------------------------------------------------------------------------


def test_a_session_is_named_in_every_message_and_ended_by_delete(scope: Scope, tmp_path: Path) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--era", "legacy", "--session", "--record", str(record)) as server:
        wire = Wire(server, version=None)
        wire.initialise(scope)
        assert wire.structured("echo", scope, a=1) == {"a": 1}
        wire.transport.close(scope)
    lines = [line for line in read_record(record) if "method" in line]
    sessions = [
        dict((name.lower(), value) for name, value in line["headers"]).get("mcp-session-id") for line in lines
    ]
    assert [line["method"] for line in lines] == ["POST"] * 3 + ["DELETE"]
    assert sessions[0] is None and len(set(sessions[1:])) == 1 and sessions[1] is not None


def test_without_a_session_nothing_is_deleted(scope: Scope, tmp_path: Path) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--era", "legacy", "--record", str(record)) as server:
        wire = Wire(server, version=None)
        wire.initialise(scope)
        wire.transport.close(scope)
    assert {line["method"] for line in read_record(record) if "method" in line} == {"POST"}


def test_a_modern_server_that_names_a_session_has_none(scope: Scope) -> None:
    given = answer(result(), JSON, "Mcp-Session-Id: abc")
    again = given.replace(b'"id": 1', b'"id": 2')
    with serving([REQUEST, given, REQUEST, again, HOLD]) as server, Wire(server) as wire:
        wire.call("echo", scope)
        wire.call("echo", scope)
        wire.transport.close(scope)
        assert "mcp-session-id" not in fields_of(server.requests[1]) and len(server.requests) == 2


@pytest.mark.parametrize("session", ["not a session", "\xe9", ""])
def test_a_session_id_that_cannot_be_sent_back_breaks_the_protocol(scope: Scope, session: str) -> None:
    given = answer(result(protocolVersion=LEGACY), JSON, f"Mcp-Session-Id: {session}")
    with serving([REQUEST, given]) as server, Wire(server, version=None) as wire:
        with pytest.raises(PeerProtocolError, match="its session id is not visible ASCII"):
            wire.transport.exchange(wire.said.initialize(), scope)


def test_a_session_that_has_ended_disconnects_and_nothing_is_sent_again(scope: Scope, tmp_path: Path) -> None:
    record, _ = recorded(tmp_path / "record")
    options = ("--era", "legacy", "--session", "--misbehave", "404-session:tools/call")
    with HttpPeer(*options, "--record", str(record)) as server, Wire(server, version=None) as wire:
        wire.initialise(scope)
        error = lost(wire, scope)
        wire.transport.close(scope)
    assert isinstance(error, PeerGone) and error.reason == "its session has ended"
    assert told_methods(record) == ["initialize", "notifications/initialized", "tools/call"]


@pytest.mark.parametrize(
    "script",
    [
        [REQUEST, answer(b"", status="405 No")],
        [REQUEST, answer(b"", status="404 No")],
        [REQUEST, answer(b"", status="500 No")],
        [REQUEST, HOLD],
        [REQUEST, RESET],
        [HEAD],
    ],
)
def test_the_end_of_a_session_is_bounded_and_never_fails(scope: Scope, script: Any, ms: float) -> None:
    first = answer(result(protocolVersion=LEGACY), JSON, "Mcp-Session-Id: abc", "Connection: close")
    limits = patient(farewell_seconds=100 * ms)
    with serving([REQUEST, first], script) as server:
        wire = Wire(server, version=None, limits=limits)
        wire.transport.exchange(wire.said.initialize(), scope)
        began = time.monotonic()
        wire.transport.close(scope)
        wire.transport.close(scope)
        assert time.monotonic() - began < 400 * ms
        assert len(server.requests) == 2 and server.requests[1].startswith(b"DELETE /mcp?key=q HTTP/1.1")


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_session_that_was_given_up_is_ended_too(scope: Scope, tmp_path: Path, ms: float, how: str) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--era", "legacy", "--session", "--record", str(record)) as server:
        with Wire(server, version=None) as wire:
            wire.initialise(scope)
            if how == "cancel":
                later(200 * ms, lambda: scope.cancel("SIGINT"))
            with pytest.raises((Cancelled, DeadlineMissed)):
                wire.call("slow", scope.within(None if how == "cancel" else 200 * ms), seconds=30)
            wire.transport.close(scope)
    assert [line["method"] for line in read_record(record) if "method" in line][-1] == "DELETE"


# -- notifications -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sin", ["no-content-202", "empty-200", "null-202", "text-202"])
def test_every_2xx_is_good_for_a_notification(scope: Scope, sin: str) -> None:
    with HttpPeer("--era", "legacy", "--misbehave", sin) as server, Wire(server, version=None) as wire:
        wire.initialise(scope)
        assert wire.structured("echo", scope) == {}


def test_a_notification_that_is_refused_is_told(scope: Scope) -> None:
    with serving([REQUEST, answer(b"", status="400 No")]) as server, Wire(server, version=LEGACY) as wire:
        with pytest.raises(PeerRefused, match="HTTP status 400"):
            wire.transport.tell(wire.said.initialized(), scope)


# -- questions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sin", ["ping-first", "ping-first:tools/call", "asks-sampling"])
@pytest.mark.parametrize("more", [(), ("--misbehave", "refuses-answers")])
def test_a_question_in_a_legacy_stream_is_answered_by_a_post_of_its_own(
    scope: Scope, tmp_path: Path, sin: str, more: tuple[str, ...]
) -> None:
    record, _ = recorded(tmp_path / "record")
    options = ("--era", "legacy", "--session", "--misbehave", sin, *more, "--record", str(record))
    with HttpPeer(*options) as server, Wire(server, version=None) as wire:
        wire.initialise(scope)
        assert wire.structured("echo", scope, a=1) == {"a": 1}
        assert wire.transport.failure is None
    (reply,) = [
        line["body"] for line in read_record(record) if "method" not in (line.get("body") or {"method": 1})
    ]
    assert reply["id"] == "server-1"
    assert reply.get("result") == {} if "ping" in sin else reply["error"]["code"] == -32601


def test_a_reply_that_cannot_be_sent_is_counted_and_the_answer_still_counts(scope: Scope) -> None:
    asking = stream(b'{"jsonrpc":"2.0","id":"q","method":"ping"}', result())
    with serving([REQUEST, asking], [REQUEST, RESET]) as server, Wire(server, version=LEGACY) as wire:
        assert isinstance(wire.call("echo", scope), Response)
        assert wire.said.ignored == 1 and len(server.requests) == 2


def test_a_reply_that_is_not_taken_in_time_is_the_calls_own_deadline(scope: Scope, ms: float) -> None:
    asking = stream(b'{"jsonrpc":"2.0","id":"q","method":"ping"}', result())
    with serving([REQUEST, asking], [HOLD]) as server, Wire(server, version=LEGACY) as wire:
        with pytest.raises(DeadlineMissed):
            wire.call("echo", scope.within(200 * ms))


# -- taking up a stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("retry", [100, 0])
def test_a_stream_that_a_legacy_server_closed_is_taken_up_where_it_ended(
    scope: Scope, tmp_path: Path, ms: float, retry: int
) -> None:
    record, _ = recorded(tmp_path / "record")
    options = ("--era", "legacy", "--session", "--misbehave", f"sse-closes:{retry}", "--record", str(record))
    with HttpPeer(*options) as server, Wire(server, version=None) as wire:
        wire.initialise(scope)
        assert wire.structured("count", scope)["count"] == 1
    lines = [line for line in read_record(record) if "method" in line]
    assert [line["method"] for line in lines] == ["POST", "POST", "POST", "GET", "DELETE"]
    sent = {name.lower(): value for name, value in lines[-2]["headers"]}
    assert (sent["last-event-id"], sent["accept"]) == ("event-1", "text/event-stream")
    assert sent["mcp-protocol-version"] == LEGACY and "mcp-session-id" in sent
    # never at once, or a server that closes for ever would be asked without pause
    assert lines[-2]["at"] - lines[-3]["at"] >= max(retry / 1000, 0.05)


def test_a_stream_that_names_no_time_is_taken_up_after_ours(scope: Scope, ms: float) -> None:
    limits = patient(reconnect_seconds=200 * ms)
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\n".encode()
    first = [REQUEST, head + b"id: 7\ndata: \n\n"]
    with serving(first, [REQUEST, stream(result())]) as server:
        with Wire(server, version=LEGACY, limits=limits) as wire:
            began = time.monotonic()
            assert isinstance(wire.call("echo", scope), Response)
            assert time.monotonic() - began >= 200 * ms
    assert fields_of(server.requests[1])["last-event-id"] == "7"


def test_a_stream_that_broke_is_taken_up_too(scope: Scope) -> None:
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    event = b"id: 7\nretry: 1\ndata: \n\n"
    first = [REQUEST, head + b"%x\r\n%b\r\n" % (len(event), event) + b"40\r\nda", RESET]
    with serving(first, [REQUEST, stream(result())]) as server, Wire(server, version=LEGACY) as wire:
        assert isinstance(wire.call("echo", scope), Response)


@pytest.mark.parametrize(
    "second",
    [
        answer(b"", status="405 No"),
        answer(b"", status="404 No"),
        answer(b"{}", JSON),
        answer(b"", status="204 No"),
    ],
)
def test_a_stream_that_cannot_be_taken_up_is_a_lost_call(scope: Scope, second: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\n".encode()
    first = [REQUEST, head + b"id: 7\nretry: 1\ndata: \n\n"]
    with serving(first, [REQUEST, second]) as server, Wire(server, version=LEGACY) as wire:
        error = lost(wire, scope)
        assert isinstance(error, PeerGone) and "its event stream ended before the answer" in error.reason
        assert len(server.requests) == 2


def test_a_modern_stream_is_never_taken_up(scope: Scope) -> None:
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\n".encode()
    with serving([REQUEST, head + b"id: 7\nretry: 1\ndata: \n\n"]) as server, Wire(server) as wire:
        error = lost(wire, scope)
        assert isinstance(error, PeerGone) and error.reason == "its event stream ended before the answer"
        assert server.connections == 1


def test_taking_up_ends_at_the_deadline_of_the_call(scope: Scope, ms: float) -> None:
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\n\r\n".encode()
    with serving([REQUEST, head + b"id: 7\nretry: 3600000\ndata: \n\n"]) as server:
        with Wire(server, version=LEGACY) as wire:
            began = time.monotonic()
            error = lost(wire, scope.within(200 * ms))
            assert isinstance(error, DeadlineMissed) and time.monotonic() - began < 1500 * ms


# -- deadlines, cancel -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sin",
    [
        "silent",
        "deaf",
        "drip",
        "sse-no-end",
        "late-answer:60",
        "half-utf8:60",
        "10000-notifications:100000000",
    ],
)
def test_an_answer_that_does_not_come_in_time_disconnects(scope: Scope, ms: float, sin: str) -> None:
    with HttpPeer("--era", "modern", "--misbehave", sin) as server, Wire(server) as wire:
        began = time.monotonic()
        error = lost(wire, scope.within(300 * ms, missing="answer"))
        took = time.monotonic() - began
    assert isinstance(error, (DeadlineMissed, PeerLimit))
    assert (error.peer, error.stage) == (PEER, "tools/call") and took < 900 * ms


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_modern_call_that_is_given_up_closes_its_connection_and_says_nothing(
    scope: Scope, ms: float, tmp_path: Path, how: str
) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--era", "modern", "--record", str(record)) as server, Wire(server) as wire:
        if how == "cancel":
            later(200 * ms, lambda: scope.cancel("SIGINT"))
        with pytest.raises((Cancelled, DeadlineMissed)):
            wire.call("slow", scope.within(None if how == "cancel" else 200 * ms), seconds=30)
        wait_until(lambda: any(line.get("event") == "closed" for line in read_record(record)))
    assert told_methods(record) == ["tools/call"]


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_legacy_server_is_told_that_its_call_was_given_up(
    scope: Scope, ms: float, tmp_path: Path, how: str
) -> None:
    record, _ = recorded(tmp_path / "record")
    with HttpPeer("--era", "legacy", "--record", str(record)) as server, Wire(server, version=None) as wire:
        wire.initialise(scope)
        if how == "cancel":
            later(200 * ms, lambda: scope.cancel("SIGINT"))
        with pytest.raises((Cancelled, DeadlineMissed)):
            wire.call("slow", scope.within(None if how == "cancel" else 200 * ms), seconds=30)
    bodies = [line["body"] for line in read_record(record) if line.get("body")]
    assert bodies[-1]["method"] == "notifications/cancelled"
    assert bodies[-1]["params"]["requestId"] == bodies[-2]["id"]


def test_a_cancelled_call_to_a_hung_server_ends_within_a_second(scope: Scope, ms: float) -> None:
    with serving([REQUEST, HOLD]) as server, Wire(server, version=LEGACY, limits=patient()) as wire:
        later(100 * ms, lambda: scope.cancel("SIGINT"))
        began = time.monotonic()
        with pytest.raises(Cancelled):
            wire.call("echo", scope)
        assert time.monotonic() - began < 1000 * ms
        assert isinstance(wire.transport.failure, PeerError)
        assert wire.transport.failure.reason == "its use was cancelled"


# -- the end -----------------------------------------------------------------------------------------


def test_a_closed_one_says_so(scope: Scope) -> None:
    with serving([REQUEST, answer(result(), JSON)]) as server:
        wire = Wire(server)
        wire.transport.start(scope)
        wire.call("echo", scope)
        wire.transport.close(scope)
        assert wire.transport.stderr_tail == "" and wire.transport.noise_lines == 0
        with pytest.raises(PeerError, match="was closed"):
            wire.call("echo", scope)
        assert len(server.requests) == 1
