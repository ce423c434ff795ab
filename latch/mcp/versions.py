"""The protocol revisions, their two eras, and which one a server speaks. Pure.

The era belongs to the server: *modern* servers need no handshake and take version and identity with
every request, *legacy* ones are initialised once. A client asks first with ``server/discover``, and what
comes back decides (spec/mcp.md, "Negotiation"):

====================================================================  ===================================
answer to the probe                                                   verdict
====================================================================  ===================================
a result whose ``supportedVersions`` name a modern version of ours    MODERN, with that version
-32022 that names a modern version of ours, for the first time        AGAIN, with that version
-32022 otherwise, -32020, -32021                                      UNUSABLE: an error, never initialize
any other error, any other result, no answer                          LEGACY
====================================================================  ===================================

Only the three codes prove a modern server: legacy ones answer the probe with all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..wire.jsonrpc import Failure, Response
from ..wire.jsontext import Json

__all__ = [
    "HEADER_MISMATCH",
    "LEGACY_VERSIONS",
    "MODERN_VERSIONS",
    "Era",
    "Outcome",
    "Verdict",
    "era_of",
    "has_batches",
    "has_structured_content",
    "has_version_header",
    "judge_probe",
]

# Newest first: the first of each is the one that is offered. They are dates, which compare as text.
MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

# MCP 2026-07-28, "Error codes"
HEADER_MISMATCH = -32020
_MISSING_CAPABILITY = -32021
_UNSUPPORTED_VERSION = -32022


class Era(Enum):
    """How version and identity travel: with every request, or once."""

    MODERN = "modern"
    LEGACY = "legacy"


class Outcome(Enum):
    """What to do after a probe."""

    MODERN = "go on with the version"
    AGAIN = "probe once more with the version"
    LEGACY = "initialize"
    UNUSABLE = "give up"


@dataclass(frozen=True)
class Verdict:
    """``version`` is set for MODERN and AGAIN, ``reason`` a sentence for UNUSABLE and LEGACY."""

    outcome: Outcome
    version: str = ""
    reason: str = ""


def era_of(version: str) -> Era:
    """Return the era of one of our versions."""
    return Era.MODERN if version in MODERN_VERSIONS else Era.LEGACY


def has_batches(version: str | None) -> bool:
    """Return whether a peer of *version* may put several messages into an array."""
    return version == "2025-03-26"


def has_version_header(version: str) -> bool:
    """Return whether HTTP says the *version* in a header field of every request (since 2025-06-18)."""
    return version >= "2025-06-18"


def has_structured_content(version: str) -> bool:
    """Return whether tools of *version* may declare and return structured content (since 2025-06-18)."""
    return version >= "2025-06-18"


def judge_probe(answer: Response | Failure | None, *, is_first: bool) -> Verdict:
    """Judge the *answer* to ``server/discover``, None where there was none; *is_first* is False for AGAIN."""
    if answer is None:
        return Verdict(Outcome.LEGACY, reason="it did not answer server/discover")
    if isinstance(answer, Failure):
        return _judge_error(answer, is_first=is_first)
    offered = _strings(answer.result, "supportedVersions")
    version = _mutual(offered)
    if version:
        return Verdict(Outcome.MODERN, version=version)
    return Verdict(Outcome.LEGACY, reason="it names no modern version")


def _judge_error(answer: Failure, *, is_first: bool) -> Verdict:
    # NOTE: as it was sent, because a code proves what it proves even where the rest of the error is broken.
    code, data = _member(answer.raw, "code"), _member(answer.raw, "data")
    if code == _UNSUPPORTED_VERSION:
        offered = _strings(data, "supported")
        version = _mutual(offered)
        if version and is_first:
            return Verdict(Outcome.AGAIN, version=version)
        theirs, ours = ", ".join(offered) or "none", ", ".join(MODERN_VERSIONS)
        wanted = "refuses the version that it names itself" if version else "supports no version of ours"
        return Verdict(
            Outcome.UNUSABLE, reason=f"it {wanted}: without initialize we speak {ours}, it offers {theirs}"
        )
    if code == HEADER_MISMATCH:
        return Verdict(Outcome.UNUSABLE, reason="it says that our header fields do not match the message")
    if code == _MISSING_CAPABILITY:
        return Verdict(Outcome.UNUSABLE, reason=f"it requires of its clients {_required(data)}")
    shown = code if type(code) is int else "without a code"
    return Verdict(Outcome.LEGACY, reason=f"it answered server/discover with error {shown}")


def _mutual(offered: tuple[str, ...]) -> str:
    return next((version for version in MODERN_VERSIONS if version in offered), "")


def _strings(holder: Json, name: str) -> tuple[str, ...]:
    """Return the list of strings in the member *name* of *holder*; empty for anything else."""
    listed = _member(holder, name)
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        return ()
    return tuple(listed)


def _member(holder: Json, name: str) -> Json:
    return holder.get(name) if isinstance(holder, dict) else None


def _required(data: Json) -> str:
    required = _member(data, "requiredCapabilities")
    names = sorted(required) if isinstance(required, dict) else []
    return ", ".join(names) + ", which Latch does not offer" if names else "what Latch does not offer"
