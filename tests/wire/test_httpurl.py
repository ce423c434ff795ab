"""Addresses of HTTP services: which are accepted, their parts, and that a refusal quotes nothing."""

from __future__ import annotations

import pytest

from latch.errors import WireError
from latch.wire.httpurl import HttpUrl, parse_url


@pytest.mark.parametrize(
    ("text", "parts", "authority"),
    [
        ("https://example.org", ("https", "example.org", 443, "/"), "example.org"),
        ("HTTPS://Example.ORG:443/A?b=C", ("https", "example.org", 443, "/A?b=C"), "example.org"),
        ("https://example.org?x", ("https", "example.org", 443, "/?x"), "example.org"),
        ("https://a-b.c_d.e2:8443/", ("https", "a-b.c_d.e2", 8443, "/"), "a-b.c_d.e2:8443"),
        ("https://example.org./", ("https", "example.org.", 443, "/"), "example.org."),
        ("https://10.0.0.255/", ("https", "10.0.0.255", 443, "/"), "10.0.0.255"),
        ("https://[2001:DB8::1]:9/", ("https", "2001:db8::1", 9, "/"), "[2001:db8::1]:9"),
        ("http://localhost/mcp", ("http", "localhost", 80, "/mcp"), "localhost"),
        ("http://127.0.0.1:8080/mcp", ("http", "127.0.0.1", 8080, "/mcp"), "127.0.0.1:8080"),
        ("http://127.255.3.4/", ("http", "127.255.3.4", 80, "/"), "127.255.3.4"),
        ("http://[::1]:65535/a//b?c?d/e@f:g", ("http", "::1", 65535, "/a//b?c?d/e@f:g"), "[::1]:65535"),
    ],
)
def test_an_accepted_address_has_its_parts(
    text: str, parts: tuple[str, str, int, str], authority: str
) -> None:
    assert parse_url(text) == HttpUrl(*parts)
    assert parse_url(text).authority == authority


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "form"),
        ("hidden", "form"),
        ("https:/hidden", "form"),
        ("//hidden/", "form"),
        ("https://hidden/a b", "blanks"),
        ("https://hidden/\r\n", "blanks"),
        ("https://hidden/\x7f", "blanks"),
        ("https://hidden/\xfc", "blanks"),
        ("https://hidd\u0435n/", "blanks"),
        ("https://hidden/#x", "fragment"),
        ("https://hidden/#", "fragment"),
        ("ftp://hidden/", "scheme"),
        ("file:///hidden", "scheme"),
        ("https://hidden@example.org/", "user information"),
        ("https://hidden:pw@example.org/", "user information"),
        ("https://@example.org/?hidden", "user information"),
        ("https:///hidden", "host"),
        ("https://:80/hidden", "host"),
        ("https://hid den/", "blanks"),
        ("https://hid%64en/", "host"),
        ("https://hidden:/", "host"),
        ("https://hidden:x/", "host"),
        ("https://hidden:-1/", "host"),
        ("https://hidden:0/", "port"),
        ("https://hidden:65536/", "port"),
        ("https://hidden..org/", "host"),
        ("https://-hidden/", "host"),
        ("https://" + "a." * 127 + "hidden/", "host"),
        ("https://[hidden]/", "host"),
        ("https://[::1%hidden]/", "host"),
        ("https://[::::]/hidden", "host"),
        ("https://[1::2::3]/hidden", "host"),
        ("https://[::1/hidden", "host"),
        ("https://127.1/hidden", "host"),
        ("https://2130706433/hidden", "host"),
        ("https://0x7f000001/hidden", "host"),
        ("https://1.2.3.256/hidden", "host"),
        ("https://1.2.3.04/hidden", "host"),
        ("https://1.2.3.4./hidden", "host"),
        ("http://hidden/", "only for"),
        ("http://hidden.localhost/", "only for"),
        ("http://localhost./hidden", "only for"),
        ("http://localhost.hidden/", "only for"),
        ("http://128.0.0.1/hidden", "only for"),
        ("http://127.0.0.1.hidden/", "only for"),
        ("http://[::2]/hidden", "only for"),
        ("http://[::ffff:127.0.0.1]/hidden", "only for"),
        ("http://0.0.0.0/hidden", "only for"),
    ],
)
def test_t20_t22_any_other_is_refused_unquoted(text: str, word: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_url(text)
    assert word in caught.value.reason
    assert "hidden" not in caught.value.reason


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("https://1.2.3.4/", True),
        ("https://[::2]/", True),
        ("https://a1.org/", False),
        ("http://localhost/", False),
    ],
)
def test_an_address_is_told_from_a_name(text: str, literal: bool) -> None:
    assert parse_url(text).is_literal is literal


def test_an_address_shows_no_query() -> None:
    url = parse_url("https://example.org:444/a/b?key=hidden")
    assert str(url) == "https://example.org:444/a/b"
    assert "hidden" not in repr(url)
