"""What a command needs to know of its surroundings: the settings it runs under, and which entries it may use.

Nothing is created and nothing is contacted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config.load import Settings
from ..errors import UsageError
from ..settings import ExtensionSettings, McpServerSettings, subject_of

__all__ = ["check_enabled", "configuration_file", "configured_hint", "load_settings"]


def load_settings(options: argparse.Namespace) -> Settings:
    """Return the settings of ``--config``, or of the default file; an absent default file is fine.

    Raises :class:`~..errors.ConfigError`.
    """
    return Settings.load(options.config, machine=options.machine)


def configuration_file(options: argparse.Namespace, settings: Settings) -> Path:
    """Return the file that *settings* came from, or the one to write where there is none yet."""
    return settings.file or options.machine.latch_directory / "config.toml"


def check_enabled(entry: ExtensionSettings | McpServerSettings, settings: Settings) -> None:
    """Raise :class:`UsageError` where *entry* of *settings*, which a person named, is disabled."""
    if not entry.enabled:
        hint = f"set enabled = true in {settings.file}"
        raise UsageError(f"{subject_of(entry)} is disabled", hint=hint)


def configured_hint(options: argparse.Namespace, settings: Settings, *tables: str) -> str:
    """Say which entries of *tables* (``extensions``, ``mcp_servers``) are configured and where, or where the
    first one goes."""
    file = configuration_file(options, settings)
    entries = [entry for table in tables for entry in getattr(settings, table)]
    if entries:
        return f"configured in {file}: {', '.join(entry.name for entry in entries)}"
    return f"none is configured; add {' or '.join(f'[[{table}]]' for table in tables)} to {file}"
