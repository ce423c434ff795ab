"""The two drafts: which keywords hold schemas, and what a reference does to the keywords beside it.

Sources: JSON Schema Core 2020-12, sections 10 and 11, and its meta-schemas; draft 7 Validation and Core.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Iterator, Mapping

from .verdicts import Json, Token

__all__ = ["DRAFT_2020_12", "DRAFT_7", "Dialect", "Shape", "dialect_of", "inner_schemas"]


class Shape(Enum):
    """How the value of a keyword holds schemas."""

    ONE = "one schema"
    LIST = "a list of schemas"
    MAP = "schemas by name"
    ONE_OR_LIST = "one schema or a list"


@dataclass(frozen=True)
class Dialect:
    """One draft. ``shapes`` are the keywords that hold schemas; ``reference_rules_alone`` tells that the
    keywords beside a ``$ref`` mean nothing (draft 7, Core section 8.3)."""

    name: str
    shapes: Mapping[str, Shape]
    reference_rules_alone: bool


_SHARED = {
    "additionalProperties": Shape.ONE,
    "contains": Shape.ONE,
    "else": Shape.ONE,
    "if": Shape.ONE,
    "not": Shape.ONE,
    "propertyNames": Shape.ONE,
    "then": Shape.ONE,
    "dependencies": Shape.MAP,
    "allOf": Shape.LIST,
    "anyOf": Shape.LIST,
    "oneOf": Shape.LIST,
    "definitions": Shape.MAP,
    "patternProperties": Shape.MAP,
    "properties": Shape.MAP,
}
DRAFT_2020_12 = Dialect(
    "draft 2020-12",
    MappingProxyType(
        {
            **_SHARED,
            "contentSchema": Shape.ONE,
            "items": Shape.ONE,
            "unevaluatedItems": Shape.ONE,
            "unevaluatedProperties": Shape.ONE,
            "prefixItems": Shape.LIST,
            "$defs": Shape.MAP,
            "dependentSchemas": Shape.MAP,
        }
    ),
    reference_rules_alone=False,
)
DRAFT_7 = Dialect(
    "draft 7",
    MappingProxyType(
        {
            **_SHARED,
            "additionalItems": Shape.ONE,
            "items": Shape.ONE_OR_LIST,
        }
    ),
    reference_rules_alone=True,
)
_BY_ADDRESS: Mapping[str, Dialect] = MappingProxyType(
    {
        "https://json-schema.org/draft/2020-12/schema": DRAFT_2020_12,
        "http://json-schema.org/draft-07/schema": DRAFT_7,
        # Written by mistake, and meant.
        "http://json-schema.org/draft/2020-12/schema": DRAFT_2020_12,
        "https://json-schema.org/draft-07/schema": DRAFT_7,
    }
)


def dialect_of(address: Json) -> Dialect | None:
    """Return the dialect that a ``$schema`` of *address* chooses, or None when it is not one of ours."""
    return _BY_ADDRESS.get(address.removesuffix("#")) if isinstance(address, str) else None


def inner_schemas(schema: Mapping[str, Json], dialect: Dialect) -> Iterator[tuple[tuple[Token, ...], Json]]:
    """Yield (tokens from *schema*, value) of the schemas right inside it; what is misshapen is left out."""
    for keyword, value in schema.items():
        shape = dialect.shapes.get(keyword)
        if shape is None:
            continue
        if isinstance(value, list) and shape in (Shape.LIST, Shape.ONE_OR_LIST):
            found = [((keyword, index), item) for index, item in enumerate(value)]
        elif isinstance(value, dict) and shape is Shape.MAP:
            found = [((keyword, name), item) for name, item in value.items()]
        elif shape in (Shape.ONE, Shape.ONE_OR_LIST):
            found = [((keyword,), value)]
        else:
            continue
        yield from (one for one in found if isinstance(one[1], (dict, bool)))
