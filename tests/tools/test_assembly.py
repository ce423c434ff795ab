"""The wiring of one configuration: what is shared, and which limits hold."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import LatchError
from latch.limits import DEFAULT, ExtensionLimits, McpLimits
from latch.settings import McpServerSettings, SandboxSettings, Settings
from latch.system.machine import Machine
from latch.system.scope import Scope
from latch.tools.assembly import extension_openings, sandbox_for, server_openings
from latch.tools.peers import close_peers, open_peers
from tests.support import hosted
from tests.support.mcp_peers import stdio_command

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(60)


def test_the_sandbox_of_settings_has_their_machine_and_limits(tmp_path: Path) -> None:
    machine = Machine.read({"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    limits = replace(DEFAULT, extension=ExtensionLimits(max_registrations=1))
    state = tmp_path / "state"
    box = sandbox_for(
        Settings(sandbox=SandboxSettings(state_directory=state)), machine=machine, limits=limits
    )
    assert (box.machine, box.limits, box.state_directory) == (machine, limits, state)
    assert sandbox_for(Settings()).limits is DEFAULT


def test_the_limits_of_the_sandbox_hold_for_its_extensions(workspace: Path, scope: Scope) -> None:
    limits = replace(DEFAULT, extension=ExtensionLimits(max_registrations=1))
    box = sandbox_for(Settings(), limits=limits)
    with pytest.raises(LatchError, match="more than 1 registrations"):
        open_peers(
            extension_openings([hosted.peer(name="many")], workspace=workspace, sandbox=box), scope=scope
        )


def server(name: str) -> McpServerSettings:
    command, *args = stdio_command("--era", "dual")
    return McpServerSettings(name=name, transport="stdio", command=command, args=tuple(args))


def test_servers_open_in_the_given_order_under_their_names(workspace: Path, scope: Scope) -> None:
    box = sandbox_for(Settings())
    openings = server_openings([server("b"), server("a")], workspace=workspace, sandbox=box)
    assert [opening.subject for opening in openings] == ['MCP server "b"', 'MCP server "a"']
    clients = open_peers(openings, scope=scope)
    assert [client.name for client in clients] == ["b", "a"]
    assert close_peers(clients) == []


def test_the_limits_of_the_sandbox_hold_for_its_servers(workspace: Path, scope: Scope) -> None:
    box = sandbox_for(Settings(), limits=replace(DEFAULT, mcp=McpLimits(max_tools=1)))
    with pytest.raises(LatchError, match="more than 1 tools"):
        open_peers(server_openings([server("many")], workspace=workspace, sandbox=box), scope=scope)
