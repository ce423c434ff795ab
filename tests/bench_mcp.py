"""What an MCP call costs through Latch, beside a floor and the official SDK, for ``make bench``.

One small server, without framework, answers all of them alike, on stdio and over HTTP with JSON or events.
The floor is ``json`` over a plain pipe, or over one kept connection of ``http.client``. Every client runs in a
process of its own, so that its CPU time is its own; rounds alternate, and medians are shown. The SDK is
measured where ``.ci/prepare peers`` could put it.

Run by itself, this file is one of these processes: a server, or a client that prints what it measured.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
SELF = str(Path(__file__).resolve())
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "floor", "version": "0"},
}
TOOLS = [
    {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
    {"name": "blob", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
]
SMALL = {"text": "x" * 100}
BIG = {"n": 1_000_000}
SMALL_CALLS, BIG_CALLS, ROUNDS, STARTS = 1000, 30, 3, 7
CARRIERS = ("stdio", "json", "sse")
PEERS = ROOT / "build" / f"peers-{sys.version_info[0]}.{sys.version_info[1]}"


# -- the server ------------------------------------------------------------------------------------------


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    method, params = message["method"], message.get("params", {})
    if method == "server/discover":
        result: dict[str, Any] = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    else:
        arguments = params["arguments"]
        text = arguments["text"] if params["name"] == "echo" else "x" * arguments["n"]
        result = {"content": [{"type": "text", "text": text}], "isError": False}
    kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return {"jsonrpc": "2.0", "id": message["id"], "result": {**kept, **result}}


def serve_stdio() -> None:
    """Answer lines until the input ends."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.buffer.write(json.dumps(answer(message)).encode() + b"\n")
            sys.stdout.buffer.flush()


