"""``make bench``: what Latch costs, as ratios to a floor measured in the same run.

Every row is measured alternately with its floor, each in front every other time, so that a noisy machine
hits both alike. A row shows the two medians, their ratio, the most that was promised for it, and the ratio
of the two shortest times, which is what is left of it where nothing disturbs. Nothing here passes or fails.

A start is measured for root and for an ordinary user, if root runs this: only root's children enter a
control group, which the kernel takes its time for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from latch.errors import LatchError  # noqa: E402
from latch.limits import Limits  # noqa: E402
from latch.extensions.host import ExtensionHost  # noqa: E402
from latch.settings import ExtensionSettings, SandboxSettings  # noqa: E402
from latch.system.planning import Prepared  # noqa: E402
from latch.system.sandbox import Sandbox  # noqa: E402
from latch.system.scope import Scope  # noqa: E402
from tests import bench_http, bench_mcp  # noqa: E402

# One peer for both sides, without SDK or framework, so that the ratio is that of the hosts.
PEER = """
import json, sys
read, out = sys.stdin.buffer, sys.stdout.buffer
def send(message):
    body = json.dumps(message).encode()
    out.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    out.flush()
while True:
    header = read.readline()
    read.readline()
    request = json.loads(read.read(int(header[16:])))
    method = request.get("method")
    if method == "tool.execute":
        send({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]["arguments"]})
    elif method == "initialize":
        send({"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": "0.1"}})
    elif method == "initialized":
        send({"jsonrpc": "2.0", "method": "tool.register", "params": {"name": "echo"}})
        send({"jsonrpc": "2.0", "method": "ready", "params": {}})
    elif method == "shutdown":
        send({"jsonrpc": "2.0", "id": request["id"], "result": None})
    elif method == "exit":
        sys.exit(0)
"""
ARGUMENTS = {"text": "x" * 120, "count": 7, "flags": [True, False, None]}
ROUNDS_TIMED_TOGETHER = 50
# An ordinary user on every system.
NOBODY = 65534


def main() -> None:
    """Measure every row and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=60, help="rounds of each row")
    rounds = parser.parse_args().n
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {rounds} rounds, medians")
    print(f"{'':<42} {'floor':>10} {'latch':>10} {'ratio':>7} {'at most':>8} {'shortest':>9}")
    bench_http.measure(_row, rounds)
    with tempfile.TemporaryDirectory(prefix="latch-bench-") as place:
        os.environ["LATCH_DIRECTORY"] = str(Path(place, "latch"))
        _round_trips_on_one_core(Path(place), rounds)
        who = "root" if os.geteuid() == 0 else "ordinary user"
        _row(f"spawn to end / bwrap alone, {who}", 1.3, rounds, *_spawn(Path(place)))
    if os.geteuid() == 0:
        _spawn_as_nobody(rounds)
    _row(
        "latch --version / python -c pass",
        1.5,
        rounds,
        _run("-c", "pass"),
        _run(str(ROOT / "bin/latch"), "--version"),
    )
    _row(
        "latch --help / python -c pass",
        2.5,
        rounds,
        _run("-c", "pass"),
        _run(str(ROOT / "bin/latch"), "--help"),
    )
    bench_mcp.print_rows()


