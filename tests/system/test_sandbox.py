"""A bubblewrap that does not work is told by cause and cure, and nothing runs; one that works is probed once."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import Cancelled, SandboxUnavailable
from latch.system.ledger import TOKEN_VARIABLE
from latch.system.scope import Scope
from latch.system import throwaway
from latch.system.throwaway import state_in, throw_away_place
from tests.support.census import carriers, eventually
from tests.support.fake_bwrap import (
    RAN,
    altered_bwrap,
    failing_bwrap,
    old_bwrap,
    outliving_bwrap,
    program,
    spoiling_bwrap,
)
from tests.support.sandboxes import ROOT, Place, fails, place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A user below the test's own directory."""
    return place_in(tmp_path)


# -- a bubblewrap that does not work

WORDS = {
    "namespaces": "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces. See <https://deb.li/bubblewrap>",
    "unsupported": "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces.",
    "limit": "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
    "landlock": "bwrap: setting up uid map: Permission denied",
    "mounts": "bwrap: Failed to make / slave: Permission denied",
    "proc": "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
    "network": "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
    "sysctl": "bwrap: Can't read /proc/sys/kernel/overflowuid: No such file or directory",
    "too old": "bwrap: Unknown option --perms",
    "setuid": "bwrap: cannot open /proc/sys/user/max_user_namespaces: Permission denied",
    "capabilities": "bwrap: Unexpected capabilities but not setuid, old file caps config?",
    "unknown": "bwrap: no such text yet",
}
# What one text means depends on the host as well, which here is the one the tests run on.
_ALSO = {"namespaces": {"container", "apparmor"}, "landlock": {"apparmor"}, "network": {"apparmor"},
         "mounts": {"container"}, "proc": {"container"}}  # fmt: skip


@pytest.mark.parametrize("cause", sorted(WORDS))
def test_a_start_names_the_cause_and_the_cure_and_runs_nothing(
    place: Place, tmp_path: Path, cause: str
) -> None:
    fake = failing_bwrap(tmp_path / "fake" / "bwrap", WORDS[cause])
    error = fails(place.with_settings(bwrap=fake))
    assert isinstance(error, SandboxUnavailable)
    assert error.cause in {cause, *_ALSO.get(cause, ())}
    assert str(error).startswith('cannot start command "touch": ')
    assert WORDS[cause][len("bwrap: ") :] in str(error)
    assert str(error).endswith("; nothing was run unsandboxed")
    assert error.hint
    assert (tmp_path / "fake" / RAN).exists()


@pytest.mark.parametrize("cause", sorted(WORDS))
def test_one_that_looks_at_where_it_is_before_its_arguments_is_not_called_old(
    place: Place, tmp_path: Path, cause: str
) -> None:
    fake = program(tmp_path / "bwrap", f"#!/bin/sh\necho {shlex.quote(WORDS[cause])} >&2\nexit 1\n")
    error = fails(place.with_settings(bwrap=fake))
    assert isinstance(error, SandboxUnavailable)
    assert error.cause in {cause, *_ALSO.get(cause, ())}
    assert f'(it said: "{WORDS[cause][len("bwrap: "):]}")' in str(error)


def test_a_configured_one_in_the_workspace_is_refused(place: Place, sandbox: Path) -> None:
    link = place.home / "bwrap"
    for own in (program(place.workspace / "bwrap", f'#!/bin/sh\nexec {sandbox} "$@"\n'), link):
        if own is link:
            link.symlink_to(place.workspace / "bwrap")
        error = fails(place.with_settings(bwrap=own))
        assert isinstance(error, SandboxUnavailable) and error.cause == "untrusted"
        assert f'"{own}" lies in the workspace "{place.workspace}", or on a way through it' in str(error)
        assert "sandbox.bwrap" in error.hint


def test_a_bubblewrap_that_does_not_exist_is_told_so(place: Place, tmp_path: Path) -> None:
    error = fails(place.with_settings(bwrap=tmp_path / "absent"))
    assert isinstance(error, SandboxUnavailable) and error.cause == "absent"


