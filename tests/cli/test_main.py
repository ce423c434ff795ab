"""cli/main.py: from arguments to an exit status."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from latch import __version__
from latch.cli.main import COMMANDS, load_command, main
from latch.cli.terminal import OutputClosed, Terminal
from latch.errors import Denied, PeerGone
from tests.support.tree import ROOT

Run = Callable[[argparse.Namespace, Terminal], int]


class FakeCommand:
    """A command module whose ``run`` is the test's."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.asked: list[str] = []

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--flag", action="store_true")
        parser.add_argument("words", nargs="*")

    def load(self, name: str) -> Any:
        self.asked.append(name)
        return self


def run_with(run: Run, *arguments: str) -> int:
    return main(arguments, load=FakeCommand(run).load)


def options_of(*arguments: str) -> argparse.Namespace:
    seen: list[argparse.Namespace] = []
    assert run_with(lambda options, io: seen.append(options) or 0, *arguments) == 0
    return seen[0]


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_table_has_unique_names_and_every_module_offers_a_command() -> None:
    names = [row[0] for row in COMMANDS]
    assert len(set(names)) == len(names)
    for name in names:
        module = load_command(name)
        assert callable(module.configure) and callable(module.run)


@pytest.mark.parametrize("arguments", [["--version"], ["ps", "--version"], ["-q", "--version", "ps"]])
def test_version_is_one_line_wherever_it_is_asked_for(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr() == (f"latch {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--version", "--json"], ["--json", "ps", "--version"]])
def test_version_as_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "version": __version__}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], ["help"], ["-q", "--help"], ["help", "help"], ["help", "--help"], ["help", "-h"]],
)
def test_help_names_every_command_and_option(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for row in COMMANDS:
        assert f"  {row[0]} " in out and row[2] in out
    for flag in (
        "--config",
        "--cwd",
        "--json",
        "-q",
        "-v",
        "--no-color",
        "--timeout",
        "--non-interactive",
        "--version",
    ):
        assert flag in out


@pytest.mark.parametrize("arguments", [[], ["-q"], ["-C", "/"]])
def test_without_a_command_the_short_help_is_shown(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: latch") and "--timeout" not in out and err == ""


@pytest.mark.parametrize(
    ("arguments", "plain"), [(["--json"], []), (["--json", "help"], ["help"]), (["--help", "--json"], ["-h"])]
)
def test_help_as_json_is_one_document_with_the_commands_and_the_text(
    arguments: list[str], plain: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(plain) == 0
    text = capsys.readouterr().out
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    commands = [{"name": row[0], "summary": row[2]} for row in COMMANDS]
    assert (json.loads(out), out.count("\n"), err) == ({"v": 1, "commands": commands, "help": text}, 1, "")


@pytest.mark.parametrize("arguments", [["--json", "help", "ps"], ["ps", "--help", "--json"]])
def test_help_of_a_command_as_json_is_one_document(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = FakeCommand(lambda options, io: 1)
    assert main(["help", "ps"], load=command.load) == 0
    text = capsys.readouterr().out
    assert main(arguments, load=command.load) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "help": text}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sandbox", "Run one command as Latch would run it."),
        ("reap", "End what a killed Latch left running."),
        ("config", "Show the settings in force and where each comes from."),
    ],
)
def test_the_summary_of_a_command_keeps_its_capitals(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", name]) == 0
    assert sentence in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ["help", "ps"],
        ["ps", "--help"],
        ["--help", "ps"],
        ["ps", "-h"],
        ["help", "ps", "--help"],
        ["-h", "ps", "w"],
    ],
)
def test_help_of_a_command_is_the_command_s_own(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = FakeCommand(lambda options, io: 1)
    assert main(arguments, load=command.load) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: latch ps") and "--flag" in out and "--timeout SECONDS" in out and err == ""


class FakeVerbs(FakeCommand):
    """A command module with one verb."""

    VERBS = ("tools",)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb")
        verbs.add_parser("tools").add_argument("name")


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["help", "ps", "tools"], "usage: latch ps tools "),
        (["help", "ps", "--help", "tools"], "usage: latch ps tools "),
        (["ps", "tools", "--help"], "usage: latch ps tools "),
        (["--help", "ps", "tools", "x"], "usage: latch ps ["),
        (["help", "ps"], "usage: latch ps ["),
    ],
)
def test_help_explains_a_verb_of_a_command(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, load=FakeVerbs(lambda options, io: 1).load) == 0
    assert capsys.readouterr().out.startswith(usage)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["more"], 'unexpected "more" after "latch help ps"'),
        (["tools", "more"], 'unexpected "more" after "latch help ps tools"'),
    ],
)
def test_help_takes_a_command_and_its_verb_alone(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", "ps", *words], load=FakeVerbs(lambda options, io: 1).load) == 2
    hint = "hint: latch help takes one command and its verb"
    assert capsys.readouterr() == ("", f"latch: {message}\n{hint}\n")


def test_only_the_chosen_command_is_loaded() -> None:
    command = FakeCommand(lambda options, io: 7)
    assert main(["ps"], load=command.load) == 7
    assert command.asked == ["ps"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "-q", "-v", "--timeout", "5", "-C", "/", "ps", "--flag", "w"],
        ["ps", "--flag", "w", "--json", "-q", "-v", "--timeout", "5", "-C", "/"],
        ["-qvC", "/", "ps", "w", "--json", "--flag", "--timeout=5"],
        ["--json", "ps", "-qv", "--flag", "-C/", "w", "--timeout", "5"],
        ["--cwd=/", "--json", "ps", "-vq", "--timeout", "5", "--flag", "--", "w"],
    ],
)
def test_global_flags_may_stand_before_and_after_the_command(arguments: list[str]) -> None:
    options = options_of(*arguments)
    assert (options.json, options.quiet, options.verbose, options.timeout) == (True, True, True, 5)
    assert (options.cwd, options.flag, options.words) == (Path("/"), True, ["w"])


