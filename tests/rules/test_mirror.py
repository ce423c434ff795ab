"""Every module with code has its test file at the same path, and every such test file its module."""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import ROOT, has_code, mirror_of, mirrored, mirrors


def unpartnered(modules: dict[str, str], tests: set[str]) -> list[str]:
    lonely = [f"{module} has no {test}" for module, test in modules.items() if test not in tests]
    return lonely + [f"{test} tests no module" for test in sorted(tests - set(modules.values()))]


def test_every_module_has_its_test_file_and_the_reverse() -> None:
    assert unpartnered(mirrored(), {test for test in mirrors() if (ROOT / test).is_file()}) == []


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("latch/errors.py", "tests/test_errors.py"),
        ("latch/__init__.py", "tests/test_init.py"),
        ("latch/__main__.py", "tests/test_main.py"),
        ("latch/wire/framing.py", "tests/wire/test_framing.py"),
        ("latch/cli/commands/doctor.py", "tests/cli/commands/test_doctor.py"),
        ("bin/latch", "tests/bin/test_latch.py"),
    ],
)
def test_the_test_file_lies_at_the_same_path(module: str, test: str) -> None:
    assert mirror_of(module) == test


def test_a_module_without_test_and_a_test_without_module_are_caught() -> None:
    found = unpartnered({"latch/a.py": "tests/test_a.py"}, {"tests/test_b.py"})
    assert found == ["latch/a.py has no tests/test_a.py", "tests/test_b.py tests no module"]


def test_a_package_of_one_docstring_needs_no_test() -> None:
    assert not has_code(ast.parse('"""Doc."""'))
    assert has_code(ast.parse('"""Doc."""\nX = 1'))
