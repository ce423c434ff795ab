"""Rules that an attack made necessary, seen to hold through public names and the command line alone.

The same numbers are tested beside the modules that hold them and, as stories over the levels below, in
``test_security_rules.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import latch
from tests.support.census import eventually
from tests.support.command_line import Operator
from tests.support.decoys import lay_decoys, run_in
from tests.support.hosted import BARE, EXAMPLES, PEER
from tests.support.orphans import leave_orphan
from tests.support.tree import PACKAGE, ROOT

pytestmark = pytest.mark.usefixtures("sandbox")

SECRET = "secret-9d41"
# Beside the standard library's names: others that a start imports, and what could pass for us.
DECOYS = (
    "fcntl",
    "logging",
    "selectors",
    "socket",
    "tempfile",
    "tomli",
    "tomllib",
    "yaml",
    "latch/__init__",
    "latch/cli/main",
)
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", ".latch/config.toml", ".agents/one.md", ".claude/settings.json")
# What a shared network means, in the words that the plan, doctor and README share.
REACH = "everything this machine reaches"


@pytest.fixture
def scope() -> latch.Scope:
    return latch.Scope.root(60)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


# -- T2


def test_t2_words_of_a_command_open_nothing_of_the_home(
    own_home: Path, workspace: Path, scope: latch.Scope
) -> None:
    notes = own_home / "notes" / "file"
    notes.parent.mkdir()
    notes.write_text(SECRET)
    for argv in (["cat", str(notes)], ["sh", "-c", f"cat {notes}"]):
        result = latch.run_sandboxed(argv, workspace=workspace, scope=scope)
        assert (result.status, result.stdout) == (1, b"")
        assert b"No such file or directory" in result.stderr


@pytest.mark.parametrize("too_much", ["/", "/run", "the home"])
def test_t2_an_operators_ro_paths_cannot_open_everything(
    own_home: Path, workspace: Path, scope: latch.Scope, too_much: str
) -> None:
    path = own_home if too_much == "the home" else Path(too_much)
    settings = latch.ExtensionSettings(
        name="greedy", command=sys.executable, args=(BARE, str(PEER)), ro_paths=(path,)
    )
    with pytest.raises(latch.LatchError, match=f'"{path}"'):
        latch.ExtensionHost.open(settings, workspace=workspace, scope=scope)


# -- T6


def test_t6_an_extension_with_a_token_runs_nothing_of_the_repository(
    own_home: Path, workspace: Path, scope: latch.Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_TOKEN", SECRET)
    for name in ("json", "sdk", "os", "sitecustomize"):
        (workspace / f"{name}.py").write_text("raise SystemExit('code of the repository ran')")
    settings = latch.ExtensionSettings(
        name="tool",
        command=sys.executable,
        args=(str(EXAMPLES / "tool.py"),),
        ro_paths=(PACKAGE / "extensions",),
        env={"LATCH_SDK": str(PACKAGE / "extensions")},
        env_from=("OWN_TOKEN",),
    )
    with latch.ExtensionHost.open(settings, workspace=workspace, scope=scope) as host:
        environment = host.call_tool("environ", {}, scope)
    assert environment["OWN_TOKEN"] == SECRET
    assert (environment["PWD"], environment["LATCH_WORKSPACE"]) == ("/run/peer", str(workspace))


# -- T8

# How Latch may be started, and whether the directory with the package must be on the search path for that.
STARTS = {
    "bin/latch": (str(ROOT / "bin" / "latch"),),
    "python -m latch": ("-m", "latch"),
    "python latch/__main__.py": (str(PACKAGE / "__main__.py"),),
    "python latch": (str(PACKAGE),),
    "latch.pyz": ("latch.pyz",),
}
# These import what follows before any line of ours, as the interpreter's own doing.
THROUGH_RUNPY = ("python -m latch", "python latch", "latch.pyz")
BEFORE_US = (
    "collections",
    "contextlib",
    "importlib",
    "posix",
    "re",
    "select",
    "signal",
    "threading",
    "typing",
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("archive") / "latch.pyz"
    subprocess.run([sys.executable, str(ROOT / ".ci" / "zipapp"), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("search", ["", "."])
@pytest.mark.parametrize("start", STARTS)
def test_t8_each_start_among_decoys_imports_none_of_them(
    operator: Operator, archive: Path, start: str, search: str
) -> None:
    lay_decoys(operator.workspace, *DECOYS)
    if start == "latch.pyz":
        (operator.workspace / "latch.pyz").symlink_to(archive)
    elif start == "python -m latch":
        # Found before the working directory is looked at: ours, by an absolute entry.
        search = f"{ROOT}:{search}"
        for name in ("latch/__init__.py", "latch/cli/main.py"):
            (operator.workspace / name).unlink()
    if start in THROUGH_RUNPY:
        for name in BEFORE_US:
            (operator.workspace / f"{name}.py").unlink()
    operator.configure(operator.peer())
    environment = operator.environment(PYTHONPATH=search, LATCH_DIRECTORY=str(operator.directory))
    for words, says in ((("config", "show"), "state_dir"), (("extensions", "--check", "-q"), "one: ready")):
        command = [sys.executable, *STARTS[start], *words]
        done = run_in(operator.workspace, command, **environment)
        assert (done.returncode, "decoy" in done.stderr, says in done.stdout) == (0, False, True), done


# -- T23


def test_t23_a_person_is_told_what_a_shared_network_means(operator: Operator) -> None:
    assert REACH in operator.run("sandbox", "--network", "--plan", "--", "true").text
    assert REACH not in operator.run("sandbox", "--plan", "--", "true").text
    readme = " ".join((ROOT / "README.rst").read_text(encoding="utf-8").split())
    assert f"{REACH}, its own services and metadata addresses included" in readme


# -- T24


def test_t24_the_next_start_ends_what_a_killed_host_left(operator: Operator) -> None:
    with leave_orphan(operator) as orphan:
        assert orphan.process.poll() is None
        assert operator.run("sandbox", "--", "true").status == 0
        assert eventually(lambda: orphan.process.poll() == -9)
    # A process that starts late is looked for again: the entry stays until the host is dead for a while.
    assert len(list(operator.ledger.iterdir())) == 1


# -- T29


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_t29_instructions_of_agents_are_read_only_where_all_else_is_written(
    own_home: Path, workspace: Path, scope: latch.Scope, name: str
) -> None:
    file = workspace / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("as it was")
    top = name.partition("/")[0]
    script = f"echo x >> {name}; rm -rf {top}; mv {top} moved; echo x > other"
    result = latch.run_sandboxed(["sh", "-c", script], workspace=workspace, writable=True, scope=scope)
    assert result.status == 0 and (workspace / "other").read_text() == "x\n"
    assert file.read_text() == "as it was" and not (workspace / "moved").exists()


@pytest.mark.parametrize("name", ["mcp_x", "ext_x", "latch_x", "MCP_x", "a tool", "x" * 65])
def test_t29_a_name_that_passes_for_ours_is_shown_under_another(operator: Operator, name: str) -> None:
    operator.configure(operator.peer("--register", "none", "--tool", name, "--tool", "plain"))
    (extension,) = operator.run("extensions", "--check", "--json").value["extensions"]
    mapped, plain = (tool["catalogue_name"] for tool in extension["tools"])
    assert plain == "plain"
    assert mapped.startswith("ext_one_") and len(mapped) == len("ext_one_") + 24 and mapped != name
