"""Checks of what an entry says of a server that is reached over HTTP.

Secrets are never values here: an entry holds the names of the variables that hold them. Because somebody
may have written the secret itself where its variable's name belongs, and because an address may hold one
in its query, no error of these checks quotes what it found.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Mapping

from ..errors import WireError
from ..wire.httpfields import hop_by_hop_names, is_token
from ..wire.httpurl import parse_url
from .checks import Fault, Place, check_string, check_table, is_variable_name

__all__ = ["check_header_variables", "check_secret_variable", "check_url"]

# What every exchange sets for itself, with all that describes its body, a proxy, or the protocol.
_SET_NAMES = frozenset(["accept", "accept-encoding", "expect", "host", "last-event-id"])
_SET_PREFIXES = ("content-", "mcp-", "proxy-")


def check_url(value: object, place: Place) -> str:
    """Return the address of a server, as it was written."""
    text = check_string(value, place)
    try:
        parse_url(text)
    except WireError as error:
        raise Fault(error.reason) from None
    return text


def check_secret_variable(value: object, place: Place) -> str:
    """Return the name of a variable of our own environment that holds a secret."""
    if not is_variable_name(value):
        raise Fault("must be the name of a variable (letters, digits and _, no digit first), not its value")
    return str(value)


def check_header_variables(value: object, place: Place) -> Mapping[str, str]:
    """Return names of header fields with the names of the variables that hold their values."""
    checked: dict[str, str] = {}
    seen: set[str] = set()
    for name, variable in check_table(value, place).items():
        if not is_token(name):
            raise Fault("has a key that is no header name: letters, digits and any of !#$%&'*+-.^_`|~")
        lower = name.lower()
        if lower in _SET_NAMES or lower in hop_by_hop_names(()) or lower.startswith(_SET_PREFIXES):
            raise Fault("is set by HTTP or by the protocol itself", inside=f".{name}")
        if lower in seen:
            raise Fault("stands there already, in other letters", inside=f".{name}")
        seen.add(lower)
        try:
            checked[name] = check_secret_variable(variable, place)
        except Fault as fault:
            raise Fault(fault.reason, inside=f".{name}") from None
    return MappingProxyType(checked)
