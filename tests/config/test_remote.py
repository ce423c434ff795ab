"""What an entry says of a remote server is taken or refused, and never quoted: it may be a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from latch.config.checks import Checker, Fault, Place
from latch.config.remote import check_header_variables, check_secret_variable, check_url
from latch.limits import DEFAULT

PLACE = Place(Path("/home/somebody"), Path("/conf"), DEFAULT)


def fault(check: Checker, value: object) -> Fault:
    """Return why *check* refuses *value*."""
    with pytest.raises(Fault) as caught:
        check(value, PLACE)
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://Example.com:8443/mcp?tenant=7",
        "http://localhost:3000/mcp",
        "http://127.0.0.1/",
        "http://127.9.8.7/",
        "http://[::1]:3000/",
    ],
)
def test_an_address_is_taken_as_it_is_written(url: str) -> None:
    assert check_url(url, PLACE) == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://hidden.example/", "only for 127.0.0.0/8, [::1] and localhost"),
        ("http://localhost.hidden/", "only for"),
        ("https://me:hidden@example.com/", "no user information"),
        ("https://example.com/#hidden", "fragment"),
        ("https://example.com/a b?hidden", "without blanks"),
        ("https://example.com/\n?hidden", "without blanks"),
        ("https:///hidden", "host or port"),
        ("https://example.com:99999/?hidden", "port is not between"),
        ("ftp://example.com/hidden", "scheme must be https"),
        ("hidden", "not a URL"),
        ("", "must not be empty"),
        (7, "must be a string, found 7"),
    ],
)
def test_t20_t22_an_address_is_refused_without_being_quoted(url: object, words: str) -> None:
    reason = fault(check_url, url).reason
    assert words in reason and "hidden" not in reason


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "https://me:hidden@example.com:0/a b#hidden",
            ["without blanks", "fragment", "information", "port is not"],
        ),
        ("http://me@example.com/#", ["fragment", "information", "http is only for"]),
        ("ftp://me@127.1/", ["scheme must be", "information", "host or port"]),
        ("hidden@example.com#hidden", ["fragment", "not a URL"]),
    ],
)
def test_every_fault_of_an_address_is_found(url: str, words: list[str]) -> None:
    first = fault(check_url, url)
    reasons = [one.reason for one in (first, *first.more)]
    assert len(reasons) == len(words) and "hidden" not in str(reasons)
    assert [word for word, reason in zip(words, reasons) if word not in reason] == []


@pytest.mark.parametrize("name", ["TOKEN", "_t9", "PATH", "HOME"])
def test_a_secret_lies_in_any_variable(name: str) -> None:
    assert check_secret_variable(name, PLACE) == name


@pytest.mark.parametrize("value", ["sk-hidden", "hidden hidden", "$hidden", "9hidden", "", ["hidden"], 7])
def test_t27_a_secret_in_the_place_of_its_variable_is_not_quoted(value: object) -> None:
    reason = fault(check_secret_variable, value).reason
    assert reason == "must be the name of a variable (letters, digits and _, no digit first), not its value"


def test_header_fields_keep_their_letters_and_cannot_be_changed() -> None:
    given = {"X-Api-Key": "A", "authorization": "B", "Cookie": "A", "x~1": "C"}
    fields = check_header_variables(given, PLACE)
    assert fields == given
    with pytest.raises(TypeError):
        fields["X"] = "Y"  # type: ignore[index]


@pytest.mark.parametrize(
    "name",
    [
        *("Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type"),
        *("Expect", "HOST", "Keep-Alive", "Last-Event-ID", "MCP-Protocol-Version", "Mcp-Session-Id"),
        *("mcp-param-x", "Proxy-Authorization", "TE", "Trailer", "transfer-encoding", "Upgrade"),
    ],
)
def test_a_header_field_that_is_set_anyway_is_refused(name: str) -> None:
    refused = fault(check_header_variables, {"X-Key": "A", name: "B"})
    assert (refused.inside, refused.reason) == (f".{name}", "is set by HTTP or by the protocol itself")


@pytest.mark.parametrize("name", ["", "hidden: hidden", "hidden\r\nX", "hidd\u00e9n"])
def test_a_name_that_is_none_is_refused_without_being_quoted(name: str) -> None:
    refused = fault(check_header_variables, {name: "A"})
    assert refused.inside == "" and refused.reason.startswith("has a key that is no header name: ")
    assert "hidden" not in refused.reason


def test_a_header_field_stands_once_in_whatever_letters() -> None:
    refused = fault(check_header_variables, {"X-Key": "A", "x-key": "B"})
    assert (refused.inside, refused.reason) == (".x-key", "stands there already, in other letters")


def test_the_value_of_a_header_field_names_a_variable() -> None:
    refused = fault(check_header_variables, {"X-Key": "sk-hidden"})
    assert refused.inside == ".X-Key" and refused.reason.endswith("not its value")


def test_every_fault_of_header_fields_is_found() -> None:
    first = fault(check_header_variables, {"Host": "9", "hid den": "A", "X": "B", "x": "C", "Y": ""})
    faults = [(one.inside, one.reason.split(",")[0]) for one in (first, *first.more)]
    assert faults == [
        (".Host", "is set by HTTP or by the protocol itself"),
        (".Host", "must be the name of a variable (letters"),
        ("", "has a key that is no header name: letters"),
        (".x", "stands there already"),
        (".Y", "must be the name of a variable (letters"),
    ]


def test_header_fields_are_a_table() -> None:
    assert fault(check_header_variables, ["hidden"]).reason == "must be a table, found a list"
