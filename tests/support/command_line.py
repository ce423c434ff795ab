"""The command line as an operator uses it: real processes with a home, a configuration and a workspace.

Everything an operator starts, and all that starts from there, carries a marker: the command itself in
its environment, a peer in its environment and on its command line, and with the latter bubblewrap, whose
own environment is empty. :meth:`Operator.left` finds what is still there.
"""

from __future__ import annotations

import json
import os
import pty
import secrets
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Sequence

from tests.support.census import eventually, is_dead
from tests.support.pace import MS

__all__ = ["LATCH", "PEER", "Done", "OnTerminal", "Operator", "listing", "sealed_home"]

ROOT = Path(__file__).resolve().parents[2]
LATCH = ROOT / "bin" / "latch"
PEER = ROOT / "fixtures" / "peers" / "extension.py"
MCP_SERVER = ROOT / "fixtures" / "peers" / "mcp_server.py"
MARKER = "LATCH_TEST_MARKER"
PATIENCE_SECONDS = 60000 * MS
# A new session's leader takes the terminal on its standard input for its own, so that its keys send signals.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Done:
    """How a command ended, what it wrote, and how long it took."""

    status: int
    out: bytes
    err: bytes
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """Its result."""
        return self.out.decode()

    @property
    def said(self) -> str:
        """Its standard error."""
        return self.err.decode()

    @property
    def value(self) -> dict[str, Any]:
        """The one JSON document that its result must be."""
        assert self.out.count(b"\n") == 1 and self.out.startswith(b'{"v": 1'), self
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error that its last line must be, its result being empty and its status the one told."""
        assert self.out == b"", self
        value = json.loads(self.err.splitlines()[-1])
        known = {"code", "message", "hint", "exit"}
        assert list(value) == ["error"] and known <= set(value["error"]) <= known | {
            "errors",
            "result",
        }, value
        return value["error"]


class Operator:
    """Somebody with a home, a configuration and a workspace below *place*."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.directory = self.home / ".latch"
        self.workspace = place / "workspace"
        self.marker = secrets.token_hex(8)
        for path in (self.home, self.workspace):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def file(self) -> Path:
        """The configuration file."""
        return self.directory / "config.toml"

    @property
    def ledger(self) -> Path:
        """Where the record of running children lies by default."""
        return self.directory / "state" / "ledger"

    def configure(
        self,
        *entries: dict[str, Any],
        servers: Sequence[dict[str, Any]] = (),
        top: str = "",
        **tables: dict[str, Any],
    ) -> None:
        """Write the configuration: *top* as it is, *tables*, one ``[[extensions]]`` for each entry and one
        ``[[mcp_servers]]`` for each of *servers*."""
        lines = [top]
        for name, table in tables.items():
            lines += [f"[{name}]", *_pairs(table)]
        for entry in entries:
            lines += ["[[extensions]]", *_pairs(entry)]
        for server in servers:
            lines += ["[[mcp_servers]]", *_pairs(server)]
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self.file.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def peer(self, *options: str, name: str = "one", **keys: Any) -> dict[str, Any]:
        """Return an entry that runs ``fixtures/peers/extension.py`` with *options*."""
        return self.program(PEER, "--marker", self.marker, *options, name=name, **keys)

    def server(self, *options: str, name: str = "near", **keys: Any) -> dict[str, Any]:
        """Return an MCP server's entry that runs ``fixtures/peers/mcp_server.py`` on stdio with *options*."""
        entry = self.program(MCP_SERVER, "--marker", self.marker, *options, name=name, **keys)
        return {"transport": "stdio", **entry}

    def remote(self, url: str, *, name: str = "far", **keys: Any) -> dict[str, Any]:
        """Return the entry of an MCP server over HTTP."""
        return {"name": name, "transport": "streamable_http", "url": url, **keys}

    def program(self, path: Path, *options: str, name: str = "one", **keys: Any) -> dict[str, Any]:
        """Return an entry that runs the Python program *path*."""
        environment = {MARKER: self.marker, **keys.pop("env", {})}
        known = {
            "name": name,
            "command": sys.executable,
            "args": ["-ES", str(path), *options],
            "network": False,
        }
        return {**known, "env": environment, **keys}

    # -- running ----------------------------------------------------------------------------------

    def environment(self, **changes: str | None) -> dict[str, str]:
        """Return this operator's environment; a variable that is None in *changes* is not in it."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("LATCH_DIR")}
        known.update({"HOME": str(self.home), MARKER: self.marker, "NO_COLOR": "1"})
        known.update({name: value for name, value in changes.items() if value is not None})
        return {name: value for name, value in known.items() if changes.get(name, "") is not None}

    def argv(self, *arguments: str) -> list[str]:
        """Return the command line of ``latch`` with *arguments*."""
        return [sys.executable, str(LATCH), *arguments]

    def start(
        self, *arguments: str, before: Sequence[str] = (), env: dict[str, str] | None = None, **how: Any
    ) -> Any:
        """Start ``latch`` in the workspace and return the process; *before* is a command to start it by."""
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.Popen(
            [*before, *self.argv(*arguments)],
            cwd=how.pop("cwd", self.workspace),
            env=self.environment() if env is None else env,
            **how,
        )

    def run(self, *arguments: str, given: bytes | None = None, **how: Any) -> Done:
        """Run ``latch`` to its end, with *given* on its standard input where that is not None."""
        if given is not None:
            how["stdin"] = subprocess.PIPE
        began = time.monotonic()
        with self.start(*arguments, **how) as process:
            try:
                out, err = process.communicate(given, timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Done(process.returncode, out or b"", err or b"", time.monotonic() - began)

    def on_terminal(self, *arguments: str, **how: Any) -> OnTerminal:
        """Start ``latch`` on a terminal of its own; streams given in *how* lead elsewhere."""
        return OnTerminal(self, arguments, how)

    # -- looking ----------------------------------------------------------------------------------

    def carriers(self) -> list[int]:
        """Return the live processes that carry the marker, in their environment or on their command line."""
        found, wanted = [], self.marker.encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and any(
                wanted in _read(f"/proc/{name}/{file}") for file in ("environ", "cmdline")
            ):
                if not is_dead(int(name)):
                    found.append(int(name))
        return found

    def left(self, *, seconds: float = 2.0) -> list[str]:
        """Return what still carries the marker after at most *seconds*, as command lines."""
        eventually(lambda: not self.carriers(), seconds=seconds)
        return [f"{pid}: {_read(f'/proc/{pid}/cmdline')!r}" for pid in self.carriers()]

    def peer_shows(self, name: str) -> bool:
        """Tell whether a peer took *name*; ``fixtures/peers/extension.py`` says when it takes which."""
        return any(_read(f"/proc/{pid}/comm") == name.encode() + b"\n" for pid in self.carriers())


class OnTerminal:
    """A command on a pseudo terminal; leaving the block ends it."""

    def __init__(self, operator: Operator, arguments: Sequence[str], how: dict[str, Any]) -> None:
        self.screen = b""
        self._keyboard, other = pty.openpty()
        take = (sys.executable, "-ES", "-c", _TAKE_TERMINAL)
        streams = {"stdin": other, "stdout": other, "stderr": other, **how}
        try:
            self.process = operator.start(*arguments, before=take, start_new_session=True, **streams)
        finally:
            os.close(other)

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._keyboard)

    def press(self, keys: bytes) -> None:
        """Type *keys*."""
        os.write(self._keyboard, keys)

    def wait_for(self, text: bytes) -> None:
        """Read the screen until *text* is on it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in self.screen:
            assert self._read(end), (text, self.screen)

    def hang_up(self) -> None:
        """Close the terminal, as a window is closed."""
        os.close(self._keyboard)
        self._keyboard = os.open(os.devnull, os.O_RDONLY)

    def finish(self) -> Done:
        """Wait for the end; what was shown is the ``err`` of the result, and what was piped its ``out``."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self._read(end):
            pass
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return Done(self.process.returncode, out or b"", self.screen)

    def _read(self, end: float) -> bool:
        if not select.select([self._keyboard], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(self.screen)
        try:
            chunk = os.read(self._keyboard, 65536)
        except OSError:
            # Linux says so when the last of the other side was closed.
            chunk = b""
        self.screen += chunk
        return bool(chunk)


@contextmanager
def sealed_home(operator: Operator, bwrap: Path) -> Iterator[tuple[str, ...]]:
    """Make the home of *operator* read-only; yields what a command line must start with to find it so.

    Permissions do not hold root, who gets a mount instead; below that mount an ordinary user would be in a
    user namespace where bubblewrap itself no longer belongs to root.
    """
    home = str(operator.home)
    if os.getuid() == 0:
        yield (str(bwrap), "--dev-bind", "/", "/", "--ro-bind", home, home, "--")
        return
    directories = [operator.home, *(path for path in operator.home.rglob("*") if path.is_dir())]
    for path in directories:
        path.chmod(0o500)
    try:
        yield ()
    finally:
        for path in directories:
            path.chmod(0o700)


def listing(*places: Path) -> list[tuple[str, int, int, int]]:
    """Return everything below *places*: path, mode, size, and when it was last changed."""
    found = []
    for place in places:
        for path in (place, *sorted(place.rglob("*"))):
            status = path.lstat()
            found.append((str(path), status.st_mode, status.st_size, status.st_mtime_ns))
    return found


def _inline(pairs: dict[str, Any]) -> str:
    """Return *pairs* as an inline table."""
    return "{ " + ", ".join(_pairs(pairs)) + " }"


def _pairs(table: dict[str, Any]) -> list[str]:
    return [
        f"{key} = {_inline(value) if isinstance(value, dict) else json.dumps(value, default=str)}"
        for key, value in table.items()
    ]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
