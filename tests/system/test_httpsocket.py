"""Connections: names, addresses and TLS, each step bounded by its scope, and nothing left of a failure."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
import time
import warnings
from dataclasses import replace
from typing import Any, Iterator

import pytest

from latch.errors import Cancelled, DeadlineMissed, PeerGone
from latch.limits import HttpLimits
from latch.system import httpsocket
from latch.system.httpsocket import SYSTEM_RESOLVER, Channel, Resolver, open_channel
from latch.system.scope import Scope
from latch.system.tls import tls_context
from latch.wire.httpurl import parse_url
from tests.support.census import descriptors, eventually, opened_since
from tests.support.pace import MS
from tests.support.servers import ABORT, CERTIFICATES, HOLD, RESET, Connection, certificate, serving

LIMITS = HttpLimits()
PATIENT_SECONDS = 10000 * MS
TCP = socket.SOCK_STREAM
V4 = socket.AF_INET


def scope(seconds: float = PATIENT_SECONDS) -> Scope:
    return Scope.root(seconds).within(None, peer="the service", stage="call")


def trusting() -> ssl.SSLContext:
    return tls_context(ca_bundle=CERTIFICATES / "authority.pem", environment={})


def opened(
    text: str,
    within: Scope | None = None,
    *,
    context: ssl.SSLContext | None = None,
    resolver: Resolver = SYSTEM_RESOLVER,
    limits: HttpLimits = LIMITS,
) -> Channel:
    return open_channel(
        parse_url(text), context=context, resolver=resolver, limits=limits, scope=within or scope()
    )


def received(channel: Channel) -> bytes:
    # TLS has things to say that are no data.
    while (data := channel.receive(100)) is None:
        channel.wait_received(scope())
    return data


def sockets_since(before: frozenset[str]) -> list[str]:
    return [one for one in opened_since(before) if "socket:" in one]


def addresses(*ports: int) -> list[Any]:
    return [(V4, TCP, 6, "", ("127.0.0.1", port)) for port in ports]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose queue is full: whoever connects to it waits."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = []
        for _ in range(8):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        time.sleep(50 * MS)
        yield port
        for one in waiting:
            one.close()


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "listens"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")])
def test_a_literal_address_is_connected_to(host: str, listens: str) -> None:
    with serving([b"hello", HOLD], host=listens) as server:
        channel = opened(f"http://{host}:{server.port}/")
        assert received(channel) == b"hello"
        channel.close()
        assert eventually(lambda: server.ended == 1)


@pytest.mark.parametrize("listens", ["127.0.0.1", "::1"])
def test_t22_localhost_is_whichever_listens_and_never_looked_up(listens: str) -> None:
    def never(*_: Any) -> list[Any]:
        raise AssertionError("looked up")

    with serving([b"hello", HOLD], host=listens) as server:
        channel = opened(f"http://localhost:{server.port}/", resolver=never)
        assert received(channel) == b"hello"
        channel.close()


def test_a_name_is_looked_up_as_bytes_for_its_port() -> None:
    asked = []

    with serving([b"hello", HOLD]) as server:

        def resolve(*arguments: Any) -> list[Any]:
            asked.append(arguments)
            return addresses(server.port)

        channel = opened("https://service.example:444/", resolver=resolve)
        assert received(channel) == b"hello"
        channel.close()
    assert asked == [(b"service.example", 444, 0, TCP)]


def test_the_systems_look_up_is_used_where_no_other_is_given() -> None:
    with pytest.raises(PeerGone, match="the name service.invalid cannot be looked up"):
        opened("https://service.invalid/")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ": Name or service not known"),
        (OSError(), ""),
        ([], ""),
    ],
)
def test_a_name_that_is_not_known_is_told(result: Any, told: str) -> None:
    def resolve(*_: Any) -> list[Any]:
        if isinstance(result, OSError):
            raise result
        return result

    with pytest.raises(PeerGone) as caught:
        opened("https://service.example/", resolver=resolve)
    assert caught.value.reason == f"the name service.example cannot be looked up{told}"
    assert (caught.value.peer, caught.value.stage) == ("the service", "call")


def test_a_look_up_that_does_not_end_is_left_behind_at_the_deadline() -> None:
    finish = threading.Event()

    def resolve(*_: Any) -> list[Any]:
        finish.wait(PATIENT_SECONDS)
        return []

    before = descriptors()
    began = time.monotonic()
    with pytest.raises(DeadlineMissed):
        opened("https://service.example/", scope(60 * MS), resolver=resolve)
    assert time.monotonic() - began < 500 * MS
    finish.set()
    assert eventually(lambda: not opened_since(before))


def test_a_look_up_ends_when_it_is_cancelled() -> None:
    finish = threading.Event()
    asking = scope()

    def resolve(*_: Any) -> list[Any]:
        asking.cancel("enough")
        finish.wait(PATIENT_SECONDS)
        return []

    with pytest.raises(Cancelled):
        opened("https://service.example/", asking, resolver=resolve)
    finish.set()


def test_a_look_up_without_a_thread_is_our_own_want(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    before = descriptors()
    monkeypatch.setattr(httpsocket.threading, "Thread", NoThread)
    with pytest.raises(OSError) as caught:
        opened("https://service.example/", resolver=lambda *_: [])
    assert caught.value.errno == errno.EAGAIN
    assert not opened_since(before)


# --- connecting ----------------------------------------------------------------------------------


def test_a_refused_connection_is_told_once_for_all_addresses(closed_port: int) -> None:
    with pytest.raises(PeerGone) as caught:
        opened(f"http://localhost:{closed_port}/?key=hidden")
    assert str(caught.value) == (
        f"the service: call: cannot connect to localhost:{closed_port}: connection refused"
    )


def test_the_next_address_is_tried_after_a_refusal(closed_port: int) -> None:
    with serving([b"hello", HOLD]) as server:
        channel = opened("https://service.example/", resolver=lambda *_: addresses(closed_port, server.port))
        assert received(channel) == b"hello"
        channel.close()


def test_a_family_that_this_machine_lacks_is_passed_over() -> None:
    with serving([b"hello", HOLD]) as server:
        odd = (socket.AF_APPLETALK, TCP, 0, "", ("x", 1))
        channel = opened("https://service.example/", resolver=lambda *_: [odd, *addresses(server.port)])
        assert received(channel) == b"hello"
        channel.close()


def test_a_silent_address_is_given_up_while_others_are_left(full_port: int) -> None:
    limits = replace(LIMITS, connect_seconds=50 * MS)
    with serving([b"hello", HOLD]) as server:
        channel = opened(
            "https://service.example/",
            resolver=lambda *_: addresses(full_port, server.port),
            limits=limits,
        )
        assert received(channel) == b"hello"
        channel.close()


def test_silent_addresses_are_told_beside_refused_ones(full_port: int, closed_port: int) -> None:
    limits = replace(LIMITS, connect_seconds=50 * MS)
    with pytest.raises(PeerGone, match="example: connection timed out, connection refused$"):
        opened(
            "https://service.example/", resolver=lambda *_: addresses(full_port, closed_port), limits=limits
        )


def test_the_last_silent_address_has_all_the_time_that_is_left(full_port: int) -> None:
    limits = replace(LIMITS, connect_seconds=10 * MS)
    before = descriptors()
    with pytest.raises(DeadlineMissed) as caught:
        opened(f"http://127.0.0.1:{full_port}/", scope(150 * MS), limits=limits)
    assert (caught.value.peer, caught.value.stage) == ("the service", "call")
    assert not sockets_since(before)


def test_a_want_of_descriptors_is_not_the_services_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(httpsocket.socket, "socket", no_socket)
    with pytest.raises(OSError) as caught:
        opened("http://127.0.0.1:9/")
    assert (type(caught.value), caught.value.errno) == (OSError, errno.EMFILE)


# --- TLS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_that_is_good_for_the_host_is_accepted(host: str) -> None:
    with serving([b"hello"], context=certificate("good")) as server:
        channel = opened(f"https://{host}:{server.port}/", context=trusting())
        assert received(channel) == b"hello"
        assert received(channel) == b""
        channel.close()


@pytest.mark.parametrize(
    ("name", "host", "told", "has_hint"),
    [
        ("other", "localhost", "its certificate is for another host name", False),
        ("other", "127.0.0.1", "its certificate is for another address", False),
        ("expired", "localhost", "its certificate has expired", False),
        ("early", "localhost", "its certificate is not valid yet", True),
        ("stranger", "localhost", "its certificate is signed by itself", True),
    ],
)
def test_any_other_certificate_is_refused_with_its_reason(
    name: str, host: str, told: str, has_hint: bool
) -> None:
    before = descriptors()
    with serving([HOLD], context=certificate(name)) as server:
        with pytest.raises(PeerGone) as caught:
            opened(f"https://{host}:{server.port}/?key=hidden", context=trusting())
        assert str(caught.value) == f"the service: call: cannot connect to {host}:{server.port}: {told}"
        assert (caught.value.hint is not None) is has_hint
    assert not sockets_since(before)


def test_an_unknown_authority_is_refused_and_the_hint_names_the_setting(tmp_path: Any) -> None:
    (tmp_path / "stranger.pem").write_bytes((CERTIFICATES / "stranger.pem").read_bytes())
    context = tls_context(ca_bundle=tmp_path / "stranger.pem", environment={})
    with serving([HOLD], context=certificate("good")) as server:
        with pytest.raises(PeerGone, match="not signed by an authority known here") as caught:
            opened(f"https://localhost:{server.port}/", context=context)
    assert caught.value.hint == "name the authority's certificate in ca_bundle or LATCH_CA_BUNDLE"


def test_a_server_that_offers_no_tls_1_2_is_refused() -> None:
    old = certificate("good")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with serving([HOLD], context=old) as server:
        with pytest.raises(PeerGone, match="no TLS connection: "):
            opened(f"https://localhost:{server.port}/", context=trusting())


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "it does not speak TLS on that port"),
        ([], "no TLS connection: "),
        ([Connection.more, RESET], "no TLS connection: connection reset by peer"),
    ],
)
def test_what_is_no_tls_is_told(steps: list[Any], told: str) -> None:
    with serving(steps) as server:
        with pytest.raises(PeerGone, match=told):
            opened(f"https://localhost:{server.port}/", context=trusting())


def test_a_handshake_that_stalls_ends_at_the_deadline() -> None:
    before = descriptors()
    with serving([HOLD]) as server:
        with pytest.raises(DeadlineMissed):
            opened(f"https://localhost:{server.port}/", scope(60 * MS), context=trusting())
        assert eventually(lambda: server.ended == 1)
    assert not opened_since(before)


class FullAtFirst(ssl.SSLSocket):
    """A TLS connection whose first step of the handshake does not fit into the socket."""

    was_full = False

    def do_handshake(self, block: bool = False) -> None:
        if not self.was_full:
            self.was_full = True
            raise ssl.SSLWantWriteError()
        super().do_handshake(block)


def test_a_handshake_waits_until_it_can_send() -> None:
    context = trusting()
    context.sslsocket_class = FullAtFirst
    with serving([b"hello"], context=certificate("good")) as server:
        channel = opened(f"https://localhost:{server.port}/", context=context)
        assert received(channel) == b"hello"
        channel.close()


def test_a_stream_that_tls_did_not_end_is_lost() -> None:
    with serving([b"hello", ABORT], context=certificate("good")) as server:
        channel = opened(f"https://localhost:{server.port}/", context=trusting())
        assert received(channel) == b"hello"
        with pytest.raises(ConnectionAbortedError, match="TLS was broken off"):
            received(channel)
        channel.close()


# --- what a channel does -------------------------------------------------------------------------


class Reluctant:
    """A socket that wants to write before it can read and the reverse, as TLS may."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner
        self.wanting: list[type[Exception]] = [ssl.SSLWantWriteError, ssl.SSLWantReadError]

    def fileno(self) -> int:
        return self.inner.fileno()

    def recv(self, most: int) -> bytes:
        if self.wanting:
            raise self.wanting.pop(0)()
        return self.inner.recv(most)

    def send(self, data: memoryview) -> int:
        if self.wanting:
            raise self.wanting.pop(0)()
        return self.inner.send(data)


