"""cli/commands/ps.py: what runs, from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.support.census import eventually
from tests.support.command_line import Operator, listing
from tests.support.orphans import Orphan, leave_orphan


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


@pytest.fixture
def orphan(operator: Operator) -> Iterator[Orphan]:
    with leave_orphan(operator) as left:
        yield left


def children(operator: Operator) -> list[dict[str, object]]:
    return operator.run("ps", "--json").value["children"]


def test_nothing_runs_and_nothing_is_created(operator: Operator) -> None:
    before = listing(operator.place)
    done = operator.run("ps")
    assert (done.status, done.out, done.err) == (0, b"nothing is running\n", b"")
    assert children(operator) == []
    assert listing(operator.place) == before


def test_a_child_of_another_latch_is_listed_while_it_runs(operator: Operator, sandbox: Path) -> None:
    with operator.start("sandbox", "--", "sh", "-c", f"sleep 60; : {operator.marker}") as host:
        assert eventually(lambda: [child["what"] for child in children(operator)] == ['command "sh"'])
        assert eventually(lambda: children(operator)[0]["state"] == "running")
        (child,) = children(operator)
        assert child["host"] == host.pid and child["pid"] in operator.carriers()
        lines = operator.run("ps").text.splitlines()
        assert lines[0].split() == ["WHAT", "PID", "HOST", "STATE"]
        assert lines[1].split()[-3:] == [str(child["pid"]), str(host.pid), "running"]
        host.terminate()
        host.wait()
    assert children(operator) == [] and operator.left() == []


def test_a_record_of_which_nothing_lives_is_not_listed(operator: Operator, sandbox: Path) -> None:
    with operator.start("sandbox", "--", "sh", "-c", f"echo up; sleep 60; : {operator.marker}") as host:
        # Before that a kill may leave an orphan, which is what the sweep is for.
        assert host.stdout.readline() == b"up\n"
        assert [child["state"] for child in children(operator)] == ["running"]
        host.kill()
        host.wait()
        assert operator.left() == []
    assert [path for path in operator.ledger.iterdir() if path.suffix == ".jsonl"] != []
    done = operator.run("ps")
    assert (children(operator), done.text, done.said) == ([], "nothing is running\n", "")


def test_a_process_that_outlived_its_host_is_an_orphan(operator: Operator, orphan: Orphan) -> None:
    expected = {
        "what": 'extension \x1b[31m"x"',
        "pid": orphan.process.pid,
        "host": orphan.host,
        "state": "orphaned",
    }
    assert children(operator) == [expected]
    done = operator.run("ps")
    assert "orphaned" in done.text and done.said == "latch reap ends what dead hosts left\n"
    assert operator.run("ps", "-q").err == b""


def test_a_process_that_bears_the_token_of_a_dead_host_is_an_orphan_though_no_record_names_it(
    operator: Operator,
) -> None:
    with leave_orphan(operator, is_recorded=False) as orphan:
        assert [(child["pid"], child["state"]) for child in children(operator)] == [
            (orphan.process.pid, "orphaned")
        ]


def test_a_name_in_the_ledger_reaches_no_terminal_raw(operator: Operator, orphan: Orphan) -> None:
    with operator.on_terminal("ps") as terminal:
        screen = terminal.finish().said
    assert "\x1b[31m" not in screen and '\\x1b[31m"x"' in screen


def test_listing_changes_nothing(operator: Operator, orphan: Orphan) -> None:
    before = listing(operator.place)
    operator.run("ps")
    assert listing(operator.place) == before and orphan.process.poll() is None


def test_the_configured_state_directory_is_looked_at(operator: Operator) -> None:
    state = operator.place / "state"
    operator.configure(top=f'state_dir = "{state}"')
    with leave_orphan(operator, state=state) as left:
        assert [child["pid"] for child in children(operator)] == [left.process.pid]
