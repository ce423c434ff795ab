"""What a command needs to know of its surroundings: the settings it runs under.

Nothing is created and nothing is contacted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config.load import Settings

__all__ = ["configuration_file", "configured_hint", "load_settings"]


def load_settings(options: argparse.Namespace) -> Settings:
    """Return the settings of ``--config``, or of the default file; an absent default file is fine.

    Raises :class:`~..errors.ConfigError`.
    """
    return Settings.load(options.config, machine=options.machine)


def configuration_file(options: argparse.Namespace, settings: Settings) -> Path:
    """Return the file that *settings* came from, or the one to write where there is none yet."""
    return settings.file or options.machine.latch_directory / "config.toml"


def configured_hint(options: argparse.Namespace, settings: Settings, *tables: str) -> str:
    """Say which entries of *tables* (``extensions``, ``mcp_servers``) are configured and where, or where the
    first one goes."""
    file = configuration_file(options, settings)
    entries = [entry for table in tables for entry in getattr(settings, table)]
    if entries:
        return f"configured in {file}: {', '.join(entry.name for entry in entries)}"
    return f"none is configured; add {' or '.join(f'[[{table}]]' for table in tables)} to {file}"
