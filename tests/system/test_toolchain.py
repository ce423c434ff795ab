"""Toolchains of every common layout are found whole, and nothing a repository says opens the home."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from latch.errors import CommandUnusable
from latch.system.toolchain import (
    Toolchain,
    find_toolchain,
    resolve_command,
    toolchain_from_path,
)

ELF = b"\x7fELF\x02\x01\x01\0"


@dataclass(frozen=True)
class Host:
    """A made-up machine below one directory: a home, a workspace and a tree that every sandbox shows."""

    home: Path
    workspace: Path
    usr: Path

    @property
    def visible(self) -> tuple[Path, ...]:
        """What every sandbox shows: also the real places of env."""
        return (self.usr, Path("/usr"), Path("/bin"))

    def program(self, path: Path, content: bytes | str = ELF) -> Path:
        """Make an executable file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755)
        return path

    def link(self, path: Path, target: str | Path) -> Path:
        """Make a link and the directories it lies in."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return path

    def venv(self, prefix: Path, base: Path) -> Path:
        """Make a virtual environment on the interpreter *base*; return its python."""
        python = self.link(prefix / "bin" / "python", base)
        (prefix / "pyvenv.cfg").write_text(f"version = 3.11.7\nhome = {base.parent}\n")
        return python

    def find(self, program: Path, *, args: tuple[str, ...] = (), path: str | None = None) -> Toolchain:
        """Search as for a peer."""
        return find_toolchain(
            program,
            args=args,
            home=self.home,
            search_path=path or str(self.usr / "bin"),
            visible=self.visible,
            workspace=self.workspace,
        )

    def for_commands(self, *entries: Path | str) -> Toolchain:
        """Search as for commands."""
        search_path = ":".join(map(str, entries))
        return toolchain_from_path(
            search_path, home=self.home, workspace=self.workspace, visible=self.visible
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A made-up machine whose system has a python and a shell."""
    made = Host(tmp_path / "home" / "user", tmp_path / "src" / "project", tmp_path / "usr")
    made.home.mkdir(parents=True)
    made.workspace.mkdir(parents=True)
    made.program(made.usr / "bin" / "python3.11")
    made.link(made.usr / "bin" / "python3", "python3.11")
    made.program(made.usr / "bin" / "sh")
    return made


# -- the command itself


def test_a_name_is_found_in_the_operators_order(host: Host, tmp_path: Path) -> None:
    first = host.program(tmp_path / "first" / "tool")
    second = host.program(tmp_path / "second" / "tool")
    search_path = f"{first.parent}:{second.parent}"
    assert resolve_command("tool", search_path=search_path, outside=None) == first


def test_a_found_link_is_returned_as_found(host: Host, tmp_path: Path) -> None:
    link = host.link(tmp_path / "bin" / "tool", host.usr / "bin" / "python3")
    assert resolve_command("tool", search_path=str(tmp_path / "bin"), outside=None) == link


def test_empty_and_relative_entries_are_skipped(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.program(tmp_path / "here" / "tool")
    host.program(tmp_path / "here" / "bin" / "tool")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(CommandUnusable, match='"tool" was not found in PATH') as caught:
        resolve_command("tool", search_path=":.:bin:", outside=None)
    assert caught.value.status == 127


def test_an_absolute_command_is_taken_as_it_is(host: Host, tmp_path: Path) -> None:
    program = host.program(tmp_path / "a b" / "tool")
    assert resolve_command(str(program), search_path="", outside=host.workspace) == program


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        ("", 127, "is empty"),
        ("too\0l", 127, "contains a NUL"),
        ("./tool", 127, "is a relative path"),
        ("bin/tool", 127, "is a relative path"),
        ("/absent/tool", 127, "does not exist"),
        ("{tmp}/dangling", 127, "is a link to nothing"),
        ("{tmp}/plain", 126, "is not an executable file"),
        ("{tmp}", 126, "is not an executable file"),
        ("plain", 126, "is not an executable file"),
        ("dangling", 127, "is a link to nothing"),
        ("directory", 127, "was not found"),
    ],
)
def test_an_unusable_command_says_which_and_why(
    tmp_path: Path, command: str, status: int, reason: str
) -> None:
    (tmp_path / "plain").write_bytes(ELF)
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "directory").mkdir()
    with pytest.raises(CommandUnusable, match=reason) as caught:
        resolve_command(command.format(tmp=tmp_path), search_path=str(tmp_path), outside=None)
    assert caught.value.status == status


