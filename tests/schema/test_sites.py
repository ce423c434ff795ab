"""What a keyword may ask of its place, what it refuses, and what is told of that which is not checked."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from latch.errors import SchemaError
from latch.limits import SchemaLimits
from latch.schema.patterns import Pattern
from latch.schema.references import Document
from latch.schema.sites import Omissions, Site
from tests.support.schema_vectors import LIMITS


def site_of(schema: Any, keyword: str = "k", *, limits: SchemaLimits = LIMITS) -> Site:
    document = Document(schema, limits)
    return Site(document.root, keyword, document=document, omissions=Omissions(limits), limits=limits)


def refusal(ask: Callable[[], Any]) -> str:
    with pytest.raises(SchemaError) as raised:
        ask()
    return raised.value.reason


@pytest.mark.parametrize(
    ("value", "ask", "expected"),
    [
        (3, Site.count, 3),
        (3.0, Site.count, 3),
        (0, Site.count, 0),
        (1.5, Site.number, 1.5),
        (-2, Site.number, -2),
        ("a", Site.text, "a"),
        (["a", "b"], Site.names, ("a", "b")),
        ([], Site.names, ()),
        ([1], Site.items, [1]),
        ({"a": 1}, Site.mapping, {"a": 1}),
    ],
)
def test_a_value_of_the_right_kind_is_returned(value: Any, ask: Callable[[Site], Any], expected: Any) -> None:
    found = ask(site_of({"k": value}))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "ask", "reason"),
    [
        (-1, Site.count, "-1 is not a whole number of 0 or more"),
        (1.5, Site.count, "1.5 is not a whole number of 0 or more"),
        (True, Site.count, "true is not a whole number of 0 or more"),
        ("1", Site.count, '"1" is not a whole number of 0 or more'),
        (True, Site.number, "true is not a number"),
        (float("inf"), Site.number, "Infinity is not a number"),
        (None, Site.text, "null is not a string"),
        ("a", Site.names, '"a" is not a list of strings'),
        (["a", 1], Site.names, "an array of 2 is not a list of strings"),
        ([], Site.items, "an array of 0 is not a list with something in it"),
        ({"a": 1}, Site.items, "an object of 1 is not a list with something in it"),
        ([1], Site.mapping, "an array of 1 is not an object"),
        (1, Site.inner, "1 is not a schema"),
        (["x" * 100], lambda site: site.wrong("x", 0).args, None),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_place(
    value: Any, ask: Callable[[Site], Any], reason: str | None
) -> None:
    site = site_of({"k": value})
    if reason is None:
        assert ask(site) == (f'at "/k/0": "{"x" * 60}..." is not x',)
    else:
        assert refusal(lambda: ask(site)) == f'at "/k": {reason}'


def test_a_part_of_a_value_is_refused_with_its_own_place() -> None:
    site = site_of({"dependentRequired": {"a": [1], "b": ["c"]}}, "dependentRequired")
    assert site.names("b") == ("c",)
    assert (
        refusal(lambda: site.names("a"))
        == 'at "/dependentRequired/a": an array of 1 is not a list of strings'
    )


def test_schemas_inside_are_found_by_their_tokens() -> None:
    site = site_of({"allOf": [True, {"x": 1}]}, "allOf")
    assert [site.inner(0).value, site.inner(1).value] == [True, {"x": 1}]


def test_a_sibling_is_another_keyword_of_the_schema() -> None:
    site = site_of({"k": 1, "other": 2})
    other = site.sibling("other")
    assert other is not None and (other.keyword, other.value, other.node) == ("other", 2, site.node)
    assert site.sibling("absent") is None


def test_a_pattern_that_lacks_a_matcher_is_told_and_makes_the_schema_uncertain() -> None:
    document = Document({"pattern": "(?=a)"}, LIMITS)
    omissions = Omissions(LIMITS)
    site = Site(document.root, "pattern", document=document, omissions=omissions, limits=LIMITS)
    assert site.known_pattern("(?=a)") is None
    assert (omissions.sentences, site.node.is_uncertain) == ((), False)
    assert site.pattern("(?=a)") is None
    assert site.node.is_uncertain
    why = "looking ahead or behind is not supported, before character 1"
    assert omissions.sentences == (f'at "/pattern": not checked, {why}',)


def test_a_pattern_is_compiled_once() -> None:
    site = site_of({"k": 1})
    first = site.pattern("a+")
    assert isinstance(first, Pattern)
    assert site.known_pattern("a+") is first


def test_the_bound_on_the_states_of_all_patterns_is_exact_and_counts_each_pattern_once() -> None:
    omissions = Omissions(SchemaLimits(max_all_pattern_states=5))
    omissions.pattern("aa")
    omissions.pattern("aa")
    omissions.pattern("bbb")
    expected = "the patterns of the schema have over 5 states (max_all_pattern_states)"
    assert refusal(lambda: omissions.pattern("c")) == expected


def test_patterns_that_were_read_for_nothing_count_by_their_length() -> None:
    omissions = Omissions(SchemaLimits(max_all_pattern_states=5))
    assert "not supported" in refusal(lambda: omissions.pattern("aaa(?=b)"))
    assert "(max_all_pattern_states)" in refusal(lambda: omissions.pattern("(?=b)"))


def test_what_is_not_checked_is_told_in_order_once_and_up_to_a_limit() -> None:
    omissions = Omissions(SchemaLimits(max_unchecked=2))
    omissions.tell("b")
    omissions.tell("a")
    omissions.tell("b")
    assert omissions.sentences == ("b", "a")
    omissions.tell("c")
    omissions.tell("d")
    assert omissions.sentences == ("b", "a", "and 2 more places")


def test_a_reference_out_of_the_schema_is_told() -> None:
    document = Document({"$ref": "b.json"}, LIMITS)
    omissions = Omissions(LIMITS)
    site = Site(document.root, "$ref", document=document, omissions=omissions, limits=LIMITS)
    document.root.links["$ref"] = None
    assert (site.target(), site.dynamic_name()) == (None, None)
    assert omissions.sentences == ('at "/$ref": not checked, "b.json" is outside of this schema',)


def test_a_reference_inside_leads_to_its_schema() -> None:
    site = site_of({"$ref": "#"}, "$ref")
    site.node.links["$ref"] = site.node
    assert site.target() is site.node
    assert not site.node.is_uncertain


def test_doubts_are_kept_for_later() -> None:
    document = Document({"not": True}, LIMITS)
    omissions = Omissions(LIMITS)
    site = Site(document.root, "not", document=document, omissions=omissions, limits=LIMITS)
    site.doubt(site.inner())
    assert omissions.doubts == [(site, (site.inner(),))]
