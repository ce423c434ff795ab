"""Idle children are looked after by one thread that keeps nobody alive and never holds anybody up."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from contextlib import ExitStack
from pathlib import Path

import pytest

from latch.errors import DeadlineMissed, PeerGone, WireError
from latch.limits import DEFAULT
from latch.system import housekeeper
from latch.system.child import Child
from latch.system.scope import Scope
from tests.support.census import eventually
from tests.support.children import TELL_STATUS, patient, plain_child, sandboxed_child

CHECKOUT = Path(__file__).resolve().parents[2]
EVERY_SECONDS = 0.05


def test_an_idle_child_that_complains_does_not_stall() -> None:
    with plain_child("head -c 1000000 /dev/zero >&2; echo done >&2; exec sleep 60") as child:
        housekeeper.tend(child, EVERY_SECONDS)
        assert eventually(lambda: child.stderr_text().endswith("done\n"))


def test_what_an_idle_child_says_reaches_its_owner() -> None:
    heard = bytearray()
    with plain_child("head -c 500000 /dev/zero; echo done; exec sleep 60") as child:
        child.on_idle = heard.extend
        housekeeper.tend(child, EVERY_SECONDS)
        assert eventually(lambda: heard.endswith(b"done\n"))
        assert len(heard) == 500_005


def test_an_idle_child_gets_the_answers_that_wait_for_it() -> None:
    heard = bytearray()
    with plain_child("read -r line; echo got $line; exec sleep 60") as child:
        child.on_idle = heard.extend
        child.queue(b"pong\n")
        housekeeper.tend(child, EVERY_SECONDS)
        assert eventually(lambda: bytes(heard) == b"got pong\n")


def test_the_end_of_an_idle_child_is_noticed() -> None:
    with plain_child(TELL_STATUS + "tell 3") as child:
        housekeeper.tend(child, EVERY_SECONDS)
        assert eventually(child.has_exited)
        assert child.exit is None


@pytest.mark.parametrize(
    "fault", [WireError("bad frame"), KeyError("bad frame"), AssertionError("bad frame")]
)
def test_a_fault_met_while_idle_is_raised_by_the_next_exchange_and_ends_no_thread(fault: Exception) -> None:
    def fail(_: bytes) -> None:
        raise fault

    heard = bytearray()
    with (
        plain_child("echo; exec sleep 60") as bad,
        plain_child("read -r _; echo fine; exec sleep 60") as good,
    ):
        bad.on_idle, good.on_idle = fail, heard.extend
        housekeeper.tend(bad, EVERY_SECONDS)
        assert eventually(lambda: bad.fault is not None)
        with pytest.raises(type(fault), match="bad frame"), bad.driving():
            raise AssertionError("held in spite of the fault")
        housekeeper.tend(good, EVERY_SECONDS)
        good.queue(b"\n")
        assert eventually(lambda: bytes(heard) == b"fine\n")


def test_a_child_that_is_driven_is_left_to_its_driver(ms: float) -> None:
    heard = bytearray()
    with plain_child("while :; do echo x; sleep 0.02; done") as child:
        child.on_idle = heard.extend
        got = bytearray()
        with child.driving():
            housekeeper.tend(child, EVERY_SECONDS)
            with pytest.raises(DeadlineMissed):
                child.pump(lambda chunk: got.extend(chunk) is not None, Scope.root(300 * ms))
            assert not heard
        assert len(got) >= 6
        assert eventually(lambda: heard)


def test_a_flooding_child_does_not_keep_the_others_waiting(ms: float) -> None:
    heard = bytearray()
    with (
        plain_child("yes >&2 & exec yes") as loud,
        plain_child("read -r _; echo fine; exec sleep 60") as quiet,
    ):
        quiet.on_idle = heard.extend
        housekeeper.tend(loud, EVERY_SECONDS)
        housekeeper.tend(quiet, EVERY_SECONDS)
        began = time.monotonic()
        quiet.queue(b"\n")
        assert eventually(lambda: bytes(heard) == b"fine\n")
        assert time.monotonic() - began < 2000 * ms


def test_there_is_one_thread_however_many_children() -> None:
    with plain_child("exec sleep 60") as one, plain_child("exec sleep 60") as two:
        housekeeper.tend(one, EVERY_SECONDS)
        housekeeper.tend(two, EVERY_SECONDS)
        housekeeper.tend(two, EVERY_SECONDS)
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("latch.system.housekeeper") == 1
        assert all(
            thread.daemon for thread in threading.enumerate() if thread.name == "latch.system.housekeeper"
        )


@pytest.mark.parametrize("others", [0, 1])
def test_a_child_that_was_dropped_is_not_kept_alive(others: int) -> None:
    with ExitStack() as stack:
        for _ in range(others):
            housekeeper.tend(stack.enter_context(plain_child("exec sleep 60")), EVERY_SECONDS)
        kept = stack.enter_context(plain_child("exec sleep 60"))
        # A second owner of the same process, who goes away without ending it.
        dropped = Child(
            kept._process, kept._pipes, token_entry=b"none", limits=DEFAULT.process, on_end=lambda: None
        )
        housekeeper.tend(dropped, EVERY_SECONDS)
        time.sleep(3 * EVERY_SECONDS)
        reference = weakref.ref(dropped)
        del dropped
        assert eventually(lambda: (gc.collect(), reference())[1] is None, seconds=5)


def test_a_forked_host_has_a_housekeeper_of_its_own() -> None:
    script = """
import os
from latch.limits import DEFAULT
from latch.system import housekeeper
from tests.support.census import eventually
from tests.support.children import plain_child
def look():
    with plain_child("echo hello; exec sleep 60") as child:
        heard = bytearray()
        child.on_idle = heard.extend
        housekeeper.tend(child, 0.02)
        return eventually(lambda: bytes(heard) == b"hello\\n")
print(look(), flush=True)
pid = os.fork()
if pid == 0:
    os._exit(int(look()))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("True\n1\n", "")


def test_a_sandboxed_child_is_looked_after(sandbox: Path, workspace: Path) -> None:
    heard = bytearray()
    script = "head -c 300000 /dev/zero >&2; echo done; read -r line; echo $line; exec sleep 1000"
    with sandboxed_child(script, workspace) as child:
        child.on_idle = heard.extend
        housekeeper.tend(child, EVERY_SECONDS)
        assert eventually(lambda: bytes(heard) == b"done\n")
        child.queue(b"pong\n")
        assert eventually(lambda: bytes(heard) == b"done\npong\n")


def test_a_child_seen_to_end_is_not_looked_after_any_longer() -> None:
    with plain_child(TELL_STATUS + "tell 3") as child:
        housekeeper.tend(child, EVERY_SECONDS)
        assert eventually(lambda: child not in housekeeper._ONLY["housekeeper"]._children)
        with pytest.raises(PeerGone) as caught, child.driving():
            child.pump(lambda chunk: True, patient())
    assert caught.value.status == 3


def test_a_thread_that_could_not_go_on_is_replaced() -> None:
    heard = bytearray()
    with plain_child("exec sleep 60") as one, plain_child("read -r _; echo fine; exec sleep 60") as two:
        housekeeper.tend(one, EVERY_SECONDS)
        gone = threading.Thread(target=len, args=((),))
        gone.start()
        gone.join()
        stopped = housekeeper._ONLY["housekeeper"]
        stopped._thread = gone
        two.on_idle = heard.extend
        housekeeper.tend(two, EVERY_SECONDS)
        assert housekeeper._ONLY["housekeeper"] is not stopped
        two.queue(b"\n")
        assert eventually(lambda: bytes(heard) == b"fine\n")
