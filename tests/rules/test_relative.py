"""The package may be vendored under another name: nothing in it says its own name to be imported."""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import sources, tree_of

# Calls whose first argument names a module, a distribution or a package.
BY_NAME = (
    "import_module",
    "__import__",
    "version",
    "metadata",
    "files",
    "get_data",
    "find_spec",
    "run_module",
)


def violations(path: str, tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(is_own(alias.name) for alias in node.names):
            found.append(f"{path}:{node.lineno}: absolute import")
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and is_own(node.module or ""):
            found.append(f"{path}:{node.lineno}: absolute import")
        elif (
            isinstance(node, ast.Call)
            and called(node) in BY_NAME
            and node.args
            and is_own(text(node.args[0]))
        ):
            found.append(f"{path}:{node.lineno}: imports by its own name")
        elif isinstance(node, (ast.List, ast.Tuple)) and names_itself(node.elts):
            found.append(f"{path}:{node.lineno}: starts itself by name")
    return found


def is_own(name: str) -> bool:
    return name == "latch" or name.startswith("latch.")


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def names_itself(elements: list[ast.expr]) -> bool:
    words = [text(element) for element in elements]
    return any(first == "-m" and is_own(second) for first, second in zip(words, words[1:]))


@pytest.mark.parametrize("path", sources())
def test_module_imports_its_own_package_relatively(path: str) -> None:
    assert violations(path, tree_of(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import latch",
        "import latch.errors",
        "from latch import errors",
        "def late() -> None:\n    from latch.errors import LatchError",
        "import_module('latch.errors')",
        "importlib.import_module('latch')",
        "metadata.version('latch')",
        "[sys.executable, '-m', 'latch']",
    ],
)
def test_its_own_name_is_caught(source: str) -> None:
    assert violations("latch/wire/lines.py", ast.parse(source))


@pytest.mark.parametrize(
    "source", ["from . import errors", "import_module('.errors', __package__)", "print('latch')"]
)
def test_a_relative_import_passes(source: str) -> None:
    assert violations("latch/wire/lines.py", ast.parse(source)) == []
