"""A child's pipes never block the host past a deadline, and after its end nothing of it is left."""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from latch.errors import Cancelled, ConcurrentUse, DeadlineMissed, PeerGone, UsageError, WireError
from latch.limits import ProcessLimits
from latch.settings import SandboxSettings
from latch.system.child import Child, ChildExit, Pipes
from latch.system.ledger import read_entries
from latch.system.processes import identify
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from tests.support.census import carriers, descriptors, eventually, is_dead, opened_since
from tests.support.children import TELL_STATUS, gated_child, patient, plain_child, sandboxed_child

MIB = 1024 * 1024


def never(_: bytes) -> bool:
    """No output is enough."""
    return False


class Heard:
    """Collects output until it holds *enough* bytes."""

    def __init__(self, enough: int) -> None:
        self.data = bytearray()
        self._enough = enough

    def __call__(self, chunk: bytes) -> bool:
        self.data += chunk
        return len(self.data) >= self._enough


def converse(child: Child, said: bytes, *, expect: int, scope: Scope | None = None) -> bytes:
    """Send *said* and return the first *expect* bytes of output, or more."""
    heard = Heard(expect)
    with child.driving():
        child.queue(said)
        child.pump(heard, scope or patient())
    return bytes(heard.data)


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (ChildExit(0, executed=True, killed=False), "exited with status 0"),
        (ChildExit(128, executed=True, killed=False), "exited with status 128"),
        (ChildExit(139, executed=True, killed=False), "died of signal 11"),
        (ChildExit(137, executed=True, killed=True), "killed (signal 9)"),
        (ChildExit(None, executed=True, killed=False), "ended with an unknown status"),
    ],
)
def test_an_exit_is_told_in_words(ended: ChildExit, text: str) -> None:
    assert str(ended) == text


def test_pipes_are_closed_by_name_or_all_and_closing_twice_is_safe() -> None:
    before = descriptors()
    pipes = Pipes()
    pipes.stdin, pipes.stdout = os.pipe()
    pipes.close("stdin")
    assert pipes.stdin == -1 and pipes.stdout >= 0
    pipes.close("stdin")
    pipes.close()
    pipes.close()
    assert opened_since(before) == []


# -- an exchange ------------------------------------------------------------------------------------


def test_what_is_queued_is_sent_and_what_is_said_is_heard() -> None:
    with plain_child("cat") as child:
        assert converse(child, b"one", expect=3) == b"one"
        assert converse(child, b"two", expect=3) == b"two"


def test_sixteen_mebibytes_go_both_ways_at_once() -> None:
    data = os.urandom(MIB) * 16
    with plain_child("cat") as child:
        assert converse(child, data, expect=len(data)) == data
        assert child.outbox_bytes == 0


def test_an_exchange_ends_only_when_all_is_sent() -> None:
    script = "echo early; sleep 0.1; exec head -c 1000000 > /dev/null"
    with plain_child(script) as child:
        converse(child, b"x" * 500_000, expect=1)
        assert child.outbox_bytes == 0


def test_what_is_waiting_to_be_sent_is_counted() -> None:
    with plain_child("exec sleep 60") as child:
        child.queue(b"")
        assert child.outbox_bytes == 0
        child.queue(b"x" * 300_000)
        child.queue(b"y" * 300_000)
        assert child.outbox_bytes == 600_000
        began = time.monotonic()
        child.send_now()
        assert time.monotonic() - began < 1
        assert 0 < child.outbox_bytes < 600_000


def test_a_flush_waits_for_the_pipe_and_keeps_what_is_said_for_the_idle() -> None:
    heard = bytearray()
    with plain_child("echo hello; sleep 0.1; head -c 300000 > /dev/null; exec sleep 60") as child:
        child.on_idle = heard.extend
        with child.driving():
            child.queue(b"x" * 300_000)
            assert child.flush(patient()) is True
        assert (bytes(heard), child.outbox_bytes) == (b"hello\n", 0)


SILENT: dict[str, tuple[str, bytes]] = {
    "says nothing": ("exec sleep 60", b"hello"),
    "never reads": ("exec sleep 60", b"x" * MIB),
    "talks without end": ("exec yes", b""),
    "complains without end": ("exec yes >&2", b""),
    "does both without end": ("yes >&2 & exec yes", b"x" * MIB),
    "closed its stdout": ("exec sleep 60 >&-", b"hello"),
    "closed its stdin": ("exec sleep 60 <&-", b"x" * MIB),
    "closed everything": ("exec sleep 60 <&- >&- 2>&-", b"hello"),
    "stopped": ("kill -STOP $$; exec sleep 60", b"x" * MIB),
}


