"""The hooks of several extensions as one: all guards asked, all transforms applied, in name order."""

from __future__ import annotations

from typing import Iterable

from ..extensions.hooks import GuardAnswer, strictest
from ..extensions.host import ExtensionHost
from ..system.scope import Scope
from ..wire.jsontext import Json

__all__ = ["ask_guards", "transform"]


def ask_guards(hosts: Iterable[ExtensionHost], action: str, payload: Json, scope: Scope) -> GuardAnswer:
    """Ask every guard of *action*; the strictest answer holds and every reason is kept."""
    return strictest([host.guard(action, payload, scope) for host in _by_name(hosts)])


def transform(hosts: Iterable[ExtensionHost], structure: str, value: Json, scope: Scope) -> Json:
    """Return *value* after every transform of *structure*; raises what the first failing one does."""
    for host in _by_name(hosts):
        value = host.transform(structure, value, scope)
    return value


def _by_name(hosts: Iterable[ExtensionHost]) -> list[ExtensionHost]:
    return sorted(hosts, key=lambda host: host.name)
