"""A byte buffer with a cap that never searches the same bytes twice.

Both stream readers keep their unread bytes here. It promises that the work over the life of a stream
grows with its length and not with the number of pieces it came in: a byte is copied in once and out once,
and a search that found nothing resumes where it ended. It knows nothing of messages.
"""

from __future__ import annotations

from ..errors import UsageError, WireError

__all__ = ["ByteBuffer"]


class ByteBuffer:
    """Unread bytes, at most *max_bytes* of them. Offsets count from the oldest unread byte."""

    __slots__ = ("_data", "_max_bytes", "_pattern", "_searched")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        self._pattern = b""
        self._searched = 0

    def __len__(self) -> int:
        return len(self._data)

    @property
    def room(self) -> int:
        """How many more bytes :meth:`append` accepts."""
        return self._max_bytes - len(self._data)

    def append(self, data: bytes) -> None:
        """Add *data* at the end; refused whole, with nothing kept of it, when it does not fit."""
        if len(data) > self.room:
            raise WireError(
                f"more than {self._max_bytes} bytes are waiting", limit="max_bytes", amount=self._max_bytes
            )
        self._data += data

    def find(self, pattern: bytes) -> int:
        """Return the offset of the first *pattern*, or -1.

        The position is remembered for one pattern, the last one asked for: alternating between two
        patterns gives up the linear-time promise.
        """
        if pattern != self._pattern:
            self._pattern = pattern
            self._searched = 0
        found = self._data.find(pattern, self._searched)
        # A pattern may straddle the end, so its length less one is looked at again.
        self._searched = found if found >= 0 else max(0, len(self._data) - len(pattern) + 1)
        return found

    def peek(self, count: int) -> bytes:
        """Return the first *count* bytes, or all when there are fewer, and keep them."""
        return bytes(self._data[:count])

    def take(self, count: int) -> bytes:
        """Remove and return the first *count* bytes; asking for more than there are changes nothing."""
        if count > len(self._data):
            raise UsageError(f"{count} bytes were asked for and {len(self._data)} are there")
        # Views, so that a large body is copied once; both are released before the buffer shrinks.
        with memoryview(self._data) as unread, unread[:count] as head:
            taken = bytes(head)
        del self._data[:count]
        self._searched = max(0, self._searched - count)
        return taken
