"""Every number has a name that says what it counts, a source above it, and the value others promise."""

from __future__ import annotations

import ast
import dataclasses
import inspect

import pytest

from latch import limits
from latch.limits import DEFAULT, Limits

KIB, MIB, GIB = 1024, 1024**2, 1024**3
GROUPS = [field.name for field in dataclasses.fields(Limits)]

# What the specification or the protocol fixes; ours to choose are not listed.
PROMISED = {
    "frame": {"max_body_bytes": 16 * MIB, "max_header_bytes": 8 * KIB},
    "json": {"max_number_chars": 400},
    "lifecycle": {
        "spawn_seconds": 5,
        "initialize_seconds": 10,
        "ready_seconds": 30,
        "request_seconds": 120,
        "shutdown_seconds": 5,
        "exit_seconds": 5,
    },
    "extension": {"max_lifecycle_seconds": 3600, "max_name_bytes": 128, "max_context_bytes": 8 * KIB},
    "resource": {
        "home_bytes": 2 * GIB,
        "tmp_bytes": 2 * GIB,
        "var_tmp_bytes": 256 * MIB,
        "shm_bytes": 256 * MIB,
        "peer_bytes": 16 * MIB,
        "max_processes": 512,
        "max_open_files": 4096,
        "max_core_bytes": 0,
        "max_file_bytes": 4 * GIB,
    },
    "process": {
        "kill_seconds": 2,
        "stderr_tail_bytes": 8 * KIB,
        "rescan_seconds": 0.1,
        "dead_host_seconds": 10,
        "max_sandbox_arguments": 9000,
        "command_seconds": 120,
    },
    "file": {"max_workspace_file_bytes": 64 * KIB},
}


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [(group, name, value) for group, values in PROMISED.items() for name, value in values.items()],
)
def test_a_promised_number_has_its_value(group: str, name: str, value: float) -> None:
    assert getattr(getattr(DEFAULT, group), name) == value


@pytest.mark.parametrize("group", GROUPS)
def test_no_number_can_be_changed_in_place(group: str) -> None:
    held = getattr(DEFAULT, group)
    name = dataclasses.fields(held)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(held, name, 1)
    assert dataclasses.replace(held, **{name: 7}) != held


@pytest.mark.parametrize("group", GROUPS)
def test_a_name_ends_in_its_unit_or_counts_a_most(group: str) -> None:
    for field in dataclasses.fields(getattr(DEFAULT, group)):
        assert field.name.endswith(("_bytes", "_seconds", "_chars")) or field.name.startswith(
            "max_"
        ), field.name


def test_limits_of_two_owners_are_not_shared() -> None:
    assert Limits() == DEFAULT
    assert Limits().process is not DEFAULT.process


def test_every_number_has_its_source_in_a_comment_above_it() -> None:
    lines = inspect.getsource(limits).splitlines()
    without = []
    for node in ast.parse(inspect.getsource(limits)).body:
        if isinstance(node, ast.ClassDef) and node.name != "Limits":
            fields = [entry for entry in node.body if isinstance(entry, ast.AnnAssign)]
            for number, entry in enumerate(fields):
                above = lines[entry.lineno - 2].strip()
                follows = number > 0 and fields[number - 1].end_lineno == entry.lineno - 1
                if not (above.startswith("#") or follows):
                    without.append(f"{node.name}.{entry.target.id}")
    assert without == []


def test_all_names_what_is_public() -> None:
    classes = {name for name, value in vars(limits).items() if isinstance(value, type)}
    assert set(limits.__all__) == classes | {"DEFAULT"}
