"""Strict JSON: vectors, what is never written, and exactness both ways."""

from __future__ import annotations

import json
import random
import sys
from typing import Any, Callable

import pytest

from latch.errors import WireError
from latch.limits import JsonLimits
from latch.wire.jsontext import Json, canonical_json, encode_json, parse_json
from tests.support import feeds

VECTORS = feeds.load_vectors("jsontext")
GOOD = [vector for vector in VECTORS if "canonical" in vector]
BAD = [vector for vector in VECTORS if "error" in vector]
LIMITS = JsonLimits()
WRITERS = [encode_json, canonical_json]


def loop() -> Json:
    value: list[Json] = []
    value.append([value])
    return value


def nested(depth: int) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("vector", GOOD, ids=feeds.names_of(GOOD))
def test_a_good_text_is_read_and_written_in_canonical_form(vector: dict[str, Any]) -> None:
    value = parse_json(feeds.input_bytes(vector), LIMITS)
    assert value == json.loads(vector["canonical"])
    assert canonical_json(value) == vector["canonical"].encode("utf-8")


@pytest.mark.parametrize("vector", GOOD, ids=feeds.names_of(GOOD))
def test_what_was_read_is_read_again_after_writing(vector: dict[str, Any]) -> None:
    value = parse_json(feeds.input_bytes(vector), LIMITS)
    for write in WRITERS:
        assert canonical_json(parse_json(write(value), LIMITS)) == canonical_json(value)


@pytest.mark.parametrize("vector", BAD, ids=feeds.names_of(BAD))
def test_a_bad_text_is_refused_with_its_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(WireError) as caught:
        parse_json(feeds.input_bytes(vector), LIMITS)
    expected = vector["error"]
    assert expected["reason"] in caught.value.reason
    assert (caught.value.limit, caught.value.amount) == (expected.get("limit"), expected.get("amount"))


@pytest.mark.parametrize("vector", GOOD, ids=feeds.names_of(GOOD))
def test_no_reason_of_a_spoilt_text_is_longer_than_a_line(vector: dict[str, Any]) -> None:
    data = feeds.input_bytes(vector)
    for spoil, text in feeds.damaged(data, seed=22, count=40):
        try:
            canonical_json(parse_json(text, LIMITS))
        except WireError as error:
            assert 0 < len(error.reason) < 160, spoil


@pytest.mark.parametrize("longest", [1, 5, 7, 8, 9, 15, 16, 17, 50])
@pytest.mark.parametrize("before", ["", '["text",', "[1,22,", '{"a":'])
def test_the_bound_on_numbers_is_exact_wherever_the_number_stands(longest: int, before: str) -> None:
    limits = JsonLimits(max_number_chars=longest)
    closing = {"": "", "[": "]", "{": "}"}[before[:1]]
    for blanks in range(longest + 2):
        opening = " " * blanks + before
        if longest > 1:
            parse_json(f"{opening}{'9' * longest}{closing}".encode(), limits)
        with pytest.raises(WireError) as caught:
            parse_json(f"{opening}{'9' * (longest + 1)}{closing}".encode(), limits)
        assert (caught.value.limit, caught.value.amount) == ("max_number_chars", longest)


@pytest.mark.parametrize("text", ["[[1]]", '{"a":[1]}', '[{"a":1}]', '["[[",["]"]]'])
def test_the_bound_on_depth_is_exact(text: str) -> None:
    assert parse_json(text.encode(), JsonLimits(max_depth=2)) == json.loads(text)
    with pytest.raises(WireError) as caught:
        parse_json(text.encode(), JsonLimits(max_depth=1))
    assert (caught.value.limit, caught.value.amount) == ("max_depth", 1)


def test_depth_agrees_with_a_walk_of_random_values() -> None:
    source = random.Random(23)

    def invent(depth: int) -> Json:
        kind = source.randrange(4) if depth else 0
        if kind == 1:
            return [invent(depth - 1) for _ in range(source.randrange(4))]
        if kind == 2:
            return {f'k{number}"[': invent(depth - 1) for number in range(source.randrange(3))}
        return source.choice(['"]', "\\", '\\"[[', "", 5, None, "{}{"])

    def depth_of(value: Json) -> int:
        if isinstance(value, (list, dict)):
            items = value.values() if isinstance(value, dict) else value
            return 1 + max([depth_of(item) for item in items], default=0)
        return 0

    for number in range(400):
        value = [invent(6)]
        data = json.dumps(value).encode()
        depth = depth_of(value)
        assert parse_json(data, JsonLimits(max_depth=depth)) == value, f"seed 23, value {number}"
        with pytest.raises(WireError):
            parse_json(data, JsonLimits(max_depth=depth - 1))


