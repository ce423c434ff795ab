"""cli/commands/config.py: the settings in force and where each comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Operator, listing

SECRET = "hunter2-in-env"
SERVERS = f"""
[[mcp_servers]]
name = "files"
transport = "stdio"
command = "files"
env = {{ TOKEN = "{SECRET}" }}

[[mcp_servers]]
name = "remote"
transport = "streamable_http"
url = "https://example.com/mcp?key={SECRET}"
bearer_token_env = "EXAMPLE_TOKEN"
ca_bundle = "/opt/ca.pem"
"""


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def configured(operator: Operator) -> Operator:
    entry = operator.peer(
        env={"TOKEN": SECRET},
        env_from=["LINT_TOKEN"],
        ro_paths=["/opt/tools"],
        lifecycle={"ready_seconds": 7},
    )
    operator.configure(
        entry,
        top='state_dir = "elsewhere"\n' + SERVERS,
        sandbox={"max_processes": 99},
        extension_lifecycle={"exit_seconds": 3},
    )
    return operator


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    return {
        key: (origin, value) for key, origin, value in (line.split(None, 2) for line in text.splitlines())
    }


def test_without_a_file_every_value_is_a_default(operator: Operator) -> None:
    rows = rows_of(operator.run("config", "show", "--origin").text)
    assert rows.pop("KEY") == ("ORIGIN", "VALUE")
    assert {origin for origin, _ in rows.values()} == {"default"}
    assert rows["state_dir"][1] == f'"{operator.directory / "state"}"'
    assert rows["sandbox.bwrap"][1] == "null"
    assert rows["extension_lifecycle.ready_seconds"][1] == "30"
    assert rows["sandbox.home_bytes"][1] == "2147483648"


def test_each_value_has_its_source(operator: Operator) -> None:
    file = str(configured(operator).file)
    rows = rows_of(operator.run("config", "show", "--origin").text)
    assert rows["state_dir"] == (file, f'"{operator.directory / "elsewhere"}"')
    assert rows["sandbox.max_processes"] == (file, "99")
    assert rows["sandbox.home_bytes"] == ("default", "2147483648")
    assert rows["extension_lifecycle.exit_seconds"] == (file, "3")
    assert rows["extensions.one.lifecycle.ready_seconds"] == (file, "7")
    assert rows["extensions.one.lifecycle.exit_seconds"] == (file, "3")
    assert rows["extensions.one.lifecycle.spawn_seconds"] == ("default", "5")
    assert rows["extensions.one.env_from"] == (file, '["LINT_TOKEN"]')
    assert rows["extensions.one.ro_paths"] == (file, '["/opt/tools"]')
    assert rows["extensions.one.trusted_tools"] == ("default", "false")


def test_a_server_shows_the_keys_of_its_transport_alone(operator: Operator) -> None:
    file = str(configured(operator).file)
    rows = rows_of(operator.run("config", "show", "--origin").text)
    assert {key: row for key, row in rows.items() if key.startswith("mcp_servers.")} == {
        "mcp_servers.files.name": (file, '"files"'),
        "mcp_servers.files.transport": (file, '"stdio"'),
        "mcp_servers.files.enabled": ("default", "true"),
        "mcp_servers.files.timeout_seconds": ("default", "120"),
        "mcp_servers.files.command": (file, '"files"'),
        "mcp_servers.files.args": ("default", "[]"),
        "mcp_servers.files.env": (file, '{"TOKEN": "(set)"}'),
        "mcp_servers.files.env_from": ("default", "[]"),
        "mcp_servers.files.ro_paths": ("default", "[]"),
        "mcp_servers.files.rw_paths": ("default", "[]"),
        "mcp_servers.files.network": ("default", "true"),
        "mcp_servers.files.cwd": ("default", '"private"'),
        "mcp_servers.files.lifetime": ("default", '"session"'),
        "mcp_servers.remote.name": (file, '"remote"'),
        "mcp_servers.remote.transport": (file, '"streamable_http"'),
        "mcp_servers.remote.enabled": ("default", "true"),
        "mcp_servers.remote.timeout_seconds": ("default", "120"),
        "mcp_servers.remote.url": (file, '"https://example.com/mcp?(set)"'),
        "mcp_servers.remote.bearer_token_env": (file, '"EXAMPLE_TOKEN"'),
        "mcp_servers.remote.headers_from_env": ("default", "{}"),
        "mcp_servers.remote.ca_bundle": (file, '"/opt/ca.pem"'),
    }


@pytest.mark.parametrize("flags", [(), ("--origin",), ("--json",), ("--json", "--origin")])
def test_values_handed_into_a_sandbox_and_queries_are_never_shown(
    operator: Operator, flags: tuple[str, ...]
) -> None:
    done = configured(operator).run("config", "show", *flags)
    assert SECRET not in done.text + done.said
    assert "TOKEN" in done.text and "(set)" in done.text


def test_the_plain_list_leaves_the_sources_out(operator: Operator) -> None:
    text = configured(operator).run("config", "show").text
    assert text.splitlines()[0].split() == ["KEY", "VALUE"]
    assert f"{operator.file} " not in text and "default" not in text


def test_json_holds_value_and_source_of_each_key(operator: Operator) -> None:
    known = configured(operator).run("--json", "config", "show").value["settings"]
    assert known["sandbox.max_processes"] == {"value": 99, "origin": str(operator.file)}
    assert known["extensions.one.network"] == {"value": False, "origin": str(operator.file)}
    url = {"value": "https://example.com/mcp?(set)", "origin": str(operator.file)}
    assert known["mcp_servers.remote.url"] == url
    assert known["extensions.one.env"]["value"] == {"LATCH_TEST_MARKER": "(set)", "TOKEN": "(set)"}


def test_another_file_may_be_named_before_and_after_the_command(operator: Operator) -> None:
    file = operator.place / "other.toml"
    file.write_text("[sandbox]\nmax_processes = 7\n", encoding="utf-8")
    for arguments in (["--config", str(file), "config", "show"], ["config", "show", f"--config={file}"]):
        known = operator.run("--json", *arguments).value["settings"]
        assert known["sandbox.max_processes"] == {"value": 7, "origin": str(file)}


def test_every_fault_of_the_file_is_told_at_once(operator: Operator) -> None:
    operator.configure(top='state_dir = 5\nnonsense = "x"')
    done = operator.run("config", "show")
    assert (done.status, done.out) == (2, b"")
    assert [line for line in done.said.splitlines() if "state_dir" in line]
    assert [line for line in done.said.splitlines() if "nonsense" in line]
    assert operator.run("--json", "config", "show").error["code"] == "config"


def test_a_verb_is_needed_and_it_must_be_known(operator: Operator) -> None:
    for arguments in (["config"], ["config", "shwo"]):
        done = operator.run(*arguments, "--json")
        assert (done.status, done.error["code"]) == (2, "usage")


def test_nothing_is_created(operator: Operator) -> None:
    before = listing(operator.place)
    operator.run("config", "show", "--origin")
    assert listing(operator.place) == before
    configured(operator)
    before = listing(operator.place)
    operator.run("config", "show", "--origin")
    assert listing(operator.place) == before


@pytest.mark.parametrize("columns", ["80", "40"])
@pytest.mark.parametrize("flags", [(), ("--origin",)])
def test_no_value_is_lost_on_a_narrow_terminal(
    operator: Operator, flags: tuple[str, ...], columns: str
) -> None:
    whole = configured(operator).run("config", "show", *flags).text.splitlines()
    with operator.on_terminal(
        "config", "show", *flags, env=operator.environment(COLUMNS=columns)
    ) as terminal:
        assert terminal.finish().said.splitlines() == whole
