"""All the wiring of one configuration: its sandbox, and how each of its peers is opened."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Sequence

from ..extensions.host import ExtensionHost
from ..limits import DEFAULT, Limits
from ..settings import ExtensionSettings, McpServerSettings, Settings, subject_of
from ..system.machine import Machine
from ..system.sandbox import Sandbox
from ..system.scope import Scope
from .names import BUILT_IN_COMMANDS
from .peers import Opening

if TYPE_CHECKING:
    from ..mcp.client import McpClient

__all__ = ["extension_openings", "sandbox_for", "server_openings"]


def sandbox_for(settings: Settings, *, machine: Machine | None = None, limits: Limits = DEFAULT) -> Sandbox:
    """Return the sandbox that all peers of *settings* share."""
    return Sandbox(settings.sandbox, machine=machine, limits=limits)


def extension_openings(
    entries: Sequence[ExtensionSettings],
    *,
    workspace: Path,
    sandbox: Sandbox,
    trace: Callable[[str, bytes], None] | None = None,
) -> list[Opening[ExtensionHost]]:
    """Return how the extensions *entries* are opened; *trace* as in :meth:`ExtensionHost.open`."""

    def opened(entry: ExtensionSettings, scope: Scope) -> ExtensionHost:
        return ExtensionHost.open(
            entry,
            workspace=workspace,
            scope=scope,
            sandbox=sandbox,
            reserved_commands=BUILT_IN_COMMANDS,
            trace=trace,
        )

    return [Opening(entry.name, subject_of(entry), partial(opened, entry)) for entry in entries]


def server_openings(
    entries: Sequence[McpServerSettings], *, workspace: Path, sandbox: Sandbox
) -> list[Opening[McpClient]]:
    """Return how the MCP servers *entries* are opened."""
    # NOTE: here, because most commands that need a sandbox need no server.
    from ..mcp.client import McpClient

    def opened(entry: McpServerSettings, scope: Scope) -> McpClient:
        return McpClient.open(entry, workspace=workspace, scope=scope, sandbox=sandbox)

    return [Opening(entry.name, subject_of(entry), partial(opened, entry)) for entry in entries]
