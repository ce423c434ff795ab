"""A hostile child looks for a way out, as whoever runs the tests: root, or an ordinary user.

Each attack runs three ways: as an extension's host with a shared network, as a command that may write
the workspace, and as one that may not. The user's home is a decoy that holds every credential we know
of, outside of the directories that a sandbox covers anyway.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest

from latch.system import cgroup, kernelcalls
from latch.system.spawner import hardening
from latch.system.bindsources import SECRET_ENTRIES
from tests.support.sandboxes import Place, git, needs, outside_of_scratch, place_in, system_python

SECRET = "decoy-secret-5d2f"
WAYS = ("peer", "write", "read")
PROMISED = "HOME LANG LATCH_SANDBOX LATCH_WORKSPACE LC_ALL LOGNAME PATH PWD SHELL TMPDIR USER"
# What of /proc/sys/kernel belongs to an IPC or pid namespace.
OWN_SYSCTLS = ("sem", "shm", "msg", "auto_msgmni", "ns_last_pid", "pid_max")


@pytest.fixture
def place(sandbox: Path) -> Iterator[Place]:
    """A user with every credential, state, a second home beside the own, and a repository to work in."""
    with outside_of_scratch() as directory:
        made = place_in(directory)
        for entry in SECRET_ENTRIES:
            file = made.home / entry.replace("*", "x")
            if "." not in file.name[1:] and file.name not in (
                ".netrc",
                ".npmrc",
                ".pgpass",
                ".boto",
                "token",
            ):
                file = file / "key"
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.parent.is_dir() and not file.exists():
                file.write_text(SECRET)
        others = (".latch/state/history", ".latch/config.toml", ".latchkey/key", "projects/two/notes")
        for file in (*(made.home / name for name in others), made.home.parent / "another/.ssh/key"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(SECRET)
        git(made.workspace, "init", "-q")
        (made.workspace / "mine").write_text("mine")
        yield made


def attack(place: Place, way: str, program: str, *words: str) -> Any:
    """Run a Python program inside in one of the ways and return the JSON it printed."""
    text = f"import json, os, socket, sys, time\n{program}"
    if way != "peer":
        return place.python(text, *words, writable=way == "write")
    status, said, errors = place.peer(system_python(), "-I", "-c", text, *words)
    assert status == 0, errors
    return json.loads(said)


# -- reading

READS = """
found = []
for top in json.loads(sys.argv[1]):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if os.path.isfile(path) and sys.argv[2].encode() in open(path, "rb").read():
                    found.append(path)
            except OSError: pass
print(json.dumps(found))
"""


@pytest.mark.parametrize("way", WAYS)
def test_no_credential_no_state_and_no_other_home_is_found_by_searching(place: Place, way: str) -> None:
    planted = [
        path for path in place.home.rglob("*") if path.is_file() and path.read_bytes() == SECRET.encode()
    ]
    assert len(planted) > len(SECRET_ENTRIES) - 5
    tops = [
        "/home",
        "/root",
        "/etc",
        "/run",
        "/var",
        "/tmp",
        "/opt",
        "/srv",
        "/mnt",
        str(place.home.parents[1]),
    ]
    assert attack(place, way, READS, json.dumps(tops), SECRET) == []


@pytest.mark.parametrize("way", WAYS)
def test_no_credential_is_reached_by_its_name(place: Place, way: str) -> None:
    paths = [str(path) for path in place.home.parent.rglob("*") if path.is_file() and path.name != "mine"]
    paths = [path for path in paths if not path.startswith(str(place.workspace))]
    assert len(paths) > 50
    program = "print(json.dumps([path for path in json.loads(sys.argv[1]) if os.path.lexists(path)]))"
    assert attack(place, way, program, json.dumps(paths)) == []


@pytest.mark.parametrize("way", WAYS)
def test_of_the_host_only_what_programs_need_is_there(place: Place, way: str) -> None:
    program = """
