"""cli/commands/reap.py: what killed hosts left ends, and is named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from latch.system.throwaway import states_of_places
from tests.support.census import eventually
from tests.support.command_line import Operator, listing
from tests.support.orphans import leave_orphan


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


@pytest.fixture(autouse=True)
def alone(operator: Operator) -> None:
    """Wait until no throw-away run of this user has left anything: a reap counts that as well."""

    def is_alone() -> bool:
        if states_of_places(os.getuid()):
            operator.run("reap")
        return not states_of_places(os.getuid())

    assert eventually(is_alone, seconds=60)


def test_with_nothing_left_over_nothing_is_created(operator: Operator) -> None:
    before = listing(operator.place)
    done = operator.run("reap")
    assert (done.status, done.out, done.err) == (0, b"nothing was left over\n", b"")
    assert operator.run("reap", "--json").value == {"v": 1, "ended": [], "kept": 0}
    assert listing(operator.place) == before


def test_an_orphan_is_ended_and_named(operator: Operator) -> None:
    with leave_orphan(operator) as orphan:
        done = operator.run("reap")
        assert orphan.process.wait(5) == -signal.SIGKILL
    assert (done.status, done.said) == (0, "")
    kept = "; 1 record is kept for 10 s, in case something of a dead host is still being born\n"
    assert done.text == f"ended 1 left-over process: {orphan.process.pid}" + kept
    assert operator.run("reap").text == "nothing was left over" + kept


def test_several_records_are_counted(operator: Operator) -> None:
    with leave_orphan(operator) as one, leave_orphan(operator) as other:
        ended = ", ".join(map(str, sorted((one.process.pid, other.process.pid))))
        assert operator.run("reap").text == (
            f"ended 2 left-over processes: {ended}; 2 records are kept for 10 s, in case something of a dead "
            "host is still being born\n"
        )


def test_json_names_what_was_ended_and_how_many_records_are_kept(operator: Operator) -> None:
    with leave_orphan(operator) as orphan:
        assert operator.run("reap", "--json").value == {"v": 1, "ended": [orphan.process.pid], "kept": 1}


def test_what_a_living_host_runs_is_left_alone(operator: Operator, sandbox: Path) -> None:
    script = f"echo up; sleep 60; : {operator.marker}"
    with operator.start("sandbox", "--", "sh", "-c", script) as host:
        assert host.stdout.readline() == b"up\n"
        assert operator.run("reap").out == b"nothing was left over\n"
        assert host.poll() is None
        host.terminate()
    assert operator.left() == []


def test_the_configured_state_directory_is_swept(operator: Operator) -> None:
    state = operator.place / "state"
    operator.configure(top=f'state_dir = "{state}"')
    with leave_orphan(operator, state=state) as orphan:
        assert operator.run("reap", "--json").value["ended"] == [orphan.process.pid]


def test_a_fault_in_the_configuration_is_told_and_nothing_is_ended(operator: Operator) -> None:
    operator.configure(top="nonsense = 1")
    with leave_orphan(operator) as orphan:
        done = operator.run("reap", "--json")
        assert (done.status, done.error["code"], orphan.process.poll()) == (2, "config", None)
