"""Every setting has its key and every key its setting; a key of another entry says where it belongs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Iterable, Mapping

import pytest

from latch.config import keys
from latch.config.checks import Checker, Fault, Place
from latch.limits import DEFAULT, LifecycleLimits, ResourceLimits
from latch.settings import ExtensionSettings, McpServerSettings

PLACE = Place(Path("/home/somebody"), Path("/conf"), DEFAULT)
SHARED = {"name", "transport", "enabled", "timeout_seconds"}
STDIO = {"command", "args", "env", "env_from", "ro_paths", "rw_paths", "network", "cwd", "lifetime"}
HTTP = {"url", "bearer_token_env", "headers_from_env", "ca_bundle"}
OF_EXTENSIONS = {"allow", "lifecycle", "trusted_tools"}


def names(kind: type) -> set[str]:
    """Return the fields of the settings *kind* that a file fills in."""
    return {field.name for field in dataclasses.fields(kind)} - {"sandbox"}


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    assert set(keys.EXTENSION_KEYS) == names(ExtensionSettings)
    assert set(keys.LIFECYCLE_KEYS) == names(LifecycleLimits)
    assert set(keys.SANDBOX_KEYS) == names(ResourceLimits) | {"bwrap"}
    assert set(keys.mcp_keys(None)) == names(McpServerSettings) == SHARED | STDIO | HTTP
    assert set(keys.mcp_keys("stdio")) == SHARED | STDIO
    assert set(keys.mcp_keys("streamable_http")) == SHARED | HTTP


@pytest.mark.parametrize(
    ("transport", "other", "foreign"),
    [("stdio", "streamable_http", HTTP), ("streamable_http", "stdio", STDIO)],
)
def test_a_key_of_another_transport_says_where_it_belongs(
    transport: str, other: str, foreign: Iterable[str]
) -> None:
    assert keys.mcp_elsewhere(transport) == {
        **dict.fromkeys(foreign, f'belongs to transport = "{other}"'),
        **dict.fromkeys(OF_EXTENSIONS, "belongs to [[extensions]]"),
    }


@pytest.mark.parametrize("transport", [None, "sse", "", [], 7])
def test_without_a_transport_only_a_key_of_extensions_is_in_the_wrong_place(transport: object) -> None:
    assert keys.mcp_elsewhere(transport) == dict.fromkeys(OF_EXTENSIONS, "belongs to [[extensions]]")
    assert set(keys.mcp_keys(transport)) == SHARED | STDIO | HTTP


def test_a_key_of_servers_alone_says_in_an_extension_where_it_belongs() -> None:
    foreign = HTTP | {"transport", "timeout_seconds", "lifetime"}
    assert keys.EXTENSION_ELSEWHERE == dict.fromkeys(foreign, "belongs to [[mcp_servers]]")


@pytest.mark.parametrize(
    ("transport", "required"),
    [
        ("stdio", {"name": "is missing", "command": 'is missing, transport = "stdio" needs it'}),
        (
            "streamable_http",
            {"name": "is missing", "url": 'is missing, transport = "streamable_http" needs it'},
        ),
        (
            None,
            {"name": "is missing", "transport": 'is missing, must be "stdio" or "streamable_http"'},
        ),
        (
            [],
            {"name": "is missing", "transport": 'is missing, must be "stdio" or "streamable_http"'},
        ),
    ],
)
def test_what_must_be_there_depends_on_the_transport(transport: object, required: dict[str, str]) -> None:
    assert keys.mcp_required(transport) == required


@pytest.mark.parametrize(
    ("table", "key", "value", "words"),
    [
        (keys.TOP_KEYS, "state_dir", 3, "must be a string"),
        (keys.TOP_KEYS, "extensions", 3, "[[extensions]]"),
        (keys.TOP_KEYS, "mcp_servers", 3, "[[mcp_servers]]"),
        (keys.TOP_KEYS, "extension_lifecycle", 3, "must be a table"),
        (keys.TOP_KEYS, "sandbox", 3, "must be a table"),
        (keys.LIFECYCLE_KEYS, "ready_seconds", 0, "seconds above 0"),
        (keys.SANDBOX_KEYS, "bwrap", "bwrap", "absolute path"),
        (keys.SANDBOX_KEYS, "home_bytes", 0, "from 1 to"),
        (keys.SANDBOX_KEYS, "max_core_bytes", -1, "from 0 to"),
        (keys.EXTENSION_KEYS, "name", "a b", "letters, digits or hyphens"),
        (keys.EXTENSION_KEYS, "enabled", 0, "true or false"),
        (keys.EXTENSION_KEYS, "command", "./x", "name of a program"),
        (keys.EXTENSION_KEYS, "args", "x", "list of strings"),
        (keys.EXTENSION_KEYS, "env", [], "must be a table"),
        (keys.EXTENSION_KEYS, "env_from", ["PATH"], "follows from the command"),
        (keys.EXTENSION_KEYS, "ro_paths", ["/"], "contains the home"),
        (keys.EXTENSION_KEYS, "rw_paths", ["~/.profile"], "which runs when"),
        (keys.EXTENSION_KEYS, "network", 0, "true or false"),
        (keys.EXTENSION_KEYS, "cwd", "home", '"private" or "workspace"'),
        (keys.EXTENSION_KEYS, "trusted_tools", 0, "true or false"),
        (keys.EXTENSION_KEYS, "allow", ["x"], "observe:NAME"),
        (keys.EXTENSION_KEYS, "lifecycle", 0, "must be a table"),
        (keys.mcp_keys("stdio"), "transport", "sse", '"stdio" or "streamable_http"'),
        (keys.mcp_keys("stdio"), "timeout_seconds", 0.5, "from 1 to 3600"),
        (keys.mcp_keys("stdio"), "lifetime", "run", '"session" or "call"'),
        (keys.mcp_keys("streamable_http"), "url", "http://example.com", "use https"),
        (keys.mcp_keys("streamable_http"), "bearer_token_env", "a-b", "not its value"),
        (keys.mcp_keys("streamable_http"), "headers_from_env", {"Host": "A"}, "is set by HTTP"),
        (keys.mcp_keys("streamable_http"), "ca_bundle", "ca.pem", 'must begin with "/"'),
    ],
)
def test_a_key_is_checked_for_what_it_is(
    table: Mapping[str, Checker], key: str, value: object, words: str
) -> None:
    with pytest.raises(Fault) as caught:
        table[key](value, PLACE)
    assert words in caught.value.reason
