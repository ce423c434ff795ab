"""Checks of what an entry says of a server that is reached over HTTP.

Secrets are never values here: an entry holds the names of the variables that hold them. Because somebody
may have written the secret itself where its variable's name belongs, and because an address may hold one
in its query, no error of these checks quotes what it found.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Mapping

from ..errors import WireError
from ..wire.httpfields import hop_by_hop_names, is_token
from ..wire.httpurl import parse_url
from .checks import (
    Fault,
    Place,
    check_string,
    check_table,
    gather_fault,
    is_variable_name,
    raise_gathered,
)

__all__ = ["check_header_variables", "check_secret_variable", "check_url"]

# What every exchange sets for itself, with all that describes its body, a proxy, or the protocol.
_SET_NAMES = frozenset(["accept", "accept-encoding", "expect", "host", "last-event-id"])
_SET_PREFIXES = ("content-", "mcp-", "proxy-")
_TOKEN = "letters, digits and any of !#$%&'*+-.^_`|~"

# What hides the other faults of an address, in the order in which it is refused, and what is read instead.
_HIDING = (
    (re.compile(r"[^!-~]"), ""),
    (re.compile(r"#.*"), ""),
    (re.compile(r"^(?!https?:)[A-Za-z][A-Za-z0-9+.\-]*(?=://)", re.IGNORECASE), "https"),
    (re.compile(r"(?<=://)[^/?]*@"), ""),
)


def check_url(value: object, place: Place) -> str:
    """Return the address of a server, as it was written."""
    text = check_string(value, place)
    reasons = [_refusal_of(text)]
    rest = text
    for hiding, instead in _HIDING:
        rest = hiding.sub(instead, rest)
        reasons.append(_refusal_of(rest))
    raise_gathered([Fault(reason) for reason in dict.fromkeys(reasons) if reason])
    return text


def _refusal_of(address: str) -> str:
    """Return the first reason against *address*, empty where there is none."""
    try:
        parse_url(address)
    except WireError as error:
        return error.reason
    return ""


def check_secret_variable(value: object, place: Place) -> str:
    """Return the name of a variable of our own environment that holds a secret."""
    if not is_variable_name(value):
        raise Fault("must be the name of a variable (letters, digits and _, no digit first), not its value")
    return str(value)


def check_header_variables(value: object, place: Place) -> Mapping[str, str]:
    """Return names of header fields with the names of the variables that hold their values."""
    checked: dict[str, str] = {}
    found: list[Fault] = []
    seen: set[str] = set()
    for name, variable in check_table(value, place).items():
        if not is_token(name):
            found.append(Fault(f"has a key that is no header name: {_TOKEN}"))
            continue
        with gather_fault(found, f".{name}"):
            _check_field_name(name.lower(), seen)
        with gather_fault(found, f".{name}"):
            checked[name] = check_secret_variable(variable, place)
        seen.add(name.lower())
    raise_gathered(found)
    return MappingProxyType(checked)


def _check_field_name(lower: str, seen: set[str]) -> None:
    if lower in _SET_NAMES or lower in hop_by_hop_names(()) or lower.startswith(_SET_PREFIXES):
        raise Fault("is set by HTTP or by the protocol itself")
    if lower in seen:
        raise Fault("stands there already, in other letters")
