"""``latch demo`` wherever it may be started: fast, from a zip, under another name, and leaving nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import Done, Operator
from tests.support.tree import PACKAGE

pytestmark = pytest.mark.usefixtures("sandbox")

DELIBERATE_SECONDS = 0.5
RUN = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
    "sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))"
)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def run_module(operator: Operator, place: Path, module: str) -> Done:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(place), module, "demo", "--json"],
        cwd=operator.workspace,
        env=operator.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def assert_good(done: Done) -> None:
    assert (done.status, done.err) == (0, b""), done
    assert [step["ok"] for step in done.value["steps"]] == [True] * 8


def test_it_takes_under_two_seconds_beyond_its_wait(operator: Operator, ms: float) -> None:
    done = operator.run("demo", "--json")
    assert_good(done)
    beyond = done.seconds - DELIBERATE_SECONDS
    print(f"latch demo: {beyond:.2f} s beyond its deliberate wait of {DELIBERATE_SECONDS} s")
    assert 0 < beyond < 2000 * ms


def test_it_leaves_neither_files_nor_processes(operator: Operator) -> None:
    scratch = operator.place / "scratch"
    scratch.mkdir()
    done = operator.run("demo", "--json", env=operator.environment(TMPDIR=str(scratch)))
    assert_good(done)
    assert (
        list(scratch.iterdir()) == list(operator.workspace.iterdir()) == list(operator.home.iterdir()) == []
    )
    assert operator.left() == []


@pytest.mark.parametrize("closing", ["<&-", "2>&-", "<&- 2>&-"])
def test_it_works_with_streams_closed(operator: Operator, closing: str) -> None:
    assert_good(operator.run("demo", "--json", before=("sh", "-c", f'exec "$@" {closing}', "sh")))


def test_it_says_that_there_is_nowhere_to_write(operator: Operator) -> None:
    done = operator.run("demo", "--json", before=("sh", "-c", 'exec "$@" >&-', "sh"))
    assert done.status == 1 and json.loads(done.err)["error"]["message"] == "standard output is closed"


def test_it_works_from_a_zip(operator: Operator) -> None:
    archive = operator.place / "latch.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(PACKAGE.rglob("*.py")):
            opened.write(file, file.relative_to(PACKAGE.parent))
    assert_good(run_module(operator, archive, "latch.cli.main"))


def test_it_works_vendored_under_another_name(operator: Operator) -> None:
    vendored = operator.place / "hosttool" / "_vendor"
    shutil.copytree(PACKAGE, vendored / "latch_copy", ignore=shutil.ignore_patterns("__pycache__"))
    for package in (vendored, vendored.parent):
        (package / "__init__.py").write_text("", encoding="utf-8")
    assert_good(run_module(operator, operator.place, "hosttool._vendor.latch_copy.cli.main"))


def test_two_at_once_do_not_know_of_each_other(operator: Operator) -> None:
    running = [operator.start("demo", "--json") for _ in range(2)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert_good(Done(process.returncode, out, err))


def test_a_reader_that_goes_away_ends_it_quietly_and_leaves_nothing(operator: Operator) -> None:
    scratch = operator.place / "scratch"
    scratch.mkdir()
    with operator.start("demo", env=operator.environment(TMPDIR=str(scratch))) as process:
        assert process.stdout.readline().startswith(b"latch ")
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)
    assert list(scratch.iterdir()) == [] and operator.left() == []
