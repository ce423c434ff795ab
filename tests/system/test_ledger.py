"""What a killed host left is found and ended, and nothing else is touched."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Iterator

import pytest

from latch.errors import Cancelled, DeadlineMissed, StoreError, UnsafeModes
from latch.limits import ProcessLimits
from latch.system.ledger import (
    TOKEN_VARIABLE,
    Entry,
    Ledger,
    Swept,
    bearers,
    check_state,
    group_name,
    has_dead_host,
    read_entries,
    sweep,
)
from latch.system.processes import ProcessId, here, identify
from latch.system.scope import Scope
from tests.support.census import carriers, eventually, is_dead

CHECKOUT = Path(__file__).resolve().parents[2]
QUICK = ProcessLimits(rescan_seconds=0.02, dead_host_seconds=0.1)
# A number that is in use, with a start that is not that process's: as after its number was used again.
DEAD_HOST = ProcessId(os.getpid(), 1)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"


def sweep_now(state: Path, limits: ProcessLimits = QUICK) -> Swept:
    """Sweep *state* for this user."""
    return sweep(state, uid=os.getuid(), limits=limits, scope=Scope.root(30))


def files(state: Path) -> list[Path]:
    """The files of the ledger."""
    return sorted((state / "ledger").iterdir())


def leave(
    state: Path,
    *records: dict[str, object],
    host: ProcessId = DEAD_HOST,
    boot: str | None = None,
    namespace: int | None = None,
    tail: bytes = b"",
) -> Path:
    """Write the file of *host* as the host would have, and return it."""
    place = here()
    first = {
        "v": 1,
        "boot": boot or place.boot,
        "namespace": namespace or place.namespace,
        "host": [host.pid, host.start],
    }
    path = state / "ledger" / f"{host.pid}-{host.start}-{os.urandom(4).hex()}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(b"\n" + json.dumps(record).encode() for record in (first, *records)) + tail)
    return path


def begin(token: str, *, group: object = None) -> dict[str, object]:
    """The record of a start."""
    return {"begin": token, "what": "test", "group": group}


def started(token: str, *, init: object = None, monitor: object = None) -> dict[str, object]:
    """The record of what is known of a start."""
    return {"started": token, "init": init, "monitor": monitor}


@contextmanager
def process(token: str | None = None) -> Iterator[subprocess.Popen]:
    """A process of this user that carries *token*."""
    environment = {"PATH": os.environ["PATH"], **({TOKEN_VARIABLE: token} if token else {})}
    running = subprocess.Popen(["sleep", "60"], env=environment)
    # Until it has run exec, it has this process's environment.
    assert eventually(lambda: b"sleep" in Path(f"/proc/{running.pid}/cmdline").read_bytes())
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def run_host(script: str, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run *script* as a process of its own; ``state`` is its first argument."""
    return subprocess.run(
        [sys.executable, "-c", script, str(state), *arguments],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def descriptors_in_use() -> int:
    """Count this process's descriptors without opening one."""
    count = 0
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        count += 1
    return count


# -- writing ----------------------------------------------------------------------------------------


def test_nothing_is_created_before_the_first_start(state: Path) -> None:
    Ledger(state)
    assert not state.exists()
    assert read_entries(state) == []
    assert sweep_now(state) == Swept((), (), 0)
    assert not state.exists()


def test_a_start_is_recorded_before_it_happens_in_a_private_file(state: Path) -> None:
    token = Ledger(state).begin('extension "lint"')
    assert re.fullmatch("[0-9a-f]{32}", token)
    (path,) = files(state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    us = identify(os.getpid())
    assert read_entries(state) == [Entry(token, 'extension "lint"', us, True, None, None, None)]


def test_what_is_known_of_the_processes_is_added(state: Path) -> None:
    ledger = Ledger(state)
    token = ledger.begin("x", groups=Path("/g"))
    ledger.started(token, init=ProcessId(11, 22), monitor=ProcessId(33, 44))
    (entry,) = read_entries(state)
    assert (entry.init, entry.monitor) == (ProcessId(11, 22), ProcessId(33, 44))
    assert entry.group == f"/g/{group_name(token)}"
    assert (entry.token, entry.what) == (token, "x")
    ledger.started(token, init=None, monitor=None)
    assert read_entries(state)[0].init is None


def test_every_start_has_a_token_of_its_own(state: Path) -> None:
    ledger = Ledger(state)
    assert len({ledger.begin("x") for _ in range(50)}) == 50
    assert len(files(state)) == 1


def test_the_last_end_removes_the_file_and_an_earlier_one_does_not(state: Path) -> None:
    ledger = Ledger(state)
    first, second = ledger.begin("1"), ledger.begin("2")
    ledger.ended(first)
    assert [entry.token for entry in read_entries(state)] == [second]
    ledger.ended(second)
    assert files(state) == []
    ledger.ended(second)
    third = ledger.begin("3")
    assert [entry.token for entry in read_entries(state)] == [third]


def test_an_end_that_cannot_be_written_is_no_error(state: Path) -> None:
    ledger = Ledger(state)
    token = ledger.begin("1")
    for path in files(state):
        path.unlink()
    ledger.ended(token)


@pytest.mark.parametrize("obstacle", ["file", "read-only"])
def test_a_start_that_cannot_be_recorded_is_refused_with_the_cure(tmp_path: Path, obstacle: str) -> None:
    if obstacle == "file":
        place = tmp_path / "plain"
        place.write_text("a file")
    else:
        if os.getuid() == 0:
            pytest.skip("root writes everywhere")
        place = tmp_path / "closed"
        place.mkdir(mode=0o500)
    with pytest.raises(StoreError) as caught:
        Ledger(place / "state").begin("x")
    error = caught.value
    assert error.path == str(place / "state" / "ledger")
    assert error.reason.startswith(f'"{error.path}": cannot record a process start: ')
    assert error.hint == "make it writable, or set LATCH_DIRECTORY or state_dir to a directory that is"


FULL = """
import os, resource, signal, sys
from pathlib import Path
from latch.errors import StoreError
from latch.system.ledger import Ledger

def allow(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
whole = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
ledger = Ledger(Path(sys.argv[1]))
if sys.argv[2] == "started":
    token = ledger.begin("first")
    allow(next(Path(sys.argv[1], "ledger").iterdir()).stat().st_size + 10)
    call = lambda: ledger.started(token, init=None, monitor=None)
elif sys.argv[2] == "begin":
    ledger.begin("zeroth")
    allow(next(Path(sys.argv[1], "ledger").iterdir()).stat().st_size + 10)
    call = lambda: ledger.begin("refused")
else:
    allow(10)
    call = lambda: ledger.begin("refused")
try:
    call()
except StoreError as error:
    print(error.reason)
allow(whole)
print(ledger.begin("last"))
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("moment", "whats"),
    [("first line", ["last"]), ("begin", ["zeroth", "last"]), ("started", ["first", "last"])],
)
def test_a_disk_that_was_full_for_a_moment_loses_no_later_start(
    state: Path, moment: str, whats: list[str]
) -> None:
    done = run_host(FULL, state, moment)
    refusal, token = done.stdout.splitlines()
    assert refusal.startswith(f'"{state}/ledger": cannot record a process start: ')
    entries = read_entries(state)
    assert [entry.what for entry in entries] == whats
    assert (entries[-1].token, entries[-1].host_alive) == (token, False)
    assert len(files(state)) == 1


def test_after_a_fork_the_parents_file_belongs_to_the_parent(state: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from latch.system.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
token = ledger.begin("parent")
pid = os.fork()
if pid == 0:
    other = ledger.begin("child")
    both = len(list(Path(sys.argv[1], "ledger").iterdir()))
    ledger.ended(other)
    os._exit(10 * both + len(list(Path(sys.argv[1], "ledger").iterdir())))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
ledger.ended(token)
print(len(list(Path(sys.argv[1], "ledger").iterdir())))
"""
    done = run_host(script, state)
    assert done.stdout == "21\n0\n", done.stderr


def test_two_processes_have_a_file_each(state: Path) -> None:
    token = Ledger(state).begin("ours")
    script = """
import sys
from pathlib import Path
from latch.system.ledger import Ledger, read_entries
Ledger(Path(sys.argv[1])).begin("theirs")
print(*sorted(entry.what for entry in read_entries(Path(sys.argv[1])) if entry.host_alive))
"""
    assert run_host(script, state).stdout == "ours theirs\n"
    assert len(files(state)) == 2
    assert {entry.what: entry.host_alive for entry in read_entries(state)} == {"ours": True, "theirs": False}
    time.sleep(QUICK.dead_host_seconds)
    sweep_now(state)
    time.sleep(QUICK.dead_host_seconds)
    sweep_now(state)
    assert [entry.token for entry in read_entries(state)] == [token]
    assert len(files(state)) == 1


# -- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tail", "known"),
    [
        (b'\n{"started":"t1","init":[1', ["t1"]),
        (b'\n{"begin":"t2","wh', ["t1"]),
        (b'\n{"begin":"t2","what":"x"}', ["t1", "t2"]),
        (b'\n{"end":"t1"}', []),
        (b'\n{"end":"t', ["t1"]),
        (b'\n{"end":"t9"}\n{"started":"t9"}\n[]\n17\nnull\n\xff\xfe', ["t1"]),
        (b'\n{"begin":"t2","wh\n{"begin":"t3","what":"x"}', ["t1", "t3"]),
    ],
)
def test_a_torn_line_costs_nothing_but_itself(state: Path, tail: bytes, known: list[str]) -> None:
    leave(state, begin("t1"), tail=tail)
    assert [entry.token for entry in read_entries(state)] == known


def test_a_host_that_is_a_zombie_is_dead(state: Path) -> None:
    with process() as host:
        leave(state, begin("t1"), host=identify(host.pid))
        assert read_entries(state)[0].host_alive
        host.kill()
        assert eventually(lambda: is_dead(host.pid))
        assert not read_entries(state)[0].host_alive


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1-1-ab.jsonl", b""),
        ("1-1-ab.jsonl", b"not JSON"),
        ("1-1-ab.jsonl", b'["a list"]'),
        ("1-1-ab.jsonl", b'{"begin":"t1"}'),
        ("notes.txt", b"anything"),
    ],
)
def test_what_is_no_ledger_is_left_alone(state: Path, name: str, content: bytes) -> None:
    (state / "ledger").mkdir(parents=True)
    (state / "ledger" / name).write_bytes(content)
    assert read_entries(state) == []
    assert sweep_now(state) == Swept((), (), 0)
    assert (state / "ledger" / name).read_bytes() == content


