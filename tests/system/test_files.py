"""Contained reads refuse everything a hostile directory can hold; what is made is closed, and goes whole."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from latch.errors import ContainmentError, StoreError
from latch.system.files import (
    check_private,
    ensure_directory,
    find_contained,
    find_regular,
    read_contained,
    read_contained_head,
    read_contained_text,
    read_head,
    read_kernel_text,
    read_regular,
    remove_tree,
)

CHECKOUT = Path(__file__).parents[2]


def descriptors(place: Path) -> list[str]:
    """The descriptors this process holds on *place* and what is below it."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue
    return sorted(line for line in found if line.split(" ", 1)[1].startswith(str(place)))


def make_hostile(root: Path) -> None:
    """Fill *root* with one of everything that must not be read."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "plain").write_text("text")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_text("deep text")
    (root / "link").symlink_to(outside / "secret")
    (root / "inner-link").symlink_to("plain")
    (root / "dangling").symlink_to("nothing")
    (root / "linked-directory").symlink_to(outside)
    (root / "linked-deep").symlink_to("deep")
    os.link(outside / "secret", root / "hard")
    os.mkfifo(root / "fifo")
    (root / "large").write_bytes(b"x" * 101)
    (root / "exact").write_bytes(b"x" * 100)
    (root / "latin").write_bytes(b"caf\xe9")


@pytest.fixture
def hostile(workspace: Path) -> Path:
    """A workspace with one of everything that must not be read."""
    make_hostile(workspace)
    return workspace


@pytest.mark.parametrize(
    ("relative", "expected"),
    [
        ("plain", b"text"),
        ("./plain", b"text"),
        ("deep/er/file", b"deep text"),
        ("deep//er/./file", b"deep text"),
        ("exact", b"x" * 100),
    ],
)
def test_a_plain_file_below_the_root_is_read(hostile: Path, relative: str, expected: bytes) -> None:
    assert read_contained(hostile, relative, max_bytes=100) == expected


@pytest.mark.parametrize(
    ("relative", "reason"),
    [
        ("link", '"link" is a symbolic link'),
        ("inner-link", '"inner-link" is a symbolic link'),
        ("dangling", '"dangling" is a symbolic link'),
        ("linked-directory/secret", '"linked-directory" is a symbolic link'),
        ("linked-deep/er/file", '"linked-deep" is a symbolic link'),
        ("hard", "has 2 hard links, must have one"),
        ("fifo", "is a FIFO, not a regular file"),
        ("deep", "is a directory, not a regular file"),
        ("plain/below", '"plain" is a regular file'),
        ("large", "is larger than 100 bytes"),
        ("absent", "does not exist"),
        ("absent/below", "does not exist"),
        ("../outside/secret", 'contains ".."'),
        ("deep/../plain", 'contains ".."'),
        ("", "names no file"),
        (".", "names no file"),
        ("plain/", "names no file"),
        ("x" * 300, "cannot be opened: file name too long"),
    ],
)
def test_what_is_not_plain_is_refused_by_path_and_reason(hostile: Path, relative: str, reason: str) -> None:
    before = descriptors(hostile)
    with pytest.raises(ContainmentError) as caught:
        read_contained(hostile, relative, max_bytes=100)
    assert caught.value.path == os.path.join(hostile, relative)
    assert caught.value.reason.endswith(reason)
    assert descriptors(hostile) == before


def test_an_absolute_path_is_refused_even_below_the_root(hostile: Path) -> None:
    with pytest.raises(ContainmentError, match="is absolute"):
        read_contained(hostile, str(hostile / "plain"), max_bytes=100)


@pytest.mark.parametrize(
    ("relative", "reason"), [("pla\0in", "contains a NUL character"), ("\ud800", "cannot be a file name")]
)
def test_a_name_no_file_can_have_is_refused(hostile: Path, relative: str, reason: str) -> None:
    with pytest.raises(ContainmentError, match=reason):
        read_contained(hostile, relative, max_bytes=100)


def test_a_socket_is_refused_and_named(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By a short relative name: the address of a socket holds about a hundred characters.
    monkeypatch.chdir(hostile)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(ContainmentError, match='"socket" is a socket'):
            read_contained(hostile, "socket", max_bytes=100)


def test_a_device_is_refused_without_being_read() -> None:
    with pytest.raises(ContainmentError, match="is a device, not a regular file"):
        read_contained(Path("/dev"), "zero", max_bytes=100)


def test_a_read_leaves_no_descriptor_behind(hostile: Path) -> None:
    before = descriptors(hostile)
    read_contained(hostile, "deep/er/file", max_bytes=100)
    assert find_contained(hostile, "deep/absent/file", max_bytes=100) is None
    assert descriptors(hostile) == before


def test_the_root_may_be_reached_through_a_link(hostile: Path) -> None:
    alias = hostile.parent / "alias"
    alias.symlink_to(hostile)
    assert read_contained(alias, "plain", max_bytes=100) == b"text"


def test_a_root_that_is_no_directory_is_refused(hostile: Path) -> None:
    with pytest.raises(ContainmentError, match="cannot be opened: not a directory"):
        read_contained(hostile / "plain", "x", max_bytes=100)


def test_a_root_that_is_absent_holds_nothing(hostile: Path) -> None:
    assert find_contained(hostile / "absent", "x", max_bytes=100) is None


def test_a_directory_that_may_only_be_passed_is_passed(hostile: Path) -> None:
    (hostile / "deep").chmod(0o111)
    assert read_contained(hostile, "deep/er/file", max_bytes=100) == b"deep text"
    (hostile / "deep").chmod(0o700)


def test_a_file_that_grows_while_it_is_read_ends_at_the_cap(hostile: Path) -> None:
    done = threading.Event()

    def grow() -> None:
        with (hostile / "plain").open("ab", buffering=0) as stream:
            for _ in range(2000):
                if done.is_set():
                    return
                stream.write(b"y" * 1000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        while True:
            read_contained(hostile, "plain", max_bytes=200_000)
    except ContainmentError as error:
        assert error.reason.endswith("is larger than 200000 bytes")
    finally:
        done.set()
        writer.join()


def test_text_is_strict_utf8(hostile: Path) -> None:
    (hostile / "text").write_bytes("caf\u00e9".encode())
    assert read_contained_text(hostile, "text", max_bytes=100) == "caf\u00e9"
    with pytest.raises(ContainmentError, match=r"is not UTF-8 \(byte 3\)"):
        read_contained_text(hostile, "latin", max_bytes=100)


def test_a_head_is_cut_where_the_whole_would_be_refused(hostile: Path) -> None:
    assert read_contained_head(hostile, "large", max_bytes=3) == b"xxx"
    assert read_contained_head(hostile, "plain", max_bytes=100) == b"text"
    with pytest.raises(ContainmentError, match="hard links"):
        read_contained_head(hostile, "hard", max_bytes=3)
    with pytest.raises(ContainmentError, match="does not exist"):
        read_contained_head(hostile, "absent", max_bytes=3)


def test_an_operator_file_may_be_a_link(hostile: Path) -> None:
    assert read_regular(hostile / "link", max_bytes=100) == b"secret"
    assert read_head(hostile / "link", max_bytes=3) == b"sec"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fifo", "is a FIFO, not a regular file"),
        ("deep", "is a directory, not a regular file"),
        ("large", "is larger than 100 bytes"),
        ("absent", "does not exist"),
        ("plain/below", "cannot be opened: not a directory"),
    ],
)
def test_an_operator_file_must_be_plain(hostile: Path, name: str, reason: str) -> None:
    before = descriptors(hostile)
    with pytest.raises(ContainmentError) as caught:
        read_regular(hostile / name, max_bytes=100)
    assert caught.value.reason.endswith(reason)
    assert descriptors(hostile) == before


def test_a_head_of_nothing_is_refused(hostile: Path) -> None:
    with pytest.raises(ContainmentError, match="does not exist"):
        read_head(hostile / "absent", max_bytes=3)


def test_an_absent_operator_file_is_none(hostile: Path) -> None:
    assert find_regular(hostile / "absent", max_bytes=100) is None


@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o644, False), (0o620, True), (0o602, True)])
def test_a_trusted_file_is_writable_by_its_owner_alone(hostile: Path, mode: int, refused: bool) -> None:
    (hostile / "plain").chmod(mode)
    if not refused:
        assert find_regular(hostile / "plain", max_bytes=100, trusted_uids=(os.getuid(),)) == b"text"
        return
    with pytest.raises(ContainmentError) as caught:
        find_regular(hostile / "plain", max_bytes=100, trusted_uids=(os.getuid(),))
    assert f"has mode {mode:04o}" in caught.value.reason
    assert caught.value.hint == f"chmod go-w {hostile / 'plain'}"


def test_a_trusted_file_of_a_stranger_is_refused(hostile: Path) -> None:
    stranger = os.getuid() + 1
    reason = f"belongs to uid {os.getuid()}, must belong to uid {stranger} or 9"
    with pytest.raises(ContainmentError, match=reason):
        find_regular(hostile / "plain", max_bytes=100, trusted_uids=(stranger, 9))


@pytest.mark.parametrize(
    ("mode", "directory"), [(0o700, True), (0o500, True), (0o600, False), (0o400, False)]
)
def test_what_is_closed_to_others_is_private(tmp_path: Path, mode: int, directory: bool) -> None:
    path = make(tmp_path / "ours", directory, mode)
    check_private(path, uid=os.getuid(), directory=directory)


@pytest.mark.parametrize(
    ("mode", "directory", "hint"),
    [
        (0o755, True, "chmod 700"),
        (0o701, True, "chmod 700"),
        (0o640, False, "chmod 600"),
        (0o602, False, "chmod 600"),
    ],
)
def test_what_is_open_to_others_is_an_error_with_its_cure(
    tmp_path: Path, mode: int, directory: bool, hint: str
) -> None:
    path = make(tmp_path / "ours", directory, mode)
    with pytest.raises(StoreError, match=f"has mode {mode:04o}, must be closed to others") as caught:
        check_private(path, uid=os.getuid(), directory=directory)
    assert caught.value.hint == f"{hint} {path}"


def make(path: Path, directory: bool, mode: int) -> Path:
    """Make an empty file or directory with exactly *mode*."""
    path.mkdir() if directory else path.touch()
    path.chmod(mode)
    return path


def test_what_belongs_to_a_stranger_is_not_private(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"belongs to uid {os.getuid()}"):
        check_private(make(tmp_path / "ours", False, 0o600), uid=os.getuid() + 1, directory=False)


@pytest.mark.parametrize(
    ("is_directory", "wanted", "reason"),
    [
        (False, True, "is a regular file, must be a directory"),
        (True, False, "is a directory, must be a file"),
    ],
)
def test_the_wrong_kind_is_not_private(tmp_path: Path, is_directory: bool, wanted: bool, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        check_private(make(tmp_path / "ours", is_directory, 0o700), uid=os.getuid(), directory=wanted)


def test_nothing_is_not_private(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be examined: no such file or directory"):
        check_private(tmp_path / "absent", uid=os.getuid(), directory=False)


def test_a_directory_is_made_with_its_parents_closed_to_others(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "one" / "two" / "three", mode=0o755)
    made = [tmp_path / "one", tmp_path / "one/two", tmp_path / "one/two/three"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o755]


def test_a_directory_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir(mode=0o750)
    before = (tmp_path / "one").stat().st_mode
    ensure_directory(tmp_path / "one")
    assert (tmp_path / "one").stat().st_mode == before


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="must be a directory"):
        ensure_directory(tmp_path / name)


def test_a_directory_that_cannot_be_made_is_an_error() -> None:
    with pytest.raises(StoreError, match="cannot be created"):
        ensure_directory(Path("/proc/absent"))


def test_a_reading_error_of_the_disk_is_a_refusal() -> None:
    # The one regular file every Linux has whose bytes the kernel refuses to give.
    with pytest.raises(ContainmentError, match="cannot be read: " + os.strerror(errno.EIO).lower()):
        read_regular(Path("/proc/self/mem"), max_bytes=100)


# -- removal and the kernel's files


def test_the_kernels_text_is_read_and_its_silence_is_empty(tmp_path: Path) -> None:
    assert read_kernel_text(Path("/proc/sys/kernel/ostype")) == "Linux\n"
    (tmp_path / "odd").write_bytes(b"a\xff")
    assert read_kernel_text(tmp_path / "odd") == "a\ufffd"
    for path in (tmp_path / "absent", tmp_path, Path("/proc/self/mem")):
        assert read_kernel_text(path) == ""


def test_a_file_and_a_link_are_removed_without_their_target(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to("kept")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        remove_tree(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_a_directory_is_removed_with_all_in_it_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    tree = tmp_path / "tree"
    (tree / "a" / "a" / "a").mkdir(parents=True)
    (tree / "a" / "link").symlink_to(tmp_path / "kept")
    (tree / "a" / "a" / "file").touch()
    for closed in (tree / "a" / "a" / "a", tree / "a" / "a", tree / "a", tree):
        closed.chmod(0)
    remove_tree(tree)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_a_directory_deeper_than_any_path_or_stack_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    place = os.open(tree, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("deeper", dir_fd=place)
        deeper = os.open("deeper", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = deeper
    os.close(place)
    before = descriptors(tmp_path)
    remove_tree(tree)
    assert (list(tmp_path.iterdir()), descriptors(tmp_path)) == ([], before)


def test_what_cannot_be_removed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "absent")