def test_a_file_that_cannot_run_does_not_hide_one_that_can(host: Host, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "tool").write_bytes(ELF)
    program = host.program(tmp_path / "second" / "tool")
    search_path = f"{tmp_path / 'first'}:{program.parent}"
    assert resolve_command("tool", search_path=search_path, outside=None) == program


def test_t6_an_entry_of_the_workspace_is_skipped(host: Host) -> None:
    host.program(host.workspace / "bin" / "python3")
    search_path = f"{host.workspace / 'bin'}:{host.usr / 'bin'}"
    found = resolve_command("python3", search_path=search_path, outside=host.workspace)
    assert found == host.usr / "bin" / "python3"


def test_t6_a_program_found_only_in_the_workspace_is_refused(host: Host) -> None:
    host.program(host.workspace / "bin" / "tool")
    with pytest.raises(CommandUnusable, match="lies in the workspace: code of a repository") as caught:
        resolve_command("tool", search_path=str(host.workspace / "bin"), outside=host.workspace)
    assert caught.value.status == 126


@pytest.mark.parametrize("command", ["{workspace}/tool", "{tmp}/bin/tool", "tool", "{tmp}/alias/tool"])
def test_t6_a_program_of_the_workspace_is_refused_whichever_way(
    host: Host, tmp_path: Path, command: str
) -> None:
    program = host.program(host.workspace / "tool")
    host.link(tmp_path / "bin" / "tool", program)
    host.link(tmp_path / "alias", host.workspace)
    named = command.format(workspace=host.workspace, tmp=tmp_path)
    with pytest.raises(CommandUnusable, match="lies in the workspace"):
        resolve_command(named, search_path=str(tmp_path / "bin"), outside=host.workspace)


def test_t6_a_link_into_the_workspace_does_not_fall_through(host: Host, tmp_path: Path) -> None:
    host.link(tmp_path / "bin" / "python3", host.program(host.workspace / "python3"))
    search_path = f"{tmp_path / 'bin'}:{host.usr / 'bin'}"
    with pytest.raises(CommandUnusable, match="lies in the workspace"):
        resolve_command("python3", search_path=search_path, outside=host.workspace)


def test_t6_a_workspace_named_by_an_alias_is_still_the_workspace(host: Host, tmp_path: Path) -> None:
    program = host.program(host.workspace / "tool")
    alias = host.link(tmp_path / "alias", host.workspace)
    with pytest.raises(CommandUnusable, match="lies in the workspace"):
        resolve_command(str(program), search_path="", outside=alias)


# -- a peer's toolchain


def test_a_system_program_needs_nothing(host: Host) -> None:
    found = host.find(host.usr / "bin" / "python3")
    assert (found.roots, found.links) == ((), ())
    assert found.hops == (host.usr / "bin" / "python3", host.usr / "bin" / "python3.11")
    assert found.path_entries == (host.usr / "bin",)


@pytest.mark.parametrize(
    ("program", "root"),
    [
        (".nvm/versions/node/v20.1.0/bin/node", ".nvm/versions/node/v20.1.0"),
        (".local/share/fnm/node-versions/v20/installation/bin/node", ".local/share/fnm"),
        (".volta/bin/node", ".volta"),
        (".pyenv/versions/3.11.7/bin/python3", ".pyenv"),
        (".local/share/uv/python/cpython-3.12/bin/python3", ".local/share/uv/python/cpython-3.12"),
        (".local/share/uv/tools/ruff/bin/ruff", ".local/share/uv/tools/ruff"),
        (".local/pipx/venvs/black/bin/black", ".local/pipx/venvs/black"),
        ("miniconda3/envs/lab/bin/python", "miniconda3"),
        (".conda/envs/lab/bin/python", ".conda/envs/lab"),
        (".asdf/installs/ruby/3/bin/ruby", ".asdf"),
        (".sdkman/candidates/java/21/bin/java", ".sdkman/candidates"),
        ("go/bin/gopls", "go"),
        (".bun/bin/bun", ".bun"),
        (".deno/bin/deno", ".deno"),
        (".local/bin/tool", ".local/bin/tool"),
        (".local/tool", ".local/tool"),
        ("tool", "tool"),
        ("tools/tool", "tools"),
        ("tools/deep/tool", "tools/deep"),
    ],
)
def test_a_program_below_the_home_is_widened_to_its_root(host: Host, program: str, root: str) -> None:
    found = host.find(host.program(host.home / program))
    assert found.roots == (host.home / root,)
    assert found.links == ()


def test_cargo_brings_rustup_and_not_its_credentials(host: Host) -> None:
    program = host.program(host.home / ".cargo" / "bin" / "cargo")
    (host.home / ".rustup").mkdir()
    assert host.find(program).roots == (host.home / ".cargo" / "bin", host.home / ".rustup")


