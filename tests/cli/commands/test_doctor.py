"""cli/commands/doctor.py: what this machine and the configuration can do, with nothing created."""

from __future__ import annotations

import errno
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from latch.cli.commands.doctor import find_kernel
from latch.cli.findings import Finding
from latch.limits import DEFAULT
from latch.system.cgroup import can_make_pids_groups, pids_groups
from tests.support.command_line import PEER, Done, Operator, listing, sealed_home
from tests.support.fake_bwrap import RAN, failing_bwrap, program, spoiling_bwrap
from tests.support.servers import CERTIFICATES

pytestmark = pytest.mark.usefixtures("sandbox")

SERVERS = """
[[mcp_servers]]
name = "local"
transport = "stdio"
command = "{python}"
args = ["{peer}", "--marker", "{marker}"]

[[mcp_servers]]
name = "remote"
transport = "streamable_http"
url = "{origin}/mcp?key=hunter2"
bearer_token_env = "HIDDEN_TOKEN"

[[mcp_servers]]
name = "off"
transport = "stdio"
enabled = false
command = "no-such-program"
"""


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def findings(done: Done) -> dict[str, dict[str, Any]]:
    return {finding["subject"]: finding for finding in done.value["findings"]}


def examine(operator: Operator, *flags: str, **how: Any) -> dict[str, dict[str, Any]]:
    done = operator.run("doctor", "--json", *flags, **how)
    assert done.status == 0, done
    return findings(done)


def failed(operator: Operator, *flags: str, **how: Any) -> Done:
    """Run it in words, which show every finding; the status must be that of the JSON error."""
    done = operator.run("doctor", "-q", *flags, **how)
    assert operator.run("doctor", "--json", *flags, **how).error["exit"] == done.status
    return done


def test_a_good_machine_passes_in_words(operator: Operator) -> None:
    done = operator.run("doctor", "-q")
    assert (done.status, done.err) == (0, b"")
    lines = done.text.splitlines()
    assert (
        f"ok    python: {platform.python_implementation()} {platform.python_version()} ({sys.executable})"
        in lines
    )
    assert f"ok    configuration: {operator.file} (absent: defaults)" in lines
    assert f"ok    directory: {operator.directory} (made when needed)" in lines
    assert f"ok    state: {operator.directory / 'state'} (made when needed)" in lines
    assert [line for line in lines if line.startswith("ok    sandbox, no network: probed: works (/")]
    assert [line for line in lines if line.startswith("ok    sandbox, shared network: probed: works (/")]
    assert not [line for line in lines if line.startswith("fail")]


def test_json_is_one_document_and_tells_what_is_used(operator: Operator) -> None:
    done = operator.run("--json", "doctor")
    assert (done.status, done.err, done.value["plan"]) == (0, b"", [])
    known = findings(done)
    assert {finding["state"] for finding in known.values()} <= {"ok", "note"}
    for subject in (
        "latch",
        "kernel",
        "PyYAML",
        "hardening",
        "session keyring",
        "abstract sockets",
        "certificates",
    ):
        assert subject in known
    assert known["proxy"]["text"] == "none"
    assert known["kernel"]["text"] == platform.release()
    if os.getuid() != 0:
        assert known["process limit"]["text"] == "by RLIMIT_NPROC"


def test_nothing_is_created_and_nothing_stays_behind(operator: Operator) -> None:
    scratch = operator.place / "scratch"
    scratch.mkdir()
    before = listing(operator.home, operator.workspace)
    done = operator.run("doctor", "--plan", env=operator.environment(TMPDIR=str(scratch)))
    assert done.status == 0
    assert listing(operator.home, operator.workspace) == before
    assert not operator.directory.exists() and list(scratch.iterdir()) == []
    assert operator.left() == []


def test_a_configured_state_directory_is_not_created_either(operator: Operator) -> None:
    operator.configure(operator.peer(), top=f'state_dir = "{operator.place / "state"}"')
    before = listing(operator.place)
    known = examine(operator)
    assert known["state"]["text"] == f"{operator.place / 'state'} (made when needed)"
    assert listing(operator.place) == before


def test_what_exists_is_shown_with_its_mode(operator: Operator) -> None:
    operator.configure()
    (operator.directory / "state").mkdir(mode=0o700)
    known = examine(operator)
    assert known["state"]["text"] == f"{operator.directory / 'state'} (mode 0700)"
    assert known["directory"]["text"] == f"{operator.directory} (mode 0700)"
    assert known["configuration"]["text"] == str(operator.file)