def test_two_dashes_end_our_flags() -> None:
    options = options_of("ps", "--", "ls", "--json", "-q", "--version", "--", "--help")
    assert (options.json, options.quiet) == (False, False)
    assert options.words[:4] == ["ls", "--json", "-q", "--version"] and options.words[-1] == "--help"


def test_a_command_is_handed_machine_and_scope() -> None:
    options = options_of("ps", "--timeout", "50")
    assert options.machine.latch_directory == Path(os.environ["LATCH_DIRECTORY"])
    assert 40 < options.scope.remaining() <= 50
    assert options_of("ps").scope.remaining() is None


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["doctr"], 'unknown command "doctr"', 'did you mean "doctor"?'),
        (["help", "doctr"], 'unknown command "doctr"', 'did you mean "doctor"?'),
        (["help", "ps", "more"], 'unexpected "more" after "latch help ps"', "latch help takes one command"),
        (["ps", "-C", ""], "-C was given an empty path", "name a path, or leave -C out"),
        (["--config=", "ps"], "--config was given an empty path", "name a path, or leave --config out"),
        (["zzz"], 'unknown command "zzz"', "latch --help lists commands and options"),
        (["--bogus"], 'unknown option "--bogus" before a command', "latch --help lists commands and options"),
        (["--config"], "--config needs a value", "latch --help lists commands and options"),
        (["-C"], "-C needs a value", "latch --help lists commands and options"),
        (["ps", "--bogus"], "unrecognized arguments: --bogus", "latch ps --help shows its arguments"),
        (
            ["ps", "--timeout", "no"],
            'argument --timeout: "no" is not a number of seconds above 0',
            "latch ps --help shows its arguments",
        ),
        (
            ["ps", "--config"],
            "argument --config: expected one argument",
            "latch ps --help shows its arguments",
        ),
        (
            ["ps", "--config", "--"],
            "argument --config: expected one argument",
            "latch ps --help shows its arguments",
        ),
    ],
)
def test_a_usage_error_is_one_sentence_and_one_hint(
    arguments: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load = FakeCommand(lambda options, io: 0).load
    assert main(arguments, load=load) == 2
    assert capsys.readouterr() == ("", f"latch: {message}\nhint: {hint}\n")
    assert main(["--json", *arguments], load=load) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert json.loads(err) == {"error": {"code": "usage", "message": message, "hint": hint, "exit": 2}}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Denied("no", rule="r"), 3, "denied"),
        (PeerGone("ended", peer="p", stage="s"), 6, "peer_gone"),
        (ZeroDivisionError("odd"), 1, "internal"),
    ],
)
def test_a_failure_leaves_stdout_empty_and_ends_stderr_with_one_line(
    error: Exception, status: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: argparse.Namespace, io: Terminal) -> int:
        io.note("careful")
        raise error

    assert run_with(run, "--json", "ps") == status
    out, err = capsys.readouterr()
    said = json.loads(err.splitlines()[-1])["error"]
    assert (out, said["code"], said["exit"]) == ("", code, status)
    assert set(said) == {"code", "message", "hint", "exit"}


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_only_verbose_shows_a_traceback(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace, io: Terminal) -> int:
        raise ZeroDivisionError("odd")

    assert run_with(run, "ps") == 1
    plain = capsys.readouterr().err
    assert run_with(run, "ps", flag) == 1
    told = capsys.readouterr().err
    assert (
        plain
        == "latch: internal error: ZeroDivisionError: odd\nhint: run it again with -v for the traceback\n"
    )
    assert told.startswith("Traceback") and told.endswith(plain)


