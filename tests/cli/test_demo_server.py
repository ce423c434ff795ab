"""cli/demo_server.py: the demonstration's MCP server, driven over plain pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tree import ROOT

PROGRAM = ROOT / "latch" / "cli" / "demo_server.py"


def ask(workspace: Path, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Send *messages*, one a line, and return the answers once the server has ended by itself."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(workspace)],
        input=b"".join(json.dumps(message).encode() + b"\n" for message in messages),
        capture_output=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def test_it_speaks_one_modern_version_and_offers_one_tool(tmp_path: Path) -> None:
    known, listed = ask(tmp_path, request("server/discover"), request("tools/list"))
    assert known["id"] == 7 and known["result"]["supportedVersions"] == ["2026-07-28"]
    assert known["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "latch-demo"
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["count_lines"]


@pytest.mark.parametrize(
    ("text", "count", "said"),
    [("", 0, "a has 0 lines"), ("one\n", 1, "a has 1 line"), ("one\ntwo", 2, "a has 2 lines")],
)
def test_lines_are_counted(tmp_path: Path, text: str, count: int, said: str) -> None:
    (tmp_path / "a").write_text(text, encoding="utf-8")
    (answer,) = ask(tmp_path, request("tools/call", name="count_lines", arguments={"file": "a"}))
    assert answer["result"] == {
        "content": [{"type": "text", "text": said}],
        "structuredContent": {"lines": count},
    }


def test_a_file_that_cannot_be_read_is_a_failure_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for file in ("absent", "binary", "."):
        (answer,) = ask(tmp_path, request("tools/call", name="count_lines", arguments={"file": file}))
        assert answer["result"]["isError"] is True
        assert answer["result"]["content"][0]["text"].startswith(f"{file}: ")


def test_what_it_does_not_know_is_refused_and_a_notification_is_not_answered(tmp_path: Path) -> None:
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    unknown = [request("ping"), request("tools/call", name="other", arguments={})]
    answers = ask(tmp_path, notice, *unknown)
    assert [answer["error"]["code"] for answer in answers] == [-32601, -32601]
