"""Checks of single values of the configuration, whatever key they stand under.

A checker takes a value as TOML gave it and returns what it means, or raises :class:`Fault` with what is
allowed and what was found; who asked adds file, entry and key. What a key is checked by stands in
``keys.py``. No checker looks at what a path or a variable leads to, beyond what is never shown to a child,
and whether a command with blanks, or its first word, is a file.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Iterator, Mapping, Sequence

from ..limits import Limits
from ..system.bindsources import find_bind_refusal
from ..system.paths import lies_in, real_path

__all__ = [
    "Checker",
    "Fault",
    "Place",
    "check_argument",
    "check_bind",
    "check_bool",
    "check_bwrap",
    "check_choice",
    "check_command",
    "check_environment",
    "check_integer",
    "check_lifecycle_seconds",
    "check_list",
    "check_name",
    "check_path",
    "check_permission",
    "check_state_directory",
    "check_string",
    "check_table",
    "check_tables",
    "check_timeout_seconds",
    "check_variable",
    "gather_fault",
    "holds_home",
    "is_entry_name",
    "is_variable_name",
    "raise_gathered",
]

# The largest integer that TOML 1.0 promises to hold.
_LARGEST_INTEGER = 2**63 - 1

_ENTRY_NAME = re.compile(r"[A-Za-z0-9-]{1,32}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_VARIABLES = frozenset("HOME USER LOGNAME PWD TMPDIR LATCH_SANDBOX LATCH_WORKSPACE".split())
_HOOK_KINDS = ("observe", "transform", "guard")
_WILDCARD_KINDS = ("observe", "guard")


class Fault(Exception):
    """What is wrong with one value: ``reason``, ``inside``, the place in it (``[1]``, ``.NAME``), and ``more``,
    the other faults of the same value."""

    def __init__(self, reason: str, *, inside: str = "", more: Sequence[Fault] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.inside = inside
        self.more = tuple(more)


@dataclass(frozen=True)
class Place:
    """What checkers need: where ``~`` and relative names lead, what may not be shown, and the limits."""

    home: Path
    directory: Path
    limits: Limits
    private: tuple[Path, ...] = ()


# A value as TOML gave it, and where it stands, to what it means; raises Fault.
Checker = Callable[[object, Place], object]


def is_entry_name(value: object) -> bool:
    """Say whether *value* can name an entry."""
    return isinstance(value, str) and _ENTRY_NAME.fullmatch(value) is not None


def is_variable_name(value: object) -> bool:
    """Say whether *value* can name a variable of the environment."""
    return isinstance(value, str) and _VARIABLE.fullmatch(value) is not None


def holds_home(directory: Path, home: Path) -> bool:
    """Say whether *directory* is or contains the *home*, links followed."""
    return lies_in(real_path(home), real_path(directory))


@contextmanager
def gather_fault(found: list[Fault], inside: str = "") -> Iterator[None]:
    """Add a fault of the block to *found*, as one *inside* the value that is checked, and go on behind it."""
    try:
        yield
    except Fault as fault:
        found.append(Fault(fault.reason, inside=inside + fault.inside))


def raise_gathered(found: Sequence[Fault]) -> None:
    """Raise what was *found* in one value as one :class:`Fault`; do nothing where it is right."""
    if found:
        raise Fault(found[0].reason, inside=found[0].inside, more=found[1:])


# -- what TOML knows


def check_string(value: object, place: Place) -> str:
    """Return a string that is not empty and can be handed to the system."""
    if not isinstance(value, str):
        raise Fault(f"must be a string, found {_found(value, place)}")
    if not value:
        raise Fault("must not be empty")
    if "\0" in value:
        raise Fault("contains a NUL character")
    return value


def check_bool(value: object, place: Place) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise Fault(f"must be true or false, found {_found(value, place)}")
    return value


def check_integer(value: object, place: Place, *, least: int) -> int:
    """Return a whole number from *least* on."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST_INTEGER:
        raise Fault(
            f"must be a whole number from {least} to {_LARGEST_INTEGER}, found {_found(value, place)}"
        )
    return value


def check_table(value: object, place: Place) -> Mapping[str, object]:
    """Return a table as it stands."""
    if not isinstance(value, dict):
        raise Fault(f"must be a table, found {_found(value, place)}")
    return value


def check_tables(value: object, place: Place, *, table: str) -> list[Mapping[str, object]]:
    """Return the entries of the list *table* as they stand."""
    if not isinstance(value, list):
        raise Fault(f"must be written [[{table}]], once for each entry, found {_found(value, place)}")
    found: list[Fault] = []
    for index, item in enumerate(value):
        with gather_fault(found, f"[{index}]"):
            check_table(item, place)
    raise_gathered(found)
    return value


def check_list(value: object, place: Place, *, what: str, check: Checker) -> tuple[object, ...]:
    """Return a list of *what*, each member checked by *check*."""
    if not isinstance(value, list):
        raise Fault(f"must be a list of {what}, found {_found(value, place)}")
    checked: list[object] = []
    found: list[Fault] = []
    for index, item in enumerate(value):
        with gather_fault(found, f"[{index}]"):
            checked.append(check(item, place))
    raise_gathered(found)
    return tuple(checked)


def check_choice(value: object, place: Place, *, choices: Sequence[str]) -> str:
    """Return one of *choices*."""
    if value not in choices:
        allowed = " or ".join(f'"{choice}"' for choice in choices)
        raise Fault(f"must be {allowed}, found {_found(value, place)}")
    return str(value)


