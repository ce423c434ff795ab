"""The command table and the way from arguments to an exit status.

``--version`` and the list of commands are answered from this file alone: it imports nothing but what
an interpreter has loaded anyway, and everything else only when a command runs. One command's module is
imported, no other.

Every failure ends here as one sentence and an exit status of ``cli/failures.py``. Signals only cancel
the command's scope; ending peers is the business of whoever holds them.
"""

from __future__ import annotations

import sys

# NOTE: type checkers take this name for true; these imports would double the time of --version.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Sequence

    from ..system.machine import Machine
    from .terminal import Terminal

__all__ = ["COMMANDS", "load_command", "main"]

# name, module, summary, group
COMMANDS = (
    ("call", "commands.call", "call one tool of a configured extension or MCP server", "Daily use"),
    ("sandbox", "commands.sandbox", "run one command as Latch would run it", "Daily use"),
    ("ps", "commands.ps", "list what is running in sandboxes of yours", "Daily use"),
    ("reap", "commands.reap", "end what a killed Latch left running", "Daily use"),
    ("demo", "commands.demo", "show the parts at work, offline, in a throw-away place", "Daily use"),
    ("doctor", "commands.doctor", "check this machine and the configuration", "Daily use"),
    ("extensions", "commands.extensions", "list the configured extensions and what they offer", "Management"),
    ("mcp", "commands.mcp", "list the configured MCP servers and what they offer", "Management"),
    ("config", "commands.config", "show the settings in force and where each comes from", "Management"),
)

_GLOBAL_HELP = """\
Global options, before or after the command; -- ends them:
  --config FILE      configuration file instead of the default one
  -C, --cwd DIR      work in DIR
  --json             print one JSON document
  -q                 no progress and no notes
  -v                 debug messages, and a traceback when Latch is at fault
  --no-color         no colour
  --timeout SECONDS  give up after SECONDS in all
  --non-interactive  ask nobody anything
  --version          print the version and leave
"""
# flag: the name it is known by
_PLAIN_FLAGS = {
    **{
        flag: flag
        for flag in ("--json", "--quiet", "--verbose", "--no-color", "--non-interactive", "--version")
    },
    "-q": "--quiet",
    "-v": "--verbose",
}
_HELP = ("help", "--help", "-h")
_VALUE_FLAGS = ("--config", "--cwd", "--timeout", "-C")


def load_command(name: str) -> ModuleType:
    """Import and return the module of the command *name* of the table."""
    from importlib import import_module

    module = next(row[1] for row in COMMANDS if row[0] == name)
    return import_module("." + module, __package__)


def main(argv: Sequence[str] | None = None, *, load: Callable[[str], Any] = load_command) -> int:
    """Run the command line *argv* (None: this process's own) and return the exit status.

    *load* returns the module of a command; it is the seam for tests. Signal handlers are in place
    while a command runs and put back before this returns.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags, rest = _split(arguments)
    given = {_PLAIN_FLAGS[flag] for flag in flags if flag in _PLAIN_FLAGS}
    as_json = "--json" in given
    try:
        if "--version" in given:
            return _show(_version(as_json=as_json))
        if rest and set(rest) <= set(_HELP):
            return _show(_help(in_full=True, as_json=as_json))
        if not rest and not (flags and flags[-1] in _VALUE_FLAGS):
            return _show(_help(in_full=False, as_json=as_json))
        return _run(flags, rest, given=given, load=load)
    except KeyboardInterrupt:
        # It came before the command's own handlers were in place: nothing was started.
        return 130


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the global flags with their values, wherever they stand before ``--``, and all the rest.

    Clusters come apart: ``-qvC DIR`` is ``-q -v -C DIR``, and ``-CDIR`` is ``-C DIR``.
    """
    flags: list[str] = []
    rest: list[str] = []
    waiting = arguments[::-1]
    while waiting:
        text = waiting.pop()
        if text == "--":
            return flags, [*rest, text, *waiting[::-1]]
        if text in _VALUE_FLAGS:
            flags.append(text)
            if waiting and waiting[-1] != "--":
                flags.append(waiting.pop())
        elif text in _PLAIN_FLAGS or text.partition("=")[0] in _VALUE_FLAGS[:-1]:
            flags.append(text)
        elif text[:2] in ("-q", "-v", "-C"):
            waiting.extend([text[2:] if text[1] == "C" else "-" + text[2:], text[:2]])
        else:
            rest.append(text)
    return flags, rest


def _version(*, as_json: bool) -> str:
    from .. import __version__

    if not as_json:
        return f"latch {__version__}\n"
    import json

    return json.dumps({"v": 1, "version": __version__}) + "\n"


def _help(*, in_full: bool, as_json: bool) -> str:
    text = _help_text(in_full=in_full)
    if not as_json:
        return text
    import json

    commands = [{"name": row[0], "summary": row[2]} for row in COMMANDS]
    return json.dumps({"v": 1, "commands": commands, "help": text}) + "\n"