@pytest.mark.parametrize(("name", "mode"), [("state", 0o777), ("state/ledger", 0o750)])
def test_a_state_directory_that_every_run_refuses_fails_with_the_same_words(
    operator: Operator, name: str, mode: int
) -> None:
    operator.configure(operator.peer())
    (operator.directory / "state" / "ledger").mkdir(parents=True, mode=0o700)
    (operator.directory / "state").chmod(0o700)
    (operator.directory / name).chmod(mode)
    refused = operator.run("call", "--json", "one/echo").error
    done = failed(operator)
    assert (done.status, refused["exit"]) == (8, 8)
    assert f"fail  state: {refused['message']}\n      cure: {refused['hint']}\n" in done.text


def test_a_place_that_cannot_be_written_is_noted(operator: Operator, sandbox: Path) -> None:
    operator.configure()
    with sealed_home(operator, sandbox) as before:
        known = examine(operator, before=before)
    assert known["directory"]["state"] == "note"
    assert "cannot be written, so nothing can be started" in known["directory"]["text"]
    assert "LATCH_DIRECTORY" in known["directory"]["hint"]


def test_progress_is_one_line_for_each_probe(operator: Operator) -> None:
    lines = operator.run("doctor").said.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "probing the sandbox, shared network",
        "probing the sandbox, no network",
    ]


# the words of bubblewrap, the cause, a word of the sentence, a word of the cure
CAUSES = (
    ("bwrap: --disable-userns is not permitted in setuid mode", "setuid", "installed setuid", "chmod u-s"),
    ("bwrap: Unexpected capabilities but not setuid, old file caps config?",
     "capabilities", "ambient", "AmbientCapab"),
    ("bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded "
     "(ENOSPC)",
     "limit", "limit on user namespaces", "max_user_namespaces"),
    ("bwrap: Can't read /proc/sys/kernel/overflowuid: No such file or directory",
     "sysctl", "not readable", "mount /proc"),
    ("bwrap: Unknown option --json-status-fd", "too old", "too old", "0.4.0 or newer"),
)  # fmt: skip


@pytest.mark.parametrize(("words", "cause", "sentence", "cure"), CAUSES, ids=[row[1] for row in CAUSES])
def test_a_failure_of_bubblewrap_is_named_with_cause_and_cure(
    operator: Operator, words: str, cause: str, sentence: str, cure: str
) -> None:
    fake = failing_bwrap(operator.place / "fake" / "bwrap", words)
    operator.configure(sandbox={"bwrap": str(fake)})
    done = failed(operator)
    assert done.status == 8
    lines = done.text.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("fail  sandbox, shared network:"))
    assert f"[{cause}]" in lines[at] and sentence in lines[at] and words[len("bwrap: ") :] in lines[at]
    assert "nothing was run unsandboxed" in lines[at]
    assert lines[at + 1].startswith("      cure: ") and cure in lines[at + 1]
    assert fake.with_name(RAN).exists()


def test_a_bwrap_that_lacks_what_is_needed_is_too_old_and_is_not_asked_to_run(operator: Operator) -> None:
    fake = failing_bwrap(operator.place / "fake" / "bwrap", "", lacks=("--json-status-fd",))
    operator.configure(sandbox={"bwrap": str(fake)})
    done = failed(operator)
    assert done.status == 8 and "[too old]" in done.text and "--json-status-fd" in done.text
    assert done.text.count("fail  sandbox") == 1 and not fake.with_name(RAN).exists()


@pytest.mark.parametrize(
    ("does", "cause", "words"),
    [
        ("kill -SEGV $$", "crash", "bwrap died of signal 11"),
        ("echo oh no; exit 9", "unknown", 'exited with status 9 (it said: "oh no")'),
        (
            "echo 'bwrap: execvp /bin/sh: Permission denied' >&2; exit 1",
            "paths",
            "execvp /bin/sh: Permission",
        ),
        (
            "echo 'bwrap: Exceeded maximum number of arguments 9000' >&2; exit 1",
            "unknown",
            "Exceeded maximum",
        ),
    ],
)
def test_whatever_bubblewrap_does_in_its_probe_the_rest_is_looked_at(
    operator: Operator, sandbox: Path, does: str, cause: str, words: str
) -> None:
    fake = spoiling_bwrap(operator.place / "fake" / "bwrap", sandbox, does, good=0)
    operator.configure(sandbox={"bwrap": str(fake)})
    done = failed(operator)
    assert done.status == 8
    lines = done.text.splitlines()
    for shown in ("shared network", "no network"):
        at = next(n for n, line in enumerate(lines) if line.startswith(f"fail  sandbox, {shown}: "))
        assert f"[{cause}]" in lines[at] and words in lines[at]
        assert lines[at + 1].startswith("      cure: ")
    assert "ok    proxy: none" in lines
    assert "ro_paths" not in done.text and "chmod" not in done.text


