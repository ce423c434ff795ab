"""The rules of the sandbox that an attack made necessary, each as one story under its number.

Details of each are tested beside the module that holds it; here each rule is seen to hold as a whole.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import CommandUnusable, ConfigError, ContainmentError, Denied, LatchError, UsageError
from latch.extensions.host import ExtensionHost
from latch.settings import ExtensionSettings, SandboxSettings
from latch.system.command import run_sandboxed
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from latch.system.workspace import PROTECTED_NAMES
from tests.support.decoys import CAUGHT, lay_decoys, run_in
from tests.support.fake_bwrap import program
from tests.support.sandboxes import ROOT, Place, git, needs, place_in, system_python

STARTS_WHILE_FLIPPING = 150
CONFIGURED = "[user]\nname = Some One\nemail = one@example.org\n"


@pytest.fixture
def place(tmp_path: Path, sandbox: Path) -> Place:
    """A user with a name for git."""
    made = place_in(tmp_path)
    (made.home / ".gitconfig").write_text(CONFIGURED)
    return made


@pytest.fixture
def repository(place: Place) -> Path:
    """The workspace, as a repository with one commit."""
    git(place.workspace, "init", "-q", "-b", "main")
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "one")
    return place.workspace


# -- T1


@pytest.mark.parametrize("name", PROTECTED_NAMES)
def test_t1_a_workspace_cannot_name_what_is_bound(place: Place, name: str) -> None:
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh" / "key").write_text("secret")
    (place.workspace / name).symlink_to(place.home / ".ssh")
    for start in (
        lambda: place.run("true"),
        lambda: place.run("true", writable=True),
        lambda: place.peer("true"),
    ):
        with pytest.raises(Denied) as caught:
            start()
        assert caught.value.rule == "T1" and name in str(caught.value)


@pytest.mark.parametrize("shipped", ["file", "entry", "modules"])
def test_t1_no_git_layout_of_the_workspace_opens_the_home(place: Place, shipped: str) -> None:
    (place.home / ".aws").mkdir()
    (place.home / ".aws" / "config").write_text("secret")
    own = place.workspace / "own"
    own.mkdir()
    if shipped == "file":
        (place.workspace / ".git").write_text(f"gitdir: {place.home}/.aws\n")
    elif shipped == "entry":
        (place.workspace / ".git").write_text("gitdir: own\n")
        (own / "gitdir").write_text("../.git\n")
        (own / "commondir").write_text(f"{place.home}/.aws\n")
    else:
        git(place.workspace, "init", "-q")
        (place.workspace / ".git" / "modules").symlink_to(place.home)
    script = f"cat {place.home}/.aws/config .git/modules/.aws/config; true"
    for grant in (False, True):
        try:
            assert b"secret" not in place.run("sh", "-c", script, writable=True, git_metadata=grant).stdout
        except Denied as error:
            assert grant and error.rule == "T3"


FLIPPING = """
import ctypes, os, time
libc = ctypes.CDLL(None)
os.mkdir(".agents"); open(".agents/key", "w").write("own")
os.mkdir("another")
os.symlink("../secret", "other")
end = time.monotonic() + 30
while time.monotonic() < end and not os.path.exists("stop"):
    for name in (b"other", b"another") * 200:
        libc.renameat2(-100, b".agents", -100, name, 2)
