"""Equality and exactness of JSON values, which are not those of Python.

1 equals 1.0 and true equals neither (Core 2020-12, section 4.2.2). Equal values have equal keys, and keys are
texts: their hashes are seeded by the interpreter, so that no instance can be made whose values collide. A
float stands for the shortest decimal that reads as it, which is what its author wrote, so that 0.3 is a
multiple of 0.1.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Tuple

from .verdicts import Json, Run

__all__ = ["Decimals", "decimals_of", "equality_key", "is_multiple"]

# Characters of a text that are worth one step.
_FREE_CHARS = 64
# A number as an integer and a power of ten.
Decimals = Tuple[int, int]


def equality_key(value: Json, run: Run) -> str:
    """Return a text that is the same for equal values and for no others; *run* pays for it."""
    if isinstance(value, str):
        if len(value) > _FREE_CHARS:
            run.spend(len(value) // _FREE_CHARS)
        return encode_basestring(value)
    if isinstance(value, dict):
        run.spend(len(value))
        items = [
            f"{encode_basestring(name)}:{equality_key(item, run)}" for name, item in sorted(value.items())
        ]
        return f"{{{','.join(items)}}}"
    if isinstance(value, list):
        run.spend(len(value))
        return f"[{','.join([equality_key(item, run) for item in value])}]"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return repr(value)
    # Hexadecimal, because that takes time linear in the digits.
    return hex(int(value))


def decimals_of(number: int | float) -> Decimals:
    """Return *number* as (integer, power of ten), exactly as it is written."""
    if isinstance(number, int):
        return number, 0
    digits, _, exponent = repr(number).partition("e")
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction), int(exponent or "0") - len(fraction)


def is_multiple(number: int | float, divisor: Decimals) -> bool:
    """Return whether *number* is a multiple of *divisor*, which is above zero, in exact arithmetic."""
    digits, exponent = decimals_of(number)
    divisor_digits, divisor_exponent = divisor
    shift = exponent - divisor_exponent
    if shift >= 0:
        # Only the remainder is computed: the power itself may have hundreds of digits.
        return digits * pow(10, shift, divisor_digits) % divisor_digits == 0
    return digits % (divisor_digits * 10**-shift) == 0
