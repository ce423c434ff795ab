"""Header fields: what may be written, what is read, and that secrets do not come back."""

from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus

import pytest

from latch.errors import WireError
from latch.wire.httpfields import (
    Fields,
    Redactor,
    check_field_name,
    check_field_value,
    hop_by_hop_names,
    is_token,
    media_type,
)

SECRET = "sk-Zk9?/+ü&7 %25xyz"
MARK = "[redacted]"


# --- names and values ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["GET", "x-y_z", "!#$%&'*+-.^_`|~09azAZ"])
def test_a_token_is_one(text: str) -> None:
    assert is_token(text)
    assert check_field_name(text) == text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "a header name is empty"),
        ("X Y", "a header name may not hold its character 2"),
        ("X:", "a header name may not hold its character 2"),
        ("X\n", "a header name may not hold its character 2"),
        ("X\r\nY", "a header name may not hold its character 2"),
        ("\0", "a header name may not hold its character 1"),
        ("naïve", "a header name may not hold its character 3"),
    ],
)
def test_what_is_no_name_is_refused_with_its_place(name: str, reason: str) -> None:
    assert not is_token(name)
    with pytest.raises(WireError) as caught:
        check_field_name(name)
    assert caught.value.reason == reason


@pytest.mark.parametrize("value", ["", "a", " a\tb ", "caf\xe9", "".join(map(chr, range(0x20, 0x7F)))])
def test_a_value_of_visible_latin_1_passes(value: str) -> None:
    assert check_field_value(value, name="X-Y") == value


@pytest.mark.parametrize("stray", ["\r", "\n", "\r\n", "\0", "\x07", "\x1f", "\x7f", "\u0141", "\u2028"])
def test_a_value_that_could_end_its_line_or_cannot_be_written_is_refused_unquoted(stray: str) -> None:
    with pytest.raises(WireError) as caught:
        check_field_value(f"hidden{stray}x", name="X-Key")
    assert caught.value.reason == "the value of the header X-Key may not hold its character 7"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("application/json", "application/json"),
        ("Text/Event-Stream; charset=utf-8", "text/event-stream"),
        (" text/plain\t;x=y;z", "text/plain"),
        ("application/vnd.x+json", "application/vnd.x+json"),
        ("", ""),
        ("json", ""),
        ("/json", ""),
        ("text/", ""),
        ("text/a/b", ""),
        ("text/plain, text/html", ""),
    ],
)
def test_a_media_type_is_lower_case_without_parameters(value: str, kind: str) -> None:
    assert media_type(value) == kind


def test_names_of_one_connection_are_the_known_and_those_it_lists() -> None:
    names = hop_by_hop_names([("Connection", "close, X-Hop,,"), ("X-Other", "Y"), ("connection", " x-z ")])
    assert {"close", "x-hop", "x-z", "connection", "te", "upgrade", "transfer-encoding"} <= names
    assert "" not in names and "y" not in names


def test_fields_are_found_in_any_case_and_kept_in_order() -> None:
    pairs = [("A", "1"), ("B", "x, Y"), ("a", "2"), ("b", "z,,")]
    fields = Fields(pairs)
    assert (fields.get("a"), fields.all("A"), fields.get("c"), fields.all("c")) == ("1", ("1", "2"), None, ())
    assert fields.tokens("B") == ("x", "y", "z")
    assert (list(fields), len(fields)) == (pairs, 4)


def test_fields_show_no_values() -> None:
    assert repr(Fields([("Authorization", "hidden"), ("X", "hidden")])) == "Fields(Authorization, X)"