"""


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("worktrees/x", {".git": "gitdir: .", "commondir": "../..", "gitdir": ".git"}),
        ("worktrees/x", {".git": "gitdir: in", "in/commondir": "../../..", "in/gitdir": "../.git"}),
        ("worktrees/x/w", {".git": "gitdir: .", "commondir": "../../..", "gitdir": ".git"}),
        ("a/b", {".git": "gitdir: .", "gitdir": ".git", "HEAD": "", "config": "[core]\n worktree = .\n"}),
        ("a/b", {".git": "gitdir: in", "in/gitdir": "../.git", "in/config": "worktree = ..", "in/HEAD": ""}),
        ("a/b", {".git": "gitdir: \0x"}),
    ],
    ids=["itself", "inside", "deeper", "core.worktree", "inside, core.worktree", "NUL"],
)
@pytest.mark.parametrize("way", ["read-only", "writable", "granted"])
def test_t1_no_git_file_of_a_repository_binds_what_holds_it(
    place: Place, where: str, files: dict[str, str], way: str
) -> None:
    (place.home / "tax.txt").write_text("secret")
    workspace = place.home / where
    for name, content in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(content)
    how = {
        "read-only": {},
        "writable": {"writable": True},
        "granted": {"writable": True, "git_metadata": True},
    }
    result = place.at(workspace).run(
        "sh", "-c", 'cat "$HOME/tax.txt"; ls -A "$HOME"; echo planted > "$HOME/.bashrc"', **how[way]
    )
    assert result.stdout.decode().split() == [where.partition("/")[0]]
    assert not (place.home / ".bashrc").exists()


def test_t1_names_that_change_all_the_time_lead_nowhere_else(place: Place) -> None:
    (place.workspace.parent / "secret").mkdir()
    (place.workspace.parent / "secret" / "key").write_text("secret")
    with ThreadPoolExecutor(1) as pool:
        flipping = pool.submit(place.run, system_python(), "-c", FLIPPING, writable=True)
        said, refused = set(), 0
        try:
            while not os.path.lexists(place.workspace / "other"):
                assert not flipping.done()
                time.sleep(0.001)
            for _ in range(STARTS_WHILE_FLIPPING):
                try:
                    said.add(
                        place.run("cat", ".agents/key", "another/key", "other/key", writable=True).stdout
                    )
                except LatchError:
                    refused += 1
        finally:
            (place.workspace / "stop").touch()
        assert flipping.result().status == 0
    assert said <= {b"own", b"ownown", b""}
    assert refused > 0


# -- T2


def test_t2_a_models_words_open_nothing_of_the_home(place: Place) -> None:
    (place.home / "notes").mkdir()
    (place.home / "notes" / "file").write_text("secret")
    program(place.workspace / "tool", f"#!{place.home}/notes/file\n")
    for argv in (("cat", f"{place.home}/notes/file"), ("sh", "-c", f"cat {place.home}/notes/file")):
        assert place.run(*argv).status == 1
        assert not any(
            "notes" in operation for line in place.plan(*argv).operations for operation in line.arguments
        )
    with pytest.raises(CommandUnusable):
        place.run("./tool")
    with pytest.raises(CommandUnusable):
        place.run(f"{place.home}/notes/file")


def test_t2_an_operators_arguments_are_shown_to_the_peer(place: Place) -> None:
    (place.home / "server").mkdir()
    (place.home / "server" / "main.py").write_text("print('served')")
    assert place.peer(system_python(), str(place.home / "server" / "main.py"))[:2] == (0, "served\n")


def test_t2_an_operators_path_into_the_secrets_is_refused(place: Place) -> None:
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh" / "tool.py").write_text("")
    with pytest.raises(ContainmentError, match="may hold secrets"):
        place.prepare_peer(system_python(), str(place.home / ".ssh" / "tool.py"))


# -- T3

HOSTILE = """
import json, os, shutil
done = []
def attempt(name, call):
    try: call(); done.append(name)
    except OSError: pass
def put(path): open(path, "w").write("x")
top = os.environ["GIT_PLACE"]
for name in ("config", "hooks/pre-commit", "info/exclude"):
    attempt(name, lambda: put(os.path.join(top, name)))
attempt("rename hooks", lambda: os.rename(top + "/hooks", top + "/moved"))
attempt("rename info", lambda: os.rename(top + "/info", top + "/moved"))
attempt("rename git", lambda: os.rename(top, top + "-moved"))
for parent in ("modules", "worktrees"):
    for entry in os.listdir(top + "/" + parent) if os.path.isdir(top + "/" + parent) else []:
        path = f"{top}/{parent}/{entry}"
        for name in ("config", "hooks/pre-commit") if parent == "modules" else ("commondir", "gitdir"):
            attempt(f"{parent} {name}", lambda: put(f"{path}/{name}"))
        attempt("rename " + parent + " entry", lambda: os.rename(path, path + "-moved"))
    whole = top + "/" + parent
    if os.path.isdir(whole): attempt("rename " + parent, lambda: os.rename(whole, top + "/x"))
for name in ("commondir", "gitdir", "config.worktree"):
    put(os.path.join(top, name))
