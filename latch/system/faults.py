"""What a peer said wrongly, as the error that names it: peer and stage come from the scope."""

from __future__ import annotations

from ..errors import PeerError, PeerLimit, PeerProtocolError, PeerRefused, WireError
from ..wire.excerpts import quote_end
from ..wire.jsontext import Json, encode_json
from .scope import Scope

__all__ = ["broken", "refused"]


def broken(error: WireError, scope: Scope) -> PeerError:
    """Return *error* as that of the peer and stage of *scope*."""
    if error.limit is not None:
        return PeerLimit(
            error.reason, limit=error.limit, amount=error.amount or 0, peer=scope.peer, stage=scope.stage
        )
    return PeerProtocolError(error.reason, peer=scope.peer, stage=scope.stage)


def refused(error: Json, scope: Scope, *, quoted_chars: int) -> PeerRefused:
    """Return the error for an answer whose JSON-RPC ``error`` member is *error*."""
    message = error.get("message") if isinstance(error, dict) else None
    text = message if isinstance(message, str) else encode_json(error).decode("utf-8")
    return PeerRefused(
        f"answered with an error: {quote_end(text, quoted_chars)}",
        data=error,
        peer=scope.peer,
        stage=scope.stage,
    )
