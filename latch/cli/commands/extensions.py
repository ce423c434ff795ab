"""``latch extensions``: what is configured; with ``--check``, what each one offers when started."""

from __future__ import annotations

import argparse

from ...errors import UsageError
from ...settings import ExtensionSettings, Settings
from ..context import configuration_file, configured_hint, load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "--check", action="store_true", help="start each enabled one, list what it offers, stop it"
    )
    parser.add_argument("--trace", metavar="NAME", help="check the one called NAME and show its frames")


def run(options: argparse.Namespace, io: Terminal) -> int:
    """List the configured extensions, or check them; a failed check ends with that failure's status."""
    settings = load_settings(options)
    if options.trace is not None or options.check:
        # NOTE: here, because a plain listing must not pay for what starts processes.
        from ..extension_check import ExtensionCheck

        named = [_named(settings, options)] if options.trace is not None else None
        enabled = [entry for entry in settings.extensions if entry.enabled]
        return ExtensionCheck(options, settings, named or enabled, io, traced=named is not None).run()
    if io.as_json:
        file = str(configuration_file(options, settings))
        io.json({"file": file, "extensions": [_entry(entry) for entry in settings.extensions]})
    elif not settings.extensions:
        file = configuration_file(options, settings)
        io.result(f"no extensions are configured; add [[extensions]] to {file}")
    else:
        rows = [
            (
                entry.name,
                "yes" if entry.enabled else "no",
                "on" if entry.network else "off",
                " ".join([entry.command, *entry.args]),
            )
            for entry in settings.extensions
        ]
        io.table(rows, ("name", "enabled", "network", "command"), cut=True)
    return 0


def _named(settings: Settings, options: argparse.Namespace) -> ExtensionSettings:
    for entry in settings.extensions:
        if entry.name == options.trace:
            return entry
    raise UsageError(
        f'no extension "{options.trace}" is configured', hint=configured_hint(options, settings, "extensions")
    )


def _entry(entry: ExtensionSettings) -> dict[str, object]:
    return {
        "name": entry.name,
        "enabled": entry.enabled,
        "command": entry.command,
        "args": list(entry.args),
        "network": entry.network,
        "cwd": entry.cwd,
    }