def test_a_companion_that_is_a_link_is_recreated(host: Host, tmp_path: Path) -> None:
    program = host.program(host.home / ".cargo" / "bin" / "cargo")
    (tmp_path / "big" / "rustup").mkdir(parents=True)
    host.link(host.home / ".rustup", tmp_path / "big" / "rustup")
    found = host.find(program)
    assert found.roots == (host.home / ".cargo" / "bin", tmp_path / "big" / "rustup")
    assert found.links == ((str(tmp_path / "big" / "rustup"), str(host.home / ".rustup")),)


def test_a_pyenv_shim_gets_the_whole_of_pyenv(host: Host) -> None:
    shim = host.program(host.home / ".pyenv/shims/python3", f"#!{host.usr}/bin/sh\nexec pyenv\n")
    found = host.find(shim, path=f"{shim.parent}:{host.usr / 'bin'}")
    assert found.roots == (host.home / ".pyenv",)
    assert found.program == shim
    assert found.path_entries == (shim.parent, host.usr / "bin")


def test_a_tool_of_uv_is_three_hops(host: Host) -> None:
    share = host.home / ".local" / "share" / "uv"
    python = host.program(share / "python" / "cpython-3.12.5" / "bin" / "python3.12")
    minor = host.link(share / "python" / "cpython-3.12", "cpython-3.12.5")
    tool_python = host.venv(share / "tools" / "foo", minor / "bin" / "python3.12")
    script = host.program(share / "tools" / "foo" / "bin" / "foo", f"#!{tool_python}\n")
    link = host.link(host.home / ".local" / "bin" / "foo", "../share/uv/tools/foo/bin/foo")
    found = host.find(link, path=f"{link.parent}:{host.usr / 'bin'}")
    assert found.roots == (share / "tools" / "foo", share / "python" / "cpython-3.12.5")
    assert found.links == (("../share/uv/tools/foo/bin/foo", str(link)), ("cpython-3.12.5", str(minor)))
    assert found.hops == (link, script, tool_python, python)
    assert found.path_entries == (link.parent, host.usr / "bin")


def test_a_venv_anywhere_is_its_prefix_and_its_base(host: Host) -> None:
    base = host.program(host.home / ".pyenv/versions/3.11.7/bin/python3.11")
    python = host.venv(host.home / "projects" / "lab" / ".venv", base)
    assert host.find(python).roots == (host.home / ".pyenv", host.home / "projects/lab/.venv")


def test_the_base_of_a_venv_is_its_whole_prefix(host: Host) -> None:
    base = host.program(host.home / "python" / "bin" / "python3.11")
    (host.home / "python" / "lib" / "python3.11").mkdir(parents=True)
    python = host.venv(host.home / "venv", base)
    assert host.find(python).roots == (host.home / "python", host.home / "venv")


def test_the_base_of_a_venv_is_found_where_nothing_links_to_it(host: Host) -> None:
    base = host.program(host.home / ".pyenv/versions/3.11.7/bin/python3.11")
    python = host.venv(host.home / "venv", base)
    python.unlink()
    host.program(python)
    assert host.find(python).roots == (host.home / "venv", host.home / ".pyenv")


def test_a_base_in_a_directory_of_everything_is_left_to_the_link(host: Host) -> None:
    base = host.program(host.home / ".local" / "bin" / "python3.11")
    python = host.venv(host.home / "venv", base)
    assert host.find(python).roots == (base, host.home / "venv")


def test_a_conda_environment_is_known_by_its_mark(host: Host) -> None:
    (host.home / "envs" / "lab" / "conda-meta").mkdir(parents=True)
    program = host.program(host.home / "envs" / "lab" / "bin" / "python")
    assert host.find(program).roots == (host.home / "envs" / "lab",)


def test_npx_of_an_unpacked_node_gets_its_lib(host: Host) -> None:
    prefix = host.home / "node-v20"
    node = host.program(prefix / "bin" / "node")
    script = prefix / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
    host.program(script, "#!/usr/bin/env node\n")
    npx = host.link(prefix / "bin" / "npx", "../lib/node_modules/npm/bin/npx-cli.js")
    found = host.find(npx, path=f"{prefix / 'bin'}:{host.usr / 'bin'}")
    assert found.roots == (prefix,)
    assert found.hops[-1] == node
    assert found.path_entries == (prefix / "bin", host.usr / "bin")