@pytest.mark.parametrize("host", [None, [1], ["a", "b"], [1, 2, 3]])
def test_a_host_that_is_no_process_is_no_host(state: Path, host: object) -> None:
    path = leave(state, begin("t1"))
    records = path.read_text().splitlines()
    records[1] = json.dumps({**json.loads(records[1]), "host": host})
    path.write_text("\n".join(records))
    assert read_entries(state) == []


@pytest.mark.parametrize("foreign", [{"boot": "another boot"}, {"namespace": 1}])
def test_files_of_another_boot_or_namespace_are_left_alone(state: Path, foreign: dict[str, object]) -> None:
    path = leave(state, begin("t1"), {"seen_dead": 0.0}, **foreign)
    before = path.read_bytes()
    with process("t1") as running:
        assert read_entries(state) == []
        assert sweep_now(state) == Swept((), (), 0)
        assert running.poll() is None
    assert path.read_bytes() == before


# -- sweeping ---------------------------------------------------------------------------------------


def test_what_carries_the_token_of_a_dead_host_is_ended(state: Path) -> None:
    leave(state, begin("t1"), begin("t2"))
    with process("t1") as one, process("t2") as two:
        assert sweep_now(state) == Swept(tuple(sorted([one.pid, two.pid])), (), 1)
        assert one.wait(10) == two.wait(10) == -signal.SIGKILL