# -- deadlines


def check_lifecycle_seconds(value: object, place: Place) -> float:
    """Return a deadline of an extension's stage, in seconds."""
    largest = place.limits.extension.max_lifecycle_seconds
    # NOTE: nan is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= largest:
        raise Fault(
            f"must be a number of seconds above 0 and at most {largest}, found {_found(value, place)}"
        )
    return value


def check_timeout_seconds(value: object, place: Place) -> float:
    """Return the deadline of an MCP server, in seconds."""
    least, largest = place.limits.mcp.min_timeout_seconds, place.limits.mcp.max_timeout_seconds
    # NOTE: nan is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= largest:
        raise Fault(f"must be a number of seconds from {least} to {largest}, found {_found(value, place)}")
    return value


# -- who an entry is and what it runs


def check_name(value: object, place: Place) -> str:
    """Return the name of an entry."""
    text = check_string(value, place)
    if not is_entry_name(text):
        raise Fault(f"must be 1 to 32 letters, digits or hyphens, found {_found(text, place)}")
    return text


def check_command(value: object, place: Place) -> str:
    """Return a program's name, which is looked up later, or its absolute path."""
    text = check_string(value, place)
    program = str(place.home / text[2:]) if text.startswith("~/") else text
    first, *others = program.split() or [program]
    if others and ("/" not in first or _is_file(first) and not os.path.exists(program)):
        # NOTE: only the first word is quoted: one behind it may be secret.
        shown = _found(first, place)
        raise Fault(f"must be the program alone, which is {shown}: the words after it go to args")
    if "/" in program and not program.startswith("/"):
        raise Fault(f'must be the name of a program, or begin with "/" or "~/", found {_found(text, place)}')
    return program


def check_argument(value: object, place: Place) -> str:
    """Return a string that a program is handed, as an argument or as the value of a variable."""
    # NOTE: it may be empty, and is never quoted: a value of env may be secret.
    if not isinstance(value, str):
        raise Fault(f"must be a string, found {_found(value, place)}")
    if "\0" in value:
        raise Fault("contains a NUL character")
    return value


def check_variable(value: object, place: Place) -> str:
    """Return the name of a variable that may be set inside of a sandbox."""
    text = check_string(value, place)
    if not is_variable_name(text):
        raise Fault(f"{_found(text, place)} is no name of a variable: letters, digits and _, no digit first")
    if text == "PATH":
        raise Fault('"PATH" follows from the command; show more directories with ro_paths')
    if text in _RESERVED_VARIABLES:
        raise Fault(f'"{text}" is set by the sandbox itself')
    return text


def check_environment(value: object, place: Place) -> Mapping[str, str]:
    """Return variables with their values."""
    checked: dict[str, str] = {}
    found: list[Fault] = []
    for name, text in check_table(value, place).items():
        with gather_fault(found):
            check_variable(name, place)
        with gather_fault(found, f".{name}"):
            checked[name] = check_argument(text, place)
    raise_gathered(found)
    return MappingProxyType(checked)


def check_permission(value: object, place: Place) -> str:
    """Return a hook that an extension is allowed beyond the defaults."""
    text = check_string(value, place)
    kind, _, name = text.partition(":")
    if kind not in _HOOK_KINDS or not name.strip():
        raise Fault(f"must be observe:NAME, transform:NAME or guard:NAME, found {_found(text, place)}")
    if name == "*" and kind not in _WILDCARD_KINDS:
        raise Fault(f'"{text}": {kind} has no wildcard, name each structure')
    return text


# -- places


def check_path(value: object, place: Place) -> Path:
    """Return an absolute path, ``~`` replaced."""
    text = check_string(value, place)
    if text == "~" or text.startswith("~/"):
        return place.home / text[2:]
    if not text.startswith("/"):
        raise Fault(f'must begin with "/" or "~/", found {_found(text, place)}')
    return Path(text)


def check_bind(value: object, place: Place, *, writable: bool) -> Path:
    """Return a path that a child may be shown, or may write where *writable* is true."""
    path = check_path(value, place)
    refusal = find_bind_refusal(path, home=place.home, private=place.private, writable=writable)
    if refusal:
        raise Fault(f'"{path}" {refusal}')
    return path


def check_bwrap(value: object, place: Place) -> Path:
    """Return the path of a bubblewrap."""
    text = check_string(value, place)
    if not text.startswith("/"):
        raise Fault(f"must be an absolute path, found {_found(text, place)}")
    return Path(text)


def check_state_directory(value: object, place: Place) -> Path:
    """Return where our own state lies; a relative path begins beside the file."""
    text = check_string(value, place)
    path = place.home / text[2:] if text == "~" or text.startswith("~/") else place.directory / text
    if holds_home(path, place.home):
        raise Fault(f'"{path}" is or contains the home directory')
    return Path(os.path.normpath(path))


def _is_file(text: str) -> bool:
    return text.startswith("/") and os.path.isfile(text)


def _found(value: object, place: Place) -> str:
    """Say what *value* is, in the file's own words, and no more of it than a line."""
    most = place.limits.file.max_quoted_chars
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        shown = value if len(value) <= most else value[:most] + "..."
        return f'"{shown}"'
    if isinstance(value, (int, float)):
        # NOTE: an integer of TOML may be longer than Python turns into text.
        beyond = (isinstance(value, int) or math.isfinite(value)) and abs(value) > _LARGEST_INTEGER
        return "a number beyond 64 bits" if beyond else str(value)
    return "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else "a date or time"
