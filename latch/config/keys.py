"""What each table of the configuration may hold: key to checker, one line for each key.

A key that only another kind of entry has is known too, by where it belongs.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from types import MappingProxyType
from typing import Mapping

from ..limits import LifecycleLimits, ResourceLimits
from . import checks, remote
from .checks import Checker

__all__ = [
    "EXTENSION_ELSEWHERE",
    "EXTENSION_KEYS",
    "EXTENSION_REQUIRED",
    "LIFECYCLE_KEYS",
    "SANDBOX_KEYS",
    "TOP_KEYS",
    "mcp_elsewhere",
    "mcp_keys",
    "mcp_required",
]

TOP_KEYS: Mapping[str, Checker] = MappingProxyType(
    {
        "state_dir": checks.check_state_directory,
        "extensions": partial(checks.check_tables, table="extensions"),
        "mcp_servers": partial(checks.check_tables, table="mcp_servers"),
        "extension_lifecycle": checks.check_table,
        "sandbox": checks.check_table,
    }
)

LIFECYCLE_KEYS: Mapping[str, Checker] = MappingProxyType(
    {limit.name: checks.check_lifecycle_seconds for limit in dataclasses.fields(LifecycleLimits)}
)

SANDBOX_KEYS: Mapping[str, Checker] = MappingProxyType(
    {
        "bwrap": checks.check_bwrap,
        **{
            limit.name: partial(checks.check_integer, least=1) for limit in dataclasses.fields(ResourceLimits)
        },
        "max_core_bytes": partial(checks.check_integer, least=0),
    }
)

# What every entry has that is started here.
_PROGRAM_KEYS: Mapping[str, Checker] = MappingProxyType(
    {
        "command": checks.check_command,
        "args": partial(checks.check_list, what="strings", check=checks.check_argument),
        "env": checks.check_environment,
        "env_from": partial(checks.check_list, what="names of variables", check=checks.check_variable),
        "ro_paths": partial(
            checks.check_list, what="paths", check=partial(checks.check_bind, writable=False)
        ),
        "rw_paths": partial(checks.check_list, what="paths", check=partial(checks.check_bind, writable=True)),
        "network": checks.check_bool,
        "cwd": partial(checks.check_choice, choices=("private", "workspace")),
    }
)

# Keys that must be there, and what is said where one is not.
EXTENSION_REQUIRED: Mapping[str, str] = MappingProxyType({"name": "is missing", "command": "is missing"})
EXTENSION_KEYS: Mapping[str, Checker] = MappingProxyType(
    {
        "name": checks.check_name,
        "enabled": checks.check_bool,
        **_PROGRAM_KEYS,
        "trusted_tools": checks.check_bool,
        "allow": partial(checks.check_list, what="permissions", check=checks.check_permission),
        "lifecycle": checks.check_table,
    }
)

# The keys of each transport alone, and below the one of them that it cannot do without.
_MCP_TRANSPORTS: Mapping[str, Mapping[str, Checker]] = MappingProxyType(
    {
        "stdio": MappingProxyType(
            {**_PROGRAM_KEYS, "lifetime": partial(checks.check_choice, choices=("session", "call"))}
        ),
        "streamable_http": MappingProxyType(
            {
                "url": remote.check_url,
                "bearer_token_env": remote.check_secret_variable,
                "headers_from_env": remote.check_header_variables,
                "ca_bundle": checks.check_path,
            }
        ),
    }
)

_MCP_NEEDS: Mapping[str, str] = MappingProxyType({"stdio": "command", "streamable_http": "url"})

_MCP_KEYS: Mapping[str, Checker] = MappingProxyType(
    {
        "name": checks.check_name,
        "transport": partial(checks.check_choice, choices=tuple(_MCP_TRANSPORTS)),
        "enabled": checks.check_bool,
        "timeout_seconds": checks.check_timeout_seconds,
    }
)

_ALL_MCP_KEYS: Mapping[str, Checker] = MappingProxyType(
    {**_MCP_KEYS, **{key: check for keys in _MCP_TRANSPORTS.values() for key, check in keys.items()}}
)

# Keys that the other list has, and what is said of one that stands here.
EXTENSION_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {key: "belongs to [[mcp_servers]]" for key in _ALL_MCP_KEYS if key not in EXTENSION_KEYS}
)
_MCP_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {key: "belongs to [[extensions]]" for key in EXTENSION_KEYS if key not in _ALL_MCP_KEYS}
)


def mcp_keys(transport: object) -> Mapping[str, Checker]:
    """Return the keys that an entry of *transport*, ``stdio`` or ``streamable_http``, has.

    An entry that says none that there is may hold all: which of them are wrong cannot be told.
    """
    own = _MCP_TRANSPORTS.get(transport) if isinstance(transport, str) else None
    return _ALL_MCP_KEYS if own is None else {**_MCP_KEYS, **own}


def mcp_elsewhere(transport: object) -> Mapping[str, str]:
    """Return the keys that an entry of *transport* has not but another does, and what is said of one."""
    own = mcp_keys(transport)
    other = {
        key: f'belongs to transport = "{name}"'
        for name, keys in _MCP_TRANSPORTS.items()
        for key in keys
        if key not in own
    }
    return {**_MCP_ELSEWHERE, **other}


def mcp_required(transport: object) -> Mapping[str, str]:
    """Return the keys that an entry that says *transport* must have, and what is said where one is not."""
    if isinstance(transport, str) and transport in _MCP_TRANSPORTS:
        return {
            "name": "is missing",
            _MCP_NEEDS[transport]: f'is missing, transport = "{transport}" needs it',
        }
    allowed = " or ".join(f'"{name}"' for name in _MCP_TRANSPORTS)
    return {"name": "is missing", "transport": f"is missing, must be {allowed}"}
