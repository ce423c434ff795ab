"""Settings are frozen values with the documented defaults; nothing in them is shared and changeable."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from latch.limits import DEFAULT, LifecycleLimits
from latch.settings import ExtensionSettings, McpServerSettings, SandboxSettings, Settings, subject_of


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("args", ()),
        ("enabled", True),
        ("env", {}),
        ("env_from", ()),
        ("ro_paths", ()),
        ("rw_paths", ()),
        ("network", True),
        ("cwd", "private"),
        ("trusted_tools", False),
        ("allow", ()),
        ("lifecycle", None),
        ("sandbox", SandboxSettings()),
    ],
)
def test_an_extension_of_name_and_command_has_the_documented_defaults(key: str, value: object) -> None:
    assert getattr(ExtensionSettings(name="lint", command="/bin/true"), key) == value


@pytest.mark.parametrize("missing", ["name", "command"])
def test_an_extension_needs_name_and_command(missing: str) -> None:
    with pytest.raises(TypeError):
        ExtensionSettings(**{key: "x" for key in ("name", "command") if key != missing})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bwrap", None),
        ("resources", DEFAULT.resource),
        ("state_directory", None),
        ("private_directories", ()),
        ("config_file", None),
    ],
)
def test_a_sandbox_has_the_documented_defaults(key: str, value: object) -> None:
    assert getattr(SandboxSettings(), key) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file", None),
        ("extensions", ()),
        ("lifecycle", DEFAULT.lifecycle),
        ("sandbox", SandboxSettings()),
        ("origins", {}),
    ],
)
def test_settings_of_nothing_are_the_defaults(key: str, value: object) -> None:
    assert getattr(Settings(), key) == value


@pytest.mark.parametrize("value", [Settings(), SandboxSettings(), ExtensionSettings(name="a", command="b")])
def test_settings_cannot_be_changed_in_place(value: object) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.sandbox = None


@pytest.mark.parametrize(
    "mapping", [Settings().origins, ExtensionSettings(name="a", command="b").env], ids=["origins", "env"]
)
def test_an_empty_mapping_cannot_be_filled_behind_the_back_of_others(mapping: dict[str, str]) -> None:
    with pytest.raises(TypeError):
        mapping["x"] = "y"


@pytest.mark.parametrize(
    ("entry", "subject"),
    [
        (ExtensionSettings(name="lint", command="x"), 'extension "lint"'),
        (McpServerSettings(name="files", transport="stdio"), 'MCP server "files"'),
    ],
)
def test_an_entry_is_called_by_its_kind_and_name(
    entry: ExtensionSettings | McpServerSettings, subject: str
) -> None:
    assert subject_of(entry) == subject


def test_one_entry_is_changed_by_replacing_it() -> None:
    lint = ExtensionSettings(name="lint", command="/bin/true")
    slow = dataclasses.replace(lint, lifecycle=LifecycleLimits(ready_seconds=60), ro_paths=(Path("/opt"),))
    assert (slow.lifecycle.ready_seconds, slow.ro_paths) == (60, (Path("/opt"),))
    assert lint.lifecycle is None