def test_a_project_with_a_lib_is_no_installation(host: Host) -> None:
    (host.home / "project" / "lib" / "node_modules").mkdir(parents=True)
    program = host.program(host.home / "project" / "scripts" / "tool")
    assert host.find(program).roots == (host.home / "project" / "scripts",)


@pytest.mark.parametrize(
    "line",
    [
        "#!/usr/bin/env node",
        "#! /usr/bin/env node\r",
        "#!/usr/bin/env -S node --flag",
        "#!/usr/bin/env -Snode --flag",
        "#!/usr/bin/env --split-string=node --flag",
        "#!/bin/env -S -i A=1 node",
    ],
)
def test_the_program_behind_env_is_found(host: Host, line: str) -> None:
    node = host.program(host.home / ".volta" / "bin" / "node")
    script = host.program(host.home / "tools" / "server", f"{line}\nbody\n")
    found = host.find(script, path=f"{host.usr / 'bin'}:{node.parent}")
    assert found.roots == (host.home / "tools", host.home / ".volta")


def test_an_absolute_program_behind_env_is_followed(host: Host) -> None:
    node = host.program(host.home / ".volta" / "bin" / "node")
    script = host.program(host.home / "tools" / "server", f"#!/usr/bin/env {node}\n")
    assert host.find(script).roots == (host.home / "tools", host.home / ".volta")


def test_the_program_behind_env_may_lie_beside_the_script(host: Host) -> None:
    prefix = host.home / ".nvm" / "versions" / "node" / "v20"
    node = host.program(prefix / "bin" / "node")
    npx = host.program(prefix / "bin" / "npx", "#!/usr/bin/env node\n")
    found = host.find(npx)
    assert found.hops[-1] == node
    assert found.path_entries == (host.usr / "bin", prefix / "bin")


def test_a_missing_program_behind_env_is_named_with_the_script(host: Host) -> None:
    script = host.program(host.home / "tools" / "server", "#!/usr/bin/env no-such-thing\n")
    with pytest.raises(CommandUnusable) as caught:
        host.find(script)
    assert caught.value.status == 127
    assert str(script) in caught.value.reason and '"no-such-thing" was not found' in caught.value.reason


def test_a_missing_interpreter_is_named_with_the_program(host: Host) -> None:
    script = host.program(host.home / "tools" / "server", f"#!{host.home}/gone/bin/python\n")
    with pytest.raises(CommandUnusable) as caught:
        host.find(script)
    assert caught.value.status == 127
    assert f'"{script}" needs "{host.home}/gone"' in caught.value.reason


@pytest.mark.parametrize(
    "content",
    [
        b"#!\n",
        b"#!absent/python\n",
        b"#!/a\0b\n",
        b"",
        b"xx/absent/python\n",
        b"#!/usr/bin/env bin/x\n",
        b"#!/usr/bin/env\n",
        b"#!/bin/sh -e absent\n",
        b"#!/usr/bin/env -i\n",
    ],
)
def test_a_line_that_names_no_interpreter_ends_the_search(host: Host, content: bytes) -> None:
    script = host.program(host.home / "tools" / "server", content)
    assert host.find(script).roots == (host.home / "tools",)


def test_programs_that_name_each_other_end_the_search(host: Host) -> None:
    one, two = host.home / "tools" / "one", host.home / "tools" / "two"
    host.program(one, f"#!{two}\n")
    host.program(two, f"#!{one}\n")
    assert host.find(one).hops == (one, two)


def test_links_in_a_circle_are_an_error(host: Host) -> None:
    one = host.link(host.home / "one", "two")
    host.link(host.home / "two", "one")
    with pytest.raises(CommandUnusable, match="cannot be reached"):
        host.find(one)


def test_a_link_with_dots_is_followed_from_its_real_place(host: Host, tmp_path: Path) -> None:
    program = host.program(tmp_path / "big" / "tools" / "bin" / "tool")
    (tmp_path / "big" / "links").mkdir()
    host.link(tmp_path / "big" / "links" / "tool", "../tools/./bin/tool")
    host.link(host.home / "links", tmp_path / "big" / "links")
    found = host.find(host.home / "links" / "tool")
    assert found.roots == (program.parent,)
    assert found.links == (
        (str(tmp_path / "big" / "links"), str(host.home / "links")),
        ("../tools/./bin/tool", str(tmp_path / "big" / "links" / "tool")),
    )


