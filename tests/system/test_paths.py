"""Paths are compared by whole components, and by where links lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from latch.system.paths import both_names, lies_in, lies_in_any, real_path, relation_of


@pytest.mark.parametrize(
    ("path", "tree", "expected"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/", "/", True),
    ],
)
def test_a_path_lies_in_a_tree_by_components(path: str, tree: str, expected: bool) -> None:
    assert lies_in(path, tree) is expected


def test_one_tree_of_several_is_enough() -> None:
    assert lies_in_any("/b/c", ["/a", "/b"])
    assert not lies_in_any("/c", ["/a", "/b"])


@pytest.mark.parametrize(
    ("path", "other", "expected"),
    [("/a", "/a", "is"), ("/a/b", "/a", "lies in"), ("/a", "/a/b", "contains"), ("/a", "/b", None)],
)
def test_the_relation_is_a_word(path: str, other: str, expected: str | None) -> None:
    assert relation_of(path, other) == expected


def test_both_names_of_a_link_are_known(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert both_names(tmp_path / "link") == [str(tmp_path / "link"), str(tmp_path.resolve() / "real")]
    assert both_names(tmp_path.resolve() / "real") == [str(tmp_path.resolve() / "real")]


def test_the_real_path_of_what_is_absent_goes_as_far_as_it_can(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert real_path(tmp_path / "link" / "absent") == str(tmp_path.resolve() / "real" / "absent")
