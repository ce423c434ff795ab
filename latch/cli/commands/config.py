"""``latch config show [--origin]``: the settings in force and where each comes from. Creates nothing.

Values of ``env`` and queries are left out. Words of ``args`` are shown, here as in the lists of entries:
whoever looks at the processes of the machine sees them anyway, and an operator needs them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Iterator, Mapping

from ...settings import ExtensionSettings, McpServerSettings, Settings
from ..context import load_settings
from ..terminal import Terminal

__all__ = ["VERBS", "configure", "run"]

VERBS = ("show",)

# A value of env, or what is written into a query, may be a secret; that it is there is enough here.
_HIDDEN = "(set)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="list every value", description="List every value.")
    show.add_argument("--origin", action="store_true", help="say where each value comes from")


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Print one line a value."""
    settings = load_settings(options)
    values = [(key, value, settings.origins.get(key, "default")) for key, value in _values(settings, options)]
    if io.as_json:
        io.json({"settings": {key: {"value": value, "origin": origin} for key, value, origin in values}})
        return 0
    rows = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in values]
    if options.origin:
        io.table([(key, origin, value) for key, value, origin in rows], ("key", "origin", "value"))
    else:
        io.table([(key, value) for key, value, _ in rows], ("key", "value"))
    return 0


def _values(settings: Settings, options: argparse.Namespace) -> Iterator[tuple[str, object]]:
    yield "state_dir", str(options.machine.state_directory_of(settings.sandbox))
    yield "sandbox.bwrap", None if settings.sandbox.bwrap is None else str(settings.sandbox.bwrap)
    yield from _members("sandbox", settings.sandbox.resources)
    yield from _members("extension_lifecycle", settings.lifecycle)
    for entry in settings.extensions:
        prefix = f"extensions.{entry.name}"
        yield from _entry(prefix, entry, settings)
        yield from _members(f"{prefix}.lifecycle", entry.lifecycle)
    for server in settings.mcp_servers:
        yield from _entry(f"mcp_servers.{server.name}", server, settings)


def _entry(
    prefix: str, entry: ExtensionSettings | McpServerSettings, settings: Settings
) -> Iterator[tuple[str, object]]:
    """Yield the keys that *entry* has; those of another transport have no origin."""
    for field in fields(entry):
        key, value = f"{prefix}.{field.name}", getattr(entry, field.name)
        if key not in settings.origins:
            continue
        if field.name == "env":
            yield key, {name: _HIDDEN for name in value}
        elif field.name == "url":
            address, mark, query = value.partition("?")
            yield key, f"{address}{mark}{_HIDDEN}" if query else value
        else:
            yield key, _plain(value)


def _members(prefix: str, group: object) -> Iterator[tuple[str, object]]:
    for name, value in vars(group).items():
        yield f"{prefix}.{name}", value


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Path) else value