@pytest.mark.parametrize("kind", SILENT)
def test_a_deadline_is_met_whatever_the_child_does(kind: str, ms: float) -> None:
    script, said = SILENT[kind]
    with plain_child(script) as child:
        scope = Scope.root(200 * ms).within(None, peer="p", stage="call", missing="answer")
        began = time.monotonic()
        with pytest.raises(DeadlineMissed) as caught, child.driving():
            child.queue(said)
            child.pump(never, scope)
        assert 200 * ms <= time.monotonic() - began < 300 * ms
        assert (caught.value.peer, caught.value.stage) == ("p", "call")
        began = time.monotonic()
        assert child.end(patient()).killed
        assert time.monotonic() - began < 1000 * ms


@pytest.mark.parametrize("kind", ["says nothing", "never reads", "does both without end"])
def test_a_cancel_from_another_thread_is_heard_at_once(kind: str, ms: float) -> None:
    script, said = SILENT[kind]
    with plain_child(script) as child:
        scope = Scope.root(60)
        cancelled: list[float] = []

        def cancel() -> None:
            cancelled.append(time.monotonic())
            scope.cancel("enough")

        threading.Timer(50 * ms, cancel).start()
        with pytest.raises(Cancelled, match="enough"), child.driving():
            child.queue(said)
            child.pump(never, scope)
        assert time.monotonic() - cancelled[0] < 100 * ms


def test_a_flood_of_complaints_costs_no_memory_and_keeps_its_end() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counted = 0

    def count(chunk: bytes) -> None:
        nonlocal counted
        counted += len(chunk)

    with plain_child(
        "head -c 100000000 /dev/zero | tr '\\0' x >&2; echo the end >&2; echo done; exec sleep 60"
    ) as child:
        child.on_stderr = count
        assert converse(child, b"", expect=5) == b"done\n"
        assert eventually(lambda: (child.tend(), counted)[1] == 100_000_008)
        text = child.stderr_text()
    assert text.startswith("...xxx") and text.endswith("xxx" + "the end\n")
    assert len(text) == ProcessLimits().stderr_tail_bytes + 3
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 40 * 1024


def test_a_short_complaint_is_kept_whole_and_odd_bytes_are_shown() -> None:
    with plain_child("printf 'caf\\351' >&2; echo done; exec sleep 60") as child:
        converse(child, b"", expect=5)
        assert eventually(lambda: (child.tend(), child.stderr_text())[1] == "caf\ufffd")


# -- a child that ends by itself --------------------------------------------------------------------


def test_a_child_that_ends_is_gone_with_status_and_last_words() -> None:
    with plain_child(TELL_STATUS + "echo oops >&2; tell 3; exit 3") as child:
        scope = Scope.root(20).within(None, peer="p", stage="call")
        with pytest.raises(PeerGone) as caught, child.driving():
            child.pump(never, scope)
        error = caught.value
        assert (error.status, error.stderr_tail, error.peer, error.stage) == (3, "oops\n", "p", "call")
        assert error.reason == "exited with status 3 before it answered"
        assert child.has_exited()
        assert child.exit is None
        assert child.end(patient()) == ChildExit(3, executed=True, killed=False)


def test_a_child_that_died_of_signal_9_before_its_end_was_not_killed_by_us() -> None:
    with plain_child(TELL_STATUS + "tell 137") as child:
        assert eventually(lambda: not running(child))
        assert child.end(patient()) == ChildExit(137, executed=True, killed=False)


def test_an_unknown_status_is_not_invented() -> None:
    with plain_child("exit 3") as child:
        with pytest.raises(PeerGone) as caught, child.driving():
            child.pump(never, patient())
        assert (caught.value.status, caught.value.reason) == (None, "ended before it answered")


def test_the_answer_of_a_child_that_ended_still_counts() -> None:
    with plain_child("echo answer") as child:
        assert eventually(lambda: os.path.exists(f"/proc/{child.monitor_pid}") and not running(child))
        assert converse(child, b"question", expect=7) == b"answer\n"