def test_a_home_behind_a_link_is_found_by_both_names(host: Host, tmp_path: Path) -> None:
    host.program(host.home / ".pyenv" / "versions" / "3.11.7" / "bin" / "python3")
    host.link(tmp_path / "logical", host.home.parent)
    logical = tmp_path / "logical" / "user"
    found = find_toolchain(
        logical / ".pyenv/versions/3.11.7/bin/python3",
        home=logical,
        search_path=f"{logical}/.pyenv/versions/3.11.7/bin",
        visible=host.visible,
        workspace=host.workspace,
    )
    assert found.roots == (host.home / ".pyenv",)
    assert found.links == ()
    assert found.path_entries == (logical / ".pyenv/versions/3.11.7/bin",)


def test_a_row_behind_a_link_is_still_that_row(host: Host, tmp_path: Path) -> None:
    host.program(tmp_path / "big" / "pyenv" / "shims" / "python3")
    host.link(host.home / ".pyenv", tmp_path / "big" / "pyenv")
    found = host.find(host.home / ".pyenv" / "shims" / "python3")
    assert found.roots == (tmp_path / "big" / "pyenv",)
    assert found.links == ((str(tmp_path / "big" / "pyenv"), str(host.home / ".pyenv")),)


def test_a_row_that_holds_the_home_is_not_used(host: Host) -> None:
    host.link(host.home / "go", host.home.parent)
    program = host.program(host.home / "tools" / "tool")
    assert host.find(program).roots == (host.home / "tools",)


def test_the_users_packages_come_with_the_systems_python(host: Host) -> None:
    packages = host.home / ".local/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (host.home / ".local/lib/python3.12/site-packages").mkdir(parents=True)
    assert host.find(host.usr / "bin" / "python3").roots == (packages,)


def test_the_users_packages_behind_a_link_are_left_out(host: Host) -> None:
    (host.home / ".ssh").mkdir()
    host.link(host.home / ".local/lib/python3.11/site-packages", host.home / ".ssh")
    assert host.find(host.usr / "bin" / "python3").roots == ()


def test_the_users_packages_do_not_come_with_another_python(host: Host) -> None:
    (host.home / ".local/lib/python3.11/site-packages").mkdir(parents=True)
    other = host.program(host.home / "python" / "python3.11")
    assert host.find(other).roots == (host.home / "python",)


@pytest.mark.parametrize(
    ("argument", "root"),
    [
        ("home/user/server.py", "home/user/server.py"),
        ("home/user/srv/server.py", "home/user/srv"),
        ("home/user/.config/server.py", "home/user/.config/server.py"),
        ("home/user/.volta/lib/x.js", "home/user/.volta"),
        ("src/server.py", "src/server.py"),
        ("src/other/server.py", "src/other"),
        ("usr/share/server.py", None),
        ("src/project/server.py", None),
        ("home/user/srv", None),
        ("home/user/absent.py", None),
    ],
)
def test_an_argument_that_names_a_file_is_shown(
    host: Host, tmp_path: Path, argument: str, root: str | None
) -> None:
    path = tmp_path / argument
    if path.suffix and "absent" not in argument:
        host.program(path)
    else:
        (host.home / "srv").mkdir()
    found = host.find(host.usr / "bin" / "python3", args=("-u", "--x=/etc", str(path), "relative"))
    assert found.roots == (() if root is None else (tmp_path / root,))
    assert found.hops[-1] == host.usr / "bin" / "python3.11"


