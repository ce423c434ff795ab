"""``kill -9`` of Latch at random moments, each followed by ``latch reap``: nothing is left.

Half of the moments lie within 8 ms of a spawn, where a child is not yet bound to its parent's life: the
ledger's record of a start is written right before it. ``LATCH_SOAK=1`` makes ten times as many.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import Operator

pytestmark = [pytest.mark.usefixtures("sandbox"), pytest.mark.soak]

KILLS = 200 if os.environ.get("LATCH_SOAK") == "1" else 20
SIDE_BY_SIDE = 3
NEAR_SECONDS = 0.008
LONGEST_SECONDS = 0.5
POLL_SECONDS = 0.0005
TOKEN = b"LATCH_PROCESS_TOKEN="

CHECK = ("extensions", "--check", "-q")
CALL = ("call", "-q", "hung/sleep", '{"seconds": 60}')


def records(operator: Operator) -> list[dict[str, object]]:
    """Return what the ledger of *operator* holds; a torn last line is left out."""
    found = []
    for file in operator.ledger.glob("*.jsonl"):
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError:
            continue
        found += [json.loads(line) for line in lines if line.endswith(b"}")]
    return found


def spawns(operator: Operator) -> list[str]:
    """Return the token of each start that is on record."""
    return [str(record["begin"]) for record in records(operator) if "begin" in record]


def wait_for_spawn(operator: Operator, number: int, *, seconds: float) -> None:
    """Return right after start *number* was recorded, or after *seconds*."""
    end = time.monotonic() + seconds
    seen: set[str] = set()
    while len(seen) < number and time.monotonic() < end:
        seen.update(spawns(operator))
        time.sleep(POLL_SECONDS)


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
    operator.configure(operator.peer(), operator.peer("--misbehave", "ignores-cancel", name="hung"))
    near = number % 2 == 0
    arguments = CALL
    if number % 4 > 1:
        operator.configure(operator.peer(), operator.peer("--misbehave", "silent:registration", name="hung"))
        arguments = CHECK
    with operator.start(*arguments) as process:
        if near:
            # The probe's start is the first, then one for each extension.
            wait_for_spawn(operator, source.randint(1, 3), seconds=5)
            time.sleep(source.uniform(0, NEAR_SECONDS))
        else:
            time.sleep(source.uniform(0, LONGEST_SECONDS))
        alive = process.poll() is None
        process.kill()
        process.communicate()
    tokens = spawns(operator)
    reaped = operator.run("reap", "--json")
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


def test_the_next_start_sweeps_as_well_as_reap_does(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.configure(operator.peer("--misbehave", "silent"))
    with operator.start(*CHECK) as process:
        wait_for_spawn(operator, 2, seconds=5)
        process.kill()
        process.communicate()
    tokens = spawns(operator)
    assert len(tokens) >= 1
    assert operator.run("sandbox", "--", "true").status == 0
    assert bearers(tokens) == operator.carriers() == []