def test_a_stopped_process_is_ended_too(state: Path) -> None:
    leave(state, begin("t1"))
    with process("t1") as running:
        running.send_signal(signal.SIGSTOP)
        assert sweep_now(state).ended == (running.pid,)


def test_a_process_with_another_token_or_part_of_one_is_not_touched(state: Path) -> None:
    leave(state, begin("t1"))
    with process("t11") as longer, process("t") as shorter, process(None) as without:
        assert sweep_now(state) == Swept((), (), 1)
        assert [other.poll() for other in (longer, shorter, without)] == [None] * 3


def test_the_children_of_a_living_host_are_not_touched(state: Path) -> None:
    leave(state, begin("t2"))
    token = Ledger(state).begin("ours")
    with process(token) as running:
        us = identify(running.pid)
        leave(state, begin("t3"), started("t3", init=[us.pid, us.start]), host=identify(os.getpid()))
        assert sweep_now(state) == Swept((), (), 1)
        assert running.poll() is None


def test_what_has_ended_is_not_looked_for(state: Path) -> None:
    path = leave(state, begin("t1"), {"end": "t1"})
    with process("t1") as running:
        assert sweep_now(state) == Swept((), (), 0)
        assert running.poll() is None
    assert not path.exists()


@pytest.mark.parametrize("role", ["init", "monitor"])
def test_a_recorded_process_is_ended_without_any_token(state: Path, role: str) -> None:
    with process() as running:
        known = identify(running.pid)
        leave(state, begin("t1"), started("t1", **{role: [known.pid, known.start]}))
        assert sweep_now(state).ended == (running.pid,)
        assert running.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("role", ["init", "monitor"])