def test_an_argument_that_names_no_absolute_file_is_passed_over(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    relative = str(host.program(host.home / "srv" / "server.py"))[1:]
    assert host.find(host.usr / "bin" / "python3", args=("/etc/\0", relative)).roots == ()


def test_an_argument_in_a_scratch_directory_is_shown_alone(host: Host) -> None:
    with tempfile.NamedTemporaryFile(dir="/var/tmp", suffix=".py") as script:
        assert host.find(host.usr / "bin" / "python3", args=(script.name,)).roots == (Path(script.name),)


def test_an_argument_in_a_top_directory_is_shown_alone() -> None:
    found = find_toolchain(
        Path("/usr/bin/env"),
        args=("/etc/passwd",),
        home=Path("/home/x"),
        search_path="",
        workspace=Path("/srv/x"),
    )
    assert found.roots == (Path("/etc/passwd"),)


def test_a_root_in_another_root_is_not_listed(host: Host) -> None:
    script = host.program(host.home / "srv" / "deep" / "tool")
    other = host.program(host.home / "srv" / "server.py")
    assert host.find(script, args=(str(other),)).roots == (host.home / "srv",)


def test_path_inside_is_the_operators_order_less_what_is_not_visible(host: Host, tmp_path: Path) -> None:
    node = host.program(host.home / ".volta" / "bin" / "node")
    (host.workspace / "bin").mkdir()
    (tmp_path / "hidden").mkdir()
    host.link(tmp_path / "alias", host.usr / "bin")
    host.link(host.workspace / "sbin", host.usr / "bin")
    host.link(host.usr / "wbin", host.workspace / "bin")
    entries = [node.parent, "", "relative", tmp_path / "hidden", host.workspace / "bin", host.home / "absent"]
    entries += [host.workspace / "sbin", host.usr / "wbin", host.usr / "bin" / "sh"]
    entries += [tmp_path / "alias", host.usr / "bin", node.parent]
    found = host.find(node, path=":".join(map(str, entries)))
    assert found.path_entries == (node.parent, tmp_path / "alias", host.usr / "bin")
    assert found.links == ((str(host.usr / "bin"), str(tmp_path / "alias")),)


# -- T2: what a repository says


def test_t2_a_venv_of_the_workspace_brings_a_row_of_the_table(host: Host) -> None:
    base = host.program(host.home / ".pyenv/versions/3.11.7/bin/python3.11")
    python = host.venv(host.workspace / ".venv", base)
    assert host.find(python).roots == (host.home / ".pyenv",)


def test_t2_a_workspace_file_opens_nothing_beside_the_table(host: Host) -> None:
    secret = host.program(host.home / "private" / "python3")
    python = host.venv(host.workspace / ".venv", secret)
    found = host.find(python)
    assert (found.roots, found.links) == ((), ())
    assert found.hops[-1] == secret


def test_t2_a_second_link_does_not_restore_trust(host: Host) -> None:
    secret = host.program(host.home / "private" / "python3")
    python = host.venv(host.workspace / ".venv", host.link(host.home / "links" / "python3", secret))
    found = host.find(python)
    assert (found.roots, found.links) == ((), ())


def test_t2_a_link_within_a_row_is_recreated_for_the_workspace_too(host: Host) -> None:
    share = host.home / ".local" / "share" / "uv" / "python"
    host.program(share / "cpython-3.12.5" / "bin" / "python3.12")
    minor = host.link(share / "cpython-3.12", "cpython-3.12.5")
    found = host.find(host.venv(host.workspace / ".venv", minor / "bin" / "python3.12"))
    assert found.roots == (share / "cpython-3.12.5",)
    assert found.links == (("cpython-3.12.5", str(minor)),)


def test_t2_a_venv_that_the_workspace_led_to_does_not_restore_trust(host: Host) -> None:
    secret = host.program(host.home / "private" / "bin" / "python3")
    tool = host.home / ".local" / "share" / "uv" / "tools" / "foo"
    python = host.venv(tool, secret)
    python.unlink()
    host.program(python)
    script = host.program(host.workspace / "run", f"#!{python}\n")
    assert host.find(script).roots == (tool,)


def test_t2_a_shebang_of_the_workspace_opens_nothing_beside_the_table(host: Host) -> None:
    secret = host.program(host.home / "private" / "tool")
    script = host.program(host.workspace / "run", f"#!{secret}\n")
    assert host.find(script).roots == ()


def test_t2_distrust_lasts_to_the_end_of_the_chain(host: Host) -> None:
    third = host.program(host.home / "private" / "third")
    second = host.program(host.home / ".volta" / "bin" / "second", f"#!{third}\n")
    script = host.program(host.workspace / "run", f"#!{second}\n")
    assert host.find(script).roots == (host.home / ".volta",)


def test_t2_a_program_that_leads_through_the_workspace_is_distrusted_from_there(host: Host) -> None:
    secret = host.program(host.home / "private" / "tool")
    inside = host.link(host.workspace / "tool", secret)
    program = host.link(host.home / "tools" / "tool", inside)
    found = host.find(program)
    assert found.roots == ()
    assert found.links == ((str(inside), str(program)),)


def test_t2_a_row_is_checked_on_disk(host: Host) -> None:
    python = host.venv(host.workspace / ".venv", host.program(host.home / ".volta" / "x" / "python"))
    python.unlink()
    host.link(python, host.home / ".volta" / ".." / "private" / "python")
    host.program(host.home / "private" / "python")
    (host.workspace / ".venv" / "pyvenv.cfg").write_text(f"home = {host.home}/.pyenv/absent\n")
    assert host.find(python).roots == ()


@pytest.mark.parametrize("sin", ["link", "hard link", "large", "fifo", "latin", "linked directory"])
def test_t7_a_pyvenv_cfg_that_is_not_plain_says_nothing(host: Host, tmp_path: Path, sin: str) -> None:
    base = host.program(host.home / ".pyenv/versions/3.11.7/bin/python3.11")
    prefix, outside = host.workspace / ".venv", tmp_path / "outside"
    host.venv(prefix, base)
    config = prefix / "pyvenv.cfg"
    config.rename(outside)
    text = outside.read_bytes()
    if sin == "link":
        config.symlink_to(outside)
    elif sin == "hard link":
        os.link(outside, config)
    elif sin == "large":
        config.write_bytes(text + b"#" * 65536)
    elif sin == "fifo":
        os.mkfifo(config)
    elif sin == "latin":
        config.write_bytes(text + b"# caf\xe9\n")
    else:
        config.write_bytes(text)
        prefix.rename(tmp_path / "venv")
        prefix.symlink_to(tmp_path / "venv")
    assert host.for_commands(host.usr / "bin").roots == ()


@pytest.mark.parametrize("sin", ["hard link", "fifo"])
def test_t7_a_script_of_the_workspace_that_is_not_plain_is_not_read(
    host: Host, tmp_path: Path, sin: str
) -> None:
    node = host.program(host.home / ".volta" / "bin" / "node")
    script = host.workspace / "run"
    if sin == "fifo":
        os.mkfifo(script)
    else:
        os.link(host.program(tmp_path / "outside", f"#!{node}\n"), script)
    assert host.find(script).roots == ()


def test_t7_a_large_script_of_the_workspace_is_read_by_its_head(host: Host) -> None:
    node = host.program(host.home / ".volta" / "bin" / "node")
    script = host.program(host.workspace / "run", f"#!{node}\n" + "x" * 100_000)
    assert host.find(script).roots == (host.home / ".volta",)


# -- commands


def test_commands_get_the_rows_their_path_lies_in(host: Host) -> None:
    host.program(host.home / ".pyenv" / "shims" / "python3")
    host.program(host.home / ".nvm/versions/node/v20/bin/node")
    host.program(host.home / "private" / "bin" / "tool")
    entries = [host.home / ".pyenv/shims", host.home / "private/bin", host.usr / "bin"]
    entries += [host.home / ".nvm/versions/node/v20/bin"]
    found = host.for_commands(*entries)
    assert found.program is None
    assert found.roots == (host.home / ".pyenv", host.home / ".nvm/versions/node/v20")
    assert found.path_entries == (entries[0], entries[2], entries[3])


def test_commands_keep_the_paths_of_the_workspace(host: Host) -> None:
    (host.workspace / ".venv" / "bin").mkdir(parents=True)
    found = host.for_commands(host.workspace / ".venv/bin", host.workspace / "absent", host.usr / "bin")
    assert found.path_entries == (host.workspace / ".venv/bin", host.usr / "bin")
    assert found.roots == ()


def test_a_path_may_be_a_row_itself(host: Host) -> None:
    (host.home / ".cargo" / "bin").mkdir(parents=True)
    assert host.for_commands(host.home / ".cargo/bin").roots == (host.home / ".cargo/bin",)


def test_a_path_that_is_no_entry_of_a_row_brings_nothing(host: Host) -> None:
    (host.home / ".local/share/uv/python").mkdir(parents=True)
    (host.home / ".pyenv").mkdir()
    assert host.for_commands(host.home / ".local/share/uv/python", host.home / ".pyenv/absent").roots == ()


def test_a_workspace_in_a_row_does_not_open_the_row(host: Host) -> None:
    workspace = host.home / "go" / "src" / "project"
    (workspace / "bin").mkdir(parents=True)
    inside = Host(host.home, workspace, host.usr)
    assert inside.for_commands(workspace / "bin").roots == ()


def test_a_path_that_is_a_link_into_a_row_is_recreated(host: Host, tmp_path: Path) -> None:
    installation = host.home / ".local/share/fnm/node-versions/v20/installation"
    host.program(installation / "bin" / "node")
    shell = host.link(host.home / ".local/state/fnm_multishells/1_2", installation)
    found = host.for_commands(shell / "bin")
    assert found.roots == (host.home / ".local/share/fnm",)
    assert found.links == ((str(installation), str(shell)),)
    assert found.path_entries == (shell / "bin",)


@pytest.mark.parametrize("name", [".venv", "venv", "env"])
def test_commands_get_the_base_of_the_workspaces_venv(host: Host, name: str) -> None:
    base = host.program(host.home / ".local/share/uv/python/cpython-3.12/bin/python3.12")
    host.venv(host.workspace / name, base)
    assert host.for_commands(host.usr / "bin").roots == (host.home / ".local/share/uv/python/cpython-3.12",)


@pytest.mark.parametrize(
    "text",
    [
        "home = {home}/private/bin\n",
        "home = {home}/.ssh\n",
        "home = {home}\n",
        "home = /\n",
        "home = {relative}/.pyenv/bin\n",
        "home = {home}/.pyenv/file\n",
        "home = {home}/.pyenv/bin\0\n",
        "home = {home}/.pyenv/../private/bin\n",
        "home = {home}/.pyenv/absent\n",
        "homes = {home}/.pyenv\n",
        "home\n",
        "",
    ],
)
def test_t2_a_base_outside_the_table_opens_nothing(host: Host, text: str) -> None:
    for name in ("private/bin", ".ssh", ".pyenv/bin"):
        (host.home / name).mkdir(parents=True)
    (host.home / ".pyenv" / "file").touch()
    (host.workspace / ".venv").mkdir()
    text = text.format(home=host.home, relative=str(host.home)[1:])
    (host.workspace / ".venv" / "pyvenv.cfg").write_text(text)
    assert host.for_commands(host.usr / "bin").roots == ()


def test_the_key_of_a_base_is_read_as_python_reads_it(host: Host) -> None:
    (host.home / ".pyenv" / "bin").mkdir(parents=True)
    (host.workspace / ".venv").mkdir()
    (host.workspace / ".venv" / "pyvenv.cfg").write_text(f"home\n HOME={host.home}/.pyenv/bin \nhome = /x\n")
    assert host.for_commands(host.usr / "bin").roots == (host.home / ".pyenv",)


def test_links_on_the_way_to_the_base_are_recreated(host: Host) -> None:
    share = host.home / ".local" / "share" / "uv" / "python"
    host.program(share / "cpython-3.12.5" / "bin" / "python3.12")
    minor = host.link(share / "cpython-3.12", "cpython-3.12.5")
    host.venv(host.workspace / ".venv", minor / "bin" / "python3.12")
    found = host.for_commands(host.usr / "bin")
    assert found.roots == (share / "cpython-3.12.5",)
    assert found.links == (("cpython-3.12.5", str(minor)),)


def test_commands_get_the_programs_of_local_bin_one_by_one(host: Host, tmp_path: Path) -> None:
    local, share = host.home / ".local" / "bin", host.home / ".local" / "share"
    base = host.program(host.home / ".pyenv/versions/3.11.7/bin/python3.11")
    pipx_python = host.venv(share / "pipx" / "venvs" / "black", base)
    host.program(share / "pipx" / "venvs" / "black" / "bin" / "black", f"#!{pipx_python}\n")
    black = host.link(local / "black", share / "pipx/venvs/black/bin/black")
    uv = host.program(local / "uv")
    stray = host.link(local / "stray", host.program(host.home / "private" / "tool"))
    (local / "notes.txt").write_text("not a program")
    (local / "directory").mkdir()
    found = host.for_commands(local, host.usr / "bin")
    assert found.roots == (share / "pipx/venvs/black", host.home / ".pyenv", uv)
    assert found.links == ((str(share / "pipx/venvs/black/bin/black"), str(black)),)
    assert str(stray) not in dict(found.links).values()
    assert found.path_entries == (local, host.usr / "bin")


def test_a_script_of_local_bin_brings_its_interpreter(host: Host) -> None:
    node = host.program(host.home / ".volta" / "bin" / "node")
    script = host.program(host.home / ".local" / "bin" / "tool", f"#!{node}\n")
    assert host.for_commands(host.home / ".local/bin").roots == (script, host.home / ".volta")


def test_a_base_that_nothing_links_to_comes_with_a_program_of_local_bin(host: Host) -> None:
    base = host.program(host.home / ".pyenv/versions/3.11.7/bin/python3.11")
    python = host.venv(host.home / ".local/share/uv/tools/foo", base)
    python.unlink()
    host.program(python)
    host.program(python.parent / "foo", f"#!{python}\n")
    host.link(host.home / ".local/bin/foo", python.parent / "foo")
    found = host.for_commands(host.home / ".local/bin")
    assert found.roots == (host.home / ".local/share/uv/tools/foo", host.home / ".pyenv")


def test_a_local_bin_without_programs_is_not_on_the_path(host: Host) -> None:
    (host.home / ".local" / "bin").mkdir(parents=True)
    found = host.for_commands(host.home / ".local/bin", host.home / ".local/absent", host.usr / "bin")
    assert found.path_entries == (host.usr / "bin",)


def test_commands_get_the_users_packages(host: Host) -> None:
    packages = host.home / ".local/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    assert host.for_commands(host.usr / "bin").roots == (packages,)
