"""The flags that every command takes, and the parser of one command.

What a command's ``run`` finds in its options, besides its own: ``config`` (a path, or None for the
default place), ``cwd`` (an absolute path: where the command was asked to work; the process itself
stays where it is), ``json``, ``quiet``, ``verbose``, ``no_color``, ``timeout`` (seconds or None),
``non_interactive``; and from ``cli/main.py`` ``machine`` (the snapshot) and ``scope``. A command's own
arguments must not take these names.

A wrong argument is a :class:`~..errors.UsageError`, never an exit from in here.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import NoReturn, Sequence

from ..errors import UsageError

__all__ = ["CommandParser", "HelpAsked", "parse_options"]


class HelpAsked(Exception):
    """The arguments ask for help; ``text`` is what to show."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class CommandParser(argparse.ArgumentParser):
    """A parser that raises what it has to say and leaves printing it to the caller.

    A parser of ``add_subparsers`` is one as well.
    """

    def print_help(self, file: object = None) -> NoReturn:
        """Raise the help as :class:`HelpAsked`."""
        # Newer interpreters colour help, and a terminal of ours would show the codes.
        self.color = False
        raise HelpAsked(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raise *message* as :class:`~..errors.UsageError` with the way to this command's help."""
        raise UsageError(message, hint=f"{self.prog} --help shows its arguments")


def parse_options(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options that *arguments* make under *parser*, to which the global flags are added.

    Raises :class:`~..errors.UsageError`, or :class:`HelpAsked`.
    """
    _add_global_flags(parser)
    options = parser.parse_args(arguments)
    # Both are meant from where the person stands; -C says where the work is, not where its file is.
    options.config = None if options.config is None else _absolute(options.config, "--config")
    options.cwd = _absolute(options.cwd, "-C")
    if not os.path.isdir(options.cwd):
        raise UsageError(f'"{options.cwd}" is not a directory')
    return options


def _add_global_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("global options")
    group.add_argument("--config", metavar="FILE", help="configuration file instead of the default one")
    group.add_argument("-C", "--cwd", metavar="DIR", default=".", help="work in DIR")
    group.add_argument("--json", action="store_true", help="print one JSON document")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no notes")
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="debug messages, and a traceback when Latch itself is at fault",
    )
    group.add_argument("--no-color", action="store_true", help="no colour")
    group.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="give up after SECONDS in all")
    group.add_argument("--non-interactive", action="store_true", help="ask nobody anything")
    # NOTE: main() acts on it before any parser exists; it stands here for the help text.
    group.add_argument("--version", action="store_true", help="print the version and leave")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds above 0')
    return value


def _absolute(text: str, flag: str) -> Path:
    if not text:
        raise UsageError(f"{flag} was given an empty path", hint=f"name a path, or leave {flag} out")
    try:
        return Path(os.path.abspath(text))
    except FileNotFoundError:
        raise UsageError("the working directory no longer exists") from None
