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


def configured_hint(options: argparse.Namespace, settings: Settings) -> str:
    """Say which extensions are configured and where, or where the first one goes."""
    file = configuration_file(options, settings)
    names = ", ".join(entry.name for entry in settings.extensions)
    return f"configured in {file}: {names}" if names else f"none is configured; add [[extensions]] to {file}"
