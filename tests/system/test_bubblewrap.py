"""Which bubblewrap is used, and that every way it can fail is told by its cause and its cure."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from latch.errors import CommandUnusable, ContainmentError, SandboxUnavailable
from latch.system.bubblewrap import (
    CAUSES,
    Surroundings,
    explain_failure,
    explain_refusal,
    find_bubblewrap,
    has_options,
    own_words,
    parse_exit_code,
    parse_init_pid,
    unaccounted,
    unavailable,
)
from latch.system.machine import Machine
from tests.support.fake_bwrap import program

PLAIN = Surroundings(apparmor_restricts=False, container=False, wsl1=False)
UBUNTU = replace(PLAIN, apparmor_restricts=True)
CONTAINER = replace(PLAIN, container=True)
WSL1 = replace(PLAIN, wsl1=True)
REFUSED = "new namespace, likely because the kernel does not allow non-privileged user namespaces"
NEWNS = f"No permissions to create {REFUSED}."
OLDER = f"No permissions to creating {REFUSED}"
NONE = "Creating new namespace failed, likely because the kernel does not support user namespaces."
LIMIT = "Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
PROC = "Can't mount proc on /newroot/proc: Operation not permitted"
UIDMAP = "setting up uid map: Permission denied"
LOOPBACK = "loopback: Failed RTM_NEWADDR: Operation not permitted"


def explained(words: str, surroundings: Surroundings = PLAIN) -> SandboxUnavailable:
    """Return the error for what bubblewrap said."""
    error = explain_failure(
        f"bwrap: {words}\n", wanted="a tool", uid=1000, program="/x", hops=(), surroundings=surroundings
    )
    assert isinstance(error, SandboxUnavailable)
    return error


@pytest.mark.parametrize(
    ("words", "surroundings", "cause"),
    [
        (NEWNS, PLAIN, "namespaces"),
        (OLDER, PLAIN, "namespaces"),
        (f"{NEWNS} See <https://example.org>", PLAIN, "namespaces"),
        (NEWNS, CONTAINER, "container"),
        (NEWNS, UBUNTU, "apparmor"),
        (NEWNS, WSL1, "wsl1"),
        (NEWNS, replace(UBUNTU, container=True), "apparmor"),
        (NONE, PLAIN, "unsupported"),
        (NONE, WSL1, "wsl1"),
        ("Creating new namespace failed: Function not implemented", PLAIN, "unsupported"),
        ("Creating new namespace failed: Function not implemented", WSL1, "wsl1"),
        (LIMIT, PLAIN, "limit"),
        (UIDMAP, PLAIN, "landlock"),
        (UIDMAP, UBUNTU, "apparmor"),
        (LOOPBACK, UBUNTU, "apparmor"),
        (LOOPBACK, PLAIN, "network"),
        ("loopback: Failed to create NETLINK_ROUTE socket: Operation not permitted", PLAIN, "network"),
        ("Failed to make / slave: Permission denied", PLAIN, "mounts"),
        ("Failed to make / slave: Permission denied", CONTAINER, "container"),
        ("Failed to make / slave: Operation not permitted", PLAIN, "mounts"),
        ("Failed to mount tmpfs: Permission denied", PLAIN, "mounts"),
        ("pivot_root: Operation not permitted", PLAIN, "mounts"),
        ("unmount old root: Operation not permitted", PLAIN, "mounts"),
        ("capset failed: Operation not permitted", PLAIN, "mounts"),
        (PROC, PLAIN, "proc"),
        (PROC, CONTAINER, "container"),
        ("Can't mount proc on /proc: Permission denied", PLAIN, "proc"),
        ("unshare user ns: Operation not permitted", PLAIN, "namespaces"),
        ("setting up uid map: Operation not permitted", PLAIN, "namespaces"),
        ("Can't read /proc/sys/kernel/overflowuid: No such file or directory", PLAIN, "sysctl"),
        ("Unknown option --disable-userns", PLAIN, "too old"),
        ("cannot open /proc/sys/user/max_user_namespaces: Permission denied", PLAIN, "setuid"),
        ("--size is not permitted in setuid mode", PLAIN, "setuid"),
        ("Unexpected capabilities but not setuid, old file caps config?", PLAIN, "capabilities"),
        ("something new", PLAIN, "unknown"),
        ("something new", WSL1, "wsl1"),
        ("", PLAIN, "unknown"),
    ],
)
def test_every_known_text_is_told_by_its_cause(words: str, surroundings: Surroundings, cause: str) -> None:
    error = explained(words, surroundings)
    assert error.cause == cause
    assert words in str(error)


@pytest.mark.parametrize("cause", CAUSES, ids=[cause.name for cause in CAUSES])
def test_every_message_says_what_why_the_cure_and_that_nothing_ran(cause: object) -> None:
    name = cause.name
    error = unavailable(name, wanted='extension "lint"', detail="what we saw", said="its words")
    assert str(error) == (
        f'cannot start extension "lint": {cause.sentence}: what we saw (it said: "its words"); nothing was run '
        "unsandboxed"
    )
    plain = f'cannot start extension "lint": {cause.sentence}; nothing was run unsandboxed'
    assert str(unavailable(name, wanted='extension "lint"')) == plain
    assert (error.hint, error.cause) == (cause.remedy, name)


def test_the_causes_have_names_of_their_own() -> None:
    assert len({cause.name for cause in CAUSES}) == len(CAUSES)
    assert {"absent", "apparmor", "container", "wsl1", "too old", "setuid", "unknown"} <= {
        one.name for one in CAUSES
    }


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("execvp /bin/sh: No such file or directory", "paths"),
        ("execvp /bin/sh: Permission denied", "paths"),
        ("Can't find source path /usr: Permission denied", "paths"),
        ("Can't bind mount /oldroot/usr on /newroot/usr: Unable to apply mount flags", "paths"),
        ("Can't mkdir /a: Read-only file system", "paths"),
        ("Can't create file at /etc/x: Read-only file system", "paths"),
        ("Can't chdir to /a: No such file or directory", "paths"),
        ("Exceeded maximum number of arguments 9000", "unknown"),
        (NEWNS, "namespaces"),
    ],
)
def test_what_fails_for_a_program_of_ours_is_a_sandbox_that_does_not_work(words: str, cause: str) -> None:
    error = explain_refusal(f"bwrap: {words}\n", wanted="a tool", surroundings=PLAIN)
    assert error.cause == cause
    assert str(error).endswith(f'(it said: "{words}"); nothing was run unsandboxed')
    assert "ro_paths" not in error.hint and "chmod" not in error.hint


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ("bwrap: something new", ': exited with status 3 (it said: "something new")'),
        ("", ": exited with status 3"),
        (f"bwrap: {LIMIT}", f' (it said: "{LIMIT}")'),
    ],
)
def test_how_it_ended_is_told_where_the_words_give_no_cause(said: str, detail: str) -> None:
    how = {"wanted": "it", "surroundings": PLAIN, "how": "exited with status 3"}
    for error in (explain_refusal(said, **how), explain_failure(said, uid=1, program="/x", hops=(), **how)):
        assert error.reason.endswith(detail)
        assert error.reason.count("exited") == detail.count("exited")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("bwrap: one\nbwrap: two", "one"),
        ("before\nbwrap: one\nafter", "one"),
        ("\nno prefix\nat all\n", "no prefix at all"),
        ("bwrap: " + "x" * 12, "x" * 10 + "..."),
        ("  \n", ""),
    ],
)
def test_its_own_line_is_quoted_or_all_where_it_has_none_and_no_more_than_is_asked_for(
    said: str, words: str
) -> None:
    quoted = 10 if "xxx" in said else 300
    assert own_words(said, quoted_chars=quoted) == words


@pytest.mark.parametrize(
    ("listed", "is_bubblewrap"),
    [("--bind --ro-bind --args", True), ("--ro-bind", False), ("--help --file --chdir", False), ("", False)],
)
def test_the_options_of_another_program_are_told_from_those_of_an_old_bubblewrap(
    listed: str, is_bubblewrap: bool
) -> None:
    assert has_options(frozenset(listed.split())) == is_bubblewrap


def test_without_an_account_nothing_is_claimed_of_what_ran() -> None:
    error = unaccounted(unavailable("unknown", wanted="a tool"))
    assert error.aftermath == ["bwrap gave no account of what it ran"]
    other = CommandUnusable("no program", status=127)
    assert unaccounted(other) is other and other.aftermath == []


def test_the_line_of_bubblewrap_is_found_among_others() -> None:
    error = explain_failure(
        f"warning: a\nbwrap: {UIDMAP}\nb\n",
        wanted="a tool",
        uid=0,
        program="/x",
        hops=(),
        surroundings=UBUNTU,
    )
    assert error.cause == "apparmor"
    assert "warning" not in str(error)


# -- what is wrong with the command or a path


def unusable(
    words: str, *, program: str = "/x", hops: tuple[Path, ...] = (), uid: int = 1000
) -> CommandUnusable:
    """Return the error for a command that could not be run."""
    error = explain_failure(
        f"bwrap: {words}\n", wanted="a tool", uid=uid, program=program, hops=hops, surroundings=CONTAINER
    )
    assert isinstance(error, CommandUnusable)
    return error


def test_a_program_that_is_nowhere_was_not_found() -> None:
    error = unusable("execvp /absent: No such file or directory", program="/absent")
    assert error.status == 127
    assert '"/absent" was not found' in str(error)


def test_a_program_that_is_not_visible_names_the_first_hidden_hop_and_the_key(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "#!/opt/x/bin/python\n")
    hops = (Path("/opt/x/python"), Path("/opt/y"))
    error = unusable(f"execvp {tool}: No such file or directory", program=str(tool), hops=hops)
    assert error.status == 127
    assert "/opt/x/python" in str(error)
    assert error.hint == 'add "/opt/x" to ro_paths'


def test_a_program_that_cannot_be_executed_is_126(tmp_path: Path) -> None:
    error = unusable("execvp /x: Permission denied")
    assert (error.status, error.hint) == (126, 'run chmod +x "/x"')


@pytest.mark.parametrize(
    "words",
    [
        "Can't find source path /gone: No such file or directory",
        "Can't mkdir /a: Read-only file system",
        "Can't create file at /etc/x: Read-only file system",
        "Can't chdir to /a: No such file or directory",
        "Can't find source path /a: Permission denied",
    ],
)
def test_a_path_that_cannot_be_bound_is_named(words: str) -> None:
    error = unusable(words)
    assert error.status == 125
    assert words in str(error)


@pytest.mark.parametrize(
    "words",
    [
        "Can't find source path /w/.agents: No such file or directory",
        "Can't find source path /w/.agents: Not a directory",
        'Can\'t bind mount /oldroot/x on /newroot/w/.agents: Unable to find "/newroot/w/e" in mount table',
        "Can't bind mount /oldroot/x on /newroot/w/.agents: realpath(destination): No such file or directory",
        'Can\'t bind mount /oldroot/x on /newroot/w/.agents: Unable to remount destination "/newroot/w/.agents" '
        "with correct flags: Invalid argument",
    ],
)
def test_t1_a_source_that_others_may_swap_and_that_cannot_be_bound_has_changed(words: str) -> None:
    how = {"wanted": "it", "uid": 1000, "program": "/p", "hops": (), "surroundings": PLAIN}
    error = explain_failure(f"bwrap: {words}", pinned=("/w", "/w/.agents"), **how)
    assert isinstance(error, ContainmentError)
    assert error.path == "/w/.agents"
    assert not isinstance(explain_failure(f"bwrap: {words}", pinned=("/w",), **how), ContainmentError)


def test_root_on_another_users_files_is_told_so() -> None:
    error = unusable("Can't find source path /home/a/p: Permission denied", uid=0)
    assert error.hint == "run Latch as the owner of the workspace"


def test_too_many_paths_are_told_by_the_keys() -> None:
    assert (
        unusable("Exceeded maximum number of arguments 9000").hint
        == "name fewer paths in ro_paths and rw_paths"
    )


# -- what the host says of itself


def write(path: Path, text: str) -> None:
    """Write a file and its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", UBUNTU),
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0\n", PLAIN),
        (".dockerenv", "", CONTAINER),
        ("run/.containerenv", "", CONTAINER),
        ("proc/1/cgroup", "0::/kubepods/besteffort/pod1\n", CONTAINER),
        ("proc/1/cgroup", "12:pids:/docker/0123\n", CONTAINER),
        ("proc/1/cgroup", "0::/init.scope\n", PLAIN),
        ("proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft\n", WSL1),
        ("proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2\n", PLAIN),
        ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n", PLAIN),
    ],
)
def test_the_surroundings_are_read_from_the_host(
    tmp_path: Path, name: str, text: str, expected: Surroundings
) -> None:
    write(tmp_path / name, text)
    assert Surroundings.look(tmp_path) == expected


