"""Frozen values that an operator's configuration or an embedder fills in.

Nothing here reads a file or the environment: ``config/load.py`` builds these from TOML, and code
may build them directly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Mapping, Union

from .limits import LifecycleLimits, ResourceLimits

__all__ = ["ExtensionSettings", "McpServerSettings", "SandboxSettings", "Settings", "subject_of"]


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True)
class SandboxSettings:
    """How every sandbox of this configuration is built.

    ``bwrap`` is an absolute path, or None to look in the system's directories. ``state_directory`` is
    where the ledger of running children is kept, or None for the machine's default.
    ``private_directories`` are masked wherever they would be visible, besides what the machine and these
    settings make private anyway (``system/bindsources.py``). ``config_file`` is the file all this came
    from: a workspace that holds it is refused. ``resources`` is what every sandbox is bounded by.
    """

    bwrap: Path | None = None
    resources: ResourceLimits = field(default_factory=ResourceLimits)
    state_directory: Path | None = None
    private_directories: tuple[Path, ...] = ()
    config_file: Path | None = None


@dataclass(frozen=True)
class ExtensionSettings:
    """One ``[[extensions]]`` entry; keys and defaults as in spec/extensions.md, "Configuration".

    ``lifecycle`` None are the deadlines of the limits it is opened with.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    enabled: bool = True
    env: Mapping[str, str] = field(default_factory=_empty)
    env_from: tuple[str, ...] = ()
    ro_paths: tuple[Path, ...] = ()
    rw_paths: tuple[Path, ...] = ()
    network: bool = True
    cwd: str = "private"
    trusted_tools: bool = False
    allow: tuple[str, ...] = ()
    lifecycle: LifecycleLimits | None = None
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)


@dataclass(frozen=True)
class McpServerSettings:
    """One ``[[mcp_servers]]`` entry; keys and defaults as in spec/mcp.md, "Configuration".

    ``transport`` is ``stdio``, which uses the keys from ``command`` to ``lifetime``, or
    ``streamable_http``, which uses those after them. ``lifetime`` is ``session``, or ``call`` for a fresh
    process for every call. ``headers_from_env`` maps names of header fields to names of variables;
    ``bearer_token_env`` names one too: the secrets themselves are never settings.
    """

    name: str
    transport: str
    enabled: bool = True
    timeout_seconds: float = 120
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_empty)
    env_from: tuple[str, ...] = ()
    ro_paths: tuple[Path, ...] = ()
    rw_paths: tuple[Path, ...] = ()
    network: bool = True
    cwd: str = "private"
    lifetime: str = "session"
    url: str = ""
    bearer_token_env: str | None = None
    headers_from_env: Mapping[str, str] = field(default_factory=_empty)
    ca_bundle: Path | None = None
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)


def subject_of(entry: Union[ExtensionSettings, McpServerSettings]) -> str:
    """Return what *entry* is called wherever something is said of it: ``extension "lint"``."""
    kind = "extension" if isinstance(entry, ExtensionSettings) else "MCP server"
    return f'{kind} "{entry.name}"'


@dataclass(frozen=True)
class Settings:
    """Everything a configuration says. ``file`` is the file it came from, or None for defaults.

    ``origins`` maps each dotted key (``extensions.lint.command``, ``sandbox.home_bytes``) to where its
    value comes from: ``default``, or the file's path.
    """

    file: Path | None = None
    extensions: tuple[ExtensionSettings, ...] = ()
    mcp_servers: tuple[McpServerSettings, ...] = ()
    lifecycle: LifecycleLimits = field(default_factory=LifecycleLimits)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    origins: Mapping[str, str] = field(default_factory=_empty)
