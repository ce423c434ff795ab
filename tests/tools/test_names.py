"""tools/names.py: under which names a model sees tools, and which are not an extension's to take."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Iterable

import pytest

from latch.cli.main import COMMANDS
from latch.errors import PeerProtocolError
from latch.extensions.registrations import Registrations, ToolDeclaration
from latch.settings import Settings
from latch.system.scope import Scope
from latch.tools.assembly import extension_openings, sandbox_for
from latch.tools.peers import close_peers, open_peers
from latch.tools.names import BUILT_IN_COMMANDS, BUILT_IN_TOOLS, catalogue_names, server_of
from tests.support.hosted import open_peer, peer


class Declared:
    """What the table reads of a host: its name, and tools that no process has to register."""

    def __init__(self, name: str, *tools: str) -> None:
        self.name = name
        self.registrations = Registrations(tools=tuple(ToolDeclaration(tool, "", {}) for tool in tools))


def named(extension: str, *tools: str) -> list[str]:
    return list(catalogue_names([Declared(extension, *tools)]).values())


def digest(extension: str, name: str) -> str:
    return f"ext_{extension}_{hashlib.sha256(name.encode()).hexdigest()[:24]}"


@pytest.mark.parametrize(
    "name", ["a", "read-the-file_2", "A" * 64, "x_mcp_", "ext", "latchkey", "mcp", "read"]
)
def test_t29_a_safe_name_is_its_own(name: str) -> None:
    assert named("lint", name) == [name]


@pytest.mark.parametrize("name", ["a.b", "a b", "ü", "a" * 65, "a\n", "a/b", "a:b"])
def test_t29_a_name_that_providers_refuse_becomes_a_digest(name: str) -> None:
    assert named("lint", name) == [digest("lint", name)]


@pytest.mark.parametrize("name", ["mcp_x", "ext_x", "latch_x", "MCP_x", "Ext_", "LATCH_y", "latch_"])
def test_t29_our_prefixes_are_always_mapped(name: str) -> None:
    assert named("lint", name) == [digest("lint", name)]


@pytest.mark.parametrize("name", ["read_file", "READ_FILE", "readfile", "Read-File", "_r-e_a-d-file_"])
def test_t29_nothing_shadows_a_built_in_ignoring_case_and_separators(name: str) -> None:
    assert named("lint", name) == [digest("lint", name)]


@pytest.mark.parametrize("name", sorted(BUILT_IN_TOOLS))
def test_t29_every_built_in_is_out_of_reach(name: str) -> None:
    assert named("lint", name) == [digest("lint", name)]


def test_t29_a_name_of_two_extensions_is_nobodys_own() -> None:
    hosts = [Declared("b", "run", "Run"), Declared("a", "other", "run")]
    assert dict(catalogue_names(hosts)) == {
        ("a", "other"): "other",
        ("a", "run"): digest("a", "run"),
        ("b", "run"): digest("b", "run"),
        ("b", "Run"): "Run",
    }


def test_t29_the_order_is_that_of_names_whatever_came_first() -> None:
    hosts = [Declared("b", "y", "x"), Declared("a", "z")]
    expected = [("a", "z"), ("b", "y"), ("b", "x")]
    assert list(catalogue_names(hosts)) == list(catalogue_names(hosts[::-1])) == expected


def test_t29_all_names_of_a_session_differ() -> None:
    tools = ("x.y", "x.z", "run", "read_file", digest("a", "x.y"))
    hosts = [Declared(name, *tools) for name in ("a", "b", "a-b", "e" * 32)]
    names = list(catalogue_names(hosts).values())
    assert len(set(names)) == len(names) == 20
    assert max(map(len, names)) == 61


def test_t29_the_digest_is_fixed() -> None:
    assert named("lint", "a.b") == ["ext_lint_2e7336dc8eba87ef472df568"]


def test_t29_the_table_is_made_of_real_hosts_and_cannot_be_changed(sandbox: Path, workspace: Path) -> None:
    with open_peer(workspace, "--register", "", "--tool", "lock the door", "--tool", "one") as host:
        names = catalogue_names([host])
        assert dict(names) == {
            ("peer", "lock the door"): digest("peer", "lock the door"),
            ("peer", "one"): "one",
        }
        with pytest.raises(TypeError):
            names["peer", "one"] = "two"


def test_no_extensions_have_no_names() -> None:
    assert dict(catalogue_names([])) == {}


def test_every_command_of_the_command_line_is_built_in() -> None:
    assert {row[0] for row in COMMANDS} <= BUILT_IN_COMMANDS


@pytest.mark.parametrize("commands", [("help",), ("ordinary", "Doc-tor")])
def test_an_extension_of_a_session_cannot_register_a_built_in_command(
    sandbox: Path, workspace: Path, tmp_path: Path, commands: Iterable[str]
) -> None:
    program = tmp_path / "commands.py"
    sdk = Path(__file__).parents[2] / "latch" / "extensions"
    lines = [f"ext.command({name!r})(print)" for name in commands]
    program.write_text(
        f"import sys; sys.path.append({str(sdk)!r})\n"
        "from sdk import Extension\next = Extension()\n" + "\n".join(lines) + "\next.run()\n",
        encoding="utf-8",
    )
    entry = peer(name="greedy", args=("-ES", str(program)), ro_paths=(sdk,))
    with pytest.raises(PeerProtocolError) as raised:
        openings = extension_openings([entry], workspace=workspace, sandbox=sandbox_for(Settings()))
        hosts = open_peers(openings, scope=Scope.root(30))
        close_peers(hosts)
    assert raised.value.stage == "registration"
    assert (
        raised.value.reason == f'command.register: name "{list(commands)[-1]}" is that of a built-in command'
    )


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("mcp_local-tools_" + "0a" * 12, "local-tools"),
        ("mcp_a_" + "0" * 24, "a"),
        ("mcp_a_" + "0" * 23, None),
        ("mcp_a_" + "0" * 24 + "\n", None),
        ("mcp_a b_" + "0" * 24, None),
        ("ext_a_" + "0" * 24, None),
        ("echo", None),
    ],
)
def test_the_server_of_a_catalogue_name_is_known(name: str, server: str | None) -> None:
    assert server_of(name) == server