@pytest.mark.parametrize("lacks", [("--args",), ("--json-status-fd", "--block-fd")])
def test_one_without_a_baseline_option_is_too_old_and_never_asked(
    place: Place, tmp_path: Path, lacks: tuple[str, ...]
) -> None:
    fake = failing_bwrap(tmp_path / "fake" / "bwrap", "unused", lacks=lacks)
    error = fails(place.with_settings(bwrap=fake))
    assert isinstance(error, SandboxUnavailable) and error.cause == "too old"
    assert all(option in str(error) for option in lacks)
    assert not (tmp_path / "fake" / RAN).exists()


def test_one_that_hangs_is_ended_at_the_probes_deadline(place: Place, tmp_path: Path, ms: float) -> None:
    fake = program(tmp_path / "bwrap", f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nexec sleep 1000\n')
    limits = replace(place.limits, process=replace(place.limits.process, probe_seconds=300 * ms))
    error = fails(replace(place, limits=limits).with_settings(bwrap=fake))
    assert isinstance(error, SandboxUnavailable) and error.cause == "hang"
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("#!/bin/sh\necho stuck{to}\nexec sleep 1000\n", "answer to --help"),
        (
            '#!/bin/sh\n[ "$1" = --version ] && {{ echo stuck{to}; exec sleep 1000; }}\nexec {real} "$@"\n',
            "answer to --version",
        ),
        (
            '#!/bin/sh\n[ "$1" = --args ] && {{ echo stuck{to}; exec sleep 1000; }}\nexec {real} "$@"\n',
            "sandbox",
        ),
    ],
    ids=["help", "version", "start"],
)
@pytest.mark.parametrize("to", ["", " >&2"], ids=["stdout", "stderr"])
def test_what_one_said_before_it_hung_is_quoted(
    place: Place, tmp_path: Path, sandbox: Path, ms: float, text: str, missing: str, to: str
) -> None:
    fake = program(tmp_path / "bwrap", text.format(to=to, real=sandbox))
    limits = replace(place.limits, process=replace(place.limits.process, probe_seconds=500 * ms))
    holder = replace(place, limits=limits).with_settings(bwrap=fake)
    error = fails(holder)
    assert isinstance(error, SandboxUnavailable) and error.cause == "hang"
    assert f': no {missing} within {500 * ms:g} s (it said: "stuck")' in error.reason
    assert holder.sandbox.own_entries() == []


@pytest.mark.parametrize("stream", [1, 2])
def test_what_one_said_before_it_hung_at_its_end_is_quoted(
    place: Place, tmp_path: Path, sandbox: Path, ms: float, stream: int
) -> None:
    fake = outliving_bwrap(tmp_path / "bwrap", sandbox, f"os.write({stream}, b'stuck'); time.sleep(1000)")
    limits = replace(place.limits, process=replace(place.limits.process, probe_seconds=1000 * ms))
    holder = replace(place, limits=limits).with_settings(bwrap=fake)
    error = fails(holder)
    assert isinstance(error, SandboxUnavailable) and error.cause == "hang"
    assert f': no end of the probe within {1000 * ms:g} s (it said: "stuck")' in error.reason
    assert holder.sandbox.own_entries() == []


