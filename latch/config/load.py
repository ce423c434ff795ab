"""The operator's ``config.toml`` to :class:`Settings`. Every fault names file, entry and key.

All faults of a file are found and raised together. What a table may hold stands in tables of its own
(key to checker), so a new key is one line. Only shape and what is known without a workspace are
checked here: whether a path exists or a variable is set is found when something is started.

Loading creates nothing, and changes nothing.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Iterable, Mapping

from .. import settings as values
from ..errors import ConfigError, ConfigProblem, StoreError, UnsafeModes
from ..limits import DEFAULT, LifecycleLimits, Limits, ResourceLimits
from ..system.bindsources import find_bind_refusal, find_private_places
from ..system.files import check_private
from ..system.machine import Machine
from ..system.paths import lies_in, real_path
from .tomlfile import load_toml

__all__ = ["Settings"]

# The largest integer that TOML 1.0 promises to hold.
_LARGEST_INTEGER = 2**63 - 1

_ENTRY_NAME = re.compile(r"[A-Za-z0-9-]{1,32}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_VARIABLES = frozenset("HOME USER LOGNAME PWD TMPDIR LATCH_SANDBOX LATCH_WORKSPACE".split())
_HOOK_KINDS = ("observe", "transform", "guard")
_WILDCARD_KINDS = ("observe", "guard")


@dataclass(frozen=True)
class Settings(values.Settings):
    """Everything a configuration says, with :meth:`load` to read it from disk."""

    @classmethod
    def load(
        cls, path: Path | None = None, *, machine: Machine | None = None, limits: Limits = DEFAULT
    ) -> Settings:
        """Return the settings of *path*, or of the default file, which may be absent.

        Where it is silent the groups ``lifecycle`` and ``resource`` of *limits* hold.

        Raises :class:`ConfigError` with every fault found: in the file, and in the modes of our own
        directory and of the secrets in it.
        """
        machine = machine or Machine.read()
        file = machine.latch_directory / "config.toml" if path is None else Path(os.path.abspath(path))
        problems = _Problems(file)
        _check_places(machine, problems)
        document = _read_document(file, machine, problems, limits, required=path is not None)
        loaded = _Loading(file, machine, problems, limits, limits.lifecycle)
        loaded.take(document or {})
        problems.finish()
        return cls(
            file=None if document is None else file,
            extensions=tuple(loaded.extensions),
            lifecycle=loaded.lifecycle,
            sandbox=loaded.sandbox,
            origins=MappingProxyType(loaded.origins),
        )


class _Fault(Exception):
    """What is wrong with one value; ``inside`` is the place in it (``[1]``)."""

    def __init__(self, reason: str, *, inside: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.inside = inside


@dataclass(frozen=True)
class _Place:
    """What checkers need: where ``~`` and relative names lead, what may not be shown, and the limits."""

    home: Path
    directory: Path
    limits: Limits
    private: tuple[Path, ...] = ()


_Checker = Callable[[object, _Place], object]


class _Problems:
    """The faults of one load, gathered until :meth:`finish` raises them together."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[ConfigProblem] = []
        self.hint: str | None = None
        self.unsafe_modes = 0

    def add(
        self, reason: str, *, file: Path | None = None, entry: str | None = None, key: str | None = None
    ) -> None:
        """Note one fault, of the configuration file unless *file* says otherwise."""
        self.found.append(ConfigProblem(str(file or self.file), reason, entry=entry, key=key))

    def finish(self) -> None:
        """Raise :class:`ConfigError` if anything was found, its own kind when it is modes alone."""
        if self.found:
            kind = UnsafeModes if self.unsafe_modes == len(self.found) else ConfigError
            raise kind(self.found, hint=self.hint)


