"""cli/failures.py: the exit table and the sentence."""

from __future__ import annotations

import io
import json
import re
import signal

import pytest

from latch import errors
from latch.cli.failures import EXITS, SIGNAL_EXITS, exit_status, tell, tell_all
from latch.cli.terminal import Terminal
from tests.support.tree import ROOT

PEER = {"peer": 'extension "lint"', "stage": "registration"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.LatchError("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.ConcurrentUse("x"), 2),
        (errors.ConfigError([errors.ConfigProblem("a.toml", "x")]), 2),
        (errors.CommandUnusable("x", status=127), 2),
        (errors.MissingDependency("x", needed_for="y"), 2),
        (errors.Denied("x", rule="r"), 3),
        (errors.ApprovalNeeded("x", rule="r"), 4),
        (errors.PeerError("x", **PEER), 6),
        (errors.PeerProtocolError("x", **PEER), 6),
        (errors.PeerRefused("x", **PEER), 6),
        (errors.PeerGone("x", **PEER), 6),
        (errors.PeerLimit("x", limit="l", amount=1, **PEER), 6),
        (errors.DeadlineMissed("x", seconds=1, **PEER), 6),
        (errors.SandboxUnavailable("x", cause="absent", hint="y"), 8),
        (errors.ContainmentError("p", "x"), 1),
        (errors.StoreError("p", "x"), 1),
        (errors.Cancelled("SIGHUP"), 129),
        (errors.Cancelled("SIGINT"), 130),
        (errors.Cancelled("SIGTERM"), 143),
        (errors.Cancelled("enough"), 1),
        (ValueError("x"), 1),
    ],
)
def test_each_failure_has_its_status(error: BaseException, status: int) -> None:
    assert exit_status(error) == status


def test_every_error_of_ours_has_a_row_or_derives_from_one() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "seconds_text"]
    ours = [kind for kind in kinds if issubclass(kind, errors.LatchError)]
    rows = {kind: [vars(base).get("code") for base in kind.__mro__] for kind in ours}
    assert [
        kind
        for kind, codes in rows.items()
        if not set(codes) - {"error"} & set(EXITS) and kind.code != "error"
    ] == []


def test_the_signals_have_the_statuses_of_a_shell() -> None:
    names = ("SIGHUP", "SIGINT", "SIGPIPE", "SIGTERM")
    assert SIGNAL_EXITS == {name: 128 + getattr(signal, name) for name in names}


def test_readme_lists_every_status_and_no_other() -> None:
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    table = text.partition("Exit codes\n---")[2].partition("\nLimits\n---")[0]
    listed = {int(row[1]) for row in re.finditer(r"^([0-9]+) +\S", table, re.MULTILINE)}
    assert listed == {0, *EXITS.values(), *SIGNAL_EXITS.values()}


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (errors.UsageError("no", hint="do"), "latch: no\nhint: do\n", "usage"),
        (
            errors.DeadlineMissed("no ready within 30 s", seconds=30, **PEER),
            'latch: extension "lint": registration: no ready within 30 s\n',
            "deadline",
        ),
        (errors.Cancelled("SIGINT"), "latch: cancelled (SIGINT)\n", "cancelled"),
        (
            ValueError("odd"),
            "latch: internal error: ValueError: odd\nhint: run it again with -v for the traceback\n",
            "internal",
        ),
        (
            KeyError(),
            "latch: internal error: KeyError\nhint: run it again with -v for the traceback\n",
            "internal",
        ),
    ],
)
def test_a_failure_is_told_in_one_sentence(error: BaseException, text: str, code: str) -> None:
    plain, machine = io.StringIO(), io.StringIO()
    status = tell(Terminal(None, plain, environment={}), error)
    assert tell(Terminal(None, machine, environment={}, as_json=True), error) == status == exit_status(error)
    assert plain.getvalue() == text
    said = json.loads(machine.getvalue())["error"]
    assert (said["code"], said["exit"]) == (code, status)


FAILURES = (
    errors.SandboxUnavailable("none", cause="absent", hint="install it"),
    errors.PeerGone("ended", **PEER),
)
SENTENCES = ["none; nothing was run unsandboxed", 'extension "lint": registration: ended']


def test_of_several_failures_each_is_told_with_its_hint_and_the_first_is_the_status() -> None:
    said = io.StringIO()
    assert tell_all(Terminal(None, said, environment={}), FAILURES) == 8
    assert said.getvalue().splitlines() == [
        f"latch: {SENTENCES[0]}",
        "hint: install it",
        f"latch: {SENTENCES[1]}",
    ]


def test_as_json_several_failures_are_the_first_with_all_in_it() -> None:
    said = io.StringIO()
    assert tell_all(Terminal(None, said, environment={}, as_json=True), FAILURES) == 8
    error = json.loads(said.getvalue())["error"]
    assert (error["code"], error["message"], error["hint"]) == (
        "sandbox_unavailable",
        SENTENCES[0],
        "install it",
    )
    assert [one["message"] for one in error["errors"]] == SENTENCES and said.getvalue().count("\n") == 1


def test_no_failure_is_told_by_silence() -> None:
    said = io.StringIO()
    assert (tell_all(Terminal(None, said, environment={}), []), said.getvalue()) == (0, "")