def test_a_bwrap_that_is_none_is_told_so_once(operator: Operator) -> None:
    none = program(operator.place / "fake" / "bwrap", "#!/bin/sh\nexit 0\n")
    operator.configure(sandbox={"bwrap": str(none)})
    done = failed(operator)
    assert done.status == 8 and done.text.count("fail  sandbox") == 1
    assert "is no bubblewrap, or cannot run: exited with status 0, having printed nothing" in done.text


def test_the_callers_own_deadline_is_a_finding_as_well(operator: Operator) -> None:
    fake = program(operator.place / "fake" / "bwrap", "#!/bin/sh\nexec sleep 1000\n")
    operator.configure(sandbox={"bwrap": str(fake)})
    done = failed(operator, "--timeout", "0.5")
    assert done.status == 6
    lines = done.text.splitlines()
    assert "fail  sandbox, shared network: not done within 0.5 s [deadline]" in lines
    assert "fail  socket: not looked for to the end: not done within 0.5 s" in lines
    assert "ok    proxy: none" in lines


def test_what_bubblewrap_says_cannot_act_on_a_terminal(operator: Operator, sandbox: Path) -> None:
    fake = operator.place / "fake" / "bwrap"
    operator.configure(sandbox={"bwrap": str(fake)})
    failing_bwrap(fake, "bwrap: \x1b[2Jgone\a")
    done = operator.run("doctor", "-q")
    assert b"\x1b" not in done.out and b"\a" not in done.out
    assert r'(it said: "\x1b[2Jgone\x07")' in done.text
    assert "\x1b[2Jgone" in operator.run("doctor", "--json").error["message"]
    version = 'case "$1" in --version) printf "it \\0339\\n";; *) exec {} "$@";; esac'
    program(fake, f"#!/bin/sh\n{version.format(sandbox)}\n")
    done = operator.run("doctor", "-q")
    assert done.status == 0 and r"bubblewrap \x1b9 " in done.text and b"\x1b" not in done.out


def test_the_workspace_that_is_named_is_the_one_whose_bubblewrap_is_not_used(
    operator: Operator, sandbox: Path
) -> None:
    other = operator.place / "other"
    own = program(other / "bwrap", f'#!/bin/sh\nexec {sandbox} "$@"\n')
    operator.configure(sandbox={"bwrap": str(own)})
    known = examine(operator, "-C", str(operator.workspace), cwd=other)
    assert known["shared network"]["state"] == known["closed network"]["state"] == "ok"
    assert "[untrusted]" in failed(operator, "-C", str(other)).text


def test_a_bwrap_that_is_not_there_and_one_that_others_can_change(operator: Operator) -> None:
    fake = operator.place / "fake" / "bwrap"
    operator.configure(sandbox={"bwrap": str(fake)})
    assert "[absent]" in failed(operator).text
    failing_bwrap(fake, "").chmod(0o777)
    assert "[untrusted]" in failed(operator).text
    assert not fake.with_name(RAN).exists()


def test_without_any_bwrap_the_package_is_named(operator: Operator, sandbox: Path) -> None:
    hidden = (str(sandbox), "--dev-bind", "/", "/", "--ro-bind", "/dev/null", os.path.realpath(sandbox), "--")
    done = failed(operator, before=hidden)
    assert done.status == 8 and "[absent]" in done.text
    assert "cure: install the distribution's package bubblewrap" in done.text


def test_a_bwrap_of_the_workspace_is_not_used_whatever_path_says(operator: Operator, sandbox: Path) -> None:
    fake = failing_bwrap(operator.workspace / "bin" / "bwrap", "")
    hidden = (str(sandbox), "--dev-bind", "/", "/", "--ro-bind", "/dev/null", os.path.realpath(sandbox), "--")
    env = operator.environment(PATH=f"{fake.parent}:/usr/bin:/bin")
    assert "[absent]" in failed(operator, before=hidden, env=env).text
    assert not fake.with_name(RAN).exists()


