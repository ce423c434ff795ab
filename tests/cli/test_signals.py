"""cli/signals.py: signals cancel, and only while a command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Iterator

import pytest

from latch.cli.signals import cancel_on_signals
from latch.errors import Cancelled
from latch.system.scope import CancelToken, Scope
from tests.support.tree import ROOT

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_with_its_name_and_wakes_a_waiter(number: signal.Signals) -> None:
    token = CancelToken()
    scope = Scope.root(20, token=token)
    with cancel_on_signals(token), pytest.raises(Cancelled) as caught:
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        scope.pause(20)
    assert caught.value.reason == number.name


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    with pytest.raises(ValueError), cancel_on_signals(CancelToken()):
        assert [signal.getsignal(number) for number in NUMBERS] != before
        raise ValueError
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_an_ignored_sigchld_is_reset_and_put_back() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with cancel_on_signals(CancelToken()):
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    token = CancelToken()
    with cancel_on_signals(token):
        os.kill(os.getpid(), number)
    assert token.reason is None


def test_a_termination_after_a_cancel_changes_nothing() -> None:
    token = CancelToken()
    with cancel_on_signals(token):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert token.reason == "SIGINT"


def test_a_second_interrupt_leaves_at_once() -> None:
    program = """
import os, signal
from latch.cli.signals import cancel_on_signals
from latch.system.scope import CancelToken
signal.signal(signal.SIGINT, signal.default_int_handler)
with cancel_on_signals(CancelToken()):
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("never")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "still here\n", "")


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with cancel_on_signals(CancelToken()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert seen == [before]
