"""A process limit for root: the group is found where the kernel says, made, entered and removed, or not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from latch.system.cgroup import (
    can_make_pids_groups,
    enter_pids_group,
    inside_pids_group,
    make_pids_group,
    remove_pids_group,
)

V1_MOUNT = "39 31 0:36 {root} /sys/fs/cgroup/pids rw,relatime shared:5 - cgroup cgroup rw,pids\n"
MEMORY_MOUNT = "34 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "41 31 0:38 {root} {point} rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER_MOUNT = "23 1 8:1 / / rw - ext4 /dev/sda rw\n"


def machine(
    root: Path,
    *,
    groups: str,
    mounts: str,
    directory: str | None = None,
    controllers: dict[str, str] | None = None,
) -> Path:
    """Lay out below *root* what the kernel shows, and the *directory* of our own group."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    (root / "proc" / "self" / "mountinfo").write_text(mounts)
    if directory is not None:
        (root / directory).mkdir(parents=True)
    for point, names in (controllers or {}).items():
        (root / point).mkdir(parents=True, exist_ok=True)
        (root / point / "cgroup.subtree_control").write_text(names)
    return root


def v1(root: Path, *, ours: str, mount_root: str = "/", directory: str) -> Path:
    """A machine with version 1 of control groups."""
    return machine(
        root,
        groups=f"9:name=systemd:/a:b\n8:cpu,pids:{ours}\n0::/\n",
        mounts=OTHER_MOUNT + MEMORY_MOUNT + V1_MOUNT.format(root=mount_root),
        directory=directory,
    )


def v2(
    root: Path, *, ours: str, mount_root: str = "/", directory: str, controllers: str = "cpu pids\n"
) -> Path:
    """A machine with version 2 of control groups alone."""
    return machine(
        root,
        groups=f"0::{ours}\n",
        mounts=OTHER_MOUNT + V2_MOUNT.format(root=mount_root, point="/sys/fs/cgroup"),
        directory=directory,
        controllers={"sys/fs/cgroup": controllers},
    )


@pytest.mark.parametrize(
    ("make", "ours", "mount_root", "place"),
    [
        (v1, "/", "/", "sys/fs/cgroup/pids"),
        (v1, "/user/1", "/", "sys/fs/cgroup/pids/user/1"),
        (v1, "/docker/abc", "/docker/abc", "sys/fs/cgroup/pids"),
        (v1, "/docker/abc/x", "/docker/abc", "sys/fs/cgroup/pids/x"),
        (v2, "/", "/", "sys/fs/cgroup"),
        (v2, "/user.slice/a:b", "/", "sys/fs/cgroup/user.slice/a:b"),
    ],
)
def test_the_group_is_made_below_our_own_and_holds_its_most(
    tmp_path: Path, make: object, ours: str, mount_root: str, place: str
) -> None:
    root = make(tmp_path, ours=ours, mount_root=mount_root, directory=place)
    group = make_pids_group("latch-1", 513, root=root)
    assert group == root / place / "latch-1"
    assert (group / "pids.max").read_text() == "513"


def test_a_process_is_moved_by_writing_its_number(tmp_path: Path) -> None:
    group = make_pids_group("g", 5, root=v1(tmp_path, ours="/", directory="sys/fs/cgroup/pids"))
    assert enter_pids_group(group, 4711) is True
    assert (group / "cgroup.procs").read_text() == "4711"
    assert enter_pids_group(tmp_path / "absent", 4711) is False


@pytest.mark.parametrize(("path", "moved"), [("/a/g", False), ("/a", True), ("/a/gg", True), ("/g/a", True)])
def test_a_process_that_was_born_in_the_group_is_not_moved(tmp_path: Path, path: str, moved: bool) -> None:
    root = v1(tmp_path, ours="/a", directory="sys/fs/cgroup/pids/a")
    group = make_pids_group("g", 5, root=root)
    (root / "proc/4711").mkdir()
    (root / "proc/4711/cgroup").write_text(f"8:pids:{path}\n0::/\n")
    assert enter_pids_group(group, 4711, root=root) is True
    assert (group / "cgroup.procs").exists() is moved


def test_a_thread_is_in_a_group_of_version_1_only_meanwhile(tmp_path: Path) -> None:
    group = tmp_path / "ours" / "g"
    group.mkdir(parents=True)
    (group / "tasks").touch()
    with pytest.raises(ZeroDivisionError), inside_pids_group(group):
        assert (group / "tasks").read_text() == "0"
        assert not (group.parent / "tasks").exists()
        1 / 0
    assert (group.parent / "tasks").read_text() == "0"


def test_a_thread_stays_where_it_is_without_a_group_of_version_1(tmp_path: Path) -> None:
    group = tmp_path / "ours" / "g"
    group.mkdir(parents=True)
    for place in (group, None):
        with inside_pids_group(place):
            pass
    assert list(tmp_path.rglob("*")) == [group.parent, group]


