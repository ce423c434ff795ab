"""One thread starts everything, whatever becomes of those who asked, and passes on nothing of theirs."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Mapping

import pytest

from latch.errors import Cancelled, DeadlineMissed, UsageError
from latch.system import kernelcalls, spawner
from latch.system.scope import Scope
from tests.support.census import carriers, descriptors, eventually, is_dead, opened_since

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 20.0


@pytest.fixture(autouse=True)
def thread_is_there() -> None:
    """Have the spawner's thread made before a test counts anything."""
    spawner.hardening()


def patient() -> Scope:
    """A scope without a token, whose pipe would be counted for as long as an error holds it."""
    return Scope.root().shielded(PATIENCE_SECONDS)


def request(
    argv: tuple[str, ...], environment: Mapping[str, str] | None = None, descriptors: tuple[int, ...] = ()
) -> tuple[spawner.SpawnRequest, int]:
    """A request whose output and errors can be read from the returned descriptor."""
    output, child_output = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    known = {"PATH": os.environ["PATH"]} if environment is None else environment
    made = spawner.SpawnRequest(
        argv=argv,
        environment=known,
        stdin=null,
        stdout=child_output,
        stderr=child_output,
        descriptors=descriptors,
    )
    return made, output


def read_all(descriptor: int) -> str:
    """Everything until the last writer has closed it; closes it."""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read().decode()


def run(
    *argv: str, environment: Mapping[str, str] | None = None, descriptors: tuple[int, ...] = ()
) -> tuple[int, str]:
    """Run a program to its end; returns its status and what it wrote."""
    made, output = request(argv, environment, descriptors)
    process = spawner.spawn(made, patient())
    said = read_all(output)
    return process.wait(), said


def python(script: str) -> tuple[str, ...]:
    """The words that run *script* in a bare interpreter."""
    return (sys.executable, "-S", "-u", "-c", script)


# -- what a child gets ------------------------------------------------------------------------------


def test_a_program_is_run_and_reaped_by_its_caller() -> None:
    assert run("sh", "-c", "echo out; echo err >&2; exit 3") == (3, "out\nerr\n")


def test_a_child_leads_a_session_of_its_own_in_the_root_directory() -> None:
    made, output = request(("sh", "-c", "pwd; exec sleep 60"))
    process = spawner.spawn(made, patient())
    try:
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid != os.getsid(0)
        assert os.read(output, 100) == b"/\n"
    finally:
        process.kill()
        process.wait()
        os.close(output)


def test_a_child_has_the_given_environment_and_no_other() -> None:
    assert run("/usr/bin/env", environment={"A": "1", "B": "x y"}) == (0, "A=1\nB=x y\n")
    assert run("/usr/bin/env", environment={}) == (0, "")


def test_a_child_has_the_named_descriptors_and_no_other(tmp_path: Path) -> None:
    kept = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(kept, True)
    given, other_end = os.pipe()
    try:
        script = "import os; print(sorted(n for n in range(1000) if os.path.exists(f'/proc/self/fd/{n}')))"
        status, said = run(*python(script), descriptors=(given,))
        assert (status, said) == (0, f"[0, 1, 2, {given}]\n")
    finally:
        os.close(kept)
        os.close(other_end)


def test_a_child_has_an_empty_signal_mask_and_default_dispositions() -> None:
    # In a process of its own, because the spawner's thread is made by the first who asks, with its mask.
    script = """
import os, signal, sys
from latch.system import spawner
from latch.system.scope import Scope
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1})
null = os.open("/dev/null", os.O_RDWR)
made = spawner.SpawnRequest(("/bin/cat", "/proc/self/status"), {}, stdin=null, stdout=os.dup(1), stderr=null)
spawner.spawn(made, Scope.root(10)).wait()
"""
    said = run_host(script).stdout
    status = dict(line.split(":\t", 1) for line in said.splitlines() if line.startswith("Sig"))
    assert int(status["SigBlk"], 16) == 0
    ignored = int(status["SigIgn"], 16)
    # What Python itself ignores in its own process must not be passed on.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGUSR1):
        assert not ignored & (1 << (number - 1)), number


def run_host(script: str) -> subprocess.CompletedProcess[str]:
    """Run *script* as a host of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


KEYRING = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.syscall(ctypes.c_long({number}), ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(0)))
"""


