"""Limits: README's table says what ``limits.py`` says, each is read somewhere, and all are handed down."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Iterable

import pytest

from latch.limits import DEFAULT
from tests.support.tree import ROOT, sources, tree_of

ROW = re.compile(r"^``([a-z_]+\.[a-z_]+)`` +(\S+)$", re.MULTILINE)
LIMITS = "latch/limits.py"
# They hand the defaults to everything else; below, a limit is what a constructor was given.
READS_DEFAULT = ("latch/tools/assembly.py", "latch/cli/")


def known_limits() -> dict[str, str]:
    groups = {group.name: getattr(DEFAULT, group.name) for group in fields(DEFAULT)}
    return {
        f"{name}.{limit.name}": str(getattr(group, limit.name))
        for name, group in groups.items()
        for limit in fields(group)
    }


def without_reader(limits: Iterable[str], trees: Iterable[ast.Module]) -> list[str]:
    read = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    return [limit for limit in limits if limit.partition(".")[2] not in read]


def stray_defaults(path: str, tree: ast.Module) -> list[str]:
    if path.startswith((LIMITS, *READS_DEFAULT)):
        return []
    offered = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name == "__init__" or not node.name.startswith("_"):
                for value in (*node.args.defaults, *node.args.kw_defaults):
                    offered.update(ast.walk(value) if value is not None else ())
    return [
        f"{path}:{node.lineno}: reads DEFAULT"
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "DEFAULT" and node not in offered
    ]


def test_readme_lists_every_limit_with_its_value() -> None:
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    assert dict(ROW.findall(text)) == known_limits()


def test_every_limit_is_read_outside_of_limits() -> None:
    trees = [tree_of(path) for path in sources() if path != LIMITS]
    assert without_reader(known_limits(), trees) == []


def test_a_limit_that_is_only_written_is_caught() -> None:
    tree = ast.parse("limits.kill_seconds = 2\nwait(limits.drain_seconds)\nrequest(start_seconds=1)")
    names = ["process.kill_seconds", "process.drain_seconds", "process.start_seconds"]
    assert without_reader(names, [tree]) == ["process.kill_seconds", "process.start_seconds"]


@pytest.mark.parametrize("path", sources())
def test_the_defaults_are_handed_down(path: str) -> None:
    assert stray_defaults(path, tree_of(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "parse_json(text, DEFAULT.json)",
        "def _private(limits=DEFAULT):\n    pass",
        "SECONDS = DEFAULT.process.kill_seconds",
        "def public(limits=DEFAULT):\n    return DEFAULT.json",
    ],
)
def test_a_stray_reader_of_the_defaults_is_caught(source: str) -> None:
    assert len(stray_defaults("latch/system/child.py", ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "latch/system/child.py",
            "class Child:\n    def __init__(self, *, limits=DEFAULT.process):\n        pass",
        ),
        ("latch/system/command.py", "def run_sandboxed(argv, limits: Limits = DEFAULT):\n    pass"),
        ("latch/tools/assembly.py", "use(DEFAULT)"),
        ("latch/cli/commands/call.py", "parse_json(text, DEFAULT.json)"),
        ("latch/limits.py", "DEFAULT = Limits()\nuse(DEFAULT)"),
    ],
)
def test_a_named_reader_of_the_defaults_passes(path: str, source: str) -> None:
    assert stray_defaults(path, ast.parse(source)) == []
