"""MCP servers hosted for real: entries that run the fixture program, over stdio in the sandbox and over HTTP.

A test that looks for what is left gives its entry a marker (``env=hosted.marked(...)``), which every
process in the sandbox carries, and asks ``census.carriers``. What a server received stands in its record
(:func:`recorded`), which it may write although it is in a sandbox.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from latch.errors import LatchError
from latch.limits import DEFAULT, Limits
from latch.mcp.client import McpClient
from latch.mcp.conversation import Call
from latch.settings import McpServerSettings
from latch.system.machine import Machine
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from latch.wire.jsonrpc import Failure, Response, message_of
from tests.support.mcp_peers import BARE, MCP_SERVER, HttpPeer
from tests.support.pace import MS
from tests.support.servers import REQUEST, answer

__all__ = [
    "ScriptedTransport",
    "answered",
    "answers",
    "local",
    "machine",
    "opened",
    "patient",
    "program",
    "recorded",
    "remote",
]

Json = Any

PEER = 'MCP server "one"'


def local(*options: str, name: str = "one", **changes: Any) -> McpServerSettings:
    """Return an entry that runs the fixture server with *options* on stdio."""
    known = {"command": sys.executable, "args": (BARE, str(MCP_SERVER), *options), "network": False}
    return McpServerSettings(name=name, transport="stdio", **{**known, **changes})


def remote(server: HttpPeer | str, *, name: str = "one", **changes: Any) -> McpServerSettings:
    """Return an entry for a *server* over HTTP, or for its address."""
    url = server if isinstance(server, str) else server.url
    return McpServerSettings(name=name, transport="streamable_http", url=url, **changes)


def recorded(place: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file of a record in *place*, and the keys with which an entry may write it."""
    place.mkdir(exist_ok=True)
    return place / "record", {"rw_paths": (place,)}


def patient(**mcp: Any) -> Limits:
    """Return limits whose waits are short; *mcp* are further ones of MCP, waits in seconds."""
    short = {"probe_seconds": 2000 * MS, "exit_seconds": 300 * MS, "reconnect_seconds": 50 * MS}
    return replace(DEFAULT, mcp=replace(DEFAULT.mcp, **{**short, **mcp}))


def machine(**environment: str) -> Machine:
    """Return this machine with *environment* added to what its processes know."""
    known = Machine.read()
    return replace(known, environment={**known.environment, **environment})


def opened(
    entry: McpServerSettings,
    workspace: Path,
    *,
    limits: Limits | None = None,
    scope: Scope | None = None,
    **environment: str,
) -> McpClient:
    """Open a client; *environment* is what the process is said to know besides its own."""
    limits = limits or patient()
    sandbox = Sandbox(entry.sandbox, machine=machine(**environment), limits=limits)
    return McpClient.open(entry, workspace=workspace, scope=scope or Scope.root(30), sandbox=sandbox)


PROGRAM = """
import json, os, sys, time
def take():
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else sys.exit(0)
def raw(data):
    sys.stdout.buffer.write(data); sys.stdout.buffer.flush()
def say(**message):
    raw(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\\n")
def answer(message, **result):
    say(id=message["id"], result=result)
SCHEMA = {"type": "object"}
TOOLS = [{"name": "t", "inputSchema": SCHEMA}]
def serve(call, tools=TOOLS):
    while True:
        message = take()
        method = message.get("method")
        if method == "server/discover":
            answer(message, supportedVersions=["2026-07-28"], capabilities={"tools": {}})
        elif method == "tools/list":
            answer(message, tools=tools)
        elif method == "tools/call":
            call(message)
"""


def program(place: Path, body: str, **changes: Any) -> McpServerSettings:
    """Return an entry that runs a modern server of a few lines on stdio, written below *place*.

    *body* may use ``take``, ``raw``, ``say``, ``answer`` and ``serve(call, tools)``; *call* gets each call.
    """
    script = place / "server.py"
    script.write_text(PROGRAM + body, encoding="utf-8")
    return replace(local(), args=(BARE, str(script)), **changes)


class ScriptedTransport:
    """A transport in memory: for each message it is given it plays the next step of its script.

    A step is a message's members, which become its answer (its id is that of the call); an exception, which
    is raised; None, which is a probe without answer; or a function of the call that returns any of these.
    ``said`` are the messages it got, ``log`` what was done to it, in order.
    """

    def __init__(self, *script: Any) -> None:
        self.said: list[Json] = []
        self.log: list[str] = []
        self.scopes: list[Scope] = []
        self.noise_lines = 0
        self.repeats_arguments = True
        self.stderr_tail = ""
        self.failure: LatchError | None = None
        self._script: Iterator[Any] = iter(script)

    def start(self, scope: Scope) -> None:
        """Take note, and be usable again."""
        self.log.append("start")
        self.failure = None
        self.scopes.append(scope)

    def probe(self, call: Call, scope: Scope) -> Response | Failure | None:
        """Play a step."""
        return self._play(call, scope)

    def exchange(self, call: Call, scope: Scope) -> Response | Failure:
        """Play a step, which must be an answer."""
        answer = self._play(call, scope)
        assert answer is not None
        return answer

    def tell(self, body: bytes, scope: Scope) -> None:
        """Take note of a notification."""
        message = json.loads(body)
        self.said.append(message)
        self.log.append(message["method"])

    def close(self, scope: Scope) -> None:
        """Take note."""
        self.log.append("close")

    def kill(self) -> None:
        """Take note."""
        self.log.append("kill")

    def _play(self, call: Call, scope: Scope) -> Response | Failure | None:
        scope.check()
        self.said.append(json.loads(call.body))
        self.log.append(call.method)
        self.scopes.append(scope)
        step = next(self._script)
        if callable(step):
            step = step(call)
        if isinstance(step, BaseException):
            raise step
        if step is None:
            return None
        answer = message_of({"jsonrpc": "2.0", "id": call.id, **step})
        assert isinstance(answer, (Response, Failure))
        return answer


def answered(*results: Json) -> list[Any]:
    """Return the script of one connection (see ``servers.py``) that answers requests 1, 2, ... so."""
    script: list[Any] = []
    for number, result in enumerate(results, start=1):
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        script += [REQUEST, answer(body, "Content-Type: application/json")]
    return script


def answers(*tools: str, version: str = "2026-07-28") -> Sequence[Callable[[Call], Json]]:
    """Return the steps by which a transport speaks *version* and lists *tools*."""
    listing = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    if version >= "2026":
        first = {"supportedVersions": [version], "capabilities": {"tools": {}}}
        return (lambda call: {"result": first}, lambda call: {"result": listing})
    hello = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}
    return (
        lambda call: {"error": {"code": -32601, "message": "no method"}},
        lambda call: {"result": hello},
        lambda call: {"result": listing},
    )
