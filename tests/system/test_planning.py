"""What may be a workspace, what is shown besides and masked, and where toolchains are found, for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import CommandUnusable, ContainmentError, UsageError
from latch.settings import SandboxSettings
from latch.system.cgroup import can_make_pids_groups
from latch.system.planning import Planner
from tests.support.fake_bwrap import program
from tests.support.sandboxes import ROOT, SYSTEM_PATH, Place, git, needs, place_in, system_python


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A user below the test's own directory."""
    return place_in(tmp_path)


# -- what may be a workspace


def refused(place: Place, workspace: Path, said: str) -> None:
    """Insist that *workspace* is refused for commands and peers, naming it."""
    for prepare in (
        lambda: place.at(workspace).prepare("true"),
        lambda: place.at(workspace).prepare_peer("sh"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            prepare()
        assert f'"{workspace}"' in str(caught.value)


def test_a_workspace_that_does_not_exist_is_refused(place: Place, tmp_path: Path) -> None:
    refused(place, tmp_path / "absent", "[Nn]o such file")


def test_a_workspace_that_is_a_file_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(place, tmp_path / "file", "is not a directory")


def test_the_state_directory_is_no_workspace(place: Place, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    refused(
        place.with_settings(state_directory=tmp_path / "state"), tmp_path / "state", "is the state directory"
    )


def test_a_workspace_of_another_user_is_refused(place: Place, workspace: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(workspace, 65534, 65534)
    refused(place, workspace, "belongs to user 65534 and this is user 0")


@pytest.mark.parametrize("name", ["LATCH_DIRECTORY", "LATCHKEY_DIRECTORY"])
@pytest.mark.parametrize("below", ["", "inside"])
def test_t11_a_directory_of_ours_is_no_workspace(place: Place, tmp_path: Path, name: str, below: str) -> None:
    (tmp_path / "ours" / "inside").mkdir(parents=True)
    found = replace(place, environment={name: str(tmp_path / "ours")})
    refused(found, tmp_path / "ours" / below if below else tmp_path / "ours", "is or lies in")


def test_t11_a_workspace_below_the_state_directory_is_masked_around(place: Place, sandbox: Path) -> None:
    worktree = place.home / ".latch" / "state" / "trees" / "one"
    worktree.mkdir(parents=True)
    worktree.parents[1].chmod(0o700)
    (worktree.parents[1] / "secret").write_text("secret")
    found = place.at(worktree)
    assert found.say("sh", "-c", f"ls {worktree.parents[1]}; pwd") == f"trees\n{worktree}"


def test_t11_a_configuration_file_inside_the_workspace_is_refused(place: Place) -> None:
    (place.workspace / "sub").mkdir()
    configured = place.with_settings(config_file=place.workspace / "sub" / "c.toml")
    refused(configured, place.workspace, "lies in the workspace")


def test_a_workspace_named_by_a_link_is_its_real_place(place: Place, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(place.workspace)
    assert place.at(tmp_path / "alias").prepare("true").workspace == str(place.workspace)


# -- what may be shown besides


@pytest.mark.parametrize("key", ["ro_paths", "rw_paths"])
@pytest.mark.parametrize(
    "path", ["/", "/run", "/etc", "/proc", "{home}", "{home}/..", "{home}/.ssh", "{state}", "{state}/.."]
)
def test_t2_paths_that_open_too_much_are_refused(place: Place, tmp_path: Path, key: str, path: str) -> None:
    for directory in (place.home / ".ssh", tmp_path / "held" / "state"):
        directory.mkdir(parents=True)
    shown = Path(path.format(home=place.home, state=tmp_path / "held" / "state"))
    found = place.with_settings(state_directory=tmp_path / "held" / "state")
    with pytest.raises(ContainmentError, match=key):
        found.prepare_peer("sh", **{key: (shown,)})


@pytest.mark.parametrize("name", [".bashrc", ".local/bin", ".config/systemd"])
def test_what_the_operators_own_shell_runs_may_be_shown_but_not_written(place: Place, name: str) -> None:
    (place.home / name).mkdir(parents=True)
    place.prepare_peer("sh", ro_paths=(place.home / name,))
    with pytest.raises(ContainmentError, match="rw_paths"):
        place.prepare_peer("sh", rw_paths=(place.home / name,))


@pytest.mark.parametrize("below", ["", "sub", ".."])
def test_a_writable_path_may_not_open_the_workspace_to_a_peer(place: Place, below: str) -> None:
    (place.workspace / "sub").mkdir()
    with pytest.raises(ContainmentError, match="rw_paths may not be, lie in or contain the workspace"):
        place.prepare_peer("sh", rw_paths=(place.workspace / below,))


def test_what_an_operator_names_is_there_as_named(place: Place, tmp_path: Path, sandbox: Path) -> None:
    for name in ("shown", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("1")
    status, said, _ = place.peer(
        "sh", "-c", f"cd {tmp_path}; cat shown/file; echo 2 > open/file; echo 2 > shown/file",
        ro_paths=(tmp_path / "shown",), rw_paths=(tmp_path / "open",),
    )  # fmt: skip
    assert (status != 0, said) == (True, "1")
    assert [(tmp_path / name / "file").read_text() for name in ("shown", "open")] == ["1", "2\n"]


# -- masks


def test_t11_private_directories_inside_the_workspace_are_masked(place: Place, sandbox: Path) -> None:
    place = replace(place, environment={"LATCH_DIRECTORY": str(place.workspace / "ours")}).with_settings(
        private_directories=(place.workspace / "held",)
    )
    for name in ("ours", "ours/state", "held"):
        (place.workspace / name).mkdir(0o700)
        (place.workspace / name / "secret").write_text("secret")
    said = place.run(
        "sh", "-c", "ls -la ours held; cat ours/secret ours/state/secret held/secret; touch ours/x held/x"
    )
    assert b"secret" not in said.stdout
    assert said.stderr.count(b"Permission denied") >= 2
    assert not (place.workspace / "held" / "x").exists()


def test_t11_a_private_directory_behind_a_link_is_masked_where_it_is(place: Place, sandbox: Path) -> None:
    (place.workspace / "real").mkdir()
    (place.workspace / "real" / "secret").write_text("secret")
    (place.home / "link").symlink_to(place.workspace / "real")
    masked = place.with_settings(private_directories=(place.home / "link",))
    assert b"secret" not in masked.run("cat", "real/secret").stdout


def test_t11_a_state_directory_inside_the_workspace_is_made_before_the_start(
    place: Place, sandbox: Path
) -> None:
    state = place.workspace / "deep" / "state"
    masked = place.with_settings(state_directory=state)
    said = masked.run("sh", "-c", "ls deep/state", writable=True)
    assert b"Permission denied" in said.stderr
    assert state.is_dir()


def test_t11_a_credential_linked_into_the_workspace_is_masked(place: Place, sandbox: Path) -> None:
    for name in ("ssh", "aws"):
        (place.workspace / "dotfiles" / name).mkdir(parents=True)
        (place.workspace / "dotfiles" / name / "key").write_text("secret")
    (place.home / ".ssh").symlink_to(place.workspace / "dotfiles" / "ssh")
    (place.home / ".netrc").symlink_to(place.workspace / "dotfiles" / "aws" / "key")
    said = place.run("sh", "-c", "cat dotfiles/*/key; ls dotfiles")
    assert said.stdout == b"aws\nssh\n"


def test_t11_a_credential_beside_which_the_workspace_lies_refuses_it(place: Place) -> None:
    (place.workspace / "netrc").write_text("secret")
    (place.home / ".netrc").symlink_to(place.workspace / "netrc")
    refused(place, place.workspace, "is or lies in")


@pytest.mark.parametrize("name", [".ssh", ".ssh/deep", ".config/gh", ".cargo"])
def test_t11_a_workspace_among_credentials_is_refused(place: Place, name: str) -> None:
    (place.home / name).mkdir(parents=True)
    if name == ".cargo":
        (place.home / ".cargo" / "credentials.toml").touch()
    refused(place, place.home / name, "is or lies in")


def test_t11_a_workspace_around_credentials_does_not_show_them(place: Place, sandbox: Path) -> None:
    (place.home / ".config" / "gh").mkdir(parents=True)
    (place.home / ".config" / "gh" / "hosts.yml").write_text("secret")
    (place.home / ".config" / "plain").write_text("plain")
    said = place.at(place.home / ".config").run("sh", "-c", "cat plain gh/hosts.yml")
    assert said.stdout == b"plain"


def test_a_credential_linked_to_a_tree_that_everybody_reads_masks_nothing(place: Place) -> None:
    (place.home / ".bash_history").symlink_to("/dev/null")
    (place.home / ".netrc").symlink_to("/usr/share/doc")
    (place.home / ".npmrc").symlink_to("/usr/no-such-file")
    assert not any("masked" in line for line in place.plan().lines())


def test_t11_a_credential_linked_from_our_directory_is_masked_whoever_built_the_settings(
    place: Place, sandbox: Path
) -> None:
    for name in ("latch", "latchkey", "config"):
        (place.workspace / name).mkdir()
        (place.workspace / name / "real").write_text("secret")
    for name, target in (
        (".latch/secrets.toml", "latch"),
        (".latchkey/credentials.json.enc", "latchkey"),
        ("elsewhere/c.toml", "config"),
    ):
        (place.home / name).parent.mkdir(exist_ok=True)
        (place.home / name).symlink_to(place.workspace / target / "real")
    said = place.run("sh", "-c", "cat latch/real latchkey/real; cat config/real; ls", writable=True)
    assert said.stdout == b"secretconfig\nlatch\nlatchkey\n"
    # The file that a configuration came from is refused where a repository could write it.
    refused(place.with_settings(config_file=place.home / "elsewhere" / "c.toml"), place.workspace, "lies in")


@pytest.mark.parametrize("below", ["", "real", ".."])
def test_t11_no_path_of_an_operator_shows_a_linked_credential(
    place: Place, tmp_path: Path, below: str
) -> None:
    (tmp_path / "around" / "vault").mkdir(parents=True)
    (tmp_path / "around" / "vault" / "real").touch()
    (place.home / ".latch").mkdir()
    (place.home / ".latch" / "secrets.toml").symlink_to(tmp_path / "around" / "vault" / "real")
    with pytest.raises(ContainmentError, match="which is private"):
        place.prepare_peer("sh", ro_paths=(tmp_path / "around" / "vault" / below,))


def test_t11_a_credential_that_lies_in_the_home_itself_is_not_shown_by_name(place: Place) -> None:
    (place.home / "real.toml").touch()
    (place.home / ".latch").mkdir()
    (place.home / ".latch" / "secrets.toml").symlink_to(place.home / "real.toml")
    with pytest.raises(ContainmentError, match="which is private"):
        place.prepare_peer("sh", ro_paths=(place.home / "real.toml",))
    place.prepare_peer("sh")


def test_t11_a_workspace_that_holds_a_link_to_the_configuration_is_refused(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "c.toml").touch()
    (place.workspace / "c.toml").symlink_to(tmp_path / "c.toml")
    configured = place.with_settings(config_file=place.workspace / "c.toml")
    refused(configured, place.workspace, "lies in the workspace")


# -- words

SURROGATE = "a\ud800"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("true", 5), "word 1 of the command line must be a string, found int"),
        ((b"true",), "word 0 of the command line must be a string, found bytes"),
        (("true", "x", "a\0b"), "word 2 of the command line contains a NUL character"),
        (("true", SURROGATE), "word 1 of the command line holds a lone surrogate"),
    ],
)
def test_a_word_that_no_program_can_be_given_is_named_by_its_place(
    place: Place, argv: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        place.prepare(*argv)
    assert str(caught.value) == said
    with pytest.raises(UsageError) as caught:
        place.prepare_peer(*argv)
    assert str(caught.value) == said.replace("command line", "command and args")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("A", 1, 'the value of variable "A" must be a string, found int'),
        ("A", "b\0", 'the value of variable "A" contains a NUL character'),
        ("A", SURROGATE, 'the value of variable "A" holds a lone surrogate'),
        (1, "b", "the name of a variable must be a string, found int: 1"),
        ("", "b", "the name of a variable must not be empty or contain \"=\": ''"),
        ("A=B", "b", "the name of a variable must not be empty or contain \"=\": 'A=B'"),
    ],
)
def test_a_variable_that_no_program_can_be_given_is_named(
    place: Place, name: str, value: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        place.prepare_peer("sh", environment={name: value})
    assert str(caught.value) == said


def test_a_name_that_is_no_text_is_handed_on_as_it_is(place: Place, sandbox: Path) -> None:
    odd = os.fsdecode(b"a\xff")
    assert place.run("printf", "%s", odd).stdout == b"a\xff"


def test_a_home_and_a_workspace_whose_names_are_no_text_run_commands(tmp_path: Path, sandbox: Path) -> None:
    place = place_in(tmp_path / os.fsdecode(b"h\xff"))
    place = place.at(place.workspace / os.fsdecode(b"w\xff"))
    place.workspace.mkdir()
    result = place.run("sh", "-c", 'pwd; echo "$HOME"; touch made', writable=True)
    assert result.stdout == os.fsencode(f"{place.workspace}\n{place.home}\n")
    assert (place.workspace / "made").exists()


def test_a_workspace_whose_name_is_no_text_is_refused_to_a_peer_by_name(place: Place) -> None:
    odd = place.workspace / os.fsdecode(b"w\xff")
    odd.mkdir()
    with pytest.raises(UsageError) as caught:
        place.at(odd).prepare_peer("/bin/sh")
    assert f'workspace "{place.workspace}/w\\xff"' in str(caught.value)
    assert caught.value.hint is not None and "-C" in caught.value.hint


# -- what cannot be looked at


def test_a_credential_that_leads_where_nobody_may_look_stops_nothing(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    (place.home / ".aws").symlink_to(tmp_path / "closed" / "x")
    (place.home / "closed.kdbx").symlink_to(tmp_path / "closed" / "y")
    (tmp_path / "closed").mkdir(0o000)
    assert place.say("echo", "ran") == "ran"


def test_a_path_of_the_operator_that_nobody_may_look_at_is_refused_by_name(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "closed").mkdir(0o000)
    with pytest.raises(ContainmentError, match="ro_paths: does not exist"):
        place.prepare_peer("/bin/sh", ro_paths=(tmp_path / "closed" / "x",))


# -- the system, looked at for each plan


def test_what_of_the_system_has_gone_since_is_not_planned_again(tmp_path: Path) -> None:
    seen = []
    place = place_in(tmp_path)
    # The home's link stands for any: it is the part of the system that a test may change.
    (tmp_path / "link").symlink_to(place.home)
    planner = Planner(place.settings, replace(place.machine, home=tmp_path / "link"))
    for _ in range(2):
        planned = planner.prepare_probe(("/bin/true",), wanted="it", network=False, features=frozenset())
        seen.append([str(one) for one in planned.plan.operations if str(tmp_path / "link") in one.arguments])
        if (tmp_path / "link").is_symlink():
            (tmp_path / "link").unlink()
            (tmp_path / "link").mkdir()
    assert [f"--symlink {place.home} {tmp_path}/link" in found for found in seen] == [True, False]


# -- how much bubblewrap takes


def test_a_plan_of_as_many_words_as_bubblewrap_takes_starts_and_one_more_is_refused(
    place: Place, sandbox: Path
) -> None:
    most = place.limits.process.max_sandbox_arguments
    words = most - place.plan().argument_count - 11
    assert place.run("true", *["x"] * words).status == 0
    with pytest.raises(CommandUnusable) as caught:
        place.prepare("true", *["x"] * (words + 1))
    assert str(caught.value) == f"the plan takes {most + 1} arguments, and bubblewrap takes {most}"
    assert (caught.value.status, "ro_paths" in (caught.value.hint or "")) == (125, True)


# -- what planning leaves behind

PLAN = """
import sys
made = []
sys.addaudithook(lambda name, given: made.append((name, str(given[0]))) if name in ("os.mkdir", "open") and (
    name == "os.mkdir" or "w" in str(given[1]) or "a" in str(given[1])) else None)
from pathlib import Path
from latch.settings import SandboxSettings
from latch.system.machine import Machine
from latch.system.planning import Planner
plan = Planner(SandboxSettings(), Machine.read()).prepare_command(
    ("true",), workspace=Path(sys.argv[1]), writable=True, network=False, features=frozenset()).plan
print(made)
"""


def test_t16_planning_makes_nothing_not_even_for_a_moment(place: Place) -> None:
    known = {"PATH": place.path, "HOME": str(place.home)}
    done = subprocess.run(
        [sys.executable, "-c", PLAN, str(place.workspace)],
        env={**known, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_t16_for_root_the_plan_says_when_there_is_no_process_limit(place: Place) -> None:
    expected = os.getuid() != 0 or can_make_pids_groups()
    assert ("no process limit (root)" in place.plan().missing) is not expected
    probe = place.sandbox.planner.prepare_probe(
        ("/bin/sh",), wanted="a probe", network=False, features=frozenset()
    )
    assert ("no process limit (root)" in probe.plan.missing) is not expected


# -- the command


@pytest.mark.parametrize("argv", [(), ("",)])
def test_no_command_is_the_callers_mistake(place: Place, argv: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="no command"):
        place.prepare(*argv)


def test_a_program_of_path_that_is_not_visible_does_not_fall_through(place: Place) -> None:
    own = program(place.home / "tools" / "sh", "#!/bin/sh\n")
    with pytest.raises(CommandUnusable, match="not visible in the sandbox") as caught:
        place.with_path(own.parent).prepare("sh")
    assert caught.value.status == 127
    assert str(own) in str(caught.value) and str(own.parent) in (caught.value.hint or "")


def test_a_command_of_the_workspace_is_named_from_it(place: Place, sandbox: Path) -> None:
    program(place.workspace / "bin" / "tool", "#!/bin/sh\necho tool\n")
    assert place.say("bin/tool") == "tool"
    assert place.say("./bin/tool") == "tool"


def test_an_absent_command_of_the_workspace_was_not_found(place: Place, sandbox: Path) -> None:
    with pytest.raises(CommandUnusable, match='"./absent"|absent" was not found') as caught:
        place.run("./absent")
    assert caught.value.status == 127


def test_a_command_whose_interpreter_is_not_visible_says_so(place: Place, sandbox: Path) -> None:
    interpreter = program(place.home / "own" / "interpreter", "#!/bin/sh\n")
    program(place.workspace / "tool", f"#!{interpreter}\n")
    with pytest.raises(CommandUnusable, match="exists, but it or what it needs") as caught:
        place.run("./tool")
    assert caught.value.status == 127
    assert str(interpreter) in str(caught.value)
    assert caught.value.hint == f'add "{interpreter.parent}" to ro_paths'


def test_a_file_that_cannot_be_executed_is_126(place: Place, sandbox: Path) -> None:
    (place.workspace / "plain").write_text("#!/bin/sh\n")
    with pytest.raises(CommandUnusable) as caught:
        place.run("./plain")
    assert caught.value.status == 126


# -- where the peer starts


def test_t6_a_peer_has_a_private_directory_and_a_read_only_workspace(place: Place, sandbox: Path) -> None:
    script = 'pwd; stat -c %a .; touch mine && echo written; touch "$LATCH_WORKSPACE/x" || echo closed'
    status, said, _ = place.peer("sh", "-c", script)
    assert (status, said.split()) == (0, ["/run/peer", "700", "written", "closed"])


def test_t6_a_peer_starts_in_the_workspace_where_the_operator_says_so(place: Place, sandbox: Path) -> None:
    assert place.peer("pwd", in_workspace=True)[1].strip() == str(place.workspace)


def test_a_peers_environment_is_handed_in(place: Place, sandbox: Path) -> None:
    assert place.peer("sh", "-c", "echo $OWN", environment={"OWN": "a b"})[1] == "a b\n"


# -- homes of every kind


def test_a_home_behind_a_link_has_both_names_inside(tmp_path: Path, sandbox: Path) -> None:
    real = place_in(tmp_path / "var")
    (tmp_path / "home").symlink_to("var/home")
    place = replace(
        real, home=tmp_path / "home" / "someone", workspace=tmp_path / "home/someone/projects/one"
    )
    (real.home / ".netrc").write_text("secret")
    said = place.say("sh", "-c", f'echo $HOME; ls -A "$HOME" {real.home}; cd {place.workspace} && pwd -P')
    listed = [f"{place.home}:", "projects", f"{real.home}:", "projects"]
    assert said.split() == [str(place.home), *listed, str(real.workspace)]


@pytest.mark.parametrize("home", ["/", "/nonexistent", "/usr/sbin"])
def test_a_home_of_a_daemon_is_empty_and_writable(
    workspace: Path, tmp_path: Path, sandbox: Path, home: str
) -> None:
    settings = SandboxSettings(state_directory=tmp_path / "state")
    place = Place(home=Path(home), workspace=workspace, settings=settings)
    assert place.say("sh", "-c", 'touch "$HOME/x" && ls -A "$HOME"') == "x"


def test_a_home_of_a_daemon_among_programs_covers_none(
    workspace: Path, tmp_path: Path, sandbox: Path
) -> None:
    place = Place(
        home=Path("/usr/bin"), workspace=workspace, settings=SandboxSettings(state_directory=tmp_path / "s")
    )
    assert place.say(system_python(), "-c", "print(1)") == "1"


# -- toolchains, for real


@pytest.mark.parametrize("shell", [False, True])
def test_python_and_git_of_the_system_run(place: Place, sandbox: Path, shell: bool) -> None:
    for argv in ([system_python(), "-c", "import ssl, json; print(1)"], [needs("git"), "--version"]):
        words = (
            [needs("bash"), "-c", f"{argv[0].rpartition('/')[2]} \"$@\"", "bash", *argv[1:]]
            if shell
            else argv
        )
        assert place.say(*words)


def test_node_and_npx_of_the_system_run(place: Place, sandbox: Path) -> None:
    needs("npx")
    assert place.say(needs("node"), "--version").startswith("v")
    assert place.say("npx", "--version")[0].isdigit()


@pytest.fixture
def pyenv(place: Place) -> Path:
    """A pyenv below the home with one real Python, found through a shim."""
    root = place.home / ".pyenv"
    own = root / "versions" / "3.99.0" / "bin" / "python3"
    own.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(system_python()), own)
    program(root / "libexec" / "pyenv", '#!/bin/sh\nexec "${0%/libexec/*}/versions/3.99.0/bin/$2" "$@"\n')
    program(
        root / "shims" / "python3", f'#!/bin/sh\nshift 0\nexec "{root}/versions/3.99.0/bin/python3" "$@"\n'
    )
    return root


@pytest.mark.parametrize("shell", [False, True])
def test_a_python_of_pyenv_runs_and_not_the_systems(
    place: Place, pyenv: Path, sandbox: Path, shell: bool
) -> None:
    place = place.with_path(pyenv / "shims")
    code = "import sys, json; print(sys.executable)"
    argv = (needs("bash"), "-c", f"python3 -c '{code}'") if shell else ("python3", "-c", code)
    assert place.say(*argv) == str(pyenv / "versions/3.99.0/bin/python3")


def test_a_peer_on_a_python_of_pyenv_runs(place: Place, pyenv: Path, sandbox: Path) -> None:
    place = place.with_path(pyenv / "shims")
    status, said, errors = place.peer("python3", "-c", "import sys; print(sys.executable)")
    assert (status, said.strip()) == (0, str(pyenv / "versions/3.99.0/bin/python3")), errors


@pytest.fixture
def nvm(place: Place) -> Path:
    """A version of node below the home, as nvm lays it; its node is the system's under another name."""
    root = place.home / ".nvm/versions/node/v99.0.0"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "node").symlink_to(os.path.realpath(needs("node")))
    program(
        root / "lib/node_modules/npm/bin/npx-cli.js", "#!/usr/bin/env node\nconsole.log('npx', __filename)\n"
    )
    (root / "bin" / "npx").symlink_to("../lib/node_modules/npm/bin/npx-cli.js")
    return root


@pytest.mark.parametrize("shell", [False, True])
def test_an_npx_of_nvm_runs_and_not_the_systems(place: Place, nvm: Path, sandbox: Path, shell: bool) -> None:
    place = place.with_path(nvm / "bin")
    argv = (needs("bash"), "-c", "command -v node && npx --version") if shell else ("npx", "--version")
    expected = [f"npx {nvm}/lib/node_modules/npm/bin/npx-cli.js"]
    assert place.say(*argv).splitlines() == ([f"{nvm}/bin/node"] if shell else []) + expected


def test_a_peer_on_an_npx_of_nvm_runs(place: Place, nvm: Path, sandbox: Path) -> None:
    status, said, errors = place.with_path(nvm / "bin").peer("npx", "--version")
    assert (status, said.startswith("npx ")) == (0, True), errors


def test_a_tool_linked_into_local_bin_runs(place: Place, sandbox: Path) -> None:
    tool = program(place.home / ".local/share/uv/tools/lint/bin/lint", "#!/bin/sh\necho lint\n")
    (place.home / ".local" / "bin").mkdir()
    (place.home / ".local" / "bin" / "lint").symlink_to(tool)
    place = place.with_path(place.home / ".local" / "bin")
    assert place.say("lint") == "lint"
    assert place.say("sh", "-c", "lint") == "lint"


@pytest.mark.parametrize("name", [".venv", "venv", "env"])
def test_a_venv_of_the_workspace_runs_on_the_systems_python(place: Place, sandbox: Path, name: str) -> None:
    done = place.run(system_python(), "-m", "venv", "--without-pip", name, writable=True)
    assert done.status == 0, done.stderr
    prefix = place.say(f"{name}/bin/python", "-c", "import sys; print(sys.prefix)")
    assert prefix == str(place.workspace / name)


def test_a_venv_of_the_workspace_runs_on_a_python_below_the_home(
    place: Place, pyenv: Path, sandbox: Path
) -> None:
    base = pyenv / "versions/3.99.0/bin"
    venv = place.workspace / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(base / "python3")
    (venv / "pyvenv.cfg").write_text(f"home = {base}\n")
    assert place.say(needs("bash"), "-c", ".venv/bin/python -c 'import sys; print(sys.prefix)'") == str(venv)
    assert place.with_path(venv / "bin").say("python", "-c", "import sys; print(sys.prefix)") == str(venv)


def test_a_venv_that_names_a_directory_of_the_home_opens_nothing(place: Place, sandbox: Path) -> None:
    (place.home / "own" / "bin").mkdir(parents=True)
    (place.home / "own" / "secret").write_text("secret")
    (place.workspace / ".venv").mkdir()
    (place.workspace / ".venv" / "pyvenv.cfg").write_text(f"home = {place.home}/own/bin\n")
    assert b"secret" not in place.run("cat", str(place.home / "own" / "secret")).stdout


def test_git_works_on_the_repository_of_a_read_only_worktree(place: Place, sandbox: Path) -> None:
    git(place.workspace, "init", "-q")
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "one")
    git(place.workspace, "worktree", "add", "-q", str(place.home / "second"))
    assert "one" in place.at(place.home / "second").say("git", "log", "--oneline")


def test_the_path_inside_keeps_the_operators_order(place: Place, sandbox: Path) -> None:
    (place.home / "invisible").mkdir()
    (place.workspace / "bin").mkdir()
    found = place.with_path(place.home / "invisible", place.workspace / "bin").say("sh", "-c", "echo $PATH")
    assert (
        found
        == f"{place.workspace}/bin:{':'.join(path for path in SYSTEM_PATH.split(':') if os.path.isdir(path))}"
    )
