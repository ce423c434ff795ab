r"""HTTP/1.1 answers from bytes: head, then body (RFC 9112).

::

    HTTP/1.1 200 OK\r\n
    Content-Type: application/json\r\n
    Content-Length: 2\r\n
    \r\n
    {}

What is read: status line and fields, ended by LF or CRLF, folded values joined by a blank; interim answers
(1xx) skipped; the body by its length, its chunks, or until the connection closes. Chunks are framed by CRLF
alone. A body in another coding than its own bytes is refused, so that none can grow when it is decoded.

What is not guessed: a field without a colon or with a control character, lengths that disagree, a chunk size
that is not hexadecimal digits. A stream that ends early is told from one that is finished. Nothing of an
answer is quoted in a refusal, because a peer may send back what it was sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ..errors import WireError
from ..limits import HttpLimits
from .httpfields import Fields, is_token

__all__ = ["ReplyHead", "ReplyReader"]

_BLANKS = " \t"
_HEAD_END = re.compile(rb"\n\r?\n")
# What may be in no head: control characters, and CR elsewhere than before LF.
_STRAY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (.*))?")
# 18 digits are more than any disk holds.
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00\r\n]*)?")
_CODINGS = frozenset(["br", "compress", "dcb", "dcz", "deflate", "gzip", "x-compress", "x-gzip", "zstd"])


@dataclass(frozen=True)
class ReplyHead:
    """Status line and fields. ``length`` is the length of the body in bytes, or None where only its end
    tells."""

    status: int
    reason: str
    fields: Fields
    length: int | None


class _Part(Enum):
    """What the next byte belongs to."""

    HEAD = "the head"
    COUNTED = "a body of known length"
    OPEN = "a body until the connection closes"
    CHUNK_LINE = "the line before a chunk"
    CHUNK = "a chunk"
    CHUNK_END = "the line end after a chunk"
    TRAILER = "the fields after the last chunk"
    NOTHING = "nothing: the answer is finished"


class ReplyReader:
    """Reads the answer to one request made by *method*.

    Call :meth:`feed` with whatever arrived, then :meth:`next_head` until it returns a head and
    :meth:`next_piece` until it returns ``b""``; :meth:`end` when the stream has ended. After a fault the
    bytes before it are handed out, and then the same error is raised for ever.
    """

    def __init__(self, method: str, limits: HttpLimits) -> None:
        self._limits = limits
        self._asks_for_body = method != "HEAD"
        self._part = _Part.HEAD
        self._error: WireError | None = None
        self._head: ReplyHead | None = None
        self._unread = bytearray()
        self._searched = 0
        self._head_bytes = 0
        self._interim = 0
        # From this place on unread.
        self._data, self._at = b"", 0
        # Of a counted body or of a chunk.
        self._left = 0
        self._keeps_open = False

    @property
    def is_reusable(self) -> bool:
        """True when the answer is finished and the connection is good for another one."""
        return self._part is _Part.NOTHING and self._keeps_open and self._at == len(self._data)

    def feed(self, data: bytes) -> None:
        """Take in *data*. Never raises."""
        if self._head is None:
            self._unread += data
        else:
            self._data = self._data[self._at :] + data
            self._at = 0

    def next_head(self) -> ReplyHead | None:
        """Return the head, or None when more bytes are needed; :class:`WireError` when it is malformed,
        over a limit, or announces a body that is not accepted."""
        if self._error is not None:
            raise self._error
        while self._head is None:
            found = _HEAD_END.search(self._unread, self._searched)
            known = found.end() if found else len(self._unread)
            if self._head_bytes + known > self._limits.max_head_bytes:
                raise self._too_much("the head of the answer is over {} bytes", "max_head_bytes")
            if found is None:
                self._searched = max(0, known - 2)
                return None
            text = bytes(self._unread[: found.start() + 1])
            del self._unread[:known]
            self._head_bytes += known
            self._searched = 0
            self._read_head(text)
        return self._head

    def next_piece(self) -> bytes | None:
        """Return all of the body that is there, None when more bytes are needed, ``b""`` at its end;
        :class:`WireError` where its framing is broken. Only after the head was returned."""
        if self._part is _Part.NOTHING:
            return b""
        if self._part is _Part.COUNTED:
            piece = self._take(self._left)
            self._left -= len(piece)
            if self._left == 0:
                self._part = _Part.NOTHING
        elif self._part is _Part.OPEN:
            piece = self._take(len(self._data))
        else:
            piece = self._unchunk()
        if piece or self._part is _Part.NOTHING:
            return piece
        if self._error is not None:
            raise self._error
        return None

    def end(self) -> str | None:
        """Tell that the stream ended here: None when the answer is finished, else how it was cut."""
        if self._part is _Part.HEAD:
            some = self._unread or self._head_bytes
            return "closed the connection " + (
                "within the head of its answer" if some else "without an answer"
            )
        if self._part is _Part.COUNTED:
            assert self._head is not None and self._head.length is not None
            got, length = self._head.length - self._left, self._head.length
            return f"closed the connection after {got} of {length} bytes of its answer"
        if self._part is _Part.OPEN:
            self._part = _Part.NOTHING
        return None if self._part is _Part.NOTHING else "closed the connection within a chunked answer"

    # -- the head ---------------------------------------------------------------------------------

    def _read_head(self, text: bytes) -> None:
        if _STRAY.search(text):
            raise self._fault("the answer's head holds a control character")
        first, *lines = text.decode("latin-1").replace("\r\n", "\n").split("\n")[:-1]
        line = _STATUS_LINE.fullmatch(first)
        if line is None:
            raise self._fault("the answer is not HTTP/1.1")
        if len(lines) > self._limits.max_headers:
            raise self._too_much("the answer has over {} header fields", "max_headers")
        fields = self._fields_of(lines)
        status = int(line[2])
        if status < 200:
            return self._skip(status)
        length = self._begin_body(status, fields)
        connection = fields.tokens("connection")
        if "close" in connection or (line[1] == "0" and "keep-alive" not in connection):
            self._keeps_open = False
        self._head = ReplyHead(status, line[3] or "", fields, length)
        self._data = bytes(self._unread)
        self._unread.clear()

    def _fields_of(self, lines: list[str]) -> Fields:
        pairs: list[tuple[str, str]] = []
        for line in lines:
            if line[:1] in (" ", "\t") and pairs:
                name, value = pairs[-1]
                pairs[-1] = name, f"{value} {line.strip(_BLANKS)}"
                continue
            name, colon, value = line.partition(":")
            if not colon or not is_token(name):
                raise self._fault("the answer's head holds a line that is no field")
            pairs.append((name, value.strip(_BLANKS)))
        return Fields(pairs)

    def _skip(self, status: int) -> None:
        self._interim += 1
        if status == 101:
            raise self._fault("the answer switches to a protocol that was not asked for")
        if self._interim > self._limits.max_interim_replies:
            raise self._too_much("over {} interim answers came before the answer", "max_interim_replies")

    def _begin_body(self, status: int, fields: Fields) -> int | None:
        """Set how the body is framed (RFC 9112, "Message Body Length") and return its length if known."""
        transfer = fields.tokens("transfer-encoding")
        lengths = fields.tokens("content-length")
        self._keeps_open = bool(transfer) != bool(lengths)
        length: int | None = None
        if not self._asks_for_body or status in (204, 304):
            self._keeps_open = True
            self._part, length = _Part.NOTHING, 0
        elif transfer:
            if transfer != ("chunked",):
                raise self._fault("the answer comes in a transfer coding that was not asked for")
            self._part = _Part.CHUNK_LINE
        elif lengths:
            length = self._left = self._length_of(lengths)
            self._part = _Part.COUNTED if length else _Part.NOTHING
        else:
            self._part = _Part.OPEN
        if self._part is not _Part.NOTHING:
            self._check_coding(fields)
        return length

    def _length_of(self, lengths: tuple[str, ...]) -> int:
        if not all(_LENGTH.fullmatch(length) for length in lengths):
            raise self._fault("the answer's Content-Length is not a number")
        if len({int(length) for length in lengths}) > 1:
            raise self._fault("the answer gives two lengths that differ")
        return int(lengths[0])

    def _check_coding(self, fields: Fields) -> None:
        codings = [coding for coding in fields.tokens("content-encoding") if coding != "identity"]
        if codings:
            named = codings[0] if codings[0] in _CODINGS else "an unknown coding"
            raise self._fault(f"the answer is encoded as {named}, which was not asked for")

    # -- the body ---------------------------------------------------------------------------------

    def _take(self, most: int) -> bytes:
        piece = self._data[self._at : self._at + most]
        self._at += len(piece)
        return piece

    def _unchunk(self) -> bytes:
        pieces = []
        while self._error is None and self._part is not _Part.NOTHING:
            if self._part is _Part.CHUNK:
                piece = self._take(self._left)
                self._left -= len(piece)
                pieces.append(piece)
                if self._left:
                    break
                self._part = _Part.CHUNK_END
            else:
                line = self._take_line()
                if line is None:
                    break
                self._read_line(line)
        return b"".join(pieces)

    def _take_line(self) -> bytes | None:
        end = self._data.find(b"\r\n", self._at)
        # The CR at its end may belong to the line end.
        known = end if end >= 0 else len(self._data) - self._data.endswith(b"\r")
        if known - self._at > self._limits.max_chunk_line_bytes:
            self._too_much("the line before a chunk of the answer is over {} bytes", "max_chunk_line_bytes")
        if end < 0 or self._error is not None:
            return None
        line = self._data[self._at : end]
        self._at = end + 2
        return line

    def _read_line(self, line: bytes) -> None:
        if self._part is _Part.CHUNK_END:
            self._part = _Part.CHUNK_LINE
            if line:
                self._fault("a chunk of the answer is longer than it said")
        elif self._part is _Part.CHUNK_LINE:
            found = _CHUNK_LINE.fullmatch(line)
            if found is None:
                self._fault("a chunk of the answer does not begin with its size")
            else:
                self._left = int(found[1], 16)
                self._part = _Part.CHUNK if self._left else _Part.TRAILER
        elif not line:
            self._part = _Part.NOTHING
        else:
            self._head_bytes += len(line)
            if self._head_bytes > self._limits.max_head_bytes:
                self._too_much("the head of the answer is over {} bytes", "max_head_bytes")

    def _fault(self, reason: str) -> WireError:
        self._error = WireError(reason)
        return self._error

    def _too_much(self, reason: str, limit: str) -> WireError:
        amount = getattr(self._limits, limit)
        self._error = WireError(reason.format(amount), limit=limit, amount=amount)
        return self._error
