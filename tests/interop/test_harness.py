"""What the harness lists and how it judges, without what it installs and starts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Mapping

import pytest

from tests.interop import programs, servers
from tests.interop.conformance import judge
from tests.interop.installs import STAMP, InstallFailed, Installs
from tests.interop.outcome import Outcome
from tests.interop.run import DATA, toml

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
    """Return one check of each status, in the suite's own form."""
    return [
        {"id": f"check-{number}", "status": word, "description": "said"} for number, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("found", "complaints"),
    [
        (checks("SUCCESS", "SUCCESS"), []),
        (checks("SUCCESS", "SUCCESS", "SKIPPED", "INFO"), []),
        (checks("SUCCESS", "SUCCESS", "FAILURE"), ["FAILURE check-2: said"]),
        (checks("SUCCESS", "SUCCESS", "WARNING"), ["WARNING check-2: said"]),
        (checks("SUCCESS", "SKIPPED"), ["2 checks must pass, 1 did"]),
        ([], ["2 checks must pass, 0 did"]),
    ],
)
def test_a_run_of_the_suite_fails_for_each_check_that_did_not_pass(
    tmp_path: Path, found: list[dict[str, str]], complaints: list[str]
) -> None:
    file, outcome = tmp_path / "checks.json", Outcome("a run")
    file.write_text(json.dumps(found), encoding="utf-8")
    judge(outcome, {"passes": 2}, [file])
    assert outcome.problems == complaints


def test_a_run_of_the_suite_that_leaves_no_checks_fails() -> None:
    outcome = Outcome("a run")
    judge(outcome, {"passes": 0}, [])
    assert outcome.problems == ["the suite left 0 files of checks, not one"]


class Counted(Installs):
    """Sets that are made of nothing; those named broken cannot be."""

    made: list[str]

    def install(self, folder: Path, given: Mapping[str, Any]) -> None:
        """Take note of the set."""
        self.made.append(given["name"])
        if given["packages"] == ["broken"]:
            raise InstallFailed(given["name"])


def ensured(directory: Path, **packages: list[str]) -> list[str]:
    """Return which sets were made when all of them were asked for."""
    sets = [{"name": name, "packages": listed} for name, listed in packages.items()]
    installs = Counted(sets, directory)
    installs.made = []
    installs.ensure(packages)
    return sorted(installs.made)


def test_what_is_complete_is_not_installed_again_and_what_changed_is(tmp_path: Path) -> None:
    assert ensured(tmp_path, tools=["a==1"], more=["b==1"]) == ["more", "tools"]
    (tmp_path / "more" / "old").touch()
    assert ensured(tmp_path, tools=["a==1"], more=["b==1"]) == []
    assert ensured(tmp_path, tools=["a==1"], more=["b==2"]) == ["more"]
    assert not (tmp_path / "more" / "old").exists()


@pytest.mark.parametrize("broken", ["tools", "more"])
def test_an_install_that_failed_is_not_taken_for_complete(tmp_path: Path, broken: str) -> None:
    packages = {"tools": ["a==1"], "more": ["b==1"], broken: ["broken"]}
    with pytest.raises(InstallFailed, match=broken):
        ensured(tmp_path, **packages)
    assert not (tmp_path / broken / STAMP).exists()
