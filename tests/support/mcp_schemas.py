"""The official schemas of MCP, and as much of JSON Schema as they need, independent of our own.

They are read from the directory that ``LATCH_MCP_SCHEMAS`` names, by default ``../shared/mcp-schema`` beside
the checkout; where it is absent the test that asks is skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterator

import pytest

__all__ = ["OfficialSchema"]

Json = Any

CHECKOUT = Path(__file__).resolve().parents[2]
KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
UNDERSTOOD = {
    *(
        "$ref",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "allOf",
        "const",
        "enum",
    ),
    *("minimum", "maximum", "description", "format", "default", "title"),
}


class OfficialSchema:
    """All definitions of one revision."""

    def __init__(self, version: str) -> None:
        folder = Path(os.environ.get("LATCH_MCP_SCHEMAS", CHECKOUT / ".." / "shared" / "mcp-schema"))
        if not folder.is_dir():
            pytest.skip(f"no official schemas in {folder}")
        self._document = json.loads((folder / f"{version}.json").read_text(encoding="utf-8"))

    def faults(self, name: str, value: Json) -> list[str]:
        """Return what keeps *value* from being a *name*, each with its place."""
        part = "$defs" if "$defs" in self._document else "definitions"
        return list(self._faults(self._document[part][name], value, ""))

    def _faults(self, schema: Json, value: Json, place: str) -> Iterator[str]:
        assert isinstance(schema, dict) and set(schema) <= UNDERSTOOD, schema
        if "$ref" in schema:
            yield from self._faults(self._resolve(schema["$ref"]), value, place)
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(is_kind(value, kind) for kind in kinds):
            yield f"{place}: not {kinds}"
        if "const" in schema and value != schema["const"]:
            yield f"{place}: not {schema['const']}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{place}: none of {schema['enum']}"
        if (
            "minimum" in schema
            and value < schema["minimum"]
            or "maximum" in schema
            and value > schema["maximum"]
        ):
            yield f"{place}: out of range"
        for part in schema.get("allOf", []):
            yield from self._faults(part, value, place)
        tried = [list(self._faults(part, value, place)) for part in schema.get("anyOf", [])]
        if tried and all(tried):
            yield f"{place}: none of {len(tried)}: {tried}"
        if isinstance(value, dict):
            yield from self._member_faults(schema, value, place)
        if isinstance(value, list) and "items" in schema:
            for number, item in enumerate(value):
                yield from self._faults(schema["items"], item, f"{place}/{number}")

    def _member_faults(self, schema: Json, value: Json, place: str) -> Iterator[str]:
        yield from (f"{place}: no {name}" for name in schema.get("required", []) if name not in value)
        for name, member in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            if inner is False:
                yield f"{place}: {name} is too much"
            elif inner is not True:
                yield from self._faults(inner, member, f"{place}/{name}")

    def _resolve(self, reference: str) -> Json:
        found = self._document
        for step in reference[len("#/") :].split("/"):
            found = found[step]
        return found


def is_kind(value: Json, kind: str) -> bool:
    """Tell whether *value* is of a JSON type."""
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind])
