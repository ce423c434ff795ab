"""latch/__main__.py: what ``python -m`` can hold."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
from pathlib import Path

import pytest

from latch import __version__
from latch.__main__ import end_on_sigint, forget_working_directory, start
from tests.support.decoys import lay_decoys, old_interpreter, run_in
from tests.support.tree import ROOT

SAID = f"latch {__version__}\n"
USAGE = 'latch: unknown command "docter"\nhint: did you mean "doctor"?\n'
# Loaded by the interpreter for -m itself, before any line of ours.
BEFORE_US = (
    "collections",
    "contextlib",
    "importlib",
    "typing",
    "re",
    "posix",
    "signal",
    "threading",
    "select",
)


def test_it_runs_where_the_working_directory_is_the_checkout() -> None:
    done = run_in(ROOT, [sys.executable, "-m", "latch", "--version"], PYTHONPATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


@pytest.mark.parametrize("search", ["{root}", "{root}:", "{root}:."])
def test_t8_decoys_of_what_we_import_are_not_imported(tmp_path: Path, search: str) -> None:
    lay_decoys(tmp_path)
    for name in BEFORE_US:
        (tmp_path / f"{name}.py").unlink()
    done = run_in(tmp_path, [sys.executable, "-m", "latch", "docter"], PYTHONPATH=search.format(root=ROOT))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", USAGE)


def test_t8_the_working_directory_is_dropped_however_it_is_spelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, alias = tmp_path / "here", tmp_path / "alias"
    place.mkdir()
    alias.symlink_to(place)
    monkeypatch.chdir(place)
    kept = [str(tmp_path), str(tmp_path / "absent"), os.fspath(ROOT)]
    monkeypatch.setattr(sys, "path", ["", ".", "lib", str(place), f"{place}/", str(alias), "", *kept])
    forget_working_directory()
    assert sys.path == kept


def test_sigint_ends_it_until_the_command_takes_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_on_sigint()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_on_sigint()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_old_interpreter_is_refused_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 20))
    assert start() == 2
    assert capsys.readouterr() == ("", "latch: needs Python 3.9 or newer, this is Python 3.8\n")


def test_a_real_old_interpreter_can_read_the_guard() -> None:
    python = old_interpreter()
    if python is None:
        pytest.skip("no Python 3 below 3.9 on this machine")
    done = run_in(ROOT, [python, "-m", "latch", "--version"], PYTHONPATH="")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("latch: needs Python 3.9 or newer, this is Python 3.")


def test_it_runs_the_command_line_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["latch", "--version"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert start() == 0
    assert capsys.readouterr().out == SAID


@pytest.mark.parametrize("started", ["latch/__main__.py", "latch"])
def test_started_by_its_path_it_is_the_member_of_its_package(tmp_path: Path, started: str) -> None:
    done = run_in(tmp_path, [sys.executable, str(ROOT / started), "docter"], PYTHONPATH="")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", USAGE)


def test_started_by_its_path_under_another_name_it_finds_its_own_package(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(ROOT / "latch")
    shutil.copytree(ROOT / "latch", tmp_path / "copied", ignore=shutil.ignore_patterns("__pycache__"))
    for place in ("other", "copied"):
        done = run_in(tmp_path, [sys.executable, place, "--version"], PYTHONPATH="")
        assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def test_finding_its_package_leaves_neither_its_directory_nor_the_one_around_it_on_the_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [entry for entry in sys.path if os.path.realpath(entry) not in (str(ROOT), str(ROOT / "latch"))]
    monkeypatch.setattr(sys, "path", [str(ROOT / "latch"), *kept])
    monkeypatch.setattr(sys, "argv", ["latch", "--version"])
    assert runpy.run_path(str(ROOT / "latch" / "__main__.py"))["start"]() == 0
    assert capsys.readouterr().out == SAID
    assert str(ROOT / "latch") not in sys.path and str(ROOT) not in sys.path
