"""The floor is Python 3.9, and three files are read by interpreters below it.

The parser catches syntax; the table below catches the additions of later versions that are easiest
to write without noticing. Running the suite on a real 3.9 is what proves the rest.
"""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import OLD_GRAMMAR, ROOT, sources

EVERYTHING = (*sources(), *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")))
# (function, keyword that it does not know on 3.9)
LATER_KEYWORDS = {
    ("zip", "strict"),
    ("dataclass", "slots"),
    ("dataclass", "kw_only"),
    ("Popen", "process_group"),
    ("bisect_left", "key"),
    ("bisect_right", "key"),
}
LATER_NAMES = {
    "add_note",
    "bit_count",
    "pairwise",
    "UTC",
    "StrEnum",
    "ExceptionGroup",
    "batched",
    "Self",
    "TypeAlias",
}


def complaint_of(source: str, version: tuple[int, int]) -> str | None:
    try:
        ast.parse(source, feature_version=version)
    except SyntaxError as error:
        return str(error)
    return None


def after_3_6(source: str) -> list[str]:
    # Older parsers than ours let these pass whatever version they are told.
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.NamedExpr):
            found.append(":=")
        elif isinstance(node, ast.arguments) and node.posonlyargs:
            found.append("positional-only parameters")
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            found.append("annotations import")
    return found


def later_features(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found.extend(
                f"{name}({word.arg}=)" for word in node.keywords if (name, word.arg) in LATER_KEYWORDS
            )
            if (
                name in ("isinstance", "issubclass")
                and len(node.args) == 2
                and isinstance(node.args[1], ast.BinOp)
            ):
                found.append(f"{name}(x, A | B)")
        elif isinstance(node, ast.Attribute) and node.attr in LATER_NAMES:
            found.append(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.extend(alias.name for alias in node.names if alias.name in LATER_NAMES)
    return found


@pytest.mark.parametrize("path", EVERYTHING)
def test_file_is_python_3_9(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert complaint_of(source, (3, 9)) is None
    assert later_features(source) == []


@pytest.mark.parametrize("path", OLD_GRAMMAR)
def test_guarded_file_is_python_3_6(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert complaint_of(source, (3, 6)) is None
    assert after_3_6(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1: pass",
        "try:\n    pass\nexcept* ValueError:\n    pass",
        "type X = int",
        "def f[T](): pass",
    ],
)
def test_later_syntax_is_caught(source: str) -> None:
    assert complaint_of(source, (3, 9))


@pytest.mark.parametrize("source", ["(x := 1)", "def f(a, /): pass", "from __future__ import annotations"])
def test_syntax_after_3_6_is_caught_in_guarded_files(source: str) -> None:
    assert after_3_6(source)


@pytest.mark.parametrize(
    "source",
    [
        "zip(a, b, strict=True)",
        "@dataclass(slots=True)\nclass C: pass",
        "isinstance(x, int | str)",
        "datetime.UTC",
        "from itertools import pairwise",
    ],
)
def test_later_additions_are_caught(source: str) -> None:
    assert later_features(source)
