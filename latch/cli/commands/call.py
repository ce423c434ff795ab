"""``latch call EXTENSION/TOOL '{...}'``: one tool call, with every guard asked first.

The call is direct: no session is opened and nothing is recorded. All enabled extensions are started,
because any of them may guard or transform it.
"""

from __future__ import annotations

import argparse
import json
from typing import Mapping

from ...errors import ApprovalNeeded, Denied, PeerRefused, UsageError, WireError
from ...extensions.hooks import Decision
from ...extensions.host import ExtensionHost
from ...extensions.registrations import catalogue_name
from ...limits import DEFAULT
from ...settings import Settings
from ...system.scope import Scope
from ...tools.assembly import close_extensions, open_extensions, sandbox_for
from ...tools.extension_hooks import ask_guards, transform
from ...wire.jsontext import Json, parse_json
from ..context import load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "tool", metavar="EXTENSION/TOOL", help="the extension's name, a slash, the tool's own name"
    )
    parser.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="the arguments, a JSON object"
    )


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Call the tool and print its result; a tool that fails is status 1."""
    extension, tool = _parse_name(options.tool)
    arguments = _parse_arguments(options.arguments)
    settings = load_settings(options)
    _check_configured(settings, extension)
    entries = [entry for entry in settings.extensions if entry.enabled]
    sandbox = sandbox_for(settings, machine=options.machine)
    hosts = open_extensions(
        entries,
        workspace=options.cwd,
        sandbox=sandbox,
        scope=options.scope,
        on_ready=lambda host: io.progress(f'extension "{host.name}" is ready'),
    )
    try:
        host = next(host for host in hosts if host.name == extension)
        result = _call(hosts, host, tool, arguments, options.scope)
    except PeerRefused as error:
        close_extensions(hosts, options.scope)
        io.error(str(error), code=error.code, exit_status=1)
        return 1
    except BaseException:
        for host in hosts:
            host.kill()
        raise
    for _, failure in close_extensions(hosts, options.scope):
        io.note(f"latch: {failure}")
    if io.as_json:
        io.json({"extension": extension, "tool": tool, "result": result})
    else:
        io.result(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2))
    return 0


def _parse_name(text: str) -> tuple[str, str]:
    extension, slash, tool = text.partition("/")
    if not (extension and slash and tool):
        raise UsageError(f'"{text}" is not EXTENSION/TOOL', hint="latch extensions --check lists the tools")
    return extension, tool


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


def _check_configured(settings: Settings, extension: str) -> None:
    known = {entry.name: entry for entry in settings.extensions}
    if extension not in known:
        names = ", ".join(known) or "none"
        raise UsageError(
            f'no extension "{extension}" is configured', hint=f"configured in {settings.file}: {names}"
        )
    if not known[extension].enabled:
        raise UsageError(
            f'extension "{extension}" is disabled', hint=f"set enabled = true in {settings.file}"
        )


def _call(
    hosts: list[ExtensionHost], host: ExtensionHost, tool: str, arguments: Mapping[str, Json], scope: Scope
) -> Json:
    shown = catalogue_name(host.name, tool)
    changed = transform(hosts, "tool_arguments", {"name": shown, "arguments": dict(arguments)}, scope)
    assert isinstance(changed, dict) and isinstance(changed["arguments"], dict)
    payload = {"name": shown, "originalName": tool, "arguments": changed["arguments"]}
    verdict = ask_guards(hosts, "tool.execute", payload, scope)
    reasons = "; ".join(verdict.reasons)
    if verdict.decision is Decision.DENY:
        raise Denied(f'tool "{tool}" was denied by a guard: {reasons}', rule="extension guard")
    if verdict.decision is Decision.ASK:
        raise ApprovalNeeded(
            f'tool "{tool}" needs approval: {reasons}',
            rule="extension guard",
            hint="latch call cannot ask; change the guard's rule, or call another tool",
        )
    return host.call_tool(tool, changed["arguments"], scope)
