"""One schema document: its schemas by place, its resources by address, and where a reference leads.

Every schema of the document is a :class:`Node`, found by the keywords that hold schemas or, where a JSON
Pointer leads elsewhere, made when it is asked for. A ``$id`` begins a :class:`Resource`, against whose
address the references in it are resolved (Core 2020-12, section 8.2; draft 7, section 8.2). References stay
inside the document: what leads out of it is never fetched and is told as such.

Places are links from node to node and not texts, so that long names cost nothing for the schemas below them.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping
from urllib.parse import unquote, urljoin, urlsplit

from ..errors import SchemaError
from ..limits import SchemaLimits
from .dialects import DRAFT_2020_12, Dialect, dialect_of, inner_schemas
from .verdicts import Check, Collector, Json, Token, place_text, pointer_of, quoted

__all__ = ["Document", "Node", "Resource"]

# RFC 6901, section 4, and no more digits than a list can have.
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Resource:
    """A schema with an address of its own, and the anchors in it.

    ``anchors`` lead to nodes, or to None where two schemas claim one name; ``dynamic`` are those made by
    ``$dynamicAnchor``.
    """

    def __init__(self, root: Node, *, address: str, dialect: Dialect) -> None:
        self.root = root
        self.address = address
        self.dialect = dialect
        self.anchors: dict[str, Node | None] = {}
        self.dynamic: dict[str, Node] = {}


class Node:
    """One schema of the document, at its place.

    ``inner`` are the schemas in it by their tokens, ``links`` where its references lead, by keyword.
    ``check`` and ``collect`` are set when it is compiled; ``is_uncertain`` when something in it, or in what
    it refers to, is not checked, so that it may accept too much.
    """

    __slots__ = (
        "check",
        "collect",
        "depth",
        "inner",
        "is_uncertain",
        "links",
        "parent",
        "resource",
        "tokens",
        "value",
    )

    def __init__(self, value: Json, *, parent: Node | None, tokens: tuple[Token, ...]) -> None:
        self.value = value
        self.parent = parent
        self.tokens = tokens
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.inner: dict[tuple[Token, ...], Node] = {}
        self.links: dict[str, Node | None] = {}
        self.resource: Resource
        self.check: Check
        self.collect: Collector
        self.is_uncertain = False

    def place(self, most: int, *more: Token) -> str:
        """Return ``at "/..."`` for this schema, or what *more* leads to in it; *most* characters of it."""
        tokens: list[Token] = [*reversed(more)]
        node: Node | None = self
        while node is not None:
            tokens.extend(reversed(node.tokens))
            node = node.parent
        return place_text(pointer_of(tuple(reversed(tokens)), most))


class Document:
    """The schemas of one value. :class:`SchemaError` when there are too many, or one is none.

    ``dialect_is_unknown`` tells that the root names a dialect that is not ours.
    """

    def __init__(self, value: Json, limits: SchemaLimits) -> None:
        self._limits = limits
        self._count = 0
        self._resources: dict[str, Resource | None] = {}
        self.root = self._new_node(value, None, ())
        address = value.get("$schema") if isinstance(value, dict) else None
        self.dialect_is_unknown = address is not None and dialect_of(address) is None
        resource = Resource(self.root, address="", dialect=dialect_of(address) or DRAFT_2020_12)
        self._resources[""] = resource
        self._settle(self.root, resource)

    def target_of(self, node: Node, reference: str) -> Node | None:
        """Return the schema that *reference*, a ``$ref`` in *node*, leads to; None when out of the document.

        :class:`SchemaError` with a reason of its own, without place, when it leads nowhere in the document.
        """
        resource = self._resource_of(node, reference)
        if resource is None:
            return None
        fragment = unquote(reference.partition("#")[2])
        if not fragment:
            return resource.root
        if fragment.startswith("/"):
            return self._pointed(resource.root, fragment)
        found = resource.anchors.get(fragment)
        if found is None:
            why = "two schemas have" if fragment in resource.anchors else "nothing has"
            raise SchemaError(f"{why} the anchor {self._quoted(fragment)}")
        return found

    def dynamic_name(self, node: Node, reference: str) -> str | None:
        """Return the name that a ``$dynamicRef`` in *node* looks for, or None when it is an ordinary one.

        It is dynamic when it leads, taken as an ordinary one, to a ``$dynamicAnchor`` (Core, 8.2.3.2).
        """
        resource = self._resource_of(node, reference)
        name = unquote(reference.partition("#")[2])
        return name if resource is not None and name in resource.dynamic else None

    def dynamic_targets(self, name: str | None) -> Iterator[Node]:
        """Yield every schema that a dynamic reference to *name* may come to; none for None."""
        for resource in self._resources.values():
            if resource is not None and name in resource.dynamic:
                yield resource.dynamic[name]

    # --- addresses --------------------------------------------------------------------------------------

    def _resource_of(self, node: Node, reference: str) -> Resource | None:
        own, _, _ = reference.partition("#")
        if not own:
            return node.resource
        address = self._joined(node.resource.address, own)
        if address not in self._resources:
            return None
        resource = self._resources[address]
        if resource is None:
            raise SchemaError(f"two schemas have the address {self._quoted(address)}")
        return resource

    def _address_of(self, node: Node, own: str) -> str:
        try:
            return self._joined(node.resource.address, own)
        except SchemaError as error:
            raise SchemaError(f"{node.place(self._limits.max_path_chars, '$id')}: {error.reason}") from None

    def _joined(self, address: str, reference: str) -> str:
        try:
            # Asked by itself too: joined to an empty address, nothing would be looked at.
            urlsplit(reference)
            joined = urljoin(address, reference)
        except ValueError:
            raise SchemaError(f"{self._quoted(reference)} is no address") from None
        most = self._limits.max_address_chars
        if max(len(reference), len(joined)) > most:
            raise SchemaError(f"an address of over {most} characters (max_address_chars)")
        return joined

    def _pointed(self, node: Node, pointer: str) -> Node:
        """Return the schema at *pointer* below *node*: a known one, or one made for this place."""
        tokens, value = self._walked(node.value, pointer)
        while tokens:
            known = next((length for length in (2, 1) if tokens[:length] in node.inner), None)
            if known is None:
                break
            node, tokens = node.inner[tokens[:known]], tokens[known:]
        if not tokens:
            return node
        if tokens not in node.inner:
            self._settle(self._new_node(value, node, tokens), node.resource)
        return node.inner[tokens]

    def _walked(self, value: Json, pointer: str) -> tuple[tuple[Token, ...], Json]:
        tokens: list[Token] = []
        for escaped in pointer.split("/")[1:]:
            token: Token = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and _INDEX.fullmatch(escaped) and int(escaped) < len(value):
                token = int(escaped)
            elif not isinstance(value, dict) or token not in value:
                raise SchemaError(f"there is nothing at {self._quoted(pointer)}")
            value = value[token]
            tokens.append(token)
        return tuple(tokens), value

    def _quoted(self, text: str) -> str:
        return quoted(text, self._limits.max_quoted_chars)

    # --- schemas ----------------------------------------------------------------------------------------

    def _settle(self, node: Node, resource: Resource) -> None:
        """Give *node* and all schemas inside it their resource and their names."""
        waiting = [(node, resource)]
        while waiting:
            node, resource = waiting.pop()
            node.resource = resource
            if isinstance(node.value, dict):
                self._name(node)
                for tokens, value in inner_schemas(node.value, node.resource.dialect):
                    waiting.append((self._new_node(value, node, tokens), node.resource))

    def _new_node(self, value: Json, parent: Node | None, tokens: tuple[Token, ...]) -> Node:
        self._count += 1
        if self._count > self._limits.max_nodes:
            raise SchemaError(f"more than {self._limits.max_nodes} schemas in one (max_nodes)")
        node = Node(value, parent=parent, tokens=tokens)
        if not isinstance(value, (dict, bool)):
            place = node.place(self._limits.max_path_chars)
            raise SchemaError(f"{place}: {quoted(value, self._limits.max_quoted_chars)} is not a schema")
        if parent is not None:
            parent.inner[tokens] = node
        return node

    def _name(self, node: Node) -> None:
        """Note the address and the anchors of *node*, which may begin a resource by it."""
        schema: Mapping[str, Json] = node.value
        if node.resource.dialect.reference_rules_alone and "$ref" in schema and node is not self.root:
            return
        own, _, name = _text(schema, "$id").partition("#")
        if own:
            address = self._address_of(node, own)
            dialect = dialect_of(schema.get("$schema")) or node.resource.dialect
            node.resource = Resource(node, address=address, dialect=dialect)
            self._resources[address] = None if address in self._resources else node.resource
        if node.resource.dialect is DRAFT_2020_12:
            name = _text(schema, "$dynamicAnchor")
            if name:
                node.resource.dynamic[name] = node
            _anchor(node, _text(schema, "$anchor"))
        _anchor(node, name)


def _text(schema: Mapping[str, Json], keyword: str) -> str:
    """Return the text that *schema* has under *keyword*; empty when it has none, or something else."""
    value = schema.get(keyword)
    return value if isinstance(value, str) else ""


def _anchor(node: Node, name: str) -> None:
    if name:
        anchors = node.resource.anchors
        anchors[name] = node if anchors.get(name, node) is node else None
