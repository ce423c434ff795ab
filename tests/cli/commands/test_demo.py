"""cli/commands/demo.py: each step, in words and as JSON, and what stops it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Done, Operator
from tests.support.tree import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")

STEPS = ["sandbox", "extension", "tool", "guard", "mount", "mcp", "deadline", "left over"]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def run_copy(operator: Operator, file: str, before: str, after: str) -> Done:
    """Run the demo of a copy of the package in which *before* was changed to *after* in *file*."""
    copy = operator.place / "copy"
    shutil.copytree(ROOT / "latch", copy / "latch", ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / "latch" / file).read_text(encoding="utf-8")
    assert text.count(before) == 1
    (copy / "latch" / file).write_text(text.replace(before, after), encoding="utf-8")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from latch.cli.main import main; sys.exit(main(sys.argv[2:]))"
    )
    # What the operator's own start adds, "bin/latch demo", ends up behind $1 and is left alone.
    run = ("sh", "-c", 'exec "$0" -c "$1" "$2" $3', sys.executable, script, str(copy), "demo")
    return operator.run(before=run)


def test_every_step_shows_what_it_should(operator: Operator) -> None:
    done = operator.run("demo")
    lines = done.text.splitlines()
    assert (done.status, done.err) == (0, b"")
    assert "offline, in a throw-away workspace" in lines[0]
    assert [line[4:15].rstrip() for line in lines[1:-1]] == STEPS
    assert [line[:3] for line in lines[1:-1]] == [f"[{number}]" for number in range(1, len(STEPS) + 1)]
    texts = dict(zip(STEPS, (line[15:] for line in lines[1:-1])))
    assert "no capabilities" in texts["sandbox"]
    assert "count_words, write_file, hang and a guard" in texts["extension"]
    assert texts["tool"] == "count_words answered {'words': 4}"
    assert texts["guard"] == "deny: demo: the arguments mention a secret"
    assert "refused by the mount: Read-only file system" in texts["mount"]
    assert texts["mcp"] == "a server on stdio, protocol 2026-07-28, answered: notes.txt has 1 line"
    assert texts["deadline"] == 'extension "demo": tool.execute: no answer within 0.5 s; killed (signal 9)'
    gone = r"no process is left of the hung extension \(it had process \d+ and its monitor\)"
    assert re.fullmatch(gone, texts["left over"])
    assert lines[-1].startswith("8 of 8 steps as they should be, ")
    assert operator.left() == []


def test_json_is_one_document(operator: Operator) -> None:
    done = operator.run("demo", "--json")
    assert (done.status, done.err) == (0, b"")
    assert [step["step"] for step in done.value["steps"]] == STEPS
    assert all(step["ok"] for step in done.value["steps"]) and done.value["seconds"] >= 0.5


def test_the_operators_own_configuration_is_not_read(operator: Operator) -> None:
    operator.configure(top="nonsense = 1")
    assert operator.run("demo").status == 0


def test_without_a_sandbox_it_shows_the_refusal_the_cause_and_the_cure(
    operator: Operator, sandbox: Path
) -> None:
    hidden = (str(sandbox), "--dev-bind", "/", "/", "--ro-bind", "/dev/null", os.path.realpath(sandbox), "--")
    done = operator.run("demo", before=hidden)
    assert done.status == 8 and len(done.text.splitlines()) == 1
    assert done.said.splitlines() == [
        "latch: cannot start the demo: bubblewrap (bwrap) is not installed; nothing was run unsandboxed",
        "hint: install the distribution's package bubblewrap",
    ]
    error = operator.run("demo", "--json", before=hidden).error
    assert (error["exit"], error["code"]) == (8, "sandbox_unavailable")


@pytest.mark.parametrize(
    ("file", "before", "after", "step", "words"),
    [
        (
            "cli/demo_peer.py",
            'if "secret" in str(payload) else allow()',
            'if "public" in str(payload) else allow()',
            "guard",
            "allow: ",
        ),
        (
            "cli/demo_peer.py",
            'return {"words": len(',
            'return {"words": 1 + len(',
            "tool",
            "count_words answered {'words': 5}",
        ),
        ("cli/demo_server.py", "sum(1 for _", "sum(2 for _", "mcp", "notes.txt has 2 lines"),
    ],
)
def test_a_step_that_does_not_show_it_fails_the_demo(
    operator: Operator, file: str, before: str, after: str, step: str, words: str
) -> None:
    done = run_copy(operator, file, before, after)
    assert done.status == 1
    (line,) = [line for line in done.text.splitlines() if "FAILED: " in line]
    assert line[4:].startswith(step) and words in line
    assert done.text.splitlines()[-1].startswith("7 of 8 steps as they should be")


def test_a_hang_that_is_not_ended_fails_twice_and_is_ended_all_the_same(operator: Operator) -> None:
    done = run_copy(
        operator, "cli/demo_peer.py", "        while True:\n            signal.pause()", "        return None"
    )
    failed = [line.partition("FAILED: ")[2] for line in done.text.splitlines() if "FAILED: " in line]
    hang, left = failed
    assert (done.status, hang) == (1, "a tool that never answers was not ended")
    assert re.fullmatch(r"of the hung extension there is still process \d+, \d+", left)
    assert operator.left() == []


def test_an_extension_that_does_not_start_ends_the_demo_as_a_peer_s_fault(operator: Operator) -> None:
    done = run_copy(operator, "cli/demo_peer.py", "    extension.run()", "    raise SystemExit(3)")
    assert done.status == 6 and 'extension "demo"' in done.said