def test_an_unreadable_host_says_nothing(tmp_path: Path) -> None:
    assert Surroundings.look(tmp_path / "absent") == PLAIN


# -- which one


CORRECT = "correct sandbox.bwrap in the configuration, or remove it to use the system's"


def machine(*entries: Path | str) -> Machine:
    """Return a machine with *entries* as PATH."""
    return Machine.read({"HOME": "/nonexistent", "PATH": ":".join(map(str, entries))})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A program that could be bubblewrap."""
    return program(tmp_path / "bin" / "bwrap", "#!/bin/sh\n")


def refusal(setting: Path | None, found: Machine, workspace: Path | None = None) -> SandboxUnavailable:
    """Return the error for a bubblewrap that is not used."""
    with pytest.raises(SandboxUnavailable, match='cannot start extension "lint"') as caught:
        find_bubblewrap(setting, found, workspace=workspace, wanted='extension "lint"')
    return caught.value


def test_the_systems_own_is_used_before_any_of_path(sandbox: Path, own: Path) -> None:
    found = find_bubblewrap(None, machine(own.parent, "/usr/bin"), workspace=None, wanted="a tool")
    assert str(found).startswith(("/usr/", "/bin/", "/run/"))


def test_a_configured_one_is_used(own: Path) -> None:
    assert find_bubblewrap(own, machine(), workspace=None, wanted="a tool") == own


def test_a_configured_one_that_is_absent_is_named(tmp_path: Path) -> None:
    named = tmp_path / "absent"
    error = refusal(named, machine("/usr/bin"))
    assert (error.cause, error.hint) == ("absent", CORRECT)
    assert str(error) == (
        f'cannot start extension "lint": sandbox.bwrap names "{named}", which is no program; '
        "nothing was run unsandboxed"
    )


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_configured_one_that_cannot_be_executed_is_absent(own: Path, mode: int) -> None:
    own.chmod(mode)
    assert refusal(own, machine()).cause == "absent"


def test_a_directory_is_no_program(tmp_path: Path) -> None:
    assert refusal(tmp_path, machine()).cause == "absent"


def test_a_setuid_one_is_refused(own: Path) -> None:
    own.chmod(0o4755)
    error = refusal(own, machine())
    assert error.cause == "setuid" and error.hint.endswith(f"; or {CORRECT}")
    assert str(own) in str(error)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o722])
def test_one_that_others_can_write_is_refused(own: Path, mode: int) -> None:
    own.chmod(mode)
    error = refusal(own, machine())
    assert error.cause == "untrusted" and error.hint.endswith(f"; or {CORRECT}")


def test_a_configured_one_of_another_user_is_refused(own: Path) -> None:
    if os.getuid() == 0:
        os.chown(own, 65534, 65534)
        assert refusal(own, machine()).cause == "untrusted"
    else:
        assert refusal(own, replace(machine(), uid=os.getuid() + 1)).cause == "untrusted"


# Where the system has none of its own, which only its absence from the fixed directories can show.
def candidates_of(found: Machine, workspace: Path | None) -> list[Path]:
    """Return the places that are looked at, in order."""
    from latch.system.bubblewrap import _candidates

    return list(_candidates(found, workspace))


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", "../bin"])
def test_a_relative_entry_of_path_is_never_looked_at(
    own: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.chdir(own.parents[1])
    places = candidates_of(machine(entry, "/opt/x"), None)
    assert all(path.is_absolute() and own.parents[1] not in path.parents for path in places)
    assert places[-1] == Path("/opt/x/bwrap")


@pytest.mark.parametrize("entry", ["{workspace}", "{workspace}/bin", "{alias}/bin", "{out}"])
def test_the_workspaces_own_is_never_looked_at(tmp_path: Path, workspace: Path, entry: str) -> None:
    program(workspace / "bin" / "bwrap", "#!/bin/sh\n")
    (tmp_path / "alias").symlink_to(workspace)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bwrap").symlink_to(workspace / "bin" / "bwrap")
    named = entry.format(workspace=workspace, alias=tmp_path / "alias", out=tmp_path / "out")
    assert Path(named, "bwrap") not in candidates_of(machine(named), workspace)
    assert Path(named, "bwrap") not in candidates_of(machine(named), tmp_path / "alias")
    assert Path(named, "bwrap") in candidates_of(machine(named), None)


@pytest.mark.parametrize("entry", ["{workspace}/way-out", "{workspace}/bin/../way-out", "{alias}/way-out"])
def test_an_entry_that_leads_out_of_the_workspace_is_the_workspaces_all_the_same(
    tmp_path: Path, workspace: Path, own: Path, entry: str
) -> None:
    (workspace / "bin").mkdir()
    (workspace / "way-out").symlink_to(own.parent)
    (tmp_path / "alias").symlink_to(workspace)
    named = entry.format(workspace=workspace, alias=tmp_path / "alias")
    assert Path(named, "bwrap") not in candidates_of(machine(named), workspace)
    assert Path(named, "bwrap") in candidates_of(machine(named), None)


def test_the_one_that_was_judged_is_the_one_that_is_used(tmp_path: Path, own: Path) -> None:
    (tmp_path / "link").symlink_to(own)
    assert find_bubblewrap(tmp_path / "link", machine(), workspace=None, wanted="a tool") == own


# -- what it tells


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        (b'{"child-pid": 12}', 12),
        (b'{\n"child-pid": 12,\n"more": [1]\n}\n', 12),
        (b'{"child-pid"', None),
        (b"", None),
        (b'{"child-pid": 0}', None),
        (b'{"child-pid": -1}', None),
        (b'{"child-pid": "1"}', None),
        (b"[]", None),
    ],
)
def test_the_first_process_is_read_from_the_information(text: bytes, pid: int | None) -> None:
    assert parse_init_pid(text) == pid


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b'{"child-pid": 1}\n{"exit-code": 3}\n', 3),
        (b'{"child-pid": 1}\n', None),
        (b"", None),
        (b'{"exit-code": 0}', 0),
        (b'x\n{"exit-code": 1, "more": 1}\n', 1),
    ],
)
def test_the_status_is_read_from_the_reports(text: bytes, status: int | None) -> None:
    assert parse_exit_code(text) == status
