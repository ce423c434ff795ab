"""What the answer to ``tools/call`` may be. Pure.

The envelope is checked, its content is not: images, sound and resources stay JSON of the result, and no
file or picture is made of them. An answer that asks for something (elicitation, sampling, a task) is an
error that names what was asked, because none of it is offered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable

from ..errors import SchemaError, WireError
from ..wire.excerpts import quote_whole
from ..wire.jsontext import Json
from .catalogue import RemoteTool
from .versions import Era, era_of, has_structured_content

__all__ = ["McpResult", "Unsupported", "check_kind", "check_result", "result_of"]

_COMPLETE, _ASKS = "complete", "input_required"


class Unsupported(Exception):
    """A well-formed answer that asks for what is not offered; ``reason`` names it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class McpResult:
    """The result of one call.

    ``content`` are its blocks, JSON objects with a ``type``; ``structured_content`` any JSON value, None
    also when absent (``raw`` tells); ``is_error`` says that the tool failed. ``raw`` is the whole result.
    """

    content: tuple[dict[str, Json], ...]
    structured_content: Json
    is_error: bool
    raw: dict[str, Json] = field(repr=False)

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


def check_result(
    result: Json,
    tool: RemoteTool,
    *,
    version: str,
    quoted_chars: int,
    interrupt: Callable[[], None] | None = None,
) -> McpResult:
    """Return the checked *result* of *tool* in the protocol *version*.

    *interrupt* is called now and then, and may raise whatever is to end the check. Raises
    :class:`WireError` for an envelope that breaks it, and :class:`Unsupported`.
    """
    check_kind(result, version=version, quoted_chars=quoted_chars)
    content = result.get("content")
    if not isinstance(content, list):
        raise WireError("the result has no list of content")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise WireError("a block of the content is no object with a type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise WireError("a block of the content is a text without one")
    is_error = result.get("isError")
    if is_error is not None and not isinstance(is_error, bool):
        raise WireError("isError is not true or false")
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict) and era_of(version) is Era.LEGACY:
        raise WireError("structuredContent is no object")
    if not is_error and has_structured_content(version):
        _check_structured(result, tool, interrupt)
    return result_of(result)


def result_of(raw: dict[str, Json]) -> McpResult:
    """Return the result whose JSON is *raw*, which was checked."""
    return McpResult(
        content=tuple(raw["content"]),
        structured_content=raw.get("structuredContent"),
        is_error=bool(raw.get("isError")),
        raw=raw,
    )


def check_kind(result: Json, *, version: str, quoted_chars: int) -> None:
    """Refuse any *result*, of a call or a listing, that is none of the protocol *version* or is not complete.

    Raises :class:`WireError`, and :class:`Unsupported` for one that asks for something.
    """
    if not isinstance(result, dict):
        raise WireError("the result is no object")
    if era_of(version) is Era.LEGACY:
        return
    kind = result.get("resultType", _COMPLETE)
    if kind == _ASKS:
        raise Unsupported(f"it asks for {_asked(result)}, which Latch does not offer")
    if kind != _COMPLETE:
        shown = quote_whole(kind, quoted_chars) if isinstance(kind, str) else "no string"
        raise WireError(f'resultType is {shown}, neither "{_COMPLETE}" nor "{_ASKS}"')


def _asked(result: dict[str, Json]) -> str:
    requests = result.get("inputRequests")
    items = requests.values() if isinstance(requests, dict) else ()
    methods = {item.get("method") for item in items if isinstance(item, dict)}
    return ", ".join(sorted(method for method in methods if isinstance(method, str))) or "more input"


def _check_structured(
    result: dict[str, Json], tool: RemoteTool, interrupt: Callable[[], None] | None
) -> None:
    if tool.results is None:
        return
    if "structuredContent" not in result:
        raise WireError("the tool has an outputSchema and its result no structuredContent")
    try:
        issue = tool.results.first_issue(result["structuredContent"], interrupt=interrupt)
    except SchemaError as error:
        raise WireError(f"structuredContent cannot be checked: {error.reason}") from None
    if issue is not None:
        raise WireError(f"structuredContent does not fit the tool's outputSchema: {issue}")