@dataclass
class _Loading:
    """Settings while one document is turned into them."""

    file: Path
    machine: Machine
    problems: _Problems
    limits: Limits
    lifecycle: LifecycleLimits
    extensions: list[values.ExtensionSettings] = field(default_factory=list)
    sandbox: values.SandboxSettings = field(default_factory=values.SandboxSettings)
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, document: Mapping[str, object]) -> None:
        """Take over what *document* says; where it is silent or wrong the defaults stay."""
        place = _Place(self.machine.home, self.file.parent, self.limits)
        top = self._check(document, _TOP_KEYS, place)
        state = self._take_state_directory(top)
        self._take_lifecycle(top, place)
        self._take_sandbox(top, place, state)
        private = find_private_places(self.machine, self.sandbox)
        place = dataclasses.replace(place, private=(*private.directories, *private.files))
        names: dict[str, int] = {}
        for index, given in enumerate(_tables(top.get("extensions"))):
            self._take_extension(index, given, place, names)

    def _check(
        self,
        given: Mapping[str, object],
        keys: Mapping[str, _Checker],
        place: _Place,
        *,
        entry: str | None = None,
        prefix: str = "",
    ) -> dict[str, object]:
        """Return the checked values of *given*; unknown keys and wrong values become problems."""
        checked: dict[str, object] = {}
        for key, value in given.items():
            if key not in keys:
                reason = f"is not a known key{_suggestion(key, keys)}"
                self.problems.add(reason, entry=entry, key=prefix + key)
                continue
            try:
                checked[key] = keys[key](value, place)
            except _Fault as fault:
                self.problems.add(fault.reason, entry=entry, key=prefix + key + fault.inside)
        return checked

    def _note(self, prefix: str, keys: Iterable[str], given: Mapping[str, object]) -> None:
        for key in keys:
            self.origins[f"{prefix}.{key}"] = str(self.file) if key in given else "default"

    def _take_state_directory(self, top: Mapping[str, object]) -> Path:
        state = top.get("state_dir")
        if isinstance(state, Path):
            self.origins["state_dir"] = str(self.file)
            return state
        moved = self.machine.environment.get("LATCH_DIRECTORY")
        self.origins["state_dir"] = "environment LATCH_DIRECTORY" if moved else "default"
        return self.machine.state_directory

    def _take_lifecycle(self, top: Mapping[str, object], place: _Place) -> None:
        table = _table(top.get("extension_lifecycle"))
        given = self._check(table, _LIFECYCLE_KEYS, place, entry="extension_lifecycle")
        self._note("extension_lifecycle", _LIFECYCLE_KEYS, given)
        self.lifecycle = dataclasses.replace(self.lifecycle, **given)

    def _take_sandbox(self, top: Mapping[str, object], place: _Place, state: Path) -> None:
        given = self._check(_table(top.get("sandbox")), _SANDBOX_KEYS, place, entry="sandbox")
        self._note("sandbox", _SANDBOX_KEYS, given)
        bwrap = given.pop("bwrap", None)
        self.sandbox = values.SandboxSettings(
            bwrap=bwrap if isinstance(bwrap, Path) else None,
            resources=dataclasses.replace(self.limits.resource, **given),
            state_directory=state,
            config_file=self.file if os.path.lexists(self.file) else None,
        )

    def _take_extension(
        self, index: int, given: Mapping[str, object], place: _Place, names: dict[str, int]
    ) -> None:
        name = given.get("name")
        named = isinstance(name, str) and _ENTRY_NAME.fullmatch(name) is not None
        entry = f'extensions[{index}] "{name}"' if named else f"extensions[{index}]"
        before = len(self.problems.found)
        checked = self._check(given, _EXTENSION_KEYS, place, entry=entry)
        for key in ("name", "command"):
            if key not in given:
                self.problems.add("is missing", entry=entry, key=key)
        for variable in sorted({*_table(checked.get("env"))} & {*_strings(checked.get("env_from"))}):
            self.problems.add(f'"{variable}" has a value in env already', entry=entry, key="env_from")
        table = _table(checked.pop("lifecycle", None))
        own = self._check(table, _LIFECYCLE_KEYS, place, entry=entry, prefix="lifecycle.")
        first = names.setdefault(str(name), index) if named else index
        if first != index:
            self.problems.add(f"is already the name of extensions[{first}]", entry=entry, key="name")
        if len(self.problems.found) == before:
            self._add_extension(checked, own)

    def _add_extension(self, checked: dict[str, object], own: dict[str, object]) -> None:
        prefix = f"extensions.{checked['name']}"
        self._note(prefix, (key for key in _EXTENSION_KEYS if key != "lifecycle"), checked)
        for key in _LIFECYCLE_KEYS:
            inherited = self.origins[f"extension_lifecycle.{key}"]
            self.origins[f"{prefix}.lifecycle.{key}"] = str(self.file) if key in own else inherited
        lifecycle = dataclasses.replace(self.lifecycle, **own)
        self.extensions.append(values.ExtensionSettings(**checked, lifecycle=lifecycle, sandbox=self.sandbox))