def running(child: Child) -> bool:
    """Tell whether the process that was started still runs."""
    return Path(f"/proc/{child.monitor_pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("noticed", [False, True])
def test_a_child_that_ended_while_idle_is_gone_at_once(noticed: bool) -> None:
    with plain_child(TELL_STATUS + "tell 4") as child:
        assert eventually(lambda: not running(child))
        if noticed:
            child.tend()
            assert child.has_exited()
        assert child.exit is None
        began = time.monotonic()
        with pytest.raises(PeerGone) as caught, child.driving():
            child.queue(b"x" * MIB)
            child.pump(never, patient())
        assert time.monotonic() - began < 2
        assert caught.value.status == 4
        child.queue(b"ignored")
        assert child.outbox_bytes == 0


def test_a_flush_to_a_child_that_ended_says_so() -> None:
    with plain_child("exit 0") as child:
        with child.driving():
            child.queue(b"x" * MIB)
            assert child.flush(patient()) is False


def test_a_closed_stdin_is_no_error_while_there_is_something_to_hear() -> None:
    with plain_child("exec <&-; sleep 0.1; echo goodbye; exec sleep 60") as child:
        assert converse(child, b"x" * MIB, expect=8) == b"goodbye\n"
        assert child.outbox_bytes == 0


def test_waiting_for_the_exit_closes_stdin_and_hands_over_all_output() -> None:
    heard = bytearray()
    with plain_child("cat > /dev/null; head -c 1000000 /dev/zero; echo oops >&2") as child:
        child.on_idle = heard.extend
        with child.driving():
            child.queue(b"never sent")
            child.wait_exit(patient())
        assert (len(heard), child.stderr_text()) == (1_000_000, "oops\n")
        assert child.has_exited()


def test_waiting_for_an_exit_that_does_not_come_is_bounded(ms: float) -> None:
    with plain_child("cat > /dev/null; exec sleep 60") as child:
        with pytest.raises(DeadlineMissed), child.driving():
            child.wait_exit(Scope.root(100 * ms))


# The monitor's part is played by the parent, which ends while its child goes on writing.
OUTLIVES = """
import os, time
if os.fork() == 0:
    os.close(int(os.environ['STATUS']))
    while True:
        os.write({}, b'x' * 65536)
time.sleep(0.1)
"""


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("call", ["pump", "wait_exit", "end"])
def test_output_of_what_outlives_its_monitor_is_not_read_for_ever(stream: int, call: str) -> None:
    limits = ProcessLimits(drain_seconds=0.1, read_bytes=4096)

    def slow(_: bytes) -> bool:
        # Slower than the writer, so that the pipe is never empty.
        time.sleep(0.002)
        return False

    with plain_child(OUTLIVES.format(stream), language="python", limits=limits) as child:
        child.on_idle = child.on_stderr = slow
        began = time.monotonic()
        if call == "end":
            child.end(patient())
        elif call == "wait_exit":
            with child.driving():
                child.wait_exit(patient())
        else:
            with pytest.raises(PeerGone), child.driving():
                child.pump(slow, patient())
        assert time.monotonic() - began < 5


# -- between exchanges ------------------------------------------------------------------------------


def test_an_idle_pass_takes_output_complaints_and_sends_what_waits() -> None:
    heard = bytearray()
    with plain_child("echo note; echo oops >&2; read -r line; echo got $line; exec sleep 60") as child:
        child.on_idle = heard.extend
        child.queue(b"question\n")
        assert eventually(lambda: (child.tend(), bytes(heard))[1] == b"note\ngot question\n")
        assert child.stderr_text() == "oops\n"


def test_an_answer_given_by_an_idle_pass_is_sent_by_it() -> None:
    heard = bytearray()
    with plain_child("echo ping; read -r line; echo $line; exec sleep 60") as child:

        def answer(chunk: bytes) -> None:
            heard.extend(chunk)
            if chunk == b"ping\n":
                child.queue(b"pong\n")

        child.on_idle = answer
        assert eventually(lambda: (child.tend(), b"pong" in heard)[1])


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2", "yes >&2 & exec yes"])
def test_an_idle_pass_reads_so_much_and_no_more(script: str) -> None:
    limits = ProcessLimits(idle_read_bytes=200_000)
    with plain_child(script, limits=limits) as child:
        read = 0

        def count(chunk: bytes) -> None:
            nonlocal read
            read += len(chunk)
            # Slower than the writer, so that the pipe is never empty.
            time.sleep(0.002)

        child.on_idle = child.on_stderr = count
        time.sleep(0.02)
        for _ in range(5):
            read = 0
            child.tend()
            assert read < 200_000 + 2 * limits.read_bytes


def test_output_nobody_listens_to_is_dropped() -> None:
    with plain_child("echo note; read -r line; echo $line; exec sleep 60") as child:
        time.sleep(0.05)
        child.tend()
        assert converse(child, b"hello\n", expect=6)[-6:] == b"hello\n"


@pytest.mark.parametrize("fault", [WireError("bad frame"), UsageError("no"), OSError(5, "io")])
def test_a_fault_met_while_idle_is_raised_by_the_next_exchange(fault: Exception) -> None:
    calls = 0

    def fail(_: bytes) -> None:
        nonlocal calls
        calls += 1
        raise fault

    with plain_child("echo bad; sleep 0.1; echo worse; exec sleep 60") as child:
        child.on_idle = fail
        assert eventually(lambda: (child.tend(), child.fault)[1] is fault)
        time.sleep(0.2)
        child.tend()
        assert calls == 1
        for _ in range(2):
            with pytest.raises(type(fault)) as caught, child.driving():
                raise AssertionError("held in spite of the fault")
            assert caught.value is fault


def test_nobody_looks_after_a_child_that_is_being_driven_or_has_ended() -> None:
    heard = bytearray()
    with plain_child("echo note; exec sleep 60") as child:
        child.on_idle = heard.extend
        time.sleep(0.05)
        with child.driving():
            child.tend()
            assert not heard
        child.end(patient())
        child.tend()
        assert not heard


# -- whose turn it is -------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["hold", "end"])
def test_a_second_thread_is_told_at_once_that_the_child_is_driven(second: str, ms: float) -> None:
    with plain_child("exec sleep 60") as child:
        scope = Scope.root(30)
        thread = threading.Thread(target=drive_until_cancelled, args=(child, scope))
        thread.start()
        try:
            assert eventually(lambda: is_driven(child))
            began = time.monotonic()
            with pytest.raises(ConcurrentUse):
                child.hold() if second == "hold" else child.end(patient())
            assert time.monotonic() - began < 500 * ms
        finally:
            scope.cancel("done")
            thread.join(20)
        with child.driving():
            pass


def drive_until_cancelled(child: Child, scope: Scope) -> None:
    """Be the driver of *child* for as long as *scope* lasts."""
    try:
        with child.driving():
            child.pump(never, scope)
    except Cancelled:
        pass


def is_driven(child: Child) -> bool:
    """Tell whether somebody holds *child*; looks without a claim of its own."""
    return child._driver is not None


def test_a_driver_cannot_take_a_second_turn() -> None:
    with plain_child("exec sleep 60") as child:
        with child.driving():
            with pytest.raises(ConcurrentUse), child.driving():
                pass


def test_of_two_that_come_during_an_idle_pass_one_drives_and_the_other_is_told(ms: float) -> None:
    with plain_child("read -r _; echo; exec sleep 60") as child:
        inside, go_on = threading.Event(), threading.Event()

        def slow(_: bytes) -> None:
            inside.set()
            go_on.wait(20)

        child.on_idle = slow
        child.queue(b"\n")
        keeper = threading.Thread(target=lambda: eventually(lambda: (child.tend(), inside.is_set())[1]))
        keeper.start()
        assert inside.wait(20)
        scope, outcomes = Scope.root(30), []

        def drive() -> None:
            try:
                with child.driving():
                    outcomes.append("drives")
                    child.pump(never, scope)
            except ConcurrentUse:
                outcomes.append("told")
            except Cancelled:
                pass

        threads = [threading.Thread(target=drive) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(50 * ms)
        go_on.set()
        try:
            assert eventually(lambda: len(outcomes) == 2, seconds=5)
            assert sorted(outcomes) == ["drives", "told"]
        finally:
            scope.cancel("done")
            for thread in (*threads, keeper):
                thread.join(20)


def test_an_ended_child_is_not_driven_again() -> None:
    with plain_child("exec sleep 60") as child:
        child.end(patient())
        with pytest.raises(ConcurrentUse, match="has ended"), child.driving():
            raise AssertionError("drove the dead")


# -- the end ----------------------------------------------------------------------------------------


def test_ending_twice_or_at_once_is_one_end() -> None:
    ends: list[str] = []
    with plain_child("exec sleep 60", on_end=lambda: ends.append("end")) as child:
        exits: list[ChildExit] = []
        threads = [threading.Thread(target=lambda: exits.append(child.end(patient()))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert exits == [ChildExit(137, executed=True, killed=True)] * 4
        assert child.end(patient()) is child.exit
    assert ends == ["end"]
    assert child.is_proven_dead


def test_a_driver_may_end_what_it_drives() -> None:
    with plain_child("exec sleep 60") as child:
        with child.driving():
            assert child.end(patient()).killed


def test_the_end_keeps_the_last_complaints() -> None:
    with plain_child("echo oops >&2; echo; exec sleep 60") as child:
        converse(child, b"", expect=1)
        child.end(patient())
        assert child.stderr_text() == "oops\n"


def test_a_child_without_a_known_process_one_is_ended_at_once(ms: float) -> None:
    with plain_child("exec sleep 60") as child:
        began = time.monotonic()
        child.end(patient())
        assert time.monotonic() - began < 150 * ms


def test_a_death_that_could_not_be_proven_is_not_claimed_and_the_end_is_tried_again() -> None:
    ends: list[str] = []
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "TOKEN": "t2"}) as first:
        try:
            assert eventually(lambda: first.pid in carriers("TOKEN=t2"))
            told = json.dumps({"child-pid": first.pid}).encode()
            with plain_child(
                "exec sleep 60", told=told, token_entry=b"TOKEN=t2", on_end=lambda: ends.append("end")
            ) as child:
                assert child.read_init_pid(patient()) == first.pid
                # Not even a moment for the proof.
                assert child.end(patient(0)).killed
                assert not child.is_proven_dead and ends == []
                unproven = child.unproven(peer="p", stage="kill")
                assert str(unproven) == f"p: kill: process {first.pid} could not be proven dead"
                assert unproven.hint == "once this process has ended, latch reap ends it"
                assert child.end(patient()).killed
                assert child.is_proven_dead and child.unproven(peer="p", stage="kill") is None
                assert first.wait(20) == -signal.SIGKILL
        finally:
            first.kill()
    assert ends == ["end"]


def test_a_death_is_not_claimed_while_process_one_may_yet_be_named() -> None:
    with plain_child("exec sleep 60") as child:
        open_end, writer = os.pipe()
        os.dup2(open_end, child._pipes.info)
        os.close(open_end)
        child.end(patient(0.2))
        os.close(writer)
        assert not child.is_proven_dead


def test_a_process_one_that_could_not_be_adopted_is_waited_for() -> None:
    """It can no longer be read, as one that is dying: its number alone must vanish."""
    with subprocess.Popen(["sleep", "60"], env={}) as dying:
        assert eventually(lambda: b"sleep" in Path(f"/proc/{dying.pid}/cmdline").read_bytes())
        told = json.dumps({"child-pid": dying.pid}).encode()
        with plain_child("exec sleep 60", told=told) as child:
            child.end(patient(0.2))
            assert not child.is_proven_dead
        with plain_child("exec sleep 60", told=told) as child:
            threading.Timer(0.1, dying.kill).start()
            child.end(patient())
            assert child.is_proven_dead


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("kill -9 $$", ChildExit(137, executed=True, killed=False)),
        ("kill -15 $$", ChildExit(143, executed=True, killed=False)),
        ("exit 1", ChildExit(1, executed=False, killed=False)),
    ],
)
def test_only_a_monitor_that_gave_up_by_itself_never_ran_its_program(
    script: str, expected: ChildExit
) -> None:
    with plain_child(script) as child:
        with child.driving():
            child.wait_exit(patient())
        assert child.end(patient()) == expected