def test_a_probe_under_a_shorter_deadline_misses_the_callers(place: Place, tmp_path: Path, ms: float) -> None:
    fake = program(tmp_path / "bwrap", "#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(TimeoutError) as caught:
        place.with_settings(bwrap=fake).sandbox.ready(Scope.root(200 * ms), wanted="a tool")
    assert not isinstance(caught.value, SandboxUnavailable)


@pytest.mark.parametrize("text", ["#!/nonexistent/interpreter\n", "\x7fELF no program"])
def test_one_that_is_no_program_is_told_so(place: Place, tmp_path: Path, text: str) -> None:
    error = fails(place.with_settings(bwrap=program(tmp_path / "bwrap", text)))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unusable"


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exit 3", "exited with status 3, having printed nothing"),
        ("exit 0", "exited with status 0, having printed nothing"),
        ("kill -SEGV $$", "died of signal 11, having printed nothing"),
        ("echo oh no >&2; kill -ABRT $$", 'died of signal 6 (it said: "oh no")'),
        ("echo usage: it --help --chdir", 'exited with status 0 (it said: "usage: it --help --chdir")'),
        ("echo --bind --ro-bind; kill -SEGV $$", 'died of signal 11 (it said: "--bind --ro-bind")'),
        ("echo fine; exec >&- 2>&-; exec sleep 60", 'killed (signal 9) (it said: "fine")'),
        ("printf '%0400d\\n' 7", f'exited with status 0 (it said: "{"0" * 300}...")'),
    ],
)
def test_one_whose_help_lists_no_options_is_no_old_one(
    place: Place, tmp_path: Path, does: str, says: str
) -> None:
    error = fails(place.with_settings(bwrap=program(tmp_path / "bwrap", f"#!/bin/sh\n{does}\n")))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unusable"
    assert error.reason == f'cannot start command "touch": this bwrap is no bubblewrap, or cannot run: {says}'


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("kill -SEGV $$", "bwrap died of signal 11"),
        ("kill -KILL $$", "bwrap died of signal 9"),
        ("echo oh no >&2; kill -ABRT $$", 'bwrap died of signal 6 (it said: "oh no")'),
        ("echo oh no; kill -ABRT $$", 'bwrap died of signal 6 (it said: "oh no")'),
        ("exit 139", "bwrap died of signal 11"),
    ],
)
def test_one_that_a_signal_ends_during_the_probe_has_crashed(
    place: Place, tmp_path: Path, sandbox: Path, does: str, says: str
) -> None:
    error = fails(place.with_settings(bwrap=spoiling_bwrap(tmp_path / "bwrap", sandbox, does, good=0)))
    assert isinstance(error, SandboxUnavailable) and error.cause == "crash"
    assert str(error) == (
        f'cannot start command "touch": the sandbox broke down: {says}; nothing was run unsandboxed'
    )
    assert "sandbox.bwrap" in error.hint and "latch doctor" in error.hint


