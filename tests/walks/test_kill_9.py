"""``kill -9`` of Latch at random moments, each followed by ``latch reap``: nothing is left.

Half of the moments lie within 8 ms of a spawn, where a child is not yet bound to its parent's life: the
ledger's record of a start is written right before it. ``LATCH_SOAK=1`` makes ten times as many.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from latch.system.throwaway import base_of
from tests.support.census import eventually
from tests.support.command_line import Operator

pytestmark = [pytest.mark.usefixtures("sandbox"), pytest.mark.soak]

KILLS = 200 if os.environ.get("LATCH_SOAK") == "1" else 20
SIDE_BY_SIDE = 3
NEAR_SECONDS = 0.008
POLL_SECONDS = 0.0005
TOKEN = b"LATCH_PROCESS_TOKEN="

CHECK = ("extensions", "--check", "-q")
CALL = ("call", "-q", "hung/sleep", '{"seconds": 60}')
DEMO = ("demo",)
DOCTOR = ("doctor", "-q")
# Each with how many starts it surely has: two questions to bubblewrap and a probe, then, where it is configured with
# extensions, those.
COMMANDS = ((CALL, 5), (CHECK, 5), (DEMO, 3), (DOCTOR, 3))
# What each surely takes; the first two hang, and the demo waits for 0.5 s.
LONGEST_SECONDS = {CALL: 0.5, CHECK: 0.5, DEMO: 0.4, DOCTOR: 0.05}


def places(host: int) -> list[Path]:
    """Return the ledgers of throw-away runs of process *host*."""
    return list(base_of(os.getuid()).glob(f"run-*/state/ledger/{host}-*.jsonl"))


def records(operator: Operator, host: int = 0) -> list[dict[str, object]]:
    """Return what the ledgers of *operator*, and of its process *host*, hold; a torn last line is left out."""
    found = []
    for file in (*operator.ledger.glob("*.jsonl"), *places(host)):
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError:
            continue
        found += [json.loads(line) for line in lines if line.endswith(b"}")]
    return found


def spawns(operator: Operator, host: int = 0) -> list[str]:
    """Return the token of each start that is on record."""
    return [str(record["begin"]) for record in records(operator, host) if "begin" in record]


def wait_for_spawn(operator: Operator, number: int, host: int = 0, *, seconds: float) -> None:
    """Return right after start *number* was recorded, or after *seconds*."""
    end = time.monotonic() + seconds
    seen: set[str] = set()
    while len(seen) < number and time.monotonic() < end:
        seen.update(spawns(operator, host))
        time.sleep(POLL_SECONDS)


def wait_for_extension(operator: Operator, name: str, host: int) -> None:
    """Return once the start of extension *name* was recorded: what starts before it does not last."""
    wanted = f'extension "{name}"'
    assert eventually(lambda: any(record.get("what") == wanted for record in records(operator, host)))


def bearers(tokens: list[str]) -> list[int]:
    """Return the processes that carry one of *tokens*, zombies left out: theirs cannot be read."""
    wanted = {TOKEN + token.encode() for token in tokens}
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                carried = stream.read().split(b"\0")
        except OSError:
            continue
        if wanted.intersection(carried):
            found.append(int(name))
    return found


@dataclass(frozen=True)
class Kill:
    """One kill: whether Latch still ran, what the reap ended, what was left."""

    told: str
    alive: bool
    ended: int
    left: tuple[str, ...]


def kill_once(place: Path, number: int) -> Kill:
    """Kill one Latch, reap, and look; what is left nevertheless is ended and told."""
    source = random.Random(number)
    operator = Operator(place / str(number))
    near = number % 2 == 0
    arguments, starts = COMMANDS[number // 2 % len(COMMANDS)]
    hangs = "silent:registration" if arguments == CHECK else "ignores-cancel"
    operator.configure(operator.peer(), operator.peer("--misbehave", hangs, name="hung"))
    with operator.start(*arguments) as process:
        if near:
            wait_for_spawn(operator, source.randint(1, starts), process.pid, seconds=5)
            time.sleep(source.uniform(0, NEAR_SECONDS))
        else:
            time.sleep(source.uniform(0, LONGEST_SECONDS[arguments]))
        alive = process.poll() is None
        process.kill()
        process.communicate()
    tokens = spawns(operator, process.pid)
    reaped = operator.run("reap", "--json")
    for file in places(process.pid):
        # Its time would come; who counts what is kept should not see it until then.
        shutil.rmtree(file.parents[2])
    stubborn = {*bearers(tokens), *operator.carriers()}
    for pid in stubborn:
        os.kill(pid, signal.SIGKILL)
    return Kill(
        told=f"{number}: {' '.join(arguments)}, {'near a spawn' if near else 'anywhere'}",
        alive=alive,
        ended=len(reaped.value["ended"]) if reaped.status == 0 else 0,
        left=(*map(str, stubborn), *([] if reaped.status == 0 else [reaped.said])),
    )


def test_nothing_is_left_after_a_kill_and_a_reap(tmp_path: Path) -> None:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        kills = list(pool.map(lambda number: kill_once(tmp_path, number), range(KILLS)))
    ended = sum(kill.ended for kill in kills)
    print(
        f"{len(kills)} kills, {sum(kill.alive for kill in kills)} of a running Latch; "
        f"reaps ended {ended} processes"
    )
    assert [kill for kill in kills if kill.left] == []
    assert all(kill.alive for kill in kills), [kill.told for kill in kills if not kill.alive]


def test_the_place_of_a_killed_throw_away_run_is_removed_when_its_time_has_come(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    with operator.start(*DEMO) as process:
        wait_for_extension(operator, "demo", process.pid)
        process.kill()
        process.communicate()
    (file,) = places(process.pid)
    place = file.parents[2]
    assert operator.run("reap").status == 0
    assert place.is_dir()
    # As if it had been seen dead since boot, instead of waiting for ten seconds.
    file.write_bytes(file.read_bytes().replace(b'"seen_dead":', b'"seen_dead":0,"then":'))
    assert operator.run("reap").status == 0
    assert not place.exists()


def test_the_next_start_sweeps_as_well_as_reap_does(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.configure(operator.peer("--misbehave", "silent"))
    with operator.start(*CHECK) as process:
        wait_for_extension(operator, "one", process.pid)
        process.kill()
        process.communicate()
    tokens = spawns(operator)
    assert len(tokens) >= 1
    assert operator.run("sandbox", "--", "true").status == 0
    assert bearers(tokens) == operator.carriers() == []