def test_what_a_monitor_that_died_early_left_in_its_group_is_ended(marker: str) -> None:
    with plain_child("sleep 60 & exit 1", environment={"LATCH_TEST_MARK": marker}) as child:
        assert eventually(lambda: len(carriers(marker)) == 1 and not running(child))
        child.end(patient())
        assert eventually(lambda: carriers(marker) == [])


def test_all_that_lies_in_a_large_pipe_is_handed_over_however_slow_the_reader(ms: float) -> None:
    """The child fills a pipe that it made large, and ends; the reader takes longer than any patience."""
    program = (
        "import fcntl, sys; fcntl.fcntl(1, 1031, 1 << 20); fcntl.fcntl(2, 1031, 1 << 20)\n"
        "sys.stdout.write('x' * (1 << 20)); sys.stdout.flush(); sys.stderr.write('y' * (1 << 20))"
    )
    heard = {"stdout": 0, "stderr": 0}

    def slowly(name: str, chunk: bytes) -> None:
        heard[name] += len(chunk)
        time.sleep(40 * ms)

    with plain_child(program, language="python") as child:
        assert eventually(lambda: not running(child))
        ended = child.run_out(
            patient(), on_stdout=partial(slowly, "stdout"), on_stderr=partial(slowly, "stderr")
        )
        assert ended.status == 0
    assert heard == {"stdout": 1 << 20, "stderr": 1 << 20}


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), Cancelled("enough"), OSError("full")])
def test_running_a_child_out_ends_it_whatever_its_readers_raise(fault: BaseException) -> None:
    def fail(_: bytes) -> None:
        raise fault

    with plain_child("echo up; exec sleep 60") as child:
        with pytest.raises(type(fault)):
            child.run_out(patient(), on_stdout=fail, on_stderr=fail)
        assert child.is_proven_dead


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "exited with status 0"),
        (128, "exited with status 128"),
        (129, "died of signal 1"),
        (192, "died of signal 64"),
        (193, "exited with status 193"),
        (255, "exited with status 255"),
        (None, "ended with an unknown status"),
    ],
)
def test_a_status_is_a_signal_only_where_there_is_such_a_signal(status: int | None, said: str) -> None:
    assert str(ChildExit(status, executed=True, killed=False)) == said