print(json.dumps(done))
"""


def attack_git(place: Place, top: Path) -> tuple[object, set[str]]:
    """Let a command with the grant at the git directory *top*; return what it did and what was removed."""
    words = (system_python(), "-I", "-c", HOSTILE.replace('os.environ["GIT_PLACE"]', repr(str(top))))
    result = place.run(*words, writable=True, git_metadata=True)
    assert result.status == 0, result.stderr.decode()
    return json.loads(result.stdout), {str(one.path.relative_to(top)) for one in result.removed}


PLANTED = {"commondir", "gitdir", "config.worktree"}


def test_t3_a_plain_repository_keeps_what_git_executes(place: Place, repository: Path) -> None:
    assert attack_git(place, repository / ".git") == ([], PLANTED)
    assert git(repository, "status", "--porcelain") == ""


def test_t3_planted_directories_go_whole_however_deep_and_are_reported(
    place: Place, repository: Path
) -> None:
    program = """
import os
os.chdir(".git")
os.makedirs("worktrees/new/commondir/x")
os.mkdir("config.worktree", 0)
os.mkdir("gitdir")
os.chdir("gitdir")
os.symlink(os.environ["LATCH_WORKSPACE"], "link")
for _ in range(1500):
    os.mkdir("deeper")
    os.chdir("deeper")
"""
    result = place.run(system_python(), "-I", "-c", program, writable=True, git_metadata=True)
    assert result.status == 0, result.stderr.decode()
    planted = ["config.worktree", "gitdir", "worktrees/new/commondir"]
    assert [str(one.path.relative_to(repository / ".git")) for one in result.removed] == planted
    assert all(one.removed for one in result.removed)
    assert not any(os.path.lexists(repository / ".git" / name) for name in planted)
    assert git(repository, "log", "--format=%s") == "one"


def test_t3_a_repository_without_hooks_cannot_get_any(place: Place) -> None:
    git(place.workspace, "init", "-q", "--template=")
    script = "echo x > .git/hooks/pre-commit || mkdir .git/hooks || mv .git/hooks .git/x"
    assert place.run("sh", "-c", script, writable=True, git_metadata=True).status != 0
    assert os.listdir(place.workspace / ".git" / "hooks") == []


def test_t3_a_repository_with_a_worktree_keeps_its_entries(place: Place, repository: Path) -> None:
    git(repository, "worktree", "add", "-q", str(place.home / "second"))
    assert attack_git(place, repository / ".git") == ([], PLANTED)
    assert git(place.home / "second", "status", "--porcelain") == ""


def test_t3_a_worktree_keeps_the_repository_it_belongs_to(place: Place, repository: Path) -> None:
    second = place.home / "second"
    git(repository, "worktree", "add", "-q", str(second))
    assert attack_git(place.at(second), repository / ".git") == ([], PLANTED)
    assert git(second, "status", "--porcelain") == git(repository, "status", "--porcelain") == ""


def test_t3_a_repository_with_a_submodule_keeps_its_hooks(
    place: Place, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(repository), "other")
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "other"), "sub")
    assert attack_git(place, repository / ".git") == ([], PLANTED)
    # A submodule as the workspace itself: its git directory lies in the repository around it.
    done, removed = attack_git(place.at(repository / "sub"), repository / ".git" / "modules" / "sub")
    assert (done, removed) == ([], PLANTED)


@pytest.mark.parametrize("layout", ["plain", "worktree", "submodule"])
def test_t3_git_commits_with_the_grant_and_cannot_add_without(
    place: Place, repository: Path, tmp_path: Path, layout: str
) -> None:
    workspace = repository
    if layout == "worktree":
        workspace = place.home / "second"
        git(repository, "worktree", "add", "-q", str(workspace))
    elif layout == "submodule":
        git(tmp_path, "clone", "-q", str(repository), "other")
        git(repository, "submodule", "--quiet", "add", str(tmp_path / "other"), "sub")
        workspace = repository / "sub"
    there = place.at(workspace)
    (workspace / "file").write_text("1")
    refused = there.run(needs("git"), "add", "file", writable=True)
    assert refused.status != 0 and b"Read-only file system" in refused.stderr
    script = (
        "git add file && git commit -qm two && git branch topic && git stash list && git gc -q && git tag v1"
    )
    assert there.say("sh", "-c", script, writable=True, git_metadata=True) == ""
    assert git(workspace, "log", "-1", "--format=%an %ae %s") == "Some One one@example.org two"
    refused = there.run(needs("git"), "config", "core.fsmonitor", "/x", writable=True, git_metadata=True)
    assert refused.status != 0


# -- T6


def test_t6_a_peer_runs_no_code_of_the_repository(place: Place) -> None:
    own = program(place.workspace / "bin" / "python3", "#!/bin/sh\necho own\n")
    (place.workspace / "json.py").write_text("print('own')")
    said = place.with_path(own.parent).peer("python3", "-c", "import json, os; print(os.getcwd())")
    assert said[:2] == (0, "/run/peer\n")
    for command in (str(own), "tool"):
        program(place.workspace / "bin" / "tool", "#!/bin/sh\n")
        with pytest.raises(CommandUnusable, match="lies in the workspace"):
            place.with_path(own.parent).prepare_peer(command)


# -- T7, T8


def test_t7_no_file_of_the_workspace_makes_the_host_wait_or_read_elsewhere(place: Place, ms: float) -> None:
    (place.home / "own.cfg").write_text("home = /nonexistent\n")
    (place.workspace / ".venv").mkdir()
    (place.workspace / "venv").mkdir()
    os.mkfifo(place.workspace / ".git")
    os.mkfifo(place.workspace / ".venv" / "pyvenv.cfg")
    (place.workspace / "venv" / "pyvenv.cfg").symlink_to(place.home / "own.cfg")
    began = time.monotonic()
    assert place.run("true").status == 0
    assert time.monotonic() - began < 5000 * ms


def test_t8_a_hostile_directory_gives_us_no_module(tmp_path: Path) -> None:
    lay_decoys(tmp_path, "latch/__init__", "latch/cli/main")
    for command in ([sys.executable, str(ROOT / "bin" / "latch"), "--version"],):
        done = run_in(tmp_path, command, PYTHONPATH="")
        assert (done.returncode != CAUGHT, "decoy" in done.stderr) == (True, False), done.stderr


# -- T11


def test_t11_what_is_ours_is_neither_shown_nor_a_workspace(place: Place) -> None:
    ours = place.workspace / "ours"
    for name in ("state", "keys", "configured"):
        (ours / name).mkdir(parents=True)
        (ours / name / "file").write_text("secret")
    (place.home / "linked").symlink_to(ours / "configured")
    (place.home / ".aws").symlink_to(ours / "keys")
    masked = replace(place, environment={"LATCHKEY_DIRECTORY": str(ours / "keys")}).with_settings(
        state_directory=ours / "state", private_directories=(place.home / "linked",)
    )
    found = masked.run("sh", "-c", "cat ours/*/file; ls ours; mv ours/state ours/moved", writable=True)
    assert found.stdout == b"configured\nkeys\nstate\n"
    assert found.status != 0


LINKED = """
import sys
sys.path.append(sys.argv[1])
from sdk import Extension
ext = Extension()
@ext.tool()
def read(arguments):
    try:
        with open(arguments["path"]) as stream:
            return stream.read()
    except OSError as error:
        return error.strerror
