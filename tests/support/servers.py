"""A server that does what a script says, byte by byte, on a real loopback socket.

A script is a list of steps for one connection: bytes are sent; :data:`REQUEST` waits for one whole request
and keeps it; :data:`HEAD` for its head alone; :func:`pause` waits; :data:`RESET` ends with a reset;
:data:`HOLD` keeps the connection until the client leaves; :data:`ABORT` drops it without the end that TLS
wants. After the last step the connection is closed. The first connection plays the first script, and so on;
the last one is played again.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from tests.support.pace import MS

__all__ = [
    "ABORT",
    "Connection",
    "HEAD",
    "HOLD",
    "REQUEST",
    "RESET",
    "Server",
    "answer",
    "certificate",
    "pause",
    "serving",
]

CERTIFICATES = Path(__file__).resolve().parents[2] / "fixtures" / "tls"
PATIENCE_SECONDS = 10000 * MS
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)")

Step = Any


class Connection:
    """One accepted connection; ``rest`` is what came after the request that was read."""

    def __init__(self, server: Server, plain: socket.socket) -> None:
        self.server = server
        self.socket = plain
        self.rest = b""

    def read_head(self) -> bytes:
        while b"\r\n\r\n" not in self.rest:
            self.more()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def read_request(self) -> None:
        head = self.read_head()
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        while len(self.rest) < length:
            self.more()
        self.server.requests.append(head + self.rest[:length])
        self.rest = self.rest[length:]

    def more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the client left")
        self.rest += data


def REQUEST(connection: Connection) -> None:
    """Read one request and keep it in ``server.requests``."""
    connection.read_request()


def HEAD(connection: Connection) -> None:
    """Read the head of a request and keep it in ``server.requests``."""
    connection.server.requests.append(connection.read_head())


def HOLD(connection: Connection) -> None:
    """Wait, without reading, until the client leaves."""
    connection.server.wait_left(connection.socket)


def RESET(connection: Connection) -> None:
    """End the connection by a reset."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def ABORT(connection: Connection) -> None:
    """End the connection below TLS, which then lacks its end."""
    connection.socket = socket.socket(fileno=connection.socket.detach())


def pause(seconds: float) -> Callable[[Connection], None]:
    """Return a step that waits."""

    def wait(connection: Connection) -> None:
        connection.server.stopping.wait(seconds)

    return wait


def answer(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    """Return a whole answer with a counted *body*."""
    lines = [f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "\r\n"]
    return "\r\n".join(lines).encode("latin-1") + body


def certificate(name: str) -> ssl.SSLContext:
    """Return the context of a server that shows the certificate *name* of ``fixtures/tls``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(CERTIFICATES / f"{name}.pem"))
    return context


class Server:
    """The listening side: ``port``, the ``requests`` it read, how many ``connections`` it accepted, and how
    many of them it has seen ``ended``."""

    def __init__(self, scripts: Sequence[Sequence[Step]], context: ssl.SSLContext | None, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.requests: list[bytes] = []
        self.connections = 0
        self.ended = 0
        self.stopping = threading.Event()
        self._scripts = scripts
        self._context = context
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def wait_left(self, held: socket.socket) -> None:
        """Wait until the client of *held* leaves, or the test is over."""
        while not self.stopping.wait(0.002):
            try:
                # Looked at and not taken, so that what was sent stays unread.
                if not socket.socket.recv(held, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return
                if _is_hung_up(held):
                    return
            except BlockingIOError:
                continue
            except OSError:
                return

    def stop(self) -> None:
        """End every connection and wait for every thread."""
        self.stopping.set()
        for each in [self._listener, *self._open]:
            try:
                # Below TLS, which would forget in the middle of a step that it is there.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
        self._listener.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            self._open.append(accepted)
            self._start(self._play, accepted, script)

    def _play(self, accepted: socket.socket, script: Sequence[Step]) -> None:
        connection = Connection(self, accepted)
        try:
            if self._context is not None:
                connection.socket = self._context.wrap_socket(accepted, server_side=True)
                self._open.append(connection.socket)
            for step in script:
                if isinstance(step, bytes):
                    connection.socket.sendall(step)
                else:
                    step(connection)
            if isinstance(connection.socket, ssl.SSLSocket):
                connection.socket.unwrap()
        except OSError:
            pass
        finally:
            connection.socket.close()
            self.ended += 1


def _is_hung_up(held: socket.socket) -> bool:
    # TCP_INFO begins with the state; CLOSE_WAIT is 8, and CLOSE 7.
    return held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (7, 8)


@contextmanager
def serving(
    *scripts: Sequence[Step], context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[Server]:
    """Serve *scripts* while the block runs; nothing of it is left afterwards."""
    server = Server(scripts, context, host)
    try:
        yield server
    finally:
        server.stop()
