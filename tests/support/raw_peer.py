"""Drive one extension over plain pipes, as a host would, with neither host nor sandbox."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Sequence

from tests.support.pace import MS

__all__ = ["CHECKOUT", "PeerEnded", "RawPeer"]

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 10000 * MS

Json = Any


class PeerEnded(Exception):
    """The peer closed its standard output; ``rest`` is what it had written of a frame."""

    def __init__(self, rest: bytes) -> None:
        super().__init__(repr(rest[:200]))
        self.rest = rest


class RawPeer:
    """A child process and its three streams; leaving the block kills what still lives."""

    def __init__(self, command: Sequence[str], *, environment: dict[str, str] | None = None) -> None:
        with ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env={**os.environ, **(environment or {})},
            )
            stack.pop_all()
        self._buffer = b""
        self._next_id = 1

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._stderr):
            stream.close()

    def write(self, raw: bytes) -> None:
        """Write all of *raw* to the peer."""
        rest = memoryview(raw)
        while rest:
            rest = rest[self.process.stdin.write(rest) :]

    def send(self, message: Json) -> None:
        """Send one frame."""
        body = json.dumps(message).encode("utf-8")
        self.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: Json) -> Json:
        """Send a request and return its id."""
        request_id = self._next_id
        self._next_id += 1
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id

    def call(self, method: str, params: Json) -> Json:
        """Send a request and return the very next message, which must be its answer."""
        request_id = self.ask(method, params)
        answer = self.read()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", request_id), answer
        return answer

    def result(self, method: str, params: Json) -> Json:
        """Send a request and return its result."""
        answer = self.call(method, params)
        assert "result" in answer and "error" not in answer, answer
        return answer["result"]

    def tool(self, name: str, arguments: Json) -> Json:
        """Execute a tool and return its result."""
        return self.result("tool.execute", {"name": name, "arguments": arguments})

    def start(self, *, workspace: str = "/workspace") -> list[Json]:
        """Shake hands, answer every registration, and return them in order."""
        answer = self.result("initialize", initialize_params(workspace))
        assert answer["protocolVersion"] == "0.1"
        self.notify("initialized", {})
        registrations = []
        while True:
            message = self.read()
            if message["method"] == "ready":
                return registrations
            registrations.append(message)
            if "id" in message:
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": {"ok": True}})

    def finish(self) -> int:
        """Shut down as a host does and return the exit status."""
        assert self.result("shutdown", {}) is None
        self.notify("exit", {})
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Return the exit status."""
        return self.process.wait(PATIENCE_SECONDS)

    def read(self, *, seconds: float = PATIENCE_SECONDS) -> Json:
        """Return the next message; :class:`PeerEnded` at the end, TimeoutError after *seconds*."""
        return json.loads(self.read_body(seconds=seconds))

    def read_body(self, *, seconds: float = PATIENCE_SECONDS) -> bytes:
        """Return the next frame's body as bytes."""
        end = time.monotonic() + seconds
        while b"\r\n\r\n" not in self._buffer:
            self._receive(end)
        header, _, _ = self._buffer.partition(b"\r\n\r\n")
        name, _, value = header.partition(b":")
        assert name == b"Content-Length", self._buffer[:200]
        total = len(header) + 4 + int(value)
        parts = [self._buffer]
        while sum(map(len, parts)) < total:
            self._buffer = b""
            self._receive(end)
            parts.append(self._buffer)
        whole = b"".join(parts)
        self._buffer = whole[total:]
        return whole[len(header) + 4 : total]

    def read_raw(self, *, seconds: float) -> bytes:
        """Return every byte that arrives within *seconds*, or before the peer closes its output."""
        end = time.monotonic() + seconds
        try:
            while True:
                self._receive(end)
        except (TimeoutError, PeerEnded):
            raw, self._buffer = self._buffer, b""
            return raw

    def stderr(self) -> str:
        """Return everything the peer has written to standard error so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")

    def _receive(self, end: float) -> None:
        left = end - time.monotonic()
        if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
            raise TimeoutError(f"nothing more after {self._buffer[:200]!r}; stderr: {self.stderr()[-2000:]}")
        chunk = self.process.stdout.read(1024 * 1024)
        if not chunk:
            raise PeerEnded(self._buffer)
        self._buffer += chunk


def initialize_params(workspace: str) -> Json:
    """Return what a host says of itself."""
    return {
        "protocolVersion": "0.1",
        "client": {"name": "latch", "version": "1.2.3"},
        "workspace": workspace,
        "permissionContract": "cooperative-audit",
    }
