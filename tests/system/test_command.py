"""A command is run to its end, what it wrote is bounded, and nothing of it is left."""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import CommandUnusable, DeadlineMissed, UsageError
from latch.settings import SandboxSettings
from latch.system.command import CommandResult, run_prepared, run_sandboxed, tell_changes
from latch.system.scope import CancelToken, Scope
from latch.system.workspace import AppearedFile
from tests.support.sandboxes import Place, git, needs, place_in, system_python


@pytest.fixture
def place(tmp_path: Path, sandbox: Path) -> Place:
    """A user below the test's own directory."""
    return place_in(tmp_path)


def marked(mark: str) -> list[str]:
    """Return the processes that carry *mark* in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words and int(name) != os.getpid():
            found.append(name)
    return found


# -- what it gives


def test_a_command_gives_what_it_wrote_and_how_it_ended(place: Place) -> None:
    found = place.run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert found == CommandResult(status=7, stdout=b"out\n", stderr=b"err\n")


@pytest.mark.parametrize(("signal", "status"), [("TERM", 143), ("KILL", 137), ("ABRT", 134)])
def test_a_command_that_dies_of_a_signal_has_the_shells_status(
    place: Place, signal: str, status: int
) -> None:
    assert place.run("sh", "-c", f"kill -{signal} $$").status == status


@pytest.mark.parametrize("status", [1, 125, 126, 127, 255])
def test_a_status_that_looks_like_ours_is_the_commands_own(place: Place, status: int) -> None:
    assert place.run("sh", "-c", f"exit {status}").status == status


def test_a_command_has_nothing_to_read(place: Place) -> None:
    assert place.say("sh", "-c", "wc -c") == "0"


def test_bytes_that_are_no_text_come_through(place: Place) -> None:
    assert place.run("printf", r"\377\0\n").stdout == b"\xff\0\n"


@pytest.mark.parametrize("word", ["a b", "a\nb", "", "$HOME", "--bind", "'\"", "\udcff"])
def test_every_word_arrives_as_it_is(place: Place, word: str) -> None:
    found = place.run(
        system_python(), "-c", "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]))", word
    )
    assert found.stdout == os.fsencode(word)


@pytest.mark.parametrize("name", ["with space", "new\nline", "\udcff", "ünicode", "-dash", "{}"])
def test_a_workspace_of_any_name_works(place: Place, name: str) -> None:
    workspace = place.workspace / name
    os.mkdir(workspace)
    place.at(workspace).run("touch", "made", writable=True)
    assert os.listdir(workspace) == ["made"]


def test_output_beyond_the_bound_is_counted_and_dropped(place: Place) -> None:
    small = replace(
        place, limits=replace(place.limits, process=replace(place.limits.process, max_output_bytes=1000))
    )
    found = small.run("sh", "-c", "head -c 3000000 /dev/zero; head -c 1500 /dev/zero >&2")
    assert (len(found.stdout), len(found.stderr), found.dropped) == (1000, 1000, 2999000 + 500)


def test_much_output_on_both_streams_is_read_side_by_side(place: Place) -> None:
    code = "import sys\nfor _ in range(64):\n sys.stdout.write('o' * 16384)\n sys.stderr.write('e' * 16384)"
    found = place.run(system_python(), "-c", code)
    assert (len(found.stdout), len(found.stderr), found.dropped) == (1 << 20, 1 << 20, 0)


# -- what it may


@pytest.mark.parametrize(("writable", "status"), [(False, 1), (True, 0)])
def test_the_workspace_is_writable_only_where_asked(place: Place, writable: bool, status: int) -> None:
    assert place.run("sh", "-c", "touch made || exit 1", writable=writable).status == status
    assert (place.workspace / "made").exists() == writable


def test_the_network_is_off_unless_asked(place: Place) -> None:
    code = "import os, json; print(json.dumps([os.readlink('/proc/self/ns/net')]))"
    ours = [os.readlink("/proc/self/ns/net")]
    assert place.python(code, network=True) == ours
    assert place.python(code) != ours


def test_the_grant_works_for_git_and_only_with_it(place: Place) -> None:
    git(place.workspace, "init", "-q")
    (place.workspace / "file").touch()
    (place.home / ".gitconfig").write_text("[user]\nname = Some One\nemail = one@example.org\n")
    script = (needs("sh"), "-c", "git add file && git commit -qm one && git log --format='%an %ce'")
    assert place.run(*script, writable=True).status != 0
    assert place.say(*script, writable=True, git_metadata=True) == "Some One one@example.org"
    assert place.run(*script, git_metadata=True).status != 0


def test_what_was_planted_in_git_is_removed_and_told(place: Place) -> None:
    git(place.workspace, "init", "-q")
    found = place.run("sh", "-c", "echo /x > .git/commondir", writable=True, git_metadata=True)
    assert [one.path for one in found.removed] == [place.workspace / ".git" / "commondir"]
    assert not (place.workspace / ".git" / "commondir").exists()


def test_what_was_planted_is_removed_after_a_failure_too(place: Place, ms: float) -> None:
    git(place.workspace, "init", "-q")
    with pytest.raises(TimeoutError):
        run_sandboxed(
            ["sh", "-c", "echo /x > .git/commondir; sleep 1000"],
            workspace=place.workspace,
            writable=True,
            git_metadata=True,
            scope=Scope.root(800 * ms),
            sandbox=place.sandbox,
        )
    assert not (place.workspace / ".git" / "commondir").exists()


# -- its end


def test_what_it_put_into_the_background_ends_with_it(place: Place) -> None:
    mark = f"1{os.getpid()}7"
    assert place.run("sh", "-c", f"setsid sleep {mark} & sleep {mark} & exit 0").status == 0
    assert marked(mark) == []


def test_a_deadline_ends_it_and_everything_it_started(place: Place, ms: float) -> None:
    mark, began = f"2{os.getpid()}7", time.monotonic()
    place.sandbox.ready(Scope.root(20), wanted="a tool", network=False)
    with pytest.raises(TimeoutError):
        run_sandboxed(
            ["sh", "-c", f"setsid sleep {mark} & sleep {mark}"],
            workspace=place.workspace, scope=Scope.root(400 * ms), sandbox=place.sandbox,
        )  # fmt: skip
    assert time.monotonic() - began < 5000 * ms
    assert marked(mark) == []


def test_a_cancelled_one_is_ended(place: Place) -> None:
    mark, token = f"3{os.getpid()}7", CancelToken()
    scope = Scope.root(20).also(token)

    def stop_at_first_word(chunk: bytes) -> None:
        token.cancel("enough")

    holder = place.sandbox
    features = holder.ready(scope, wanted="a tool", network=False).features
    words = ("sh", "-c", f"echo go; sleep {mark}")
    prepared = holder.planner.prepare_command(
        words, workspace=place.workspace, writable=False, network=False, features=features
    )
    with pytest.raises(BaseException, match="enough"):
        run_prepared(holder, prepared, scope, on_stdout=stop_at_first_word, on_stderr=lambda chunk: None)
    assert marked(mark) == []


def descriptors() -> list[str]:
    """Return what is open, without what only waits to be collected."""
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))


def test_no_descriptor_of_ours_is_left(place: Place) -> None:
    place.run("true")
    before = descriptors()
    place.run("true")
    with suppress(CommandUnusable):
        place.run("./absent")
    assert descriptors() == before


def test_a_descriptor_to_read_stays_the_callers(place: Place) -> None:
    read, write = os.pipe()
    os.write(write, b"words")
    os.close(write)
    holder, scope, said = place.sandbox, Scope.root(20), bytearray()
    features = holder.ready(scope, wanted="a tool", network=False).features
    prepared = holder.planner.prepare_command(
        ("cat",), workspace=place.workspace, writable=False, network=False, features=features
    )
    run_prepared(holder, prepared, scope, on_stdout=said.extend, on_stderr=lambda chunk: None, stdin=read)
    os.close(read)
    assert said == b"words"


# -- what it does not take


def test_no_command_is_the_callers_mistake(place: Place) -> None:
    with pytest.raises(UsageError, match="no command"):
        place.run()


def test_without_a_sandbox_it_makes_one_for_this_machine(
    workspace: Path, sandbox: Path, own_home: Path
) -> None:
    found = run_sandboxed(["sh", "-c", "echo $HOME"], workspace=str(workspace), scope=Scope.root(20))
    assert found.stdout.decode().strip() == str(own_home)
    assert SandboxSettings().state_directory is None


@pytest.mark.parametrize("text", ["git status", b"git status", ""])
def test_one_text_is_no_command_line(tmp_path: Path, text: object) -> None:
    with pytest.raises(UsageError) as caught:
        run_sandboxed(text, workspace=tmp_path, scope=Scope.root(20))  # type: ignore[arg-type]
    assert (str(caught.value), caught.value.hint) == (
        "argv must be a sequence of words, not one text",
        'write it as ["git", "status"]',
    )


def test_t29_protected_names_that_appear_or_change_in_a_writable_run_are_told(place: Place) -> None:
    (place.workspace / ".claude").mkdir()
    script = "mkdir .agents; echo obey > .agents/a; echo obey > CLAUDE.md; echo fine > notes.txt"
    found = place.run("sh", "-c", script, writable=True)
    assert found.status == 0
    assert found.changed == (place.workspace / ".agents", place.workspace / "CLAUDE.md")
    assert place.run("true", writable=True).changed == ()
    assert tell_changes(found.removed, found.changed) == [
        f'"{path}" appeared or changed: read it before anything obeys it' for path in found.changed
    ]


def test_t29_they_are_told_after_a_run_that_missed_its_deadline_too(place: Place, ms: float) -> None:
    with pytest.raises(DeadlineMissed, match='CLAUDE.md" appeared or changed'):
        run_sandboxed(
            ("sh", "-c", "echo obey > CLAUDE.md; exec sleep 60"),
            workspace=place.workspace,
            writable=True,
            scope=Scope.root(1000 * ms),
            sandbox=place.sandbox,
        )


def test_what_could_not_be_removed_is_told_as_such() -> None:
    planted = [AppearedFile(Path("/w/.git/commondir")), AppearedFile(Path("/w/.git/gitdir"), removed=False)]
    assert tell_changes(planted, []) == [
        '"/w/.git/commondir", where git would have obeyed it, appeared and was removed',
        '"/w/.git/gitdir", where git would have obeyed it, appeared and could not be removed',
    ]


def test_a_command_without_a_deadline_has_ours(place: Place, ms: float) -> None:
    limits = replace(place.limits, process=replace(place.limits.process, command_seconds=500 * ms))
    with pytest.raises(DeadlineMissed, match='command "sleep": ') as caught:
        run_sandboxed(
            ("sleep", "60"),
            workspace=place.workspace,
            scope=Scope.root(),
            sandbox=replace(place, limits=limits).sandbox,
            limits=limits,
        )
    assert caught.value.seconds == 500 * ms


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_workspace_that_no_directory_can_be_called_is_our_callers_mistake(place: Place, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a directory"):
        run_sandboxed(["true"], workspace=name, scope=Scope.root(20), sandbox=place.sandbox)
