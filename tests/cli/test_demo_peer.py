"""cli/demo_peer.py: the demonstration's extension, driven over plain pipes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.support.raw_peer import RawPeer
from tests.support.tree import ROOT

PROGRAM = ROOT / "latch" / "cli" / "demo_peer.py"


@pytest.fixture
def peer() -> Iterator[RawPeer]:
    command = [sys.executable, str(PROGRAM)]
    with RawPeer(command, environment={"PYTHONPATH": str(ROOT / "latch" / "extensions")}) as running:
        registered = [
            (one["method"], one["params"].get("name") or one["params"].get("action"))
            for one in running.start()
        ]
        assert registered == [
            ("tool.register", "count_words"),
            ("tool.register", "write_file"),
            ("tool.register", "hang"),
            ("hook.guard", "tool.execute"),
        ]
        yield running
        if running.process.poll() is None:
            running.process.terminate()
            running.wait()


@pytest.mark.parametrize(
    ("arguments", "words"), [({"text": "four words are here\n"}, 4), ({"text": ""}, 0), ({}, 0)]
)
def test_words_are_counted(peer: RawPeer, arguments: dict[str, str], words: int) -> None:
    assert peer.tool("count_words", arguments) == {"words": words}
    assert peer.finish() == 0


def test_a_write_tells_whether_it_was_done(peer: RawPeer, tmp_path: Path) -> None:
    file = tmp_path / "written.txt"
    assert peer.tool("write_file", {"path": str(file)}) == {"written": True, "error": None}
    assert file.read_text(encoding="utf-8") == "written by the demo"
    assert peer.tool("write_file", {"path": str(tmp_path)}) == {"written": False, "error": "Is a directory"}
    assert peer.finish() == 0


def test_the_guard_denies_what_mentions_a_secret(peer: RawPeer) -> None:
    def judge(text: str) -> dict[str, str]:
        payload = {"name": "count_words", "originalName": "count_words", "arguments": {"text": text}}
        return peer.result("hook.guard", {"action": "tool.execute", "payload": payload})

    assert judge("plain words") == {"decision": "allow"}
    assert judge("the secret") == {"decision": "deny", "reason": "the arguments mention a secret"}
    assert peer.finish() == 0


def test_a_hang_is_one(peer: RawPeer) -> None:
    peer.ask("tool.execute", {"name": "hang", "arguments": {}})
    assert peer.read_raw(seconds=0.2) == b""
    assert peer.process.poll() is None
