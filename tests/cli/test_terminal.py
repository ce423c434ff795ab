"""cli/terminal.py: what goes to which stream, and in which shape."""

from __future__ import annotations

import io
import json
import os
from typing import Mapping

import pytest

from latch.cli.terminal import OutputClosed, Terminal, discard, escape
from latch.errors import LatchError


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


class Broken(Screen):
    """A stream that cannot be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Both:
    """A terminal over two streams that can be read back."""

    def __init__(
        self, *, on_terminal: bool = False, environment: Mapping[str, str] | None = None, **options: bool
    ) -> None:
        self.stdout = Screen(is_terminal=on_terminal)
        self.stderr = Screen(is_terminal=on_terminal)
        self.clock = Ticks()
        # A terminal is wide and plain unless the test says otherwise.
        known = {"COLUMNS": "200", "NO_COLOR": "1"} if environment is None else environment
        self.io = Terminal(self.stdout, self.stderr, environment=known, clock=self.clock, **options)

    @property
    def out(self) -> str:
        return self.stdout.getvalue()

    @property
    def err(self) -> str:
        return self.stderr.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ümläut, 漢字, 🙂", "plain text, ümläut, 漢字, 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x00\x07\x08\r\x7f", "\\x00\\x07\\x08\\x0d\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\u202eevil\u202c", "\\u{202E}evil\\u{202C}"),
        ("\u2066x\u2069\u200e\u200f\u061c", "\\u{2066}x\\u{2069}\\u{200E}\\u{200F}\\u{061C}"),
        ("\u2028\u2029", "\\u{2028}\\u{2029}"),
        ("\ud800 half", "\\u{D800} half"),
    ],
)
def test_escape_shows_what_could_act_on_a_terminal(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_escape_keeps_what_it_is_told_to() -> None:
    assert escape("a\nb\tc\x1b", keep="\n\t") == "a\nb\tc\\x1b"


def test_a_result_goes_to_stdout_with_one_newline_at_its_end() -> None:
    both = Both()
    both.io.result("one")
    both.io.result("two\n")
    assert (both.out, both.err) == ("one\ntwo\n", "")


@pytest.mark.parametrize(("on_terminal", "shown"), [(True, "a\n\\x1b[2Jb\n"), (False, "a\n\x1b[2Jb\n")])
def test_a_result_is_escaped_on_a_terminal_and_exact_elsewhere(on_terminal: bool, shown: str) -> None:
    both = Both(on_terminal=on_terminal)
    both.io.result("a\n\x1b[2Jb")
    assert both.out == shown


def test_json_is_one_line_with_its_version_first_and_its_keys_sorted() -> None:
    both = Both(as_json=True)
    both.io.json({"b": 1, "a": {"d": 1, "c": "\x1b\u202e\ud800"}})
    assert both.out == '{"v": 1, "a": {"c": "\\u001b\\u202e\\ud800", "d": 1}, "b": 1}\n'
    assert both.err == ""


def test_empty_json_still_has_its_version() -> None:
    both = Both(as_json=True)
    both.io.json({})
    assert both.out == '{"v": 1}\n'


def test_json_never_holds_what_json_has_no_word_for() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Both().io.json({"x": float("nan")})


def test_a_table_is_aligned_under_capitals() -> None:
    both = Both()
    both.io.table([("lint", "ready"), ("a\x1bb", "漢字"), ("x", "e\u0301")], ("name", "state"))
    assert both.out == "NAME    STATE\nlint    ready\na\\x1bb  漢字\nx       e\u0301\n"


def test_a_wide_character_takes_two_columns() -> None:
    both = Both()
    both.io.table([("漢字", "1"), ("abcd", "2"), ("e\u0301", "3")], ("n", "v"))
    assert both.out.splitlines() == ["N     V", "漢字  1", "abcd  2", "e\u0301     3"]


def test_a_table_without_rows_is_its_header() -> None:
    both = Both()
    both.io.table([], ("name", "state"))
    assert both.out == "NAME  STATE\n"


def test_a_table_is_cut_to_a_terminal_and_whole_elsewhere() -> None:
    narrow = {"COLUMNS": "12", "NO_COLOR": "1"}
    screen, file = Both(on_terminal=True, environment=narrow), Both(environment=narrow)
    for both in (screen, file):
        both.io.table([("lint", "a long explanation")], ("name", "why"), cut=True)
    assert screen.out.splitlines()[1] == "lint  a lon…"
    assert file.out.splitlines()[1] == "lint  a long explanation"


def test_a_table_keeps_every_value_on_a_narrow_terminal_unless_it_may_be_cut() -> None:
    both = Both(on_terminal=True, environment={"COLUMNS": "12", "NO_COLOR": "1"})
    both.io.table([("lint", "a long explanation")], ("name", "why"))
    assert both.out.splitlines()[1] == "lint  a long explanation"


def test_a_cut_never_splits_a_wide_character() -> None:
    both = Both(on_terminal=True, environment={"COLUMNS": "4", "NO_COLOR": "1"})
    both.io.table([("漢字漢字",)], ("n",), cut=True)
    assert both.out.splitlines()[1] == "漢…"


@pytest.mark.parametrize("columns", ["", "0", "-5", "wide", "9" * 5000])
def test_a_senseless_width_is_ignored(columns: str) -> None:
    both = Both(on_terminal=True, environment={"COLUMNS": columns, "NO_COLOR": "1"})
    both.io.table([("a" * 300,)], ("n",), cut=True)
    assert both.out.splitlines()[1] == "a" * 300


def test_the_width_of_a_real_terminal_is_asked_for() -> None:
    controller, terminal = os.openpty()
    try:
        with os.fdopen(terminal, "w", encoding="utf-8") as stream:
            shown = Terminal(stream, None, environment={"NO_COLOR": "1"})
            shown.table([("short",)], ("n",), cut=True)
            assert os.read(controller, 1000).splitlines() == [b"N", b"short"]
    finally:
        os.close(controller)


@pytest.mark.parametrize(
    ("environment", "on_terminal", "color", "coloured"),
    [
        ({}, True, True, True),
        ({}, False, True, False),
        ({}, True, False, False),
        ({"NO_COLOR": "1"}, True, True, False),
        ({"NO_COLOR": ""}, True, True, True),
        ({"FORCE_COLOR": "1"}, False, True, True),
        ({"FORCE_COLOR": "0"}, False, True, False),
        ({"FORCE_COLOR": ""}, False, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, True, False),
        ({"FORCE_COLOR": "1"}, True, False, False),
        ({"TERM": "dumb"}, True, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True, True),
    ],
)
def test_colour_is_decided_by_flag_environment_and_terminal(
    environment: Mapping[str, str], on_terminal: bool, color: bool, coloured: bool
) -> None:
    both = Both(on_terminal=on_terminal, environment=environment, color=color)
    both.io.table([("a",)], ("n",))
    both.io.error("broken", code="error", exit_status=1)
    assert ("\x1b[1m" in both.out, "\x1b[31m" in both.err) == (coloured, coloured)


def test_progress_is_one_line_per_stage_with_the_time_elsewhere_than_on_a_terminal() -> None:
    both = Both()
    both.io.progress("starting lint")
    both.clock.now += 1.25
    both.io.progress("asking \x1blint")
    assert both.err == "starting lint (0.0 s)\nasking \\x1blint (1.2 s)\n"
    assert both.out == ""


def test_progress_is_drawn_in_place_on_a_terminal_and_taken_off_before_anything_else() -> None:
    both = Both(on_terminal=True)
    both.io.progress("starting")
    both.io.progress("asking\n")
    both.io.note("careful")
    both.io.clear()
    assert both.err == "\r\x1b[Kstarting\r\x1b[Kasking\\x0a\r\x1b[Kcareful\n"


def test_a_drawn_stage_is_taken_off_before_the_result() -> None:
    both = Both(on_terminal=True)
    both.io.progress("asking")
    both.io.result("done")
    assert both.err == "\r\x1b[Kasking\r\x1b[K"


def test_a_drawn_stage_is_cut_to_the_width() -> None:
    both = Both(on_terminal=True, environment={"COLUMNS": "6", "NO_COLOR": "1"})
    both.io.progress("starting")
    assert both.err == "\r\x1b[Kstart…"


def test_json_keeps_progress_off_a_stderr_that_is_no_terminal() -> None:
    both = Both(as_json=True)
    both.io.progress("starting")
    assert both.err == ""


def test_quiet_keeps_progress_and_notes_back_but_no_errors() -> None:
    both = Both(quiet=True)
    both.io.progress("starting")
    both.io.note("careful")
    both.io.error("broken", code="error", exit_status=1)
    assert both.err == "latch: broken\n"


def test_a_note_may_have_several_lines() -> None:
    both = Both()
    both.io.note("one\n\ttwo\x1b")
    assert both.err == "one\n\ttwo\\x1b\n"


def test_an_error_is_one_sentence_per_line_and_its_hint() -> None:
    both = Both()
    both.io.error("a.toml: x: no\nb: \x1bno", code="config", exit_status=2, hint="fix\nit")
    assert both.err == "latch: a.toml: x: no\nlatch: b: \\x1bno\nhint: fix\\x0ait\n"
    assert both.out == ""


def test_an_error_with_json_is_one_line_of_json() -> None:
    both = Both(as_json=True)
    both.io.error("a\nb", code="config", exit_status=2)
    assert both.err.count("\n") == 1
    assert json.loads(both.err) == {"error": {"code": "config", "message": "a\nb", "hint": None, "exit": 2}}


@pytest.mark.parametrize("as_json", [False, True])
def test_only_json_holds_the_details_of_an_error(as_json: bool) -> None:
    both = Both(as_json=as_json)
    both.io.error("a", code="x", exit_status=1, details={"result": {"b": 2}})
    known = {"code": "x", "message": "a", "hint": None, "exit": 1, "result": {"b": 2}}
    assert (json.loads(both.err) if as_json else both.err) == ({"error": known} if as_json else "latch: a\n")


def test_a_diagnostic_is_escaped_and_shown_even_when_quiet() -> None:
    both = Both(quiet=True)
    both.io.diagnostic("Traceback\n  \x1b\n")
    assert both.err == "Traceback\n  \\x1b\n"


def test_a_reader_that_went_away_ends_the_output() -> None:
    with pytest.raises(OutputClosed):
        Terminal(Broken(BrokenPipeError()), Screen(), environment={}).result("x")


def test_a_full_disk_is_an_error_of_the_output() -> None:
    full = Broken(OSError(28, "No space left on device"))
    with pytest.raises(LatchError, match="standard output: No space left on device"):
        Terminal(full, Screen(), environment={}).json({})


def test_a_closed_stdout_is_an_error_and_a_closed_stderr_is_not() -> None:
    shown = Terminal(None, None, environment={})
    shown.note("nobody hears")
    with pytest.raises(LatchError, match="standard output is closed"):
        shown.result("x")


def test_a_stderr_that_cannot_be_written_is_left_alone() -> None:
    Terminal(Screen(), Broken(OSError(5, "I/O error")), environment={}).note("x")


def test_text_that_the_stream_cannot_encode_is_written_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Terminal(stream, None, environment={}).result("ü \ud800")
    assert raw.getvalue() == b"\\xfc \\ud800\n"


def test_what_a_stream_still_holds_can_be_discarded() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w", encoding="utf-8") as stream:
        os.close(read_end)
        stream.write("held back")
        discard(stream)
    discard(Screen())


def test_the_clock_is_the_monotonic_one_unless_told_otherwise() -> None:
    stderr = Screen()
    Terminal(None, stderr, environment={}).progress("x")
    assert stderr.getvalue() == "x (0.0 s)\n"


def test_the_terminal_of_the_process_is_over_its_own_streams(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Terminal.of_process({}, as_json=True, quiet=True, color=False)
    shown.result("out")
    shown.error("err", code="error", exit_status=1)
    captured = capsys.readouterr()
    assert captured.out == "out\n" and json.loads(captured.err)
    assert shown.as_json and shown.quiet
