"""The byte buffer: its cap, its order, and that its work is linear."""

from __future__ import annotations

import pytest

from latch.errors import UsageError, WireError
from latch.wire.buffer import ByteBuffer
from tests.support.feeds import counted_buffer


def filled(data: bytes) -> ByteBuffer:
    buffer = ByteBuffer(100)
    buffer.append(data)
    return buffer


def test_bytes_come_out_in_the_order_they_went_in() -> None:
    buffer = filled(b"abc")
    buffer.append(b"")
    buffer.append(b"defg")
    assert [buffer.take(2), buffer.take(0), buffer.take(4), len(buffer)] == [b"ab", b"", b"cdef", 1]


def test_what_is_taken_is_bytes_and_independent_of_the_buffer() -> None:
    buffer = filled(b"abcd")
    taken = buffer.take(2)
    buffer.append(b"x")
    assert type(taken) is bytes and taken == b"ab"


def test_peek_keeps_what_it_shows() -> None:
    buffer = filled(b"abc")
    assert [buffer.peek(2), buffer.peek(9), len(buffer)] == [b"ab", b"abc", 3]
    assert type(buffer.peek(2)) is bytes


def test_taking_more_than_there_is_changes_nothing() -> None:
    buffer = filled(b"abc")
    with pytest.raises(UsageError):
        buffer.take(4)
    assert buffer.take(3) == b"abc"


def test_the_cap_is_inclusive_and_counts_unread_bytes() -> None:
    buffer = ByteBuffer(4)
    buffer.append(b"abcd")
    assert buffer.room == 0
    buffer.take(3)
    assert buffer.room == 3
    buffer.append(b"efg")
    assert buffer.take(4) == b"defg"


def test_data_over_the_cap_is_refused_whole() -> None:
    buffer = ByteBuffer(4)
    buffer.append(b"ab")
    with pytest.raises(WireError) as caught:
        buffer.append(b"cde")
    assert (caught.value.limit, caught.value.amount) == ("max_bytes", 4)
    assert buffer.peek(9) == b"ab"


@pytest.mark.parametrize("pattern", [b";", b"\r\n", b"\r\n\r\n"])
def test_a_pattern_is_found_wherever_the_pieces_are_cut(pattern: bytes) -> None:
    data = b"ab\r" + pattern + b"cd"
    for size in range(1, len(data) + 1):
        buffer = ByteBuffer(100)
        found = -1
        for at in range(0, len(data), size):
            buffer.append(data[at : at + size])
            found = buffer.find(pattern)
            if found >= 0:
                break
        assert found == data.find(pattern), f"pieces of {size}"


def test_a_found_pattern_is_found_again_until_it_is_taken() -> None:
    buffer = filled(b"ab;cd;e")
    assert [buffer.find(b";"), buffer.find(b";")] == [2, 2]
    buffer.take(3)
    assert buffer.find(b";") == 2
    buffer.take(3)
    assert buffer.find(b";") == -1


def test_taking_part_of_what_was_searched_loses_no_match() -> None:
    buffer = filled(b"abcdef")
    assert buffer.find(b";") == -1
    buffer.take(4)
    buffer.append(b"gh;")
    assert buffer.find(b";") == 4


def test_another_pattern_is_searched_from_the_start() -> None:
    buffer = filled(b"a,b;")
    assert [buffer.find(b";"), buffer.find(b","), buffer.find(b";")] == [3, 1, 3]


def test_a_byte_by_byte_sender_costs_one_search_of_each_byte() -> None:
    buffer, store = counted_buffer(100_000)
    for _ in range(20_000):
        buffer.append(b"x")
        assert buffer.find(b"\n") == -1
    assert store.searched <= 20_000


def test_a_long_pattern_is_looked_at_again_by_its_own_length_only() -> None:
    buffer, store = counted_buffer(100_000)
    for _ in range(5_000):
        buffer.append(b"x")
        buffer.find(b"\r\n\r\n")
    assert store.searched <= 5_000 * len(b"\r\n\r\n")


def test_many_messages_in_one_piece_are_searched_once() -> None:
    buffer, store = counted_buffer(100_000)
    buffer.append(b"12345678\n" * 10_000)
    while buffer.find(b"\n") >= 0:
        buffer.take(9)
    assert store.searched == 90_000


def test_a_large_message_in_pieces_is_added_to_one_store() -> None:
    size, piece = 16 * 1024 * 1024, bytes(64 * 1024)
    buffer, store = counted_buffer(size)
    for _ in range(size // len(piece)):
        buffer.append(piece)
    # A buffer that were built anew for each piece would have left the counting store.
    assert store.added == size == len(buffer.take(size))