def test_little_stack_left_is_no_recursion_error() -> None:
    data = encode_json(nested(100))
    seen = set()

    def descend(frames: int) -> None:
        if frames:
            return descend(frames - 1)
        for work in (lambda: parse_json(data, LIMITS), lambda: encode_json(nested(100))):
            try:
                work()
                seen.add("done")
            except WireError as error:
                seen.add(error.reason)

    used = 0
    frame = sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back
    descend(sys.getrecursionlimit() - used - 60)
    reasons = {"too little stack is left to read the nested value", "nested too deeply to be written"}
    assert seen <= {"done", *reasons}


@pytest.mark.parametrize("write", WRITERS)
def test_a_value_nested_beyond_the_stack_is_not_written(write: Callable[[Json], bytes]) -> None:
    with pytest.raises(WireError, match="nested too deeply to be written"):
        write(nested(200_000))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [-float("inf")],
        "\ud800",
        {"\udfff": 1},
        ["a", {"b": ["\ud83d"]}],
        {1: 2},
        {None: 1},
        {"a": [{True: 1}]},
        [({"b": {1.5: 1}},)],
        {"a": 1, 2: 3},
        {("a",): 1},
        b"bytes",
        {"a": {1, 2}},
        object(),
        loop(),
    ],
    ids=ascii,
)
def test_what_is_not_json_is_never_written(write: Callable[[Json], bytes], value: Json) -> None:
    with pytest.raises(WireError):
        write(value)


def test_writing_is_compact_utf8_in_the_order_given() -> None:
    value = {"b": [1, 2.0, None, True], "a": "\u00fc\U0001f600/\u2028"}
    assert encode_json(value) == '{"b":[1,2.0,null,true],"a":"\u00fc\U0001f600/\u2028"}'.encode()
    assert canonical_json(value) == '{"a":"\u00fc\U0001f600/\u2028","b":[1,2.0,null,true]}'.encode()


def test_a_tuple_is_written_as_a_list() -> None:
    assert encode_json({"a": (1, ("b",))}) == b'{"a":[1,["b"]]}'


def test_equal_objects_have_one_canonical_form_at_every_level() -> None:
    first = {"x": {"b": 1, "a": 2}, "y": [{"d": 1, "c": 2}]}
    second = {"y": [{"c": 2, "d": 1}], "x": {"a": 2, "b": 1}}
    assert canonical_json(first) == canonical_json(second) == b'{"x":{"a":2,"b":1},"y":[{"c":2,"d":1}]}'


def test_random_values_survive_the_way_there_and_back() -> None:
    source = random.Random(24)
    for number in range(300):
        value = {
            "int": source.randrange(-(10**399), 10**399) >> source.randrange(1300),
            "float": source.uniform(-1, 1) * 10.0 ** source.randrange(-300, 300),
            "text": "".join(chr(source.choice([source.randrange(0xD800), 0x1F600])) for _ in range(9)),
        }
        assert parse_json(encode_json(value), LIMITS) == value, f"seed 24, value {number}"


def test_an_integer_and_a_float_keep_their_types() -> None:
    values = parse_json(b"[1,1.0,1e0]", LIMITS)
    assert [type(value) for value in values] == [int, float, float]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense that goes on", "not JSON at character 0, near 'nonse'"),
        ('{"abcdefgh": 1, "abcdefgh": 2}', "the key 'abcde' appears twice in one object"),
        ("1234e5678", "the number 1234e is too large"),
    ],
)
def test_what_is_quoted_of_a_text_has_its_limit(text: str, reason: str) -> None:
    with pytest.raises(WireError) as raised:
        parse_json(text.encode(), JsonLimits(max_quoted_chars=5))
    assert raised.value.reason == reason