# --- redaction -----------------------------------------------------------------------------------


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"a {SECRET} b {SECRET}", f"a {MARK} b {MARK}"),
        (f"a={quote(SECRET, safe='')}&", f"a={MARK}&"),
        (f"a={quote(SECRET, safe='/?')}&", f"a={MARK}&"),
        (f"a={quote(SECRET, safe='').lower()}", f"a={quote(SECRET, safe='').lower()}"),
        (f"a={quote(SECRET, safe='').replace('%2F', '%2f')}", f"a={MARK}"),
        (f"a={quote_plus(SECRET)}&", f"a={MARK}&"),
        ("".join(f"%{byte:02x}" for byte in SECRET.encode()), MARK),
        ("nothing here, 100 % + 1", "nothing here, 100 % + 1"),
        (SECRET[:-1], SECRET[:-1]),
        (SECRET.upper(), SECRET.upper()),
        (f"\ud800{SECRET}", f"\ud800{MARK}"),
        ("\ud800", "\ud800"),
    ],
)
def test_t27_exact_and_percent_encoded_values_are_replaced_in_text(text: str, clean: str) -> None:
    assert Redactor([SECRET]).text(text) == clean


@pytest.mark.parametrize("before", [b"", b"u", b"u:", b"us:", b"user:pw"])
@pytest.mark.parametrize("after", [b"", b"!", b"!!", b"\xff\xfe\xfd"])
@pytest.mark.parametrize("length", [8, 9, 10, 23])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_t27_base64_at_every_alignment_is_replaced_with_all_its_bits(
    before: bytes, after: bytes, length: int, encode: object
) -> None:
    secret = "".join(chr(33 + 7 * number % 90) for number in range(length)) + "\xbf\xff"
    data = before + secret.encode() + after
    for form in (encode(data), encode(data).rstrip(b"=")):  # type: ignore[operator]
        clean = Redactor([secret]).data(b"<" + form + b">")
        kept = len(before) * 8 // 6
        assert clean.startswith(b"<" + form[:kept] + MARK.encode())
        rest = clean.partition(MARK.encode())[2]
        assert len(rest.rstrip(b"=>")) <= -(-len(after) * 8 // 6)
        assert rest.endswith(b">")


def test_t27_secrets_of_less_than_8_bytes_stay() -> None:
    assert Redactor(["1234567"]).text("1234567") == "1234567"
    assert Redactor(["12345678", "üüüü"]).text("x12345678x üüüü") == f"x{MARK}x {MARK}"


def test_t27_what_overlaps_is_replaced_as_one_and_what_touches_is_not() -> None:
    redactor = Redactor(["abcdefgh", "efghijkl", "cdefg-12", "abcdefghijklmnop"])
    assert redactor.text("abcdefghijkl") == MARK
    assert redactor.text("abcdefghijklmnop") == MARK
    assert redactor.text("abcdefghcdefg-12") == MARK + MARK
    assert Redactor(["abababab"]).text("xababababababy") == f"x{MARK}y"
    assert Redactor(["a%25a%25"]).text("xa%2525a%2525y") == f"x{MARK}y"


def test_t27_a_percent_encoded_secret_that_overlaps_itself_goes_whole() -> None:
    assert Redactor(["-a-b-a-b"]).text("x%2Da-b-a-b-a-by") == f"x{MARK}y"


def test_t27_json_is_redacted_in_values_and_keys() -> None:
    value = {"a": [SECRET, 1, None, True, 2.5], SECRET: {"b": f"x{SECRET}"}, "c": (SECRET,)}
    clean = {"a": [MARK, 1, None, True, 2.5], MARK: {"b": f"x{MARK}"}, "c": [MARK]}
    assert Redactor([SECRET]).json(value) == clean


def test_t27_a_number_that_is_a_secret_is_replaced() -> None:
    redactor = Redactor(["12345678"])
    assert redactor.json([12345678, 1234567, 9123456789, 0.12345678]) == [
        MARK,
        1234567,
        f"9{MARK}9",
        f"0.{MARK}",
    ]
    assert Redactor(["x2345678"]).json([12345678]) == [12345678]


def test_without_secrets_everything_stays_the_same_object() -> None:
    redactor, text, data = Redactor([]), "x" * 20, b"y" * 20
    assert redactor.text(text) is text and redactor.data(data) is data


def test_a_redactor_shows_no_secret() -> None:
    assert repr(Redactor([SECRET, "x"])) == "Redactor(1 secrets)"


def test_the_longest_form_of_a_secret_is_known() -> None:
    assert Redactor(["abcdefgh"]).longest_form_bytes == 24
    assert Redactor([]).longest_form_bytes == 1