def test_an_interrupted_end_is_an_end_all_the_same() -> None:
    interrupts = [KeyboardInterrupt()]

    class Interrupted(Scope):
        def wait(self, *arguments: Any, **names: Any) -> Any:
            if interrupts:
                raise interrupts.pop()
            return super().wait(*arguments, **names)

    before = descriptors()
    with plain_child("exec sleep 60") as child:
        known = {
            name: getattr(patient(), name) for name in ("deadline", "seconds", "tokens", "peer", "stage")
        }
        scope = Interrupted(**known, own=True, missing=None, clock=time.monotonic)
        with pytest.raises(KeyboardInterrupt):
            child.end(scope)
        assert child.is_proven_dead
    assert opened_since(before) == []


def test_a_forked_process_cannot_touch_the_child_of_its_parent() -> None:
    with plain_child("exec cat") as child:
        pid = os.fork()
        if pid == 0:
            refused = 0
            for use in (child.hold, lambda: child.end(patient())):
                try:
                    use()
                except ConcurrentUse:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
        assert converse(child, b"still\n", expect=6) == b"still\n"


def test_without_a_free_descriptor_a_child_is_ended_and_nothing_is_claimed_wrongly() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    with plain_child("exec sleep 60") as child:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            with pytest.raises(OSError):
                while True:
                    fillers.append(os.dup(0))
            with pytest.raises(OSError):
                identify(child.monitor_pid)
            assert child.end(patient()).killed
            assert child.is_proven_dead
        finally:
            for filler in fillers:
                os.close(filler)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert is_dead(child.monitor_pid)