def _help_text(*, in_full: bool) -> str:
    lines = ["Usage: latch [OPTIONS] COMMAND [ARGUMENTS]", ""]
    for group in ("Daily use", "Management"):
        lines.append(f"{group}:")
        lines.extend(f"  {row[0]:<11} {row[2]}" for row in COMMANDS if row[3] == group)
        lines.append("")
    if in_full:
        lines.extend([*_GLOBAL_HELP.splitlines(), ""])
    lines.append(
        "latch help COMMAND shows a command's arguments" + ("." if in_full else ", latch --help all options.")
    )
    return "\n".join(lines) + "\n"


def _show(text: str) -> int:
    try:
        print(text, end="", flush=True)
    except OSError as error:
        from .failures import SIGNAL_EXITS
        from .terminal import discard

        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return SIGNAL_EXITS["SIGPIPE"]
        print(f"latch: standard output: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _run(flags: list[str], rest: list[str], *, given: set[str], load: Callable[[str], Any]) -> int:
    from ..errors import Cancelled, LatchError
    from ..system.machine import Machine
    from .failures import SIGNAL_EXITS, tell
    from .terminal import OutputClosed, Terminal

    _fill_standard_descriptors()
    machine = Machine.read()
    io = Terminal.of_process(
        machine.environment,
        as_json="--json" in given,
        quiet="--quiet" in given,
        color="--no-color" not in given,
    )
    try:
        if "--verbose" not in given:
            return _command(flags, rest, load=load, io=io, machine=machine)
        from .debuglog import debug_messages

        with debug_messages(io):
            return _command(flags, rest, load=load, io=io, machine=machine)
    except OutputClosed:
        return SIGNAL_EXITS["SIGPIPE"]
    except (LatchError, Cancelled) as error:
        return tell(io, error)
    except Exception as error:
        if "--verbose" in given:
            import traceback

            io.diagnostic(traceback.format_exc())
        return tell(io, error)
    finally:
        io.clear()


def _fill_standard_descriptors() -> None:
    """Open what of the three was closed on nothing, or a pipe of ours would take its number."""
    import os

    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one, as those below it are open.
            os.open(os.devnull, os.O_RDWR)


def _command(
    flags: list[str], rest: list[str], *, load: Callable[[str], Any], io: Terminal, machine: Machine
) -> int:
    from ..errors import UsageError
    from ..system.scope import CancelToken, Scope
    from .arguments import CommandParser, HelpAsked, parse_options
    from .failures import tell
    from .signals import cancel_on_signals

    is_help = bool(rest) and rest[0] in _HELP
    if is_help:
        words = [word for word in rest if word not in _HELP]
        # Behind --help a whole command line may stand, of which the command is explained.
        rest = words if rest[0] == "help" else words[:1]
    name, summary = _chosen(rest[0] if rest else flags[-1])
    description = f"{summary[0].upper()}{summary[1:]}."
    parser = CommandParser(prog=f"latch {name}", description=description, allow_abbrev=False)
    command = load(name)
    command.configure(parser)
    arguments = _help_arguments(rest, getattr(command, "VERBS", ())) if is_help else rest[1:]
    try:
        options = parse_options(parser, [*flags, *arguments])
    except HelpAsked as asked:
        if io.as_json:
            io.json({"help": asked.text})
        else:
            io.result(asked.text)
        return 0
    except UsageError as error:
        status = tell(io, error)
        return getattr(command, "USAGE_STATUS", status)
    token = CancelToken()
    with cancel_on_signals(token):
        options.machine = machine
        options.scope = Scope.root(options.timeout, token=token)
        return command.run(options, io)


def _help_arguments(words: list[str], verbs: Sequence[str]) -> list[str]:
    """Return the arguments that make a command with *verbs* explain what *words* name: itself, or a verb."""
    from ..errors import UsageError

    verb = [word for word in words[1:2] if word in verbs]
    known, others = " ".join([words[0], *verb]), words[1 + len(verb) :]
    if others:
        hint = f"latch help takes one command{' and its verb' if verbs else ''}"
        raise UsageError(f'unexpected "{others[0]}" after "latch help {known}"', hint=hint)
    return [*verb, "--help"]


def _chosen(word: str) -> tuple[str, str]:
    """Return name and summary of the command that *word* names; raises what is wrong with it otherwise."""
    from ..errors import UsageError

    for name, _, summary, _ in COMMANDS:
        if name == word:
            return name, summary
    hint = "latch --help lists commands and options"
    if word in _VALUE_FLAGS:
        raise UsageError(f"{word} needs a value", hint=hint)
    if word.startswith("-"):
        raise UsageError(f'unknown option "{word}" before a command', hint=hint)
    import difflib

    close = difflib.get_close_matches(word, [row[0] for row in COMMANDS], n=1)
    raise UsageError(f'unknown command "{word}"', hint=f'did you mean "{close[0]}"?' if close else hint)
