"""What a sandbox shows is compared with its plan before anything runs in it, whatever bubblewrap was led to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latch.errors import ContainmentError
from latch.system.mounts import (
    ExpectedMounts,
    Mount,
    expect_mounts,
    find_unplanned,
    is_set_up,
    may_be_set_up,
    parse_mounts,
    read_mounts,
)
from latch.system.plan import Operation
from tests.support.fake_bwrap import altered_bwrap
from tests.support.sandboxes import Place, fails, place_in

DISK, OWN = "254:0", "0:99"
EXPECTED = ExpectedMounts(
    allowed={"/w": {(DISK, "/home/w")}, "/w/disk": {("8:1", "/")}},
    bound=(("/w", (DISK, "/home/w")),),
    made=("/tmp",),
    first=frozenset(("/usr", "/dev/null")),
    devices=frozenset((DISK, "8:1")),
)


def mount(place: str, device: str, root: str, *, read_only: bool = True) -> Mount:
    return Mount(1, (device, root), place, read_only)


ROOT = mount("/", OWN, "/newroot")
PLANNED = [ROOT, mount("/usr", DISK, "/usr"), mount("/w", DISK, "/home/w"), mount("/tmp", "0:98", "/")]


def test_a_line_is_taken_apart_and_its_names_are_as_they_are() -> None:
    line = b"36 35 98:0 /mnt1\\040a /mnt\\134\\0112\xff rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
    assert parse_mounts(line) == [
        Mount(36, ("98:0", "/mnt1 a"), os.fsdecode(b"/mnt\\\t2\xff"), read_only=False)
    ]


def test_an_option_that_only_begins_like_read_only_is_not() -> None:
    lines = b"1 0 0:1 / / rw,rox - x x ro\n2 0 0:1 / / nosuid,ro,nodev - x x rw\n"
    assert [one.read_only for one in parse_mounts(lines)] == [False, True]


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ([ROOT], True),
        ([mount("/", DISK, "/")], False),
        ([mount("/", OWN, "/", read_only=False)], False),
        ([ROOT, mount("/", OWN, "/", read_only=False)], False),
        ([], False),
    ],
    ids=["sealed", "the host's", "not sealed yet", "two of them", "gone"],
)
def test_a_sandbox_is_set_up_when_its_sealed_root_is_the_only_one(
    mounts: list[Mount], expected: bool
) -> None:
    assert is_set_up(mounts, EXPECTED) is expected


@pytest.mark.parametrize(
    ("mounts", "place"),
    [
        (PLANNED, None),
        ([*PLANNED, mount("/w/disk", "8:1", "/")], None),
        ([*PLANNED, mount("/anywhere", OWN, "/")], None),
        ([*PLANNED, mount("/w/elsewhere", DISK, "/home/secret")], "/w/elsewhere"),
        ([*PLANNED, mount("/w", DISK, "/home/secret")], "/w"),
        ([*PLANNED, mount("/usr", DISK, "/home/w")], "/usr"),
        ([*PLANNED, mount("/dev/null", "8:1", "/null")], None),
        (
            [*PLANNED, mount("/dev/null", "8:1", "/null"), mount("/dev/null", DISK, "/home/secret")],
            "/dev/null",
        ),
        ([*PLANNED, mount("/w/e", DISK, "/home/w/hidden")], "/w/e"),
        ([*PLANNED, mount("/w", DISK, "/home/w//deleted")], "/w"),
        ([*PLANNED, mount("/w/e", "8:1", "/")], "/w/e"),
        ([one for one in PLANNED if one.place != "/w"], "/w"),
        ([one for one in PLANNED if one.place != "/tmp"], "/tmp"),
        ([*PLANNED[:3], mount("/tmp", DISK, "/tmp")], "/tmp"),
    ],
    ids="all below own elsewhere instead covered device covered-device part deleted moved absent open shown".split(),
)
def test_t1_every_mount_is_one_that_was_planned_there_and_none_is_missing(
    mounts: list[Mount], place: str | None
) -> None:
    assert find_unplanned(mounts, EXPECTED) == place


def bind(source: Path, place: str = "/there", *, pinned: bool = False) -> Operation:
    return Operation("--ro-bind", (str(source), place), pinned=pinned)


def test_a_pinned_source_that_is_gone_or_a_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").mkdir()
    for name in ("gone", "link"):
        with pytest.raises(ContainmentError) as caught:
            expect_mounts([bind(tmp_path / name, pinned=True)])
        assert caught.value.path == str(tmp_path / name)


def test_what_a_pinned_source_shows_is_told_by_the_mount_that_it_lies_in(tmp_path: Path) -> None:
    expected = expect_mounts([bind(tmp_path, pinned=True), bind(Path("/proc"), "/p", pinned=True)])
    (there, (_, root)), (proc, (_, top)) = expected.bound
    assert (there, proc, top) == ("/there", "/p", "/")
    # A directory may itself lie in something that is mounted under another name.
    assert str(tmp_path).endswith(root) or root.endswith(str(tmp_path))


def test_the_systems_own_sources_are_trusted_to_come_first() -> None:
    expected = expect_mounts([bind(Path("/usr"), "/usr")])
    assert expected.bound == () and {"/usr", "/dev/null"} <= expected.first


def test_what_is_mounted_below_a_source_may_be_there_and_need_not() -> None:
    expected = expect_mounts([bind(Path("/proc"))])
    below = {one.place for one in read_mounts("self") if one.place.startswith("/proc/")}
    assert {f"/there/{place[6:]}" for place in below} == set(expected.allowed)


def test_a_process_with_this_machines_root_is_not_worth_a_look() -> None:
    assert not may_be_set_up(os.getpid())


# -- bubblewrap led astray


@pytest.fixture
def place(tmp_path: Path, sandbox: Path) -> Place:
    """A user with a secret beside a workspace that holds protected names and a private directory."""
    made = place_in(tmp_path)
    (made.home / "secret").mkdir()
    for name in (".agents", "e", "own/deep"):
        (made.workspace / name).mkdir(parents=True)
    return made.with_settings(private_directories=(made.workspace / "own" / "deep",))


@pytest.mark.parametrize(
    ("planned", "instead"),
    [
        (("--ro-bind", "W/.agents", "W/.agents"), ("--ro-bind", "H/secret", "W/.agents")),
        (("--ro-bind", "W/.agents", "W/.agents"), ("--ro-bind", "H/secret", "W/e")),
        (("--ro-bind", "W/.agents", "W/.agents"), ("--ro-bind", "H/secret", "/usr/lib")),
        (("--ro-bind", "W/.agents", "W/.agents"), ("--ro-bind", "W/own/deep", "W/.agents")),
        (("--ro-bind", "W/.agents", "W/.agents"), ("--ro-bind", "W/own", "W/.agents")),
        (("--ro-bind", "W/.agents", "W/.agents"), ()),
        (("--bind", "W", "W"), ("--bind", "H", "W")),
    ],
    ids="secret,elsewhere,system,private,around-private,open,workspace".split(","),
)
def test_t1_wherever_bubblewrap_is_led_nothing_runs(
    place: Place, sandbox: Path, tmp_path: Path, planned: tuple[str, ...], instead: tuple[str, ...]
) -> None:
    def named(words: tuple[str, ...]) -> tuple[str, ...]:
        known = {"W": str(place.workspace), "H": str(place.home)}
        return tuple(
            known.get(word[0], word[0]) + word[1:] if word[0] in known and word[1:2] in ("", "/") else word
            for word in words
        )

    assert named(planned) in [(one.option, *one.arguments) for one in place.plan(writable=True).operations]
    led = altered_bwrap(tmp_path / "bwrap", sandbox, named(planned), named(instead))
    error = fails(place.with_settings(bwrap=led))
    assert isinstance(error, ContainmentError)
    assert "changed while it was being started" in str(error)
