"""``latch call TOOL '{...}'``: one tool call, with every guard asked first.

TOOL is the extension's name, a slash and the tool's own name, or the catalogue name under which a model
sees it. The call is direct: no session is opened and nothing is recorded. All enabled extensions are
started, because any of them may guard or transform it.
"""

from __future__ import annotations

import argparse
import json
from typing import Iterable, Mapping, NamedTuple

from ...errors import ApprovalNeeded, Denied, PeerRefused, UsageError, WireError
from ...extensions.hooks import Decision
from ...extensions.host import ExtensionHost
from ...extensions.registrations import shorten
from ...limits import DEFAULT
from ...settings import Settings
from ...system.scope import Scope
from ...tools.assembly import close_extensions, kill_extensions, open_extensions, sandbox_for
from ...tools.extension_hooks import ask_guards, transform
from ...tools.names import catalogue_names
from ...wire.jsontext import Json, parse_json
from ..context import configuration_file, configured_hint, load_settings
from ..terminal import Terminal

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument(
        "tool", metavar="TOOL", help="EXTENSION/NAME with the tool's own name, or its catalogue name"
    )
    parser.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="the arguments, a JSON object"
    )


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Call the tool and print its result; a tool that fails is status 1."""
    extension, name = _parse_name(options.tool)
    arguments = _parse_arguments(options.arguments)
    settings = load_settings(options)
    entries = [entry for entry in settings.extensions if entry.enabled]
    if extension is not None:
        _check_configured(options, settings, extension)
    elif not entries:
        file = configuration_file(options, settings)
        raise UsageError(
            f'there is no tool "{name}"', hint=f"no extension is enabled; add [[extensions]] to {file}"
        )
    sandbox = sandbox_for(settings, machine=options.machine)
    hosts = open_extensions(
        entries,
        workspace=options.cwd,
        sandbox=sandbox,
        scope=options.scope,
        needed=extension,
        on_ready=lambda host: io.progress(f'extension "{host.name}" is ready'),
    )
    try:
        tool = _find(hosts, extension, name)
        result = _call(hosts, tool, arguments, options.scope)
    except PeerRefused as error:
        _close(hosts, options.scope, io)
        _show_stderr(hosts, options, io)
        hint = error.hint or _hint_stderr(hosts, options, error)
        io.error(str(error), code=error.code, exit_status=1, hint=hint)
        return 1
    except BaseException as failure:
        kill_extensions(hosts, failure)
        _show_stderr(hosts, options, io)
        raise
    _close(hosts, options.scope, io)
    if io.as_json:
        io.json(
            {
                "extension": tool.host.name,
                "tool": tool.name,
                "catalogue_name": tool.catalogue_name,
                "result": result,
            }
        )
    else:
        io.result(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2))
    return 0


class _Tool(NamedTuple):
    host: ExtensionHost
    name: str
    catalogue_name: str

    def __str__(self) -> str:
        known_as = "" if self.catalogue_name == self.name else f" (as {self.catalogue_name})"
        return f'tool "{self.name}"{known_as}'


def _parse_name(text: str) -> tuple[str | None, str]:
    extension, slash, name = text.partition("/")
    if not slash and text:
        return None, text
    if not (extension and name):
        raise UsageError(
            f'"{text}" is neither EXTENSION/NAME nor a catalogue name',
            hint="latch extensions --check lists the tools",
        )
    return extension, name


def _find(hosts: list[ExtensionHost], extension: str | None, name: str) -> _Tool:
    known = catalogue_names(hosts)
    by_name = {host.name: host for host in hosts}
    for (owner, own_name), shown in known.items():
        if (owner, own_name) == (extension, name) or (extension is None and shown == name):
            return _Tool(by_name[owner], own_name, shown)
    offered = [own_name for owner, own_name in known if owner == extension] if extension else known.values()
    subject = f'extension "{extension}" has no tool "{name}"' if extension else f'there is no tool "{name}"'
    known_ones = f"known are: {_listed(offered)}"
    if extension is None and name in by_name:
        tools = [f"{owner}/{own_name}" for owner, own_name in known if owner == name]
        subject, known_ones = f'"{name}" is an extension, not a tool', f"its tools are: {_listed(tools)}"
    raise UsageError(subject, hint=known_ones)


def _listed(names: Iterable[str]) -> str:
    return shorten(", ".join(names), DEFAULT.extension.max_quoted_chars) or "none"


def _show_stderr(hosts: list[ExtensionHost], options: argparse.Namespace, io: Terminal) -> None:
    for host in hosts if options.verbose else ():
        tail = host.stderr_tail.rstrip("\n")
        if tail:
            io.diagnostic(f'extension "{host.name}" wrote to standard error:\n{tail}\n')


def _hint_stderr(hosts: list[ExtensionHost], options: argparse.Namespace, error: PeerRefused) -> str | None:
    wrote = any(host.stderr_tail.strip() for host in hosts if f'extension "{host.name}"' == error.peer)
    return "latch -v call shows what it wrote to standard error" if wrote and not options.verbose else None


def _close(hosts: list[ExtensionHost], scope: Scope, io: Terminal) -> None:
    for _, failure in close_extensions(hosts, scope):
        io.diagnostic(f"latch: {failure}\n" + (f"hint: {failure.hint}\n" if failure.hint else ""))


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


def _check_configured(options: argparse.Namespace, settings: Settings, extension: str) -> None:
    known = {entry.name: entry for entry in settings.extensions}
    if extension not in known:
        raise UsageError(f'no extension "{extension}" is configured', hint=configured_hint(options, settings))
    if not known[extension].enabled:
        raise UsageError(
            f'extension "{extension}" is disabled', hint=f"set enabled = true in {settings.file}"
        )


def _call(hosts: list[ExtensionHost], tool: _Tool, arguments: Mapping[str, Json], scope: Scope) -> Json:
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
    return tool.host.call_tool(tool.name, changed["arguments"], scope)
