r"""Server-sent events, as the WHATWG HTML standard defines the stream ("Parsing an event stream").

::

    : a comment\n
    id: 7\n
    data: {"jsonrpc":\n
    data: "2.0"}\n
    \n

An event is what stands between two blank lines. Lines end with LF, CRLF or CR and with nothing else, also
where CR and LF come in different pieces; one space after the colon is dropped; several ``data`` lines are
joined by LF; comments and unknown fields are ignored, as are an ``id`` with NUL in it and a ``retry`` that
is not digits. A byte order mark is dropped once, at the very start.

Two things differ from a browser. An event without data is handed out when it set an id, a time or empty
data, because servers begin a stream that can be resumed with such a one. And nothing of an event counts
before its blank line, the retry time included: a cut stream must not look like a finished one.

What the data means, and whether to connect again, is decided elsewhere.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from ..errors import WireError
from ..limits import EventStreamLimits

__all__ = ["EventStreamReader", "ServerEvent"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS = re.compile(rb"[0-9]+")


class ServerEvent(NamedTuple):
    """One event. ``data`` is its data lines joined by LF and may be empty; ``event`` its name; ``id`` and
    ``retry_ms`` (milliseconds) what this event set, or None.

    A tuple, because a third of the time of a stream of small events goes into making any other value.
    """

    data: bytes
    event: str = "message"
    id: str | None = None
    retry_ms: int | None = None


class EventStreamReader:
    """Cuts a byte stream into events.

    Call :meth:`feed` with whatever arrived and then :meth:`next_event` until it returns None. What is kept
    of an unfinished event is bounded; finished events wait, unread, until they are asked for. After an
    event that is too long the reader hands out the events before it and then raises the same error for
    ever.
    """

    def __init__(self, limits: EventStreamLimits) -> None:
        self._limits = limits
        # Every line end in here is one LF, and the first byte is none.
        self._unfinished = bytearray()
        self._blocks: deque[bytes] = deque()
        self._error: WireError | None = None
        self._start: bytes | None = b""
        self._after_cr = False
        self._last_event_id = ""
        self._retry_ms: int | None = None

    @property
    def last_event_id(self) -> str:
        """The id that the events handed out so far end with; "" when there is none."""
        return self._last_event_id

    @property
    def retry_ms(self) -> int | None:
        """How long to wait before connecting again, in milliseconds, by the events handed out so far."""
        return self._retry_ms

    @property
    def at_boundary(self) -> bool:
        """True when no part of an unfinished event has arrived: an end of stream here loses nothing."""
        return not (self._unfinished or self._start or self._error)

    def feed(self, data: bytes) -> None:
        """Take in *data*. Never raises: what is wrong with it is told in its turn by :meth:`next_event`."""
        if self._start is not None:
            data = self._without_mark(self._start + data)
        if data and self._error is None:
            self._cut(self._with_plain_ends(data))

    def next_event(self) -> ServerEvent | None:
        """Return the next event, or None when more bytes are needed; :class:`WireError` at one too long."""
        while self._blocks:
            event = self._parse(self._blocks.popleft().strip(b"\n"))
            if event is not None:
                return event
        if self._error is not None:
            raise self._error
        return None

    def _without_mark(self, data: bytes) -> bytes:
        if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data[len(_BYTE_ORDER_MARK) :] if data.startswith(_BYTE_ORDER_MARK) else data

    def _with_plain_ends(self, data: bytes) -> bytes:
        """Return *data* with every line end as LF. A CR ends its line at once, whatever follows it."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data

    def _cut(self, text: bytes) -> None:
        # One byte is found far faster than two, so it is asked first whether any line ends at all.
        if self._unfinished:
            # A blank line may straddle the two, so the last byte is looked at again.
            searched = len(self._unfinished) - 1
            self._unfinished += text
            end = self._unfinished.rfind(b"\n\n", searched) if b"\n" in text else -1
            if end >= 0:
                # Views, so that a large event is copied once; both are released before the buffer shrinks.
                with memoryview(self._unfinished) as kept, kept[:end] as ended:
                    blocks = bytes(ended)
                self._keep_blocks(blocks)
                del self._unfinished[:end]
        else:
            end = text.rfind(b"\n\n") if b"\n" in text else -1
            if end >= 0:
                self._keep_blocks(text[:end])
            self._unfinished += text[max(end, 0) :]
        if self._unfinished.startswith(b"\n"):
            self._unfinished = self._unfinished.lstrip(b"\n")
        # The LF at its end may be the first half of the blank line.
        if len(self._unfinished) - self._unfinished.endswith(b"\n") > self._limits.max_event_bytes:
            self._fail()

    def _keep_blocks(self, text: bytes) -> None:
        blocks = text.split(b"\n\n") if b"\n" in text else [text]
        if len(text) <= self._limits.max_event_bytes:
            self._blocks.extend(blocks)
            return
        for block in blocks:
            # More than one blank line leaves an LF at an end, which does not count.
            if len(block.strip(b"\n")) > self._limits.max_event_bytes:
                return self._fail()
            self._blocks.append(block)

    def _fail(self) -> None:
        limit = self._limits.max_event_bytes
        self._error = self._error or WireError(
            f"event over {limit} bytes", limit="max_event_bytes", amount=limit
        )
        self._unfinished.clear()

    def _parse(self, block: bytes) -> ServerEvent | None:
        head, data = _split_data(block)
        name, new_id, retry_ms = b"", None, None
        pieces = []
        for line in head:
            field, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if field == b"data":
                pieces.append(value)
            elif field == b"event":
                name = value
            elif field == b"id" and b"\0" not in value:
                new_id = value.decode("utf-8", "replace")
            elif field == b"retry" and _DIGITS.fullmatch(value):
                retry_ms = self._milliseconds(value)
        if data is not None:
            pieces.append(data)
        if new_id is not None:
            self._last_event_id = new_id
        if retry_ms is not None:
            self._retry_ms = retry_ms
        if not pieces and new_id is None and retry_ms is None:
            return None
        kind = name.decode("utf-8", "replace") if name else "message"
        return ServerEvent(b"\n".join(pieces), kind, new_id, retry_ms)

    def _milliseconds(self, digits: bytes) -> int:
        most = int(self._limits.max_retry_seconds * 1000)
        digits = digits.lstrip(b"0")
        # Compared by length first: a long number is quadratic to convert.
        return most if len(digits) > len(str(most)) else min(most, int(digits or b"0"))


def _split_data(block: bytes) -> tuple[list[bytes], bytes | None]:
    """Return the lines to look at one by one, and the joined data of those at the end, or None.

    Nearly every event ends in a run of plain data lines; what makes them up is cut out at once.
    """
    head, mark, data = block.partition(b"data: ")
    if mark and (not head or head.endswith(b"\n")):
        lines = head[:-1].split(b"\n") if head else []
        if b"\n" not in data:
            return lines, data
        if data.count(b"\n") == data.count(b"\ndata: "):
            return lines, data.replace(b"\ndata: ", b"\n")
    return block.split(b"\n"), None
