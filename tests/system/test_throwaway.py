"""A place for one run is its own, is gone with it, and is found when the run was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from latch.errors import StoreError
from latch.system import throwaway
from latch.system.throwaway import remove_left_places, state_in, states_of_places, throw_away_place

CHECKOUT = Path(__file__).resolve().parents[2]
UID = os.getuid()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files of this test alone."""
    monkeypatch.setattr(throwaway, "_DIRECTORY", tmp_path)
    return tmp_path


def ours(temporary: Path) -> list[Path]:
    """The state directories of places below *temporary*."""
    return [state for state in states_of_places(UID) if temporary in state.parents]


def leave(temporary: Path, *, ledger: bool) -> Path:
    """Make a place as a run that was killed leaves it; with *ledger*, it has something on record."""
    script = """
import os, pathlib, sys
from latch.system import throwaway
from latch.system import throwaway
from latch.system.throwaway import state_in, throw_away_place
throwaway._DIRECTORY = pathlib.Path(sys.argv[1])
with throw_away_place(uid=os.getuid()) as place:
    (state_in(place) / "ledger").mkdir(parents=True)
    if sys.argv[2] == "True":
        (state_in(place) / "ledger" / "1-1-0.jsonl").touch()
    print(place, flush=True)
    os.kill(os.getpid(), 9)
"""
    argv = [sys.executable, "-c", script, str(temporary), str(ledger)]
    return Path(
        subprocess.run(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, timeout=20).stdout.decode().strip()
    )


def test_a_place_is_ours_alone_and_nothing_of_it_stays(temporary: Path) -> None:
    with throw_away_place(uid=UID) as place:
        assert place.stat().st_mode & 0o777 == place.parent.stat().st_mode & 0o777 == 0o700
        (place / "full" / "of").mkdir(parents=True)
        (place / "full" / "of" / "things").write_text("1")
        assert ours(temporary) == [state_in(place)]
    assert list(temporary.iterdir()) == []


def test_two_places_at_once_are_two_and_the_last_takes_the_directory_along(temporary: Path) -> None:
    with throw_away_place(uid=UID) as one:
        with throw_away_place(uid=UID) as two:
            assert one != two and one.parent == two.parent
        assert one.is_dir() and not two.exists()
    assert list(temporary.iterdir()) == []


def test_a_place_in_use_is_left_alone(temporary: Path) -> None:
    with throw_away_place(uid=UID) as place:
        remove_left_places(UID)
        assert place.is_dir()


def test_a_left_place_is_removed_once_its_ledger_names_nothing(temporary: Path) -> None:
    kept, left = leave(temporary, ledger=True), leave(temporary, ledger=False)
    assert sorted(ours(temporary)) == sorted([state_in(kept), state_in(left)])
    remove_left_places(UID)
    assert kept.is_dir() and not left.exists()
    (state_in(kept) / "ledger" / "1-1-0.jsonl").unlink()
    remove_left_places(UID)
    assert list(temporary.iterdir()) == []


def test_a_directory_that_others_can_reach_is_refused_with_the_cure(temporary: Path) -> None:
    base = temporary / f"latch-{UID}"
    base.mkdir()
    base.chmod(0o755)
    (base / "planted").mkdir()
    with pytest.raises(StoreError, match="has mode 0755") as caught, throw_away_place(uid=UID):
        raise AssertionError("made all the same")
    assert caught.value.hint == f"chmod 700 {base}"
    assert ours(temporary) == []
    remove_left_places(UID)
    assert (base / "planted").is_dir()


def test_a_link_of_that_name_is_refused_and_nothing_behind_it_is_removed(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    (home / "run-project").mkdir()
    (home / "run-project" / "work").write_text("1")
    (temporary / f"latch-{UID}").symlink_to(home)
    assert ours(temporary) == []
    remove_left_places(UID)
    assert (home / "run-project" / "work").exists()
    with (
        pytest.raises(StoreError, match="is a symbolic link, must be a directory"),
        throw_away_place(uid=UID),
    ):
        raise AssertionError("made all the same")


def test_only_what_bears_the_name_of_a_place_is_removed(temporary: Path) -> None:
    with throw_away_place(uid=UID) as place:
        (place.parent / "mine").mkdir()
        remove_left_places(UID)
        assert (place.parent / "mine").is_dir() and place.is_dir()


def test_where_anybody_may_put_another_in_its_stead_nothing_is_made_or_removed(temporary: Path) -> None:
    left = leave(temporary, ledger=False)
    temporary.chmod(0o777)
    try:
        remove_left_places(UID)
        assert left.is_dir() and ours(temporary) == []
        with pytest.raises(StoreError, match="anybody may change") as caught, throw_away_place(uid=UID):
            raise AssertionError("made all the same")
        assert caught.value.hint == f"chmod +t {temporary}"
        temporary.chmod(0o1777)
        remove_left_places(UID)
        assert not left.exists()
    finally:
        temporary.chmod(0o700)


def test_a_directory_of_another_user_is_refused(temporary: Path) -> None:
    (temporary / f"latch-{UID + 1}").mkdir(mode=0o700)
    with pytest.raises(StoreError, match=f"belongs to uid {UID}, must belong to uid {UID + 1}"):
        with throw_away_place(uid=UID + 1):
            raise AssertionError("made all the same")
    assert states_of_places(UID + 1) == []


def test_a_place_that_cannot_be_made_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throwaway, "_DIRECTORY", Path("/proc/no-such-place"))
    with pytest.raises(StoreError, match="/proc/no-such-place"), throw_away_place(uid=UID):
        raise AssertionError("made all the same")
