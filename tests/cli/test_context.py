"""cli/context.py: the settings of one run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from latch.cli.context import load_settings
from latch.errors import ConfigError
from latch.system.machine import Machine


def options(config: Path | None, home: Path) -> argparse.Namespace:
    return argparse.Namespace(config=config, machine=Machine.read({"HOME": str(home)}))


def test_without_a_file_the_defaults_are_in_force_and_nothing_is_made(tmp_path: Path) -> None:
    assert load_settings(options(None, tmp_path)).extensions == ()
    assert list(tmp_path.iterdir()) == []


def test_the_default_file_is_the_one_of_the_machine(tmp_path: Path) -> None:
    directory = tmp_path / ".latch"
    directory.mkdir(mode=0o700)
    (directory / "config.toml").write_text(
        '[[extensions]]\nname = "lint"\ncommand = "true"\n', encoding="utf-8"
    )
    assert [entry.name for entry in load_settings(options(None, tmp_path)).extensions] == ["lint"]


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_settings(options(tmp_path / "absent.toml", tmp_path))
