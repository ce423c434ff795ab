"""bin/latch: the version guard, and a start among modules that only look like the standard library's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from latch import __version__
from tests.support.decoys import lay_decoys, old_interpreter, run_in
from tests.support.tree import ROOT

PROGRAM = str(ROOT / "bin" / "latch")
SAID = f"latch {__version__}\n"
USAGE = 'latch: unknown command "docter"\nhint: did you mean "doctor"?\n'


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    place = tmp_path / "hostile"
    lay_decoys(place, "latch/__init__", "latch/cli/__init__", "latch/cli/main")
    return place


def without_path() -> dict[str, str]:
    return {"PYTHONPATH": ""}


def test_it_runs_from_anywhere(tmp_path: Path) -> None:
    done = run_in(tmp_path, [sys.executable, PROGRAM, "--version"], **without_path())
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


@pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 on PATH")
def test_it_is_executable() -> None:
    assert os.access(PROGRAM, os.X_OK)
    assert Path(PROGRAM).read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")


@pytest.mark.parametrize("search", ["", ".", ":", f"{os.curdir}/", f"{ROOT}:", "lib:.", "sub/.."])
def test_t8_decoys_in_the_working_directory_are_not_imported(hostile: Path, search: str) -> None:
    (hostile / "sub").mkdir()
    version = run_in(hostile, [sys.executable, PROGRAM, "--version", "--json"], PYTHONPATH=search)
    usage = run_in(hostile, [sys.executable, PROGRAM, "docter"], PYTHONPATH=search)
    assert (version.returncode, version.stdout, version.stderr) == (
        0,
        f'{{"v": 1, "version": "{__version__}"}}\n',
        "",
    )
    assert (usage.returncode, usage.stdout, usage.stderr) == (2, "", USAGE)


def test_t8_a_working_directory_named_through_a_link_is_dropped(hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(hostile)
    done = run_in(hostile, [sys.executable, PROGRAM, "docter"], PYTHONPATH=str(tmp_path / "alias"))
    assert (done.returncode, done.stderr) == (2, USAGE)


def test_t8_a_command_runs_among_decoys(hostile: Path) -> None:
    done = run_in(hostile, [sys.executable, PROGRAM, "ps", "--help"], PYTHONPATH=".")
    assert done.returncode == 0 and done.stdout.startswith("usage: latch ps")


def test_t8_no_relative_entry_and_no_working_directory_is_left(hostile: Path) -> None:
    program = f"""
import sys
sys.argv = ["latch", "--version"]
source = compile(open({PROGRAM!r}).read(), {PROGRAM!r}, "exec")
sys.path[:0] = ["", ".", "lib", {str(hostile)!r}, {str(hostile)!r} + "/"]
try:
    exec(source, {{"__name__": "__main__", "__file__": {PROGRAM!r}}})
except SystemExit:
    print(sys.path)
"""
    done = run_in(hostile, [sys.executable, "-I", "-c", program])
    left = done.stdout.splitlines()[1]
    assert (
        "''" not in left and "'.'" not in left and "'lib'" not in left and str(hostile) not in left
    ), done.stderr


def test_t8_without_the_site_module_not_even_os_is_taken_from_there(hostile: Path) -> None:
    lay_decoys(hostile, "os", "posixpath", "stat")
    if run_in(hostile, [sys.executable, "-S", "-c", "pass"], PYTHONPATH=".").returncode != 0:
        pytest.skip("this interpreter itself takes os from there, before any program runs")
    done = run_in(hostile, [sys.executable, "-S", PROGRAM, "docter"], PYTHONPATH=".")
    assert (done.returncode, done.stderr) == (2, USAGE)


def test_it_runs_where_the_working_directory_is_the_checkout() -> None:
    done = run_in(ROOT, [sys.executable, PROGRAM, "--version"], **without_path())
    assert (done.returncode, done.stdout) == (0, SAID)


def test_what_lies_beside_the_package_does_not_pass_for_the_standard_library(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "latch", checkout / "latch", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "bin", checkout / "bin")
    lay_decoys(checkout)
    for place in (checkout, tmp_path):
        done = run_in(place, [sys.executable, str(checkout / "bin" / "latch"), "docter"], **without_path())
        assert (done.returncode, done.stderr) == (2, USAGE)


def test_it_resolves_links_to_itself(tmp_path: Path) -> None:
    (tmp_path / "first").symlink_to(PROGRAM)
    (tmp_path / "second").symlink_to("first")
    done = run_in(tmp_path, [sys.executable, str(tmp_path / "second"), "--version"], **without_path())
    assert (done.returncode, done.stdout) == (0, SAID)


def test_it_prefers_the_package_beside_it_to_an_installed_one(tmp_path: Path) -> None:
    lay_decoys(tmp_path / "installed", "latch/__init__")
    done = run_in(tmp_path, [sys.executable, PROGRAM, "--version"], PYTHONPATH=str(tmp_path / "installed"))
    # The other decoys there are the operator's own doing: PYTHONPATH named that directory.
    assert "decoy latch" not in done.stderr


def test_it_runs_in_a_directory_that_was_removed(tmp_path: Path) -> None:
    program = "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone');"
    program += "os.execv(sys.argv[1], sys.argv[1:])"
    done = run_in(tmp_path, [sys.executable, "-c", program, sys.executable, PROGRAM, "--version"])
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def guard_says(version: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
    program = (
        f"import runpy, sys; sys.version_info = {version!r}; runpy.run_path({PROGRAM!r}, run_name='__main__')"
    )
    return run_in(ROOT, [sys.executable, "-c", program])


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 8, 20)])
def test_an_old_interpreter_is_refused_with_both_versions(version: tuple[int, ...]) -> None:
    done = guard_says(version)
    said = f"latch: needs Python 3.9 or newer, this is Python {version[0]}.{version[1]}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_real_old_interpreter_can_read_the_guard(tmp_path: Path) -> None:
    python = old_interpreter()
    if python is None:
        pytest.skip("no Python 3 below 3.9 on this machine")
    done = run_in(tmp_path, [python, PROGRAM, "--version"], **without_path())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("latch: needs Python 3.9 or newer, this is Python 3.")
    assert done.stderr.count("\n") == 1
