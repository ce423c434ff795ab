"""Vectors of schemas in ``fixtures/schema``, which ``fixtures/README.rst`` describes, compiled and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from latch.limits import SchemaLimits
from latch.schema.compile import Schema

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "schema"
LIMITS = SchemaLimits()
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def load_vectors(name: str) -> list[dict[str, Any]]:
    """Return the vectors of ``fixtures/schema/<name>.json``."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]


def names_of(vectors: list[dict[str, Any]]) -> list[str]:
    """Return test ids for *vectors*, and insist that no two are the same."""
    names = [vector["name"] for vector in vectors]
    assert len(set(names)) == len(names)
    return names


def compiled(schema: Any, **limits: int) -> Schema:
    """Return *schema* compiled under the default limits, or those of *limits*."""
    return Schema.compile(schema, SchemaLimits(**limits))


def told_of(vector: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return, for each instance of *vector*, what was found and what should have been, as JSON values."""
    schema = compiled(vector["schema"])
    found = [(list(schema.unchecked), vector.get("unchecked", []))]
    for instance in vector.get("good", []):
        found.append(([instance, issue_of(schema, instance)], [instance, None]))
    for instance, *expected in vector.get("bad", []):
        found.append(([instance, issue_of(schema, instance)], [instance, expected]))
    return found


def issue_of(schema: Schema, instance: Any) -> list[str] | None:
    """Return path, keyword and reason of what is found first in *instance*, or None when it fits."""
    issue = schema.first_issue(instance)
    assert schema.is_valid(instance) is (issue is None)
    return None if issue is None else [issue.path, issue.keyword, issue.reason]
