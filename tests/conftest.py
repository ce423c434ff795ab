"""What every test may ask for: a unit of time, a workspace, a working sandbox.

No test touches the real home: each runs with its own, and so does whatever it starts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from tests.support.census import carriers
from tests.support.pace import MS

NAMED_BY_TESTS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
# What a shell that starts us in the background, nohup or a service manager may have set aside.
ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a sandbox, so that it can be left out by ``-m``."""
    for item in items:
        if "sandbox" in getattr(item, "fixturenames", ()):
            item.add_marker("sandbox")


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers here, where they are given meaning, and take signals as a terminal would send them.

    An ignored signal stays ignored in every process that a test starts, so it is put right here, once.
    """
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    config.addinivalue_line("markers", "sandbox: needs bubblewrap; set by using the fixture of that name")
    config.addinivalue_line("markers", "soak: a campaign; a tenth of it unless LATCH_SOAK=1")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test, and what it starts, a home of its own; returns it."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LATCH_DIRECTORY", str(home / ".latch"))
    monkeypatch.setenv("LATCHKEY_DIRECTORY", str(home / ".latchkey"))
    for name in NAMED_BY_TESTS:
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def ms() -> float:
    """One millisecond in seconds, longer on a machine that says it is slow (``LATCH_TEST_SLOW``)."""
    return MS


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty directory to be used as a workspace."""
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def marker() -> Iterator[str]:
    """A text for environments; whatever still carries it in the end is a failure."""
    text = f"mark-{os.urandom(8).hex()}"
    yield text
    left = carriers(text)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.fixture(scope="session")
def _bwrap_refusal() -> str | None:
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap is not installed"
    probe = [program, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(
            probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=20000 * MS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"bwrap did not start within {20000 * MS:g} s"
    return (
        None
        if done.returncode == 0
        else f"bwrap does not work here: {done.stderr.decode(errors='replace').strip()}"
    )


@pytest.fixture
def sandbox(_bwrap_refusal: str | None) -> Path:
    """The bwrap program, known to work here.

    Without one the test is skipped with the reason, or fails where ``LATCH_REQUIRE_SANDBOX=1``.
    """
    if _bwrap_refusal is not None:
        if os.environ.get("LATCH_REQUIRE_SANDBOX") == "1":
            pytest.fail(f"a sandbox is required: {_bwrap_refusal}")
        pytest.skip(_bwrap_refusal)
    return Path(shutil.which("bwrap") or "")
