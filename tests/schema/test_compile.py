"""The compiled schema as its users see it: the official tests, bounds, what is told, and many threads."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from latch.errors import SchemaError, UsageError
from latch.limits import SchemaLimits
from latch.schema.compile import Schema, SchemaIssue
from tests.support.schema_pairs import pairs
from tests.support.schema_vectors import DRAFT_7, LIMITS, compiled, issue_of, load_vectors, names_of, told_of
from tests.support.shallow import outcomes_near_the_end
from tests.support.tree import ROOT

BAD = load_vectors("bad")
EVERY = [(name, vector) for name in ("references", "uncertain", "evaluated") for vector in load_vectors(name)]
PAIRS = 400

SUITE = Path(os.environ.get("LATCH_JSON_SCHEMA_SUITE") or ROOT / "../shared/json-schema-suite")
DRAFTS = ("draft2020-12", "draft7")
NETWORK = "refers to a document on the network, or to a meta-schema by its address"
VOCABULARY = "chooses vocabularies by a meta-schema on the network"
# Tests of the official suite that fail: (draft, file) -> why, and (number of the case, number of the test).
EXCEPTIONS = {
    ("draft2020-12", "defs.json"): (NETWORK, {(0, 1)}),
    ("draft2020-12", "dynamicRef.json"): (
        NETWORK,
        {(13, 0), (14, 0), (14, 1), (15, 0), (15, 1), (16, 0), (16, 1), (17, 1)},
    ),
    ("draft2020-12", "ref.json"): (NETWORK, {(6, 1)}),
    ("draft2020-12", "refRemote.json"): (
        NETWORK,
        {(n, 1) for n in range(7)} | {(7, 2), (8, 0), (9, 1), (10, 0), (11, 0), (12, 0), (13, 0), (14, 1)},
    ),
    ("draft2020-12", "vocabulary.json"): (VOCABULARY, {(0, 2)}),
    ("draft7", "definitions.json"): (NETWORK, {(0, 1)}),
    ("draft7", "ref.json"): (NETWORK, {(7, 1)}),
    ("draft7", "refRemote.json"): (
        NETWORK,
        {(n, 1) for n in range(6)} | {(6, 2), (7, 0), (8, 1), (9, 0), (10, 1)},
    ),
}
FILES = [(draft, file.name) for draft in DRAFTS for file in sorted((SUITE / "tests" / draft).glob("*.json"))]


@pytest.mark.skipif(not FILES, reason=f"no official tests in {SUITE}, LATCH_JSON_SCHEMA_SUITE names them")
@pytest.mark.parametrize(("draft", "name"), FILES or [("", "")], ids="/".join)
def test_the_official_tests_pass_but_for_those_listed(draft: str, name: str) -> None:
    why, listed = EXCEPTIONS.get((draft, name), ("", set()))
    failed, untold = set(), []
    cases = json.loads((SUITE / "tests" / draft / name).read_text(encoding="utf-8"))
    for number, case in enumerate(cases):
        schema = compiled(in_draft(case["schema"], draft))
        results = [schema.is_valid(test["data"]) is test["valid"] for test in case["tests"]]
        failed.update((number, index) for index, passed in enumerate(results) if not passed)
        if not all(results) and not schema.unchecked:
            untold.append(number)
    assert failed == listed, why
    assert untold == []


def in_draft(schema: Any, draft: str) -> Any:
    """Return *schema* with its dialect said, which the tests of draft 7 leave to who runs them."""
    if draft == "draft7" and isinstance(schema, dict):
        return {"$schema": DRAFT_7, **schema}
    return schema


@pytest.mark.parametrize("vector", BAD, ids=names_of(BAD))
def test_a_schema_that_is_wrong_is_refused_with_place_and_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as raised:
        compiled(vector["schema"])
    assert raised.value.reason == vector["reason"]


@pytest.mark.parametrize(
    "vector", [vector for _, vector in EVERY], ids=[f"{n}: {v['name']}" for n, v in EVERY]
)
def test_a_vector_is_told_as_it_should_be(vector: dict[str, Any]) -> None:
    for found, expected in told_of(vector):
        assert found == expected


def test_an_issue_names_the_place_the_keyword_and_the_reason() -> None:
    schema = compiled({"properties": {"a": {"items": {"type": "string"}}}})
    issue = schema.first_issue({"a": ["x", 1]})
    assert issue == SchemaIssue("/a/1", "type", "is an integer, not a string")
    assert str(issue) == 'at "/a/1": is an integer, not a string'
    assert str(compiled(False).first_issue(1)) == 'at "": is not allowed'


def test_a_place_has_its_bound() -> None:
    schema = compiled({"additionalProperties": {"type": "null"}}, max_path_chars=10)
    assert issue_of(schema, {"x" * 50: 1}) == ["/xxxxxxxxx...", "type", "is an integer, not null"]


@pytest.mark.parametrize(
    ("value", "good", "bad"),
    [
        (True, [1, None, {}], []),
        (False, [], [1, None, {}]),
        ({}, [1, None, {}], []),
        (MappingProxyType({"type": "object"}), [{}], [1]),
    ],
)
def test_booleans_empty_schemas_and_views_are_schemas(value: Any, good: list[Any], bad: list[Any]) -> None:
    schema = compiled(value)
    assert [schema.is_valid(instance) for instance in good + bad] == [True] * len(good) + [False] * len(bad)


@pytest.mark.parametrize("instance", [(1,), {1}, b"a", object()], ids=lambda value: type(value).__name__)
def test_what_is_no_json_value_is_the_mistake_of_the_caller(instance: Any) -> None:
    with pytest.raises(UsageError, match="is not JSON"):
        compiled({"type": "object", "minProperties": 1}).is_valid(instance)


def test_a_schema_is_compiled_once_and_keeps_nothing_of_a_check() -> None:
    schema = compiled(
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "maxItems": 2}}}, max_steps=60
    )
    for _ in range(100):
        assert schema.is_valid([[[]], []])
        assert not schema.is_valid([[[], [], []]])


@pytest.mark.parametrize("depth", [10, 120])
def test_an_instance_as_deep_as_a_message_may_be_is_checked(depth: int) -> None:
    schema = compiled({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]})
    good: Any = None
    bad: Any = 1
    for _ in range(depth):
        good, bad = [good], [bad]
    assert schema.is_valid(good)
    assert not schema.is_valid(bad)


def test_little_stack_left_is_no_recursion_error() -> None:
    nested: Any = True
    instance: Any = 1
    for _ in range(60):
        nested, instance = {"items": {"allOf": [nested]}, "const": instance}, [instance]
    schema = compiled({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}})
    deep = outcomes_near_the_end(lambda: schema.is_valid(instance))
    assert deep <= {True, "too little stack is left to check the value"}
    assert True in deep
    wide = outcomes_near_the_end(lambda: compiled(nested).unchecked)
    assert wide <= {(), "too little stack is left to compile the schema"}
    assert () in wide


def test_the_places_that_are_not_checked_are_told_up_to_a_limit() -> None:
    schema = compiled({"allOf": [{"$ref": f"{number}.json"} for number in range(9)]}, max_unchecked=3)
    assert len(schema.unchecked) == 4
    assert schema.unchecked[-1] == "and 6 more places"


def test_what_is_compiled_counts_against_the_schemas_of_one_document() -> None:
    value = {"allOf": [{"not": True}] * 5}
    assert compiled(value, max_nodes=11).unchecked == ()
    with pytest.raises(SchemaError, match="max_nodes"):
        compiled(value, max_nodes=10)


def test_invented_schemas_give_verdicts_and_nothing_else() -> None:
    verdicts = [
        compiled(schema).is_valid(instance)
        for _, schema, instance in pairs(35, schemas=PAIRS // 5, instances=5)
    ]
    assert PAIRS // 5 < sum(verdicts) < PAIRS - PAIRS // 5


def test_spoilt_schemas_are_compiled_or_refused_and_nothing_else() -> None:
    source = random.Random(36)
    for label, schema, instance in pairs(36, schemas=PAIRS, instances=1):
        text = json.dumps(schema)
        for _ in range(3):
            words = text.split('"')
            at = source.randrange(len(words))
            words[at] = source.choice(["items", "$ref", "#/$defs/d0", "1", ": 1", "anyOf", "", "\\\\1"])
            try:
                spoilt = json.loads('"'.join(words))
            except ValueError:
                continue
            try:
                compiled(spoilt).is_valid(instance)
            except SchemaError as error:
                assert 0 < len(error.reason) < 400, label


def test_several_threads_share_a_schema() -> None:
    schema = compiled({"items": {"pattern": "^(?:ab|c)+$", "maxLength": 40}, "uniqueItems": True})
    good = ["ab" * number for number in range(1, 20)]
    wrong: list[object] = []

    def work() -> None:
        for _ in range(100):
            verdicts = (schema.is_valid(good), schema.is_valid([*good, "d"]), schema.is_valid([*good, "ab"]))
            if verdicts != (True, False, False):
                wrong.append(verdicts)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_everyday_check_takes_few_steps() -> None:
    properties = {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}
    value = {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False}
    assert Schema.compile(value, SchemaLimits(max_steps=8)).is_valid({"a": "x", "b": 1, "c": True})
    # The values of the largest message, which takes two bytes for each, and a step for each and one more.
    assert LIMITS.max_steps > 4 * 1024**2