def test_a_reader_of_stderr_that_raises_does_not_keep_the_child_from_its_end() -> None:
    def fail(_: bytes) -> None:
        raise Cancelled("enough")

    with plain_child("echo oops >&2; exec sleep 60") as child:
        child.on_stderr = fail
        assert child.end(patient()).killed
        assert child.is_proven_dead


def test_an_unrelated_process_named_on_the_information_pipe_is_not_touched() -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            told = json.dumps({"child-pid": bystander.pid}).encode()
            with plain_child("exec sleep 60", told=told) as child:
                assert child.read_init_pid(patient()) is None
                assert child.init_pid is None
            with plain_child("exec sleep 60", told=told) as child:
                child.end(patient())
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.parametrize(
    "told",
    [b"", b"{", b"[]", b'{"child-pid": "7"}', b'{"child-pid": 0}', b'{"child-pid": -1}', b'{"pid": 1}'],
)
def test_nonsense_on_the_information_pipe_names_no_process(told: bytes) -> None:
    with plain_child("exec sleep 60", told=told) as child:
        assert child.read_init_pid(patient()) is None
        assert child.end(patient()).killed
        assert child.is_proven_dead


def test_a_process_with_our_token_named_on_the_information_pipe_is_ended() -> None:
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "TOKEN": "t1"}) as ours:
        try:
            assert eventually(lambda: ours.pid in carriers("TOKEN=t1"))
            told = json.dumps({"child-pid": ours.pid}).encode()
            with plain_child("exec sleep 60", told=told, token_entry=b"TOKEN=t1") as child:
                child.end(patient())
                assert child.init_pid == ours.pid
            assert ours.wait(20) == -signal.SIGKILL
        finally:
            ours.kill()


