"""Header fields of HTTP, and the redaction of secrets in what comes back.

Field names and values are checked by RFC 9110, "Field Names" and "Field Values", before they are written:
whatever passes cannot end its line. A refusal names the place of the fault and never quotes a value, which
may be a secret.

A :class:`Redactor` replaces the secrets it was given wherever they are recognised in text, bytes or JSON.
Recognised are, for each secret of 8 bytes and more (security.md T27),

* the exact value, as UTF-8;
* the value with any of its bytes percent-encoded, hexadecimal digits in either case, a blank also as ``+``;
* the value in base64, standard or URL-safe, with or without padding, alone or anywhere inside of a longer
  text that was encoded (``Basic`` credentials); with it goes a neighbouring character that holds some of
  its bits.

Not recognised are shorter values, which would blot out innocent text, base64 with line breaks, one encoding
on top of another, and every other change: case, escapes, hashes, parts. What overlaps is replaced as one.
"""

from __future__ import annotations

import base64
import re
from typing import Iterable, Iterator, Sequence

from ..errors import WireError
from .jsontext import Json

__all__ = [
    "Fields",
    "Redactor",
    "check_field_name",
    "check_field_value",
    "hop_by_hop_names",
    "is_token",
    "media_type",
]

# RFC 9110, "Tokens"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_TOKEN = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
# RFC 9110, "Field Values": visible characters, blanks, tabs and obs-text, which is Latin-1.
_NOT_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")

# RFC 9110, "Connection": fields of one connection and not of the message.
_HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)

_REDACTED = b"[redacted]"
# security.md T27
_SHORTEST_SECRET_BYTES = 8
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_NUMBER = re.compile(r"[0-9eE.+\-]+")


def is_token(text: str) -> bool:
    """Return whether *text* is a token: a method, a field name, half of a media type."""
    return _TOKEN.fullmatch(text) is not None


def check_field_name(name: str) -> str:
    """Return *name*; :class:`WireError` when it is no field name. It is not quoted."""
    if is_token(name):
        return name
    stray = _NOT_TOKEN.search(name)
    if stray is None:
        raise WireError("a header name is empty")
    raise WireError(f"a header name may not hold its character {stray.start() + 1}")


def check_field_value(value: str, *, name: str) -> str:
    """Return *value*, which Latin-1 can encode; :class:`WireError` with *name* when it is no field value."""
    stray = _NOT_VALUE.search(value)
    if stray is not None:
        raise WireError(f"the value of the header {name} may not hold its character {stray.start() + 1}")
    return value


def media_type(value: str) -> str:
    """Return the media type of a ``Content-Type`` in lower case without parameters; "" when there is none."""
    kind = value.partition(";")[0].strip(" \t").lower()
    main, slash, sub = kind.partition("/")
    return kind if slash and is_token(main) and is_token(sub) else ""


