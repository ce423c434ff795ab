"""Every function is fully annotated, every public name documented, every annotation left unevaluated."""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import OLD_GRAMMAR, has_code, sources, tree_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def violations(path: str, tree: ast.Module) -> list[str]:
    found = []
    if not ast.get_docstring(tree):
        found.append(f"{path}: no docstring")
    if has_code(tree) and path not in OLD_GRAMMAR and not starts_with_annotations_import(tree):
        found.append(f"{path}: does not start with the annotations import")
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            found.extend(
                f"{path}:{node.lineno}: {node.name}: {lack} not annotated" for lack in unannotated(node)
            )
    found.extend(undocumented(tree.body, path))
    return found


def starts_with_annotations_import(tree: ast.Module) -> bool:
    first = tree.body[1] if len(tree.body) > 1 else None
    return (
        isinstance(first, ast.ImportFrom)
        and first.module == "__future__"
        and first.names[0].name == "annotations"
    )


def unannotated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named.extend(extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)
    lacking = [one.arg for one in named if one.annotation is None and one.arg not in ("self", "cls")]
    return [*lacking, *(["return"] if node.returns is None else [])]


def undocumented(body: list[ast.stmt], path: str) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                found.append(f"{path}:{node.lineno}: {node.name} has no docstring")
            if isinstance(node, ast.ClassDef):
                found.extend(undocumented(node.body, path))
    return found


@pytest.mark.parametrize("path", sources())
def test_module_is_annotated_and_documented(path: str) -> None:
    assert violations(path, tree_of(path)) == []


HEAD = '"""Doc."""\nfrom __future__ import annotations\n'


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "no docstring"),
        ('"""Doc."""\nimport os\n', "annotations import"),
        (HEAD + "def _f(a) -> None: ...", "a not annotated"),
        (HEAD + "def _f(*, a) -> None: ...", "a not annotated"),
        (HEAD + "def _f(*rest: int, **more) -> None: ...", "more not annotated"),
        (HEAD + "def _f(a: int): ...", "return not annotated"),
        (HEAD + "class _C:\n    def __init__(self): ...", "return not annotated"),
        (HEAD + "def _f() -> None:\n    def inner(a) -> None: ...", "a not annotated"),
        (HEAD + "def public() -> None: ...", "public has no docstring"),
        (HEAD + "class Public: ...", "Public has no docstring"),
        (
            HEAD + 'class Public:\n    """Doc."""\n    def method(self) -> None: ...',
            "method has no docstring",
        ),
    ],
)
def test_a_lack_is_caught(source: str, complaint: str) -> None:
    found = violations("latch/wire/lines.py", ast.parse(source))
    assert len(found) == 1 and complaint in found[0]


def test_a_package_of_one_docstring_needs_no_annotations_import() -> None:
    assert violations("latch/wire/__init__.py", ast.parse('"""Doc."""')) == []
