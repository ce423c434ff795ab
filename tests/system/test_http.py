"""Exchanges with real servers: what is sent, what is read, every way to fail, and that time ends each."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Sequence

import pytest

from latch.errors import (
    Cancelled,
    ConfigError,
    DeadlineMissed,
    LatchError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    UsageError,
)
from latch.limits import HttpLimits
from latch.system.http import HttpClient, HttpReply
from latch.system.scope import Scope
from tests.support.census import descriptors, eventually, opened_since
from tests.support.pace import MS
from tests.support.servers import (
    ABORT,
    CERTIFICATES,
    HEAD,
    HOLD,
    REQUEST,
    RESET,
    Server,
    answer,
    certificate,
    pause,
    serving,
)

LIMITS = HttpLimits()
PATIENT_SECONDS = 10000 * MS
MIB = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def scope(seconds: float = PATIENT_SECONDS) -> Scope:
    return Scope.root(seconds).within(None, peer="the service", stage="call")


def client_of(server: Server, target: str = "/mcp?key=hidden", **more: Any) -> HttpClient:
    return HttpClient(f"http://127.0.0.1:{server.port}{target}", **{"limits": LIMITS, **more})


def secure_client_of(server: Server) -> HttpClient:
    return HttpClient(
        f"https://localhost:{server.port}/", limits=LIMITS, ca_bundle=CERTIFICATES / "authority.pem"
    )


def post(client: HttpClient, within: Scope | None = None, body: bytes = b"{}") -> HttpReply:
    return client.send("POST", [("X-Key", "hidden")], body, within or scope())


def body_of(client: HttpClient, method: str = "GET") -> bytes:
    with client.send(method, [], None, scope()) as reply:
        return reply.read_all(scope(), MIB)


def sockets_since(before: frozenset[str]) -> list[str]:
    return [one for one in opened_since(before) if "socket:" in one]


# --- what is sent --------------------------------------------------------------------------------


def test_a_request_holds_what_was_given_and_what_is_ours() -> None:
    with serving([REQUEST, answer(b"")]) as server, client_of(server, "/a%20b?c=d") as client:
        client.send("POST", [("Content-Type", "text/x"), ("X-A", "caf\xe9")], b"body", scope()).close()
    assert server.requests == [
        b"POST /a%%20b?c=d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: identity\r\n"
        b"Content-Length: 4\r\nContent-Type: text/x\r\nX-A: caf\xe9\r\n\r\nbody" % server.port
    ]


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("GET", None, b""),
        ("DELETE", None, b""),
        ("POST", None, b"0"),
        ("POST", b"", b"0"),
        ("GET", b"x", b"1"),
    ],
)
def test_a_length_is_sent_where_the_method_or_the_body_wants_one(
    method: str, body: bytes | None, length: bytes
) -> None:
    with serving([REQUEST, answer(b"")]) as server, client_of(server) as client:
        client.send(method, [], body, scope()).close()
    assert server.requests[0].partition(b"Content-Length: ")[2].partition(b"\r\n")[0] == length


@pytest.mark.parametrize(
    ("method", "name", "value", "reason"),
    [
        ("GE T", "X-A", "1", "the method of a request must be a token"),
        ("", "X-A", "1", "the method of a request must be a token"),
        ("GET\r\nX: y", "X-A", "1", "the method of a request must be a token"),
        ("GET", "X A", "1", "a header name may not hold its character 2"),
        ("GET", "X-A", "hidden\r\nX: y", "the value of the header X-A may not hold its character 7"),
        ("GET", "X-A", "hidden\0", "the value of the header X-A may not hold its character 7"),
        ("GET", "X-A", "hidden\u20ac", "the value of the header X-A may not hold its character 7"),
        ("GET", "Host", "hidden", "the header Host is the client's own"),
        ("GET", "content-length", "1", "the header content-length is the client's own"),
        ("GET", "Transfer-Encoding", "chunked", "the header Transfer-Encoding is the client's own"),
        ("GET", "Connection", "close", "the header Connection is the client's own"),
        ("GET", "Accept-Encoding", "gzip", "the header Accept-Encoding is the client's own"),
        ("GET", "Expect", "100-continue", "the header Expect is the client's own"),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_before_anything_is(
    method: str, name: str, value: str, reason: str
) -> None:
    with serving([HOLD]) as server, client_of(server) as client:
        with pytest.raises(UsageError) as caught:
            client.send(method, [(name, value)], None, scope())
        assert caught.value.reason == reason
        assert server.connections == 0


@pytest.mark.parametrize(
    "url", ["ftp://hidden/", "http://hidden/", "https://u:hidden@h/", "https://h/#hidden", "hidden"]
)
def test_t20_a_url_that_is_not_accepted_is_a_usage_error_without_it(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        HttpClient(url, limits=LIMITS)
    assert "hidden" not in str(caught.value)


def test_t21_nothing_ambient_takes_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login u password p")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    cookie = answer(b"", "Set-Cookie: a=b", "Location: /elsewhere", status="307 Temporary Redirect")
    with serving([REQUEST, cookie, REQUEST, answer(b"")]) as server, client_of(server) as client:
        with post(client) as reply:
            assert (reply.status, reply.headers.get("location")) == (307, "/elsewhere")
        post(client).close()
    assert server.requests[0] == server.requests[1]
    assert b"uthorization" not in server.requests[0]


# --- what is read --------------------------------------------------------------------------------


def test_an_answer_has_status_reason_and_headers() -> None:
    script = [REQUEST, answer(b"no", "X-A: 1", "x-a: 2", status="404 Not Found")]
    with serving(script) as server, client_of(server) as client, post(client) as reply:
        assert (reply.status, reply.reason) == (404, "Not Found")
        assert (reply.headers.get("X-a"), reply.headers.all("X-A"), reply.headers.get("Y")) == (
            "1",
            ("1", "2"),
            None,
        )
        assert reply.read_all(scope(), 2) == b"no"
        assert reply.url == f"http://127.0.0.1:{server.port}/mcp"


@pytest.mark.parametrize(
    ("script", "body"),
    [
        ([answer(b"hello")], b"hello"),
        ([OK + b"\r\nhel", pause(5 * MS), b"lo"], b"hello"),
        ([CHUNKED, b"5\r\nhel", pause(5 * MS), b"lo\r\n0\r\n\r\n"], b"hello"),
        ([b"HTTP/1.1 103 Early Hints\r\n\r\n", answer(b"hello")], b"hello"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([bytes([byte]) for byte in answer(b"hello")], b"hello"),
        ([answer(b"x" * MIB)], b"x" * MIB),
    ],
    ids=["counted", "until close", "chunked", "interim", "none", "dripping", "large"],
)
def test_a_body_is_read_whole(script: list[Any], body: bytes) -> None:
    with serving([REQUEST, *script]) as server, client_of(server) as client:
        assert body_of(client) == body


def test_head_has_no_body_whatever_its_fields_say() -> None:
    script = [REQUEST, OK + b"Content-Length: 5\r\n\r\n", REQUEST, answer(b"x")]
    with serving(script) as server, client_of(server) as client:
        assert body_of(client, "HEAD") == b""
        assert body_of(client) == b"x"
        assert server.connections == 1


def test_pieces_come_as_soon_as_they_are_there() -> None:
    held = threading.Event()

    def until_read(_: Any) -> None:
        assert held.wait(PATIENT_SECONDS)

    script = [REQUEST, CHUNKED, until_read, b"3\r\none\r\n", HOLD]
    with serving(script) as server, client_of(server) as client:
        with post(client) as reply:
            held.set()
            assert reply.read(scope()) == b"one"


def test_a_read_body_reads_as_empty_ever_after() -> None:
    with serving([REQUEST, answer(b"x")]) as server, client_of(server) as client:
        reply = post(client)
        assert [reply.read(scope()) for _ in range(3)] == [b"x", b"", b""]
        reply.close()
        assert reply.read(scope()) == b""


def test_a_closed_answer_cannot_be_read() -> None:
    with serving([REQUEST, answer(b"x"), HOLD]) as server, client_of(server) as client:
        reply = post(client)
        reply.close()
        reply.close()
        with pytest.raises(UsageError):
            reply.read(scope())


# --- connections ---------------------------------------------------------------------------------


def test_a_connection_is_used_again_after_its_body_was_read() -> None:
    script = [REQUEST, answer(b"1"), REQUEST, CHUNKED + b"1\r\n2\r\n0\r\n\r\n", REQUEST, answer(b"3")]
    with serving(script) as server, client_of(server) as client:
        assert [body_of(client) for _ in range(3)] == [b"1", b"2", b"3"]
        assert server.connections == 1


def test_the_last_piece_is_enough_of_an_end_to_keep_a_connection() -> None:
    with serving([REQUEST, answer(b"1"), REQUEST, answer(b"2")]) as server, client_of(server) as client:
        with post(client) as reply:
            assert reply.read(scope()) == b"1"
        assert body_of(client) == b"2"
        assert server.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        [answer(b"1", "Connection: close"), HOLD],
        [answer(b"1") + b"surplus", HOLD],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1", HOLD],
        [OK + b"\r\n1"],
        [answer(b"1")],
        [answer(b"1"), RESET],
    ],
    ids=["close", "surplus", "1.0", "until close", "closed later", "reset later"],
)
def test_a_connection_that_is_not_good_for_more_is_replaced(first: list[Any]) -> None:
    with serving([REQUEST, *first], [REQUEST, answer(b"2")]) as server, client_of(server) as client:
        assert body_of(client) == b"1"
        if HOLD not in first:
            assert eventually(lambda: server.ended == 1)
        assert body_of(client) == b"2"
        assert server.connections == 2


def test_a_connection_with_an_unread_body_is_closed() -> None:
    with serving([REQUEST, answer(b"12")[:-1], HOLD], [REQUEST, answer(b"3")]) as server:
        with client_of(server) as client:
            with post(client) as reply:
                assert reply.read(scope()) == b"1"
            assert eventually(lambda: server.ended == 1)
            assert body_of(client) == b"3"


def test_an_idle_connection_is_not_kept_for_ever() -> None:
    script = [REQUEST, answer(b"1"), HOLD]
    limits = replace(LIMITS, idle_seconds=10 * MS)
    with serving(script) as server, client_of(server, limits=limits) as client:
        assert body_of(client) == b"1"
        time.sleep(20 * MS)
        assert body_of(client) == b"1"
        assert eventually(lambda: server.ended == 1)


def test_no_more_idle_connections_are_kept_than_allowed() -> None:
    script = [REQUEST, answer(b"1"), HOLD]
    limits = replace(LIMITS, max_idle_connections=1)
    with serving(script) as server, client_of(server, limits=limits) as client:
        replies = [post(client) for _ in range(3)]
        for reply in replies:
            assert reply.read_all(scope(), 1) == b"1"
        assert eventually(lambda: server.ended == 2)


def test_many_threads_share_a_client() -> None:
    failures: list[BaseException] = []
    script = [step for _ in range(200) for step in (REQUEST, answer(b"x" * 1000))]

    def work(client: HttpClient) -> None:
        try:
            for _ in range(20):
                assert len(body_of(client)) == 1000
        except BaseException as error:
            failures.append(error)

    with serving(script) as server, client_of(server) as client:
        threads = [threading.Thread(target=work, args=(client,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENT_SECONDS)
        assert failures == []
        assert len(server.requests) == 160
        assert server.connections <= 8


def test_closing_a_client_closes_what_is_idle_now_and_what_is_in_use_later() -> None:
    before = descriptors()
    with serving([REQUEST, answer(b"1"), HOLD]) as server:
        client = client_of(server)
        used, idle = post(client), post(client)
        idle.read_all(scope(), 1)
        client.close()
        client.close()
        assert eventually(lambda: server.ended == 1)
        assert used.read_all(scope(), 1) == b"1"
        assert eventually(lambda: server.ended == 2)
        with pytest.raises(UsageError):
            post(client)
    assert not sockets_since(before)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([], "closed the connection without an answer"),
        ([OK], "closed the connection within the head of its answer"),
        ([OK + b"Content-Length: 5\r\n\r\nhel"], "closed the connection after 3 of 5 bytes of its answer"),
        ([CHUNKED + b"5\r\nhello\r\n"], "closed the connection within a chunked answer"),
    ],
    ids=["no head", "head", "counted", "chunked"],
)
@pytest.mark.parametrize("context", [None, "good"])
def test_what_was_cut_is_told_and_is_never_an_end(
    script: list[Any], reason: str, context: str | None
) -> None:
    before = descriptors()
    with serving([REQUEST, *script], context=certificate(context) if context else None) as server:
        with secure_client_of(server) if context else client_of(server) as client:
            with pytest.raises(PeerGone) as caught:
                body_of(client)
            assert str(caught.value) == f"the service: call: {reason}"
            assert not sockets_since(before) or eventually(lambda: server.ended == 1)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([RESET], "closed the connection without an answer: connection reset by peer"),
        (
            [OK + b"\r\nhello", pause(50 * MS), RESET],
            "closed the connection before the end of its answer: connection reset by peer",
        ),
    ],
    ids=["no head", "until close"],
)
def test_a_reset_is_told_and_is_never_an_end(script: list[Any], reason: str) -> None:
    with serving([REQUEST, *script]) as server, client_of(server) as client:
        with pytest.raises(PeerGone) as caught:
            body_of(client)
        assert caught.value.reason == reason


def test_a_body_until_close_must_be_ended_by_tls() -> None:
    with serving([REQUEST, OK + b"\r\nhello"], context=certificate("good")) as server:
        with secure_client_of(server) as client:
            assert body_of(client) == b"hello"
    with serving([REQUEST, OK + b"\r\nhello", ABORT], context=certificate("good")) as server:
        with secure_client_of(server) as client:
            with pytest.raises(PeerGone, match="before the end of its answer: tls was broken off"):
                body_of(client)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([b"SSH-2.0-x\r\n\r\n"], "the answer is not HTTP/1.1"),
        ([OK + b"hidden\r\n\r\n"], "the answer's head holds a line that is no field"),
        (
            [answer(b"\x1f\x8b", "Content-Encoding: gzip")],
            "the answer is encoded as gzip, which was not asked for",
        ),
        ([CHUNKED + b"hidden\r\n"], "a chunk of the answer does not begin with its size"),
        (
            [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"],
            "the answer switches to a protocol that was not asked for",
        ),
    ],
)
def test_t21_what_breaks_the_protocol_is_told_without_a_quote(script: list[Any], reason: str) -> None:
    with serving([REQUEST, *script, HOLD]) as server, client_of(server) as client:
        with pytest.raises(PeerProtocolError) as caught:
            body_of(client)
        assert str(caught.value) == f"the service: call: {reason}"
        assert eventually(lambda: server.ended == 1)


@pytest.mark.parametrize(
    ("script", "limit"),
    [
        ([OK + b"X: " + b"x" * 70_000], "max_head_bytes"),
        ([OK + b"X: y\r\n" * 200 + b"\r\n"], "max_headers"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"] * 9, "max_interim_replies"),
        ([CHUNKED + b"1;" + b"x" * 5000], "max_chunk_line_bytes"),
        ([answer(b"x" * (MIB + 1))], "max_body_bytes"),
        ([OK + b"\r\n" + b"x" * (MIB + 1)], "max_body_bytes"),
        ([CHUNKED + b"100001\r\n" + b"x" * (MIB + 1)], "max_body_bytes"),
    ],
)
def test_what_is_over_a_limit_ends_the_exchange(script: list[Any], limit: str) -> None:
    with serving([REQUEST, *script, HOLD]) as server, client_of(server) as client:
        with pytest.raises(PeerLimit) as caught:
            body_of(client)
        assert (caught.value.limit, caught.value.peer, caught.value.stage) == (limit, "the service", "call")
        assert eventually(lambda: server.ended == 1)


def test_a_body_of_exactly_the_bound_is_read() -> None:
    with serving([REQUEST, answer(b"12345")]) as server, client_of(server) as client:
        with post(client) as reply:
            assert reply.read_all(scope(), 5) == b"12345"


def test_a_kept_connection_that_dies_on_use_is_a_lost_exchange_and_not_tried_again() -> None:
    with serving([REQUEST, answer(b"1"), REQUEST], [REQUEST, answer(b"2")]) as server:
        with client_of(server) as client:
            assert body_of(client) == b"1"
            with pytest.raises(PeerGone, match="closed the connection without an answer"):
                body_of(client)
            assert (len(server.requests), server.connections) == (2, 1)
            assert body_of(client) == b"2"


def test_a_service_that_is_not_there_is_told() -> None:
    with serving([HOLD]) as server:
        client = client_of(server)
    with pytest.raises(PeerGone) as caught:
        post(client)
    assert caught.value.reason == f"cannot connect to 127.0.0.1:{server.port}: connection refused"


def test_authorities_that_cannot_be_used_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LATCH_CA_BUNDLE"):
        HttpClient("https://h/", limits=LIMITS, environment={"LATCH_CA_BUNDLE": str(tmp_path / "absent")})


def test_nothing_secret_is_shown() -> None:
    with serving([REQUEST, answer(b"", "X-Key: hidden")]) as server, client_of(server) as client:
        with post(client) as reply:
            shown = [repr(client), repr(reply), repr(reply.headers), repr(client.url), reply.url]
    assert shown[:2] == [f"HttpClient(http://127.0.0.1:{server.port}/mcp)", "HttpReply(200)"]
    assert "hidden" not in " ".join(shown)


# --- uploads -------------------------------------------------------------------------------------

LARGE = b"x" * (30 * MIB)


def test_a_large_body_arrives_whole() -> None:
    with serving([REQUEST, answer(b"ok")]) as server, client_of(server) as client:
        with post(client, body=LARGE) as reply:
            assert reply.read_all(scope(), 2) == b"ok"
        assert server.requests[0].endswith(b"\r\n\r\n" + LARGE)


def test_a_refusal_while_the_body_is_sent_is_the_answer() -> None:
    refusal = answer(b"too large", status="413 Content Too Large")
    with serving([HEAD, refusal, HOLD], [REQUEST, answer(b"2")]) as server, client_of(server) as client:
        with post(client, body=LARGE) as reply:
            assert (reply.status, reply.read_all(scope(), 99)) == (413, b"too large")
        assert body_of(client) == b"2"


def test_an_early_answer_that_is_no_refusal_does_not_stop_the_body() -> None:
    with (
        serving([HEAD, answer(b"ok"), pause(20 * MS), _read_rest, HOLD]) as server,
        client_of(server) as client,
    ):
        with post(client, body=LARGE) as reply:
            assert (reply.status, reply.read_all(scope(), 2)) == (200, b"ok")
        assert eventually(lambda: server.requests[1:] == [LARGE])


def _read_rest(connection: Any) -> None:
    while len(connection.rest) < len(LARGE):
        connection.more()
    connection.server.requests.append(connection.rest)


def test_an_early_answer_is_read_although_the_connection_was_reset_after_it() -> None:
    script = [HEAD, answer(b"ok"), pause(50 * MS), RESET]
    with serving(script, [REQUEST, answer(b"2")]) as server, client_of(server) as client:
        with post(client, body=LARGE) as reply:
            assert (reply.status, reply.read_all(scope(), 2)) == (200, b"ok")
        assert body_of(client) == b"2"


def test_a_close_while_the_body_is_sent_is_a_lost_exchange() -> None:
    with serving([HEAD]) as server, client_of(server) as client:
        with pytest.raises(PeerGone, match="closed the connection without an answer"):
            post(client, body=LARGE)


def test_an_answer_before_a_close_is_read_although_the_body_was_not_taken() -> None:
    def half_close(connection: Any) -> None:
        connection.socket.shutdown(1)

    with serving([HEAD, answer(b"no", status="400 Bad Request"), half_close, HOLD]) as server:
        with client_of(server) as client, post(client, body=LARGE) as reply:
            assert (reply.status, reply.read_all(scope(), 2)) == (400, b"no")


# --- time ----------------------------------------------------------------------------------------


def drip(data: bytes, seconds: float) -> list[Any]:
    return [step for byte in data for step in (bytes([byte]), pause(seconds))]


def read_whole(client: HttpClient, within: Scope) -> None:
    with post(client, within) as reply:
        while reply.read(within):
            pass


def upload(client: HttpClient, within: Scope) -> None:
    post(client, within, LARGE)


PHASES: dict[str, tuple[Sequence[Any], Callable[[HttpClient, Scope], None], str | None]] = {
    "sending": ([HEAD, HOLD], upload, None),
    "sending over TLS": ([HEAD, HOLD], upload, "good"),
    "silence": ([REQUEST, HOLD], read_whole, None),
    "silence over TLS": ([REQUEST, HOLD], read_whole, "good"),
    "handshake": ([HOLD], read_whole, "silent"),
    "dripping head": ([REQUEST, *drip(OK + b"X: " + b"y" * 2000, 2 * MS)], read_whole, None),
    "interim answers": ([REQUEST, *[b"HTTP/1.1 100 C\r\n\r\n", pause(50 * MS)] * 8, HOLD], read_whole, None),
    "dripping body": ([REQUEST, OK + b"\r\n", *drip(b"x" * 2000, 2 * MS)], read_whole, None),
    "stalled body": ([REQUEST, OK + b"Content-Length: 5\r\n\r\nx", HOLD], read_whole, None),
    "stalled chunk": ([REQUEST, CHUNKED + b"5\r\nx", HOLD], read_whole, None),
    "stalled chunk over TLS": ([REQUEST, CHUNKED + b"5\r\nx", HOLD], read_whole, "good"),
    "body until close": ([REQUEST, OK + b"\r\nx", HOLD], read_whole, None),
    "flood": ([REQUEST, CHUNKED + b"ffffffffff\r\n", *[b"x" * 65536] * 100_000], read_whole, None),
}


def run_phase(name: str, begin: Callable[[], Scope]) -> None:
    """Run the phase under the scope that *begin* makes, and insist that its end leaves nothing behind."""
    script, work, tls = PHASES[name]
    before = descriptors()
    try:
        with serving(script, context=certificate("good") if tls == "good" else None) as server:
            with secure_client_of(server) if tls else client_of(server) as client:
                try:
                    work(client, begin())
                finally:
                    # Behind what it has not read no server sees that its client left.
                    assert work is upload or eventually(lambda: server.ended == 1)
    finally:
        assert not sockets_since(before)


@pytest.mark.parametrize("name", PHASES)
def test_every_phase_ends_at_its_deadline(name: str) -> None:
    began = []

    def begin() -> Scope:
        began.append(time.monotonic())
        return scope(150 * MS)

    with pytest.raises(DeadlineMissed) as caught:
        run_phase(name, begin)
    assert (caught.value.peer, caught.value.stage, caught.value.seconds) == ("the service", "call", 150 * MS)
    assert time.monotonic() - began[0] < 1500 * MS


@pytest.mark.parametrize("name", PHASES)
def test_every_phase_ends_when_it_is_cancelled(name: str) -> None:
    timers = []

    def begin() -> Scope:
        within = scope()
        timers.append(threading.Timer(100 * MS, within.cancel, ["enough"]))
        timers[0].start()
        return within

    with pytest.raises(Cancelled) as caught:
        run_phase(name, begin)
    timers[0].join()
    assert caught.value.reason == "enough"


def test_nothing_is_sent_after_the_deadline() -> None:
    with serving([REQUEST, answer(b"1"), HOLD]) as server, client_of(server) as client:
        body_of(client)
        with pytest.raises(DeadlineMissed):
            post(client, scope(0))
        assert len(server.requests) == 1


def test_the_time_of_a_cancel_is_the_time_of_its_end() -> None:
    within = scope()
    cancelled = []

    def cancel() -> None:
        cancelled.append(time.monotonic())
        within.cancel("enough")

    timer = threading.Timer(50 * MS, cancel)
    with serving([REQUEST, HOLD]) as server, client_of(server) as client:
        timer.start()
        with pytest.raises(Cancelled):
            post(client, within)
        assert time.monotonic() - cancelled[0] < 50 * MS
    timer.join()


def test_an_error_of_an_answer_never_hides_the_deadline() -> None:
    with serving([REQUEST, OK + b"\r\nx", HOLD]) as server, client_of(server) as client:
        within = scope(80 * MS)
        with post(client, within) as reply:
            assert reply.read(within) == b"x"
            with pytest.raises(LatchError) as caught:
                reply.read(within)
            assert isinstance(caught.value, DeadlineMissed)
            with pytest.raises(UsageError):
                reply.read(scope())