def _row(
    name: str,
    most: float,
    rounds: int,
    floor: Callable[[], None],
    ours: Callable[[], None],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    floors: list[float] = []
    times: list[float] = []
    floor(), ours()
    for number in range(rounds):
        pair = [(floors, floor), (times, ours)]
        for taken, work in pair if number % 2 == 0 else reversed(pair):
            taken.append(_timed(work, clock))
    low, high = statistics.median(floors), statistics.median(times)
    cells = f"{low * 1e3:>8.3f}ms {high * 1e3:>8.3f}ms {high / low:>7.2f} {most:>8.1f}"
    print(f"{name:<42} {cells} {min(times) / min(floors):>9.2f}", flush=True)


def _timed(work: Callable[[], None], clock: Callable[[], float]) -> float:
    began = clock()
    work()
    return clock() - began


def _round_trips_on_one_core(place: Path, rounds: int) -> None:
    """Measure round trips with both ends of either side on one core.

    Where the scheduler puts two processes that wait for each other decides otherwise: on two cores the same
    row came out between 0.8 and 4.3. In a process of its own, because what it starts keeps to that core.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            with _round_trip(place) as (floor, ours):
                name = f"{ROUNDS_TIMED_TOGETHER} extension round trips / raw pipe"
                _row(name, 2.0, rounds, floor, ours)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("the round trips could not be measured")


@contextmanager
def _round_trip(place: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    workspace, program = place / "workspace", place / "peer" / "peer.py"
    workspace.mkdir()
    program.parent.mkdir()
    program.write_text(PEER)
    raw = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert raw.stdin is not None and raw.stdout is not None
    write, answers = raw.stdin.write, os.fdopen(os.dup(raw.stdout.fileno()), "rb")
    settings = ExtensionSettings(name="bench", command=sys.executable, args=(str(program),))
    host = ExtensionHost.open(settings, workspace=workspace, scope=Scope.root())
    scope = Scope.root()

    def floor() -> None:
        for number in range(ROUNDS_TIMED_TOGETHER):
            request = {
                "id": number,
                "method": "tool.execute",
                "params": {"name": "echo", "arguments": ARGUMENTS},
            }
            body = json.dumps(request).encode()
            write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            length = int(answers.readline()[16:])
            answers.readline()
            assert json.loads(answers.read(length))["result"] == ARGUMENTS

    def ours() -> None:
        for _ in range(ROUNDS_TIMED_TOGETHER):
            assert host.call_tool("echo", ARGUMENTS, scope) == ARGUMENTS

    yield floor, ours
    host.close()
    raw.kill()
    raw.wait()


def _spawn(place: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    workspace = place / "workspace"
    workspace.mkdir(exist_ok=True)
    sandbox = Sandbox(SandboxSettings(state_directory=place / "state"))
    scope = Scope.root()
    bubblewrap = sandbox.ready(scope, wanted="the benchmark")
    prepared = sandbox.planner.prepare_command(
        ("/usr/bin/true",), workspace=workspace, writable=False, network=True, features=bubblewrap.features
    )

    def floor() -> None:
        descriptors, words = _words(prepared)
        process = subprocess.Popen(
            [str(bubblewrap.path), *words, "--", *prepared.plan.argv],
            env={},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
        )
        process.communicate()
        assert process.returncode == 0
        for descriptor in descriptors:
            os.close(descriptor)

    def ours() -> None:
        child = sandbox.start(prepared, scope)
        with child.driving():
            child.wait_exit(scope)
        ended = child.end(scope.shielded(Limits().process.kill_seconds))
        assert ended.status == 0

    return floor, ours


def _spawn_as_nobody(rounds: int) -> None:
    """Measure a start in a process that gave up being root, or say why it cannot be."""
    place = Path(tempfile.mkdtemp(prefix="latch-bench-"))
    try:
        for directory in (place, place / "workspace", place / "home"):
            directory.mkdir(exist_ok=True)
            os.chown(directory, NOBODY, NOBODY)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                os.environ.update(HOME=str(place / "home"), LATCH_DIRECTORY=str(place / "latch"))
                _row("spawn to end / bwrap alone, ordinary user", 1.3, rounds, *_spawn(place))
                status = 0
            except LatchError as error:
                print(f"spawn to end as an ordinary user: not measured: {error}", flush=True)
                status = 0
            finally:
                os._exit(status)
        os.waitpid(child, 0)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _words(prepared: Prepared) -> tuple[list[int], list[str]]:
    """The plan's own operations as plain arguments, files copied from descriptors as in our own start."""
    descriptors, words = [], []
    for operation in prepared.plan.operations:
        words.append(operation.option)
        if operation.content is not None:
            content = operation.content
            data = content if isinstance(content, bytes) else Path(content).read_bytes()
            descriptor = os.memfd_create("bench")
            os.write(descriptor, data)
            os.lseek(descriptor, 0, os.SEEK_SET)
            descriptors.append(descriptor)
            words.append(str(descriptor))
        words += operation.arguments
    return descriptors, words


def _run(*arguments: str) -> Callable[[], None]:
    def work() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    return work


if __name__ == "__main__":
    main()