def serve_http(kind: str) -> None:
    """Print the port, then serve every connection in a thread until the input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            threading.Thread(target=serve_connection, args=(listener.accept()[0], kind), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def serve_connection(connection: socket.socket, kind: str) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as stream:
        while stream.readline():
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            message = json.loads(stream.read(length))
            if "id" not in message:
                connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                continue
            body = json.dumps(answer(message)).encode()
            if kind == "sse":
                body = b"event: message\ndata: " + body + b"\n\n"
                chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(head + chunk)
            else:
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                connection.sendall(head % len(body) + body)


# -- the clients -----------------------------------------------------------------------------------------

Call = Callable[[str, dict[str, Any]], Any]


def floor_calls(carrier: str, port: int) -> Iterator[Call]:
    """Yield a call that does nothing but json over a pipe or a kept connection."""
    number = 0

    def body_of(name: str, arguments: dict[str, Any]) -> bytes:
        nonlocal number
        number += 1
        params = {"name": name, "arguments": arguments, "_meta": META}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()

    if carrier == "stdio":
        with subprocess.Popen(
            [sys.executable, SELF, "serve", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdin is not None and server.stdout is not None
            writes, reads = server.stdin, server.stdout

            def over_pipe(name: str, arguments: dict[str, Any]) -> Any:
                writes.write(body_of(name, arguments) + b"\n")
                writes.flush()
                return json.loads(reads.readline())["result"]

            yield over_pipe
        return
    connection = http.client.HTTPConnection("127.0.0.1", port)
    fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def over_http(name: str, arguments: dict[str, Any]) -> Any:
        connection.request("POST", "/mcp", body_of(name, arguments), fields)
        said = connection.getresponse().read()
        return json.loads(said if carrier == "json" else said[said.index(b"data:") + 5 :])["result"]

    yield over_http
    connection.close()


def latch_calls(carrier: str, port: int) -> Iterator[Call]:
    """Yield a call through Latch, on stdio in its sandbox."""
    sys.path.insert(0, str(ROOT))
    import latch

    scope = latch.Scope.root()
    with tempfile.TemporaryDirectory(prefix="latch-bench-") as place:
        os.environ["LATCH_DIRECTORY"] = str(Path(place, "latch"))
        workspace = Path(place, "workspace")
        workspace.mkdir()
        if carrier == "stdio":
            args = (SELF, "serve", "stdio")
            entry = latch.McpServerSettings(name="b", transport="stdio", command=sys.executable, args=args)
        else:
            url = f"http://127.0.0.1:{port}/mcp"
            entry = latch.McpServerSettings(name="b", transport="streamable_http", url=url)
        with latch.McpClient.open(entry, workspace=workspace, scope=scope) as client:
            yield lambda name, arguments: client.call_tool(name, arguments, scope)


def measure(call: Call) -> dict[str, float]:
    """Return microseconds of a small call, its CPU, and of one of 1 MB."""
    for _ in range(50):
        call("echo", SMALL)
    small, cpu = timed(call, "echo", SMALL, SMALL_CALLS)
    big, _ = timed(call, "blob", BIG, BIG_CALLS)
    return {"small": small, "cpu": cpu, "big": big}


def timed(call: Call, name: str, arguments: dict[str, Any], count: int) -> tuple[float, float]:
    """Return the median of *count* calls and the CPU of each, in microseconds."""
    times = []
    began = used()
    for _ in range(count):
        start = time.perf_counter()
        call(name, arguments)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6, (used() - began) / count * 1e6


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure_sdk(carrier: str, port: int) -> dict[str, float]:
    """Measure the official SDK, which is asynchronous; only where its package is installed."""
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    target: Any = f"http://127.0.0.1:{port}/mcp"
    if carrier == "stdio":
        target = stdio_client(StdioServerParameters(command=sys.executable, args=[SELF, "serve", "stdio"]))
    async with Client(target) as client:
        measured = {}
        for key, name, arguments, count in (
            ("", "echo", SMALL, 50),
            ("small", "echo", SMALL, SMALL_CALLS),
            ("big", "blob", BIG, BIG_CALLS),
        ):
            times, began = [], used()
            for _ in range(count):
                start = time.perf_counter()
                await client.call_tool(name, arguments)
                times.append(time.perf_counter() - start)
            measured[key] = statistics.median(times) * 1e6
            if key == "small":
                measured["cpu"] = (used() - began) / count * 1e6
        return measured


def run_client(client: str, carrier: str, port: int) -> None:
    """Measure one client and print it."""
    if client == "sdk":
        import asyncio

        print(json.dumps(asyncio.run(measure_sdk(carrier, port))))
        return
    for call in (floor_calls if client == "floor" else latch_calls)(carrier, port):
        print(json.dumps(measure(call)))


# -- the table -------------------------------------------------------------------------------------------


def print_rows() -> None:
    """Measure and print every row."""
    clients = ("floor", "latch", *(("sdk",) if os.path.isdir(PEERS / "mcp") else ()))
    print(f"\nMCP calls, medians of {ROUNDS} rounds; CPU of the client alone; x: ratio to the floor")
    print(f"{'':<14} {'small':>9} {'x':>6} {'CPU':>9} {'x':>6} {'1 MB':>9} {'x':>6}")
    for carrier in CARRIERS:
        found: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
        with Server(carrier) as port:
            for _ in range(ROUNDS):
                for client in clients:
                    found[client].append(_measured(client, carrier, port))
        floor = _medians(found["floor"])
        for client in clients:
            ours = _medians(found[client])
            cells = [
                f"{ours[key] / scale:>7.{digits}f}{unit} {ours[key] / floor[key]:>6.2f}"
                for key, scale, digits, unit in (
                    ("small", 1, 0, "us"), ("cpu", 1, 0, "us"), ("big", 1000, 2, "ms")
                )
            ]  # fmt: skip
            print(f"{carrier + ' ' + client:<14} {' '.join(cells)}", flush=True)
    print("at most: latch on stdio 2.0 of the floor and 90 us CPU; over HTTP 1.7; 1 MB 1.2 (wall)")
    _print_starts("sdk" in clients)


def _print_starts(with_sdk: bool) -> None:
    ours = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import latch.mcp.client"
    codes = {"python -c pass": "pass", "latch.mcp.client": ours}
    if with_sdk:
        codes["official SDK"] = "from mcp.client.client import Client"
    for name, code in codes.items():
        times, sizes = [], []
        for _ in range(STARTS):
            start = time.perf_counter()
            # NOTE: not getrusage, whose peak is inherited from us.
            tell = "; print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
            command = [sys.executable, "-c", code + tell]
            said = subprocess.run(command, check=True, capture_output=True, env=_environment()).stdout
            times.append(time.perf_counter() - start)
            sizes.append(int(said) / 1024)
        shown = f"{statistics.median(times) * 1e3:>7.0f}ms {statistics.median(sizes):>6.1f} MB"
        print(f"import {name:<18} {shown}", flush=True)
    print("at most: 100 ms and 25 MB")


class Server:
    """The server of one carrier, and its port; on stdio each client starts one of its own."""

    def __init__(self, carrier: str) -> None:
        self._carrier = carrier
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> int:
        if self._carrier == "stdio":
            return 0
        command = [sys.executable, SELF, "serve", self._carrier]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.communicate(timeout=30)


def _measured(client: str, carrier: str, port: int) -> dict[str, float]:
    command = [sys.executable, SELF, "client", client, carrier, str(port)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300, env=_environment()).stdout
    measured: dict[str, float] = json.loads(said)
    return measured


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PEERS)}


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in rounds) for key in ("small", "cpu", "big")}


if __name__ == "__main__":
    if sys.argv[1] == "client":
        run_client(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[2] == "stdio":
        serve_stdio()
    else:
        serve_http(sys.argv[2])
