"""cli/commands/sandbox.py: one command as Latch would run it, its streams and its status passed on."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from latch.cli.commands.sandbox import run
from latch.cli.terminal import Terminal
from latch.system.machine import Machine
from latch.system.scope import Scope
from tests.support.command_line import Done, Operator, listing
from tests.support.fake_bwrap import RAN, failing_bwrap, outliving_bwrap, spoiling_bwrap

pytestmark = pytest.mark.usefixtures("sandbox")

MANY = 10_000_000


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def shell(operator: Operator, script: str, *flags: str, **how: Any) -> Done:
    return operator.run("sandbox", *flags, "--", "sh", "-c", f"{script}\n: {operator.marker}", **how)


# -- status ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 2, 42, 124, 255])
def test_the_status_is_passed_through(operator: Operator, status: int) -> None:
    done = shell(operator, f"exit {status}")
    assert (done.status, done.out, done.err) == (status, b"", b"")


@pytest.mark.parametrize(("name", "status"), [("TERM", 143), ("INT", 130), ("KILL", 137), ("SEGV", 139)])
def test_a_signal_is_128_and_its_number(operator: Operator, name: str, status: int) -> None:
    done = shell(operator, f"kill -{name} $$")
    assert done.status == status and b"latch:" not in done.err


@pytest.mark.parametrize(
    ("command", "status", "code", "exit_status"),
    [
        ("no-such-program", 127, "command", 2),
        ("/usr/bin/no-such-program", 127, "command", 2),
        ("./plain.txt", 126, "command", 2),
    ],
)
def test_what_cannot_be_run_has_the_status_a_shell_gives(
    operator: Operator, command: str, status: int, code: str, exit_status: int
) -> None:
    (operator.workspace / "plain.txt").write_text("text", encoding="utf-8")
    done = operator.run("sandbox", "--json", "--", command)
    assert (done.status, done.error["code"], done.error["exit"]) == (status, code, exit_status)
    assert Path(command).name in done.error["message"]
    assert operator.run("sandbox", "--", command).status == status


def test_our_own_failures_are_125_and_their_row_is_in_the_error(operator: Operator) -> None:
    rows = {
        "usage": (operator.run("sandbox", "--json"), 2),
        "deadline": (operator.run("sandbox", "--json", "--timeout", "0.5", "--", "sleep", "60"), 6),
        "home": (operator.run("sandbox", "--json", "-C", str(operator.home), "--", "true"), 2),
    }
    operator.configure(top="nonsense = 1")
    rows["config"] = (operator.run("sandbox", "--json", "--", "true"), 2)
    assert {name: (done.status, done.error["exit"]) for name, (done, _) in rows.items()} == {
        name: (125, status) for name, (_, status) in rows.items()
    }
    assert "home" in rows["home"][0].error["message"] and rows["deadline"][0].error["code"] == "deadline"


def test_without_a_sandbox_nothing_runs_and_the_row_is_8(operator: Operator) -> None:
    fake = failing_bwrap(
        operator.place / "fake" / "bwrap", "bwrap: Can't read /proc/sys/kernel/overflowuid: No such file"
    )
    operator.configure(sandbox={"bwrap": str(fake)})
    done = shell(operator, "echo ran > witness", "--write", "--json")
    assert (done.status, done.error["exit"], done.error["code"]) == (125, 8, "sandbox_unavailable")
    assert "nothing was run unsandboxed" in done.error["message"]
    assert fake.with_name(RAN).exists() and list(operator.workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("kill -SEGV $$", "the sandbox broke down: bwrap died of signal 11"),
        ("echo stuck; exec sleep 1000", 'no sandbox within 5 s (it said: "stuck")'),
    ],
    ids=["dies", "hangs"],
)
def test_a_bubblewrap_that_goes_bad_after_its_probe_is_named(
    operator: Operator, sandbox: Path, does: str, words: str
) -> None:
    fake = spoiling_bwrap(operator.place / "fake" / "bwrap", sandbox, does)
    operator.configure(sandbox={"bwrap": str(fake)})
    done = shell(operator, "echo ran > witness", "--write", "--json")
    assert (done.status, done.error["exit"], done.error["code"]) == (125, 8, "sandbox_unavailable")
    assert words in done.error["message"] and "nothing was run unsandboxed" in done.error["message"]
    assert done.error["hint"] and list(operator.workspace.iterdir()) == []


def test_of_what_bubblewrap_gives_no_account_nothing_is_claimed(operator: Operator, sandbox: Path) -> None:
    bad = outliving_bwrap(operator.place / "fake" / "bad", sandbox, "sys.exit(status)", silent=True)
    fake = spoiling_bwrap(operator.place / "fake" / "bwrap", sandbox, f'exec {bad} "$@"')
    operator.configure(sandbox={"bwrap": str(fake)})
    done = shell(operator, "echo ran > witness", "--write", "--json")
    assert (done.status, done.error["exit"]) == (125, 8)
    assert done.error["message"].endswith("; bwrap gave no account of what it ran")
    assert (operator.workspace / "witness").exists()


def test_global_flags_end_at_the_two_dashes(operator: Operator) -> None:
    done = operator.run(
        "--json", "-q", "sandbox", "-C", str(operator.place / "workspace"), "--", "echo", "--json", "-C", "--"
    )
    assert (done.status, done.out, done.err) == (0, b"--json -C --\n", b"")


# -- how long --------------------------------------------------------------------------------------------


class LateWhenSeen:
    """A clock that is *seconds* late as soon as *witness* exists."""

    def __init__(self, witness: Path, seconds: float) -> None:
        self._witness = witness
        self._seconds = seconds

    def __call__(self) -> float:
        return time.monotonic() + (self._seconds if self._witness.exists() else 0.0)


@pytest.mark.parametrize(
    ("late", "timeout", "status", "says"),
    [
        (119, None, 7, ""),
        (121, None, 125, 'command "sh": not done within 120 s'),
        (121, 400.0, 7, ""),
        (401, 400.0, 125, "not done within 400 s"),
    ],
)
def test_t16_a_command_has_120_seconds_unless_a_timeout_says_how_long(
    workspace: Path,
    capfd: pytest.CaptureFixture[str],
    late: float,
    timeout: float | None,
    status: int,
    says: str,
) -> None:
    # what it writes wakes whoever waits for it, to look at the clock again
    script = ": > witness; for n in 1 2 3 4 5 6 7 8; do echo tick; sleep 0.05; done; exit 7"
    clock = LateWhenSeen(workspace / "witness", late)
    options = argparse.Namespace(
        command=["sh", "-c", script],
        write=True,
        network=False,
        plan=False,
        cwd=workspace,
        config=None,
        timeout=timeout,
        machine=Machine.read(),
        scope=Scope.root(timeout, clock=clock),
    )
    machine = options.machine
    assert run(options, Terminal.of_process(machine.environment)) == status
    said = capfd.readouterr().err
    assert (says in said) if says else said == ""
    assert (workspace / "witness").exists()


# -- what it may do ----------------------------------------------------------------------------------


def test_the_workspace_is_writable_only_when_asked_for(operator: Operator) -> None:
    refused = shell(operator, "echo ran > witness || exit 9")
    assert refused.status == 9 and b"Read-only file system" in refused.err
    assert shell(operator, "echo ran > witness", "--write").status == 0
    assert (operator.workspace / "witness").read_text(encoding="utf-8") == "ran\n"


def test_the_network_is_shared_only_when_asked_for(operator: Operator) -> None:
    script = "readlink /proc/self/ns/net"
    ours = os.readlink("/proc/self/ns/net")
    assert shell(operator, script).text.strip() != ours
    assert shell(operator, script, "--network").text.strip() == ours


def test_it_runs_in_the_workspace_that_is_named(operator: Operator) -> None:
    other = operator.place / "other"
    other.mkdir()
    assert shell(operator, "pwd").text == f"{operator.workspace}\n"
    assert (
        shell(operator, "pwd; echo $LATCH_WORKSPACE $LATCH_SANDBOX", "-C", "../other").text
        == f"{other}\n{other} 1\n"
    )


# -- the plan ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_the_plan_is_printed_and_nothing_runs(operator: Operator, flags: tuple[str, ...]) -> None:
    done = operator.run("sandbox", "--write", "--plan", *flags, "--", "touch", "witness")
    assert done.status == 0 and not (operator.workspace / "witness").exists()
    lines = done.value["plan"] if flags else done.text.splitlines()
    assert any(f"--bind {operator.workspace} {operator.workspace}" in line for line in lines), lines
    assert any(line.endswith("touch witness") for line in lines), lines


def test_the_plan_follows_the_flags(operator: Operator) -> None:
    plans = {
        flags: operator.run("sandbox", "--plan", *flags, "--", "true").text
        for flags in ((), ("--write",), ("--network",))
    }
    assert f"--ro-bind {operator.workspace} {operator.workspace}" in plans[()]
    assert f"--ro-bind {operator.workspace} " not in plans[("--write",)]
    assert "--unshare-net" in plans[()] and "--unshare-net" not in plans[("--network",)]


# -- streams -----------------------------------------------------------------------------------------


def test_the_two_streams_stay_apart_and_their_bytes_unchanged(operator: Operator) -> None:
    done = shell(operator, r"printf 'a\000\377\033[31m'; printf 'b\001\n' >&2")
    assert (done.out, done.err) == (b"a\x00\xff\x1b[31m", b"b\x01\n")


def test_standard_input_from_a_pipe_is_passed_on(operator: Operator) -> None:
    given = os.urandom(300_000)
    done = operator.run("sandbox", "--", "sha256sum", given=given)
    assert done.text.split()[0] == hashlib.sha256(given).hexdigest()


def test_standard_input_from_a_file_is_passed_on(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"from a file")
    with (tmp_path / "input").open("rb") as stream:
        assert operator.run("sandbox", "--", "cat", stdin=stream).out == b"from a file"


def test_a_terminal_is_not_handed_in(operator: Operator) -> None:
    script = f"test -t 0 || echo no terminal; cat; echo end; : {operator.marker}"
    with operator.on_terminal("sandbox", "--", "sh", "-c", script) as terminal:
        assert terminal.finish().said == "no terminal\r\nend\r\n"


def test_ten_megabytes_pass_unharmed(operator: Operator) -> None:
    data = bytes(range(250)) * (MANY // 250)
    (operator.workspace / "data").write_bytes(data)
    done = operator.run("sandbox", "--", "cat", "data")
    assert (done.status, done.err, len(done.out)) == (0, b"", MANY)
    assert done.out == data


def test_a_slow_reader_gets_everything(operator: Operator) -> None:
    script = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2"
    with operator.start("sandbox", "--", "sh", "-c", script) as process:
        time.sleep(0.6)
        out, err = process.communicate(timeout=20)
        assert (len(out), len(err), process.returncode) == (200_000, 200_000, 0)


def test_a_descriptor_that_does_not_block_is_waited_for(operator: Operator) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with operator.start("sandbox", "--", "head", "-c", "300000", "/dev/zero", stdout=write_end) as process:
        os.close(write_end)
        time.sleep(0.3)
        with open(read_end, "rb") as stream:
            assert len(stream.read()) == 300_000
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_a_reader_that_goes_away_ends_it_quietly(operator: Operator) -> None:
    with operator.start("sandbox", "--", "sh", "-c", f"yes; : {operator.marker}") as process:
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert (process.stderr.read(), process.wait(20)) == (b"", 141)
    assert operator.left() == []


def test_nobody_to_read_stderr_changes_nothing(operator: Operator) -> None:
    with operator.start("sandbox", "--", "sh", "-c", "echo lost >&2; echo kept; exit 3") as process:
        process.stderr.close()
        assert (process.stdout.read(), process.wait()) == (b"kept\n", 3)


def test_a_full_disk_is_our_failure(operator: Operator) -> None:
    with open("/dev/full", "wb") as full:
        done = operator.run("sandbox", "--json", "--", "echo", "text", stdout=full)
    assert done.status == 125
    assert "standard output: No space left on device" in done.error["message"]


@pytest.mark.parametrize(
    ("closing", "status", "out", "words"),
    [
        ("<&-", 3, b"out\n", b"err\n"),
        ("2>&-", 3, b"out\n", b""),
        ("<&- 2>&-", 3, b"out\n", b""),
        (">&-", 125, b"", b"standard output is closed"),
    ],
)
def test_streams_that_were_closed_before_the_start(
    operator: Operator, closing: str, status: int, out: bytes, words: bytes
) -> None:
    before = ("sh", "-c", f'exec "$@" {closing}', "sh")
    done = shell(operator, "cat; echo out; echo err >&2; exit 3", before=before)
    assert (done.status, done.out) == (status, out)
    assert words in done.err


def test_a_deadline_holds_while_nobody_reads(operator: Operator, ms: float) -> None:
    with operator.start(
        "sandbox", "--timeout", "0.8", "--", "sh", "-c", f"yes; : {operator.marker}"
    ) as process:
        began = time.monotonic()
        assert process.wait(20) == 125
        assert time.monotonic() - began < 2800 * ms
        assert b"latch: not done within 0.8 s" in process.stderr.read()
    assert operator.left() == []


def test_what_it_put_into_the_background_ends_with_it(operator: Operator) -> None:
    assert shell(operator, "setsid sleep 60 > /dev/null 2>&1 &").status == 0
    assert operator.left() == []


def test_it_leaves_no_record(operator: Operator) -> None:
    assert shell(operator, "true").status == 0
    assert [row[0] for row in listing(operator.directory) if row[0].endswith(".jsonl")] == []


def test_help_says_that_a_terminal_is_not_handed_in(operator: Operator) -> None:
    assert "A terminal is not: an interactive program" in " ".join(
        operator.run("help", "sandbox").text.split()
    )


def test_a_terminal_that_is_closed_ends_the_command(operator: Operator) -> None:
    script = f"echo up; sleep 60; : {operator.marker}"
    with operator.on_terminal("sandbox", "--", "sh", "-c", script, stderr=-1) as terminal:
        terminal.wait_for(b"up")
        terminal.hang_up()
        assert terminal.process.wait(20) == 129
    assert operator.left() == []


def test_t29_what_a_writable_run_changed_among_protected_names_is_noted(operator: Operator) -> None:
    done = shell(operator, "echo obey > AGENTS.md; echo fine > notes.txt; exit 3", "--write")
    note = (
        f'latch: "{operator.workspace / "AGENTS.md"}" appeared or changed: read it before anything obeys it\n'
    )
    assert (done.status, done.out, done.said) == (3, b"", note)
    assert shell(operator, "true", "--write").err == b""
