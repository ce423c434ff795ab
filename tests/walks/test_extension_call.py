"""The README's story through public names only: configure an extension, call it, obey its guard, end it."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

import latch
from tests.support import census, hosted

NOTES = """
import os
from sdk import Extension, allow, deny

ext = Extension()

@ext.tool(description="Return the first line of a file of the workspace.")
def first_line(arguments):
    with open(os.path.join(ext.workspace, arguments["name"]), encoding="utf-8") as stream:
        return stream.readline().rstrip()

@ext.tool()
def scribble(arguments):
    with open(os.path.join(ext.workspace, "scribble"), "w") as stream:
        stream.write("x")

@ext.guard("tool.execute")
def keep_secrets(action, payload):
    if "secret" in str(payload["arguments"]):
        return deny("secrets stay where they are")
    return allow()

ext.run()
"""

CONFIG = """
[extension_lifecycle]
request_seconds = 20

[[extensions]]
name = "notes"
command = "{python}"
args = ["-ES", "{script}"]
env = {{ LATCH_TEST_MARKER = "{marker}" }}
network = false

[[extensions]]
name = "hangs"
command = "{python}"
args = ["-ES", "{peer}", "--misbehave", "silent:call"]
env = {{ LATCH_TEST_MARKER = "{marker}" }}
lifecycle = {{ request_seconds = 0.3 }}
"""


@pytest.fixture
def marker() -> str:
    """A mark by which the census finds what the extensions started."""
    return hosted.new_marker()


@pytest.fixture
def settings(tmp_path: Path, own_home: Path, marker: str) -> latch.Settings:
    """Two extensions, configured in a file as an operator does it."""
    (own_home / "notes").mkdir()
    script = own_home / "notes" / "notes.py"
    script.write_text(NOTES, encoding="utf-8")
    shutil.copy(hosted.CHECKOUT / "latch" / "extensions" / "sdk.py", script.parent)
    file = own_home / ".latch" / "config.toml"
    file.parent.mkdir(mode=0o700)
    text = CONFIG.format(python=sys.executable, script=script, marker=marker, peer=hosted.PEER)
    file.write_text(text, encoding="utf-8")
    return latch.Settings.load(file)


def test_the_story_of_one_extension(
    sandbox: Path, workspace: Path, settings: latch.Settings, marker: str
) -> None:
    (workspace / "README").write_text("hello\nworld\n", encoding="utf-8")
    scope = latch.Scope.root(seconds=30)
    with latch.ExtensionHost.open(settings.extensions[0], workspace=workspace, scope=scope) as host:
        assert [tool.name for tool in host.registrations.tools] == ["first_line", "scribble"]
        assert host.call_tool("first_line", {"name": "README"}, scope) == "hello"

        # its tools fail like functions do, and it goes on
        with pytest.raises(latch.PeerRefused, match='extension "notes": tool.execute: .*no-such-file'):
            host.call_tool("first_line", {"name": "no-such-file"}, scope)

        # it may read the workspace, not write it
        with pytest.raises(latch.PeerRefused, match="Read-only file system"):
            host.call_tool("scribble", {}, scope)
        assert not (workspace / "scribble").exists()

        # its guard is asked before a call; an answer only narrows
        answer = host.guard("tool.execute", {"name": "first_line", "arguments": {"name": "secret"}}, scope)
        assert (answer.decision.value, answer.reasons) == ("deny", ("notes: secrets stay where they are",))
        assert census.carriers(marker)
    assert not census.carriers(marker)
    assert host.failure is not None


def test_the_story_of_one_that_hangs(
    sandbox: Path, workspace: Path, settings: latch.Settings, marker: str, ms: float
) -> None:
    scope = latch.Scope.root(seconds=30)
    with pytest.raises(latch.DeadlineMissed) as raised:
        with latch.ExtensionHost.open(settings.extensions[1], workspace=workspace, scope=scope) as host:
            began = time.monotonic()
            host.call_tool("echo", {}, scope)
    assert 0.29 < time.monotonic() - began < 0.3 + 100 * ms
    error = raised.value
    assert isinstance(error, TimeoutError) and isinstance(error, latch.PeerError)
    assert str(error) == 'extension "hangs": tool.execute: no answer within 0.3 s; killed (signal 9)'
    assert error.to_dict() == {
        "code": "deadline",
        "message": str(error),
        "peer": 'extension "hangs"',
        "stage": "tool.execute",
    }
    assert not census.carriers(marker)


def test_the_story_of_a_cancel_from_another_thread(
    sandbox: Path, workspace: Path, settings: latch.Settings, marker: str
) -> None:
    scope = latch.Scope.root()
    hosted.later(0.3, lambda: scope.cancel("the operator pressed Ctrl+C"))
    with pytest.raises(latch.Cancelled, match="Ctrl\\+C"):
        with latch.ExtensionHost.open(
            settings.extensions[1], workspace=workspace, scope=latch.Scope.root(30)
        ) as host:
            host.call_tool("echo", {}, scope)
    assert not census.carriers(marker)
