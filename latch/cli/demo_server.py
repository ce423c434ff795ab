"""The MCP server that ``latch demo`` runs in the sandbox: protocol 2026-07-28 on stdio, one tool.

It is run as a program from a copy, needs nothing beside it, and is imported by nobody.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]

_TOOL = {
    "name": "count_lines",
    "description": "Count the lines of a file in the workspace.",
    "inputSchema": {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
    "outputSchema": {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]},
}
_IDENTITY = {"io.modelcontextprotocol/serverInfo": {"name": "latch-demo", "version": "1"}}


def main() -> None:
    """Answer one request a line until the standard input ends; the argument is the workspace."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **_answer(message)}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message["params"]
    if method == "server/discover":
        known = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        return {"result": {**known, "ttlMs": 0, "cacheScope": "private", "_meta": _IDENTITY}}
    if method == "tools/list":
        return {"result": {"tools": [_TOOL], "ttlMs": 0, "cacheScope": "private"}}
    if method == "tools/call" and params["name"] == _TOOL["name"]:
        return {"result": _count(params["arguments"]["file"])}
    return {"error": {"code": -32601, "message": "no such method"}}


def _count(file: str) -> dict[str, Any]:
    try:
        with open(Path(sys.argv[1], file), encoding="utf-8") as stream:
            count = sum(1 for _ in stream)
    except (OSError, UnicodeError) as error:
        return {"content": [{"type": "text", "text": f"{file}: {error}"}], "isError": True}
    text = {"type": "text", "text": f"{file} has {count} line" + ("" if count == 1 else "s")}
    return {"content": [text], "structuredContent": {"lines": count}}


if __name__ == "__main__":
    main()