def test_a_recorded_number_that_was_used_again_is_not_touched(state: Path, role: str) -> None:
    with process() as running:
        known = identify(running.pid)
        leave(state, begin("t1"), started("t1", **{role: [known.pid, known.start - 1]}))
        assert sweep_now(state) == Swept((), (), 1)
        assert running.poll() is None


def test_only_processes_of_the_given_user_are_looked_at_for_tokens(state: Path) -> None:
    leave(state, begin("t1"))
    with process("t1") as running:
        swept = sweep(state, uid=os.getuid() + 54321, limits=QUICK, scope=Scope.root(30))
        assert swept.ended == ()
        assert running.poll() is None


def test_a_zombie_counts_as_dead(state: Path) -> None:
    with process("t1") as running:
        known = identify(running.pid)
        leave(state, begin("t1"), started("t1", init=[known.pid, known.start]))
        running.kill()
        assert eventually(lambda: is_dead(running.pid))
        assert sweep_now(state) == Swept((), (), 1)


def test_what_comes_late_is_found_by_the_second_scan(state: Path, ms: float) -> None:
    leave(state, begin("t1"))
    late: list[subprocess.Popen] = []
    environment = {"PATH": os.environ["PATH"], TOKEN_VARIABLE: "t1"}
    timer = threading.Timer(100 * ms, lambda: late.append(subprocess.Popen(["sleep", "60"], env=environment)))
    timer.start()
    swept = sweep_now(state, ProcessLimits(rescan_seconds=600 * ms))
    timer.join()
    try:
        assert swept.ended == (late[0].pid,)
    finally:
        late[0].kill()
        late[0].wait()


def test_what_could_not_be_proven_dead_in_time_is_named(state: Path) -> None:
    leave(state, begin("t1"))
    with process("t1") as running:
        swept = sweep_now(state, ProcessLimits(kill_seconds=0, rescan_seconds=0.02))
        assert swept == Swept((), (running.pid,), 1)


def test_the_control_group_of_a_dead_host_is_removed(state: Path, tmp_path: Path) -> None:
    (tmp_path / group_name("t1")).mkdir()
    leave(state, begin("t1", group=str(tmp_path / group_name("t1"))), started("t1"))
    leave(state, begin("t2", group=str(tmp_path / "absent")), started("t2"))
    sweep_now(state)
    assert not (tmp_path / group_name("t1")).exists()


