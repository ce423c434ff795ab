"""A synchronous toolkit that hosts sandboxed tool extensions.

The names of ``__all__`` are the public interface; everything else may change. Each is resolved on
first use, so that importing the package imports nothing else of it.

Every module logs to a logger of its own name, at debug only and never payloads. The standard
library shows warnings and above where nobody configured logging, so nothing appears unasked and no
null handler is needed: installing one would import ``logging`` into every start.

In the grammar of Python 3.6: older interpreters read this file before they can be told that they
are too old.
"""

__version__ = "0.1.0"

# name: the module that defines it, relative to this package
_MODULES = {
    "ApprovalNeeded": "errors",
    "CancelToken": "system.scope",
    "Cancelled": "errors",
    "CommandUnusable": "errors",
    "ConcurrentUse": "errors",
    "ConfigError": "errors",
    "ConfigProblem": "errors",
    "ContainmentError": "errors",
    "CredentialError": "errors",
    "DeadlineMissed": "errors",
    "Denied": "errors",
    "ExtensionHost": "extensions.host",
    "ExtensionSettings": "settings",
    "LatchError": "errors",
    "Limits": "limits",
    "McpClient": "mcp.client",
    "McpResult": "mcp.results",
    "McpServerSettings": "settings",
    "MissingDependency": "errors",
    "PeerError": "errors",
    "PeerGone": "errors",
    "PeerLimit": "errors",
    "PeerProtocolError": "errors",
    "PeerRefused": "errors",
    "SandboxSettings": "settings",
    "SandboxUnavailable": "errors",
    "SchemaError": "errors",
    "Scope": "system.scope",
    "Settings": "config.load",
    "StoreError": "errors",
    "UnsafeModes": "errors",
    "UsageError": "errors",
    "WireError": "errors",
    "run_sandboxed": "system.command",
}

__all__ = sorted(_MODULES)

# NOTE: type checkers take this name for true; importing typing would double the time of a start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    from importlib import import_module

    value = getattr(import_module("." + _MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *_MODULES})