def test_children_have_a_session_keyring_that_is_not_ours() -> None:
    if not spawner.hardening().keyring:
        pytest.skip("no session keyring can be joined here")
    number = kernelcalls._KEYCTL[platform.machine()]
    ours = ctypes.CDLL(None).syscall(
        ctypes.c_long(number), ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(0)
    )
    theirs = {run(*python(KEYRING.format(number=number))) for _ in range(2)}
    assert theirs != {(0, f"{ours}\n")}
    assert len(theirs) == 1


def test_children_do_not_reach_abstract_sockets_made_outside() -> None:
    if not spawner.hardening().abstract_sockets:
        pytest.skip("this kernel cannot scope abstract sockets")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(b"")
        server.listen(4)
        script = f"""
import socket
try:
    socket.socket(socket.AF_UNIX).connect({server.getsockname()!r})
    print('in')
except PermissionError:
    print('out')
"""
        assert run(*python(script)) == (0, "out\n")
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(server.getsockname())


def test_the_hardening_is_what_the_kernel_could_do() -> None:
    assert spawner.hardening().abstract_sockets == (kernelcalls.landlock_abi() >= 6)
    assert isinstance(spawner.hardening().keyring, bool)


# -- the thread -------------------------------------------------------------------------------------


def test_a_child_tied_to_its_spawning_thread_outlives_the_thread_that_asked(ms: float) -> None:
    # prctl(2): PR_SET_PDEATHSIG is 1, and its parent is a thread.
    script = "import ctypes, time; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); print('armed'); time.sleep(60)"
    started: list[subprocess.Popen] = []
    made, output = request(python(script))

    def ask() -> None:
        started.append(spawner.spawn(made, patient()))
        os.read(output, 100)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    try:
        time.sleep(100 * ms)
        assert started[0].poll() is None
    finally:
        started[0].kill()
        started[0].wait()
        os.close(output)


def test_one_thread_serves_all_who_ask_at_once() -> None:
    results: list[tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda word=str(number): results.append(run("echo", word)))
        for number in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(results) == sorted((0, f"{number}\n") for number in range(12))
    assert [thread.name for thread in threading.enumerate()].count("latch.system.spawner") == 1


