"""Real servers against Latch: connect, list, call, close, and leave no process.

A server on its standard streams is started by Latch in its sandbox from a configuration file such as an
operator would write; one over HTTP is a process of the harness, on a port of loopback.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping
from urllib.parse import urlsplit

import latch
from tests.interop.installs import FILES, TOOLS, Installs
from tests.interop.outcome import Outcome
from tests.support.census import carriers, eventually, is_dead
from tests.support.tree import ROOT

MARK = "LATCH_INTEROP_MARK"
PLACEHOLDER = re.compile(r"\{([a-z0-9-]+)\}")
PAGE = b"<html><body><p>a page of words</p></body></html>"
# Longer than any server takes to start on two busy cores.
START_SECONDS = 60
SERVER_SECONDS = 120
POLL_SECONDS = 0.05


def needs(given: Mapping[str, Any], installs: Installs) -> set[str]:
    """Return the names of the installs that the ``[[servers]]`` table *given* uses."""
    used = set(PLACEHOLDER.findall(json.dumps([given["command"], given.get("env", {})])))
    return (used & set(installs.names())) | ({TOOLS} if "node" in used else set())


def run_server(given: Mapping[str, Any], installs: Installs, directory: Path) -> Outcome:
    """Try one ``[[servers]]`` table; what it needs is installed. *directory* is for all servers' places."""
    outcome = Outcome(given["name"])
    with outcome.timed():
        try:
            run = _Run(given, installs, directory / given["name"], outcome)
        except (OSError, subprocess.CalledProcessError) as error:
            outcome.fail(f"it could not be prepared: {error}")
            return outcome
        try:
            with run.started():
                run.through_the_api()
                if given.get("cli"):
                    run.through_the_command_line()
            run.count_what_is_left()
        except latch.LatchError as error:
            outcome.fail(f"{type(error).__name__}: {error}")
        except Exception:
            outcome.fail(traceback.format_exc().strip())
        finally:
            run.end_what_is_left()
    if outcome.problems:
        outcome.fail(f"what it printed: {run.log}" if "url" in given else f"its configuration: {run.config}")
    return outcome


