"""Strict JSON, both ways.

What :func:`parse_json` accepts is RFC 8259 and less: UTF-8 without a byte order mark, one value, no key
twice in one object, no NaN or Infinity in any disguise, no lone surrogate, nothing nested deeper and no
number longer than the limits. So whatever it returns can be encoded again, hashed and stored, and no two
readers of the text disagree about it. Integers stay exact and stay apart from floats; a negative zero
without a fraction is the integer 0.

:func:`encode_json` writes compact UTF-8 and refuses the same things; :func:`canonical_json` also sorts
keys, by code point, so that equal values give equal bytes. It is our own canonical form, not RFC 8785.

Every refusal is a :class:`WireError` with a reason of its own, also when the interpreter's stack or its
limit on digits gave out. Speed matters here: the standard decoder does the work, and each check that it
lacks is first asked cheaply, over the whole text, whether it could apply.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from json.scanner import c_make_scanner
from math import isfinite
from typing import Any, Callable

from ..errors import WireError
from ..limits import JsonLimits

__all__ = ["Json", "NotJson", "canonical_json", "encode_json", "parse_json"]

# None, bool, int, float, str, list of Json, dict of str to Json.
Json = Any

_BLANKS = " \t\n\r"

# The interpreter without compiled scanner (PyPy) takes digits of every script and loose \u escapes.
_LOOSE_SCANNER = c_make_scanner is None
_BAD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9A-Fa-f]{4})")
_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")

# A number of n characters covers eight neighbours of any sample of every (n // 8)th byte.
_SAMPLED_NUMBER = re.compile(rb"[0-9+\-.eE]{8}")

# Brackets as signed bytes: +1 opens, -1 closes.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[{]}"'))

_SCALARS = frozenset([str, int, float, bool, type(None)])


class NotJson(WireError):
    """The text is no JSON at all, as against JSON that breaks a rule of ours."""


def parse_json(data: bytes, limits: JsonLimits) -> Json:
    """Return the one JSON value that *data* holds; :class:`WireError` when it is not exactly that, and its
    kind :class:`NotJson` when it is none."""
    if data.count(b"[") + data.count(b"{") > limits.max_depth:
        _check_depth(data, limits)
    try:
        text = data.decode("utf-8").strip(_BLANKS)
        value, end = _decoder_for(data, limits).raw_decode(text)
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    except JSONDecodeError as error:
        raise NotJson(_syntax_reason(error, limits.max_quoted_chars)) from None
    except RecursionError:
        raise WireError("too little stack is left to read the nested value") from None
    if end != len(text):
        raise NotJson(f"something follows the JSON value, at character {end}")
    # NOTE: one character is found a hundred times as fast as two, and most texts have none.
    if "\\" in text and "\\u" in text:
        _check_escapes(text, value)
    return value


def encode_json(value: Json) -> bytes:
    """Return *value* as compact UTF-8 JSON; :class:`WireError` when it is not a JSON value."""
    return _encode(_COMPACT, value)


def canonical_json(value: Json) -> bytes:
    """Return *value* as compact UTF-8 JSON with sorted keys: the same bytes for the same value."""
    return _encode(_CANONICAL, value)


def _object_maker(quoted: int) -> Callable[[list[tuple[str, Json]]], dict[str, Json]]:
    # NOTE: a function that holds its limit, because it is called for every object of every message.
    def object_of(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise WireError(f"the key {key[:quoted]!r} appears twice in one object")
                seen.add(key)
        return value

    return object_of


def _refuse_constant(name: str) -> Json:
    raise WireError(f"{name} is not JSON")


def _finite_float(text: str, quoted: int) -> float:
    number = float(text)
    if not isfinite(number):
        raise WireError(f"the number {text[:quoted]} is too large")
    return number


def _decoder_for(data: bytes, limits: JsonLimits) -> JSONDecoder:
    """Return the fast decoder when no number of *data* can break a rule, else one that looks at each."""
    longest = limits.max_number_chars
    if len(data) > longest and (longest < 8 or _SAMPLED_NUMBER.search(data[:: longest // 8])):
        return _checking_decoder(longest, limits.max_quoted_chars)
    if _LOOSE_SCANNER and not data.isascii():
        return _checking_decoder(longest, limits.max_quoted_chars)
    return _plain_decoder(limits.max_quoted_chars)


@lru_cache(maxsize=4)
def _plain_decoder(quoted: int) -> JSONDecoder:
    return JSONDecoder(
        object_pairs_hook=_object_maker(quoted),
        parse_float=lambda text: _finite_float(text, quoted),
        parse_constant=_refuse_constant,
    )


def _checking_decoder(longest: int, quoted: int) -> JSONDecoder:
    def check(text: str) -> str:
        if len(text) > longest:
            raise WireError(
                f"number of {len(text)} characters, {longest} are allowed",
                limit="max_number_chars",
                amount=longest,
            )
        if not text.isascii():
            raise WireError("a number has digits that are not ASCII")
        return text

    return JSONDecoder(
        object_pairs_hook=_object_maker(quoted),
        parse_float=lambda text: _finite_float(check(text), quoted),
        parse_int=lambda text: int(check(text)),
        parse_constant=_refuse_constant,
    )


def _check_depth(data: bytes, limits: JsonLimits) -> None:
    """Refuse what nests too deeply before the decoder, which recurses, sees it.

    Text that is not JSON may be misjudged, but not before the place where the decoder stops.
    """
    # In this order: what is left of a run of backslashes after its pairs escapes the next character.
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Dropping two quotes that became neighbours changes nothing about what is inside a string.
    structure = unescaped.translate(_STEPS, _NOT_STRUCTURE).replace(b'""', b"")
    steps = memoryview(b"".join(structure.split(b'"')[::2])).cast("b")
    if max(accumulate(steps), default=0) > limits.max_depth:
        raise WireError(
            f"nested deeper than {limits.max_depth} levels", limit="max_depth", amount=limits.max_depth
        )


def _check_escapes(text: str, value: Json) -> None:
    if _LOOSE_SCANNER and _BAD_ESCAPE.search(text):
        raise WireError("a \\u escape without four hexadecimal digits")
    if _SURROGATE.search(text):
        # Encoding what was read finds a lone one in any key or value, and lets pairs pass.
        encode_json(value)


def _syntax_reason(error: JSONDecodeError, quoted: int) -> str:
    text = error.doc
    if not text:
        return "empty, expected a JSON value"
    if text.startswith("\ufeff"):
        return "starts with a byte order mark"
    # Interpreters differ by one on where a control character in a string stands.
    if "\0" in text[max(0, error.pos - 1) : error.pos + 1]:
        return f"NUL near character {error.pos}"
    if error.pos >= len(text):
        return "ends in the middle of a JSON value"
    return f"not JSON at character {error.pos}, near {text[error.pos : error.pos + quoted]!r}"


_COMPACT = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CANONICAL = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def _encode(encoder: JSONEncoder, value: Json) -> bytes:
    try:
        text = encoder.encode(value)
        _check_keys(value)
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise WireError("a string holds a lone surrogate") from None
    except (TypeError, ValueError) as error:
        raise WireError(f"not a JSON value: {error}") from None
    except RecursionError:
        raise WireError("nested too deeply to be written") from None


def _check_keys(value: Json) -> None:
    """Refuse keys that the encoder would turn into strings. Called after it, so there is no cycle."""
    if isinstance(value, dict):
        try:
            # NOTE: the quickest way to look at every key: it takes nothing but strings.
            "".join(value)
        except TypeError:
            odd = next(type(key).__name__ for key in value if not isinstance(key, str))
            raise WireError(f"an object key of type {odd}") from None
        for item in value.values():
            if type(item) not in _SCALARS:
                _check_keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if type(item) not in _SCALARS:
                _check_keys(item)