def _check_places(machine: Machine, problems: _Problems) -> None:
    """Check our own directories before anything in them is believed."""
    for directory in (machine.latch_directory, machine.latchkey_directory):
        if _holds(directory, machine.home):
            problems.add("is or contains the home directory", file=directory)
    ours = machine.latch_directory
    for path, is_directory in ((ours, True), (ours / "secrets.toml", False)):
        if not os.path.lexists(path):
            continue
        try:
            check_private(path, uid=machine.uid, directory=is_directory)
        except StoreError as error:
            problems.hint = problems.hint or error.hint
            problems.unsafe_modes += 1
            problems.add(error.reason.removeprefix(f'"{error.path}": '), file=path)


def _read_document(
    file: Path, machine: Machine, problems: _Problems, limits: Limits, *, required: bool
) -> dict[str, object] | None:
    """Return the values of *file*; None when it is absent, or damaged and noted so."""
    try:
        document = load_toml(file, trusted_uids=(machine.uid, 0), limits=limits.file)
    except ConfigError as error:
        problems.found += error.problems
        problems.hint = problems.hint or error.hint
        return None
    if document is None and required:
        problems.add("does not exist")
    return document


def _holds(directory: Path, home: Path) -> bool:
    """Say whether *directory* is or contains the *home*."""
    return lies_in(real_path(home), real_path(directory))


def _suggestion(key: str, keys: Mapping[str, _Checker]) -> str:
    # Only a configuration that is wrong pays for this import.
    from difflib import get_close_matches

    close = get_close_matches(key, keys, n=1, cutoff=0.5)
    return f', did you mean "{close[0]}"?' if close else f"; known are {', '.join(keys)}"


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _tables(value: object) -> list[Mapping[str, object]]:
    return value if isinstance(value, list) else []


