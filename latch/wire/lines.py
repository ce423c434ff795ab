"""Messages that end in a newline, as MCP sends them over stdio.

A message is the bytes before LF; one CR before it belongs to the line end. The limit counts the message
without its line end. An empty line is an empty message, for the caller to ignore or refuse. Bytes after
the last LF are not a message, whatever they hold: a cut stream must not look like a finished one.
"""

from __future__ import annotations

from collections import deque

from ..errors import WireError
from .buffer import ByteBuffer

__all__ = ["LineReader"]


class LineReader:
    """Cuts a byte stream into lines of at most *max_bytes*.

    Call :meth:`feed` with whatever arrived and then :meth:`next_line` until it returns None. After a line
    that is too long the reader hands out the lines before it and then raises the same error for ever.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Room for the longest line with CR and LF, so that feed always makes progress.
        self._buffer = ByteBuffer(max_bytes + 2)
        self._lines: deque[bytes] = deque()
        self._error: WireError | None = None

    @property
    def at_boundary(self) -> bool:
        """True when no part of an unfinished line has arrived: an end of stream here is clean."""
        return not (self._buffer or self._error)

    def feed(self, data: bytes) -> None:
        """Take in *data*. Never raises: what is wrong with it is told in its turn by :meth:`next_line`."""
        start = 0 if self._buffer or self._error else self._feed_whole_line(data)
        while start < len(data) and self._error is None:
            piece = data[start : start + self._buffer.room]
            start += len(piece)
            self._buffer.append(piece)
            while self._advance():
                pass

    def _feed_whole_line(self, data: bytes) -> int:
        """Take the line that *data* begins with and holds whole, as most do; return where it ends."""
        end = data.find(b"\n")
        if not 0 <= end <= self._max_bytes or data[end - 1 : end] == b"\r":
            return 0
        self._lines.append(data[:end])
        return end + 1

    def next_line(self) -> bytes | None:
        """Return the next line without its end, or None when more bytes are needed."""
        if self._lines:
            return self._lines.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _advance(self) -> bool:
        """Consume one line. False: more bytes are needed, or the stream is broken."""
        end = self._buffer.find(b"\n")
        if end < 0:
            return len(self._buffer) > self._max_bytes and self._refuse_unfinished()
        line = self._buffer.take(end + 1)[:-1]
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._max_bytes:
            return self._fail()
        self._lines.append(line)
        return True

    def _refuse_unfinished(self) -> bool:
        # One byte over is not yet too long when it is the CR of a line end.
        over = self._buffer.peek(self._max_bytes + 2)[self._max_bytes :]
        return False if over == b"\r" else self._fail()

    def _fail(self) -> bool:
        limit = self._max_bytes
        self._error = WireError(f"line over {limit} bytes", limit="max_message_bytes", amount=limit)
        return False
