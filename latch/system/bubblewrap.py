"""Bubblewrap on this machine: which one, what it can do, whether it works, and why not.

There is no way round it: every failure is a :class:`SandboxUnavailable` whose cause and cure are
named, and nothing is run without it. Whether it works is for the probe to say, which ``sandbox.py`` starts with
exactly the options in use.

Texts of bubblewrap are matched on their stable part: distributions change the hint at the end, newer
versions the grammar.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Iterator

from ..errors import CommandUnusable, LatchError, SandboxUnavailable, WireError
from ..limits import ExtensionLimits, JsonLimits
from ..wire.excerpts import shorten
from ..wire.jsontext import parse_json
from .files import read_kernel_text
from .machine import Machine
from .paths import both_names, changed_since_plan, passes_through, real_path

__all__ = [
    "BASELINE_OPTIONS",
    "CAUSES",
    "HARDENING_OPTIONS",
    "Bubblewrap",
    "Cause",
    "Surroundings",
    "explain_failure",
    "explain_refusal",
    "find_bubblewrap",
    "has_options",
    "own_words",
    "parse_exit_code",
    "parse_init_pid",
    "unaccounted",
    "unavailable",
]

_SYSTEM_DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
# ARCHITECTURE, "bubblewrap": the baseline; a build without one of these is too old to use at all.
BASELINE_OPTIONS = (
    "--args", "--bind", "--block-fd", "--cap-drop", "--chdir", "--die-with-parent", "--file", "--info-fd",
    "--json-status-fd", "--new-session", "--remount-ro", "--ro-bind", "--sync-fd", "--unsetenv",
    "--unshare-user",
)  # fmt: skip

# Two that every release lists, and no program that is something else.
_TELLING_OPTIONS = ("--bind", "--ro-bind")

# What is used where it is listed, and what it means when it is not.
HARDENING_OPTIONS: MappingProxyType[str, str] = MappingProxyType(
    {
        "--disable-userns": "programs inside may make namespaces of their own",
        "--size": "scratch directories may fill half of the memory",
        "--perms": "masks show as empty directories instead of closed ones",
        "--clearenv": "the environment is emptied by name instead",
    }
)


@dataclass(frozen=True)
class Bubblewrap:
    """One usable bubblewrap: where it is, what it calls its version, which options it lists."""

    path: Path
    version: str
    features: frozenset[str]


@dataclass(frozen=True)
class Cause:
    """One way a sandbox cannot work: a stable part of each text it shows by, a sentence, a remedy."""

    name: str
    texts: tuple[str, ...]
    sentence: str
    remedy: str


_ANOTHER = (
    "install the distribution's package bubblewrap anew, or name another bwrap in sandbox.bwrap; latch doctor "
    "tries it"
)
# Ordered: the first cause with a matching text is the one, unless the host says more (see _refine).
CAUSES = (
    Cause(
        "absent",
        (),
        "bubblewrap (bwrap) is not installed",
        "install the distribution's package bubblewrap",
    ),
    Cause(
        "setuid",
        ("not permitted in setuid mode", "cannot open /proc/sys/user/max_user_namespaces"),
        "this bwrap is installed setuid, which can neither limit its scratch space nor forbid namespaces "
        "inside",
        "remove the bit (chmod u-s) or install the distribution's current package bubblewrap",
    ),
    Cause(
        "capabilities",
        ("Unexpected capabilities but not setuid",),
        "this process was started with ambient capabilities, which bwrap refuses",
        "start it without them (for a service: remove AmbientCapabilities from its unit)",
    ),
    Cause(
        "apparmor",
        (),
        "AppArmor on this system keeps bwrap from making user namespaces",
        "copy bwrap-userns-restrict from the package apparmor-profiles to /etc/apparmor.d and load it with "
        "apparmor_parser -r; the blunt way is kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    Cause(
        "limit",
        ("nesting depth or /proc/sys/user/max_", "(ENOSPC)"),
        "the limit on user namespaces is reached or zero",
        "raise user.max_user_namespaces (and the other user.max_*_namespaces), or leave an outer sandbox "
        "that forbids nesting",
    ),
    Cause(
        "wsl1",
        (),
        "this is WSL1, which has no namespaces",
        "convert the distribution with wsl --set-version to 2",
    ),
    Cause(
        "unsupported",
        ("because the kernel does not support user namespaces", "namespace failed: Function not implemented"),
        "this kernel has no user namespaces",
        "use a kernel with CONFIG_USER_NS",
    ),
    Cause(
        "container",
        (),
        "this is a container whose profile forbids making namespaces or mounts",
        "docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined, and "
        "--security-opt apparmor=unconfined where AppArmor is on; kubernetes: procMount Unmasked, hostUsers "
        "false, seccomp Unconfined",
    ),
    Cause(
        "namespaces",
        ("No permissions to creat", "setting up uid map: Operation not permitted", "unshare user ns:"),
        "ordinary users may not make user namespaces here",
        "set kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0, or leave the chroot",
    ),
    Cause(
        "landlock",
        ("setting up uid map: Permission denied",),
        "a security module around this process keeps bwrap from setting up its user map",
        "start Latch outside of the confinement (a Landlock or AppArmor domain)",
    ),
    Cause(
        "mounts",
        ("Failed to make / slave", "Failed to mount", "pivot_root", "unmount old root", "capset failed"),
        "mounting is refused here",
        "start Latch outside of the confinement (SELinux, AppArmor or a service unit's restrictions)",
    ),
    Cause(
        "proc",
        ("Can't mount proc",),
        "a fresh /proc is refused here, because parts of /proc are covered",
        "for a service: remove ProtectKernelTunables and ProtectProc from its unit; docker: --security-opt "
        "systempaths=unconfined",
    ),
    Cause(
        "network",
        ("loopback: ",),
        "a network namespace cannot be set up here",
        "allow netlink sockets and network namespaces to this process",
    ),
    Cause(
        "sysctl",
        ("Can't read /proc/sys/kernel/overflow",),
        "/proc is not readable here",
        "mount /proc before starting Latch",
    ),
    Cause(
        "paths",
        (
            "Can't find source path",
            "Can't bind mount",
            "Can't mkdir",
            "Can't create file at",
            "Can't chdir to",
            "execvp ",
        ),
        "bwrap cannot show or run what it was told to",
        "see to it that what is named exists and may be read and run by this user",
    ),
    Cause(
        "too old",
        ("Unknown option",),
        "this bwrap is too old",
        "install bubblewrap 0.4.0 or newer",
    ),
    Cause(
        "untrusted",
        (),
        "this bwrap can be changed by others",
        "give it to root (chown root) and take away others' right to write it (chmod go-w)",
    ),
    Cause(
        "unsound",
        (),
        "the sandbox started, but does not hold what it must",
        "run latch doctor and report what it prints",
    ),
    Cause(
        "system",
        (),
        "this system refused what the start needs",
        "free what is missing (descriptors, memory, disk), and try again",
    ),
    Cause(
        "hang",
        (),
        "bwrap did not finish in time",
        "look for a hung mount below /usr or /etc",
    ),
    Cause(
        "crash",
        (),
        "the sandbox broke down",
        _ANOTHER,
    ),
    Cause(
        "unusable",
        (),
        "this bwrap is no bubblewrap, or cannot run",
        _ANOTHER,
    ),
    Cause(
        "unknown",
        (),
        "bwrap failed for a reason that is not known here",
        _ANOTHER,
    ),
)
# What bubblewrap begins each of its own lines with, whatever its file is called.
_PREFIX = "bwrap: "
_CORRECT_SETTING = "correct sandbox.bwrap in the configuration, or remove it to use the system's"
_SWAPPED = re.compile(
    r"Can't (bind mount .* on /newroot|find source path )(?P<place>/.*?): "
    r"(Unable to find|.*correct flags: Invalid argument|(.*: )?(No such file or directory|Not a directory|Too many levels))"
)
_BY_NAME = {cause.name: cause for cause in CAUSES}


@dataclass(frozen=True)
class Surroundings:
    """What the host says about itself that tells apart causes with one text."""

    apparmor_restricts: bool
    container: bool
    wsl1: bool

    @classmethod
    def look(cls, root: Path = Path("/")) -> Surroundings:
        """Read them; *root* is a seam for tests."""
        release = read_kernel_text(root / "proc/sys/kernel/osrelease").lower()
        group = read_kernel_text(root / "proc/1/cgroup")
        return cls(
            apparmor_restricts=read_kernel_text(
                root / "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
            ).strip()
            == "1",
            container=os.path.exists(root / ".dockerenv")
            or os.path.exists(root / "run/.containerenv")
            or any(name in group for name in ("kubepods", "docker", "containerd", "lxc")),
            # WSL2's release names its own kernel, "microsoft-standard"; WSL1's only the vendor.
            wsl1="microsoft" in release and "microsoft-standard" not in release,
        )


def unavailable(
    name: str, *, wanted: str, detail: str = "", said: str = "", configured: bool = False
) -> SandboxUnavailable:
    """Return the error for cause *name*; *wanted* is what was to be started, *detail* what we saw of it,
    *said* bwrap's own words.

    *configured* is whether this bwrap was chosen by a setting, which then is a cure as well.
    """
    cause = _BY_NAME[name]
    words = (f": {detail}" if detail else "") + (f' (it said: "{said}")' if said else "")
    hint = f"{cause.remedy}; or {_CORRECT_SETTING}" if configured else cause.remedy
    return SandboxUnavailable(f"cannot start {wanted}: {cause.sentence}{words}", cause=cause.name, hint=hint)


def unaccounted(error: LatchError) -> LatchError:
    """Return *error*, of a bwrap that was let go and told nothing of what it ran, without the claim that
    nothing was run."""
    if isinstance(error, SandboxUnavailable):
        error.aftermath[:] = ["bwrap gave no account of what it ran"]
    return error


def find_bubblewrap(setting: Path | None, machine: Machine, *, workspace: Path | None, wanted: str) -> Path:
    """Return the real path of the bwrap to use: the configured one, else the system's, else that of an
    absolute PATH entry. The way to it never leads through the *workspace*.

    Raises :class:`SandboxUnavailable` when there is none or it is not to be trusted: in the workspace,
    setuid, writable by others, or not root's (nor, when configured, ours).
    """
    if setting is not None and workspace is not None and passes_through(setting, both_names(workspace)):
        raise unavailable(
            "untrusted",
            wanted=wanted,
            detail=f'"{setting}" lies in the workspace "{workspace}", or on a way through it',
            configured=True,
        )
    for path in [setting] if setting is not None else _candidates(machine, workspace):
        found = Path(real_path(path))
        try:
            status = os.stat(found)
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode) or not os.access(found, os.X_OK):
            continue
        if status.st_mode & stat.S_ISUID:
            raise unavailable("setuid", wanted=wanted, detail=str(found), configured=setting is not None)
        owners = (0, machine.uid) if setting is not None else (0,)
        if status.st_uid not in owners or status.st_mode & 0o022:
            raise unavailable("untrusted", wanted=wanted, detail=str(found), configured=setting is not None)
        return found
    if setting is None:
        raise unavailable("absent", wanted=wanted)
    raise SandboxUnavailable(
        f'cannot start {wanted}: sandbox.bwrap names "{setting}", which is no program',
        cause="absent",
        hint=_CORRECT_SETTING,
    )


def _candidates(machine: Machine, workspace: Path | None) -> Iterator[Path]:
    yield from (Path(directory, "bwrap") for directory in _SYSTEM_DIRECTORIES)
    # NOTE: never a relative entry, and never the workspace's: a repository may ship a "bwrap", or a link
    # to one that suits it.
    closed = [] if workspace is None else both_names(workspace)
    for entry in machine.search_path.split(":"):
        program = Path(entry, "bwrap")
        if entry.startswith("/") and not passes_through(program, closed):
            yield program


def parse_init_pid(text: bytes, limits: JsonLimits = JsonLimits()) -> int | None:
    """Return the pid that ``--info-fd`` told in *text*, as this machine numbers it, or None."""
    pid = _member(text, "child-pid", limits)
    return pid if pid is not None and pid > 0 else None


def parse_exit_code(text: bytes, limits: JsonLimits = JsonLimits()) -> int | None:
    """Return the status that ``--json-status-fd`` told in *text*, or None: the program was never run."""
    codes = [_member(line, "exit-code", limits) for line in text.splitlines()]
    return next((code for code in codes if code is not None), None)


def _member(text: bytes, name: str, limits: JsonLimits) -> int | None:
    try:
        value = parse_json(text, limits)
    except WireError:
        return None
    number = value.get(name) if isinstance(value, dict) else None
    return number if isinstance(number, int) else None


def has_options(features: frozenset[str]) -> bool:
    """Say whether *features*, the options of a ``--help``, are those of some bubblewrap."""
    return features.issuperset(_TELLING_OPTIONS)


def own_words(said: str, *, quoted_chars: int = ExtensionLimits.max_quoted_chars) -> str:
    """Return what an error may quote of what a bwrap *said*: its own line, or all where it has none."""
    return shorten(_line_of(said), quoted_chars)


def _line_of(said: str) -> str:
    line = next((text for text in said.splitlines() if text.startswith(_PREFIX)), said.strip())
    return line[len(_PREFIX) :] if line.startswith(_PREFIX) else line


def explain_refusal(
    said: str,
    *,
    wanted: str,
    surroundings: Surroundings,
    how: str = "",
    quoted_chars: int = ExtensionLimits.max_quoted_chars,
) -> SandboxUnavailable:
    """Turn what a bwrap *said* that could not set up even a sandbox of ours into the error to raise.

    *how* is how it ended, told where the words give no cause.
    """
    name = _refine(_line_of(said), surroundings)
    detail = how if name == "unknown" else ""
    return unavailable(name, wanted=wanted, detail=detail, said=own_words(said, quoted_chars=quoted_chars))


def explain_failure(
    said: str,
    *,
    wanted: str,
    uid: int,
    program: str,
    hops: tuple[Path, ...],
    surroundings: Surroundings,
    pinned: tuple[str, ...] = (),
    how: str = "",
    quoted_chars: int = ExtensionLimits.max_quoted_chars,
) -> LatchError:
    """Turn what a bwrap *said* that ended without running its program into the error to raise.

    As :func:`explain_refusal`, but the program or the plan may be to blame. *hops* are the files the program needs and the sandbox did not show, in the order in which the
    toolchain search passed them: the first is named. *pinned* are the sources that others may swap.
    """
    words = _line_of(said)
    if words.startswith("execvp "):
        return _explain_exec(words, wanted=wanted, program=program, hops=hops)
    swapped = _SWAPPED.match(words)
    if swapped and swapped["place"] in pinned:
        return changed_since_plan(swapped["place"])
    for text in ("Can't find source path", "Can't mkdir", "Can't create file at", "Can't chdir to"):
        if words.startswith(text):
            return _explain_path(words, wanted=wanted, uid=uid)
    if words.startswith("Exceeded maximum number of arguments"):
        return CommandUnusable(
            f"cannot start {wanted}: {words}", status=125, hint="name fewer paths in ro_paths and rw_paths"
        )
    return explain_refusal(said, wanted=wanted, surroundings=surroundings, how=how, quoted_chars=quoted_chars)


def _refine(words: str, surroundings: Surroundings) -> str:
    matching = [cause.name for cause in CAUSES if any(text in words for text in cause.texts)]
    name = matching[0] if matching else "unknown"
    if surroundings.wsl1 and name in (
        "namespaces",
        "landlock",
        "mounts",
        "proc",
        "network",
        "unsupported",
        "unknown",
    ):
        return "wsl1"
    if surroundings.apparmor_restricts and name in ("landlock", "network", "namespaces"):
        return "apparmor"
    if surroundings.container and name in ("namespaces", "mounts", "proc"):
        return "container"
    return name


def _explain_exec(words: str, *, wanted: str, program: str, hops: tuple[Path, ...]) -> LatchError:
    absent = "No such file" in words
    if absent and os.path.exists(program):
        missing = hops[0] if hops else Path(program)
        return CommandUnusable(
            f'cannot start {wanted}: "{program}" exists, but it or what it needs ("{missing}") is not '
            "visible in the sandbox, where the home directory is empty",
            status=127,
            hint=f'add "{missing.parent}" to ro_paths',
        )
    if absent:
        return CommandUnusable(f'cannot start {wanted}: "{program}" was not found', status=127)
    return CommandUnusable(
        f'cannot start {wanted}: "{program}" cannot be executed', status=126, hint=f'run chmod +x "{program}"'
    )


def _explain_path(words: str, *, wanted: str, uid: int) -> LatchError:
    if "Permission denied" in words and uid == 0:
        return CommandUnusable(
            f"cannot start {wanted}: {words}: root inside a sandbox has no right to pass other users' "
            "directories",
            status=125,
            hint="run Latch as the owner of the workspace",
        )
    return CommandUnusable(
        f"cannot start {wanted}: a path of the plan cannot be bound: {words}",
        status=125,
        hint="check that it exists and is readable; latch sandbox --plan shows the plan",
    )
