"""Newline-delimited messages: vectors in every cut, the limit, and that the work is linear."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import WireError
from latch.wire.lines import LineReader
from tests.support import feeds

VECTORS = feeds.load_vectors("lines")


def limit_of(vector: dict[str, Any]) -> int:
    return vector.get("max_bytes", 4096)


def story_of(vector: dict[str, Any]) -> feeds.Story:
    story: feeds.Story = [feeds.piece_bytes(event) for event in vector["events"]]
    if "error" in vector:
        error = vector["error"]
        story.append(("error", error["reason"], error["limit"], error["amount"]))
    return story


def read(pieces: list[bytes], max_bytes: int = 4096) -> tuple[feeds.Story, LineReader]:
    reader = LineReader(max_bytes)
    return feeds.tell(reader, LineReader.next_line, pieces), reader


@pytest.mark.parametrize("vector", VECTORS, ids=feeds.names_of(VECTORS))
def test_every_cut_of_a_vector_gives_its_events(vector: dict[str, Any]) -> None:
    for label, pieces in feeds.feedings(feeds.input_bytes(vector)):
        story, reader = read(pieces, limit_of(vector))
        assert story == story_of(vector), label
        assert reader.at_boundary is vector["at_boundary"], label


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["at_boundary"]], ids=lambda vector: str(vector["name"])
)
def test_bytes_after_a_vector_begin_a_line_of_their_own(vector: dict[str, Any]) -> None:
    data = feeds.input_bytes(vector)
    for label, pieces in feeds.feedings(data + b"7\nx"):
        story, reader = read(pieces, limit_of(vector))
        assert (story, reader.at_boundary) == ([*story_of(vector), b"7"], False), label


def test_a_reader_stays_broken_after_a_long_line() -> None:
    story, reader = read([b"1\n" + b"2" * 9 + b"\n3\n"], 8)
    assert [story[0], story[1][0], len(story)] == [b"1", "error", 2]
    reader.feed(b"4\n")
    with pytest.raises(WireError):
        reader.next_line()
    assert not reader.at_boundary


def test_spoilt_streams_tell_the_same_story_in_every_cut() -> None:
    for spoil, data in feeds.damaged(b"12345678\r\n\n1234567\n12\r3\r\n\r\r\n" * 2, seed=21, count=150):
        stories = {label: read(pieces, 8)[0] for label, pieces in feeds.feedings(data)}
        assert all(story == stories["whole"] for story in stories.values()), spoil


def test_lines_fed_together_wait_in_order() -> None:
    reader = LineReader(10)
    reader.feed(b"1\n2\n")
    reader.feed(b"3\n")
    assert [reader.next_line() for _ in range(4)] == [b"1", b"2", b"3", None]


def test_a_slow_sender_is_searched_once() -> None:
    reader = LineReader(50_000)
    reader._buffer, store = feeds.counted_buffer(50_002)
    for _ in range(10_000):
        reader.feed(b"x")
    reader.feed(b"\n")
    assert reader.next_line() == b"x" * 10_000
    assert store.searched == store.added == 10_001