def test_a_channel_waits_for_what_tls_wants() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = Channel(Reluctant(ours))  # type: ignore[arg-type]
        assert channel.receive(1) is None
        # There is nothing to read: only because it may be written does this end.
        channel.wait_received(scope())
        assert channel.send(memoryview(b"x")) == 0
        theirs.send(b"y")
        assert channel.receive(1) == b"y"
        assert channel.send(memoryview(b"x")) == 1
        assert channel.receive(1) is None
        with pytest.raises(DeadlineMissed):
            channel.wait_received(scope(30 * MS))


def test_a_channel_is_idle_while_it_is_open_and_silent() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        channel = Channel(ours)
        assert channel.is_idle()
        theirs.send(b"x")
        assert not channel.is_idle()
        assert channel.is_idle()
        theirs.close()
        assert not channel.is_idle()
        channel.close()
        channel.close()
        assert not channel.is_idle()


def test_a_full_channel_takes_nothing_and_tells_when_the_peer_speaks() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = Channel(ours)
        assert channel.wait_sent(scope()) is False
        while channel.send(memoryview(bytes(65536))):
            pass
        with pytest.raises(DeadlineMissed):
            channel.wait_writable(scope(20 * MS))
        theirs.send(b"x")
        assert channel.wait_sent(scope()) is True
        theirs.recv(1 << 22)
        channel.wait_writable(scope())
        assert channel.send(memoryview(b"x")) == 1
