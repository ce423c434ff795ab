from __future__ import annotations

import pytest

from latch.wire.excerpts import quote, quote_end, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ("12345", '"12345"'),
        ("123456", '"12345..."'),
        ("1\n2\u20283", '"1 2 3"'),
        ("0.1 ", '"0.1 "'),
        ("x" * 1_000_000, '"xxxxx..."'),
    ],
)
def test_a_quoted_text_is_one_short_line(text: str, shown: str) -> None:
    assert quote(text, 5) == shown
    assert f'"{shorten(text, 5)}"' == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ("12345", '"12345"'),
        ("123456", '"...23456"'),
        (" 1\n\n2  3 ", '"1 2 3"'),
        ("x" * 1_000_000, '"...xxxxx"'),
    ],
)
def test_the_end_of_a_text_is_quoted_as_one_short_line(text: str, shown: str) -> None:
    assert quote_end(text, 5) == shown
