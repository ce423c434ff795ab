"""Invented schemas and instances of them, for comparing what two implementations say.

Both are small and drawn from few names and values, so that most schemas accept some instances and refuse
others. References lead into ``$defs``; one that is followed without going into the instance leads only to a
later definition, so that no schema loops. Left out is what another implementation answers in its own way:
fractions that are not exact in binary, formats, patterns with classes that differ between dialects, and in
draft 7 a boolean as ``items``.
"""

from __future__ import annotations

import random
from typing import Any, Callable, Iterator

NAMES = ("a", "b", "ab", "c")
TEXTS = ("", "a", "ab", "abc", "b", "ba", "\u00e9")
NUMBERS = (-2, -1, 0, 1, 2, 3, 10, 0.5, 1.0, 1.5, 2.0, -0.0, 1e300, 2**60)
PATTERNS = ("^a", "b$", "^a*$", "a|b", "^[ab]{1,2}$", "c", "^(?:ab)?$", "a.c")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
DEFINITIONS = 3
DIALECTS = {
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
    "7": "http://json-schema.org/draft-07/schema#",
}


def pairs(seed: int, *, schemas: int, instances: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield (label, schema, instance): *schemas* invented by *seed*, each with as many *instances*."""
    for number in range(schemas):
        inventor = Inventor(random.Random(f"{seed} {number}"))
        schema = inventor.document()
        for _ in range(instances):
            yield f"seed {seed}, schema {number}", schema, inventor.instance(3)


class Inventor:
    """Invents schemas of one dialect, and instances, from *source*."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._dialect = source.choice(sorted(DIALECTS))

    def document(self) -> Any:
        """Return a whole schema with its dialect and definitions."""
        root = self.schema(3, first_free=0)
        if isinstance(root, bool):
            return root
        if self._dialect == "7" and "$ref" in root:
            root = {"allOf": [root]}
        definitions = {f"d{n}": self.schema(2, first_free=n + 1) for n in range(DEFINITIONS)}
        return {"$schema": DIALECTS[self._dialect], "$defs": definitions, **root}

    def schema(self, depth: int, *, first_free: int) -> Any:
        """Return a schema *depth* levels deep whose references for the same value begin at *first_free*."""
        if depth == 0 or self._source.random() < 0.1:
            return self._source.choice([True, True, False, {}, {"type": self._source.choice(TYPES)}])
        makers = [*self._plain(), *self._nested(depth - 1, first_free)]
        schema: dict[str, Any] = {}
        for make in self._source.sample(makers, k=self._source.choice([1, 1, 2, 3, 4])):
            schema.update(make())
        return schema

    def instance(self, depth: int) -> Any:
        """Return an instance at most *depth* levels deep."""
        kind = self._source.randrange(9)
        if kind < 3 and depth:
            names = self._source.sample(NAMES, k=self._source.randrange(len(NAMES)))
            return {name: self.instance(depth - 1) for name in names}
        if kind < 5 and depth:
            return [self.instance(depth - 1) for _ in range(self._source.randrange(4))]
        if kind < 7:
            return self._source.choice(NUMBERS)
        return self._source.choice([*TEXTS, *TEXTS, True, False, None])

    def _plain(self) -> list[Callable[[], dict[str, Any]]]:
        source = self._source
        pick = source.choice
        size = lambda: source.randrange(3)  # noqa: E731
        plain = [
            lambda: {"type": pick([pick(TYPES), source.sample(TYPES, k=2)])},
            lambda: {"const": self.instance(1)},
            lambda: {"enum": [self.instance(1) for _ in range(4)]},
            lambda: {pick(["minimum", "exclusiveMinimum"]): pick(NUMBERS)},
            lambda: {pick(["maximum", "exclusiveMaximum"]): pick(NUMBERS)},
            lambda: {"multipleOf": pick([1, 2, 4, 0.5])},
            lambda: {"minLength": size()},
            lambda: {"maxLength": pick([size(), float(size())])},
            lambda: {"pattern": pick(PATTERNS)},
            lambda: {"minItems": size()},
            lambda: {"maxItems": size()},
            lambda: {"uniqueItems": pick([True, True, False])},
            lambda: {"minProperties": size()},
            lambda: {"maxProperties": size()},
            lambda: {"required": source.sample(NAMES, k=size())},
            lambda: {"dependentRequired": {pick(NAMES): source.sample(NAMES, k=size())}},
        ]
        return plain if self._dialect == "2020-12" else plain[:-1]

    def _nested(self, depth: int, first_free: int) -> list[Callable[[], dict[str, Any]]]:
        pick = self._source.choice
        same = lambda: self.schema(depth, first_free=first_free)  # noqa: E731
        # What is held against a part of the value may lead back to anything.
        part = lambda: self.schema(depth, first_free=0)  # noqa: E731
        some = lambda make: [make() for _ in range(self._source.randrange(1, 4))]  # noqa: E731
        named = lambda names, make: {pick(names): make() for _ in range(2)}  # noqa: E731
        nested = [
            lambda: {"properties": named(NAMES, part)},
            lambda: {"properties": named(NAMES, part), "additionalProperties": part()},
            lambda: {"patternProperties": named(PATTERNS, part), "additionalProperties": part()},
            lambda: {"propertyNames": part()},
            lambda: {"contains": part()},
            lambda: {"allOf": some(same)},
            lambda: {"anyOf": some(same)},
            lambda: {"oneOf": some(same)},
            lambda: {"not": same()},
            lambda: {"if": same(), "then": same(), "else": same()},
            lambda: {"if": same(), pick(["then", "else"]): same()},
        ]
        if first_free < DEFINITIONS:
            nested.append(lambda: {"$ref": f"#/$defs/d{self._source.randrange(first_free, DEFINITIONS)}"})
        if self._dialect == "7":
            return [
                *nested,
                lambda: {"items": {"allOf": [part()]}},
                lambda: {"items": some(part), "additionalItems": part()},
                lambda: {"dependencies": {pick(NAMES): pick([same(), [pick(NAMES)]])}},
            ]
        return [
            *nested,
            lambda: {"items": part()},
            lambda: {"prefixItems": some(part), "items": part()},
            lambda: {"contains": part(), "minContains": pick([0, 1, 2]), "maxContains": pick([0, 1, 2])},
            lambda: {"dependentSchemas": named(NAMES, same)},
            lambda: {"unevaluatedProperties": part(), **pick([{"allOf": some(same)}, {"anyOf": some(same)}])},
            lambda: {
                "unevaluatedItems": part(),
                **pick([{"oneOf": some(same)}, {"if": same(), "then": same()}]),
            },
            lambda: {"unevaluatedProperties": False, "properties": named(NAMES, part)},
            lambda: {"unevaluatedItems": False, "prefixItems": some(part)},
        ]
