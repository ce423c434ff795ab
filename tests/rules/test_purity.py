"""Bytes and decisions are pure: no clock, no file, no process, no thread, no chance."""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import imports, sources, tree_of

IMPURE = {
    "asyncio",
    "concurrent",
    "ctypes",
    "fcntl",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
}
PURE = (
    "latch/errors.py",
    "latch/limits.py",
    "latch/settings.py",
    "latch/wire/",
    "latch/schema/",
    "latch/extensions/conversation.py",
    "latch/extensions/hooks.py",
    "latch/extensions/registrations.py",
    "latch/mcp/conversation.py",
    "latch/kernel/policy.py",
    "latch/kernel/records.py",
    "latch/gateway/rules.py",
    "latch/tools/names.py",
)


def violations(path: str, tree: ast.Module) -> list[str]:
    found = []
    for name, line in imports(tree, path):
        impure = any(name == module or name.startswith(f"{module}.") for module in IMPURE)
        if impure or name.startswith("latch.system"):
            found.append(f"{path}:{line}: {name} is not pure")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "input")
        ):
            found.append(f"{path}:{node.lineno}: calls {node.func.id}")
    return found


@pytest.mark.parametrize("path", [path for path in sources() if path.startswith(PURE)])
def test_pure_module_touches_nothing_outside_itself(path: str) -> None:
    assert violations(path, tree_of(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "from os import path",
        "import os.path",
        "def late() -> None:\n    import time",
        "from urllib.request import urlopen",
        "from ..system.scope import Scope",
        "def read() -> str:\n    return open('x').read()",
    ],
)
def test_an_impure_module_is_caught(source: str) -> None:
    assert violations("latch/wire/lines.py", ast.parse(source))


def test_parsing_an_address_is_pure() -> None:
    assert violations("latch/wire/lines.py", ast.parse("from urllib.parse import urlsplit")) == []
