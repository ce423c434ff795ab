"""Whether something is there is asked of ``os.path``, which answers; a ``Path`` raises in a closed directory."""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import sources, tree_of

QUESTIONS = ("exists", "is_dir", "is_file", "is_mount", "is_symlink", "is_socket", "is_fifo", "samefile")
# Looks that raise there as well, or follow what was not meant to be.
LOOKS = ("glob", "rglob", "iterdir", "resolve")


def violations(path: str, tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        # An entry of a directory says what it is without a look, where it is told not to follow.
        of_entry = any(keyword.arg == "follow_symlinks" for keyword in node.keywords)
        of_module = ast.unparse(node.func.value) == "os.path"
        if name in (*QUESTIONS, *LOOKS) and not of_entry and not of_module:
            found.append(f"{path}:{node.lineno}: asks {name} of a Path; ask os.path or catch OSError")
    return found


@pytest.mark.parametrize("path", sources())
def test_no_question_to_the_disk_raises(path: str) -> None:
    assert violations(path, tree_of(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "path.exists()",
        "(root / name).is_dir()",
        "Path(text).is_file()",
        "self.path.is_symlink()",
        "for one in home.glob('*'): pass",
        "list(base.iterdir())",
        "path.resolve()",
    ],
)
def test_a_question_to_a_path_is_caught(source: str) -> None:
    assert len(violations("latch/system/plan.py", ast.parse(source))) == 1


@pytest.mark.parametrize(
    "source", ["os.path.exists(path)", "os.path.samefile(a, b)", "entry.is_dir(follow_symlinks=False)"]
)
def test_a_question_that_answers_passes(source: str) -> None:
    assert violations("latch/system/plan.py", ast.parse(source)) == []
