"""Importing does nothing: each module is imported in a fresh interpreter under an audit hook.

The hook sees every file opened, process or thread started, connection made and directory changed.
One interpreter serves all modules; between two of them the package is forgotten, so that each is
imported as if it were the first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT, module_of, sources

WATCH = r"""
import os, signal, sys, threading

EFFECTS = (
    "subprocess.", "socket.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill",
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod",
    "os.chown", "os.putenv", "os.unsetenv", "os.chdir", "shutil.", "tempfile.", "sqlite3.", "_thread.start",
    "signal.", "urllib.", "webbrowser.", "fcntl.flock", "fcntl.lockf", "fcntl.fcntl",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
seen = []

def audit(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        # NOTE: beside a mode the flags are not those of the call on every interpreter.
        writes = set(mode) & set("wax+") if isinstance(mode, str) else flags & WRITING
        if writes:
            seen.append((event, str(path)))
    elif event.startswith(EFFECTS):
        seen.append((event, repr(arguments)[:200]))

def state():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)
    return {
        "threads": threading.active_count(),
        "handlers": [signal.getsignal(number) for number in numbers],
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "path": list(sys.path),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "hooks": (sys.excepthook, sys.displayhook),
        "descriptors": sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else [],
    }

sys.addaudithook(audit)
top = sys.argv[1]
for module in sys.argv[2:]:
    for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
        del sys.modules[name]
    before = state()
    seen.clear()
    try:
        __import__(module)
    except BaseException as error:
        seen.append(("import", repr(error)))
    effects = list(seen)
    after = state()
    effects += [(what, "changed") for what in before if before[what] != after[what]]
    for effect in effects:
        print(module, *effect)
"""


def effects_of(modules: list[str], *, top: str, path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCH, top, *modules],
        cwd=path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_importing_any_module_does_nothing() -> None:
    assert effects_of([module_of(path) for path in sources()], top="latch", path=ROOT) == []


@pytest.mark.parametrize(
    "source",
    [
        "open('written', 'w').close()",
        pytest.param(
            "import os; os.mkdir('made')",
            marks=pytest.mark.skipif(
                sys.implementation.name != "cpython", reason="this interpreter tells no hook of it"
            ),
        ),
        "import os; os.environ['LOUD'] = '1'",
        "import subprocess; subprocess.Popen(['true']).wait()",
        "import socket; socket.socket().close()",
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import os; os.chdir('/')",
        "import sys; sys.path.append('/nowhere')",
        "print('hello')",
        "import sys; sys.stderr.write('hello')",
        "raise SystemExit(0)",
    ],
)
def test_an_effect_is_caught(tmp_path: Path, source: str) -> None:
    (tmp_path / "loud.py").write_text(source, encoding="utf-8")
    assert effects_of(["loud"], top="loud", path=tmp_path)


def test_a_quiet_module_passes(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("import json\nX = json.dumps({})\n", encoding="utf-8")
    assert effects_of(["quiet"], top="quiet", path=tmp_path) == []
