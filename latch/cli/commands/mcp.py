"""``latch mcp``: the configured servers; with ``--check`` what each is; ``tools NAME``: what one offers.

The list shows ``args`` as they are written, which any process of the machine could see as well, and a ``url``
without its query.
"""

from __future__ import annotations

import argparse

from ...errors import UsageError
from ...settings import McpServerSettings, Settings
from ..context import check_enabled, configuration_file, configured_hint, load_settings
from ..terminal import Terminal

__all__ = ["VERBS", "configure", "run"]

VERBS = ("tools",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "--check",
        nargs="*",
        metavar="NAME",
        help="connect the enabled ones, or those named, list what they are, disconnect; calls nothing",
    )
    # NOTE: argparse would show a verb that may be left out as one that is needed.
    parser.usage = "%(prog)s [OPTIONS] [--check [NAME ...]] [VERB ...]"
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", prog=parser.prog)
    tools = verbs.add_parser(
        "tools", help="connect one server and list its tools", description="Connect one and list its tools."
    )
    tools.add_argument("name", metavar="NAME", help="the server")


def run(options: argparse.Namespace, io: Terminal) -> int:
    """List the configured servers, or check them; a failed check ends with that failure's status."""
    settings = load_settings(options)
    if options.verb == "tools":
        # NOTE: here, because a plain listing must not pay for what starts processes.
        from ..mcp_check import list_tools

        return list_tools(options, settings, _named(settings, options, options.name), io)
    if options.check is not None:
        from ..mcp_check import check_servers

        named = [_named(settings, options, name) for name in dict.fromkeys(options.check)]
        enabled = [entry for entry in settings.mcp_servers if entry.enabled]
        return check_servers(options, settings, named or enabled, io)
    _list(options, settings, io)
    return 0


def _list(options: argparse.Namespace, settings: Settings, io: Terminal) -> None:
    file = str(configuration_file(options, settings))
    if io.as_json:
        io.json({"file": file, "servers": [_entry(entry) for entry in settings.mcp_servers]})
    elif not settings.mcp_servers:
        io.result(f"no MCP servers are configured; add [[mcp_servers]] to {file}")
    else:
        rows = [
            (entry.name, "yes" if entry.enabled else "no", entry.transport, _target(entry))
            for entry in settings.mcp_servers
        ]
        io.table(rows, ("name", "enabled", "transport", "server"), cut=True)


def _named(settings: Settings, options: argparse.Namespace, name: str) -> McpServerSettings:
    for entry in settings.mcp_servers:
        if entry.name == name:
            check_enabled(entry, settings)
            return entry
    hint = configured_hint(options, settings, "mcp_servers")
    raise UsageError(f'no MCP server "{name}" is configured', hint=hint)


def _target(entry: McpServerSettings) -> str:
    # NOTE: without the query, in which some keep a key.
    return (
        " ".join([entry.command, *entry.args]) if entry.transport == "stdio" else entry.url.partition("?")[0]
    )


def _entry(entry: McpServerSettings) -> dict[str, object]:
    known: dict[str, object] = {
        "name": entry.name,
        "enabled": entry.enabled,
        "transport": entry.transport,
        "timeout_seconds": entry.timeout_seconds,
    }
    if entry.transport == "stdio":
        return {
            **known,
            "command": entry.command,
            "args": list(entry.args),
            "network": entry.network,
            "cwd": entry.cwd,
            "lifetime": entry.lifetime,
        }
    return {**known, "url": _target(entry)}
