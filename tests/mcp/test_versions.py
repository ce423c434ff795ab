"""mcp/versions.py: what the answer to the probe says of a server's era."""

from __future__ import annotations

from typing import Any

import pytest

from latch.mcp.versions import (
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    Era,
    Outcome,
    Verdict,
    era_of,
    has_batches,
    has_structured_content,
    has_version_header,
    judge_probe,
)
from latch.wire.jsonrpc import Failure, Response, message_of

Json = Any

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
UNKNOWN = "2099-01-01"


def result(value: Json) -> Response:
    return Response(1, value)


def error(code: Json, data: Json = None, **more: Json) -> Failure:
    """An error as it arrives: parsed, its data left out when None."""
    fault = {"code": code, "message": "no", **({} if data is None else {"data": data}), **more}
    message = message_of({"jsonrpc": "2.0", "id": None, "error": fault})
    assert isinstance(message, Failure)
    return message


def test_the_five_revisions_and_their_eras() -> None:
    assert (MODERN_VERSIONS, LEGACY_VERSIONS) == ((MODERN,), LEGACY)
    assert era_of(MODERN) is Era.MODERN
    assert {era_of(version) for version in LEGACY} == {Era.LEGACY}


MODERN_ANSWERS = {
    "our version": result({"supportedVersions": [MODERN]}),
    "ours among others": result({"supportedVersions": [UNKNOWN, "2025-11-25", MODERN]}),
    "whatever else it says": result({"supportedVersions": [MODERN], "capabilities": 5, "serverInfo": None}),
}


@pytest.mark.parametrize("answer", MODERN_ANSWERS.values(), ids=list(MODERN_ANSWERS))
@pytest.mark.parametrize("is_first", [True, False])
def test_a_result_that_names_a_modern_version_of_ours_is_modern(answer: Response, is_first: bool) -> None:
    assert judge_probe(answer, is_first=is_first) == Verdict(Outcome.MODERN, version=MODERN)


LEGACY_ANSWERS = {
    "nothing": None,
    "empty result": result({}),
    "no versions": result({"supportedVersions": []}),
    "legacy versions alone": result({"supportedVersions": ["2025-11-25"]}),
    "an unknown version": result({"supportedVersions": [UNKNOWN]}),
    "a text for a list": result({"supportedVersions": MODERN}),
    "an object for a list": result({"supportedVersions": {MODERN: True}}),
    "not only texts": result({"supportedVersions": [MODERN, 5]}),
    "a result that is null": result(None),
    "a result that is a list": result([MODERN]),
    "method not found": error(-32601),
    "invalid params": error(-32602),
    "invalid request": error(-32600),
    "internal error": error(-32603),
    "server not initialized": error(-32000),
    "a code of drafts": error(-32001),
    "one more code of drafts": error(-32004),
    "a code that is a text": error("-32022"),
    "a code that is true": error(True),
    "an error that is a text": message_of({"jsonrpc": "2.0", "id": 1, "error": "no"}),
    "an error that is a list": message_of({"jsonrpc": "2.0", "id": 1, "error": [-32022]}),
}


@pytest.mark.parametrize("answer", LEGACY_ANSWERS.values(), ids=list(LEGACY_ANSWERS))
def test_whatever_proves_nothing_falls_back_to_the_legacy_era(answer: Any) -> None:
    verdict = judge_probe(answer, is_first=True)
    assert (verdict.outcome, verdict.version) == (Outcome.LEGACY, "")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "it did not answer server/discover"),
        (result({}), "it names no modern version"),
        (error(-32601), "it answered server/discover with error -32601"),
    ],
)
def test_a_fallback_says_why(answer: Any, reason: str) -> None:
    assert judge_probe(answer, is_first=True).reason == reason


def test_a_refused_version_that_is_named_again_is_probed_once_more_and_no_more() -> None:
    answer = error(-32022, {"supported": [MODERN], "requested": MODERN})
    assert judge_probe(answer, is_first=True) == Verdict(Outcome.AGAIN, version=MODERN)
    verdict = judge_probe(answer, is_first=False)
    assert verdict.outcome is Outcome.UNUSABLE
    assert verdict.reason == (
        "it refuses the version that it names itself: "
        f"without initialize we speak {MODERN}, it offers {MODERN}"
    )


@pytest.mark.parametrize(
    ("data", "theirs"),
    [
        ({"supported": list(LEGACY)}, ", ".join(LEGACY)),
        ({"supported": [UNKNOWN]}, UNKNOWN),
        ({"supported": []}, "none"),
        ({"supported": MODERN}, "none"),
        ({"supported": [MODERN, None]}, "none"),
        ({}, "none"),
        ([MODERN], "none"),
        (None, "none"),
    ],
)
def test_a_refused_version_without_one_of_ours_is_an_error_with_both_lists(data: Json, theirs: str) -> None:
    assert judge_probe(error(-32022, data), is_first=True) == Verdict(
        Outcome.UNUSABLE,
        reason=f"it supports no version of ours: without initialize we speak {MODERN}, it offers {theirs}",
    )


def test_a_header_mismatch_never_falls_back() -> None:
    verdict = judge_probe(error(-32020), is_first=True)
    assert verdict == Verdict(
        Outcome.UNUSABLE, reason="it says that our header fields do not match the message"
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            {"requiredCapabilities": {"sampling": {}, "elicitation": {}}},
            "elicitation, sampling, which Latch does not offer",
        ),
        ({"requiredCapabilities": {}}, "what Latch does not offer"),
        ({"requiredCapabilities": ["sampling"]}, "what Latch does not offer"),
        ([], "what Latch does not offer"),
        (None, "what Latch does not offer"),
    ],
)
def test_a_missing_capability_never_falls_back_and_is_named(data: Json, what: str) -> None:
    verdict = judge_probe(error(-32021, data), is_first=True)
    assert verdict == Verdict(Outcome.UNUSABLE, reason=f"it requires of its clients {what}")


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_recognised_code_counts_although_the_rest_of_its_error_is_broken(code: int) -> None:
    assert judge_probe(error(code, message=None), is_first=True).outcome is Outcome.UNUSABLE


@pytest.mark.parametrize(
    ("version", "batches", "header", "structure"),
    [
        ("2026-07-28", False, True, True),
        ("2025-11-25", False, True, True),
        ("2025-06-18", False, True, True),
        ("2025-03-26", True, False, False),
        ("2024-11-05", False, False, False),
    ],
)
def test_what_a_revision_has_is_known(version: str, batches: bool, header: bool, structure: bool) -> None:
    assert has_batches(version) is batches
    assert has_version_header(version) is header
    assert has_structured_content(version) is structure
