"""A bubblewrap that does not work is told by cause and cure, and nothing runs; one that works is probed once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import SandboxUnavailable
from latch.system.scope import Scope
from tests.support.fake_bwrap import RAN, altered_bwrap, failing_bwrap, old_bwrap, program
from tests.support.sandboxes import Place, fails, place_in


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


def test_a_probe_under_a_shorter_deadline_misses_the_callers(place: Place, tmp_path: Path, ms: float) -> None:
    fake = program(tmp_path / "bwrap", "#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(TimeoutError) as caught:
        place.with_settings(bwrap=fake).sandbox.ready(Scope.root(200 * ms), wanted="a tool")
    assert not isinstance(caught.value, SandboxUnavailable)


@pytest.mark.parametrize("text", ["#!/nonexistent/interpreter\n", "\x7fELF no program"])
def test_one_that_is_no_program_is_told_so(place: Place, tmp_path: Path, text: str) -> None:
    error = fails(place.with_settings(bwrap=program(tmp_path / "bwrap", text)))
    assert isinstance(error, SandboxUnavailable) and error.cause == "unknown"


@pytest.mark.parametrize(
    ("only_root", "option", "instead", "said"),
    [
        (False, ("--setenv", "HOME", "{home}"), ("--setenv", "HOME", "/usr"), "home: /usr/bin"),
        (True, ("--cap-drop", "ALL"), (), "no CapEff: 0000000000000000"),
        (True, ("--ro-bind", "/proc/sys", "/proc/sys"), (), "sysctl: open"),
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
