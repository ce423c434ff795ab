"""Odd places to run from: no environment, a sealed home, a state directory where it should not be."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Done, Operator, sealed_home
from tests.support.sandboxes import needs, system_python
from tests.support.tree import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")

SECRET = "hunter2"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def inside(operator: Operator, script: str, *flags: str, **how: Any) -> Done:
    """Run *script* as a command of the workspace."""
    return operator.run("sandbox", *flags, "--", "sh", "-c", script, **how)


# -- no environment ----------------------------------------------------------------------------------


def test_the_demo_needs_no_environment(operator: Operator) -> None:
    done = operator.run("demo", "--json", before=("env", "-i"))
    assert (done.status, done.err) == (0, b"") and all(step["ok"] for step in done.value["steps"])


def test_a_check_needs_no_environment(operator: Operator) -> None:
    operator.configure(operator.peer(), top=f'state_dir = "{operator.place / "state"}"')
    done = operator.run(
        "extensions", "--check", "--json", "--config", str(operator.file), before=("env", "-i")
    )
    assert (done.status, done.err) == (0, b"")
    assert [one["name"] for one in done.value["extensions"]] == ["one"]
    assert operator.left() == []


def test_a_command_is_found_without_a_path(operator: Operator) -> None:
    operator.configure(top=f'state_dir = "{operator.place / "state"}"')
    before = ("env", "-i")
    done = operator.run(
        "sandbox", "--config", str(operator.file), "--", "sh", "-c", "echo ${TERM-none} $HOME", before=before
    )
    assert done.status == 0 and done.text.startswith("none /")


# -- a home that cannot be written -------------------------------------------------------------------


def test_a_read_only_home_is_named_with_its_cure(operator: Operator, sandbox: Path) -> None:
    operator.configure(operator.peer())
    with sealed_home(operator, sandbox) as before:
        for arguments in (("extensions", "--check"), ("call", "one/echo")):
            done = operator.run(*arguments, "--json", before=before)
            assert (done.status, done.error["code"]) == (1, "store"), done
            assert f'"{operator.ledger}": cannot record a process start' in done.error["message"]
            assert "LATCH_DIRECTORY" in done.error["hint"] and "state_dir" in done.error["hint"]
        done = operator.run("sandbox", "--json", "--", "true", before=before)
    assert (done.status, done.error["exit"], done.error["code"]) == (125, 1, "store")
    assert operator.left() == []


def test_the_cure_works_and_what_writes_nothing_does_not_need_it(operator: Operator, sandbox: Path) -> None:
    operator.configure(operator.peer())
    elsewhere = operator.environment(LATCH_DIRECTORY=str(operator.place / "elsewhere"))
    (operator.place / "elsewhere").mkdir(mode=0o700)
    shutil.copy(operator.file, operator.place / "elsewhere")
    with sealed_home(operator, sandbox) as before:
        for arguments in (("extensions",), ("ps",), ("reap",), ("config", "show"), ("demo",)):
            assert operator.run(*arguments, before=before).status == 0
        assert operator.run("extensions", "--check", before=before, env=elsewhere).status == 0


# -- where our own files may lie ---------------------------------------------------------------------


def test_a_state_directory_inside_the_workspace_is_masked(operator: Operator) -> None:
    state = operator.workspace / "state"
    operator.configure(top=f'state_dir = "{state}"')
    done = inside(operator, "ls -A state; ls -A state/ledger; echo x > state/x", "--write")
    assert (done.out, sorted(path.name for path in state.iterdir())) == (b"", ["ledger"])
    assert done.status != 0 and (inside(operator, "ls").out == b"state\n")


def test_a_state_directory_behind_a_link_is_masked_where_it_really_is(operator: Operator) -> None:
    real = operator.workspace / "real-state"
    real.mkdir(mode=0o700)
    (real / "kept").write_text(SECRET, encoding="utf-8")
    link = operator.place / "state"
    link.symlink_to(real)
    operator.configure(top=f'state_dir = "{link}"')
    done = inside(operator, "cat real-state/kept; ls -A real-state", "--write")
    assert done.out == b"" and done.status != 0
    assert (real / "ledger").is_dir()


def test_our_directory_inside_the_workspace_is_masked(operator: Operator) -> None:
    directory = operator.workspace / "ours"
    (directory / "state").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    (directory / "secrets.toml").write_text(SECRET, encoding="utf-8")
    (directory / "secrets.toml").chmod(0o600)
    done = inside(
        operator,
        "cat ours/secrets.toml; ls -A ours",
        env=operator.environment(LATCH_DIRECTORY=str(directory)),
    )
    assert done.out == b"" and done.status != 0 and SECRET not in done.said


def test_a_configuration_file_that_a_repository_could_write_is_refused(operator: Operator) -> None:
    operator.configure(operator.peer())
    file = operator.workspace / "config.toml"
    shutil.copy(operator.file, file)
    done = operator.run("extensions", "--check", "--json", "--config", str(file))
    assert (done.status, done.error["code"]) == (2, "usage")
    assert "lies in the workspace" in done.error["message"] and operator.left() == []


@pytest.mark.parametrize("place", ["home", "above", "root", "state"])
def test_a_workspace_that_would_show_too_much_is_refused(operator: Operator, place: str) -> None:
    operator.configure(top=f'state_dir = "{operator.place / "state"}"')
    (operator.place / "state").mkdir(mode=0o700)
    file = operator.place / "elsewhere" / "config.toml"
    file.parent.mkdir()
    shutil.copy(operator.file, file)
    operator.file.unlink()
    choice = {
        "home": operator.home,
        "above": operator.place,
        "root": Path("/"),
        "state": operator.place / "state",
    }
    if place == "root" and os.getuid() != 0:
        pytest.skip("an ordinary user does not own the root directory in the first place")
    arguments = ("--config", str(file), "-C", str(choice[place]))
    done = inside(operator, "true", *arguments, "--json")
    assert (done.status, done.error["exit"]) == (125, 2), done
    words = {"home": "home directory", "above": "home directory", "root": '"/"', "state": "state directory"}
    assert words[place] in done.error["message"]


def test_a_credential_file_kept_elsewhere_is_masked_where_it_is(operator: Operator) -> None:
    vault = operator.workspace / "vault"
    vault.mkdir(mode=0o700)
    (vault / "real.toml").write_text("", encoding="utf-8")
    (vault / "real.toml").chmod(0o600)
    (vault / "other").write_text(SECRET, encoding="utf-8")
    operator.configure()
    (operator.directory / "secrets.toml").symlink_to(vault / "real.toml")
    done = inside(
        operator, "ls -A vault; cat vault/real.toml vault/other; echo x > vault/real.toml", "--write"
    )
    assert done.out == b"" and done.status != 0 and SECRET not in done.said
    refused = inside(operator, "true", "-C", str(vault), "--json")
    assert (refused.status, refused.error["exit"]) == (125, 2)
    assert f'"{vault}"' in refused.error["message"] and "credentials" in refused.error["message"]


# -- an interpreter below the masked home ------------------------------------------------------------


def lay_interpreter(root: Path) -> None:
    """Make *root* an interpreter's directory: a copy of the system's program, and a library of its own."""
    (root / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(system_python()), root / "bin" / "python3")
    (root / "lib" / "only-here").mkdir(parents=True)
    (root / "lib" / "only-here" / "which.txt").write_text(str(root), encoding="utf-8")


def lay_script(path: Path, line: str) -> None:
    """Make *path* a program that runs *line*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def assert_runs(operator: Operator, entry: dict[str, Any], root: Path, env: dict[str, str]) -> None:
    """Check that the peer of *entry* runs on the interpreter of *root*, in an otherwise empty home."""
    program = operator.place / "which.py"
    sdk = ROOT / "latch" / "extensions"
    program.write_text(
        "import os, sys\n"
        f"sys.path.append({str(sdk)!r})\n"
        "from sdk import Extension\n"
        "ext = Extension()\n"
        "@ext.tool()\n"
        "def which(arguments):\n"
        f"    with open({str(root / 'lib' / 'only-here' / 'which.txt')!r}) as stream:\n"
        "        return [stream.read(), sorted(os.listdir(os.environ['HOME']))]\n"
        "ext.run()\n",
        encoding="utf-8",
    )
    (operator.home / "private.txt").write_text(SECRET, encoding="utf-8")
    operator.configure({**operator.program(program, ro_paths=[str(sdk)]), **entry})
    done = operator.run("call", "--json", "one/which", env=env)
    assert done.status == 0, done
    assert done.value["result"] == [str(root), [root.relative_to(operator.home).parts[0]]]


