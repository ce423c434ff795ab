"""cli/commands/mcp.py: what is configured, told without contacting anything; and what leads to the checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Operator
from tests.support.mcp_peers import HttpPeer
from tests.support.servers import HOLD, serving


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_the_list_names_every_server_and_contacts_none(operator: Operator) -> None:
    with serving([HOLD]) as server:
        url = f"http://127.0.0.1:{server.port}/mcp?key=a-secret"
        operator.configure(
            servers=[
                operator.server("--tools", "3"),
                operator.remote(url, bearer_token_env="LATCH_ABSENT"),
                operator.server(name="off", enabled=False, command="nowhere"),
            ]
        )
        done = operator.run("mcp")
        as_json = operator.run("mcp", "--json")
        assert server.connections == 0
    rows = [line.split()[:3] for line in done.text.splitlines()]
    assert (done.status, done.err) == (0, b"")
    assert rows == [
        ["NAME", "ENABLED", "TRANSPORT"],
        ["near", "yes", "stdio"],
        ["far", "yes", "streamable_http"],
        ["off", "no", "stdio"],
    ]
    assert done.text.splitlines()[2].split()[3] == f"http://127.0.0.1:{server.port}/mcp"
    assert b"a-secret" not in done.out + as_json.out
    near, far, off = as_json.value["servers"]
    assert as_json.value["file"] == str(operator.file)
    assert (near["name"], near["lifetime"], near["cwd"], near["network"]) == (
        "near",
        "session",
        "private",
        False,
    )
    assert near["args"][-2:] == ["--tools", "3"] and near["timeout_seconds"] == 120
    assert far == {
        "name": "far",
        "enabled": True,
        "transport": "streamable_http",
        "timeout_seconds": 120,
        "url": f"http://127.0.0.1:{server.port}/mcp",
    }
    assert (off["enabled"], off["command"]) == (False, "nowhere")
    assert operator.left() == []


def test_where_none_is_configured_the_file_to_write_is_named(operator: Operator) -> None:
    done = operator.run("mcp")
    assert done.text == f"no MCP servers are configured; add [[mcp_servers]] to {operator.file}\n"
    assert operator.run("mcp", "--json").value["servers"] == []


@pytest.mark.parametrize("arguments", [("--check", "near", "none"), ("tools", "none")])
def test_a_server_that_is_not_configured_is_answered_with_those_that_are(
    operator: Operator, arguments: tuple[str, ...]
) -> None:
    operator.configure(servers=[operator.server(), operator.server(name="off", enabled=False)])
    error = operator.run("mcp", "--json", *arguments).error
    assert (error["exit"], error["message"]) == (2, 'no MCP server "none" is configured')
    assert error["hint"] == f"configured in {operator.file}: near, off"


def test_a_check_takes_the_enabled_ones_or_those_that_are_named_once_each(operator: Operator) -> None:
    with HttpPeer() as server:
        entries = [
            operator.remote(server.url, name=name, enabled=name != "off") for name in ("a", "off", "b")
        ]
        operator.configure(servers=entries)
        for arguments, names in (((), ["a", "b"]), (("b", "a", "b"), ["b", "a"])):
            done = operator.run("mcp", "--json", "--check", *arguments)
            assert [one["name"] for one in done.value["servers"]] == names


@pytest.mark.parametrize(
    "arguments", [("mcp", "--check", "far"), ("mcp", "tools", "far"), ("call", "far/echo")]
)
def test_a_disabled_server_that_is_named_is_refused_in_the_same_words(
    operator: Operator, arguments: tuple[str, ...]
) -> None:
    with serving([HOLD]) as server:
        operator.configure(servers=[operator.remote(f"http://127.0.0.1:{server.port}/", enabled=False)])
        error = operator.run("--json", *arguments).error
        assert server.connections == 0
    assert error == {
        "code": "usage",
        "message": 'MCP server "far" is disabled',
        "hint": f"set enabled = true in {operator.file}",
        "exit": 2,
    }


def test_help_shows_that_a_verb_may_be_left_out_and_explains_it(operator: Operator) -> None:
    usage, *_ = operator.run("help", "mcp").text.splitlines()
    assert usage == "usage: latch mcp [OPTIONS] [--check [NAME ...]] [VERB ...]"
    for arguments in (("help", "mcp", "tools"), ("mcp", "tools", "--help")):
        assert operator.run(*arguments).text.startswith("usage: latch mcp tools [-h] NAME\n")


def test_the_catalogue_of_one_server_is_listed(operator: Operator) -> None:
    with HttpPeer() as server:
        operator.configure(servers=[operator.remote(server.url)])
        value = operator.run("mcp", "--json", "tools", "far").value
    assert value["server"] == "far" and "echo" in {tool["name"] for tool in value["tools"]}
