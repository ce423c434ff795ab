"""What the harness lists and how it judges, without what it installs and starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop import programs, servers
from tests.interop.conformance import judge
from tests.interop.installs import STAMP, Installs
from tests.interop.outcome import Outcome
from tests.interop.run import DATA, toml
from tests.support.tree import ROOT

LEGACY = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
# What a run of the harness fills in besides the folders of installs.
FILLED = {"node", "servers", "port", "place", "repository", "page"}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """The data file."""
    return toml.loads(DATA.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["installs", "servers", "programs"])
def test_names_are_said_once(data: dict[str, Any], kind: str) -> None:
    names = [one["name"] for one in data[kind]]
    assert len(names) == len(set(names))


def test_every_package_is_pinned(data: dict[str, Any]) -> None:
    pinned = re.compile(r"(?:@[\w.-]+/)?[\w.-]+(?:==|@)[\w.-]+")
    assert all(pinned.fullmatch(text) for one in data["installs"] for text in one["packages"])


def test_every_placeholder_is_filled(data: dict[str, Any]) -> None:
    known = FILLED | {one["name"] for one in data["installs"]}
    assert set(servers.PLACEHOLDER.findall(json.dumps(data["servers"]))) <= known


def test_every_server_says_what_must_come_of_it(data: dict[str, Any]) -> None:
    for one in data["servers"]:
        assert "refused" in one or (one["tools"] > 0 and one["calls"] and one["version"]), one["name"]


@pytest.mark.parametrize("short", [True, False], ids=["short run", "whole run"])
def test_all_revisions_are_met_on_both_transports(data: dict[str, Any], short: bool) -> None:
    tried = [one for one in data["servers"] if "version" in one and (one.get("ci") or not short)]
    assert {one["version"] for one in tried if "url" not in one} == LEGACY | {"2026-07-28"}
    assert {one["version"] for one in tried if "url" in one} >= {"2025-11-25", "2026-07-28"}


def test_the_suite_is_run_as_often_and_checks_as_much_as_it_can(data: dict[str, Any]) -> None:
    assert (len(data["conformance"]), sum(one["passes"] for one in data["conformance"])) == (13, 68)


def test_every_program_is_listed(data: dict[str, Any]) -> None:
    assert programs.unlisted(data["programs"]) == []
    assert programs.unlisted([]) == sorted(one["name"] for one in data["programs"])


def checks(*words: str) -> list[dict[str, str]]:
    return [{"id": f"check-{number}", "status": word} for number, word in enumerate(words)]


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (checks("SUCCESS", "SUCCESS"), None),
        (checks("SUCCESS", "SUCCESS", "SKIPPED", "INFO"), None),
        (checks("SUCCESS", "SUCCESS", "FAILURE"), "FAILURE check-2"),
        (checks("SUCCESS", "SUCCESS", "WARNING"), "WARNING check-2"),
        (checks("SUCCESS", "SKIPPED"), "2 checks must pass, 1 did"),
        ([], "2 checks must pass, 0 did"),
    ],
)
def test_a_run_of_the_suite_fails_for_each_check_that_did_not_pass(
    tmp_path: Path, found: list[dict[str, str]], complaint: str | None
) -> None:
    file, outcome = tmp_path / "checks.json", Outcome("a run")
    file.write_text(json.dumps(found), encoding="utf-8")
    judge(outcome, {"passes": 2}, [file])
    assert [complaint] == [text[: len(complaint or "")] for text in outcome.problems] or (
        complaint is None and outcome.problems == []
    )


def test_a_run_of_the_suite_that_leaves_no_checks_fails() -> None:
    outcome = Outcome("a run")
    judge(outcome, {"passes": 0}, [])
    assert outcome.problems == ["the suite left 0 files of checks, not one"]


def test_what_is_complete_is_not_installed_again_and_what_changed_is(tmp_path: Path) -> None:
    # An empty set is made by the interpreter alone, from no index.
    given = {"name": "tools", "kind": "python", "packages": ["pip"]}
    Installs([given], tmp_path).ensure([])
    (tmp_path / "tools" / "kept").touch()
    Installs([given], tmp_path).ensure([])
    assert (tmp_path / "tools" / "kept").exists()
    Installs([{**given, "packages": ["pip", "pip"]}], tmp_path).ensure([])
    assert not (tmp_path / "tools" / "kept").exists()


def test_an_install_that_failed_is_not_taken_for_complete(tmp_path: Path) -> None:
    broken = Installs([{"name": "tools", "kind": "python", "packages": ["/absent"]}], tmp_path)
    with pytest.raises(Exception, match="tools: status 1"):
        broken.ensure([])
    assert not (tmp_path / "tools" / STAMP).exists()