def test_a_failure_of_ours_has_no_traceback_even_when_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace, io: Terminal) -> int:
        raise Denied("no", rule="r")

    assert run_with(run, "-v", "ps") == 3
    assert capsys.readouterr().err == "latch: no\n"


def test_flags_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    def run(options: argparse.Namespace, io: Terminal) -> int:
        assert io.as_json == options.json and io.quiet == options.quiet
        io.note("hushed")
        raise Denied("no", rule="r")

    assert run_with(run, "ps", "-q", "--no-color") == 3
    assert capsys.readouterr().err == "latch: no\n"
    assert run_with(run, "ps") == 3
    assert "\x1b[31m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_cancels_the_command_s_scope(
    number: signal.Signals, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: argparse.Namespace, io: Terminal) -> int:
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        options.scope.pause(30)
        return 0

    assert run_with(run, "ps") == status
    assert capsys.readouterr() == ("", f"latch: cancelled ({number.name})\n")


def test_a_command_that_finished_all_the_same_keeps_its_status() -> None:
    def run(options: argparse.Namespace, io: Terminal) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return 4

    assert run_with(run, "ps") == 4


def test_handlers_stand_only_while_a_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def run(options: argparse.Namespace, io: Terminal) -> int:
        seen.append(signal.getsignal(signal.SIGINT))
        raise Denied("no", rule="r")

    command = FakeCommand(run)
    command.configure = lambda parser: seen.append(signal.getsignal(signal.SIGINT))  # type: ignore[method-assign]
    assert main(["ps"], load=command.load) == 3
    assert seen[0] is before and seen[1] is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_before_a_command_runs_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def load(name: str) -> Any:
        raise KeyboardInterrupt

    assert main(["ps"], load=load) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_went_away_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace, io: Terminal) -> int:
        raise OutputClosed

    assert run_with(run, "ps") == 141
    assert capsys.readouterr() == ("", "")


def test_a_drawn_stage_is_taken_off_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[bool] = []
    monkeypatch.setattr(Terminal, "clear", lambda self: cleared.append(True))
    assert run_with(lambda options, io: 0, "ps") == 0
    assert cleared == [True]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["ps", "--help"]])
def test_a_closed_pipe_ends_quietly_with_141(arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, str(ROOT / "bin" / "latch"), *arguments]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--version"], ["ps", "--help"]])
def test_a_full_disk_is_said(arguments: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, str(ROOT / "bin" / "latch"), *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"latch: standard output: No space left on device\n")
