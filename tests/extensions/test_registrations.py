"""What may be registered, what of it fires, and the names under which a model sees tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from latch.errors import WireError
from latch.extensions.registrations import (
    ACTIONS,
    EVENTS,
    METHODS,
    STRUCTURES,
    CommandDeclaration,
    Registrations,
    RegistrationsBuilder,
    ToolDeclaration,
    quote,
)
from latch.limits import DEFAULT, ExtensionLimits

Json = Any


def registered(*entries: tuple[str, Json], allow: tuple[str, ...] = ()) -> Registrations:
    builder = RegistrationsBuilder(DEFAULT, allow)
    for method, params in entries:
        builder.add(method, params)
    return builder.freeze()


def refusal(*entries: tuple[str, Json]) -> str:
    with pytest.raises(WireError) as raised:
        registered(*entries)
    return raised.value.reason


def test_everything_is_kept_in_the_order_it_came() -> None:
    schema = {"type": "object", "properties": {"a": {}}}
    known = registered(
        ("tool.register", {"name": "b", "description": "B", "inputSchema": schema}),
        ("context_source.register", {"name": "c2", "description": "two"}),
        ("tool.register", {"name": "a.b/ü", "more": 1}),
        ("command.register", {"name": "run"}),
        ("context_source.register", {"name": "c1"}),
        ("hook.observe", {"event": "user_message"}),
        ("hook.transform", {"structure": "model_request"}),
        ("hook.guard", {"action": "tool.execute"}),
    )
    assert known.tools == (
        ToolDeclaration("b", "B", schema),
        ToolDeclaration("a.b/ü", "", {"type": "object"}),
    )
    assert known.commands == (CommandDeclaration("run", ""),)
    assert known.context_sources == (CommandDeclaration("c2", "two"), CommandDeclaration("c1", ""))
    assert (known.observers, known.transforms, known.guards) == (
        ("user_message",),
        ("model_request",),
        ("tool.execute",),
    )
    assert known.diagnostics == ()
    assert known.has_tool("b") and known.has_tool("a.b/ü") and not known.has_tool("run")


def test_a_hook_registered_twice_is_one_and_a_null_description_is_none() -> None:
    known = registered(
        ("hook.guard", {"action": "tool.execute"}),
        ("hook.guard", {"action": "tool.execute"}),
        ("tool.register", {"name": "t", "description": None}),
    )
    assert known.guards == ("tool.execute",)
    assert known.tools[0].description == ""


NAMED = ["tool.register", "command.register", "context_source.register"]
FIELDS = {
    **{method: "name" for method in NAMED},
    "hook.observe": "event",
    "hook.transform": "structure",
    "hook.guard": "action",
}
KINDS = [
    (None, "null"),
    (5, "a number"),
    (1.5, "a number"),
    (True, "a boolean"),
    (["x"], "an array"),
    ({}, "an object"),
]


def test_the_six_methods_are_all_there_are() -> None:
    assert set(METHODS) == set(FIELDS)


@pytest.mark.parametrize("method", FIELDS)
def test_a_missing_field_is_named_with_its_method(method: str) -> None:
    assert refusal((method, {"other": "x"})) == f"{method}: {FIELDS[method]} is missing"


@pytest.mark.parametrize(("value", "kind"), KINDS)
@pytest.mark.parametrize("method", FIELDS)
def test_a_field_of_another_type_is_named_with_what_it_is(method: str, value: Json, kind: str) -> None:
    assert refusal((method, {FIELDS[method]: value})) == f"{method}: {FIELDS[method]} is {kind}, not a string"


@pytest.mark.parametrize(("value", "kind"), [*KINDS[:-1], ("x", "a string")])
@pytest.mark.parametrize("method", FIELDS)
def test_params_must_be_an_object(method: str, value: Json, kind: str) -> None:
    assert refusal((method, value)) == f"{method}: params is {kind}, not an object"


@pytest.mark.parametrize("method", NAMED)
def test_a_name_has_1_to_128_bytes(method: str) -> None:
    for name in ("x", "n" * 128, "ü" * 64):
        registered((method, {"name": name}))
    for name, size in (("", 0), ("n" * 129, 129), ("ü" * 64 + "n", 129)):
        assert refusal((method, {"name": name})) == f"{method}: name has {size} bytes, allowed are 1 to 128"


@pytest.mark.parametrize("method", NAMED)
def test_a_description_is_a_string(method: str) -> None:
    assert (
        refusal((method, {"name": "x", "description": 5}))
        == f"{method}: description is a number, not a string"
    )


@pytest.mark.parametrize("method", NAMED)
def test_a_name_is_registered_once(method: str) -> None:
    twin = (method, {"name": "twin"})
    assert refusal(twin, (method, {"name": "Twin"}), twin) == f'{method}: name "twin" is registered twice'


def test_a_tool_a_command_and_a_source_may_share_a_name() -> None:
    known = registered(*((method, {"name": "same"}) for method in NAMED))
    assert known.tools[0].name == known.commands[0].name == known.context_sources[0].name == "same"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "is null, not an object"),
        ([], "is an array, not an object"),
        (True, "is a boolean, not an object"),
        ("object", "is a string, not an object"),
        ({"type": "string"}, 'must have type "object"'),
        ({"type": ["object"]}, 'must have type "object"'),
        ({"type": None}, 'must have type "object"'),
    ],
)
def test_an_input_schema_is_an_object_schema(schema: Json, says: str) -> None:
    reason = refusal(("tool.register", {"name": "t", "inputSchema": schema}))
    assert reason == f'tool.register: inputSchema of "t" {says}'


def test_a_schema_without_a_type_is_taken() -> None:
    assert (
        registered(("tool.register", {"name": "t", "inputSchema": {"required": ["a"]}})).tools[0].input_schema
    )


@pytest.mark.parametrize("schema", [{"required": "a"}, {"properties": {"a": {"minimum": "x"}}}])
def test_a_schema_that_does_not_compile_is_refused_with_the_place(schema: Json) -> None:
    reason = refusal(("tool.register", {"name": "t", "inputSchema": {"type": "object", **schema}}))
    assert reason.startswith('tool.register: inputSchema of "t": at "')


def test_a_transform_has_no_wildcard() -> None:
    assert refusal(("hook.transform", {"structure": "*"})) == (
        'hook.transform: structure may not be "*"; name one structure'
    )


def test_the_number_of_registrations_is_bounded_over_all_kinds() -> None:
    limits = replace(DEFAULT, extension=ExtensionLimits(max_registrations=3))
    builder = RegistrationsBuilder(limits)
    for method in ("hook.guard", "hook.guard", "hook.observe"):
        builder.add(method, {FIELDS[method]: "x"})
    with pytest.raises(WireError) as raised:
        builder.add("tool.register", {"name": "t"})
    assert (raised.value.limit, raised.value.amount) == ("max_registrations", 3)
    assert raised.value.reason == "tool.register: more than 3 registrations"


# -- what fires (T12) ----------------------------------------------------------------------------------

HOOKS = {
    "observe": ("hook.observe", "event", EVENTS, "user_message"),
    "transform": ("hook.transform", "structure", STRUCTURES, "model_request"),
    "guard": ("hook.guard", "action", ACTIONS, "tool.execute"),
}
EVERY = [(kind, name) for kind, (_, _, known, _) in HOOKS.items() for name in sorted(known)]


def fires(known: Registrations, kind: str, name: str) -> bool:
    return {
        "observe": known.observes,
        "transform": known.transforms_structure,
        "guard": known.guards_action,
    }[kind](name)


def firing(known: Registrations) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name in EVERY if fires(known, kind, name)]


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_hook_fires_by_default_only_where_that_needs_no_entry(kind: str, name: str) -> None:
    method, field, _, always = HOOKS[kind]
    closed = registered((method, {field: name}))
    opened = registered((method, {field: name}), allow=(f"{kind}:{name}",))
    assert firing(closed) == ([(kind, name)] if name == always else [])
    assert firing(opened) == [(kind, name)]
    expected = (
        ()
        if name == always
        else (f'{kind} "{name}" never fires: allow of its entry does not hold "{kind}:{name}"',)
    )
    assert closed.diagnostics == expected
    assert opened.diagnostics == ()


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_allow_without_a_registration_makes_nothing_fire(kind: str, name: str) -> None:
    assert firing(registered(allow=(f"{kind}:{name}", f"{kind}:*"))) == []


@pytest.mark.parametrize("kind", ["observe", "guard"])
def test_a_wildcard_means_what_is_allowed(kind: str) -> None:
    method, field, names, always = HOOKS[kind]
    everything = [(kind, name) for name in sorted(names)]
    assert firing(registered((method, {field: "*"}))) == [(kind, always)]
    other = next(name for name in sorted(names) if name != always)
    some = registered((method, {field: "*"}), allow=(f"{kind}:{other}",))
    assert firing(some) == [pair for pair in everything if pair[1] in (always, other)]
    assert f'{kind} "*" fires for "{always}" and what allow names; not for ' in some.diagnostics[0]
    assert f'"{kind}:{other}"' not in some.diagnostics[0]
    full = registered((method, {field: "*"}), allow=(f"{kind}:*",))
    assert firing(full) == everything and full.diagnostics == ()


def test_allow_of_one_kind_opens_nothing_of_another() -> None:
    known = registered(
        ("hook.observe", {"event": "model_request"}),
        ("hook.guard", {"action": "model.request"}),
        allow=("observe:*", "guard:model_request", "guard:session.complete"),
    )
    assert firing(known) == [("observe", "model_request")]


@pytest.mark.parametrize("kind", HOOKS)
def test_a_name_that_does_not_exist_is_accepted_and_reported(kind: str) -> None:
    method, field, names, _ = HOOKS[kind]
    known = registered((method, {field: "later"}), allow=(f"{kind}:*",))
    listed = ", ".join(sorted(names))
    assert known.diagnostics == (f'{kind} "later" never fires: there is no such name; known are {listed}',)


# -- names that are not an extension's to take ---------------------------------------------------------


@pytest.mark.parametrize("name", ["help", "HELP", "h-e_lp", "list-files"])
def test_a_reserved_command_is_refused_ignoring_case_and_separators(name: str) -> None:
    builder = RegistrationsBuilder(DEFAULT, reserved=("help", "list_files"))
    with pytest.raises(WireError) as raised:
        builder.add("command.register", {"name": name})
    assert raised.value.reason == f'command.register: name "{name}" is that of a built-in command'


def test_only_commands_are_held_against_the_reserved_names() -> None:
    builder = RegistrationsBuilder(DEFAULT, reserved=("help",))
    for method in ("tool.register", "context_source.register"):
        builder.add(method, {"name": "help"})
    builder.add("command.register", {"name": "helper"})
    assert [command.name for command in builder.freeze().commands] == ["helper"]


def test_an_event_of_any_length_is_kept_and_quoted_only_in_part() -> None:
    known = registered(("hook.observe", {"event": "e" * 100_000}))
    assert known.observers == ("e" * 100_000,) and len(known.diagnostics[0]) < 600
