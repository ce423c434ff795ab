"""Keywords that hold schemas: those for the same instance, for its properties and for its items.

Each is a row of :data:`APPLICATORS`, as in ``keywords``. The schemas inside are compiled before the one
around them, so that a check is bound to theirs; only a reference asks its target when it is followed, because
it may lead back to the schema it stands in.

A schema in which something is not checked accepts too much and never too little. Where accepting more would
turn into refusing (``not``, more than one of ``oneOf``, the ``then`` of an ``if``, ``maxContains``) there is
no verdict then, and the keyword is told as not checked. Source: Core 2020-12, sections 8.2.3 and 10; draft 7,
Validation, sections 6.4 to 6.7.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import Mapping, Tuple

from .patterns import Pattern
from .references import Node
from .sites import ANY, ARRAY, OBJECT, Compiler, Rule, Site
from .verdicts import Check, Failure, Json, Run, Token, accept, counted

__all__ = ["APPLICATORS", "APPLICATORS_OF_DRAFT_7", "follow", "outermost", "refuse", "unexpected"]

Patterns = Tuple[Pattern, ...]


def refuse(instance: Json, run: Run) -> Failure | None:
    """The check that no value passes."""
    return Failure("false", "is not allowed")


# --- references: Core, 8.2.3 --------------------------------------------------------------------------------


def follow(target: Node, instance: Json, run: Run) -> Failure | None:
    """Hold *instance* against *target*, in whose resource the check then is."""
    run.enter(target.resource)
    failure = target.check(instance, run)
    run.leave()
    return failure


def outermost(name: str, target: Node, run: Run) -> Node:
    """Return the dynamic anchor *name* of the outermost resource entered that has it, else *target*."""
    run.spend(len(run.resources))
    found = (resource.dynamic[name] for resource in run.resources if name in resource.dynamic)
    return next(found, target)


def _ref(site: Site) -> Rule | None:
    target = site.target()
    return None if target is None else Rule(ANY, partial(follow, target))


def _dynamic_ref(site: Site) -> Rule | None:
    target, name = site.target(), site.dynamic_name()
    if target is None or name is None:
        return _ref(site)
    return Rule(ANY, partial(_check_dynamic, name, target))


def _check_dynamic(name: str, target: Node, instance: Json, run: Run) -> Failure | None:
    return follow(outermost(name, target, run), instance, run)


# --- the same instance: Core, 10.2 --------------------------------------------------------------------------


def _nodes(site: Site) -> tuple[Node, ...]:
    return tuple(site.inner(index) for index in range(len(site.items())))


def _all_of(site: Site) -> Rule | None:
    checks = tuple(node.check for node in _nodes(site) if node.check is not accept)
    return Rule(ANY, partial(_check_all, checks)) if checks else None


def _check_all(checks: tuple[Check, ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(checks))
    for check in checks:
        failure = check(instance, run)
        if failure is not None:
            return failure
    return None


def _any_of(site: Site) -> Rule:
    return Rule(ANY, partial(_check_any, tuple(node.check for node in _nodes(site))))


def _check_any(checks: tuple[Check, ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(checks))
    for check in checks:
        if check(instance, run) is None:
            return None
    return Failure("anyOf", f"fits none of the {len(checks)} schemas")


def _one_of(site: Site) -> Rule:
    nodes = _nodes(site)
    site.doubt(*nodes)
    return Rule(ANY, partial(_check_one, nodes))


def _check_one(nodes: tuple[Node, ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(nodes))
    fitting = [node for node in nodes if node.check(instance, run) is None]
    if not fitting:
        return Failure("oneOf", f"fits none of the {len(nodes)} schemas")
    if len(fitting) == 1 or any(node.is_uncertain for node in fitting):
        return None
    return Failure("oneOf", f"fits {len(fitting)} of the {len(nodes)} schemas, exactly one is needed")


def _not(site: Site) -> Rule:
    node = site.inner()
    site.doubt(node)
    return Rule(ANY, partial(_check_not, node))


def _check_not(node: Node, instance: Json, run: Run) -> Failure | None:
    run.spend(1)
    if node.is_uncertain or node.check(instance, run) is not None:
        return None
    return Failure("not", "fits the schema that is ruled out")


def _if(site: Site) -> Rule | None:
    node = site.inner()
    yes, no = (site.sibling(keyword) for keyword in ("then", "else"))
    if yes is None and no is None:
        return None
    if yes is not None:
        site.doubt(node)
    checks = [accept if branch is None else branch.inner().check for branch in (yes, no)]
    return Rule(ANY, partial(_check_if, node, *checks))


def _check_if(node: Node, yes: Check, no: Check, instance: Json, run: Run) -> Failure | None:
    run.spend(1)
    if node.check(instance, run) is not None:
        return no(instance, run)
    return None if node.is_uncertain else yes(instance, run)


def _dependent_schemas(site: Site) -> Rule:
    table = tuple((name, site.inner(name).check) for name in site.mapping())
    return Rule(OBJECT, partial(_check_dependent, table))


def _check_dependent(table: tuple[tuple[str, Check], ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(table))
    for name, check in table:
        if name in instance:
            failure = check(instance, run)
            if failure is not None:
                return failure
    return None


def _dependencies(site: Site) -> Rule:
    """A schema or a list of names for each property: draft 7, Validation, 6.5.7, and still known later."""
    table = []
    for name, value in site.mapping().items():
        if isinstance(value, list):
            table.append((name, partial(_check_names, name, site.names(name))))
        else:
            table.append((name, site.inner(name).check))
    return Rule(OBJECT, partial(_check_dependent, tuple(table)))


def _check_names(name: str, needed: tuple[str, ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(needed))
    for other in needed:
        if other not in instance:
            return Failure("dependencies", "has the property {} and lacks {}", name, other)
    return None


# --- properties: Core, 10.3.2 -------------------------------------------------------------------------------


def _properties(site: Site) -> Rule | None:
    checks = ((name, site.inner(name).check) for name in site.mapping())
    table = tuple((name, check) for name, check in checks if check is not accept)
    return Rule(OBJECT, partial(_check_properties, table)) if table else None


def _check_properties(table: tuple[tuple[str, Check], ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(table))
    for name, check in table:
        if name in instance:
            failure = check(instance[name], run)
            if failure is not None:
                return failure.within(name)
    return None


def _pattern_properties(site: Site) -> Rule | None:
    table = []
    for text in site.mapping():
        check = site.inner(text).check
        pattern = site.pattern(text, text)
        if pattern is not None and check is not accept:
            table.append((pattern, check))
    return Rule(OBJECT, partial(_check_patterns, tuple(table))) if table else None


def _check_patterns(table: tuple[tuple[Pattern, Check], ...], instance: Json, run: Run) -> Failure | None:
    # Every search is paid for by itself.
    for name, value in instance.items():
        for pattern, check in table:
            if pattern.search(name, run):
                failure = check(value, run)
                if failure is not None:
                    return failure.within(name)
    return None


def _additional_properties(site: Site) -> Rule | None:
    check = site.inner().check
    known = site.sibling("properties")
    beside = site.sibling("patternProperties")
    patterns = () if beside is None else tuple(map(beside.known_pattern, beside.mapping()))
    if None in patterns:
        site.leave_out("because a pattern beside it is not")
        return None
    if check is accept:
        return None
    names = frozenset(() if known is None else known.mapping())
    return Rule(OBJECT, partial(_check_additional, names, patterns, check))


def _check_additional(
    names: frozenset[str], patterns: Patterns, check: Check, instance: Json, run: Run
) -> Failure | None:
    run.spend(len(instance))
    for name, value in instance.items():
        if name not in names and not any(pattern.search(name, run) for pattern in patterns):
            failure = check(value, run)
            if failure is not None:
                return unexpected("additionalProperties", name, failure)
    return None


def unexpected(keyword: str, token: Token, failure: Failure) -> Failure:
    """Return the *failure* of a property or item that only *keyword* speaks of, as one of its place.

    Where nothing at all is allowed there it is the failure of the object or array that has it.
    """
    if failure.keyword != "false" or failure.trail:
        return failure.within(token)
    kind = "property" if isinstance(token, str) else "item"
    return Failure(keyword, f"has the {kind} {{}}, which is not allowed", token)


def _property_names(site: Site) -> Rule | None:
    check = site.inner().check
    return None if check is accept else Rule(OBJECT, partial(_check_property_names, check))


def _check_property_names(check: Check, instance: Json, run: Run) -> Failure | None:
    run.spend(len(instance))
    for name in instance:
        failure = check(name, run)
        if failure is not None:
            return Failure("propertyNames", "has a property whose name {} {}", name, failure)
    return None


# --- items: Core, 10.3.1 ------------------------------------------------------------------------------------


def _prefix_items(site: Site) -> Rule:
    return Rule(ARRAY, partial(_check_prefix, tuple(node.check for node in _nodes(site))))


def _check_prefix(checks: tuple[Check, ...], instance: Json, run: Run) -> Failure | None:
    run.spend(min(len(checks), len(instance)))
    for index, (check, item) in enumerate(zip(checks, instance)):
        failure = check(item, run)
        if failure is not None:
            return failure.within(index)
    return None


def _items(site: Site) -> Rule | None:
    if isinstance(site.value, list):
        site.leave_out("a list of schemas is called prefixItems in this draft")
        return None
    prefix = site.sibling("prefixItems")
    return _rest(site, 0 if prefix is None else len(prefix.items()))


def _items_of_draft_7(site: Site) -> Rule | None:
    if not isinstance(site.value, list):
        return _rest(site, 0)
    return _prefix_items(site) if site.value else None


def _additional_items(site: Site) -> Rule | None:
    prefix = site.sibling("items")
    return _rest(site, len(prefix.value)) if prefix is not None and isinstance(prefix.value, list) else None


def _rest(site: Site, start: int) -> Rule | None:
    check = site.inner().check
    return None if check is accept else Rule(ARRAY, partial(_check_rest, check, start))


def _check_rest(check: Check, start: int, instance: Json, run: Run) -> Failure | None:
    run.spend(len(instance))
    for index, item in enumerate(instance[start:] if start else instance, start):
        failure = check(item, run)
        if failure is not None:
            return failure.within(index)
    return None


def _contains(site: Site) -> Rule | None:
    node = site.inner()
    fewest, most = site.sibling("minContains"), site.sibling("maxContains")
    least = 1 if fewest is None else fewest.count()
    if most is not None:
        site.doubt(node)
        return Rule(ARRAY, partial(_check_contains, node, least, most.count()))
    return Rule(ARRAY, partial(_check_contains, node, least, None)) if least else None


def _contains_of_draft_7(site: Site) -> Rule | None:
    return Rule(ARRAY, partial(_check_contains, site.inner(), 1, None))


def _check_contains(node: Node, least: int, most: int | None, instance: Json, run: Run) -> Failure | None:
    run.spend(len(instance))
    fitting = sum(node.check(item, run) is None for item in instance)
    if fitting < least:
        return Failure("contains", f"has {counted(fitting, 'item')} that fit, fewer than {least}")
    if most is not None and fitting > most and not node.is_uncertain:
        return Failure("maxContains", f"has {counted(fitting, 'item')} that fit, more than {most}")
    return None


_SHARED: Mapping[str, Compiler] = MappingProxyType(
    {
        "$ref": _ref,
        "allOf": _all_of,
        "anyOf": _any_of,
        "oneOf": _one_of,
        "not": _not,
        "if": _if,
        "dependencies": _dependencies,
        "properties": _properties,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "propertyNames": _property_names,
    }
)
APPLICATORS: Mapping[str, Compiler] = MappingProxyType(
    {
        **_SHARED,
        "$dynamicRef": _dynamic_ref,
        "dependentSchemas": _dependent_schemas,
        "prefixItems": _prefix_items,
        "items": _items,
        "contains": _contains,
    }
)
APPLICATORS_OF_DRAFT_7: Mapping[str, Compiler] = MappingProxyType(
    {
        **_SHARED,
        "items": _items_of_draft_7,
        "additionalItems": _additional_items,
        "contains": _contains_of_draft_7,
    }
)
