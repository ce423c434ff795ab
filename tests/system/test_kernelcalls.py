"""Kernel calls do the same whether the interpreter has them or the C library has to."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from latch.system import kernelcalls
from tests.support.census import eventually, is_dead

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["interpreter", "library"], autouse=True)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run each test with what the interpreter has, and as on one that has none of it."""
    if request.param == "library":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)
        monkeypatch.delattr(resource, "prlimit", raising=False)
    return request.param


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen]:
    """A process that does nothing."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    """Run *script* in an interpreter of its own, since what it does cannot be undone."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def readable(descriptor: int, seconds: float) -> bool:
    """Tell whether *descriptor* becomes readable in time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_a_process_descriptor_is_readable_when_the_process_is_dead(sleeper: subprocess.Popen) -> None:
    descriptor = kernelcalls.open_process(sleeper.pid)
    try:
        assert not readable(descriptor, 0)
        assert not os.get_inheritable(descriptor)
        sleeper.kill()
        # Not reaped yet: dead is enough.
        assert readable(descriptor, 10)
    finally:
        os.close(descriptor)


def test_there_is_no_descriptor_of_a_process_that_is_gone(sleeper: subprocess.Popen) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(OSError) as caught:
        kernelcalls.open_process(sleeper.pid)
    assert caught.value.errno == errno.ESRCH
    assert caught.value.strerror == os.strerror(errno.ESRCH)


def test_a_signal_reaches_the_process_of_a_descriptor(sleeper: subprocess.Popen) -> None:
    descriptor = kernelcalls.open_process(sleeper.pid)
    try:
        kernelcalls.signal_process(descriptor, 0)
        kernelcalls.signal_process(descriptor, signal.SIGKILL)
        assert sleeper.wait(10) == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            kernelcalls.signal_process(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def limits_of(pid: int, name: str) -> tuple[str, str]:
    """The soft and the hard limit *name* of a process, as /proc shows them."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith(name):
            return tuple(line[len(name) :].split()[:2])
    raise AssertionError(name)


def test_a_limit_is_set_on_another_process_soft_and_hard(sleeper: subprocess.Popen) -> None:
    kernelcalls.set_limit(sleeper.pid, resource.RLIMIT_FSIZE, 5 * 1024**3)
    kernelcalls.set_limit(sleeper.pid, resource.RLIMIT_CORE, 0)
    assert limits_of(sleeper.pid, "Max file size") == (str(5 * 1024**3),) * 2
    assert limits_of(sleeper.pid, "Max core file size") == ("0", "0")


def test_a_lower_hard_limit_is_kept(sleeper: subprocess.Popen) -> None:
    kernelcalls.set_limit(sleeper.pid, resource.RLIMIT_NOFILE, 100)
    kernelcalls.set_limit(sleeper.pid, resource.RLIMIT_NOFILE, 200)
    assert limits_of(sleeper.pid, "Max open files") == ("100", "100")


def test_there_is_no_limit_for_a_process_that_is_gone(sleeper: subprocess.Popen) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(ProcessLookupError):
        kernelcalls.set_limit(sleeper.pid, resource.RLIMIT_CORE, 0)


def test_the_landlock_version_is_a_number() -> None:
    assert kernelcalls.landlock_abi() >= 0


def test_abstract_sockets_made_outside_are_out_of_reach_afterwards() -> None:
    if kernelcalls.landlock_abi() < 6:
        pytest.skip("this kernel's Landlock has no scopes")
    done = run_python("""
import socket, threading
from latch.system import kernelcalls

def connect(name):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(name)
            return "connected"
        except PermissionError:
            return "refused"

with socket.socket(socket.AF_UNIX) as server:
    server.bind(b"")
    server.listen(8)
    name = server.getsockname()
    print(connect(name))
    answers = []
    def restricted():
        answers.append(kernelcalls.restrict_abstract_sockets())
        answers.append(connect(name))
        for line in open("/proc/thread-self/status"):
            if line.startswith("NoNewPrivs"):
                answers.append(line.split()[1])
    thread = threading.Thread(target=restricted)
    thread.start()
    thread.join()
    print(*answers)
    print(connect(name))
""")
    assert (done.stdout, done.stderr) == ("connected\nTrue refused 1\nconnected\n", "")


def test_without_landlock_scopes_nothing_is_restricted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelcalls, "landlock_abi", lambda: 5)
    assert kernelcalls.restrict_abstract_sockets() is False
    assert "NoNewPrivs:\t1" not in Path("/proc/thread-self/status").read_text()


def test_a_new_session_keyring_is_empty_and_another_one() -> None:
    done = run_python("""
import ctypes, os
from latch.system import kernelcalls
number = kernelcalls._KEYCTL[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)
def keyring():
    # keyctl(2): KEYCTL_GET_KEYRING_ID is 0, the session keyring -3
    return libc.syscall(ctypes.c_long(number), ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(0))
before = keyring()
print(kernelcalls.join_new_session_keyring(), keyring() != before, keyring() > 0)
""")
    if "False" in done.stdout and not os.path.exists("/proc/keys"):
        pytest.skip("this kernel has no keyrings")
    assert (done.stdout, done.stderr) == ("True True True\n", "")


def test_on_an_unknown_architecture_there_is_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelcalls, "_architecture", lambda: "pdp11")
    assert kernelcalls.join_new_session_keyring() is False


def test_a_call_the_kernel_does_not_know_is_an_error_with_its_number() -> None:
    with pytest.raises(OSError) as caught:
        kernelcalls._syscall(100_000)
    assert caught.value.errno == errno.ENOSYS


def test_a_process_that_was_stopped_is_killed_all_the_same(sleeper: subprocess.Popen) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    descriptor = kernelcalls.open_process(sleeper.pid)
    try:
        kernelcalls.signal_process(descriptor, signal.SIGKILL)
        assert eventually(lambda: is_dead(sleeper.pid))
    finally:
        os.close(descriptor)
