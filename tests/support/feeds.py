"""Wire vectors and the ways of feeding them to a reader.

A vector lives in ``fixtures/wire``; ``fixtures/README.rst`` describes the files. A reader is fed each
input whole, byte by byte and cut at seeded random places, and must tell the same story each time. The
seed is part of every label, so that a failure can be repeated.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

from latch.errors import WireError
from latch.wire.buffer import ByteBuffer

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "wire"
SEEDS = (1, 2, 3, 4)

# What a reader gave: messages in order, then ("error", reason, limit, amount) if it ended in one.
Story = list


class CountingBytes(bytearray):
    """A bytearray that counts the bytes it searches and the bytes added to it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.searched = 0
        self.added = 0

    def find(self, pattern: bytes, start: int = 0) -> int:
        found = super().find(pattern, start)
        self.searched += (len(self) if found < 0 else found + len(pattern)) - start
        return found

    def __iadd__(self, data: bytes) -> CountingBytes:
        super().extend(data)
        self.added += len(data)
        return self


def counted_buffer(max_bytes: int) -> tuple[ByteBuffer, CountingBytes]:
    """Return an empty buffer and the store in which it counts its work."""
    buffer = ByteBuffer(max_bytes)
    store = CountingBytes()
    # The one place where a test looks inside: work on bytes shows nowhere else but in time.
    buffer._data = store
    return buffer, store


def load_vectors(name: str) -> list[dict[str, Any]]:
    """Return the vectors of ``fixtures/wire/<name>.json``."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]


def names_of(vectors: list[dict[str, Any]]) -> list[str]:
    """Return test ids for *vectors*, and insist that no two are the same."""
    names = [vector["name"] for vector in vectors]
    assert len(set(names)) == len(names)
    return names


def piece_bytes(piece: Any) -> bytes:
    """Return the bytes of one piece: text, ``{"base64": ...}`` or ``{"repeat": text, "times": n}``."""
    if isinstance(piece, str):
        return piece.encode("utf-8")
    if "base64" in piece:
        return base64.b64decode(piece["base64"], validate=True)
    return piece["repeat"].encode("utf-8") * piece["times"]


def input_bytes(vector: dict[str, Any]) -> bytes:
    """Return the whole input of *vector*."""
    return b"".join(piece_bytes(piece) for piece in vector["chunks"])


def cut(data: bytes, seed: int) -> list[bytes]:
    """Return *data* in pieces of 0 to 12 bytes, chosen by *seed*."""
    source = random.Random(seed)
    pieces = []
    start = 0
    while start < len(data):
        end = start + source.randint(0, 12)
        pieces.append(data[start:end])
        start = end
    return pieces


def feedings(data: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Yield (label, pieces) for every way in which *data* is fed."""
    yield "whole", [data]
    yield "byte by byte", [data[at : at + 1] for at in range(len(data))]
    for seed in SEEDS:
        yield f"cut with seed {seed}", cut(data, seed)


def damaged(data: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield *count* spoilt copies of *data*: cut short, or with one bit flipped."""
    source = random.Random(seed)
    for number in range(count):
        at = source.randrange(len(data))
        label = f"seed {seed}, copy {number}"
        if source.random() < 0.5:
            yield f"{label}, cut at {at}", data[:at]
        else:
            flipped = data[at] ^ (1 << source.randrange(8))
            yield f"{label}, byte {at} flipped", data[:at] + bytes([flipped]) + data[at + 1 :]


def tell(reader: Any, take: Callable[[Any], bytes | None], pieces: list[bytes]) -> Story:
    """Feed *pieces* to *reader*, asking *take* for messages after each one, and return its story."""
    story: Story = []
    for piece in pieces:
        reader.feed(piece)
        if not _drain(reader, take, story):
            break
    return story


def _drain(reader: Any, take: Callable[[Any], bytes | None], story: Story) -> bool:
    while True:
        try:
            message = take(reader)
        except WireError as error:
            story.append(("error", error.reason, error.limit, error.amount))
            return False
        if message is None:
            return True
        story.append(message)
