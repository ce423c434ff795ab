"""What a person or a program sees: results on stdout, everything else on stderr.

A :class:`Terminal` promises that stdout holds the result and nothing else, that ``--json`` prints
exactly one document, and that text of peers cannot move a terminal's cursor, recolour it or reorder
its lines. Whether there is colour is decided once. It does not read the environment (it is handed a
mapping) and asks nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from typing import Callable, Mapping, Sequence, TextIO

from ..errors import LatchError
from ..system.scope import Scope

__all__ = ["OutputClosed", "Terminal", "discard", "escape"]

# C0, DEL and C1 controls; the bidirectional marks, embeddings, overrides and isolates; the line and
# paragraph separators, which some terminals obey; and halves of surrogate pairs, which no terminal can show.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_COLUMNS = re.compile("[1-9][0-9]{0,4}")
_CLEAR_LINE = "\r\x1b[K"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


class OutputClosed(Exception):
    """Whoever read our standard output went away; there is nothing left to say."""


def escape(text: str, *, keep: str = "") -> str:
    r"""Return *text* with every character that could act on a terminal shown as ``\xNN`` or ``\u{NNNN}``.

    *keep* holds those that may stay, such as a newline where the text may have several lines.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _visible(ord(found[0])), text)


def discard(stream: TextIO) -> None:
    """Send whatever *stream* still holds nowhere.

    It would fail once more when the interpreter ends, and change the exit status.
    """
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


class Terminal:
    """The two streams of one command, and how it was asked to use them.

    *environment* decides colour (``NO_COLOR``, ``FORCE_COLOR``, ``TERM``) and width (``COLUMNS``);
    *clock* returns monotonic seconds and is the seam for tests.
    """

    def __init__(
        self,
        stdout: TextIO | None,
        stderr: TextIO | None,
        *,
        environment: Mapping[str, str],
        as_json: bool = False,
        quiet: bool = False,
        color: bool = True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._stdout = stdout
        self._stderr = stderr
        self._color_out = color and _has_color(stdout, environment)
        self._color_err = color and _has_color(stderr, environment)
        self._columns = environment.get("COLUMNS", "")
        self._clock = clock or _monotonic
        self._started = self._clock()
        self._drawn = False

    @classmethod
    def of_process(
        cls, environment: Mapping[str, str], *, as_json: bool = False, quiet: bool = False, color: bool = True
    ) -> Terminal:
        """Return the terminal over this process's own streams."""
        return cls(sys.stdout, sys.stderr, environment=environment, as_json=as_json, quiet=quiet, color=color)

    def result(self, text: str) -> None:
        """Print *text*, with a newline at its end; what could act on a terminal is escaped only on one."""
        shown = escape(text, keep="\n\t") if _is_terminal(self._stdout) else text
        self._print(shown if shown.endswith("\n") else shown + "\n")

    def json(self, value: Mapping[str, object]) -> None:
        """Print *value* as the one JSON document of this run, ``"v": 1`` first and other keys sorted."""
        body = json.dumps(value, sort_keys=True, allow_nan=False)
        self._print('{"v": 1' + (", " + body[1:] if value else "}") + "\n")

    def table(self, rows: Sequence[Sequence[str]], header: Sequence[str], *, cut: bool = False) -> None:
        """Print *rows* under *header* in aligned columns.

        On a terminal that is too narrow the lines wrap; with *cut*, for a last column whose head will do,
        they are cut to the width.
        """
        cells = [[escape(cell) for cell in row] for row in (tuple(name.upper() for name in header), *rows)]
        widths = [max(_width(cell) for cell in column) for column in zip(*cells)]
        lines = [_aligned(row, widths) for row in cells]
        if cut:
            lines = [self._cut(line, self._stdout) for line in lines]
        if self._color_out:
            lines[0] = _BOLD + lines[0] + _PLAIN
        self._print("\n".join(lines) + "\n")

    def progress(self, line: str) -> None:
        """Show *line* as the stage that runs now.

        On a terminal it is drawn over the stage before; elsewhere it is a line of its own with the
        time since the start, or nothing with ``--json``.
        """
        if self.quiet:
            return
        if _is_terminal(self._stderr):
            self._tell(_CLEAR_LINE + self._cut(escape(line), self._stderr))
            self._drawn = True
        elif not self.as_json:
            self._tell(f"{escape(line)} ({self._clock() - self._started:.1f} s)\n")

    def note(self, line: str) -> None:
        """Print *line* on stderr unless we are to be quiet."""
        if not self.quiet:
            self.clear()
            self._tell(escape(line, keep="\n\t") + "\n")

    def error(
        self,
        message: str,
        *,
        code: str,
        exit_status: int,
        hint: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Print why the command failed: sentences on stderr, or with ``--json`` one line there, which alone
        holds the *details*."""
        self.clear()
        if self.as_json:
            value = {"code": code, "message": message, "hint": hint, "exit": exit_status, **(details or {})}
            self._tell(json.dumps({"error": value}) + "\n")
            return
        name = _RED + "latch:" + _PLAIN if self._color_err else "latch:"
        lines = [f"{name} {escape(line, keep=chr(9))}\n" for line in message.split("\n")]
        if hint is not None:
            lines.append(f"hint: {escape(hint)}\n")
        self._tell("".join(lines))

    def diagnostic(self, text: str) -> None:
        """Print *text* on stderr whatever ``--quiet`` says: a traceback somebody asked for."""
        self.clear()
        self._tell(escape(text, keep="\n\t"))

    def clear(self) -> None:
        """Take a drawn stage off the terminal; harmless when there is none."""
        if self._drawn:
            self._drawn = False
            self._tell(_CLEAR_LINE)

    def _print(self, text: str) -> None:
        self.clear()
        if self._stdout is None:
            raise LatchError("standard output is closed")
        try:
            _write(self._stdout, text)
        except OSError as error:
            discard(self._stdout)
            if isinstance(error, BrokenPipeError):
                raise OutputClosed from None
            raise LatchError(f"standard output: {error.strerror}") from None

    def _tell(self, text: str) -> None:
        if self._stderr is None:
            return
        try:
            _write(self._stderr, text)
        except OSError:
            # Nobody can be told that nobody can be told.
            pass

    def _cut(self, line: str, stream: TextIO | None) -> str:
        # Only what a person looks at is cut; a program gets the whole of it.
        if not _is_terminal(stream):
            return line
        limit = int(self._columns) if _COLUMNS.fullmatch(self._columns) else _window_columns(stream)
        return line if limit is None or _width(line) <= limit else _head(line, limit - 1) + "…"


def _monotonic() -> float:
    # The clock has one importer.
    return Scope.root().now()


def _visible(point: int) -> str:
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{{{point:04X}}}"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _has_color(stream: TextIO | None, environment: Mapping[str, str]) -> bool:
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return environment.get("TERM") != "dumb" and _is_terminal(stream)


def _window_columns(stream: TextIO | None) -> int | None:
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream else None
    except (OSError, ValueError):
        return None


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths)]
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "FW" else 1


def _head(text: str, limit: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _cells(character)
        if used > limit:
            return text[:index]
    return text
