"""Rows of ``make bench`` for HTTP: exchanges beside those of http.client, event streams beside other readers.

The exchanges are measured by the CPU time of this process, because how long two processes wait for each
other is the scheduler's affair; the server runs in its own. A peer that is not installed has a row that
says so.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

from latch.limits import EventStreamLimits, HttpLimits
from latch.system.http import HttpClient
from latch.system.scope import Scope
from latch.wire.sse import EventStreamReader

__all__ = ["measure"]

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers-{}.{}".format(*sys.version_info[:2])
EXCHANGES_TIMED_TOGETHER = 50
PIECE_BYTES = 64 * 1024

# It reads a request up to its blank line and answers as a small JSON service does.
SERVER = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + b"x" * 100 + b'"}]}}'
fields = b"Date: Tue, 01 Dec 2026 02:00:00 GMT\\r\\nServer: bench\\r\\nContent-Type: application/json\\r\\n"
reply = b"HTTP/1.1 200 OK\\r\\n%bContent-Length: %d\\r\\n\\r\\n%b" % (fields, len(body), body)
def serve(one):
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := one.recv(65536):
        while b"\\r\\n\\r\\n" not in data:
            data += one.recv(65536)
        one.sendall(reply)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
HEADERS = [
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
    ("MCP-Protocol-Version", "2026-07-28"),
    ("Mcp-Method", "tools/call"),
    ("Mcp-Name", "echo"),
]
ARGUMENTS = {"text": "x" * 120, "count": 7}
REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": ARGUMENTS},
}

LARGE_EVENT = b"data: " + b"x" * 1_000_000 + b"\n\n"
LINES_EVENT = b"event: message\r\n" + b"data: %b\r\n" % (b"y" * 60) * 15_000 + b"\r\n"
SMALL_EVENT = b'event: message\r\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\r\n\r\n'
STREAMS = {
    "20 events of 1 MB": LARGE_EVENT * 20,
    "2 events of 15,000 lines": LINES_EVENT * 2,
    "50,000 small events": SMALL_EVENT * 50_000,
}

Work = Callable[[], None]
# (name, the most that was promised, floor, ours); with the clock by which both are timed.
Row = Callable[..., None]


def measure(row: Row, rounds: int) -> None:
    """Measure every row of this file by *row*, in *rounds* rounds."""
    sys.path.append(str(PEERS))
    with _server() as port:
        _exchanges(row, rounds, port)
    for name, stream in STREAMS.items():
        for peer, read in (("httpx-sse", _read_with_httpx_sse), ("sseclient-py", _read_with_sseclient)):
            _stream(row, min(rounds, 10), f"{name} / {peer}", stream, read)


@contextmanager
def _server() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _exchanges(row: Row, rounds: int, port: int) -> None:
    url = f"http://127.0.0.1:{port}/mcp"
    body = json.dumps(REQUEST).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    root = Scope.root()

    def floor() -> None:
        for _ in range(EXCHANGES_TIMED_TOGETHER):
            connection.request("POST", "/mcp", body, dict(HEADERS))
            assert connection.getresponse().read().endswith(b"}")

    with HttpClient(url, limits=HttpLimits()) as client:

        def ours() -> None:
            for _ in range(EXCHANGES_TIMED_TOGETHER):
                scope = root.within(30, peer="bench", stage="call")
                with client.send("POST", HEADERS, body, scope) as reply:
                    assert reply.read_all(scope, PIECE_BYTES).endswith(b"}")

        name = f"{EXCHANGES_TIMED_TOGETHER} HTTP exchanges"
        row(f"{name}, CPU / http.client", 1.3, rounds, floor, ours, clock=time.process_time)
        row(f"{name} / http.client", 1.3, rounds, floor, ours)
        for peer, others in (("requests", _requests), ("urllib3", _urllib3)):
            try:
                work = others(url, body)
            except ImportError:
                print(f"{name}, CPU / {peer}: not measured: not installed", flush=True)
            else:
                row(f"{name}, CPU / {peer}", 1.0, rounds, work, ours, clock=time.process_time)
    connection.close()


def _requests(url: str, body: bytes) -> Work:
    import requests

    session = requests.Session()
    session.trust_env = False

    def work() -> None:
        for _ in range(EXCHANGES_TIMED_TOGETHER):
            assert session.post(url, data=body, headers=dict(HEADERS), timeout=30).content

    return work


def _urllib3(url: str, body: bytes) -> Work:
    import urllib3

    pool = urllib3.PoolManager()

    def work() -> None:
        for _ in range(EXCHANGES_TIMED_TOGETHER):
            assert pool.request("POST", url, body=body, headers=dict(HEADERS), retries=False).data

    return work


def _stream(row: Row, rounds: int, name: str, stream: bytes, read: Callable[[list[bytes]], int]) -> None:
    pieces = [stream[at : at + PIECE_BYTES] for at in range(0, len(stream), PIECE_BYTES)]
    try:
        expected = read(pieces)
    except ImportError:
        print(f"{name}: not measured: not installed in {os.path.relpath(PEERS, ROOT)}", flush=True)
        return

    def ours() -> None:
        reader, count = EventStreamReader(EventStreamLimits()), 0
        for piece in pieces:
            reader.feed(piece)
            while reader.next_event() is not None:
                count += 1
        assert count == expected

    row(name, 1.0, rounds, lambda: _check(read(pieces) == expected), ours, clock=time.process_time)


def _check(holds: bool) -> None:
    assert holds


def _read_with_httpx_sse(pieces: list[bytes]) -> int:
    import httpx
    from httpx_sse import EventSource

    fields: dict[str, Any] = {"content-type": "text/event-stream"}
    reply = httpx.Response(200, headers=fields, content=iter(pieces))
    return sum(1 for _ in EventSource(reply).iter_sse())


def _read_with_sseclient(pieces: list[bytes]) -> int:
    from sseclient import SSEClient

    return sum(1 for _ in SSEClient(iter(pieces)).events())