def test_each_fault_of_the_configuration_is_a_finding(operator: Operator) -> None:
    operator.configure({"name": "lint", "command": "python3", "shell": True}, top="nonsense = 1")
    done = failed(operator)
    assert done.status == 2
    lines = [line for line in done.text.splitlines() if line.startswith("fail  configuration: ")]
    assert len(lines) == 2 and "nonsense" in lines[0] and "shell" in lines[1]
    assert "ok    sandbox, no network" in done.text


def test_every_extension_is_looked_at_without_being_started(operator: Operator) -> None:
    operator.configure(
        operator.peer("--misbehave", "silent"),
        operator.peer(name="off", enabled=False),
        operator.peer(name="writer", rw_paths=[str(operator.place / "data")]),
    )
    (operator.place / "data").mkdir()
    done = operator.run("doctor", "--json")
    known = done.value["findings"]
    texts = [
        (one["subject"], one["state"], one["text"]) for one in known if one["subject"].startswith("extension")
    ]
    assert texts[0][:2] == ('extension "one"', "ok") and texts[0][2].startswith("runs /")
    assert texts[1] == ('extension "off"', "ok", "disabled")
    assert texts[3] == ('extension "writer"', "note", f"may write {operator.place / 'data'}")
    assert operator.left() == []


@pytest.mark.parametrize(
    ("keys", "words", "cure"),
    [
        ({"command": "no-such-program"}, 'fail  extension "one": "no-such-program" was not found', ""),
        (
            {"env_from": ["NOT_SET_ANYWHERE"]},
            'env_from: "NOT_SET_ANYWHERE" is not set in',
            "set the variable",
        ),
        (
            {"ro_paths": ["/nonexistent/tools"]},
            '"/nonexistent/tools": ro_paths: does not exist',
            "take it out",
        ),
    ],
)
def test_an_extension_that_could_not_start_fails(
    operator: Operator, keys: dict[str, Any], words: str, cure: str
) -> None:
    operator.configure(operator.peer(**keys))
    done = failed(operator)
    assert done.status == 2
    assert [
        line
        for line in done.text.splitlines()
        if line.startswith('fail  extension "one": ') and words in line
    ]
    assert cure in done.text


