"""Server-sent events: vectors in every cut, the limits, and that the work is linear."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import WireError
from latch.limits import EventStreamLimits
from latch.wire.sse import EventStreamReader, ServerEvent
from tests.support import feeds

VECTORS = feeds.load_vectors("sse")
LIMITS = EventStreamLimits()
MIB = 1024 * 1024


def limits_of(vector: dict[str, Any]) -> EventStreamLimits:
    return EventStreamLimits(**vector.get("limits", {}))


def story_of(vector: dict[str, Any]) -> feeds.Story:
    story: feeds.Story = [
        ServerEvent(**{**event, "data": feeds.piece_bytes(event["data"])}) for event in vector["events"]
    ]
    if "error" in vector:
        error = vector["error"]
        story.append(("error", error["reason"], error["limit"], error["amount"]))
    return story


def read(pieces: list[bytes], limits: EventStreamLimits = LIMITS) -> tuple[feeds.Story, EventStreamReader]:
    reader = EventStreamReader(limits)
    return feeds.tell(reader, EventStreamReader.next_event, pieces), reader


@pytest.mark.parametrize("vector", VECTORS, ids=feeds.names_of(VECTORS))
def test_every_cut_of_a_vector_gives_its_events(vector: dict[str, Any]) -> None:
    for label, pieces in feeds.feedings(feeds.input_bytes(vector)):
        story, reader = read(pieces, limits_of(vector))
        assert story == story_of(vector), label
        assert reader.at_boundary is vector["at_boundary"], label


@pytest.mark.parametrize("vector", VECTORS, ids=feeds.names_of(VECTORS))
def test_every_cut_of_a_vector_ends_with_its_id_and_time(vector: dict[str, Any]) -> None:
    for label, pieces in feeds.feedings(feeds.input_bytes(vector)):
        _, reader = read(pieces, limits_of(vector))
        known = (reader.last_event_id, reader.retry_ms)
        assert known == (vector.get("last_event_id", ""), vector.get("retry_ms")), label


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["at_boundary"]], ids=lambda vector: str(vector["name"])
)
def test_bytes_after_a_vector_begin_an_event_of_their_own(vector: dict[str, Any]) -> None:
    data = feeds.input_bytes(vector)
    for label, pieces in feeds.feedings(data + b"data: 7\n\nx"):
        story, reader = read(pieces, limits_of(vector))
        assert (story, reader.at_boundary) == ([*story_of(vector), ServerEvent(b"7")], False), label


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if "error" in v], ids=lambda vector: str(vector["name"])
)
def test_bytes_after_an_error_change_nothing(vector: dict[str, Any]) -> None:
    story, reader = read([feeds.input_bytes(vector) + b"\n\ndata: 7\n\n"], limits_of(vector))
    assert story == story_of(vector)
    reader.feed(b"\n\ndata: 7\n\n")
    with pytest.raises(WireError) as caught:
        reader.next_event()
    assert caught.value.reason == vector["error"]["reason"]


def test_spoilt_streams_tell_the_same_story_in_every_cut() -> None:
    stream = b"\xef\xbb\xbfid: 1\r\ndata: a\r\n\r\n: c\rdata: b\rdata: c\r\rretry: 7\nevent: e\ndata\n\n\n"
    for spoil, data in feeds.damaged(stream * 2, seed=22, count=150):
        stories = {label: read(pieces)[0] for label, pieces in feeds.feedings(data)}
        assert all(story == stories["whole"] for story in stories.values()), spoil


def test_spoilt_streams_near_the_limit_tell_the_same_story_in_every_cut() -> None:
    limits = EventStreamLimits(max_event_bytes=12)
    for spoil, data in feeds.damaged(
        b"data: 123456\r\n\r\n\ndata: 12345\n\r\r:\r\n\r\n" * 2, seed=23, count=150
    ):
        stories = {label: read(pieces, limits)[0] for label, pieces in feeds.feedings(data)}
        assert all(story == stories["whole"] for story in stories.values()), spoil


def test_events_fed_together_wait_in_order() -> None:
    reader = EventStreamReader(LIMITS)
    reader.feed(b"data: 1\n\ndata: 2\n\n")
    reader.feed(b"data: 3\n\n")
    assert [reader.next_event() for _ in range(4)] == [*map(ServerEvent, (b"1", b"2", b"3")), None]


def test_an_id_counts_when_its_event_is_handed_out() -> None:
    reader = EventStreamReader(LIMITS)
    reader.feed(b"id: 1\ndata: 1\n\nid: 2\nretry: 9\ndata: 2\n\n")
    reader.next_event()
    assert (reader.last_event_id, reader.retry_ms) == ("1", None)
    reader.next_event()
    assert (reader.last_event_id, reader.retry_ms) == ("2", 9)


def test_a_carriage_return_ends_its_event_without_waiting_for_more() -> None:
    reader = EventStreamReader(LIMITS)
    reader.feed(b"data: 1\r\n\r")
    assert reader.next_event() == ServerEvent(b"1")
    reader.feed(b"\n")
    assert reader.at_boundary


def test_an_event_of_exactly_4_mib_is_read_in_pieces() -> None:
    data = b"data: " + b"x" * (4 * MIB - 6) + b"\n\n"
    story, reader = read([data[at : at + 65536] for at in range(0, len(data), 65536)])
    assert story == [ServerEvent(data[6:-2])]
    assert reader.at_boundary


def test_a_longer_event_is_refused_as_soon_as_it_is_too_long() -> None:
    reader = EventStreamReader(LIMITS)
    reader.feed(b"data: " + b"x" * (4 * MIB - 6))
    assert reader.next_event() is None
    reader.feed(b"x")
    with pytest.raises(WireError) as caught:
        reader.next_event()
    assert (caught.value.limit, caught.value.amount) == ("max_event_bytes", 4 * MIB)


class CountingStore(bytearray):
    """A bytearray that counts the bytes it searches from the end."""

    searched = 0

    def rfind(self, pattern: bytes, start: int = 0) -> int:
        self.searched += len(self) - start
        return super().rfind(pattern, start)


def test_a_slow_sender_is_searched_once() -> None:
    reader = EventStreamReader(LIMITS)
    # The one place where a test looks inside: work on bytes shows nowhere else but in time.
    reader._unfinished = store = CountingStore()
    for _ in range(10_000):
        reader.feed(b"data: x\n")
    reader.feed(b"\n")
    assert reader.next_event() == ServerEvent(b"\n".join([b"x"] * 10_000))
    assert store.searched <= 80_000 + 2 * 10_001
