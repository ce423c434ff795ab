"""Paths are compared by whole components, and by where links lead."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from latch.errors import ContainmentError
from latch.limits import FileLimits
from latch.system.paths import (
    both_names,
    hold_path,
    lies_in,
    lies_in_any,
    passes_through,
    real_path,
    relation_of,
)
from tests.support.census import descriptors, opened_since


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


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tree/file", True),
        ("tree", True),
        ("tree/out/file", True),
        ("alias/out/file", True),
        ("over/file", True),
        ("deep/../tree/file", True),
        ("deep/up/../file", False),
        ("other/../tree-too", False),
        ("other/file", False),
        ("loop", True),
    ],
)
def test_a_way_through_a_tree_is_found_wherever_it_starts_and_ends(
    tmp_path: Path, path: str, expected: bool
) -> None:
    for name in ("tree", "other/inner", "deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tree" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "alias").symlink_to("tree")
    (tmp_path / "over").symlink_to("tree/out")
    # ".." behind this one is "other", not "deep".
    (tmp_path / "deep" / "up").symlink_to("../other/inner")
    (tmp_path / "loop").symlink_to("loop")
    assert passes_through(tmp_path / path, [str(tmp_path / "tree")]) is expected


def test_more_links_than_are_followed_are_a_way_through_anything(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("c")
    assert passes_through(tmp_path / "a", ["/elsewhere"], FileLimits(max_links=2)) is False
    assert passes_through(tmp_path / "a", ["/elsewhere"], FileLimits(max_links=1)) is True


# -- what is held


@pytest.mark.parametrize("kind", [0, stat.S_IFDIR])
def test_what_is_held_is_named_and_not_inherited(tmp_path: Path, kind: int) -> None:
    descriptor = hold_path(str(tmp_path), kind)
    try:
        assert os.path.samestat(os.fstat(descriptor), os.stat(tmp_path))
        assert not os.get_inheritable(descriptor)
        with pytest.raises(OSError):
            os.listdir(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("absent", 0),
        ("absent/below", 0),
        ("file/below", 0),
        ("link", 0),
        ("loop", 0),
        ("link/file", 0),
        ("directory", stat.S_IFREG),
        ("file", stat.S_IFDIR),
        ("directory/../file", 0),
    ],
)
def test_what_is_not_what_was_planned_is_not_held(tmp_path: Path, path: str, kind: int) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("directory")
    (tmp_path / "loop").symlink_to("loop")
    before = descriptors()
    with pytest.raises(ContainmentError, match="changed while it was being started") as caught:
        hold_path(f"{tmp_path}/{path}", kind)
    assert caught.value.path == f"{tmp_path}/{path}"
    assert opened_since(before) == []
