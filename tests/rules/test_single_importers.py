"""What only named files may import, or do: third parties, processes, threads, the clock, the environment."""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import running_imports, sources, tree_of

# module -> the files that may import it
IMPORTERS = {
    # For the authorities that it brings along.
    "requests": ("latch/system/tls.py",),
    "urllib3": (),
    "http.client": (),
    "yaml": ("latch/skills/frontmatter.py",),
    "tomllib": ("latch/config/tomlfile.py",),
    "tomli": ("latch/config/tomlfile.py",),
    "cryptography": ("latch/gateway/credentials.py",),
    "subprocess": ("latch/system/spawner.py",),
    "time": ("latch/system/scope.py",),
    "ctypes": ("latch/system/kernelcalls.py",),
    "http.server": ("latch/gateway/server.py",),
    "hmac": ("latch/wire/jwt.py", "latch/wire/sigv4.py"),
    # doctor's listener, which a child is to see or not; the gateway's server has a module for it.
    "socket": ("latch/cli/findings.py", "latch/system/httpsocket.py"),
    "sqlite3": ("latch/kernel/history.py",),
    # doctor says which of the third parties are installed, without importing them.
    "importlib": (
        "latch/__init__.py",
        "latch/cli/main.py",
        "latch/cli/commands/doctor.py",
        "latch/cli/findings.py",
    ),
    # The demonstration's peer is a program of its own, run inside the sandbox.
    "signal": ("latch/cli/signals.py", "latch/system/", "latch/cli/demo_peer.py"),
    # Ambient machinery nobody of ours needs.
    "asyncio": (),
    "concurrent": (),
    "multiprocessing": (),
    "pkg_resources": (),
    "pty": (),
}
# (module, name in it) -> the files that may use it
USERS = {
    ("os", "environ"): ("latch/system/machine.py",),
    ("os", "environb"): (),
    ("os", "getenv"): (),
    ("os", "putenv"): (),
    ("os", "unsetenv"): (),
    ("os", "fork"): (),
    ("os", "forkpty"): (),
    ("os", "system"): (),
    ("os", "popen"): (),
    ("os", "posix_spawn"): ("latch/system/spawner.py",),
    ("os", "_exit"): ("latch/cli/signals.py",),
    ("os", "chdir"): (),
    ("os", "umask"): (),
    ("threading", "Thread"): (
        "latch/system/spawner.py",
        "latch/system/housekeeper.py",
        "latch/system/httpsocket.py",
        "latch/tools/peers.py",
        "latch/gateway/server.py",
        "latch/agent/children.py",
    ),
    ("threading", "Timer"): (),
    ("_thread", "start_new_thread"): (),
    ("signal", "signal"): ("latch/cli/signals.py",),
    ("sys", "exit"): ("latch/__main__.py",),
}


def violations(path: str, tree: ast.Module) -> list[str]:
    found = []
    for name, line in running_imports(tree, path):
        for module, files in IMPORTERS.items():
            if (name == module or name.startswith(f"{module}.")) and not path.startswith(files):
                found.append(f"{path}:{line}: may not import {module}")
        parts = name.split(".")
        if len(parts) == 2 and not path.startswith(USERS.get((parts[0], parts[1]), (path,))):
            found.append(f"{path}:{line}: may not import {name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            files = USERS.get((node.value.id, node.attr), (path,))
            if not path.startswith(files):
                found.append(f"{path}:{node.lineno}: may not use {node.value.id}.{node.attr}")
            if node.value.id == "time" and node.attr not in ("monotonic",):
                found.append(f"{path}:{node.lineno}: of the clock only time.monotonic")
    return found


@pytest.mark.parametrize("path", sources())
def test_module_leaves_to_others_what_is_theirs(path: str) -> None:
    assert violations(path, tree_of(path)) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("latch/mcp/streamable.py", "import requests"),
        ("latch/mcp/streamable.py", "from requests.adapters import HTTPAdapter"),
        ("latch/config/load.py", "def late() -> None:\n    import tomllib"),
        ("latch/cli/terminal.py", "import os\nHOME = os.environ['HOME']"),
        ("latch/cli/terminal.py", "from os import environ"),
        ("latch/kernel/session.py", "import threading\nthreading.Thread(target=print).start()"),
        ("latch/kernel/session.py", "from threading import Thread"),
        ("latch/kernel/session.py", "from time import monotonic"),
        ("latch/system/scope.py", "import time\ntime.sleep(1)"),
        ("latch/system/child.py", "import subprocess"),
        ("latch/system/spawner.py", "import os\nos.fork()"),
        ("latch/gateway/proxy.py", "import http.server"),
        ("latch/gateway/proxy.py", "from http import server"),
        ("latch/wire/lines.py", "import hmac"),
        ("latch/extensions/host.py", "import socket"),
        ("latch/system/child.py", "from socket import create_server"),
    ],
)
def test_a_stray_importer_is_caught(path: str, source: str) -> None:
    assert violations(path, ast.parse(source))


def test_an_import_for_type_checkers_alone_passes() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import subprocess"
    assert violations("latch/system/child.py", ast.parse(source)) == []


def test_the_named_files_pass() -> None:
    assert violations("latch/system/scope.py", ast.parse("import time\ntime.monotonic()")) == []
    assert violations("latch/system/machine.py", ast.parse("import os\nos.environ")) == []
    assert violations("latch/system/child.py", ast.parse("import threading\nthreading.Lock()")) == []
