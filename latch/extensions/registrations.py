"""What an extension may register, and what of it is honoured.

Names of tools are judged only where they meet a model (``tools/names.py``); a command's may not be one
of those that are reserved. Everything else an extension declares is kept; what lies beyond the default
needs its name in ``allow`` of the operator's entry, and is otherwise accepted, reported and never fires
(security.md T12).

Events an observer may name::

    session_started  user_message    model_request       model_response
    tool_requested   tool_finished   permission_decided  session_ended

Structures a transform may name: ``model_request``, ``tool_arguments``, ``tool_result``. Actions a
guard may name: ``tool.execute``, ``model.request``, ``child.spawn``, ``session.complete``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Iterable, Mapping

from ..errors import SchemaError, WireError
from ..limits import Limits
from ..wire.excerpts import quote
from ..wire.jsontext import Json

__all__ = [
    "ACTIONS",
    "EVENTS",
    "METHODS",
    "STRUCTURES",
    "CommandDeclaration",
    "Registrations",
    "RegistrationsBuilder",
    "ToolDeclaration",
    "fold_name",
]

EVENTS = frozenset(
    (
        "session_started",
        "user_message",
        "model_request",
        "model_response",
        "tool_requested",
        "tool_finished",
        "permission_decided",
        "session_ended",
    )
)
STRUCTURES = frozenset(("model_request", "tool_arguments", "tool_result"))
ACTIONS = frozenset(("tool.execute", "model.request", "child.spawn", "session.complete"))
# security.md T12: what needs no entry in ``allow``
_ALWAYS = {"observe": "user_message", "transform": "model_request", "guard": "tool.execute"}


@dataclass(frozen=True)
class ToolDeclaration:
    """One registered tool: its own name, description, and input schema (a JSON object)."""

    name: str
    description: str
    input_schema: Mapping[str, Json]


@dataclass(frozen=True)
class CommandDeclaration:
    """One registered command or context source: name and description."""

    name: str
    description: str


@dataclass(frozen=True)
class Registrations:
    """Everything one extension declared, frozen at ``ready``, in the order it came.

    ``observers``, ``transforms`` and ``guards`` hold the names as registered, ``*`` for all.
    ``diagnostics`` are sentences about declarations that never fire, and why.
    """

    tools: tuple[ToolDeclaration, ...] = ()
    commands: tuple[CommandDeclaration, ...] = ()
    observers: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    context_sources: tuple[CommandDeclaration, ...] = ()
    allow: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()

    def has_tool(self, name: str) -> bool:
        """Return whether a tool was registered under *name*."""
        for tool in self.tools:
            if tool.name == name:
                return True
        return False

    def observes(self, event: str) -> bool:
        """Return whether an observer is to be told of *event*."""
        return _fires("observe", event, self.observers, self.allow)

    def transforms_structure(self, structure: str) -> bool:
        """Return whether a transform is to be asked for *structure*."""
        return _fires("transform", structure, self.transforms, self.allow)

    def guards_action(self, action: str) -> bool:
        """Return whether a guard is to be asked about *action*."""
        return _fires("guard", action, self.guards, self.allow)


class RegistrationsBuilder:
    """Collects registrations until ``ready``. :meth:`add` raises :class:`WireError` naming method and
    field for an invalid one. Commands named as one of *reserved*, ignoring case, ``-`` and ``_``, are
    refused."""

    def __init__(self, limits: Limits, allow: Iterable[str] = (), *, reserved: Iterable[str] = ()) -> None:
        self._limits = limits.extension
        self._schema_limits = limits.schema
        self._allow = tuple(allow)
        self._reserved = frozenset(map(fold_name, reserved))
        self._tools: dict[str, ToolDeclaration] = {}
        self._commands: dict[str, CommandDeclaration] = {}
        self._contexts: dict[str, CommandDeclaration] = {}
        self._hooks: dict[str, dict[str, None]] = {"observe": {}, "transform": {}, "guard": {}}
        self._count = 0

    def add(self, method: str, params: Json) -> None:
        """Add the registration *method* (a key of ``METHODS``) with *params*."""
        self._count += 1
        if self._count > self._limits.max_registrations:
            raise WireError(
                f"{method}: more than {self._limits.max_registrations} registrations",
                limit="max_registrations",
                amount=self._limits.max_registrations,
            )
        if not isinstance(params, dict):
            raise WireError(f"{method}: params is {_kind(params)}, not an object")
        METHODS[method](self, method, params)

    def freeze(self) -> Registrations:
        """Return what was registered, with a diagnostic for each declaration that never fires."""
        hooks = {kind: tuple(names) for kind, names in self._hooks.items()}
        diagnostics = [
            text
            for kind, known in (("observe", EVENTS), ("transform", STRUCTURES), ("guard", ACTIONS))
            for name in hooks[kind]
            for text in _never_fires(kind, name, known, self._allow, self._limits.max_quoted_chars)
        ]
        return Registrations(
            tools=tuple(self._tools.values()),
            commands=tuple(self._commands.values()),
            observers=hooks["observe"],
            transforms=hooks["transform"],
            guards=hooks["guard"],
            context_sources=tuple(self._contexts.values()),
            allow=self._allow,
            diagnostics=tuple(diagnostics),
        )

    def _add_tool(self, method: str, params: dict[str, Json]) -> None:
        name = self._name(method, params)
        if name in self._tools:
            raise WireError(f"{method}: name {self._quoted(name)} is registered twice")
        schema = params.get("inputSchema", {"type": "object"})
        if not isinstance(schema, dict):
            raise WireError(
                f"{method}: inputSchema of {self._quoted(name)} is {_kind(schema)}, not an object"
            )
        if schema.get("type", "object") != "object":
            raise WireError(f'{method}: inputSchema of {self._quoted(name)} must have type "object"')
        self._check_schema(method, name, schema)
        self._tools[name] = ToolDeclaration(name, _description(method, params), MappingProxyType(schema))

    def _check_schema(self, method: str, name: str, schema: dict[str, Json]) -> None:
        if schema.keys() <= {"type"}:
            return
        # NOTE: here, because many tools declare no more than that, and loading it would slow every start.
        from ..schema.compile import Schema

        try:
            Schema.compile(schema, self._schema_limits)
        except SchemaError as error:
            raise WireError(f"{method}: inputSchema of {self._quoted(name)}: {error.reason}") from None

    def _add_command(self, method: str, params: dict[str, Json]) -> None:
        name = self._name(method, params)
        if name in self._commands:
            raise WireError(f"{method}: name {self._quoted(name)} is registered twice")
        if fold_name(name) in self._reserved:
            raise WireError(f"{method}: name {self._quoted(name)} is that of a built-in command")
        self._commands[name] = CommandDeclaration(name, _description(method, params))

    def _add_context(self, method: str, params: dict[str, Json]) -> None:
        name = self._name(method, params)
        if name in self._contexts:
            raise WireError(f"{method}: name {self._quoted(name)} is registered twice")
        self._contexts[name] = CommandDeclaration(name, _description(method, params))

    def _add_observer(self, method: str, params: dict[str, Json]) -> None:
        self._hooks["observe"][_text(method, params, "event")] = None

    def _add_transform(self, method: str, params: dict[str, Json]) -> None:
        structure = _text(method, params, "structure")
        if structure == "*":
            raise WireError(f'{method}: structure may not be "*"; name one structure')
        self._hooks["transform"][structure] = None

    def _add_guard(self, method: str, params: dict[str, Json]) -> None:
        self._hooks["guard"][_text(method, params, "action")] = None

    def _name(self, method: str, params: dict[str, Json]) -> str:
        name = _text(method, params, "name")
        size = len(name.encode("utf-8", "surrogatepass"))
        if not 1 <= size <= self._limits.max_name_bytes:
            raise WireError(
                f"{method}: name has {size} bytes, allowed are 1 to {self._limits.max_name_bytes}"
            )
        return name

    def _quoted(self, name: str) -> str:
        return quote(name, self._limits.max_quoted_chars)


METHODS = MappingProxyType(
    {
        "tool.register": RegistrationsBuilder._add_tool,
        "command.register": RegistrationsBuilder._add_command,
        "hook.observe": RegistrationsBuilder._add_observer,
        "hook.transform": RegistrationsBuilder._add_transform,
        "hook.guard": RegistrationsBuilder._add_guard,
        "context_source.register": RegistrationsBuilder._add_context,
    }
)


def fold_name(name: str) -> str:
    """Return *name* as it is compared with built-in ones: without case, ``-`` and ``_``."""
    return name.lower().replace("-", "").replace("_", "")


def _fires(kind: str, name: str, registered: tuple[str, ...], allow: tuple[str, ...]) -> bool:
    if name not in registered and (kind == "transform" or "*" not in registered):
        return False
    return name == _ALWAYS[kind] or f"{kind}:{name}" in allow or f"{kind}:*" in allow


def _never_fires(
    kind: str, name: str, known: frozenset[str], allow: tuple[str, ...], quoted: int
) -> list[str]:
    wanted = sorted(known) if name == "*" else [name]
    if name != "*" and name not in known:
        names = ", ".join(sorted(known))
        return [f"{kind} {quote(name, quoted)} never fires: there is no such name; known are {names}"]
    closed = [one for one in wanted if not _fires(kind, one, (name,) if name != "*" else ("*",), allow)]
    if not closed:
        return []
    keys = ", ".join(f'"{kind}:{one}"' for one in closed)
    if name == "*":
        return [f'{kind} "*" fires for "{_ALWAYS[kind]}" and what allow names; not for {keys}']
    return [f'{kind} "{name}" never fires: allow of its entry does not hold {keys}']


def _text(method: str, params: dict[str, Json], field: str) -> str:
    if field not in params:
        raise WireError(f"{method}: {field} is missing")
    value = params[field]
    if not isinstance(value, str):
        raise WireError(f"{method}: {field} is {_kind(value)}, not a string")
    return value


def _description(method: str, params: dict[str, Json]) -> str:
    value = params.get("description", "")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(f"{method}: description is {_kind(value)}, not a string")
    return value


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return names[type(value)]