def test_what_a_thread_in_the_group_starts_is_born_there() -> None:
    group = make_pids_group(f"latch-test-{os.getpid()}-born", 5)
    if group is None or not (group / "tasks").exists():
        pytest.skip("no pids control group of version 1 can be made here")
    try:
        with inside_pids_group(group):
            born = subprocess.run(["cat", "/proc/self/cgroup"], capture_output=True, text=True).stdout
        after = subprocess.run(["cat", "/proc/self/cgroup"], capture_output=True, text=True).stdout
    finally:
        assert remove_pids_group(group) is True
    assert f"/{group.name}\n" in born
    assert group.name not in after


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [
        ("", ""),
        ("8:pids:/\n", ""),
        ("8:pids:/\n", MEMORY_MOUNT),
        ("8:memory:/\n", V1_MOUNT.format(root="/")),
        ("8:pids:/other\n", V1_MOUNT.format(root="/docker/abc")),
        ("8:pids:/\n", V1_MOUNT.format(root="/").replace("rw,pids", "rw,notpids")),
        ("0::/\n", V2_MOUNT.format(root="/", point="/sys/fs/cgroup")),
        ("0::/\n", "41 31 0:38 / /x rw - cgroup2\n"),
    ],
    ids=[
        "nothing",
        "no mount",
        "another controller's mount",
        "not our controller",
        "outside the mount",
        "a controller of a longer name",
        "controller not handed down",
        "short line",
    ],
)
def test_where_there_is_no_place_there_is_no_group(tmp_path: Path, groups: str, mounts: str) -> None:
    root = machine(tmp_path, groups=groups, mounts=mounts, directory="sys/fs/cgroup/pids")
    assert make_pids_group("g", 5, root=root) is None
    assert list((root / "sys/fs/cgroup/pids").iterdir()) == []


def test_a_group_beside_the_mounted_one_is_not_taken_for_one_below_it(tmp_path: Path) -> None:
    root = v1(tmp_path, ours="/docker/abcdef", mount_root="/docker/abc", directory="sys/fs/cgroup/pids/def")
    assert make_pids_group("g", 5, root=root) is None


def test_a_machine_without_proc_has_no_group(tmp_path: Path) -> None:
    assert make_pids_group("g", 5, root=tmp_path) is None


def test_the_mount_with_the_controller_is_found_behind_those_without(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        groups="8:pids:/\n0::/\n",
        mounts=V2_MOUNT.format(root="/", point="/sys/fs/cgroup/unified") + V1_MOUNT.format(root="/"),
        directory="sys/fs/cgroup/pids",
        controllers={"sys/fs/cgroup/unified": ""},
    )
    assert make_pids_group("g", 5, root=root) == root / "sys/fs/cgroup/pids/g"


def test_a_group_that_is_there_already_is_not_taken(tmp_path: Path) -> None:
    root = v1(tmp_path, ours="/", directory="sys/fs/cgroup/pids/g")
    assert make_pids_group("g", 5, root=root) is None


def test_removing_never_raises(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    remove_pids_group(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()
    remove_pids_group(tmp_path / "empty")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    remove_pids_group(tmp_path / "full")
    assert (tmp_path / "full" / "x").exists()


def test_the_kernel_enforces_a_real_group() -> None:
    group = make_pids_group(f"latch-test-{os.getpid()}", 1)
    if group is None:
        pytest.skip("no pids control group can be made here")
    gate, go = os.pipe()
    process = subprocess.Popen(
        ["sh", "-c", "read -r _; (:) && echo forked"], stdin=gate, stdout=-1, stderr=-1
    )
    os.close(gate)
    try:
        assert enter_pids_group(group, process.pid) is True
        os.write(go, b"\n")
        os.close(go)
        output, said = process.communicate(timeout=20)
        assert output == b""
        assert b"fork" in said.lower() or b"resource" in said.lower()
    finally:
        process.kill()
        process.wait()
        remove_pids_group(group)
    assert not group.exists()


def test_a_group_whose_most_the_kernel_refuses_is_removed_again() -> None:
    name = f"latch-test-{os.getpid()}-refused"
    group = make_pids_group(name, 5)
    if group is None:
        pytest.skip("no pids control group can be made here")
    remove_pids_group(group)
    assert make_pids_group(name, -5) is None
    assert not group.exists()


@pytest.mark.parametrize("below", ["cpu pids\n", "cpu\n", ""])
def test_whether_a_group_can_be_made_is_known_without_making_one(tmp_path: Path, below: str) -> None:
    root = v2(tmp_path, ours="/a", directory="sys/fs/cgroup/a")
    (root / "sys/fs/cgroup/a/cgroup.subtree_control").write_text(below)
    assert can_make_pids_groups(root) is ("pids" in below)
    assert sorted(path.name for path in (root / "sys/fs/cgroup/a").iterdir()) == ["cgroup.subtree_control"]


def test_a_group_of_version_1_needs_nothing_but_the_right_to_make_it(tmp_path: Path) -> None:
    root = v1(tmp_path, ours="/a", directory="sys/fs/cgroup/pids/a")
    assert can_make_pids_groups(root) is True
    (root / "sys/fs/cgroup/pids/a").rmdir()
    assert can_make_pids_groups(root) is False


def test_where_there_are_no_groups_none_can_be_made(tmp_path: Path) -> None:
    assert can_make_pids_groups(tmp_path) is False


def test_what_is_said_of_this_machine_is_so() -> None:
    name = f"latch-test-{os.getpid()}-said"
    said, group = can_make_pids_groups(), make_pids_group(name, 5)
    if group is not None:
        remove_pids_group(group)
    assert said is (group is not None)
