"""What Streamable HTTP repeats of a message in its header fields. Pure.

Modern requests carry ``MCP-Protocol-Version``, ``Mcp-Method`` and ``Mcp-Name``, and of the arguments of a
call those whose property in the tool's input schema holds ``x-mcp-header`` (MCP 2026-07-28, "Streamable
HTTP"). One annotation that breaks its rules spoils the tool, never the server. Names are checked as
tokens and values are encoded, so that nothing a server or a model says can end a field or begin another.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Iterator, Mapping

from ..errors import UsageError, WireError
from ..wire.excerpts import quote_whole
from ..wire.httpfields import is_token
from ..wire.jsontext import Json

__all__ = ["Mirror", "encode_value", "find_mirrors", "mirror_arguments"]

_ANNOTATION = "x-mcp-header"
_FIELD_PREFIX = "Mcp-Param-"
_MIRRORED_TYPES = ("string", "integer", "boolean")
# RFC 8259, section 6: integers that every implementation agrees on
_LARGEST_INTEGER = 2**53 - 1
_QUOTED_CHARS = 60

# JSON Schema 2020-12 and draft 7: where in a schema there are schemas
_SCHEMA_IN = (
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
_SCHEMAS_IN_LIST = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_SCHEMAS_IN_MAP = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)

# what goes as it is: visible ASCII and blanks inside
_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_ENCODED = re.compile(r"=\?base64\?.*\?=", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Mirror:
    """One argument that is repeated: ``path`` are the names of properties that lead to it, ``field`` is
    the name of the header field, ``type`` its declared JSON type."""

    path: tuple[str, ...]
    field: str
    type: str


def find_mirrors(schema: Json) -> tuple[Mirror, ...]:
    """Return what the input *schema* wants repeated; :class:`WireError` for an annotation that breaks a rule."""
    mirrors: list[Mirror] = []
    seen: set[str] = set()
    for path, node in _schemas(schema, ()):
        if _ANNOTATION not in node:
            continue
        mirror = _check_mirror(path, node)
        if mirror.field.lower() in seen:
            raise WireError(
                f"{_ANNOTATION} {quote_whole(mirror.field[len(_FIELD_PREFIX):], _QUOTED_CHARS)} stands twice"
            )
        seen.add(mirror.field.lower())
        mirrors.append(mirror)
    return tuple(mirrors)


def mirror_arguments(
    mirrors: tuple[Mirror, ...], arguments: Mapping[str, Json], *, max_bytes: int
) -> tuple[tuple[str, str], ...]:
    """Return the header fields of a call with *arguments* as (name, value), of *max_bytes* in all.

    Raises :class:`UsageError` for a value that does not fit its declared type, which the server would refuse,
    and for more than that.
    """
    fields = []
    for mirror in mirrors:
        value: Json = arguments
        for step in mirror.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            fields.append((mirror.field, encode_value(_text_of(mirror, value))))
    size = sum(len(name) + len(value) for name, value in fields)
    if size > max_bytes:
        raise UsageError(
            f"the arguments that header fields repeat have {size} bytes there, {max_bytes} are allowed"
        )
    return tuple(fields)


def encode_value(text: str) -> str:
    """Return *text* as the value of a field: as it is where that is safe, else in base64."""
    if _PLAIN.fullmatch(text) and not _ENCODED.fullmatch(text):
        return text
    # NOTE: a lone surrogate passes, because the message that is repeated cannot be encoded then.
    encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")
    return f"=?base64?{encoded}?="


def _schemas(
    node: Json, path: tuple[str, ...] | None
) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Json]]]:
    """Yield every schema in *node* with the properties that lead to it, None where other keywords do."""
    if not isinstance(node, dict):
        return
    yield path, node
    for keyword in _SCHEMAS_IN_MAP:
        inner = node.get(keyword)
        for name, one in inner.items() if isinstance(inner, dict) else ():
            steps = path + (name,) if keyword == "properties" and path is not None else None
            yield from _schemas(one, steps)
    for keyword in _SCHEMA_IN:
        yield from _schemas(node.get(keyword), None)
    for keyword in _SCHEMAS_IN_LIST:
        inner = node.get(keyword)
        for one in inner if isinstance(inner, list) else ():
            yield from _schemas(one, None)


def _check_mirror(path: tuple[str, ...] | None, node: dict[str, Json]) -> Mirror:
    token, kind = node[_ANNOTATION], node.get("type")
    if not isinstance(token, str) or not is_token(token):
        shown = quote_whole(token, _QUOTED_CHARS) if isinstance(token, str) else "no string"
        raise WireError(f"{_ANNOTATION} must be a token of RFC 9110, found {shown}")
    where = f"{_ANNOTATION} {quote_whole(token, _QUOTED_CHARS)}"
    if not path:
        raise WireError(f"{where} is not at a property that is reached by properties alone")
    if not isinstance(kind, str) or kind not in _MIRRORED_TYPES:
        raise WireError(f"{where} needs the type string, integer or boolean")
    return Mirror(path, _FIELD_PREFIX + token, kind)


def _text_of(mirror: Mirror, value: Json) -> str:
    if mirror.type == "string" and isinstance(value, str):
        return value
    if mirror.type == "boolean" and isinstance(value, bool):
        return "true" if value else "false"
    if mirror.type == "integer" and isinstance(value, (int, float)) and not isinstance(value, bool):
        if abs(value) <= _LARGEST_INTEGER and value == int(value):
            return str(int(value))
    raise UsageError(f'the argument "{".".join(mirror.path)}" does not fit its type {mirror.type}')