tops = ["/", "/run", "/var", "/tmp", "/dev/shm"]
print(json.dumps({top: sorted(os.listdir(top)) for top in tops}))
"""
    found = attack(place, way, program)
    top = {
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
        "var",
    }
    assert set(found["/"]) - top <= {place.workspace.parts[1], "nix", "gnu"}
    assert found["/run"] == (["peer"] if way == "peer" else [])
    assert (found["/var"], found["/dev/shm"]) == (["tmp"], [])
    assert set(found["/tmp"]) <= {place.home.parts[2]}


@pytest.mark.parametrize("way", WAYS)
def test_the_hosts_passwords_and_keys_are_not_there(place: Place, way: str) -> None:
    paths = [
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/ssl/private",
        "/etc/ssh",
        "/etc/sudoers",
        "/sys",
        "/boot",
        "/var/run",
    ]
    program = "print(json.dumps([path for path in json.loads(sys.argv[1]) if os.path.exists(path)]))"
    assert attack(place, way, program, json.dumps(paths)) == []


@pytest.mark.parametrize("way", WAYS)
def test_of_the_hosts_environment_only_the_ledgers_token_is_seen(
    place: Place, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_TOKEN", SECRET)
    place = replace(place, environment={"OWN_TOKEN": SECRET, "SSH_AUTH_SOCK": "/x", "LD_PRELOAD": ""})
    program = """
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    words = open(f"/proc/{pid}/environ", "rb").read().split(b"\\0")
    found[pid] = sorted(word.split(b"=")[0].decode() for word in words if word)
print(json.dumps([found.pop("1"), sorted(found.values())]))
"""
    first, others = attack(place, way, program)
    assert first == ["LATCH_PROCESS_TOKEN"]
    assert others == [PROMISED.split()]


@pytest.mark.parametrize("way", WAYS)
def test_no_command_line_shows_the_plan(place: Place, way: str) -> None:
    program = "print(json.dumps(open('/proc/1/cmdline').read().split('\\0')[:4]))"
    words = attack(place, way, program)
    assert (words[1], words[3]) == ("--args", "--")


@pytest.mark.parametrize("way", WAYS)
def test_no_descriptor_is_inherited(place: Place, way: str) -> None:
    opened = [os.open(path, os.O_RDONLY) for path in ("/", place.home)]
    for descriptor in opened:
        os.set_inheritable(descriptor, True)
    try:
        program = """
names = os.listdir("/proc/self/fd")
print(json.dumps([name for name in names if os.path.lexists(f"/proc/self/fd/{name}")]))
"""
        assert sorted(attack(place, way, program)) == ["0", "1", "2"]
    finally:
        for descriptor in opened:
            os.close(descriptor)


@pytest.mark.parametrize("way", WAYS)
def test_no_descriptor_of_the_first_process_leads_out(place: Place, way: str) -> None:
    program = """
found = []
for name in os.listdir("/proc/1/fd") if os.access("/proc/1/fd", os.R_OK | os.X_OK) else []:
    try: found.append(os.listdir(f"/proc/1/fd/{name}"))
    except OSError: pass
print(json.dumps(found))
"""
    assert attack(place, way, program) == []


# -- writing

WRITES = """
found = []
for path in json.loads(sys.argv[1]):
    try:
        if os.path.isdir(path): path = os.path.join(path, "planted")
        open(path, "a").write("x"); found.append(path)
    except OSError: pass
print(json.dumps(found))
"""


@pytest.mark.parametrize("way", ["peer", "read"])
def test_a_read_only_workspace_is_not_written_by_any_means(place: Place, way: str) -> None:
    program = """
import ctypes
libc = ctypes.CDLL(None)
ws, found = os.environ["LATCH_WORKSPACE"], []
tries = {
    "create": lambda: open(ws + "/new", "w"), "append": lambda: open(ws + "/mine", "a"),
    "unlink": lambda: os.unlink(ws + "/mine"), "rename": lambda: os.rename(ws + "/mine", ws + "/other"),
    "mkdir": lambda: os.mkdir(ws + "/dir"), "chmod": lambda: os.chmod(ws + "/mine", 0o777),
    "utime": lambda: os.utime(ws + "/mine"), "link": lambda: os.link(ws + "/mine", "/tmp/mine"),
    "proc": lambda: open(f"/proc/self/cwd/../../../../../..{ws}/mine", "a"),
}
for name, attempt in tries.items():
    try: attempt(); found.append(name)
    except OSError: pass