ext.run()
"""


@pytest.mark.parametrize("way", ["command", "extension"])
def test_t11_settings_built_in_code_hide_a_linked_credential_too(
    place: Place, own_home: Path, tmp_path: Path, way: str
) -> None:
    vault = place.workspace / "vault"
    vault.mkdir()
    for name in ("real.toml", "beside"):
        (vault / name).write_text("secret")
    (own_home / ".latch").mkdir(mode=0o700)
    (own_home / ".latch" / "secrets.toml").symlink_to(vault / "real.toml")
    scope = Scope.root(30)
    if way == "command":
        done = run_sandboxed(
            ("cat", "vault/real.toml", "vault/beside"), workspace=place.workspace, scope=scope
        )
        assert (done.status != 0, done.stdout) == (True, b"")
        return
    (tmp_path / "read.py").write_text(LINKED)
    sdk = str(ROOT / "latch" / "extensions")

    def settings(*shown: Path) -> ExtensionSettings:
        words = (str(tmp_path / "read.py"), sdk)
        return ExtensionSettings(
            name="reader", command=system_python(), args=words, ro_paths=(Path(sdk), *shown), network=False
        )

    with ExtensionHost.open(settings(), workspace=place.workspace, scope=scope) as host:
        for name in ("real.toml", "beside"):
            assert host.call_tool("read", {"path": str(vault / name)}, scope) == "Permission denied"
    with pytest.raises(ConfigError, match="which is private"):
        ExtensionHost.open(settings(vault), workspace=place.workspace, scope=scope)


@pytest.mark.parametrize("kind", ["home", "ancestor", "root", "state", "configuration"])
def test_t11_each_workspace_that_cannot_be_is_refused_by_name(
    place: Place, tmp_path: Path, kind: str
) -> None:
    chosen = {
        "home": place.home,
        "ancestor": place.home.parent,
        "root": Path("/"),
        "state": tmp_path / "state",
    }
    workspace = chosen.get(kind, place.workspace)
    (tmp_path / "state").mkdir()
    there = place.at(workspace).with_settings(
        state_directory=tmp_path / "state",
        config_file=workspace / "c.toml" if kind == "configuration" else None,
    )
    for start in (lambda: there.run("true"), lambda: there.peer("true")):
        with pytest.raises(UsageError) as caught:
            start()
        assert f'"{workspace}"' in str(caught.value) and caught.value.hint


# -- T16

DEAD_HOST = """
import os, signal, sys
from pathlib import Path
from latch.system.child import Child
from latch.system.scope import Scope
from latch.settings import SandboxSettings
from latch.system.command import run_sandboxed
from latch.system.sandbox import Sandbox
def die(child):
    print(child.init_pid, child.monitor_pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
state = Path(sys.argv[1])
box = Sandbox(SandboxSettings(state_directory=state))
box.ready(Scope.root(20), wanted="a tool", network=False)
Child.open_gate = die
run_sandboxed(["touch", "ran"], workspace=sys.argv[2], writable=True, scope=Scope.root(20), sandbox=box)
"""


@pytest.mark.parametrize("parent_death", [True, False], ids=["as it is", "without die-with-parent"])
def test_t16_a_dead_host_never_opens_the_gate(
    place: Place, tmp_path: Path, sandbox: Path, ms: float, parent_death: bool
) -> None:
    text = DEAD_HOST if parent_death else DEAD_HOST.replace(
        "Child.open_gate = die",
        "import latch.system.plan as plan\nnames = plan._namespaces\n"
        "plan._namespaces = lambda *a: [one for one in names(*a) if one.option != '--die-with-parent']\n"
        "Child.open_gate = die",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "state"), str(place.workspace)],
        env={"PATH": place.path, "HOME": str(place.home), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    pids = [Path("/proc", pid) for pid in done.stdout.split()]
    time.sleep(200 * ms)
    assert not (place.workspace / "ran").exists()
    # What die-with-parent left to itself still waits, and the next start sweeps it.
    assert parent_death or any(is_running(pid) for pid in pids)
    Sandbox(SandboxSettings(state_directory=tmp_path / "state"), machine=place.machine).sweep(Scope.root(20))
    assert not any(is_running(pid) for pid in pids)
    assert not (place.workspace / "ran").exists()


def is_running(process: Path) -> bool:
    """Say whether a process is there and no zombie."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_t16_the_limits_hold_before_the_first_instruction(place: Place) -> None:
    said = place.say("cat", "/proc/self/limits")
    shown = {line[:26].strip(): line[26:].split()[:2] for line in said.splitlines()}
    assert shown["Max open files"] == ["4096", "4096"]
    assert shown["Max core file size"] == ["0", "0"]
    assert shown["Max file size"] == [str(4 << 30)] * 2
    assert int(shown["Max processes"][0]) >= 512


# -- T23


def test_t23_the_plan_names_all_that_a_shared_network_reaches(place: Place) -> None:
    reach = "network: everything this machine reaches, its own services and metadata addresses included"
    assert reach in place.prepare_peer("sh").plan.lines()
    assert reach in place.plan(network=True).lines()
    for closed in (place.plan(), place.prepare_peer("sh", network=False).plan):
        assert "network: none" in closed.lines() and reach not in closed.lines()


# -- T24


def test_t24_the_token_is_all_that_the_sandbox_itself_is_started_with(place: Place) -> None:
    secret = replace(place, environment={"OWN_TOKEN": "secret"})
    said = secret.say("sh", "-c", 'tr "\\0" "\\n" < /proc/1/environ; env')
    assert "secret" not in said
    assert [line.partition("=")[0] for line in said.splitlines() if line.startswith("LATCH_PROCESS")] == [
        "LATCH_PROCESS_TOKEN"
    ]
    assert sorted(os.listdir(place.home / ".latch" / "state" / "ledger")) == []
