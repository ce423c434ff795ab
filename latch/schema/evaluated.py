"""``unevaluatedProperties`` and ``unevaluatedItems``: what no other keyword has looked at.

Annotations are not collected on the way, because only these two keywords read them. When one of them is met,
and all else in its schema has passed, a *collector* walks the keywords beside it and what they apply to the
same instance, and names what they evaluated: property names, or indexes of items. A schema that the instance
does not fit evaluates nothing; one in which something is not checked may have evaluated anything.
Source: Core 2020-12, sections 7.7.1 and 11.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import Callable, Mapping, Set, Tuple

from .applicators import outermost, unexpected
from .patterns import Pattern
from .references import Node
from .sites import ARRAY, OBJECT, Compiler, Rule, Site
from .verdicts import Check, Collector, Failure, Json, Run, Token, accept

__all__ = ["UNEVALUATED", "collect_nothing", "collector_of"]

Seen = Set[Token]
# The types it is for, and what it collects of them.
_Part = Tuple[Tuple[type, ...], Collector]
_BOTH = (dict, list)


def collect_nothing(instance: Json, run: Run, seen: Seen) -> None:
    """The collector of a schema that evaluates nothing."""


def collector_of(sites: Mapping[str, Site]) -> Collector:
    """Return the collector of the schema that has the keywords *sites*."""
    parts = [collect(sites[keyword]) for keyword, collect in _COLLECTORS.items() if keyword in sites]
    by_type = {kind: tuple(part for types, part in parts if kind in types) for kind in _BOTH}
    return partial(_collect_all, by_type) if parts else collect_nothing


def _collect_all(parts: Mapping[type, tuple[Collector, ...]], instance: Json, run: Run, seen: Seen) -> None:
    collectors = parts.get(type(instance), ())
    run.spend(len(collectors))
    for collect in collectors:
        collect(instance, run, seen)


def _everything(instance: Json, run: Run, seen: Seen) -> None:
    run.spend(len(instance))
    seen.update(instance if isinstance(instance, dict) else range(len(instance)))


# --- the two keywords ---------------------------------------------------------------------------------------


def _unevaluated(types: tuple[type, ...], site: Site) -> Rule | None:
    check = site.inner().check
    if check is accept:
        return None
    beside = {keyword: site.sibling(keyword) for keyword in site.schema if keyword not in UNEVALUATED}
    collect = collector_of({keyword: one for keyword, one in beside.items() if one is not None})
    return Rule(types, partial(_check_unevaluated, site.keyword, collect, check))


def _check_unevaluated(
    keyword: str, collect: Collector, check: Check, instance: Json, run: Run
) -> Failure | None:
    seen: Seen = set()
    collect(instance, run, seen)
    run.spend(len(instance))
    for token, value in instance.items() if isinstance(instance, dict) else enumerate(instance):
        if token not in seen:
            failure = check(value, run)
            if failure is not None:
                return unexpected(keyword, token, failure)
    return None


UNEVALUATED: Mapping[str, Compiler] = MappingProxyType(
    {
        "unevaluatedItems": partial(_unevaluated, ARRAY),
        "unevaluatedProperties": partial(_unevaluated, OBJECT),
    }
)

# --- the same instance --------------------------------------------------------------------------------------


def _ref(site: Site) -> _Part:
    target = site.node.links[site.keyword]
    return _BOTH, _everything if target is None else partial(_collect_ref, target)


def _collect_ref(target: Node, instance: Json, run: Run, seen: Seen) -> None:
    run.enter(target.resource)
    target.collect(instance, run, seen)
    run.leave()


def _dynamic_ref(site: Site) -> _Part:
    target, name = site.node.links[site.keyword], site.dynamic_name()
    if target is None or name is None:
        return _ref(site)
    return _BOTH, partial(_collect_dynamic, name, target)


def _collect_dynamic(name: str, target: Node, instance: Json, run: Run, seen: Seen) -> None:
    _collect_ref(outermost(name, target, run), instance, run, seen)


def _all_of(site: Site) -> _Part:
    return _BOTH, partial(_collect_each, tuple(site.inner(index) for index in range(len(site.items()))))


def _collect_each(nodes: tuple[Node, ...], instance: Json, run: Run, seen: Seen) -> None:
    run.spend(len(nodes))
    for node in nodes:
        node.collect(instance, run, seen)


def _any_of(site: Site) -> _Part:
    return _BOTH, partial(_collect_fitting, tuple(site.inner(index) for index in range(len(site.items()))))


def _collect_fitting(nodes: tuple[Node, ...], instance: Json, run: Run, seen: Seen) -> None:
    run.spend(len(nodes))
    for node in nodes:
        if node.check(instance, run) is None:
            node.collect(instance, run, seen)


def _if(site: Site) -> _Part:
    branches = [site.sibling(keyword) for keyword in ("then", "else")]
    nodes = [None if branch is None else branch.inner() for branch in branches]
    return _BOTH, partial(_collect_branch, site.inner(), *nodes)


def _collect_branch(
    node: Node, yes: Node | None, no: Node | None, instance: Json, run: Run, seen: Seen
) -> None:
    fits = node.check(instance, run) is None
    # When what it asks is not checked in full, either branch may have been the one.
    for one, counts in ((node, fits), (yes, fits), (no, not fits or node.is_uncertain)):
        if one is not None and counts:
            one.collect(instance, run, seen)


def _dependent_schemas(site: Site) -> _Part:
    # In "dependencies" there may be lists of names, which evaluate nothing.
    named = (
        (name, site.inner(name)) for name, value in site.mapping().items() if not isinstance(value, list)
    )
    return OBJECT, partial(_collect_dependent, tuple(named))


def _collect_dependent(table: tuple[tuple[str, Node], ...], instance: Json, run: Run, seen: Seen) -> None:
    run.spend(len(table))
    for name, node in table:
        if name in instance:
            node.collect(instance, run, seen)


# --- properties and items -----------------------------------------------------------------------------------


def _every(types: tuple[type, ...], site: Site) -> _Part:
    return types, _everything


def _properties(site: Site) -> _Part:
    return OBJECT, partial(_collect_names, tuple(site.mapping()))


def _collect_names(names: tuple[str, ...], instance: Json, run: Run, seen: Seen) -> None:
    run.spend(len(names))
    seen.update([name for name in names if name in instance])


def _pattern_properties(site: Site) -> _Part:
    patterns = tuple(map(site.known_pattern, site.mapping()))
    return OBJECT, _everything if None in patterns else partial(_collect_matching, patterns)


def _collect_matching(patterns: tuple[Pattern, ...], instance: Json, run: Run, seen: Seen) -> None:
    seen.update([name for name in instance if any(pattern.search(name, run) for pattern in patterns)])


def _prefix_items(site: Site) -> _Part:
    return ARRAY, partial(_collect_prefix, len(site.items()))


def _collect_prefix(count: int, instance: Json, run: Run, seen: Seen) -> None:
    run.spend(min(count, len(instance)))
    seen.update(range(min(count, len(instance))))


def _contains(site: Site) -> _Part:
    return ARRAY, partial(_collect_contained, site.inner())


def _collect_contained(node: Node, instance: Json, run: Run, seen: Seen) -> None:
    run.spend(len(instance))
    seen.update([index for index, item in enumerate(instance) if node.check(item, run) is None])


_COLLECTORS: Mapping[str, Callable[[Site], _Part]] = MappingProxyType(
    {
        "$ref": _ref,
        "$dynamicRef": _dynamic_ref,
        "allOf": _all_of,
        "anyOf": _any_of,
        "oneOf": _any_of,
        "if": _if,
        "dependentSchemas": _dependent_schemas,
        "dependencies": _dependent_schemas,
        "properties": _properties,
        "patternProperties": _pattern_properties,
        "additionalProperties": partial(_every, OBJECT),
        "unevaluatedProperties": partial(_every, OBJECT),
        "prefixItems": _prefix_items,
        "items": partial(_every, ARRAY),
        "contains": _contains,
        "unevaluatedItems": partial(_every, ARRAY),
    }
)
