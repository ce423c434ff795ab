"""The source tree as the rule tests see it: every module, parsed once, and its test file.

Rules are functions from (path, syntax tree) to the violations found, so that each can be shown to
catch a small bad source as well as to pass over the real one.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "latch"
# Read by interpreters that are too old, to be told so.
OLD_GRAMMAR = ("latch/__init__.py", "latch/__main__.py", "bin/latch")
# Source outside the package that has a test of its own.
OUTSIDE = {"bin/latch": "tests/bin/test_latch.py", "setup.py": "tests/test_setup.py"}
# Test folders that mirror nothing.
APART = ("rules", "walks", "support", "interop")


def sources() -> tuple[str, ...]:
    """Return every Python file of the package, relative to the checkout."""
    return tuple(sorted(str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")))


@lru_cache(maxsize=None)
def tree_of(path: str) -> ast.Module:
    """Return the syntax tree of *path*, relative to the checkout."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=path)


def module_of(path: str) -> str:
    """Return the dotted name of the module in *path*: ``latch/wire/lines.py`` is ``latch.wire.lines``."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def has_code(tree: ast.Module) -> bool:
    """Tell whether a module holds more than its docstring."""
    return bool(tree.body) and not (len(tree.body) == 1 and ast.get_docstring(tree) is not None)


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node of *tree* that is not for type checkers alone."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def imports(tree: ast.AST, path: str) -> Iterator[tuple[str, int]]:
    """Yield (absolute dotted name, line) of everything that :func:`ast.walk` finds imported in *tree*.

    ``from .. import errors`` in ``latch/wire/lines.py`` is ``latch.errors``; ``from .x import y`` is
    ``latch.wire.x.y``, where y may be a module or a name in one.
    """
    yield from _imported(ast.walk(tree), path)


def running_imports(tree: ast.AST, path: str) -> Iterator[tuple[str, int]]:
    """Yield as :func:`imports` does, without what is imported for type checkers alone."""
    yield from _imported(running(tree), path)


def _imported(nodes: Iterator[ast.AST], path: str) -> Iterator[tuple[str, int]]:
    package = module_of(path).split(".")
    if not path.endswith("__init__.py"):
        package = package[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{stem}.{alias.name}", node.lineno


def mirror_of(path: str) -> str:
    """Return the test file that mirrors the module in *path*."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    inside = Path(path).relative_to("latch")
    return str(Path("tests") / inside.parent / f"test_{inside.stem.strip('_')}.py")


def mirrored() -> dict[str, str]:
    """Return module path -> test file path for all that must have one."""
    own = {path: mirror_of(path) for path in sources() if has_code(tree_of(path))}
    return {**own, **OUTSIDE}


def mirrors() -> tuple[str, ...]:
    """Return every test file that mirrors something."""
    found = (path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
    return tuple(sorted(str(path) for path in found if path.parts[1] not in APART))
