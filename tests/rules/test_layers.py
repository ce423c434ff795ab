"""Who may import whom: the security promises as an import graph.

A module imports from its own package and from lower levels. At level 3 the letters are walls: no
subject sees another. Two packages have readers of their own: ``config`` and ``gateway``.
"""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import imports, sources, tree_of

LEVELS = {
    "errors": 0,
    "limits": 0,
    "settings": 0,
    "wire": 1,
    "schema": 1,
    "system": 2,
    "config": 3,
    "kernel": 3,
    "extensions": 3,
    "mcp": 3,
    "skills": 3,
    "gateway": 3,
    "tools": 4,
    "agent": 5,
    "cli": 6,
}
# subject -> who may read it; everything else of a lower level is open to all above it
READERS = {
    "config": ("latch/tools/assembly.py", "latch/cli/"),
    "gateway": ("latch/cli/",),
}
# file -> what it may not import although its level would allow it
EXTRA = {
    "latch/errors.py": ("latch.",),
    "latch/limits.py": ("latch.settings",),
    # It is copied beside extensions that run without us.
    "latch/extensions/sdk.py": ("latch.",),
    # Modules get a frozen context and never stored credentials.
    "latch/gateway/modules.py": ("latch.gateway.credentials",),
}
# The package itself names everything by text; running it is running the command line.
TOP = {"latch/__init__.py": (), "latch/__main__.py": ("cli",)}


def violations(path: str, tree: ast.Module) -> list[str]:
    found = []
    for name, line in imports(tree, path):
        if name.split(".")[0] == "latch" and not allowed(path, name):
            found.append(f"{path}:{line}: may not import {name}")
    return found


def allowed(path: str, name: str) -> bool:
    if name == "latch.__version__":
        return "/" in path.removeprefix("latch/") and path != "latch/__init__.py"
    if any(name.startswith(hole) for hole in EXTRA.get(path, ())):
        return False
    target = name.split(".")[1]
    if path in TOP:
        return target in TOP[path]
    own = path.split("/")[1].removesuffix(".py")
    if target == own:
        return True
    if target not in LEVELS or own not in LEVELS:
        return False
    if target in READERS and not path.startswith(READERS[target]):
        return False
    return LEVELS[target] < LEVELS[own] or LEVELS[target] == LEVELS[own] == 0


@pytest.mark.parametrize("path", sources())
def test_module_imports_only_its_own_package_and_lower_levels(path: str) -> None:
    assert violations(path, tree_of(path)) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("latch/extensions/host.py", "from ..kernel.session import Session"),
        ("latch/extensions/host.py", "def late() -> None:\n    from ..kernel import session"),
        ("latch/kernel/dispatch.py", "from ..mcp import client"),
        ("latch/mcp/client.py", "from ..extensions import host"),
        ("latch/wire/lines.py", "from ..schema import compile"),
        ("latch/wire/lines.py", "from ..system.scope import Scope"),
        ("latch/system/child.py", "from ..config import load"),
        ("latch/system/child.py", "import latch.kernel"),
        ("latch/tools/mcp_tool.py", "from ..config.load import load"),
        ("latch/tools/mcp_tool.py", "from ..agent import loop"),
        ("latch/agent/loop.py", "from ..gateway import rules"),
        ("latch/gateway/modules.py", "from .credentials import Store"),
        ("latch/errors.py", "from .limits import DEFAULT"),
        ("latch/extensions/sdk.py", "from ..errors import LatchError"),
        ("latch/__init__.py", "from . import errors"),
        ("latch/unknown/thing.py", "from .. import errors"),
    ],
)
def test_a_wrong_import_is_caught(path: str, source: str) -> None:
    assert violations(path, ast.parse(source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("latch/tools/assembly.py", "from ..config.load import load"),
        ("latch/cli/commands/gateway.py", "from ...gateway.server import GatewayServer"),
        ("latch/settings.py", "from .limits import Limits"),
        ("latch/tools/mcp_tool.py", "from ..kernel.values import Tool\nfrom ..mcp.client import McpClient"),
        ("latch/extensions/host.py", "from .. import __version__"),
        ("latch/wire/lines.py", "import json"),
    ],
)
def test_a_right_import_passes(path: str, source: str) -> None:
    assert violations(path, ast.parse(source)) == []
