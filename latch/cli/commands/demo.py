"""``latch demo``: the parts at work, offline, in a throw-away place, through the real sandbox.

Nothing of the operator's configuration is used and nothing is left: the workspace and the state
directory are temporary. Each step says what it shows and fails the demo when it does not.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Callable

from ... import __version__
from ...errors import DeadlineMissed, LatchError, SandboxUnavailable
from ...extensions.hooks import Decision
from ...extensions.host import ExtensionHost
from ...limits import LifecycleLimits
from ...mcp.client import McpClient
from ...settings import ExtensionSettings, McpServerSettings, SandboxSettings
from ...system.ledger import Entry, bearers
from ...system.sandbox import Sandbox
from ...system.scope import Scope
from ...system.throwaway import state_in, throw_away_place
from ..failures import tell
from ..terminal import Terminal, escape

__all__ = ["configure", "run"]

# spec/cli.md: the one deliberate wait of the demo
_HANG_SECONDS = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments: none."""


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Run every step; status 0 when all showed what they should, 8 without a sandbox."""
    with throw_away_place(uid=options.machine.uid) as place:
        return _Demo(options, io, place).run()


class _Demo:
    def __init__(self, options: argparse.Namespace, io: Terminal, place: Path) -> None:
        self._scope: Scope = options.scope
        self._io = io
        self._workspace = place / "workspace"
        self._program = place / "extension"
        self._sandbox = Sandbox(SandboxSettings(state_directory=state_in(place)), machine=options.machine)
        self._host: ExtensionHost | None = None
        self._started: list[Entry] = []
        self._shown: list[dict[str, object]] = []

    def run(self) -> int:
        began = self._scope.now()
        self._lay_out()
        steps: tuple[tuple[str, Callable[[], tuple[bool, str]]], ...] = (
            ("sandbox", self._probe),
            ("extension", self._open),
            ("tool", self._call),
            ("guard", self._ask_guard),
            ("mount", self._write),
            ("mcp", self._call_server),
            ("deadline", self._hang),
            ("left over", self._census),
        )
        if not self._io.as_json:
            self._io.result(f"latch {__version__}, offline, in a throw-away workspace")
        try:
            for name, step in steps:
                self._show(name, *step())
        except SandboxUnavailable as error:
            return tell(self._io, error)
        finally:
            if self._host is not None:
                self._host.kill()
        return self._end(self._scope.now() - began)

    def _lay_out(self) -> None:
        self._workspace.mkdir()
        self._program.mkdir()
        (self._workspace / "notes.txt").write_text("four words are here\n", encoding="utf-8")
        root = __package__.rpartition(".cli.")[0]
        own = [
            (f"{root}.cli", "demo_peer.py"),
            (f"{root}.cli", "demo_server.py"),
            (f"{root}.extensions", "sdk.py"),
        ]
        for package, name in own:
            source = pkgutil.get_data(package, name)
            if source is None:
                raise LatchError(f"{name} is missing from the package {package}")
            (self._program / name).write_bytes(source)

    def _show(self, name: str, good: bool, text: str) -> None:
        self._shown.append({"step": name, "ok": good, "text": text})
        if not self._io.as_json:
            line = f"[{len(self._shown)}] {name:<10} {'' if good else 'FAILED: '}{text}"
            # NOTE: a terminal or not, because the words of bubblewrap and of peers are among them.
            self._io.result(escape(line, keep="\n\t"))

    def _end(self, seconds: float) -> int:
        failed = [step for step in self._shown if not step["ok"]]
        if self._io.as_json and failed:
            text = "; ".join(f"{step['step']}: {step['text']}" for step in failed)
            self._io.error(text, code="demo", exit_status=1)
        elif self._io.as_json:
            self._io.json({"steps": self._shown, "seconds": round(seconds, 2)})
        else:
            good = len(self._shown) - len(failed)
            self._io.result(
                f"{good} of {len(self._shown)} steps as they should be, {seconds:.1f} s, {_HANG_SECONDS} s of them "
                "the deliberate wait"
            )
        return 1 if failed else 0

    # -- steps --------------------------------------------------------------------------------------

    def _probe(self) -> tuple[bool, str]:
        found = self._sandbox.ready(self._scope, wanted="the demo")
        return True, f"bubblewrap {found.version} works: no capabilities, no new privileges, an empty home"

    def _open(self) -> tuple[bool, str]:
        settings = ExtensionSettings(
            name="demo",
            command=sys.executable,
            args=(str(self._program / "demo_peer.py"),),
            network=False,
            lifecycle=replace(LifecycleLimits(), request_seconds=_HANG_SECONDS),
        )
        self._host = ExtensionHost.open(
            settings, workspace=self._workspace, scope=self._scope, sandbox=self._sandbox
        )
        self._started = self._sandbox.own_entries()
        tools = ", ".join(tool.name for tool in self._host.registrations.tools)
        return True, f"started in the sandbox, registered the tools {tools} and a guard"

    def _call(self) -> tuple[bool, str]:
        text = (self._workspace / "notes.txt").read_text(encoding="utf-8")
        result = self._live().call_tool("count_words", {"text": text}, self._scope)
        return result == {"words": 4}, f"count_words answered {result}"

    def _ask_guard(self) -> tuple[bool, str]:
        payload = {"name": "count_words", "originalName": "count_words", "arguments": {"text": "the secret"}}
        answer = self._live().guard("tool.execute", payload, self._scope)
        good = answer.decision is Decision.DENY and not answer.failed
        return good, f"{answer.decision.value}: {'; '.join(answer.reasons)}"

    def _write(self) -> tuple[bool, str]:
        target = self._workspace / "planted.txt"
        result = self._live().call_tool("write_file", {"path": str(target)}, self._scope)
        refused = isinstance(result, dict) and result.get("written") is False and not os.path.exists(target)
        words = result.get("error") if isinstance(result, dict) else result
        return refused, f"writing to the workspace was refused by the mount: {words}"

    def _call_server(self) -> tuple[bool, str]:
        entry = McpServerSettings(
            name="demo-server",
            transport="stdio",
            command=sys.executable,
            args=(str(self._program / "demo_server.py"), str(self._workspace)),
            network=False,
        )
        with McpClient.open(
            entry, workspace=self._workspace, scope=self._scope, sandbox=self._sandbox
        ) as client:
            result = client.call_tool("count_lines", {"file": "notes.txt"}, self._scope)
            said = f"a server on stdio, protocol {client.protocol_version}, answered: {result.text}"
        return result.structured_content == {"lines": 1}, said

    def _hang(self) -> tuple[bool, str]:
        try:
            self._live().call_tool("hang", {}, self._scope)
        except DeadlineMissed as error:
            return True, str(error)
        return False, "a tool that never answers was not ended"

    def _census(self) -> tuple[bool, str]:
        tokens = [entry.token for entry in self._started]
        named = [one for entry in self._started for one in (entry.init, entry.monitor) if one is not None]
        left = {one.pid for one in named if one.is_alive()} | {*bearers(tokens, self._sandbox.machine.uid)}
        if not named:
            return False, "the hung extension was never on record"
        if left:
            return False, f"of the hung extension there is still process {', '.join(map(str, sorted(left)))}"
        return (
            True,
            f"no process is left of the hung extension (it had process {named[0].pid} and its monitor)",
        )

    def _live(self) -> ExtensionHost:
        assert self._host is not None
        return self._host