def test_nothing_but_a_group_of_the_start_is_removed_whatever_the_ledger_names(
    state: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    leave(state, begin("t1", group=str(precious)), {"seen_dead": 0.0})
    assert sweep_now(state).kept == 0
    assert precious.is_dir()


def test_a_dead_hosts_file_is_kept_until_it_was_seen_dead_long_enough(state: Path) -> None:
    limits = ProcessLimits(rescan_seconds=0.01, dead_host_seconds=0.5)
    path = leave(state, begin("t1"), tail=b'\n{"started":"t1","ini')
    began = time.monotonic()
    assert sweep_now(state, limits).kept == 1
    assert sweep_now(state, limits).kept == 1
    assert path.read_bytes().count(b"seen_dead") == 1
    while sweep_now(state, limits).kept:
        assert path.exists()
        assert time.monotonic() - began < 10
        time.sleep(0.02)
    assert time.monotonic() - began >= 0.45
    assert not path.exists()


def test_a_sweep_that_found_something_removes_no_file(state: Path) -> None:
    path = leave(state, begin("t1"), {"seen_dead": 0.0})
    with process("t1"):
        assert sweep_now(state).kept == 1
    assert path.exists()
    assert sweep_now(state) == Swept((), (), 0)
    assert not path.exists()


def test_a_file_that_cannot_be_removed_is_kept_without_a_fuss(state: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root removes everything")
    leave(state, begin("t1"), {"seen_dead": 0.0})
    (state / "ledger").chmod(0o500)
    try:
        assert sweep_now(state) == Swept((), (), 1)
    finally:
        (state / "ledger").chmod(0o700)


@pytest.mark.parametrize("head", [b"", b'\n{"v":1,"boot":'])
def test_the_file_of_a_host_killed_before_its_first_line_goes_in_its_time(state: Path, head: bytes) -> None:
    path = state / "ledger" / f"{DEAD_HOST.pid}-{DEAD_HOST.start}-0123abcd.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(head)
    assert sweep_now(state) == Swept((), (), 1)
    assert path.exists()
    time.sleep(QUICK.dead_host_seconds)
    assert sweep_now(state) == Swept((), (), 0)
    assert not path.exists()


def test_the_file_of_a_host_of_another_namespace_that_was_marked_before_its_first_line_stays(
    state: Path,
) -> None:
    path = leave(state, begin("t1"), namespace=1)
    path.write_bytes(b'\n{"seen_dead":0.0}' + path.read_bytes())
    assert sweep_now(state) == Swept((), (), 0)
    assert path.exists()


@pytest.mark.parametrize(
    ("place", "mode", "must", "cure"),
    [
        ("", 0o777, "writable by its owner alone", 755),
        ("", 0o770, "writable by its owner alone", 750),
        ("ledger", 0o770, "closed to others", 700),
        ("ledger", 0o755, "closed to others", 700),
    ],
)
def test_a_state_directory_that_others_can_change_is_refused_with_the_cure(
    state: Path, place: str, mode: int, must: str, cure: int
) -> None:
    check_state(state, os.getuid())
    leave(state, begin("t1"))
    state.chmod(0o755)
    (state / "ledger").chmod(0o700)
    check_state(state, os.getuid())
    (state / place).chmod(mode)
    with pytest.raises(UnsafeModes, match=f"has mode {mode:04o}, must be {must}") as caught:
        check_state(state, os.getuid())
    assert caught.value.hint == f"chmod {cure} {state / place}"


def test_a_process_of_another_user_is_not_touched_whatever_the_ledger_names(state: Path) -> None:
    with process() as named:
        known = identify(named.pid)
        leave(state, begin("t1"), started("t1", init=[known.pid, known.start]))
        swept = sweep(state, uid=os.getuid() + 1, limits=QUICK, scope=Scope.root(30))
        assert swept.ended == () and not is_dead(named.pid)
        assert sweep_now(state).ended == (named.pid,)


def test_a_pipe_among_the_files_keeps_nobody_waiting(state: Path) -> None:
    (state / "ledger").mkdir(parents=True)
    os.mkfifo(state / "ledger" / f"{DEAD_HOST.pid}-{DEAD_HOST.start}-0123abcd.jsonl")
    assert read_entries(state) == []
    assert sweep_now(state) == Swept((), (), 0)


@pytest.mark.parametrize(
    "record",
    [
        {"seen_dead": "x"},
        {"begin": "t2", "what": "test", "group": 7},
        {"started": "t1", "init": "x", "monitor": [1]},
        {"end": ["t1"]},
    ],
)
def test_a_record_that_makes_no_sense_costs_nothing_but_itself(
    state: Path, record: dict[str, object]
) -> None:
    leave(state, begin("t1"), record)
    assert "t1" in [entry.token for entry in read_entries(state)]
    with process("t1") as left:
        assert sweep_now(state).ended == (left.pid,)


def test_a_group_that_still_holds_tasks_keeps_its_file(state: Path, tmp_path: Path) -> None:
    group = tmp_path / group_name("t1")
    (group / "busy").mkdir(parents=True)
    path = leave(state, begin("t1", group=str(group)), {"seen_dead": 0.0})
    assert sweep_now(state).kept == 1
    (group / "busy").rmdir()
    assert sweep_now(state).kept == 0
    assert not group.exists() and not path.exists()


def test_a_host_that_always_has_a_child_does_not_fill_its_file_for_ever(state: Path) -> None:
    ledger = Ledger(state, limits=ProcessLimits(max_ledger_bytes=4096))
    first = ledger.begin("first")
    us = identify(os.getpid())
    ledger.started(first, init=us, monitor=None)
    largest = 0
    for number in range(200):
        ledger.ended(ledger.begin(f"child {number}"))
        largest = max([largest, *[path.stat().st_size for path in files(state)]])
        assert len(files(state)) == 1
    assert largest < 4096
    (entry,) = read_entries(state)
    assert (entry.token, entry.what, entry.init, entry.host_alive) == (first, "first", us, True)
    ledger.ended(first)
    assert files(state) == []


def test_a_file_that_cannot_be_begun_anew_goes_on_as_it_was(state: Path) -> None:
    ledger = Ledger(state, limits=ProcessLimits(max_ledger_bytes=1))
    first, second = ledger.begin("first"), ledger.begin("second")
    (state / "ledger").rename(state / "away")
    ledger.ended(second)
    (state / "away").rename(state / "ledger")
    limits = ProcessLimits()
    assert "first" in [entry.what for entry in read_entries(state, limits)]
    third = ledger.begin("third")
    assert {"first", "third"} <= {entry.what for entry in read_entries(state, limits)}
    ledger.ended(third)
    assert [entry.what for entry in read_entries(state, limits)] == ["first"]
    ledger.ended(first)
    assert files(state) == []


@pytest.mark.parametrize("free", range(8))
def test_a_sweep_short_of_descriptors_ends_what_was_left_or_says_that_it_could_not(
    state: Path, free: int
) -> None:
    leave(state, begin("t1"), {"seen_dead": 0.0})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    scope = Scope.root().shielded(30)
    sweep_once = partial(sweep, state, uid=os.getuid(), limits=QUICK, scope=scope)
    with process("t1") as left:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            with pytest.raises(OSError):
                while True:
                    fillers.append(os.dup(0))
            for _ in range(free):
                os.close(fillers.pop())
            before = descriptors_in_use()
            try:
                assert sweep_once().ended == (left.pid,)
            except OSError as error:
                assert error.errno == errno.EMFILE
            assert descriptors_in_use() == before
        finally:
            for filler in fillers:
                os.close(filler)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert is_dead(left.pid) or sweep_once().ended == (left.pid,)


def test_two_sweeps_at_once_end_everything_once(state: Path) -> None:
    leave(state, begin("t1"))
    leave(state, begin("t2"))
    with process("t1") as one, process("t2") as two:
        results: list[Swept] = []
        threads = [threading.Thread(target=lambda: results.append(sweep_now(state))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(results) == 4
        assert sorted(pid for swept in results for pid in swept.ended) == sorted([one.pid, two.pid])


def test_waiting_for_another_sweep_is_bounded_by_the_scope(state: Path, ms: float) -> None:
    leave(state, begin("t1"))
    descriptor = os.open(state / "ledger", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(DeadlineMissed):
            sweep(state, uid=os.getuid(), limits=QUICK, scope=Scope.root(100 * ms))
        scope = Scope.root(30)
        threading.Timer(50 * ms, scope.cancel, ["enough"]).start()
        with pytest.raises(Cancelled):
            sweep(state, uid=os.getuid(), limits=QUICK, scope=scope)
    finally:
        os.close(descriptor)
    assert sweep_now(state).kept == 1


def test_a_stopped_process_that_holds_the_turn_keeps_no_other_from_sweeping(state: Path, ms: float) -> None:
    leave(state, begin("t1"))
    hold = (
        "import fcntl, os, signal, sys; d = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(d, fcntl.LOCK_EX)"
    )
    script = f"{hold}; print('held', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    stopped = subprocess.Popen([sys.executable, "-c", script, str(state / "ledger")], stdout=subprocess.PIPE)
    try:
        assert stopped.stdout.readline() == b"held\n"
        with process("t1") as left:
            began = time.monotonic()
            assert sweep_now(state, replace(QUICK, sweep_wait_seconds=100 * ms)).ended == (left.pid,)
            assert 100 * ms <= time.monotonic() - began < 2000 * ms
    finally:
        stopped.kill()
        stopped.communicate()


def test_the_file_of_a_dead_host_is_noticed_and_a_live_ones_is_not(state: Path) -> None:
    assert not has_dead_host(state)
    with process() as other:
        live = identify(other.pid)
        path = leave(state, begin("t1"), host=live)
        assert not has_dead_host(state)
    assert has_dead_host(state)
    path.unlink()
    (state / "ledger" / "nonsense.jsonl").write_text("")
    assert not has_dead_host(state)


def test_the_bearers_of_a_token_are_found_and_no_others() -> None:
    with process("t1") as one, process("t2") as two, process():
        assert bearers(["t1"], os.getuid()) == [one.pid]
        assert sorted(bearers(["t1", "t2", "t3"], os.getuid())) == sorted([one.pid, two.pid])
        assert bearers([], os.getuid()) == []
        assert bearers(["t1"], os.getuid() + 1) == []


# -- real hosts -------------------------------------------------------------------------------------

HOST = """
import os, random, signal, sys, time
from pathlib import Path
from latch.settings import SandboxSettings
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope

state, workspace, marker, rounds, seed = sys.argv[1:]
scope = Scope.root(120)
sandbox = Sandbox(SandboxSettings(state_directory=Path(state)))
bubblewrap = sandbox.ready(scope, wanted="test", workspace=Path(workspace))
prepared = sandbox.planner.prepare_peer(
    "test", "/bin/sh", ("-c", "setsid sleep 1000 & sleep 1000 & echo up; exec sleep 1000"),
    workspace=Path(workspace), environment={"LATCH_TEST_MARK": marker}, features=bubblewrap.features,
)

def start(say):
    os.write(say, b"g")
    child = sandbox.start(prepared, scope)
    with child.driving():
        child.pump(lambda chunk: True, scope)
    os.write(say, b"u")
    signal.pause()

if rounds == "once":
    start(1)
moments = random.Random(int(seed))
for number in range(int(rounds)):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        start(write_end)
    os.close(write_end)
    os.read(read_end, 1)
    time.sleep(moments.uniform(0, 0.030))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read_end)
"""


def host(state: Path, workspace: Path, marker: str, rounds: str, seed: int = 0) -> subprocess.Popen:
    """Start a process that hosts a sandboxed tree of three."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOST, str(state), str(workspace), marker, rounds, str(seed)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
    )


def tokens(state: Path) -> list[str]:
    """Every token that was ever recorded in the files that are there."""
    return [token for path in files(state) for token in re.findall(r'"begin":"(\w+)"', path.read_text())]


def leftovers(state: Path, marker: str) -> list[int]:
    """The processes with the marker of the payload or a token of bubblewrap."""
    return [pid for word in (marker, *tokens(state)) for pid in carriers(word)]


def test_nothing_outlives_a_host_killed_while_its_child_runs(
    sandbox: Path, state: Path, workspace: Path
) -> None:
    marker = f"mark-{os.urandom(8).hex()}"
    running = host(state, workspace, marker, "once")
    try:
        assert running.stdout.read(2) == b"gu"
        (entry,) = read_entries(state)
        assert entry.host == identify(running.pid)
        assert entry.init is not None and entry.init.is_alive()
        assert entry.monitor is not None and entry.monitor.is_alive()
        assert eventually(lambda: len(carriers(marker)) >= 3)
        assert set(carriers(entry.token)) == {entry.init.pid, entry.monitor.pid}
    finally:
        running.kill()
        running.communicate()
    sweep_now(state)
    assert leftovers(state, marker) == []
    assert not entry.init.is_alive()


@pytest.mark.soak
def test_nothing_outlives_a_host_killed_at_any_moment_of_a_start(
    sandbox: Path, state: Path, workspace: Path
) -> None:
    marker = f"mark-{os.urandom(8).hex()}"
    seed = random.randrange(10**6)
    rounds = 200 if os.environ.get("LATCH_SOAK") == "1" else 20
    print(f"seed {seed}, {rounds} rounds")
    campaign = host(state, workspace, marker, str(rounds), seed)
    assert campaign.wait(300) == 0
    campaign.stdout.close()
    sweep_now(state, ProcessLimits(dead_host_seconds=0.1))
    assert leftovers(state, marker) == []
    time.sleep(0.1)
    assert sweep_now(state) == Swept((), (), 0)
    assert files(state) == []
