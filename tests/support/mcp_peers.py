"""The MCP fixture server: how to start it, over stdio and over HTTP, and how to read what it recorded.

Over stdio it belongs to whoever starts :func:`stdio_command`; :class:`LinePeer` drives it raw. Over HTTP it
runs in a process of its own, an :class:`HttpPeer`, which ends at the latest when this process does.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Callable

from tests.support.pace import MS
from tests.support.raw_peer import CHECKOUT, PATIENCE_SECONDS, PeerEnded, RawPeer

__all__ = ["HttpPeer", "LinePeer", "MCP_SERVER", "read_record", "stdio_command", "told_methods", "wait_until"]

MCP_SERVER = CHECKOUT / "fixtures" / "peers" / "mcp_server.py"
# Flags that make any Python start in half the time; the program needs neither site nor user packages.
BARE = "-ES"

Json = Any


def stdio_command(*options: str) -> list[str]:
    """Return the argv of a server on standard input and output."""
    return [sys.executable, BARE, str(MCP_SERVER), *options]


def read_record(path: Path) -> list[dict[str, Json]]:
    """Return what a server with ``--record`` has received so far, in order."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def told_methods(path: Path) -> list[str]:
    """Return the methods of the messages in a record, ``answer`` for a message that has none."""
    bodies = [line["body"] for line in read_record(path) if isinstance(line.get("body"), dict)]
    return [body.get("method", "answer") for body in bodies]


class LinePeer(RawPeer):
    """A server over plain pipes, a message to a line; leaving the block kills what still lives."""

    def __init__(self, *options: str, environment: dict[str, str] | None = None) -> None:
        super().__init__(stdio_command(*options), environment=environment)
        self.noise: list[bytes] = []

    def send(self, message: Json) -> None:
        """Send one line."""
        self.write(json.dumps(message).encode("ascii") + b"\n")

    def end(self) -> int:
        """Close its input and return its status."""
        self.process.stdin.close()
        return self.wait()

    def read_body(self, *, seconds: float = PATIENCE_SECONDS) -> bytes:
        """Return the next line that is JSON; those before it go to ``noise``."""
        end = time.monotonic() + seconds
        while True:
            while b"\n" not in self._buffer:
                self._receive(end)
            line, _, self._buffer = self._buffer.partition(b"\n")
            try:
                json.loads(line)
            except ValueError:
                self.noise.append(line)
            else:
                return line


class HttpPeer:
    """A server on a port of 127.0.0.1; leaving the block kills it."""

    def __init__(self, *options: str, environment: dict[str, str] | None = None) -> None:
        with ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            self.process = subprocess.Popen(
                [sys.executable, BARE, str(MCP_SERVER), "--transport", "http", *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env={**os.environ, **(environment or {})},
            )
            stack.callback(self._kill)
            self.port: int = json.loads(self._first_line())["port"]
            stack.pop_all()

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> HttpPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._stderr.close()

    def end(self) -> int:
        """Close its input and return its status; raises ``subprocess.TimeoutExpired`` when it lives on."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE_SECONDS)

    def stderr(self) -> str:
        """Return everything it has written to standard error so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()

    def _first_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], PATIENCE_SECONDS)[0]:
                raise TimeoutError(f"no port; stderr: {self.stderr()[-2000:]}")
            piece = self.process.stdout.read(4096)
            if not piece:
                raise PeerEnded(line)
            line += piece
        return line


def wait_until(true: Callable[[], object]) -> None:
    """Return as soon as *true* is; a failure when it does not become so."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "in vain"
        time.sleep(10 * MS)
