"""cli/arguments.py: global flags and the parser of one command."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from latch.cli.arguments import CommandParser, HelpAsked, parse_options
from latch.errors import UsageError


def parsed(*arguments: str) -> argparse.Namespace:
    parser = CommandParser(prog="latch fake", description="Pretend.", allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    return parse_options(parser, arguments)


def test_without_flags_everything_has_its_default() -> None:
    assert vars(parsed()) == {
        "words": [],
        "config": None,
        "cwd": Path.cwd(),
        "json": False,
        "quiet": False,
        "verbose": False,
        "no_color": False,
        "timeout": None,
        "non_interactive": False,
        "version": False,
    }


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--json"], "json", True),
        (["-q"], "quiet", True),
        (["--quiet"], "quiet", True),
        (["-v"], "verbose", True),
        (["--verbose"], "verbose", True),
        (["--no-color"], "no_color", True),
        (["--non-interactive"], "non_interactive", True),
        (["--timeout", "2.5"], "timeout", 2.5),
        (["--", "--json"], "words", ["--json"]),
    ],
)
def test_each_flag_sets_its_option(arguments: list[str], name: str, value: object) -> None:
    assert getattr(parsed(*arguments), name) == value


def test_directory_and_file_become_absolute_and_the_process_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    options = parsed("-C", "sub", "--config", "x/../a.toml")
    assert options.cwd == tmp_path / "sub"
    assert options.config == tmp_path / "a.toml"
    assert Path.cwd() == tmp_path


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        parsed("-C", str(tmp_path / "absent"))


def test_a_working_directory_that_was_removed_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)
    with pytest.raises(UsageError, match="no longer exists"):
        parsed()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", ""])
def test_a_timeout_is_a_finite_number_above_zero(text: str) -> None:
    with pytest.raises(UsageError, match="not a number of seconds above 0"):
        parsed(f"--timeout={text}")


@pytest.mark.parametrize("arguments", [["--bogus"], ["--js"], ["--timeout"], ["--json=1"]])
def test_a_wrong_argument_is_raised_and_nothing_printed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*arguments)
    assert caught.value.hint == "latch fake --help shows its arguments"
    assert capsys.readouterr() == ("", "")


def test_help_is_raised_with_the_global_options_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HelpAsked) as caught:
        parsed("--help")
    assert caught.value.text.startswith("usage: latch fake")
    assert "--timeout SECONDS" in caught.value.text and "\x1b" not in caught.value.text
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (["show", "--help"], HelpAsked, "usage: latch fake show"),
        (["show", "--bogus"], UsageError, "--bogus"),
        (["shwo"], UsageError, "invalid choice"),
    ],
)
def test_a_parser_below_a_command_behaves_the_same(
    arguments: list[str], kind: type[Exception], text: str
) -> None:
    parser = CommandParser(prog="latch fake", allow_abbrev=False)
    parser.add_subparsers(dest="verb").add_parser("show")
    with pytest.raises(kind, match=text):
        parse_options(parser, arguments)