def test_an_interpreter_of_pyenv_runs_behind_its_shim(operator: Operator) -> None:
    pyenv = operator.home / ".pyenv"
    root = pyenv / "versions" / "3.99.0"
    lay_interpreter(root)
    manager, shim = pyenv / "libexec" / "pyenv", pyenv / "shims" / "python3"
    lay_script(manager, f'shift; name=$1; shift; exec "{root}/bin/$name" "$@"')
    lay_script(shim, f'exec "{manager}" exec python3 "$@"')
    path = f"{shim.parent}:/usr/local/bin:/usr/bin:/bin"
    assert_runs(operator, {"command": "python3"}, root, operator.environment(PATH=path))


def test_an_interpreter_of_nvm_s_kind_runs(operator: Operator) -> None:
    root = operator.home / ".nvm" / "versions" / "node" / "v99.0.0"
    lay_interpreter(root)
    (root / "bin" / "python3").rename(root / "bin" / "node")
    path = f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    assert_runs(operator, {"command": "node"}, root, operator.environment(PATH=path))


def test_an_interpreter_of_a_virtual_environment_runs(operator: Operator) -> None:
    root = operator.home / "environments" / "one"
    subprocess.run(
        [system_python(), "-m", "venv", "--without-pip", "--copies", str(root)], check=True, timeout=60
    )
    (root / "lib" / "only-here").mkdir(parents=True)
    (root / "lib" / "only-here" / "which.txt").write_text(str(root), encoding="utf-8")
    assert_runs(operator, {"command": str(root / "bin" / "python3")}, root, operator.environment())


def test_a_command_of_a_toolchain_on_the_path_runs_by_a_shell_too(operator: Operator) -> None:
    root = operator.home / ".nvm" / "versions" / "node" / "v99.0.0"
    lay_script(root / "bin" / "node", "echo ours")
    env = operator.environment(PATH=f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin")
    assert operator.run("sandbox", "--", "node", env=env).out == b"ours\n"
    assert inside(operator, "node", env=env).out == b"ours\n"


def test_a_program_that_the_home_hides_is_not_replaced_by_the_system_s(operator: Operator) -> None:
    own = operator.home / "scripts"
    lay_script(own / "env", "echo ours")
    done = operator.run(
        "sandbox", "--json", "--", "env", env=operator.environment(PATH=f"{own}:/usr/bin:/bin")
    )
    assert (done.status, done.error["exit"]) == (127, 2)
    assert f'"{own / "env"}"' in done.error["message"] and "not visible" in done.error["message"]


def test_node_runs_from_the_system(operator: Operator) -> None:
    needs("node")
    assert operator.run("sandbox", "--", "node", "-e", "console.log(6 * 7)").out == b"42\n"