def _strings(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _found(value: object, place: _Place) -> str:
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


def _check_string(value: object, place: _Place) -> str:
    if not isinstance(value, str):
        raise _Fault(f"must be a string, found {_found(value, place)}")
    if not value:
        raise _Fault("must not be empty")
    if "\0" in value:
        raise _Fault("contains a NUL character")
    return value


def _check_bool(value: object, place: _Place) -> bool:
    if not isinstance(value, bool):
        raise _Fault(f"must be true or false, found {_found(value, place)}")
    return value


def _check_table(value: object, place: _Place) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _Fault(f"must be a table, found {_found(value, place)}")
    return value


def _check_tables(value: object, place: _Place) -> list[Mapping[str, object]]:
    if not isinstance(value, list):
        raise _Fault(f"must be written [[extensions]], once for each entry, found {_found(value, place)}")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise _Fault(f"must be a table, found {_found(item, place)}", inside=f"[{index}]")
    return value


def _each(value: object, what: str, check: _Checker, place: _Place) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _Fault(f"must be a list of {what}, found {_found(value, place)}")
    checked = []
    for index, item in enumerate(value):
        try:
            checked.append(check(item, place))
        except _Fault as fault:
            raise _Fault(fault.reason, inside=f"[{index}]") from fault
    return tuple(checked)


def _check_integer(value: object, least: int, place: _Place) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST_INTEGER:
        raise _Fault(
            f"must be a whole number from {least} to {_LARGEST_INTEGER}, found {_found(value, place)}"
        )
    return value


def _check_positive(value: object, place: _Place) -> int:
    return _check_integer(value, 1, place)


def _check_amount(value: object, place: _Place) -> int:
    return _check_integer(value, 0, place)


def _check_seconds(value: object, place: _Place) -> float:
    largest = place.limits.extension.max_lifecycle_seconds
    # NOTE: nan is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= largest:
        raise _Fault(
            f"must be a number of seconds above 0 and at most {largest}, found {_found(value, place)}"
        )
    return value


def _check_name(value: object, place: _Place) -> str:
    text = _check_string(value, place)
    if not _ENTRY_NAME.fullmatch(text):
        raise _Fault(f"must be 1 to 32 letters, digits or hyphens, found {_found(text, place)}")
    return text


def _check_command(value: object, place: _Place) -> str:
    text = _check_string(value, place)
    if text.startswith("~/"):
        return str(place.home / text[2:])
    if "/" in text and not text.startswith("/"):
        raise _Fault(f'must be the name of a program, or begin with "/" or "~/", found {_found(text, place)}')
    return text


def _check_argument(value: object, place: _Place) -> str:
    # NOTE: an argument may be empty, and is never quoted: it may be secret.
    if not isinstance(value, str):
        raise _Fault(f"must be a string, found {_found(value, place)}")
    if "\0" in value:
        raise _Fault("contains a NUL character")
    return value


def _check_arguments(value: object, place: _Place) -> tuple[object, ...]:
    return _each(value, "strings", _check_argument, place)


def _check_variable(value: object, place: _Place) -> str:
    text = _check_string(value, place)
    if not _VARIABLE.fullmatch(text):
        raise _Fault(f"{_found(text, place)} is no name of a variable: letters, digits and _, no digit first")
    if text == "PATH":
        raise _Fault('"PATH" follows from the command; show more directories with ro_paths')
    if text in _RESERVED_VARIABLES:
        raise _Fault(f'"{text}" is set by the sandbox itself')
    return text


def _check_variables(value: object, place: _Place) -> tuple[object, ...]:
    return _each(value, "names of variables", _check_variable, place)


def _check_environment(value: object, place: _Place) -> Mapping[str, str]:
    checked: dict[str, str] = {}
    for name, text in _check_table(value, place).items():
        _check_variable(name, place)
        try:
            checked[name] = _check_argument(text, place)
        except _Fault as fault:
            raise _Fault(fault.reason, inside=f".{name}") from fault
    return MappingProxyType(checked)


def _check_path(value: object, place: _Place) -> Path:
    text = _check_string(value, place)
    if text == "~" or text.startswith("~/"):
        return place.home / text[2:]
    if not text.startswith("/"):
        raise _Fault(f'must begin with "/" or "~/", found {_found(text, place)}')
    return Path(text)


def _check_shown(value: object, place: _Place) -> Path:
    path = _check_path(value, place)
    refusal = find_bind_refusal(path, home=place.home, private=place.private)
    if refusal:
        raise _Fault(f'"{path}" {refusal}')
    return path


def _check_written(value: object, place: _Place) -> Path:
    path = _check_path(value, place)
    refusal = find_bind_refusal(path, home=place.home, private=place.private, writable=True)
    if refusal:
        raise _Fault(f'"{path}" {refusal}')
    return path


def _check_ro_paths(value: object, place: _Place) -> tuple[object, ...]:
    return _each(value, "paths", _check_shown, place)


def _check_rw_paths(value: object, place: _Place) -> tuple[object, ...]:
    return _each(value, "paths", _check_written, place)


def _check_cwd(value: object, place: _Place) -> str:
    if value not in ("private", "workspace"):
        raise _Fault(f'must be "private" or "workspace", found {_found(value, place)}')
    return str(value)


def _check_permission(value: object, place: _Place) -> str:
    text = _check_string(value, place)
    kind, _, name = text.partition(":")
    if kind not in _HOOK_KINDS or not name.strip():
        raise _Fault(f"must be observe:NAME, transform:NAME or guard:NAME, found {_found(text, place)}")
    if name == "*" and kind not in _WILDCARD_KINDS:
        raise _Fault(f'"{text}": {kind} has no wildcard, name each structure')
    return text


def _check_permissions(value: object, place: _Place) -> tuple[object, ...]:
    return _each(value, "permissions", _check_permission, place)


def _check_bwrap(value: object, place: _Place) -> Path:
    text = _check_string(value, place)
    if not text.startswith("/"):
        raise _Fault(f"must be an absolute path, found {_found(text, place)}")
    return Path(text)


def _check_state_directory(value: object, place: _Place) -> Path:
    text = _check_string(value, place)
    path = place.home / text[2:] if text == "~" or text.startswith("~/") else place.directory / text
    if _holds(path, place.home):
        raise _Fault(f'"{path}" is or contains the home directory')
    return Path(os.path.normpath(path))


_LIFECYCLE_KEYS: Mapping[str, _Checker] = MappingProxyType(
    {limit.name: _check_seconds for limit in dataclasses.fields(LifecycleLimits)}
)

_SANDBOX_KEYS: Mapping[str, _Checker] = MappingProxyType(
    {
        "bwrap": _check_bwrap,
        **{limit.name: _check_positive for limit in dataclasses.fields(ResourceLimits)},
        "max_core_bytes": _check_amount,
    }
)

_EXTENSION_KEYS: Mapping[str, _Checker] = MappingProxyType(
    {
        "name": _check_name,
        "command": _check_command,
        "args": _check_arguments,
        "enabled": _check_bool,
        "env": _check_environment,
        "env_from": _check_variables,
        "ro_paths": _check_ro_paths,
        "rw_paths": _check_rw_paths,
        "network": _check_bool,
        "cwd": _check_cwd,
        "trusted_tools": _check_bool,
        "allow": _check_permissions,
        "lifecycle": _check_table,
    }
)

_TOP_KEYS: Mapping[str, _Checker] = MappingProxyType(
    {
        "state_dir": _check_state_directory,
        "extensions": _check_tables,
        "extension_lifecycle": _check_table,
        "sandbox": _check_table,
    }
)
