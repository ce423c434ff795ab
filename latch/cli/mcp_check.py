"""``latch mcp --check`` and ``latch mcp tools``: connect, list, disconnect. No tool is ever called."""

from __future__ import annotations

import argparse

from ..mcp.catalogue import RemoteTool
from ..mcp.client import McpClient
from ..settings import McpServerSettings, Settings, subject_of
from ..tools.assembly import sandbox_for, server_openings
from ..tools.peers import check_peers, close_peers
from .failures import tell_all
from .progress import show_end
from .terminal import Terminal, escape

__all__ = ["check_servers", "list_tools"]


def check_servers(
    options: argparse.Namespace, settings: Settings, entries: list[McpServerSettings], io: Terminal
) -> int:
    """Connect *entries* side by side, print what each is, and return the status."""
    clients, status = _connected(options, settings, entries, io)
    if io.as_json and status == 0:
        io.json({"servers": [_report(client) for client in clients]})
    elif not io.as_json:
        for client in clients:
            io.result("\n".join(_lines(client)))
        if not entries:
            io.result("no MCP server is enabled")
    return status


def list_tools(
    options: argparse.Namespace, settings: Settings, entry: McpServerSettings, io: Terminal
) -> int:
    """Connect the server of *entry*, print its catalogue, and return the status."""
    clients, status = _connected(options, settings, [entry], io)
    for client in clients:
        if io.as_json and status == 0:
            tools = [_tool(tool) for tool in client.tools]
            io.json({"server": client.name, "tools": tools, "skipped": _skipped(client)})
        elif not io.as_json:
            _print_tools(client, io)
    return status


def _print_tools(client: McpClient, io: Terminal) -> None:
    own = f"{client.name}/"
    rows = [
        (tool.name, _arguments(tool), tool.catalogue_name, _about(tool, own))
        for tool in sorted(client.tools, key=lambda tool: tool.name)
    ]
    if rows:
        io.table(rows, ("name", "arguments", "catalogue name", "description"), cut=True)
    else:
        io.result(f"{subject_of(client.settings)} offers no tools")
    for one in client.skipped:
        io.note(f"left out: {escape(one.name)}: {one.reason}")


def _arguments(tool: RemoteTool) -> str:
    # NOTE: the schema is the server's, and need not be one.
    known = tool.input_schema.get("properties")
    return " ".join(known) if isinstance(known, dict) else ""


def _about(tool: RemoteTool, own: str) -> str:
    """Return the server's own words of *tool*, which stand behind its name."""
    return " ".join(tool.description[len(own) + len(tool.name) + 2 :].split())


def _connected(
    options: argparse.Namespace, settings: Settings, entries: list[McpServerSettings], io: Terminal
) -> tuple[list[McpClient], int]:
    """Connect and close *entries*; return the clients of those that went by the rules, and the status."""
    sandbox = sandbox_for(settings, machine=options.machine)
    openings = server_openings(entries, workspace=options.cwd, sandbox=sandbox)
    outcomes = check_peers(openings, scope=options.scope, on_end=show_end(io))
    clients = [outcome for outcome in outcomes if isinstance(outcome, McpClient)]
    unruly = dict(close_peers(clients, options.scope))
    failures = [unruly.get(one) if isinstance(one, McpClient) else one for one in outcomes]
    io.clear()
    if options.verbose:
        for client in clients:
            if client.stderr_tail.strip():
                subject = subject_of(client.settings)
                io.diagnostic(f"{subject} wrote to standard error:\n{client.stderr_tail}\n")
    good = [client for client in clients if client not in unruly]
    return good, tell_all(io, [failure for failure in failures if failure is not None])


def _report(client: McpClient) -> dict[str, object]:
    return {
        "name": client.name,
        "transport": client.settings.transport,
        "protocol_version": client.protocol_version,
        "server_info": dict(client.server_info),
        "tools": len(client.tools),
        "skipped": _skipped(client),
        "seconds": {stage: round(seconds, 4) for stage, seconds in client.timings.items()},
        "diagnostics": list(client.diagnostics),
    }


def _skipped(client: McpClient) -> list[dict[str, object]]:
    return [{"name": one.name, "reason": one.reason} for one in client.skipped]


def _lines(client: McpClient) -> list[str]:
    count = len(client.tools)
    tools = "1 tool" if count == 1 else f"{count} tools"
    per_call = ", a fresh process for every call" if client.is_per_call else ""
    return [
        f"{client.name}: MCP {client.protocol_version}, {tools}, "
        f"connected in {sum(client.timings.values()):.2f} s{per_call}",
        "  seconds: " + ", ".join(f"{stage} {value:.3f}" for stage, value in client.timings.items()),
        *(f"  skipped {escape(one.name)}: {escape(one.reason)}" for one in client.skipped),
        *(f"  note: {escape(text)}" for text in client.diagnostics),
    ]


def _tool(tool: RemoteTool) -> dict[str, object]:
    return {
        "name": tool.name,
        "catalogue_name": tool.catalogue_name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }
