"""HTTP/1.1 answers: vectors in every cut, and that the work is linear."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import WireError
from latch.limits import HttpLimits
from latch.wire.httpreply import ReplyHead, ReplyReader
from tests.support import feeds

VECTORS = feeds.load_vectors("httpreply")
LIMITS = HttpLimits()


def story_of(vector: dict[str, Any]) -> dict[str, Any]:
    story = {key: vector[key] for key in ("status", "reason", "fields", "cut", "reusable") if key in vector}
    if "body" in vector:
        story["body"] = feeds.piece_bytes(vector["body"])
    if "error" in vector:
        error = vector["error"]
        story["error"] = (error["reason"], error.get("limit"), error.get("amount"))
    return story


def read(pieces: list[bytes], method: str = "GET", limits: HttpLimits = LIMITS) -> dict[str, Any]:
    """Feed *pieces* as a connection would, up to the end of the answer, and tell what came of them."""
    reader = ReplyReader(method, limits)
    story: dict[str, Any] = {}
    try:
        for piece in pieces:
            reader.feed(piece)
            if not story and not _has_head(reader, story):
                continue
            while body := reader.next_piece():
                story["body"] += body
        story["cut"] = reader.end()
        if not story["cut"]:
            assert reader.next_piece() == b""
        story["reusable"] = reader.is_reusable
    except WireError as error:
        with pytest.raises(WireError, match=error.reason):
            (reader.next_piece if "body" in story else reader.next_head)()
        story["error"] = (error.reason, error.limit, error.amount)
    return story


def _has_head(reader: ReplyReader, story: dict[str, Any]) -> bool:
    head = reader.next_head()
    if head is None:
        return False
    assert reader.next_head() is head
    story.update(
        status=head.status, reason=head.reason, fields=[list(pair) for pair in head.fields], body=b""
    )
    return True


@pytest.mark.parametrize("vector", VECTORS, ids=feeds.names_of(VECTORS))
def test_every_cut_of_a_vector_tells_its_story(vector: dict[str, Any]) -> None:
    limits = HttpLimits(**vector.get("limits", {}))
    for label, pieces in feeds.feedings(feeds.input_bytes(vector)):
        assert read(pieces, vector.get("method", "GET"), limits) == story_of(vector), label


def test_spoilt_streams_tell_the_same_story_in_every_cut() -> None:
    stream = b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\nTransfer-Encoding: chunked\r\nA: 1\r\n\r\n"
    stream += b"5\r\nhello\r\n0b;x\r\nhello world\r\n0\r\nX: 1\r\n\r\n"
    for spoil, data in feeds.damaged(stream, seed=24, count=300):
        stories = {label: read(pieces) for label, pieces in feeds.feedings(data)}
        assert all(story == stories["whole"] for story in stories.values()), spoil


def head_of(data: bytes) -> ReplyHead:
    reader = ReplyReader("GET", LIMITS)
    reader.feed(data)
    head = reader.next_head()
    assert head is not None
    return head


@pytest.mark.parametrize(
    ("fields", "length"),
    [(b"Content-Length: 5\r\n", 5), (b"Transfer-Encoding: chunked\r\n", None), (b"", None)],
)
def test_a_head_tells_the_length_of_the_body_where_it_is_known(fields: bytes, length: int | None) -> None:
    assert head_of(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n").length == length


def test_a_head_shows_no_values() -> None:
    assert "hidden" not in repr(head_of(b"HTTP/1.1 200 OK\r\nX-Key: hidden\r\n\r\n"))


def test_a_piece_is_handed_out_before_the_body_is_whole() -> None:
    reader = ReplyReader("GET", LIMITS)
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nda")
    reader.next_head()
    assert (reader.next_piece(), reader.next_piece()) == (b"da", None)
    reader.feed(b"ta")
    assert reader.next_piece() == b"ta"


def test_many_chunks_that_came_together_are_one_piece() -> None:
    reader = ReplyReader("GET", LIMITS)
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000)
    reader.next_head()
    assert reader.next_piece() == b"x" * 50_000


def test_the_head_of_a_slow_sender_is_searched_once() -> None:
    reader = ReplyReader("GET", LIMITS)
    # The one place where a test looks inside: work on bytes shows nowhere else but in time.
    data = b"HTTP/1.1 200 OK\r\nA: " + b"x" * 1000
    for at in range(len(data)):
        reader.feed(data[at : at + 1])
        assert reader.next_head() is None
        assert reader._searched == max(0, at - 1)
