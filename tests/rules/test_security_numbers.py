"""The rules that an attack made necessary: each that is built has tests under its number.

A table, so that a rule is not lost with the test that was renamed. What belongs to parts that do not
exist yet is named with the package it arrives with.
"""

from __future__ import annotations

import ast
import re
from typing import Iterable

import pytest

from tests.support.tree import PACKAGE, ROOT

NUMBERED = re.compile(r"^test_t([0-9]+)_")
BUILT = {
    1: "repository names as bind sources",
    2: "toolchain search opens the home",
    3: "git files that the host executes",
    6: "code of the repository with the peer's token",
    7: "the host's own reads in a hostile directory",
    8: "modules of a hostile directory",
    11: "what is masked",
    15: "hostile patterns",
    16: "no limits",
    23: "what a shared network means",
    24: "the start window",
    27: "secrets of MCP servers taken out of all they say",
    29: "instruction files closed where they are, and told of where they appear or change; mapped names",
}
# rule -> the package of latch/ that it arrives with
TO_COME = {
    **dict.fromkeys((12, 13, 14, 17, 18, 25, 26, 30), "kernel"),
    **dict.fromkeys((4, 5, 9, 10, 19, 20, 21, 22, 28), "gateway"),
}


def numbers_in(texts: Iterable[str]) -> set[int]:
    """Return the rules that the test functions in *texts* are named after."""
    names = (
        node.name for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
    )
    return {int(found[1]) for found in map(NUMBERED.match, names) if found}


@pytest.fixture(scope="module")
def tested() -> set[int]:
    return numbers_in(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("rule", BUILT, ids=lambda rule: f"T{rule}")
def test_a_built_rule_has_a_test_under_its_number(tested: set[int], rule: int) -> None:
    assert rule in tested, BUILT[rule]


@pytest.mark.parametrize("rule", TO_COME, ids=lambda rule: f"T{rule}")
def test_a_rule_to_come_has_one_as_soon_as_its_part_exists(tested: set[int], rule: int) -> None:
    assert rule in tested or not (PACKAGE / TO_COME[rule]).exists()


def test_every_rule_is_in_one_of_the_tables(tested: set[int]) -> None:
    assert sorted([*BUILT, *TO_COME]) == list(range(1, 31))
    assert tested <= {*BUILT, *TO_COME}


def test_only_whole_names_of_functions_count() -> None:
    texts = ["def test_t3_x():\n    pass\n# def test_t4_x():", "def test_t16_y():\n    def test_9(): pass"]
    assert numbers_in(texts) == {3, 16}