class _Run:
    """One server with its folder: ``workspace``, ``place`` and, over HTTP, ``log``."""

    def __init__(self, given: Mapping[str, Any], installs: Installs, folder: Path, outcome: Outcome) -> None:
        self._outcome = outcome
        self._needs = needs(given, installs)
        self._before = _children()
        self._mark = os.urandom(8).hex()
        self._workspace, self._place = folder / "workspace", folder / "place"
        # The folder of a configuration is private: nothing in it can be shown to a server.
        self.config = folder.parent.with_name("latch") / f"{given['name']}.toml"
        self.log = folder / "log"
        shutil.rmtree(folder, ignore_errors=True)
        for made in (self._workspace, self._place):
            made.mkdir(parents=True)
        self._values = {name: str(installs.folder(name)) for name in installs.names()}
        self._values.update(place=str(self._place), servers=str(FILES), port=str(_free_port()))
        self._values["node"] = str(installs.node)
        text = json.dumps(given)
        if "{repository}" in text:
            self._values["repository"] = str(_make_repository(self._place / "repository"))
        self._page = _Page() if "{page}" in text else None
        if self._page is not None:
            self._values["page"] = self._page.url
        self._given = self._filled(given)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda found: self._values.get(found[1], found[0]), value)
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, dict):
            return {key: self._filled(item) for key, item in value.items()}
        return value

    # --- before and after -------------------------------------------------------------------------------

    @contextmanager
    def started(self) -> Iterator[None]:
        """Write the configuration; start the server if that is not Latch's part, and end it afterwards."""
        self.config.write_text(self._configuration(), encoding="utf-8")
        if "url" not in self._given:
            yield
            return
        home = self._place / "home"
        home.mkdir()
        path = f"{Path(self._values['node']).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", MARK: self._mark}
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                self._given["command"],
                cwd=self._place,
                env={**own, **self._given.get("env", {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            _wait_until_served(self._given["url"], process)
            yield
        finally:
            _end(process)

    def _configuration(self) -> str:
        given = self._given
        lines = ["[[mcp_servers]]", f"name = {_toml(given['name'])}"]
        if "url" in given:
            lines += ['transport = "streamable_http"', f"url = {_toml(given['url'])}"]
        else:
            text = json.dumps([given["command"], given.get("env", {}), given.get("calls", [])])
            writable = [str(self._place)] if str(self._place) in text else []
            environment = {**given.get("env", {}), MARK: self._mark}
            lines += [
                'transport = "stdio"',
                f"command = {_toml(given['command'][0])}",
                f"args = {_toml(given['command'][1:])}",
                f"env = {{ {', '.join(f'{name} = {_toml(text)}' for name, text in environment.items())} }}",
                f"ro_paths = {_toml([self._values[name] for name in sorted(self._needs)])}",
                f"rw_paths = {_toml(writable)}",
                f"network = {_toml(given.get('network', False))}",
                f"lifetime = {_toml(given.get('lifetime', 'session'))}",
            ]
        return "\n".join([*lines, f"timeout_seconds = {START_SECONDS}", ""])

    def count_what_is_left(self) -> None:
        """Fail for every process that this server or Latch left behind."""
        left = sorted({*carriers(self._mark), *(_children() - self._before)})
        for pid in left:
            self._outcome.fail(f"process {pid} is left: {_command_line(pid)}")

    def end_what_is_left(self) -> None:
        """Kill, by number, what carries this run's mark, so that the next one starts clean."""
        for pid in carriers(self._mark):
            os.kill(pid, signal.SIGKILL)
        if self._page is not None:
            self._page.close()

    # --- what is tried --------------------------------------------------------------------------------

    def through_the_api(self) -> None:
        """Open a client, see what it found, make the calls, and close it."""
        scope = latch.Scope.root(seconds=SERVER_SECONDS)
        entry = latch.Settings.load(self.config).mcp_servers[0]
        began = time.monotonic()
        try:
            client = latch.McpClient.open(entry, workspace=self._workspace, scope=scope)
        except latch.LatchError as error:
            if "refused" not in self._given or self._given["refused"] not in _sentence(error):
                raise
            self._outcome.note("refused, as it must be")
            return
        self._outcome.note(f"{client.protocol_version}, {len(client.tools)} tools")
        self._outcome.note(f"open {time.monotonic() - began:.2f} s")
        for text in client.diagnostics:
            self._outcome.remark(text)
        try:
            self._judge_opened(client)
            for call in self._given.get("calls", ()):
                self._judge_call(client, call, scope)
        finally:
            client.close()
        for name, text in self._given.get("leaves", {}).items():
            if text not in (self._place / name).read_text(encoding="utf-8"):
                self._outcome.fail(f"no {text!r} in the file {name}")
        if "url" not in self._given:
            self.count_what_is_left()

    def _judge_opened(self, client: latch.McpClient) -> None:
        if "refused" in self._given:
            self._outcome.fail(f"opening it must fail with {self._given['refused']!r}, and did not")
        elif client.protocol_version != self._given["version"]:
            self._outcome.fail(f"negotiated {client.protocol_version}, must be {self._given['version']}")
        elif len(client.tools) < self._given["tools"]:
            self._outcome.fail(f"{len(client.tools)} tools, must be {self._given['tools']} at least")

    def _judge_call(self, client: latch.McpClient, call: Mapping[str, Any], scope: latch.Scope) -> None:
        if "seconds" in call:
            scope = latch.Scope.root(seconds=call["seconds"])
        try:
            result = client.call_tool(call["tool"], call.get("arguments", {}), scope)
        except latch.LatchError as error:
            if "refused" not in call or call["refused"] not in _sentence(error):
                raise
            return
        if "refused" in call:
            self._outcome.fail(f"{call['tool']} must fail with {call['refused']!r}, and did not")
            return
        texts = [block.get("text", "") for block in result.content]
        found = "\n".join([*texts, json.dumps(dict(result.raw), ensure_ascii=False)])
        if call["expect"] not in found:
            self._outcome.fail(f"{call['tool']}: no {call['expect']!r} in {found[:1000]}")
        if result.is_error is not call.get("error", False):
            self._outcome.fail(f"{call['tool']}: is_error is {result.is_error}: {found[:1000]}")

    def through_the_command_line(self) -> None:
        """Check the server and make its first call as a person would."""
        checked = self._latch("mcp", "--check", "--json")
        if checked is not None:
            (found,) = json.loads(checked)["servers"]
            if found["protocol_version"] != self._given["version"] or found["tools"] < self._given["tools"]:
                self._outcome.fail(f"latch mcp --check --json: {checked}")
        call = self._given["calls"][0]
        tool = f"{self._given['name']}/{call['tool']}"
        said = self._latch("call", tool, json.dumps(call.get("arguments", {})))
        if said is not None and call["expect"] not in said:
            self._outcome.fail(f"latch call {tool}: no {call['expect']!r} in {said[:1000]}")
        self._outcome.note("command line")

    def _latch(self, *arguments: str) -> str | None:
        command = [
            sys.executable,
            str(ROOT / "bin" / "latch"),
            "--config",
            str(self.config),
            "--non-interactive",
        ]
        done = subprocess.run(
            [*command, "-C", str(self._workspace), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=SERVER_SECONDS,
            text=True,
            errors="replace",
        )
        if done.returncode == 0:
            return done.stdout
        self._outcome.fail(f"latch {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}")
        return None


def _sentence(error: latch.LatchError) -> str:
    return f"{error}; {error.hint}"


class _Page:
    """A page on loopback, served until closed."""

    def __init__(self) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(PAGE)))
                self.end_headers()
                self.wfile.write(PAGE)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _wait_until_served(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return once anything is answered at *url*: some servers open their port before they serve."""
    parts = urlsplit(url)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode} before it served")
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=START_SECONDS)
        try:
            connection.request("GET", parts.path, headers={"Accept": "text/event-stream"})
            connection.getresponse()
            return
        except (OSError, http.client.HTTPException):
            time.sleep(POLL_SECONDS)
        finally:
            connection.close()
    raise RuntimeError(f"the server did not serve {url} within {START_SECONDS} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process of ours and its group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        if eventually(lambda: process.poll() is not None and not _group(process.pid), seconds=3):
            break
    process.wait()


def _group(leader: int) -> list[int]:
    return [pid for pid in _processes() if _stat(pid)[2:3] == [str(leader)] and not is_dead(pid)]


def _children() -> frozenset[int]:
    """Return the live processes that this one is the parent of."""
    own = str(os.getpid())
    return frozenset(pid for pid in _processes() if _stat(pid)[1:2] == [own] and not is_dead(pid))


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return state, parent, group and the rest of process *pid*; nothing when it is gone."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return []


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "(gone since)"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def _make_repository(path: Path) -> Path:
    path.mkdir()
    (path / "a.txt").write_text("first words\n", encoding="ascii")
    identity = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    for words in (["init", "-q"], ["add", "a.txt"], [*identity, "commit", "-q", "-m", "first words"]):
        subprocess.run(["git", "-C", str(path), *words], check=True, stdin=subprocess.DEVNULL)
    return path


def _toml(value: object) -> str:
    # Texts, lists of texts and truth are written alike in both.
    return json.dumps(value)