def test_a_forked_host_has_a_spawner_of_its_own() -> None:
    script = """
import os
from latch.system import spawner
from latch.system.scope import Scope
def start():
    null = os.open("/dev/null", os.O_RDWR)
    made = spawner.SpawnRequest(("/bin/sh", "-c", "exit 7"), {}, stdin=null, stdout=null, stderr=null)
    return spawner.spawn(made, Scope.root(10)).wait()
print(start(), flush=True)
pid = os.fork()
if pid == 0:
    os._exit(start())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = run_host(script)
    assert (done.stdout, done.stderr) == ("7\n7\n", "")


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "number"), [("/nonexistent/program", errno.ENOENT), ("/etc/passwd", errno.EACCES)]
)
def test_a_program_that_cannot_be_executed_is_an_error_of_the_system(program: str, number: int) -> None:
    before = descriptors()
    made, output = request((program,))
    with pytest.raises(OSError) as caught:
        spawner.spawn(made, patient())
    assert caught.value.errno == number
    assert read_all(output) == ""
    assert opened_since(before) == []


def test_more_words_than_the_system_takes_are_an_error_of_the_system() -> None:
    made, output = request(("/bin/true", "x" * 3_000_000))
    with pytest.raises(OSError) as caught:
        spawner.spawn(made, patient())
    assert caught.value.errno == errno.E2BIG
    os.close(output)


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (("echo", "a\0b"), {}),
        (("echo", "lone \ud800"), {}),
        (("echo",), {"A": "a\0b"}),
        (("echo",), {"A=B": "c"}),
        (("echo", 7), {}),
        ((None,), {}),
        (("echo",), {"A": 7}),
    ],
    ids=[
        "NUL",
        "surrogate",
        "NUL in a variable",
        "equals sign in a name",
        "number",
        "nothing",
        "number in a variable",
    ],
)
def test_words_that_no_program_can_get_are_refused_and_the_thread_lives_on(
    argv: tuple[str, ...], environment: dict[str, str]
) -> None:
    before = descriptors()
    made, output = request(argv, {"PATH": os.environ["PATH"], **environment})
    with pytest.raises(UsageError, match="no program can be started with these words"):
        spawner.spawn(made, patient())
    assert read_all(output) == ""
    assert opened_since(before) == []
    assert run("echo", "fine") == (0, "fine\n")


def test_a_host_that_ignores_the_end_of_children_is_told_so() -> None:
    before = descriptors()
    made, output = request(("echo", "never"))
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(UsageError, match="ignores SIGCHLD") as caught:
            spawner.spawn(made, patient())
    finally:
        signal.signal(signal.SIGCHLD, handler)
    assert caught.value.hint == "set its disposition to SIG_DFL before starting anything"
    assert read_all(output) == ""
    assert opened_since(before) == []


def test_without_a_free_descriptor_nothing_is_started_and_nothing_leaks() -> None:
    before = descriptors()
    made, output = request(("echo", "never"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with pytest.raises(OSError):
            while True:
                fillers.append(os.dup(0))
        with pytest.raises(OSError) as caught:
            spawner.spawn(made, patient())
        assert caught.value.errno == errno.EMFILE
    finally:
        for descriptor in fillers:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert read_all(output) == ""
    assert opened_since(before) == []


# -- cancelled while it starts ----------------------------------------------------------------------


def test_a_caller_cancelled_before_the_start_gets_nothing_and_leaves_nothing(marker: str) -> None:
    before = descriptors()
    scope = Scope.root(PATIENCE_SECONDS)
    scope.cancel("early")
    made, output = request(("sleep", "60"), {"PATH": os.environ["PATH"], "MARK": marker})
    with pytest.raises(Cancelled, match="early"):
        spawner.spawn(made, scope)
    assert read_all(output) == ""
    del scope
    assert eventually(lambda: carriers(marker) == [] and opened_since(before) == [])


def test_a_caller_whose_time_is_up_leaves_nothing(marker: str) -> None:
    before = descriptors()
    made, output = request(("sleep", "60"), {"PATH": os.environ["PATH"], "MARK": marker})
    with pytest.raises(DeadlineMissed):
        spawner.spawn(made, Scope.root(0))
    assert read_all(output) == ""
    assert eventually(lambda: carriers(marker) == [] and opened_since(before) == [])


@pytest.mark.soak
def test_a_caller_cancelled_at_any_moment_of_a_start_leaves_nothing(marker: str) -> None:
    before = descriptors()
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    outcomes = set()
    for _ in range(400 if os.environ.get("LATCH_SOAK") == "1" else 40):
        scope = Scope.root(PATIENCE_SECONDS)
        made, output = request(("sleep", "60"), {"PATH": os.environ["PATH"], "MARK": marker})
        timer = threading.Timer(moments.uniform(0, 0.004), scope.cancel, ["now"])
        timer.start()
        try:
            process = spawner.spawn(made, scope)
        except Cancelled:
            outcomes.add("cancelled")
        else:
            outcomes.add("started")
            process.kill()
            process.wait()
        timer.join()
        assert read_all(output) == ""
    del scope, timer
    assert "cancelled" in outcomes
    assert eventually(lambda: carriers(marker) == [] and opened_since(before) == [])
    assert run("echo", "fine") == (0, "fine\n")


def test_what_is_killed_with_its_group_is_seen_to_end() -> None:
    made, output = request(("/bin/sh", "-c", "sleep 60 & echo up; wait"))
    process = spawner.spawn(made, patient())
    assert os.read(output, 100) == b"up\n"
    assert spawner.end_group(process, seconds=PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert read_all(output) == ""


def test_an_end_that_is_not_seen_in_time_is_not_claimed() -> None:
    made, output = request(("sleep", "60"))
    process = spawner.spawn(made, patient())
    assert not spawner.end_group(process, seconds=0)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert read_all(output) == ""


def test_what_a_leader_that_is_dead_already_left_in_its_group_is_ended() -> None:
    marker = f"MARK={os.urandom(8).hex()}"
    known = dict([marker.split("=")], PATH=os.environ["PATH"])
    made, output = request(("/bin/sh", "-c", "sleep 60 & exit 1"), known)
    process = spawner.spawn(made, patient())
    try:
        # Read at once after its exec, an environment may be empty still.
        assert eventually(lambda: len(carriers(marker)) == 1 and is_dead(process.pid))
    finally:
        assert spawner.end_group(process, seconds=PATIENCE_SECONDS)
    assert read_all(output) == ""
    assert process.returncode == 1
