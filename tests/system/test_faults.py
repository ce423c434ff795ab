"""system/faults.py: whose fault it was, at which stage, in the peer's own words."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import PeerLimit, PeerProtocolError, WireError
from latch.system.faults import broken, refused
from latch.system.scope import Scope

Json = Any
PEER = 'extension "small"'


@pytest.fixture
def scope() -> Scope:
    """A scope that names a peer and its stage."""
    return Scope.root(60).within(None, peer=PEER, stage="call")


def test_broken_bytes_are_the_peers_fault_at_the_stage_of_the_scope(scope: Scope) -> None:
    error = broken(WireError("bad frame"), scope)
    assert type(error) is PeerProtocolError and str(error) == f"{PEER}: call: bad frame"
    limit = broken(WireError("too long", limit="max_frame_bytes", amount=5), scope)
    assert isinstance(limit, PeerLimit) and (limit.limit, limit.amount, limit.stage) == (
        "max_frame_bytes",
        5,
        "call",
    )
    unknown = broken(WireError("too long", limit="max_frame_bytes"), scope)
    assert isinstance(unknown, PeerLimit) and unknown.amount == 0


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ({"code": 1, "message": "no such file"}, '"no such file"'),
        ({"code": 1, "message": "two\nlines"}, '"two lines"'),
        ({"code": 1, "message": 5}, '"{"code":1,"message":5}"'),
        ("text", '""text""'),
        ({"message": "x" * 50}, '"...' + "x" * 30 + '"'),
    ],
)
def test_a_refusal_quotes_what_the_peer_said_and_keeps_all_of_it(
    scope: Scope, error: Json, shown: str
) -> None:
    refusal = refused(error, scope, quoted_chars=30)
    assert refusal.reason == f"answered with an error: {shown}"
    assert refusal.data == error and (refusal.peer, refusal.stage) == (PEER, "call")
