"""A JSON Schema, compiled once and held against many instances.

Draft 2020-12 and draft 7, chosen by ``$schema``; other dialects are read as 2020-12 and told as unknown. All
keywords of their validation and applicator vocabularies are checked, references included as long as they stay
in the document: nothing is ever fetched. ``format`` and the ``content`` keywords are annotations. Keywords
that are not known mean nothing.

What is not checked is listed, and a schema of which something is not checked accepts too much and never too
little. Work is bounded: a check that takes too many steps, or too many references inside one another, ends in
a :class:`SchemaError` and in no verdict.

Compiling takes three passes: find the schemas that can be reached, with their references resolved; compile
each, inner ones first, to functions; find out which schemas are uncertain because of what is not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Callable, Iterable, Iterator, Mapping

from ..errors import SchemaError, UsageError
from ..limits import SchemaLimits
from .applicators import APPLICATORS, APPLICATORS_OF_DRAFT_7, refuse
from .dialects import DRAFT_7, inner_schemas
from .evaluated import UNEVALUATED, collect_nothing, collector_of
from .keywords import KEYWORDS
from .references import Document, Node, Resource
from .sites import ANY, Compiler, Omissions, Rule, Site
from .verdicts import Check, Failure, Json, Run, accept, place_text, pointer_of, quoted

__all__ = ["Schema", "SchemaIssue"]

_REFERENCES = ("$ref", "$dynamicRef")
_DRAFT_7_KEYWORDS: Mapping[str, Compiler] = MappingProxyType(
    {**{name: one for name, one in KEYWORDS.items() if name != "dependentRequired"}, **APPLICATORS_OF_DRAFT_7}
)
_KEYWORDS: Mapping[str, Compiler] = MappingProxyType({**KEYWORDS, **APPLICATORS, **UNEVALUATED})
# They hold schemas that nothing is held against unless a reference leads there.
_HELD_FOR_OTHERS = ("$defs", "definitions", "contentSchema")


@dataclass(frozen=True)
class SchemaIssue:
    """One thing that does not fit: the JSON Pointer of the place in the instance (empty for all of it), the
    keyword of the schema, and the reason in a short sentence. Each is cut to a limit."""

    path: str
    keyword: str
    reason: str

    def __str__(self) -> str:
        return f"{place_text(self.path)}: {self.reason}"


class Schema:
    """A compiled schema; make it with :meth:`compile`. Several threads may use one.

    ``unchecked`` are sentences, each with its place, about what of the schema is not checked and why.
    """

    def __init__(self, root: Node, *, unchecked: tuple[str, ...], limits: SchemaLimits) -> None:
        self._root = root
        self._limits = limits
        self.unchecked = unchecked

    @classmethod
    def compile(cls, value: Json, limits: SchemaLimits) -> Schema:
        """Return the schema that *value* is, which must not change afterwards.

        :class:`SchemaError` names the place of what is wrong in it, or the limit it exceeds.
        """
        try:
            return cls._compiled(dict(value) if isinstance(value, Mapping) else value, limits)
        except RecursionError:
            raise SchemaError("too little stack is left to compile the schema") from None

    def first_issue(
        self, instance: Json, *, interrupt: Callable[[], None] | None = None
    ) -> SchemaIssue | None:
        """Return what is found first not to fit in *instance*, or None when it fits.

        :class:`SchemaError` when the check exceeds a limit: there is no verdict then. *interrupt* is called
        now and then, and may raise whatever is to end the check.
        """
        failure = self._failure_of(instance, interrupt)
        if failure is None:
            return None
        path = pointer_of(tuple(reversed(failure.trail)), self._limits.max_path_chars)
        return SchemaIssue(path, failure.keyword, failure.reason(self._limits.max_quoted_chars))

    def is_valid(self, instance: Json) -> bool:
        """Return whether *instance* fits; :class:`SchemaError` as for :meth:`first_issue`."""
        return self._failure_of(instance) is None

    def _failure_of(self, instance: Json, interrupt: Callable[[], None] | None = None) -> Failure | None:
        try:
            return self._root.check(instance, Run(self._limits, self._root.resource, interrupt=interrupt))
        except RecursionError:
            raise SchemaError("too little stack is left to check the value") from None

    @classmethod
    def _compiled(cls, value: Json, limits: SchemaLimits) -> Schema:
        document = Document(value, limits)
        omissions = Omissions(limits)
        if document.dialect_is_unknown:
            shown = quoted(value["$schema"], limits.max_quoted_chars)
            omissions.tell(f'at "/$schema": {shown} is not known, the schema is read as draft 2020-12')
        uses = _reached(document, limits)
        _check_for_loops(uses, limits)
        # Inner ones lie deeper than those around them.
        for node in sorted(uses, key=lambda one: one.depth, reverse=True):
            sites = _sites_of(node, document=document, omissions=omissions, limits=limits)
            node.collect = collector_of(sites) if isinstance(node.value, dict) else collect_nothing
            node.check = _check_of(node, sites)
        _spread_uncertainty(uses)
        for site, nodes in omissions.doubts:
            if any(node.is_uncertain for node in nodes):
                site.leave_out("because something in it is not")
        return cls(document.root, unchecked=omissions.sentences, limits=limits)


# --- what is reached ----------------------------------------------------------------------------------------


def _reached(document: Document, limits: SchemaLimits) -> dict[Node, list[Node]]:
    """Return every schema that can be reached, with those it uses, and resolve the references on the way."""
    uses: dict[Node, list[Node]] = {}
    waiting = [document.root]
    while waiting:
        node = waiting.pop()
        if node not in uses:
            uses[node] = list(_used_by(node, document, limits))
            waiting.extend(uses[node])
    return uses


def _used_by(node: Node, document: Document, limits: SchemaLimits) -> Iterator[Node]:
    if not isinstance(node.value, dict):
        return
    for keyword in _keywords_in(node, _REFERENCES):
        target = node.links[keyword] = _resolved(node, keyword, document=document, limits=limits)
        if target is not None:
            yield target
        if keyword == "$dynamicRef":
            yield from document.dynamic_targets(document.dynamic_name(node, node.value[keyword]))
    if not _is_only_a_reference(node):
        for tokens, _ in inner_schemas(node.value, node.resource.dialect):
            if tokens[0] not in _HELD_FOR_OTHERS:
                yield node.inner[tokens]


def _resolved(node: Node, keyword: str, *, document: Document, limits: SchemaLimits) -> Node | None:
    reference = node.value[keyword]
    place = node.place(limits.max_path_chars, keyword)
    if not isinstance(reference, str):
        raise SchemaError(f"{place}: {quoted(reference, limits.max_quoted_chars)} is not a string")
    try:
        return document.target_of(node, reference)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error.reason}") from None


def _is_only_a_reference(node: Node) -> bool:
    return node.resource.dialect.reference_rules_alone and "$ref" in node.value


def _compilers_of(node: Node) -> Mapping[str, Compiler]:
    if _is_only_a_reference(node):
        return {"$ref": _DRAFT_7_KEYWORDS["$ref"]}
    return _DRAFT_7_KEYWORDS if node.resource.dialect is DRAFT_7 else _KEYWORDS


def _keywords_in(node: Node, keywords: Iterable[str]) -> list[str]:
    return [keyword for keyword in keywords if keyword in node.value and keyword in _compilers_of(node)]


def _check_for_loops(uses: Mapping[Node, list[Node]], limits: SchemaLimits) -> None:
    """Refuse a schema that must be held against the same instance again before it can be."""
    done: set[Node] = set()
    for start in uses:
        path: dict[Node, Iterator[Node]] = {}
        node: Node | None = start
        while node is not None:
            if node in path:
                place = node.place(limits.max_path_chars)
                raise SchemaError(f"{place}: its references lead back to itself and nowhere else")
            if node not in done:
                path[node] = _always_applied(node)
            node = None
            while path and node is None:
                last = next(reversed(path))
                node = next(path[last], None)
                if node is None:
                    done.add(last)
                    del path[last]


def _always_applied(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict):
        target = node.links.get("$ref")
        if target is not None:
            yield target
        if not _is_only_a_reference(node):
            yield from (inner for tokens, inner in node.inner.items() if tokens[0] == "allOf")


# --- compiling ----------------------------------------------------------------------------------------------


def _sites_of(
    node: Node, *, document: Document, omissions: Omissions, limits: SchemaLimits
) -> dict[str, Site]:
    if not isinstance(node.value, dict):
        return {}
    return {
        keyword: Site(node, keyword, document=document, omissions=omissions, limits=limits)
        for keyword in _keywords_in(node, _compilers_of(node))
    }


def _check_of(node: Node, sites: Mapping[str, Site]) -> Check:
    if node.value is False:
        return refuse
    compilers = _compilers_of(node) if sites else {}
    rules = [
        rule for rule in (compilers[keyword](site) for keyword, site in sites.items()) if rule is not None
    ]
    check = _joined(rules)
    if node.resource.root is node and node.parent is not None and check is not accept:
        return partial(_check_inside, node.resource, check)
    return check


def _joined(rules: list[Rule]) -> Check:
    if not rules:
        return accept
    if len(rules) == 1 and rules[0].types is ANY:
        return rules[0].check
    checks = {kind: tuple(rule.check for rule in rules if kind in rule.types) for kind in ANY}
    return partial(_check_by_type, checks)


def _check_by_type(checks: Mapping[type, tuple[Check, ...]], instance: Json, run: Run) -> Failure | None:
    for check in checks.get(type(instance), _NOT_JSON):
        failure = check(instance, run)
        if failure is not None:
            return failure
    return None


def _check_inside(resource: Resource, check: Check, instance: Json, run: Run) -> Failure | None:
    run.enter(resource)
    failure = check(instance, run)
    run.leave()
    return failure


def _refuse_foreign(instance: Json, run: Run) -> Failure | None:
    raise UsageError(f"a value of type {type(instance).__name__} is not JSON")


_NOT_JSON: tuple[Check, ...] = (_refuse_foreign,)


# --- uncertainty --------------------------------------------------------------------------------------------


def _spread_uncertainty(uses: Mapping[Node, list[Node]]) -> None:
    """Make uncertain what uses an uncertain schema."""
    users: dict[Node, list[Node]] = {}
    for node, used in uses.items():
        for one in used:
            users.setdefault(one, []).append(node)
    waiting = [node for node in uses if node.is_uncertain]
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if not user.is_uncertain:
                user.is_uncertain = True
                waiting.append(user)
