from __future__ import annotations

import pytest

from latch.errors import CredentialError
from latch.mcp.secrets import read_secrets
from latch.settings import McpServerSettings

KNOWN = {"TOKEN": "open-sesame", "KEY": "k-1", "EMPTY": "", "PREFIXED": "Bearer k-1", "BROKEN": "k-1\n"}


def remote(**keys: object) -> McpServerSettings:
    return McpServerSettings(name="far", transport="streamable_http", url="https://example.com/", **keys)  # type: ignore[arg-type]


def test_an_entry_without_secrets_reads_nothing() -> None:
    secrets = read_secrets(remote(), KNOWN)
    assert (dict(secrets.environment), secrets.fields, secrets.values) == ({}, (), ())


def test_a_bearer_is_one_field_and_the_token_alone_is_the_secret() -> None:
    secrets = read_secrets(remote(bearer_token_env="TOKEN", headers_from_env={"X-Key": "KEY"}), KNOWN)
    assert secrets.fields == (("X-Key", "k-1"), ("Authorization", "Bearer open-sesame"))
    assert sorted(secrets.values) == ["k-1", "open-sesame"]
    assert "sesame" not in repr(secrets)


def test_a_server_on_stdio_is_handed_what_the_entry_names() -> None:
    entry = McpServerSettings(name="near", transport="stdio", command="x", env_from=("TOKEN", "KEY"))
    secrets = read_secrets(entry, KNOWN)
    assert dict(secrets.environment) == {"TOKEN": "open-sesame", "KEY": "k-1"}
    assert sorted(secrets.values) == ["k-1", "open-sesame"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"bearer_token_env": "ABSENT"}, 'bearer_token_env: "ABSENT" is not set'),
        ({"bearer_token_env": "EMPTY"}, 'bearer_token_env: "EMPTY" is empty in'),
        ({"bearer_token_env": "PREFIXED"}, 'bearer_token_env: "PREFIXED" begins with "Bearer"'),
        ({"bearer_token_env": "BROKEN"}, 'bearer_token_env: "BROKEN" holds a character that no header'),
        ({"headers_from_env": {"A": "KEY", "B": "BROKEN"}}, 'headers_from_env: "BROKEN" holds a character'),
        (
            {"headers_from_env": {"A": "ABSENT", "B": "AWAY", "C": "KEY"}},
            'headers_from_env: "ABSENT", "AWAY" is',
        ),
        ({"env_from": ("KEY", "ABSENT")}, 'env_from: "ABSENT" is not set'),
    ],
)
def test_what_is_not_set_is_named_with_its_key_and_no_value(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(CredentialError) as raised:
        read_secrets(remote(**keys), KNOWN)
    assert raised.value.reason.startswith(reason)
    assert (raised.value.peer, raised.value.stage) == ('MCP server "far"', "start")
    assert "k-1" not in str(raised.value) and raised.value.hint is not None


@pytest.mark.parametrize("value", ["open\r\nX-Evil: yes", "open\n", "open\0", "open\u2013"])
@pytest.mark.parametrize("key", ["bearer_token_env", "headers_from_env"])
def test_a_value_that_no_field_can_have_is_refused_and_not_quoted(key: str, value: str) -> None:
    keys: dict[str, object] = {key: "TOKEN" if key == "bearer_token_env" else {"X-Key": "TOKEN"}}
    with pytest.raises(CredentialError) as raised:
        read_secrets(remote(**keys), {"TOKEN": value})
    assert raised.value.reason.startswith(f'{key}: "TOKEN" holds a character that no header')
    assert (raised.value.peer, raised.value.stage) == ('MCP server "far"', "start")
    assert "open" not in str(raised.value) and "Evil" not in str(raised.value)
