"""What one server offers: its tools as they were listed, fixed for the session. Pure.

Pages are gathered until there is no next one. Two tools of one name, a cursor that comes again and one
tool or page too many end the listing; a tool that cannot be offered is left out with the reason and the
others stay. Schemas are data: they are kept as they came, and compiled only to check arguments and
results. What a server says of its tools grants nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Callable

from ..errors import SchemaError, WireError
from ..limits import Limits
from ..schema.compile import Schema
from ..wire.excerpts import quote_whole
from ..wire.jsontext import Json, canonical_json, encode_json
from .headers import Mirror, find_mirrors

__all__ = ["CatalogueBuilder", "RemoteTool", "Skipped", "ToolCatalogue", "catalogue_name"]

_DIGEST_CHARS = 24


@dataclass(frozen=True)
class RemoteTool:
    """One tool of a server.

    ``name`` is the server's, ``catalogue_name`` the one a model sees. ``description`` begins with server
    and name. ``input_schema`` and ``output_schema`` (None when there is none) are JSON values as sent;
    ``mirrors`` is what HTTP repeats of its arguments; ``needs_task`` says that it can only run as a task.
    ``arguments`` and ``results`` check calls and answers; None where the schema cannot be used.
    """

    name: str
    catalogue_name: str
    title: str
    description: str
    input_schema: dict[str, Json]
    output_schema: Json
    mirrors: tuple[Mirror, ...]
    needs_task: bool
    arguments: Schema | None = field(repr=False)
    results: Schema | None = field(repr=False)


@dataclass(frozen=True)
class Skipped:
    """A tool that is not offered, as a name to show, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ToolCatalogue:
    """All tools of one server in the order of their catalogue names.

    ``diagnostics`` are sentences about what is not checked. ``digest`` is equal for equal listings.
    """

    tools: tuple[RemoteTool, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    diagnostics: tuple[str, ...] = ()
    digest: str = ""

    def find(self, name: str) -> RemoteTool | None:
        """Return the tool that the server calls *name*."""
        return next((tool for tool in self.tools if tool.name == name), None)


def catalogue_name(server: str, name: str) -> str:
    """Return the name under which a model sees the tool *name* of *server* (spec/mcp.md, "Wire")."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"mcp_{server}_{digest}"


class CatalogueBuilder:
    """Gathers the pages of one listing. :meth:`add` raises :class:`WireError` for what ends it."""

    def __init__(
        self,
        server: str,
        limits: Limits,
        *,
        with_headers: bool,
        redact: Callable[[Json], Json] | None = None,
    ) -> None:
        """*with_headers* says that the transport repeats arguments, so that annotations must hold; *redact*
        takes secrets out of a JSON value, None where there are none."""
        self._server = server
        self._limits = limits
        self._with_headers = with_headers
        self._redact = redact
        self._listed: dict[str, Json] = {}
        self._tools: list[RemoteTool] = []
        self._skipped: list[Skipped] = []
        self._diagnostics: list[str] = []
        self._cursors: set[bytes] = set()
        self._count = 0
        self._bytes = 0
        self._pages = 0

    def add(self, page: Json, *, check: Callable[[], None] | None = None) -> str | None:
        """Take one result of ``tools/list``; return the cursor of the next page, or None after the last.

        *check* is called before each tool, whose schemas take time, and may raise whatever is to end it.
        """
        self._bytes += len(encode_json(page))
        most = self._limits.mcp.max_catalogue_bytes
        if self._bytes > most:
            raise WireError(f"its tools are more than {most} bytes", limit="max_catalogue_bytes", amount=most)
        tools = page.get("tools") if isinstance(page, dict) else None
        if not isinstance(tools, list):
            raise WireError("the result has no list of tools")
        for tool in tools:
            if check is not None:
                check()
            self._add_tool(tool)
        self._pages += 1
        return self._next_cursor(page.get("nextCursor"))

    def build(self) -> ToolCatalogue:
        """Return the catalogue; nothing can be added after it."""
        listed = [self._listed[name] for name in sorted(self._listed)]
        return ToolCatalogue(
            tools=tuple(sorted(self._tools, key=lambda tool: tool.catalogue_name)),
            skipped=tuple(self._skipped),
            diagnostics=tuple(self._diagnostics),
            digest=hashlib.sha256(canonical_json(listed)).hexdigest(),
        )

    def _next_cursor(self, cursor: Json) -> str | None:
        if cursor is None:
            return None
        if not isinstance(cursor, str):
            raise WireError("nextCursor is no string")
        most = self._limits.mcp.max_pages
        digest = hashlib.sha256(cursor.encode("utf-8", "surrogatepass")).digest()
        if digest in self._cursors:
            raise WireError(f"the cursor {self._quoted(cursor)} came a second time")
        if self._pages >= most:
            raise WireError(f"more than {most} pages of tools", limit="max_pages", amount=most)
        # NOTE: not the cursor itself, which may be as long as a page.
        self._cursors.add(digest)
        return cursor

    def _add_tool(self, given: Json) -> None:
        self._count += 1
        most = self._limits.mcp.max_tools
        if self._count > most:
            raise WireError(f"more than {most} tools", limit="max_tools", amount=most)
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(name, str):
            self._skipped.append(Skipped(f"#{self._count}", "it has no name"))
            return
        if name in self._listed:
            raise WireError(f"the tool {self._quoted(name)} is listed twice")
        self._listed[name] = given
        shown = given if self._redact is None else self._redact(given)
        try:
            if shown["name"] != name:
                raise WireError("its name holds a secret of its entry")
            self._tools.append(self._tool(name, shown))
        except WireError as error:
            self._skipped.append(Skipped(shown["name"][: self._limits.mcp.max_name_bytes], error.reason))

    def _tool(self, name: str, given: dict[str, Json]) -> RemoteTool:
        most = self._limits.mcp.max_name_bytes
        if not 1 <= len(name.encode("utf-8")) <= most:
            raise WireError(f"its name must have 1 to {most} bytes")
        schema = given.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise WireError('its inputSchema is no object of the type "object"')
        mirrors = find_mirrors(schema) if self._with_headers else ()
        annotations, execution = given.get("annotations"), given.get("execution")
        hinted = annotations.get("title") if isinstance(annotations, dict) else None
        support = execution.get("taskSupport") if isinstance(execution, dict) else None
        return RemoteTool(
            name=name,
            catalogue_name=catalogue_name(self._server, name),
            title=next((text for text in (given.get("title"), hinted) if isinstance(text, str)), name),
            description=self._description(name, given.get("description")),
            input_schema=schema,
            output_schema=given.get("outputSchema"),
            mirrors=mirrors,
            needs_task=support == "required",
            arguments=self._compile(name, "arguments", schema),
            results=self._compile(name, "results", given.get("outputSchema")),
        )

    def _description(self, name: str, text: Json) -> str:
        own = f": {text}" if isinstance(text, str) and text else ""
        return f"{self._server}/{name}{own}"

    def _compile(self, name: str, what: str, schema: Json) -> Schema | None:
        if schema is None:
            return None
        try:
            compiled = Schema.compile(schema, self._limits.schema)
        except SchemaError as error:
            self._diagnostics.append(f"{self._quoted(name)}: its {what} are not checked: {error.reason}")
            return None
        self._diagnostics += [f"{self._quoted(name)}: of its {what}: {text}" for text in compiled.unchecked]
        return compiled

    def _quoted(self, name: str) -> str:
        return quote_whole(name, self._limits.mcp.max_quoted_chars)
