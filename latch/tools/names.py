"""The names of one session: what is built in, and under which name a model sees each tool.

Every tool that is offered to a model has a catalogue name, fixed for the session: its own where that is
safe and nobody else's, else one made from a digest (security.md T29). Whatever shows, guards or calls a
tool of an extension takes its name from the one table that :func:`catalogue_names` makes of all of them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from types import MappingProxyType
from typing import Iterable, Mapping

from ..extensions.host import ExtensionHost
from ..extensions.registrations import fold_name

__all__ = ["BUILT_IN_COMMANDS", "BUILT_IN_TOOLS", "catalogue_names", "server_of"]

# spec/kernel.md, "Built-in tools"; the last row are the controls of spawn_agent
BUILT_IN_TOOLS = frozenset(
    (
        *("read_file", "search", "write", "edit", "run_command"),
        *("validate", "record_evidence", "complete", "load_skill", "read_artifact"),
        *("spawn_agent", "send_agent_message", "continue_agent", "wait_agents", "list_agents"),
        *("interrupt_agent", "close_agent"),
    )
)
# What a word after ``/`` or ``latch`` means already: spec/cli.md, and the controls of a session.
BUILT_IN_COMMANDS = frozenset(
    (
        *("run", "resume", "call", "command", "curl", "explain", "validate", "sandbox", "ps", "reap"),
        *("demo", "doctor", "skills", "mcp", "extensions", "tools", "sessions", "artifacts", "evidence"),
        *("gateway", "policy", "auth", "services", "provider", "config"),
        *("help", "exit", "quit", "mode", "safety", "permissions"),
    )
)
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
# security.md T29: prefixes by which our own mapping is known
_OUR_PREFIXES = ("mcp_", "ext_", "latch_")
_DIGEST_CHARS = 24
# spec/mcp.md, "Wire"
_SERVER_TOOL = re.compile(r"mcp_([A-Za-z0-9-]{1,32})_[0-9a-f]{24}\Z")
_BUILT_IN = frozenset(map(fold_name, BUILT_IN_TOOLS))


def catalogue_names(hosts: Iterable[ExtensionHost]) -> Mapping[tuple[str, str], str]:
    """Return the catalogue name of every tool of *hosts*, by extension and own name.

    The order is that of extension names, then of registration, whatever started first. A tool keeps its
    own name when that is 1 to 64 of ``A-Za-z0-9_-``, no other extension registered it, it does not begin
    with a prefix of ours and does not equal a built-in ignoring case, ``-`` and ``_``. No two are alike.
    """
    tools = [
        (host.name, tool.name)
        for host in sorted(hosts, key=lambda host: host.name)
        for tool in host.registrations.tools
    ]
    owners = Counter(name for _, name in tools)
    return MappingProxyType(
        {
            (extension, name): name if owners[name] == 1 and _may_stay(name) else _mapped(extension, name)
            for extension, name in tools
        }
    )


def server_of(name: str) -> str | None:
    """Return the MCP server whose tool has the catalogue *name*; None for a name of another kind."""
    found = _SERVER_TOOL.match(name)
    return found[1] if found else None


def _may_stay(name: str) -> bool:
    ours = name.lower().startswith(_OUR_PREFIXES) or fold_name(name) in _BUILT_IN
    return not ours and _SAFE_NAME.match(name) is not None


def _mapped(extension: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"ext_{extension}_{digest}"
