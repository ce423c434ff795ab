r"""Content-Length frames, as in the Language Server Protocol: header lines, a blank line, a body.

::

    Content-Length: 17\r\n
    \r\n
    {"jsonrpc":"2.0"}

What is read: header names in any case, lines ended by LF or CRLF, other headers ignored,
``Content-Length`` once (a repetition must agree), both parts within their limits, and the length judged
before any of its body is waited for. What is written: that one header, with CRLF.

Nothing is resynchronised. After the first bad byte a reader hands out what came before it and then raises
the same :class:`WireError` for ever. The body is not looked at; see ``jsontext``.
"""

from __future__ import annotations

import re
from collections import deque

from ..errors import WireError
from ..limits import FrameLimits
from .buffer import ByteBuffer

__all__ = ["FrameReader", "encode_frame"]

# RFC 9110, "Field Names" (token) and "Field Values". A name without blanks is demanded although unknown
# names are ignored: most lines of a log that strayed into the stream have a colon, few look like this.
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):(.*)", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# 20 digits hold any 64-bit number; more are never an honest length and cost time to convert.
_LENGTH = re.compile(rb"[0-9]{1,20}")

# The one header block that nearly every peer writes. A frame of it that arrived whole skips the buffer;
# the pattern accepts nothing that the way through the buffer would not.
_PLAIN_HEADER = re.compile(rb"Content-Length: ([0-9]{1,9})\r\n\r\n")


def encode_frame(body: bytes, limits: FrameLimits) -> bytes:
    """Return *body* as one frame; :class:`WireError` when it is over the body limit."""
    if len(body) > limits.max_body_bytes:
        raise _too_long(len(body), limits)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameReader:
    """Cuts a byte stream into frame bodies.

    Call :meth:`feed` with whatever arrived and then :meth:`next_frame` until it returns None. What is
    kept of an unfinished frame is bounded by the limits; finished frames wait until they are asked for.
    """

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        # Room for the largest unfinished frame and one byte more, so that feed always makes progress.
        self._buffer = ByteBuffer(limits.max_header_bytes + limits.max_body_bytes + 1)
        self._frames: deque[bytes] = deque()
        self._error: WireError | None = None
        self._header_bytes = 0
        self._first_line: bytes | None = None
        self._length: int | None = None
        self._body_bytes: int | None = None

    @property
    def at_boundary(self) -> bool:
        """True when no part of an unfinished frame has arrived: an end of stream here is clean."""
        return not (self._buffer or self._header_bytes or self._error)

    def feed(self, data: bytes) -> None:
        """Take in *data*. Never raises: what is wrong with it is told in its turn by :meth:`next_frame`."""
        start = 0 if self._buffer or self._header_bytes or self._error else self._feed_whole_frames(data)
        while start < len(data) and self._error is None:
            piece = data[start : start + self._buffer.room]
            start += len(piece)
            self._buffer.append(piece)
            while self._advance():
                pass

    def _feed_whole_frames(self, data: bytes) -> int:
        """Take the plain frames that *data* begins with and holds whole; return where they end."""
        start = 0
        while found := _PLAIN_HEADER.match(data, start):
            length = int(found[1])
            end = found.end() + length
            if end > len(data) or length > self._limits.max_body_bytes:
                break
            if found.end() - start > self._limits.max_header_bytes:
                break
            self._frames.append(data[found.end() : end])
            start = end
        return start

    def next_frame(self) -> bytes | None:
        """Return the next body, or None when more bytes are needed; :class:`WireError` at a bad frame."""
        if self._frames:
            return self._frames.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _advance(self) -> bool:
        """Consume one header line or one body. False: more bytes are needed, or the stream is broken."""
        if self._body_bytes is None:
            return self._advance_header()
        if len(self._buffer) < self._body_bytes:
            return False
        self._frames.append(self._buffer.take(self._body_bytes))
        self._header_bytes = 0
        self._first_line = self._length = self._body_bytes = None
        return True

    def _advance_header(self) -> bool:
        end = self._buffer.find(b"\n")
        known = self._header_bytes + (len(self._buffer) if end < 0 else end + 1)
        if known > self._limits.max_header_bytes:
            return self._fail_header()
        if end < 0:
            return False
        self._header_bytes = known
        line = self._buffer.take(end + 1)[:-1]
        if line.endswith(b"\r"):
            line = line[:-1]
        if self._first_line is None:
            self._first_line = line
        return self._read_field(line) if line else self._end_header()

    def _read_field(self, line: bytes) -> bool:
        field = _FIELD.fullmatch(line)
        if field is None:
            return self._fail(WireError(f"expected a Content-Length header, got {self._quoted(line)}"))
        if _CONTROL.search(line):
            return self._fail(WireError(f"control character in the header {self._quoted(line)}"))
        name, value = field.groups()
        if name.lower() == b"content-length":
            return self._read_length(value.strip(b" \t"))
        return True

    def _read_length(self, value: bytes) -> bool:
        if not _LENGTH.fullmatch(value):
            return self._fail(WireError(f"Content-Length must be 1 to 20 digits, got {self._quoted(value)}"))
        length = int(value)
        if self._length not in (None, length):
            return self._fail(WireError(f"Content-Length given as {self._length} and as {length}"))
        if length > self._limits.max_body_bytes:
            return self._fail(_too_long(length, self._limits))
        self._length = length
        return True

    def _end_header(self) -> bool:
        if self._length is None:
            first = self._first_line
            got = self._quoted(first) if first else "a blank line"
            return self._fail(WireError(f"expected a Content-Length header, got {got}"))
        self._body_bytes = self._length
        return True

    def _fail_header(self) -> bool:
        limit = self._limits.max_header_bytes
        first = (
            self._buffer.peek(self._limits.max_quoted_bytes + 1)
            if self._first_line is None
            else self._first_line
        )
        return self._fail(
            WireError(
                f"header block over {limit} bytes, starting with {self._quoted(first)}",
                limit="max_header_bytes",
                amount=limit,
            )
        )

    def _fail(self, error: WireError) -> bool:
        self._error = error
        return False

    def _quoted(self, line: bytes) -> str:
        """Return the start of *line* as text that is safe on any terminal."""
        most = self._limits.max_quoted_bytes
        text = line[: most + 1].decode("utf-8", "replace")
        return repr(text) if len(line) <= most else repr(text[:most]) + "..."


def _too_long(length: int, limits: FrameLimits) -> WireError:
    limit = limits.max_body_bytes
    return WireError(f"body of {length} bytes, {limit} are allowed", limit="max_body_bytes", amount=limit)