def test_one_that_a_signal_ends_while_the_probe_runs_inside_has_crashed(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    then = "os.write(2, b'oh no'); os.kill(os.getpid(), 11)"
    fake = outliving_bwrap(tmp_path / "bwrap", sandbox, then, silent=True)
    error = fails(place.with_settings(bwrap=fake))
    assert isinstance(error, SandboxUnavailable) and error.cause == "crash"
    assert error.reason.endswith('the sandbox broke down: the probe died of signal 11 (it said: "oh no")')


@pytest.mark.parametrize(
    "words",
    [
        "execvp /bin/sh: No such file or directory",
        "execvp /bin/sh: Permission denied",
        "Can't find source path /usr: Permission denied",
        "Can't mkdir /a: Read-only file system",
        "Can't chdir to /a: No such file or directory",
        "Exceeded maximum number of arguments 9000",
    ],
)
def test_what_the_probe_cannot_show_or_run_is_blamed_on_no_path_of_the_operators(
    place: Place, tmp_path: Path, words: str
) -> None:
    fakes = [
        failing_bwrap(tmp_path / "start" / "bwrap", f"bwrap: {words}"),
        program(
            tmp_path / "help" / "bwrap", f"#!/bin/sh\necho {shlex.quote(f'bwrap: {words}')} >&2; exit 1\n"
        ),
    ]
    for fake in fakes:
        error = fails(place.with_settings(bwrap=fake))
        assert isinstance(error, SandboxUnavailable)
        assert f'(it said: "{words}")' in str(error)
        assert "ro_paths" not in f"{error} {error.hint}" and "chmod" not in error.hint


def test_a_reason_that_is_not_known_is_told_with_the_status(place: Place, tmp_path: Path) -> None:
    error = fails(place.with_settings(bwrap=failing_bwrap(tmp_path / "bwrap", "no such text yet", status=7)))
    assert error.reason.endswith('not known here: exited with status 7 (it said: "no such text yet")')
    assert "-v" not in error.hint


@pytest.mark.parametrize(
    ("only_root", "option", "instead", "said"),
    [
        (False, ("--setenv", "HOME", "{home}"), ("--setenv", "HOME", "/usr"), "home: /usr/bin"),
        (True, ("--cap-drop", "ALL"), (), "no CapEff: 0000000000000000"),
        (True, ("--ro-bind", "/proc/sys", "/proc/sys"), ("--bind", "/proc/sys", "/proc/sys"), "sysctl: open"),
        (True, ("--ro-bind", "/proc/sys", "/proc/sys"), (), "sysctl: open"),
        (False, ("--proc", "/proc"), ("--ro-bind", "/proc", "/proc"), '"/proc" is not mounted as it was'),
    ],
)
def test_one_that_does_not_hold_what_it_must_is_found_out(
    place: Place, tmp_path: Path, sandbox: Path, only_root: bool, option: tuple[str, ...], instead: tuple[str, ...],
    said: str,
) -> None:  # fmt: skip
    if only_root and os.getuid() != 0:
        pytest.skip("only root would have more without that option")
    named = tuple(word.format(home=place.home) for word in option)
    error = fails(place.with_settings(bwrap=altered_bwrap(tmp_path / "bwrap", sandbox, named, instead)))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unsound"
    assert said in str(error)


@pytest.mark.parametrize(
    "name", ["bwrap-0.8", "a-bubblewrap-of-our-own", "b\xe9w rap", os.fsdecode(b"b\xff")]
)
def test_a_bubblewrap_of_another_name_is_sound(
    place: Place, tmp_path: Path, sandbox: Path, name: str
) -> None:
    shutil.copy(sandbox, tmp_path / name)
    assert place.with_settings(bwrap=tmp_path / name).say("echo", "ran") == "ran"


def test_a_wrapper_of_another_name_that_hands_over_to_bubblewrap_is_sound(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    wrapper = program(tmp_path / "wrapper", f'#!/bin/sh\nexec {sandbox} "$@"\n')
    assert place.with_settings(bwrap=wrapper).say("echo", "ran") == "ran"


# -- one that gives no account of what it ran


def silent(path: Path, sandbox: Path) -> Path:
    """Return a bubblewrap that does all that it is told, and says nothing of how it went."""
    return outliving_bwrap(path, sandbox, "sys.exit(status)", silent=True)


def test_a_probe_of_which_no_status_comes_claims_nothing_of_what_was_run(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    error = fails(place.with_settings(bwrap=silent(tmp_path / "bwrap", sandbox)))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unknown"
    assert str(error).endswith("exited with status 0; bwrap gave no account of what it ran")


def test_a_command_of_which_no_status_comes_claims_nothing_of_what_was_run(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    bad = silent(tmp_path / "bad", sandbox)
    honest = spoiling_bwrap(tmp_path / "bwrap", sandbox, f'exec {bad} "$@"')
    place = place.with_settings(bwrap=honest)
    with pytest.raises(SandboxUnavailable) as caught:
        place.run("sh", "-c", "touch ran; echo its own words >&2; exit 4", writable=True)
    assert (place.workspace / "ran").exists()
    assert str(caught.value).endswith("exited with status 4; bwrap gave no account of what it ran")


def test_threads_that_share_a_probe_share_what_is_not_claimed(
    place: Place, tmp_path: Path, sandbox: Path
) -> None:
    bad = silent(tmp_path / "bad", sandbox)
    slow = program(tmp_path / "bwrap", f'#!/bin/sh\n[ "$1" = --help ] && sleep 0.3\nexec {bad} "$@"\n')
    holder = place.with_settings(bwrap=slow).sandbox

    def ask(number: int) -> list[str]:
        with pytest.raises(SandboxUnavailable) as caught:
            holder.ready(Scope.root(20), wanted=f"tool {number}")
        return caught.value.aftermath

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, range(2))) == [["bwrap gave no account of what it ran"]] * 2


# -- the bubblewrap of 0.4.0


def test_a_sandbox_of_0_4_0_works_and_says_what_it_lacks(place: Place, tmp_path: Path, sandbox: Path) -> None:
    old = place.with_settings(bwrap=old_bwrap(tmp_path / "bwrap", sandbox))
    said = old.say("sh", "-c", 'echo "$LATCH_SANDBOX $HOME"; ls -A "$HOME"; touch made', writable=True)
    assert said.split() == ["1", str(place.home), "projects"]
    assert (place.workspace / "made").exists()
    bubblewrap = old.sandbox.ready(Scope.root(20), wanted="a tool")
    assert bubblewrap.version == "0.4.0"
    made = old.sandbox.planner.prepare_command(
        ("true",), workspace=old.workspace, writable=False, network=False, features=bubblewrap.features
    )
    named = [text.partition(": ")[0] for text in made.plan.missing if "--" in text]
    lacking = ("--disable-userns", "--perms", "--size", "--clearenv")
    assert named == [f"this bubblewrap has no {option}" for option in lacking]


def test_a_sandbox_of_0_4_0_holds_the_same_walls(place: Place, tmp_path: Path, sandbox: Path) -> None:
    old = place.with_settings(bwrap=old_bwrap(tmp_path / "bwrap", sandbox))
    (place.home / ".netrc").write_text("secret")
    (place.workspace / "mine").write_text("1")
    reads = 'cat "$HOME/.netrc"; env; tr "\\0" "\\n" < /proc/1/environ; grep CapEff /proc/self/status'
    text = old.run("sh", "-c", f"echo 2 > mine; {reads}").stdout.decode()
    assert "secret" not in text and (place.workspace / "mine").read_text() == "1"
    assert "CapEff:\t0000000000000000" in text
    assert text.count("LATCH_PROCESS_TOKEN") == 1


# -- the probe


def test_a_working_bubblewrap_is_probed_once_for_each_network(
    place: Place, sandbox: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    counting = program(
        tmp_path / "bwrap", f'#!/bin/sh\n[ "$1" = --args ] && echo >> "{log}"\nexec {sandbox} "$@"\n'
    )
    counted = place.with_settings(bwrap=counting)
    for _ in range(2):
        counted.sandbox.ready(Scope.root(20), wanted="a tool", network=True)
        counted.sandbox.ready(Scope.root(20), wanted="a tool", network=False)
    assert log.read_text() == "\n\n"


def test_a_replaced_bubblewrap_is_probed_again(place: Place, sandbox: Path, tmp_path: Path) -> None:
    fake = failing_bwrap(tmp_path / "bwrap", WORDS["proc"])
    assert fails(place.with_settings(bwrap=fake))
    program(tmp_path / "next", f'#!/bin/sh\nexec {sandbox} "$@"\n').rename(fake)
    assert place.with_settings(bwrap=fake).run("true").status == 0


def test_a_failure_is_not_remembered(place: Place, tmp_path: Path) -> None:
    fake = failing_bwrap(tmp_path / "bwrap", WORDS["limit"])
    assert [fails(place.with_settings(bwrap=fake)).cause for _ in range(2)] == ["limit", "limit"]


def test_threads_that_start_at_once_share_one_probe(place: Place, sandbox: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    counting = program(
        tmp_path / "bwrap", f'#!/bin/sh\n[ "$1" = --args ] && echo >> "{log}"\nexec {sandbox} "$@"\n'
    )
    counted = place.with_settings(bwrap=counting)
    with ThreadPoolExecutor(6) as pool:
        found = [
            pool.submit(lambda: counted.sandbox.ready(Scope.root(20), wanted="a tool")) for _ in range(6)
        ]
        assert len({one.result().path for one in found}) == 1
    assert log.read_text() == "\n"


def test_threads_that_wait_for_a_failing_probe_share_its_cause_and_name_their_own(
    place: Place, tmp_path: Path, ms: float
) -> None:
    fake = program(tmp_path / "bwrap", "#!/bin/sh\nexec sleep 1000\n")
    limits = replace(place.limits, process=replace(place.limits.process, probe_seconds=500 * ms))
    hanging = replace(place, limits=limits).with_settings(bwrap=fake)

    def ask(number: int) -> SandboxUnavailable:
        with pytest.raises(SandboxUnavailable) as caught:
            hanging.sandbox.ready(Scope.root(20), wanted=f"tool {number}")
        return caught.value

    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(ask, range(4)))
    assert time.monotonic() - began < 1500 * ms
    assert [error.cause for error in errors] == ["hang"] * 4
    assert [error.reason.startswith(f"cannot start tool {n}: ") for n, error in enumerate(errors)] == [
        True
    ] * 4


def test_a_thread_whose_probe_was_cancelled_spoils_it_for_no_other(
    place: Place, sandbox: Path, tmp_path: Path, ms: float
) -> None:
    slow = program(tmp_path / "bwrap", f'#!/bin/sh\n[ "$1" = --help ] && sleep 0.3\nexec {sandbox} "$@"\n')
    slowed = place.with_settings(bwrap=slow)
    scope = Scope.root(20)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: slowed.sandbox.ready(scope, wanted="first"))
        time.sleep(100 * ms)
        second = pool.submit(lambda: slowed.sandbox.ready(Scope.root(20), wanted="second"))
        scope.cancel("enough")
        assert isinstance(first.exception(), Cancelled)
        assert second.result().path == slow


# -- what dead hosts left

HOST = """
import os, sys
from pathlib import Path
from latch.system.ledger import Ledger, TOKEN_VARIABLE
token = Ledger(Path(sys.argv[1])).begin("test")
os.spawnvpe(os.P_NOWAIT, "sleep", ["sleep", "60"], {"PATH": os.environ["PATH"], TOKEN_VARIABLE: token})
print(token, flush=True)
os.kill(os.getpid(), 9)
"""


def left_behind(state: Path) -> str:
    """Let a host start a process that it records in *state*, and be killed; return the token."""
    with subprocess.Popen([sys.executable, "-c", HOST, state], cwd=ROOT, stdout=subprocess.PIPE) as host:
        token = host.stdout.readline().decode().strip()
    assert eventually(lambda: carriers(f"{TOKEN_VARIABLE}={token}"))
    return token


def test_every_start_sweeps_what_was_left_since_the_last(place: Place, sandbox: Path) -> None:
    holder = place.sandbox
    for _ in range(2):
        token = left_behind(holder.state_directory)
        holder.ready(Scope.root(20), wanted="a tool")
        assert carriers(f"{TOKEN_VARIABLE}={token}") == []


def test_a_cancelled_sweep_is_made_again_by_the_next_start(place: Place, sandbox: Path) -> None:
    holder = place.sandbox
    token = left_behind(holder.state_directory)
    scope = Scope.root(20)
    scope.cancel("enough")
    with pytest.raises(Cancelled):
        holder.ready(scope, wanted="a tool")
    holder.ready(Scope.root(20), wanted="a tool")
    assert carriers(f"{TOKEN_VARIABLE}={token}") == []


def test_a_sweep_ends_what_a_throw_away_run_left_and_removes_its_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throwaway, "_DIRECTORY", place.home.parent)
    holder = place.sandbox
    with throw_away_place(uid=os.getuid()) as mine:
        left = mine.parent / "run-left"
        token = left_behind(state_in(left))
        assert [entry.token for entry in holder.entries() if entry.token == token] == [token]
        swept = holder.sweep(Scope.root(20))
        assert len(swept.ended) >= 1
        assert carriers(f"{TOKEN_VARIABLE}={token}") == []
        assert mine.is_dir()
        for file in (state_in(left) / "ledger").iterdir():
            file.unlink()
        holder.sweep(Scope.root(20))
        assert not left.exists() and mine.is_dir()
