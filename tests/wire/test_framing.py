"""Content-Length frames: vectors in every cut, limits, and what an error leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from latch.errors import WireError
from latch.limits import FrameLimits
from latch.wire.framing import FrameReader, encode_frame
from tests.support import feeds

VECTORS = feeds.load_vectors("framing")
LIMITS = FrameLimits()
MIB = 1024 * 1024


def limits_of(vector: dict[str, Any]) -> FrameLimits:
    return FrameLimits(**vector.get("limits", {}))


def story_of(vector: dict[str, Any]) -> feeds.Story:
    story: feeds.Story = [feeds.piece_bytes(event) for event in vector["events"]]
    if "error" in vector:
        error = vector["error"]
        story.append(("error", error["reason"], error.get("limit"), error.get("amount")))
    return story


def read(pieces: list[bytes], limits: FrameLimits = LIMITS) -> tuple[feeds.Story, FrameReader]:
    reader = FrameReader(limits)
    return feeds.tell(reader, FrameReader.next_frame, pieces), reader


@pytest.mark.parametrize("vector", VECTORS, ids=feeds.names_of(VECTORS))
def test_every_cut_of_a_vector_gives_its_events(vector: dict[str, Any]) -> None:
    for label, pieces in feeds.feedings(feeds.input_bytes(vector)):
        story, reader = read(pieces, limits_of(vector))
        assert story == story_of(vector), label
        assert reader.at_boundary is vector["at_boundary"], label


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["at_boundary"]], ids=lambda vector: str(vector["name"])
)
def test_bytes_after_a_vector_begin_a_frame_of_their_own(vector: dict[str, Any]) -> None:
    data = feeds.input_bytes(vector)
    for label, pieces in feeds.feedings(data + b"Content-Length: 1\r\n\r\n7"):
        story, reader = read(pieces, limits_of(vector))
        assert (story, reader.at_boundary) == ([*story_of(vector), b"7"], True), label
    for label, pieces in feeds.feedings(data + b"C"):
        story, reader = read(pieces, limits_of(vector))
        assert (story, reader.at_boundary) == (story_of(vector), False), label


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if "error" in v], ids=lambda vector: str(vector["name"])
)
def test_bytes_after_an_error_change_nothing(vector: dict[str, Any]) -> None:
    more = b"\r\n\r\nContent-Length: 1\r\n\r\n7"
    story, reader = read([feeds.input_bytes(vector) + more], limits_of(vector))
    assert story == story_of(vector)
    reader.feed(more)
    with pytest.raises(WireError) as caught:
        reader.next_frame()
    assert caught.value.reason == vector["error"]["reason"]


def test_spoilt_streams_tell_the_same_story_in_every_cut() -> None:
    stream = b"".join(encode_frame(body, LIMITS) for body in (b"{}", b"", b"[1,2]", b"x" * 40))
    for spoil, data in feeds.damaged(stream, seed=20, count=150):
        stories = {label: read(pieces)[0] for label, pieces in feeds.feedings(data)}
        assert all(story == stories["whole"] for story in stories.values()), spoil


def test_frames_fed_together_wait_in_order() -> None:
    reader = FrameReader(LIMITS)
    reader.feed(encode_frame(b"1", LIMITS) + encode_frame(b"2", LIMITS))
    reader.feed(encode_frame(b"3", LIMITS))
    assert [reader.next_frame() for _ in range(4)] == [b"1", b"2", b"3", None]


def test_encoding_writes_one_header_with_crlf() -> None:
    assert encode_frame(b'{"a":1}', LIMITS) == b'Content-Length: 7\r\n\r\n{"a":1}'


@pytest.mark.parametrize("body", [b"", b"x", b"\r\n\r\n", bytes(range(256)) * 300], ids=len)
def test_what_is_encoded_is_read_back(body: bytes) -> None:
    for label, pieces in feeds.feedings(encode_frame(body, LIMITS)):
        assert read(pieces)[0] == [body], label


def test_a_body_of_exactly_16_mib_is_written_and_read_in_pieces() -> None:
    body = b"\xa5" * (16 * MIB)
    frame = encode_frame(body, LIMITS)
    story, reader = read([frame[at : at + 65536] for at in range(0, len(frame), 65536)])
    assert story == [body]
    assert reader.at_boundary


def test_two_of_the_largest_bodies_may_arrive_in_one_piece() -> None:
    limits = FrameLimits(max_body_bytes=1000, max_header_bytes=30)
    assert read([encode_frame(b"x" * 1000, limits) * 5], limits)[0] == [b"x" * 1000] * 5


def test_a_body_over_the_limit_is_not_written() -> None:
    limits = FrameLimits(max_body_bytes=4)
    assert encode_frame(b"1234", limits).endswith(b"\r\n1234")
    with pytest.raises(WireError) as caught:
        encode_frame(b"12345", limits)
    assert (caught.value.limit, caught.value.amount) == ("max_body_bytes", 4)


def test_a_length_over_the_limit_is_refused_before_its_body_comes() -> None:
    reader = FrameReader(LIMITS)
    reader.feed(b"Content-Length: 16777217\r\n")
    with pytest.raises(WireError) as caught:
        reader.next_frame()
    assert (caught.value.limit, caught.value.amount) == ("max_body_bytes", 16 * MIB)


def test_a_slow_sender_and_a_large_frame_are_searched_once() -> None:
    frame = b"X-Pad: " + b"x" * 8000 + b"\r\nContent-Length: 9000\r\n\r\n" + b"y" * 9000
    reader = FrameReader(LIMITS)
    reader._buffer, store = feeds.counted_buffer(100_000)
    for at in range(len(frame)):
        reader.feed(frame[at : at + 1])
    assert reader.next_frame() == b"y" * 9000
    assert store.searched <= len(frame) - 9000
    assert store.added == len(frame)


def test_what_is_quoted_of_a_header_has_its_limit() -> None:
    reader = FrameReader(FrameLimits(max_quoted_bytes=5))
    reader.feed(b"nonsense that goes on\n")
    with pytest.raises(WireError) as raised:
        reader.next_frame()
    assert raised.value.reason == "expected a Content-Length header, got 'nonse'..."
