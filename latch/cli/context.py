"""What a command needs to know of its surroundings: the settings it runs under.

Nothing is created and nothing is contacted.
"""

from __future__ import annotations

import argparse

from ..config.load import Settings

__all__ = ["load_settings"]


def load_settings(options: argparse.Namespace) -> Settings:
    """Return the settings of ``--config``, or of the default file; an absent default file is fine.

    Raises :class:`~..errors.ConfigError`.
    """
    return Settings.load(options.config, machine=options.machine)
