"""Clients that drive the MCP fixture server raw, over pipes and by ``http.client``, with the same face."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ContextManager, Iterator, NamedTuple, Optional

from tests.support.mcp_peers import HttpPeer, LinePeer, told_methods, wait_until
from tests.support.raw_peer import PATIENCE_SECONDS

__all__ = ["Driver", "HttpDriver", "Reply", "StdioDriver", "driven", "initialize_params", "waits"]

Json = Any

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PREFIX = "io.modelcontextprotocol/"
META = {
    PREFIX + "protocolVersion": MODERN,
    PREFIX + "clientCapabilities": {},
    PREFIX + "clientInfo": {"name": "test", "version": "1"},
}
BOTH_TYPES = "application/json, text/event-stream"


class Reply(NamedTuple):
    """One HTTP answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def messages(self) -> list[Json]:
        """The messages of its body, which is JSON or a stream."""
        if self.headers.get("content-type") != "text/event-stream":
            return [json.loads(self.body)] if self.body else []
        text = self.body.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        datas = [
            [line[6:] for line in event.split("\n") if line[:6] == "data: "] for event in text.split("\n\n")
        ]
        return [json.loads("\n".join(data)) for data in datas if any(data) and data != ["{}"]]


class Driver:
    """What both transports have in common: the next id, ``_meta`` and the handshake of an era."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.noise: list[bytes] = []
        self.last_id = 0

    def request(self, method: str, params: Json = None) -> Json:
        """Return a request of this era under the next id."""
        self.last_id += 1
        params = dict(params or {})
        if self.era == "modern":
            params = {"_meta": META, **params}
        return {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}

    def begin(self, version: str = LEGACY[0]) -> Json:
        """Shake hands, which a modern client need not; returns the server's answer."""
        answer = self.exchange("initialize", initialize_params(version))[-1]
        self.notify("notifications/initialized")
        return answer

    def call(self, name: str, **arguments: Json) -> Json:
        """Call a tool and return the result."""
        return self.exchange("tools/call", {"name": name, "arguments": arguments})[-1]["result"]

    def structured(self, name: str, **arguments: Json) -> Json:
        """Call a tool and return its structured content."""
        return self.call(name, **arguments)["structuredContent"]

    def ask(self, method: str, params: Json = None) -> Json:
        """Send a request and return it."""
        raise NotImplementedError

    def answer(self) -> list[Json]:
        """Return every message up to the answer of the request that was asked."""
        raise NotImplementedError

    def exchange(self, method: str, params: Json = None) -> list[Json]:
        """Send a request and return every message up to its answer."""
        self.ask(method, params)
        return self.answer()

    def notify(self, method: str, params: Json = None) -> None:
        """Send a notification."""
        raise NotImplementedError

    def set_patience(self, seconds: float) -> None:
        """Wait no longer than this for anything."""
        raise NotImplementedError

    def send_answer(self, message: Json) -> None:
        """Send an answer to something that the server asked."""
        raise NotImplementedError

    def another(self) -> ContextManager[Any]:
        """A way to send beside a request that is under way."""
        raise NotImplementedError


class StdioDriver(Driver):
    """A client on pipes."""

    def __init__(self, peer: LinePeer, era: str) -> None:
        super().__init__(era)
        self.peer = peer
        self.noise = peer.noise
        self.patience = PATIENCE_SECONDS

    def ask(self, method: str, params: Json = None) -> Json:
        message = self.request(method, params)
        self.peer.send(message)
        return message

    def answer(self) -> list[Json]:
        told = [self.peer.read(seconds=self.patience)]
        while isinstance(told[-1], dict) and "method" in told[-1]:
            told.append(self.peer.read(seconds=self.patience))
        return told

    def notify(self, method: str, params: Json = None) -> None:
        self.peer.notify(method, params or {})

    def set_patience(self, seconds: float) -> None:
        self.patience = seconds

    def close(self) -> None:
        """Nothing is its own."""

    def send_answer(self, message: Json) -> None:
        self.peer.send(message)

    def another(self) -> ContextManager[StdioDriver]:
        return nullcontext(self)


