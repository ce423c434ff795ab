"""``latch call TOOL '{...}'``: one tool call, with every guard asked first.

TOOL is the name of an extension or MCP server, a slash and the tool's own name, or the catalogue name under
which a model sees it. The call is direct: no session is opened and nothing is recorded. All enabled
extensions are started, because any of them may guard or transform it, and of the MCP servers the one that
is called.
"""

from __future__ import annotations

import argparse
import json
from typing import Iterable, Mapping, NamedTuple, Union

from ...errors import ApprovalNeeded, Denied, PeerRefused, UsageError, WireError
from ...extensions.hooks import Decision
from ...extensions.host import ExtensionHost
from ...limits import DEFAULT
from ...mcp.client import McpClient
from ...mcp.results import McpResult
from ...settings import McpServerSettings, Settings, subject_of
from ...system.scope import Scope
from ...tools.assembly import extension_openings, sandbox_for, server_openings
from ...tools.extension_hooks import ask_guards, transform
from ...tools.names import catalogue_names, server_of
from ...tools.peers import close_peers, kill_peers, open_peers
from ...wire.excerpts import shorten
from ...wire.jsontext import Json, parse_json
from ..context import check_enabled, configuration_file, configured_hint, load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]

_Peer = Union[ExtensionHost, McpClient]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "tool",
        metavar="TOOL",
        help="NAME/TOOL, the extension or MCP server and the tool's own name, or the tool's catalogue name",
    )
    parser.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="the arguments, a JSON object"
    )


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Call the tool and print its result; a tool that fails is status 1."""
    owner, name = _parse_name(options.tool)
    arguments = _parse_arguments(options.arguments)
    settings = load_settings(options)
    server = _server(options, settings, owner, name)
    peers = _open(options, settings, io, server=server, needed=owner if server is None else server.name)
    hosts = [peer for peer in peers if isinstance(peer, ExtensionHost)]
    tool = None
    try:
        tool = _find(peers, owner, name)
        result = _call(hosts, tool, arguments, options.scope)
    except PeerRefused as error:
        _close(peers, options.scope, io)
        _show_stderr(peers, options, io)
        hint = error.hint or (None if tool is None else _hint_stderr(options, tool.peer))
        io.error(str(error), code=error.code, exit_status=1, hint=hint)
        return 1
    except BaseException as failure:
        kill_peers(peers, failure)
        _show_stderr(peers, options, io)
        raise
    _close(peers, options.scope, io)
    if isinstance(result, McpResult):
        return _show_server_result(tool, result, peers, options, io)
    _show(tool, result, result, io)
    return 0


class _Tool(NamedTuple):
    peer: _Peer
    name: str
    catalogue_name: str

    def __str__(self) -> str:
        known_as = "" if self.catalogue_name == self.name else f" (as {self.catalogue_name})"
        return f'tool "{self.name}"{known_as}'


def _parse_name(text: str) -> tuple[str | None, str]:
    owner, slash, name = text.partition("/")
    if not slash and text:
        return None, text
    if not (owner and name):
        raise UsageError(
            f'"{text}" is neither NAME/TOOL nor a catalogue name',
            hint="latch extensions --check and latch mcp tools NAME list the tools",
        )
    return owner, name


def _parse_arguments(text: str) -> Mapping[str, Json]:
    try:
        value = parse_json(text.encode("utf-8", "surrogateescape"), DEFAULT.json)
    except WireError as error:
        raise UsageError(
            f"the arguments are not JSON: {error.reason}", hint="""write them as '{"name": "value"}'"""
        )
    if not isinstance(value, dict):
        raise UsageError("the arguments are not a JSON object", hint="""write them as '{"name": "value"}'""")
    return value


# -- which peers ----------------------------------------------------------------------------------------


def _server(
    options: argparse.Namespace, settings: Settings, owner: str | None, name: str
) -> McpServerSettings | None:
    """Return the MCP server that is called, None where it is an extension; checks that there is one."""
    wanted = server_of(name) if owner is None else owner
    for entry in (*settings.extensions, *settings.mcp_servers):
        if entry.name == wanted:
            check_enabled(entry, settings)
            return entry if isinstance(entry, McpServerSettings) else None
    if owner is not None:
        hint = configured_hint(options, settings, "extensions", "mcp_servers")
        raise UsageError(f'no extension or MCP server "{owner}" is configured', hint=hint)
    if any(entry.name == name for entry in settings.mcp_servers):
        raise UsageError(
            f'"{name}" is an MCP server, not a tool', hint=f"latch mcp tools {name} lists its tools"
        )
    if not any(entry.enabled for entry in settings.extensions):
        file = configuration_file(options, settings)
        hint = f"no extension is enabled; add [[extensions]] or [[mcp_servers]] to {file}"
        raise UsageError(f'there is no tool "{name}"', hint=hint)
    return None


def _open(
    options: argparse.Namespace,
    settings: Settings,
    io: Terminal,
    *,
    server: McpServerSettings | None,
    needed: str | None,
) -> list[_Peer]:
    sandbox = sandbox_for(settings, machine=options.machine)
    extensions = [entry for entry in settings.extensions if entry.enabled]
    servers = [] if server is None else [server]
    openings = [
        *extension_openings(extensions, workspace=options.cwd, sandbox=sandbox),
        *server_openings(servers, workspace=options.cwd, sandbox=sandbox),
    ]

    def tell(peer: _Peer) -> None:
        io.progress(f"{subject_of(peer.settings)} is ready")

    return open_peers(openings, scope=options.scope, needed=needed, on_ready=tell)


def _find(peers: list[_Peer], owner: str | None, name: str) -> _Tool:
    tools = [
        *_extension_tools([peer for peer in peers if isinstance(peer, ExtensionHost)]),
        *(
            _Tool(peer, tool.name, tool.catalogue_name)
            for peer in peers
            if isinstance(peer, McpClient)
            for tool in peer.tools
        ),
    ]
    for tool in tools:
        if (tool.peer.name, tool.name) == (owner, name) or (owner is None and tool.catalogue_name == name):
            return tool
    if owner is not None:
        peer = next(peer for peer in peers if peer.name == owner)
        for one in peer.skipped if isinstance(peer, McpClient) else ():
            if one.name == name:
                raise UsageError(
                    f'{subject_of(peer.settings)} has a tool "{name}", which was left out: {one.reason}'
                )
        offered = [tool.name for tool in tools if tool.peer.name == owner]
        raise UsageError(
            f'{subject_of(peer.settings)} has no tool "{name}"', hint=f"known are: {_listed(offered)}"
        )
    if any(peer.name == name for peer in peers):
        own = [f"{name}/{tool.name}" for tool in tools if tool.peer.name == name]
        raise UsageError(f'"{name}" is an extension, not a tool', hint=f"its tools are: {_listed(own)}")
    known = [tool.catalogue_name for tool in tools]
    raise UsageError(
        f'there is no tool "{name}"',
        hint=f"NAME/TOOL calls one of an MCP server; known are: {_listed(known)}",
    )


def _extension_tools(hosts: list[ExtensionHost]) -> list[_Tool]:
    by_name = {host.name: host for host in hosts}
    return [_Tool(by_name[owner], name, shown) for (owner, name), shown in catalogue_names(hosts).items()]


def _listed(names: Iterable[str]) -> str:
    return shorten(", ".join(names), DEFAULT.extension.max_quoted_chars) or "none"


# -- the call and what is shown of it --------------------------------------------------------------------


def _call(
    hosts: list[ExtensionHost], tool: _Tool, arguments: Mapping[str, Json], scope: Scope
) -> Json | McpResult:
    value = {"name": tool.catalogue_name, "arguments": dict(arguments)}
    changed = transform(hosts, "tool_arguments", value, scope)
    assert isinstance(changed, dict) and isinstance(changed["arguments"], dict)
    payload = {"name": tool.catalogue_name, "originalName": tool.name, "arguments": changed["arguments"]}
    verdict = ask_guards(hosts, "tool.execute", payload, scope)
    reasons = "; ".join(shorten(reason, DEFAULT.extension.max_quoted_chars) for reason in verdict.reasons)
    if verdict.decision is Decision.DENY:
        raise Denied(f"{tool} was denied by a guard: {reasons}", rule="extension guard")
    if verdict.decision is Decision.ASK:
        raise ApprovalNeeded(
            f"{tool} needs approval: {reasons}",
            rule="extension guard",
            hint="latch call cannot ask; change the guard's rule, or call another tool",
        )
    return tool.peer.call_tool(tool.name, changed["arguments"], scope)


def _show(tool: _Tool, result: Json, shown: Json, io: Terminal) -> None:
    kind = "extension" if isinstance(tool.peer, ExtensionHost) else "server"
    if io.as_json:
        known = {kind: tool.peer.name, "tool": tool.name, "catalogue_name": tool.catalogue_name}
        io.json({**known, "result": result})
    else:
        io.result(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=2))


def _show_server_result(
    tool: _Tool, result: McpResult, peers: list[_Peer], options: argparse.Namespace, io: Terminal
) -> int:
    text_only = bool(result.content) and all(block.get("type") == "text" for block in result.content)
    if not result.is_error:
        _show(tool, result.raw, result.text if text_only else result.raw, io)
        return 0
    _show_stderr(peers, options, io)
    failed = f"{subject_of(tool.peer.settings)}: {tool} failed"
    said = shorten(result.text, DEFAULT.mcp.max_quoted_chars)
    io.error(
        f"{failed}: {said}" if io.as_json and said else failed,
        code="tool_failed",
        exit_status=1,
        hint=_hint_stderr(options, tool.peer),
        details={"result": result.raw},
    )
    if not io.as_json:
        # NOTE: whole, because what a tool says of its failure is its result.
        io.diagnostic((result.text if text_only else json.dumps(result.raw, indent=2)) + "\n")
    return 1


def _show_stderr(peers: list[_Peer], options: argparse.Namespace, io: Terminal) -> None:
    for peer in peers if options.verbose else ():
        tail = peer.stderr_tail.rstrip("\n")
        if tail:
            io.diagnostic(f"{subject_of(peer.settings)} wrote to standard error:\n{tail}\n")


def _hint_stderr(options: argparse.Namespace, peer: _Peer) -> str | None:
    wrote = peer.stderr_tail.strip() and not options.verbose
    return "latch -v call shows what it wrote to standard error" if wrote else None


def _close(peers: list[_Peer], scope: Scope, io: Terminal) -> None:
    for _, failure in close_peers(peers, scope):
        io.diagnostic(f"latch: {failure}\n" + (f"hint: {failure.hint}\n" if failure.hint else ""))
