"""The operator's ``config.toml`` to :class:`Settings`. Every fault names file, entry and key.

All faults of a file are found and raised together. What a table may hold stands in ``keys.py``, key to
checker, so a new key is one line there. Only shape and what is known without a workspace are checked:
whether a path exists or a variable is set is found when something is started. An entry that is not enabled
is checked like any other.

Loading creates nothing, and changes nothing.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Iterable, Mapping

from .. import settings as values
from ..errors import ConfigError, ConfigProblem, StoreError, UnsafeModes
from ..limits import DEFAULT, LifecycleLimits, Limits
from ..system.bindsources import find_private_places
from ..system.files import check_private
from ..system.machine import Machine
from .checks import Checker, Fault, Place, holds_home, is_entry_name
from .keys import (
    EXTENSION_ELSEWHERE,
    EXTENSION_KEYS,
    EXTENSION_REQUIRED,
    LIFECYCLE_KEYS,
    SANDBOX_KEYS,
    TOP_KEYS,
    mcp_elsewhere,
    mcp_keys,
    mcp_required,
)
from .tomlfile import load_toml

__all__ = ["Settings"]


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
        directory, of the secrets in it and of the file; :class:`UnsafeModes` where it is modes alone.
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
            mcp_servers=tuple(loaded.mcp_servers),
            lifecycle=loaded.lifecycle,
            sandbox=loaded.sandbox,
            origins=MappingProxyType(loaded.origins),
        )


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


@dataclass(frozen=True)
class _Entry:
    """One entry of the list *table*, as it is written."""

    table: str
    index: int
    given: Mapping[str, object]

    @property
    def name(self) -> str | None:
        """Its name, or None where that is missing or none."""
        name = self.given.get("name")
        return str(name) if is_entry_name(name) else None

    @property
    def position(self) -> str:
        """Where it stands."""
        return f"{self.table}[{self.index}]"

    def __str__(self) -> str:
        return self.position if self.name is None else f'{self.position} "{self.name}"'


@dataclass
class _Loading:
    """Settings while one document is turned into them."""

    file: Path
    machine: Machine
    problems: _Problems
    limits: Limits
    lifecycle: LifecycleLimits
    extensions: list[values.ExtensionSettings] = field(default_factory=list)
    mcp_servers: list[values.McpServerSettings] = field(default_factory=list)
    named: dict[str, _Entry] = field(default_factory=dict)
    sandbox: values.SandboxSettings = field(default_factory=values.SandboxSettings)
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, document: Mapping[str, object]) -> None:
        """Take over what *document* says; where it is silent or wrong the defaults stay."""
        place = Place(self.machine.home, self.file.parent, self.limits)
        top = self._check(document, TOP_KEYS, place)
        state = self._take_state_directory(top)
        self._take_lifecycle(top, place)
        self._take_sandbox(top, place, state)
        private = find_private_places(self.machine, self.sandbox)
        place = dataclasses.replace(place, private=(*private.directories, *private.files))
        for index, given in enumerate(_tables(top.get("extensions"))):
            self._take_extension(_Entry("extensions", index, given), place)
        for index, given in enumerate(_tables(top.get("mcp_servers"))):
            self._take_mcp_server(_Entry("mcp_servers", index, given), place)

    def _check(
        self,
        given: Mapping[str, object],
        keys: Mapping[str, Checker],
        place: Place,
        *,
        entry: str | None = None,
        prefix: str = "",
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, object]:
        """Return the checked values of *given*; unknown keys and wrong values become problems.

        *elsewhere* says of keys that are known in other tables where they belong.
        """
        checked: dict[str, object] = {}
        for key, value in given.items():
            if key not in keys:
                reason = elsewhere.get(key) or f"is not a known key{_suggestion(key, keys, elsewhere)}"
                self.problems.add(reason, entry=entry, key=prefix + key)
                continue
            try:
                checked[key] = keys[key](value, place)
            except Fault as fault:
                for one in (fault, *fault.more):
                    self.problems.add(one.reason, entry=entry, key=prefix + key + one.inside)
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

    def _take_lifecycle(self, top: Mapping[str, object], place: Place) -> None:
        table = _table(top.get("extension_lifecycle"))
        given = self._check(table, LIFECYCLE_KEYS, place, entry="extension_lifecycle")
        self._note("extension_lifecycle", LIFECYCLE_KEYS, given)
        self.lifecycle = dataclasses.replace(self.lifecycle, **given)

    def _take_sandbox(self, top: Mapping[str, object], place: Place, state: Path) -> None:
        given = self._check(_table(top.get("sandbox")), SANDBOX_KEYS, place, entry="sandbox")
        self._note("sandbox", SANDBOX_KEYS, given)
        bwrap = given.pop("bwrap", None)
        self.sandbox = values.SandboxSettings(
            bwrap=bwrap if isinstance(bwrap, Path) else None,
            resources=dataclasses.replace(self.limits.resource, **given),
            state_directory=state,
            config_file=self.file if os.path.lexists(self.file) else None,
        )

    def _take_extension(self, entry: _Entry, place: Place) -> None:
        before = len(self.problems.found)
        checked = self._check_entry(
            entry, EXTENSION_KEYS, place, required=EXTENSION_REQUIRED, elsewhere=EXTENSION_ELSEWHERE
        )
        table = _table(checked.pop("lifecycle", None))
        own = self._check(table, LIFECYCLE_KEYS, place, entry=str(entry), prefix="lifecycle.")
        self._check_unique(entry)
        if len(self.problems.found) == before:
            self._add_extension(checked, own)

    def _add_extension(self, checked: dict[str, object], own: dict[str, object]) -> None:
        prefix = f"extensions.{checked['name']}"
        self._note(prefix, (key for key in EXTENSION_KEYS if key != "lifecycle"), checked)
        for key in LIFECYCLE_KEYS:
            inherited = self.origins[f"extension_lifecycle.{key}"]
            self.origins[f"{prefix}.lifecycle.{key}"] = str(self.file) if key in own else inherited
        lifecycle = dataclasses.replace(self.lifecycle, **own)
        self.extensions.append(values.ExtensionSettings(**checked, lifecycle=lifecycle, sandbox=self.sandbox))

    def _take_mcp_server(self, entry: _Entry, place: Place) -> None:
        before = len(self.problems.found)
        transport = entry.given.get("transport")
        keys = mcp_keys(transport)
        checked = self._check_entry(
            entry, keys, place, required=mcp_required(transport), elsewhere=mcp_elsewhere(transport)
        )
        fields = _table(checked.get("headers_from_env"))
        if "bearer_token_env" in checked and "authorization" in map(str.lower, fields):
            reason = '"Authorization" is what bearer_token_env sets'
            self.problems.add(reason, entry=str(entry), key="headers_from_env")
        self._check_unique(entry)
        if len(self.problems.found) == before:
            self._note(f"mcp_servers.{checked['name']}", keys, checked)
            self.mcp_servers.append(values.McpServerSettings(**checked, sandbox=self.sandbox))

    def _check_entry(
        self,
        entry: _Entry,
        keys: Mapping[str, Checker],
        place: Place,
        *,
        required: Mapping[str, str],
        elsewhere: Mapping[str, str],
    ) -> dict[str, object]:
        """Return the checked values of *entry*; what is wrong, missing or said twice becomes problems."""
        checked = self._check(entry.given, keys, place, entry=str(entry), elsewhere=elsewhere)
        for key, reason in required.items():
            if key not in entry.given:
                self.problems.add(reason, entry=str(entry), key=key)
        for variable in sorted({*_table(checked.get("env"))} & {*_strings(checked.get("env_from"))}):
            self.problems.add(f'"{variable}" has a value in env already', entry=str(entry), key="env_from")
        return checked

    def _check_unique(self, entry: _Entry) -> None:
        """Note a name that another entry of any list has, in whatever case."""
        if entry.name is None:
            return
        first = self.named.setdefault(entry.name.lower(), entry)
        if first is not entry:
            how = "is already" if first.name == entry.name else "differs only in case from"
            self.problems.add(f"{how} the name of {first.position}", entry=str(entry), key="name")


def _check_places(machine: Machine, problems: _Problems) -> None:
    """Check our own directories before anything in them is believed."""
    for directory in (machine.latch_directory, machine.latchkey_directory):
        if holds_home(directory, machine.home):
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
        problems.unsafe_modes += len(error.problems) if isinstance(error, UnsafeModes) else 0
        problems.hint = problems.hint or error.hint
        return None
    if document is None and required:
        problems.add("does not exist")
    return document


def _suggestion(key: str, keys: Mapping[str, Checker], elsewhere: Mapping[str, str]) -> str:
    # Only a configuration that is wrong pays for this import.
    from difflib import get_close_matches

    close = get_close_matches(key, [*keys, *elsewhere], n=1, cutoff=0.5)
    if not close:
        return f"; known are {', '.join(keys)}"
    where = f", which {elsewhere[close[0]]}" if close[0] in elsewhere else ""
    return f', did you mean "{close[0]}"{where}?'


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _tables(value: object) -> list[Mapping[str, object]]:
    return value if isinstance(value, list) else []


def _strings(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