for flags in (0x20 | 0x1000, 0x20):
    if libc.mount(None, ws.encode(), None, flags, None) == 0: found.append("remount")
if libc.umount2(ws.encode(), 2) == 0: found.append("umount")
print(json.dumps(found))
"""
    assert attack(place, way, program) == []
    assert (place.workspace / "mine").read_text() == "mine"


@pytest.mark.parametrize("how", ["direct", "rename", "exchange", "remove", "over", "symlink"])
def test_the_hooks_and_config_of_git_stay_what_they_are(place: Place, how: str) -> None:
    before = {
        path: path.read_bytes() for path in place.workspace.joinpath(".git").rglob("*") if path.is_file()
    }
    program = """
import ctypes, shutil
os.chdir(os.environ["LATCH_WORKSPACE"])
os.makedirs("own/hooks")
open("own/hooks/pre-commit", "w").write("#!/bin/sh\\n")
open("own/config", "w").write("[core]\\nfsmonitor = /x\\n")
libc = ctypes.CDLL(None)
tries = {
    "direct": [lambda: open(".git/hooks/pre-commit", "w"), lambda: open(".git/config", "a")],
    "rename": [lambda: os.rename(".git", "moved"), lambda: os.rename("own", ".git")],
    "exchange": [lambda: libc.renameat2(-100, b"own", -100, b".git", 2) and 1 / 0],
    "remove": [lambda: shutil.rmtree(".git"), lambda: os.rename("own", ".git")],
    "over": [lambda: os.rename("own/config", ".git/config"), lambda: os.rename("own/hooks", ".git/hooks")],
    "symlink": [lambda: os.symlink("own", ".git"), lambda: os.link("own/config", ".git/config2")],
}
found = []
for number, attempt in enumerate(tries[sys.argv[1]]):
    try: attempt(); found.append(number)
    except (OSError, ZeroDivisionError): pass
print(json.dumps(found))
"""
    assert attack(place, "write", program, how) == []
    after = {
        path: path.read_bytes() for path in place.workspace.joinpath(".git").rglob("*") if path.is_file()
    }
    assert after == before


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_the_system_is_written(place: Place, way: str) -> None:
    paths = ["/", "/usr", "/usr/bin", "/etc", "/etc/passwd", "/dev", "/run", "/proc/sys/kernel/core_pattern",
             "/proc/sysrq-trigger", "/proc/self/oom_score_adj2", "/var", str(place.home.parent)]  # fmt: skip
    assert attack(place, way, WRITES, json.dumps(paths)) == []


@pytest.mark.parametrize("way", WAYS)
def test_no_sysctl_is_writable(place: Place, way: str) -> None:
    program = """
found = []
for directory, _, names in os.walk("/proc/sys"):
    for name in names:
        path = os.path.join(directory, name)
        try: os.close(os.open(path, os.O_WRONLY)); found.append(path)
        except OSError: pass
print(json.dumps(found))
"""
    # An ordinary user's own namespaces have some of their own, which change nothing of the host.
    own = (
        ()
        if os.getuid() == 0
        else ("net/", "user/", "fs/mqueue/", *(f"kernel/{name}" for name in OWN_SYSCTLS))
    )
    found = [path[len("/proc/sys/") :] for path in attack(place, way, program)]
    assert [path for path in found if not path.startswith(own)] == []


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_into_the_home_and_scratch_is_gone(place: Place, way: str) -> None:
    paths = [str(place.home), "/tmp", "/var/tmp", "/dev/shm"]
    assert len(attack(place, way, WRITES, json.dumps(paths))) == 4
    assert not any(os.path.exists(os.path.join(path, "planted")) for path in paths)


# -- processes and privileges


@pytest.mark.parametrize("way", WAYS)
def test_no_host_process_is_seen_signalled_or_traced(place: Place, way: str) -> None:
    with subprocess.Popen(["sleep", "1000"]) as victim:
        try:
            program = """
import ctypes
libc, pids, found = ctypes.CDLL(None), [int(pid) for pid in json.loads(sys.argv[1])], []
seen = sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit())
for pid in pids:
    if pid in seen: continue
    for number in (0, 9, 15):
        try: os.kill(pid, number); found.append(pid)
        except OSError: pass
    if libc.ptrace(16, pid, None, None) == 0: found.append(pid)
