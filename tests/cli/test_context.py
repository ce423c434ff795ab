"""cli/context.py: the settings of one run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from latch.cli.context import check_enabled, configuration_file, configured_hint, load_settings
from latch.errors import ConfigError, UsageError
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


def test_the_file_to_write_is_named_where_there_is_none(tmp_path: Path) -> None:
    known = options(None, tmp_path)
    settings, file = load_settings(known), tmp_path / ".latch" / "config.toml"
    assert configuration_file(known, settings) == file
    assert (
        configured_hint(known, settings, "extensions") == f"none is configured; add [[extensions]] to {file}"
    )


def test_an_entry_that_is_named_must_be_enabled(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text(
        '[[extensions]]\nname = "on"\ncommand = "x"\n[[extensions]]\nname = "off"\ncommand = "x"\nenabled = false\n',
        encoding="utf-8",
    )
    settings = load_settings(options(file, tmp_path))
    enabled, disabled = settings.extensions
    check_enabled(enabled, settings)
    with pytest.raises(UsageError, match='^extension "off" is disabled$') as caught:
        check_enabled(disabled, settings)
    assert caught.value.hint == f"set enabled = true in {file}"


def test_the_extensions_of_a_named_file_are_listed_with_it(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    entries = [f'[[extensions]]\nname = "{name}"\ncommand = "true"\n' for name in ("one", "two")]
    file.write_text("".join(entries), encoding="utf-8")
    known = options(file, tmp_path)
    settings = load_settings(known)
    assert configuration_file(known, settings) == file
    assert configured_hint(known, settings, "extensions") == f"configured in {file}: one, two"
    both = configured_hint(known, settings, "mcp_servers", "extensions")
    assert both == f"configured in {file}: one, two"
    assert (
        configured_hint(known, settings, "mcp_servers")
        == f"none is configured; add [[mcp_servers]] to {file}"
    )