class HttpDriver(Driver):
    """A client on one connection that is kept alive."""

    def __init__(self, peer: HttpPeer, era: str) -> None:
        super().__init__(era)
        self.peer = peer
        self.connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=PATIENCE_SECONDS)
        self.more_headers: dict[str, str] = {}
        self.reply = Reply(0, {}, b"")

    @contextmanager
    def another(self) -> Iterator[HttpDriver]:
        with closing(HttpDriver(self.peer, self.era)) as other:
            other.more_headers = self.more_headers
            yield other

    def ask(self, method: str, params: Json = None, **headers: Optional[str]) -> Json:
        message = self.request(method, params)
        body = json.dumps(message).encode("ascii")
        self.connection.request("POST", "/mcp", body, self.headers_for(message, **headers))
        return message

    @contextmanager
    def stream(self) -> Iterator[http.client.HTTPResponse]:
        """The reply to what was sent, yet to be read."""
        with self.connection.getresponse() as answer:
            yield answer

    def answer(self) -> list[Json]:
        self.reply = self._read_reply()
        told = self.reply.messages
        result = told[-1].get("result") if told and isinstance(told[-1], dict) else None
        if isinstance(result, dict) and "protocolVersion" in result:
            self.more_headers["MCP-Protocol-Version"] = result["protocolVersion"]
            if "mcp-session-id" in self.reply.headers:
                self.more_headers["Mcp-Session-Id"] = self.reply.headers["mcp-session-id"]
        return told

    def exchange(self, method: str, params: Json = None, **headers: Optional[str]) -> list[Json]:
        self.ask(method, params, **headers)
        return self.answer()

    def notify(self, method: str, params: Json = None) -> None:
        self.reply = self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def set_patience(self, seconds: float) -> None:
        self.connection.close()
        self.connection.timeout = seconds

    def send_answer(self, message: Json) -> None:
        self.reply = self.post(message)

    def post(self, message: Json, **headers: Optional[str]) -> Reply:
        """POST *message* with the headers of its era; others have underscores for hyphens, None for none."""
        return self.send("POST", self.headers_for(message, **headers), json.dumps(message).encode("ascii"))

    def headers_for(self, message: Json, **headers: Optional[str]) -> dict[str, str]:
        """Return the headers of :meth:`post`."""
        known: dict[str, Optional[str]] = {"Content-Type": "application/json", "Accept": BOTH_TYPES}
        if self.era == "modern":
            known.update({"MCP-Protocol-Version": MODERN, "Mcp-Method": message.get("method", "")})
            if "name" in message.get("params", {}):
                known["Mcp-Name"] = message["params"]["name"]
        known.update(self.more_headers)
        known.update({name.replace("_", "-"): value for name, value in headers.items()})
        return {name: value for name, value in known.items() if value is not None}

    def send(
        self, method: str, headers: dict[str, str], body: bytes | None = None, path: str = "/mcp"
    ) -> Reply:
        """Send any request and read its answer to the end."""
        self.connection.request(method, path, body, headers)
        return self._read_reply()

    def _read_reply(self) -> Reply:
        with self.stream() as answer:
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, headers, answer.read())

    def get(self, **headers: str) -> Reply:
        """GET, as one who wants a stream."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("GET", {"Accept": "text/event-stream", **self.more_headers, **named})

    def delete(self) -> Reply:
        """DELETE the session."""
        return self.send("DELETE", self.more_headers)


def initialize_params(version: str) -> Json:
    """Return what a client says of itself."""
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@contextmanager
def driven(
    transport: str,
    *options: str,
    era: str = "modern",
    begins: bool = True,
    environment: dict[str, str] | None = None,
) -> Iterator[Any]:
    """Start a server of *era* and drive it; a legacy one has shaken hands, unless *begins* is false.

    *environment* is added to this process's own.
    """
    kind, client = (LinePeer, StdioDriver) if transport == "stdio" else (HttpPeer, HttpDriver)
    with kind("--era", era, *options, environment=environment) as peer:
        with closing(client(peer, era)) as driver:
            if era == "legacy" and begins:
                driver.begin()
            yield driver


def waits(driver: Any, method: str, params: Json, *, record: Path, seconds: float) -> bool:
    """Tell whether a request stays without an answer for *seconds* after it is on *record*.

    Over HTTP the next request has a new connection.
    """
    driver.set_patience(seconds)
    try:
        driver.ask(method, params)
        wait_until(lambda: method in told_methods(record))
        driver.answer()
    except (TimeoutError, socket.timeout):
        return True
    finally:
        driver.set_patience(PATIENCE_SECONDS)
    return False