print(json.dumps([len(seen), seen[0], found]))
"""
            count, first, found = attack(place, way, program, json.dumps([victim.pid, os.getpid()]))
            assert (count <= 3, first, found) == (True, 1, [])
            assert victim.poll() is None
        finally:
            victim.kill()


@pytest.mark.parametrize("way", WAYS)
def test_only_the_network_is_shared_and_only_where_asked(place: Place, way: str) -> None:
    names = ["user", "mnt", "pid", "ipc", "uts", "net"]
    ours = [os.readlink(f"/proc/self/ns/{name}") for name in names]
    program = "print(json.dumps([os.readlink(f'/proc/self/ns/{name}') for name in json.loads(sys.argv[1])]))"
    theirs = attack(place, way, program, json.dumps(names))
    assert [name for name, a, b in zip(names, ours, theirs) if a == b] == (["net"] if way == "peer" else [])


@pytest.mark.parametrize("way", WAYS)
def test_no_capability_is_held_and_none_is_gained(place: Place, way: str) -> None:
    program = """
import ctypes, subprocess
fields = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
libc = ctypes.CDLL(None)
gained = [flag for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000) if libc.unshare(flag) == 0]
for name, call in {"chroot": lambda: os.chroot("/tmp"),
                   "mknod": lambda: os.mknod("/tmp/d", 0o60600, os.makedev(8, 0)),
                   "hostname": lambda: socket.sethostname("x"), "setuid": lambda: os.setuid(12345),
                   "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)}.items():
    try: call(); gained.append(name)
    except OSError: pass
print(json.dumps([[fields[key] for key in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs")], gained]))
"""
    held, gained = attack(place, way, program)
    assert held == ["0" * 16] * 4 + ["1"]
    assert gained == []


@pytest.mark.parametrize("way", WAYS)
def test_the_terminal_is_not_reached(place: Place, way: str) -> None:
    program = """
try: os.open("/dev/tty", os.O_RDWR); print(json.dumps("opened"))
except OSError: print(json.dumps(os.getsid(0) != 0))
"""
    assert attack(place, way, program) is True


@pytest.mark.parametrize("way", WAYS)
def test_no_signal_that_the_host_blocks_is_blocked_inside(place: Place, way: str) -> None:
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        program = (
            "print(json.dumps([line for line in open('/proc/self/status') if line.startswith('SigBlk')]))"
        )
        assert attack(place, way, program) == ["SigBlk:\t" + "0" * 16 + "\n"]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


# -- sockets


@pytest.mark.parametrize("way", WAYS)
def test_no_socket_of_the_host_in_the_file_system_is_reached(place: Place, tmp_path: Path, way: str) -> None:
    paths = [place.home / "agent", tmp_path / "agent"]
    if os.access("/run", os.W_OK):
        paths.append(Path(f"/run/latch-test-{os.getpid()}"))
    servers = []
    try:
        for path in paths:
            server = socket.socket(socket.AF_UNIX)
            servers.append(server)
            server.bind(str(path))
            server.listen()
        program = """
found = []
for path in json.loads(sys.argv[1]):
    try: socket.socket(socket.AF_UNIX).connect(path); found.append(path)
    except OSError: pass
print(json.dumps(found))
"""
        assert attack(place, way, program, json.dumps([str(path) for path in paths])) == []
    finally:
        for server in servers:
            server.close()
        for path in paths:
            path.unlink()


@pytest.mark.parametrize("way", WAYS)
def test_no_abstract_socket_of_the_host_is_reached(place: Place, way: str) -> None:
    if way == "peer" and not hardening().abstract_sockets:
        pytest.skip(
            f"this kernel's Landlock ({kernelcalls.landlock_abi()}) has no scope for a shared network"
        )
    name = f"latch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        program = """
try: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1]); print(json.dumps("connected"))
except OSError as error: print(json.dumps(None))
"""
        assert attack(place, way, program, name) is None


@pytest.mark.parametrize("way", ["write", "read"])
def test_a_command_reaches_no_service_of_this_machine(place: Place, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = """
try: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2); print(json.dumps("connected"))
except OSError: print(json.dumps(sorted(name for _, name in socket.if_nameindex())))
"""
        assert attack(place, way, program, str(server.getsockname()[1])) == ["lo"]


# -- limits


def bounded(place: Place) -> bool:
    """Say whether the number of processes can be bounded here."""
    return "no process limit (root)" not in place.plan().missing


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_bomb_stops_at_the_limit(place: Place, way: str) -> None:
    if not bounded(place):
        pytest.skip("no control group for root can be made here")
    place = place.with_settings(resources=replace(place.settings.resources, max_processes=40))
    program = """
count = 0
try:
    while count < 200:
        if os.fork() == 0: time.sleep(1000); os._exit(0)
        count += 1
except OSError: pass
print(json.dumps(count))
"""
    assert 20 <= attack(place, way, program) <= 40


def test_the_bound_on_roots_processes_is_gone_with_them(place: Place, ms: float) -> None:
    group = cgroup.make_pids_group(f"latch-test-{os.getpid()}", 1) if os.getuid() == 0 else None
    if group is None:
        pytest.skip("no control group is made here")
    cgroup.remove_pids_group(group)
    before = set(os.listdir(group.parent))
    place.run("true")
    # Others on this machine may have groups of their own for a moment; ours would stay.
    until = time.monotonic() + 5000 * ms
    left = set(os.listdir(group.parent)) - before
    while left and time.monotonic() < until:
        time.sleep(20 * ms)
        left &= set(os.listdir(group.parent))
    assert left == set()


@pytest.mark.parametrize("way", WAYS)
def test_files_descriptors_and_cores_are_bounded(place: Place, way: str) -> None:
    resources = replace(place.settings.resources, max_open_files=64, max_file_bytes=2 << 20)
    program = """
import resource, signal
opened, found = [], {}
try:
    while len(opened) < 1000: opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
found["descriptors"] = len(opened) + 3
for descriptor in opened: os.close(descriptor)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("/tmp/big", "wb", buffering=0) as big:
    try:
        while big.tell() < 8 << 20: big.write(b"x" * 65536)
    except OSError: pass
found["file"] = os.path.getsize("/tmp/big")
limits = {"files": resource.RLIMIT_NOFILE, "core": resource.RLIMIT_CORE, "size": resource.RLIMIT_FSIZE}
for name, limit in limits.items():
    try: resource.setrlimit(limit, (1 << 30, 1 << 30)); found[name] = "raised"
    except (ValueError, OSError): pass
found["core"] = found.get("core", resource.getrlimit(resource.RLIMIT_CORE)[1])
print(json.dumps(found))
"""
    found = attack(place.with_settings(resources=resources), way, program)
    assert found == {"descriptors": 64, "file": 2 << 20, "core": 0}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/tmp", "tmp_bytes"),
        ("/var/tmp", "var_tmp_bytes"),
        ("/dev/shm", "shm_bytes"),
        ("{home}", "home_bytes"),
        ("/run/peer", "peer_bytes"),
    ],
)
def test_no_scratch_directory_can_be_filled_beyond_its_size(place: Place, path: str, name: str) -> None:
    place = place.with_settings(resources=replace(place.settings.resources, **{name: 4 << 20}))
    program = """
with open(os.path.join(sys.argv[1], "big"), "wb", buffering=0) as big:
    try:
        while big.tell() < 64 << 20: big.write(b"x" * 65536)
    except OSError: pass
print(json.dumps(os.path.getsize(os.path.join(sys.argv[1], "big"))))
"""
    assert 3 << 20 <= attack(place, "peer", program, path.format(home=place.home)) <= 4 << 20


# -- the command itself


@pytest.mark.parametrize("name", ["--bind/tool", "--version/tool", "--/tool"])
def test_a_command_that_looks_like_an_option_is_a_command(place: Place, name: str) -> None:
    own = place.workspace / name
    own.parent.mkdir()
    own.symlink_to(needs("printf"))
    assert place.say(name, "%s", "/home") == "/home"


def test_arguments_that_look_like_options_are_arguments(place: Place) -> None:
    status, said, _ = place.peer(needs("printf"), "%s", "--bind")
    assert (status, said) == (0, "--bind")