def test_opening_the_gate_of_a_dead_child_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with plain_child("exec sleep 60") as child:
        child._pipes.gate = write_end
        child.open_gate()
        assert child._pipes.gate == -1


@pytest.mark.parametrize("script", ["exec cat", "exit 3", "exec sleep 60 >&- <&-"])
def test_a_child_leaves_no_descriptor(script: str) -> None:
    with plain_child("true"):
        pass
    before = descriptors()
    for _ in range(5):
        with plain_child(script) as child:
            child.tend()
    assert opened_since(before) == []


# -- in the sandbox ---------------------------------------------------------------------------------


def test_a_sandboxed_child_converses_and_leaves_no_descriptor(sandbox: Path, workspace: Path) -> None:
    with sandboxed_child("exit 0", workspace):
        pass
    before = descriptors()
    data = os.urandom(MIB) * 16
    with sandboxed_child("exec cat", workspace) as child:
        assert converse(child, data, expect=len(data)) == data
        with child.driving():
            child.wait_exit(patient())
        assert child.end(patient()) == ChildExit(0, executed=True, killed=False)
    assert opened_since(before) == []


@pytest.mark.parametrize(
    ("script", "status"), [("exit 7", 7), ("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("exit 255", 255)]
)
def test_the_status_of_a_sandboxed_program_is_its_own(
    sandbox: Path, workspace: Path, script: str, status: int
) -> None:
    with sandboxed_child(f"read -r _; {script}", workspace) as child:
        with child.driving():
            child.queue(b"\n")
            with pytest.raises(PeerGone) as caught:
                child.pump(never, patient())
        assert caught.value.status == status
        assert child.end(patient()) == ChildExit(status, executed=True, killed=False)


# Attaches to process 1 of the sandbox by ptrace(2): 16 attaches, 12 and 13 get and set its registers, 1 and
# 4 peek and poke its text, 9 steps, 17 detaches.
PTRACE = """
import ctypes, os, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
def ptrace(request, address=0, data=0):
    ctypes.set_errno(0)
    result = libc.ptrace(request, 1, address, data)
    if ctypes.get_errno():
        print("refused", flush=True)
        time.sleep(1000)
    return result
ptrace(16)
os.waitpid(1, 0x40000000)
"""
# Makes process 1 call prctl(PR_SET_PDEATHSIG, 0): registers are those of x86-64.
INJECT = PTRACE + """
registers = (ctypes.c_ulong * 27)()
ptrace(12, 0, ctypes.addressof(registers))
saved, place = bytes(registers), registers[16]
word = ptrace(1, place)
ptrace(4, place, (word & ~0xffff) | 0x050f)
registers[10], registers[14], registers[13], registers[15] = 157, 1, 0, 2**64 - 1
ptrace(13, 0, ctypes.addressof(registers))
ptrace(9)
os.waitpid(1, 0x40000000)
ptrace(12, 0, ctypes.addressof(registers))
result = registers[10]
ptrace(4, place, word)
ctypes.memmove(registers, saved, len(saved))
ptrace(13, 0, ctypes.addressof(registers))
ptrace(17)
subprocess.Popen(["setsid", "sleep", "1000"])
print("injected" if result == 0 else "refused", flush=True)
"""
HARD = {
    "plain": ("echo up; exec sleep 1000", False),
    "daemons that ignore every polite signal": (
        "trap '' TERM HUP INT; for i in 1 2 3; do (setsid sh -c 'sleep 1000 & exec sleep 1000' &); done; "
        "sleep 0.05; echo up; exec sleep 1000",
        False,
    ),
    "forking without end": (
        "f() { sleep 0.2 & sleep 1000 & }; echo up; while :; do f; sleep 0.002; done",
        False,
    ),
    "stopped throughout": (
        "sleep 1000 & sleep 1000 & kill -STOP %1 %2; echo up; kill -STOP $$; sleep 1000",
        False,
    ),
    "ended, with a daemon left": ("setsid sleep 1000 & sleep 0.05; echo up; exit 0", False),
    "process 1 stopped": (PTRACE + "print('up', flush=True)\ntime.sleep(1000)", True),
    "process 1 stopped and the program ended": (PTRACE + "print('up', flush=True)\nos._exit(0)", True),
    "process 1 disarmed": (INJECT + "time.sleep(1000)", True),
    "process 1 disarmed and the program ended": (INJECT, True),
}


@pytest.mark.parametrize("kind", HARD)
def test_after_the_end_nothing_of_the_tree_is_left(
    sandbox: Path, workspace: Path, kind: str, marker: str, ms: float
) -> None:
    script, python = HARD[kind]
    if python and platform.machine() != "x86_64":
        pytest.skip("the registers are those of x86-64")
    with sandboxed_child(script, workspace, python=python, environment={"LATCH_TEST_MARK": marker}) as child:
        if converse(child, b"", expect=3).startswith(b"refused"):
            pytest.skip("this kernel refuses ptrace of process 1")
        init, monitor = child.init_pid, child.monitor_pid
        began = time.monotonic()
        child.end(patient())
        assert time.monotonic() - began < 1000 * ms
        assert child.is_proven_dead
        assert carriers(marker) == []
        assert is_dead(init) and is_dead(monitor)


def test_a_disarmed_process_one_whose_monitor_was_killed_is_ended_all_the_same(
    sandbox: Path, workspace: Path, marker: str
) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the registers are those of x86-64")
    script = INJECT + "time.sleep(1000)"
    with sandboxed_child(script, workspace, python=True, environment={"LATCH_TEST_MARK": marker}) as child:
        if converse(child, b"", expect=3).startswith(b"refused"):
            pytest.skip("this kernel refuses ptrace of process 1")
        os.kill(child.monitor_pid, signal.SIGKILL)
        with pytest.raises(PeerGone), child.driving():
            child.pump(never, patient())
        # Dying with the monitor is what was disarmed.
        assert len(carriers(marker)) >= 2
        child.end(patient())
        assert child.is_proven_dead
        assert carriers(marker) == []


@pytest.mark.parametrize("moment", ["unread", "named"])
@pytest.mark.parametrize("delay_ms", [0, 1, 5, 30])
def test_a_child_that_waits_at_its_gate_is_ended(
    sandbox: Path, workspace: Path, moment: str, delay_ms: int, ms: float
) -> None:
    token = os.urandom(8).hex()
    with gated_child("echo never", workspace, token=token) as child:
        time.sleep(delay_ms * ms)
        if moment == "named":
            assert child.read_init_pid(patient()) == child.init_pid is not None
            assert child.init_pid in carriers(token)
        began = time.monotonic()
        child.end(patient())
        assert time.monotonic() - began < 1000 * ms
        assert child.is_proven_dead
    assert carriers(token) == []


def test_what_waits_at_its_gate_does_nothing_until_the_gate_is_opened(
    sandbox: Path, workspace: Path, ms: float
) -> None:
    with gated_child("echo up; exec cat", workspace, token="none") as child:
        assert child.read_init_pid(patient()) is not None
        with pytest.raises(DeadlineMissed), child.driving():
            child.pump(never, Scope.root(100 * ms))
        child.open_gate()
        assert converse(child, b"", expect=3) == b"up\n"


@pytest.mark.soak
def test_a_start_cancelled_at_any_moment_leaves_nothing(sandbox: Path, workspace: Path, marker: str) -> None:
    rounds = 200 if os.environ.get("LATCH_SOAK") == "1" else 20
    box = Sandbox(SandboxSettings())
    bubblewrap = box.ready(patient(), wanted="test", workspace=workspace)
    prepared = box.planner.prepare_peer(
        "test",
        "/bin/sh",
        ("-c", "setsid sleep 1000 & exec sleep 1000"),
        workspace=workspace,
        environment={"LATCH_TEST_MARK": marker},
        features=bubblewrap.features,
    )
    outcomes: dict[str, int] = {"cancelled": 0, "started": 0}
    for number in range(rounds):
        scope = Scope.root(30)
        timer = threading.Timer(0.020 * number / rounds, scope.cancel, ["now"])
        timer.start()
        try:
            child = box.start(prepared, scope)
        except Cancelled:
            outcomes["cancelled"] += 1
        else:
            outcomes["started"] += 1
            child.end(patient())
        timer.join()
    assert outcomes["cancelled"] > 0, outcomes
    tokens = [entry.token for entry in read_entries(box.state_directory)]
    assert eventually(lambda: not any(carriers(word) for word in (marker, *tokens)))