def test_every_server_is_looked_at_without_being_started_or_contacted(operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        operator.configure(
            top=SERVERS.format(python=sys.executable, marker=operator.marker, peer=PEER, origin=origin)
        )
        done = operator.run("doctor", "-q", env=operator.environment(HIDDEN_TOKEN="hunter2"))
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert done.status == 0
    lines = [line for line in done.text.splitlines() if "MCP server" in line]
    assert lines[0].startswith('ok    MCP server "local": runs /')
    assert lines[1:] == [
        f'ok    MCP server "remote": to be reached at {origin}; sent: HIDDEN_TOKEN of the environment',
        'ok    MCP server "off": disabled',
    ]
    assert "note  network: local can reach all" in done.text
    assert "hunter2" not in done.text and operator.left() == []


def test_t27_a_server_whose_variable_is_not_set_fails_before_it_is_needed(operator: Operator) -> None:
    operator.configure(
        top=SERVERS.format(python=sys.executable, marker="", peer=PEER, origin="https://example.com")
    )
    done = failed(operator, env=operator.environment(HIDDEN_TOKEN=None))
    assert done.status == 5
    assert 'fail  MCP server "remote": bearer_token_env: "HIDDEN_TOKEN" is not set in' in done.text
    assert "cure: set it, or change bearer_token_env of the entry" in done.text


def test_a_bundle_that_a_connection_would_refuse_fails_the_server_and_is_a_note_of_the_machine(
    operator: Operator,
) -> None:
    operator.configure(servers=[operator.remote("https://example.com/")])
    done = failed(operator, env=operator.environment(LATCH_CA_BUNDLE=str(operator.file)))
    fault = f"{operator.file}: the authorities of LATCH_CA_BUNDLE cannot be used: it holds no certificate"
    assert done.status == 2
    assert f'fail  MCP server "far": {fault}' in done.text and f"note  certificates: {fault}" in done.text


def test_a_program_in_a_private_directory_fails_with_its_cure(operator: Operator) -> None:
    operator.configure()
    program = operator.directory / "peer.py"
    program.write_text("")
    operator.configure(operator.program(program))
    done = failed(operator)
    assert done.status == 2
    (line,) = [line for line in done.text.splitlines() if line.startswith('fail  extension "one": ')]
    assert line.endswith(f'its command needs it: is "{operator.directory}", which is private')
    assert "cure: move the program, with what it needs, to a directory of its own" in done.text


def test_what_extensions_can_reach_is_noted(operator: Operator) -> None:
    operator.configure(operator.peer(network=True))
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(operator.workspace)
        try:
            listener.bind("agent.sock")
        finally:
            os.chdir(before)
        known = examine(operator)
    assert known["network"]["state"] == "note" and known["network"]["text"].startswith("one can reach all")
    assert known["socket"]["text"] == f"{operator.workspace / 'agent.sock'} can be connected to from inside"


def test_t23_what_a_shared_network_means_is_tested_from_inside(operator: Operator) -> None:
    known = examine(operator)
    assert known["shared network"]["state"] == known["closed network"]["state"] == "ok"
    assert "metadata addresses and all else that this machine reaches" in known["shared network"]["text"]
    assert known["closed network"]["text"] == "a child without it sees no service of this machine"


def test_a_search_for_sockets_that_ended_early_says_so(operator: Operator) -> None:
    for number in range(DEFAULT.file.max_socket_search_entries + 1):
        (operator.workspace / str(number)).touch()
    assert f"entries below {operator.workspace} were looked at" in examine(operator)["socket"]["text"]


def test_certificates_and_ignored_proxies_are_named_without_their_values(operator: Operator) -> None:
    bundle = CERTIFICATES / "authority.pem"
    env = operator.environment(
        LATCH_CA_BUNDLE=str(bundle), SSL_CERT_FILE="/absent", HTTPS_PROXY="http://me:hunter2@proxy"
    )
    done = operator.run("doctor", "-q", env=env)
    assert f"ok    certificates: {bundle} (from LATCH_CA_BUNDLE)\n" in done.text
    assert "note  proxy: none: HTTPS_PROXY of the environment is ignored\n" in done.text
    assert "hunter2" not in done.text


def test_t16_for_root_it_says_whether_there_is_a_process_limit(operator: Operator) -> None:
    if os.getuid() != 0:
        pytest.skip("the limit of an ordinary user needs no group")
    known = examine(operator)["process limit"]
    expected = f"by control group in {pids_groups()}" if can_make_pids_groups() else "no process limit (root)"
    assert known["text"] == expected


def test_without_network_and_sockets_there_is_nothing_to_note(operator: Operator) -> None:
    operator.configure(operator.peer())
    assert not {"network", "socket"} & set(examine(operator))


def test_the_plan_is_that_of_a_read_only_command_here(operator: Operator) -> None:
    plan = operator.run("doctor", "--plan", "--json").value["plan"]
    assert any(f"--ro-bind {operator.workspace} {operator.workspace}" in line for line in plan)
    text = operator.run("doctor", "--plan", "-q").text
    assert "\nplan of a read-only command here:\n" in text
    assert f"--ro-bind {operator.workspace} {operator.workspace}" in text


def test_a_plan_that_cannot_be_made_is_a_finding(operator: Operator) -> None:
    done = failed(operator, "--plan", "-C", str(operator.home))
    assert done.status == 2
    assert [line for line in done.text.splitlines() if line.startswith("fail  plan: workspace ")]
    assert "ok    sandbox, no network" in done.text


def test_a_package_that_is_missing_is_a_note(operator: Operator) -> None:
    bare = ("sh", "-c", 'python=$1; shift; exec "$python" -S "$@"', "sh")
    done = operator.run("doctor", "--json", before=bare, env=operator.environment(PYTHONPATH=None))
    assert done.status == 0
    known = findings(done)
    assert (known["PyYAML"]["state"], known["PyYAML"]["hint"]) == ("note", "install PyYAML")


def test_a_kernel_without_process_descriptors_is_told_what_it_loses() -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    found = find_kernel(refuse)
    assert (found.state, found.hint) == ("note", "use Linux 5.3 or newer")
    assert "what a killed host left is not swept" in found.text
    assert find_kernel(lambda pid: os.open(os.devnull, os.O_RDONLY)) == Finding(
        "kernel", "ok", platform.release()
    )


def test_a_path_that_nobody_may_look_at_is_a_finding_and_no_failure_of_ours(operator: Operator) -> None:
    closed = operator.home / "closed"
    closed.mkdir(0o000)
    operator.configure(operator.peer(ro_paths=[str(closed / "x")]))
    done = operator.run("doctor", "--json")
    assert f'"{closed}/x": ro_paths: does not exist' in done.error["message"]