def hop_by_hop_names(fields: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the names, in lower case, of fields that are not to be passed on: RFC 9110's, and those that
    the ``Connection`` fields among *fields* name."""
    named = (value for name, value in fields if name.lower() == "connection")
    return _HOP_BY_HOP.union(*(_list_of(value) for value in named))


def _list_of(value: str) -> Iterator[str]:
    for part in value.lower().split(","):
        part = part.strip(" \t")
        if part:
            yield part


class Fields:
    """The header fields of one message, in order; names are looked up in any case.

    ``repr`` shows names only.
    """

    __slots__ = ("_by_name", "_pairs")

    def __init__(self, pairs: Sequence[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        self._by_name: dict[str, list[str]] = {}
        for name, value in self._pairs:
            self._by_name.setdefault(name.lower(), []).append(value)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return f"Fields({', '.join(name for name, _ in self._pairs)})"

    def get(self, name: str) -> str | None:
        """Return the value of the first field of that name, or None."""
        values = self._by_name.get(name.lower())
        return values[0] if values else None

    def all(self, name: str) -> tuple[str, ...]:
        """Return the value of every field of that name, in order."""
        return tuple(self._by_name.get(name.lower(), ()))

    def tokens(self, name: str) -> tuple[str, ...]:
        """Return the members of a list of tokens, in lower case, over all fields of that name."""
        return tuple(part for value in self.all(name) for part in _list_of(value))


class Redactor:
    """Replaces *secrets* by ``[redacted]``; see the module for what is recognised. Safe to share."""

    __slots__ = ("_is_numeric", "_literals", "_longest", "_patterns")

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret.encode("utf-8", "surrogatepass"): secret for secret in secrets}
        values = {value: text for value, text in known.items() if len(value) >= _SHORTEST_SECRET_BYTES}
        self._literals: tuple[tuple[bytes, bool, bool], ...] = tuple(
            {form for value in values for form in _literals_of(value)}
        )
        self._patterns = tuple((_percent_pattern(value), b" " in value) for value in values)
        self._is_numeric = any(_NUMBER.fullmatch(text) for text in values.values())
        # A byte is three characters at most, percent-encoded; base64 with what goes with it is shorter.
        self._longest = max((3 * len(value) for value in values), default=1)

    def __repr__(self) -> str:
        return f"Redactor({len(self._patterns)} secrets)"

    @property
    def longest_form_bytes(self) -> int:
        """The length of the longest text that is replaced, in bytes; 1 without secrets."""
        return self._longest

    def data(self, data: bytes) -> bytes:
        """Return *data* without secrets."""
        spans = self.spans(data)
        if not spans:
            return data
        pieces, end = [], 0
        for start, stop in spans:
            pieces += [data[end:start], _REDACTED]
            end = stop
        return b"".join([*pieces, data[end:]])

    def text(self, text: str) -> str:
        """Return *text* without secrets; lone surrogates pass."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self.data(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def json(self, value: Json) -> Json:
        """Return *value* with every string, key and number redacted; a number then becomes a string. Of two
        keys that become equal the last one stays."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.json(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.json(item) for item in value]
        if self._is_numeric and type(value) in (int, float):
            shown = str(value)
            clean = self.text(shown)
            return value if clean == shown else clean
        return value

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Return where secrets are in *data*, as (start, end) in order; those that overlap are one."""
        found = []
        for core, reaches_left, reaches_right in self._literals:
            at = data.find(core)
            while at >= 0:
                start, end = at, at + len(core)
                if reaches_left and start > 0 and data[start - 1] in _BASE64:
                    start -= 1
                if reaches_right and end < len(data) and data[end] in _BASE64:
                    end += 1
                found.append((start, end))
                at = data.find(core, at + 1)
        has_percent, has_plus = b"%" in data, b"+" in data
        for pattern, has_blank in self._patterns:
            if has_percent or has_blank and has_plus:
                match = pattern.search(data)
                while match:
                    found.append(match.span())
                    match = pattern.search(data, match.start() + 1)
        return _merged(found)


def _literals_of(value: bytes) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield what is searched for as it is: the bytes, and whether a neighbour on the left or right of them
    holds bits of the secret."""
    yield value, False, False
    for before, foreign in ((0, 0), (1, 2), (2, 3)):
        bits = 8 * (before + len(value))
        core = base64.b64encode(bytes(before) + value)[foreign : bits // 6]
        yield core, before > 0, bits % 6 > 0
        yield core.translate(_URL_SAFE), before > 0, bits % 6 > 0


def _percent_pattern(value: bytes) -> re.Pattern[bytes]:
    """Return what matches *value* with any of its bytes percent-encoded."""
    return re.compile(b"".join(_either(byte) for byte in value))


def _either(byte: int) -> bytes:
    # The encoded forms first: a percent sign is how they begin.
    plus = [rb"\+"] if byte == 0x20 else []
    return b"(?:%b)" % b"|".join([b"%%%02x" % byte, b"%%%02X" % byte, *plus, re.escape(bytes([byte]))])


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged
