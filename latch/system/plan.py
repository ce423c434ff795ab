"""The sandbox as an ordered list of plain operations. Order is policy.

:func:`make_plan` is pure: the same request, layout and features give the same operations, which
tests compare and ``latch doctor --plan`` prints. :func:`survey` is the half that looks at the disk:
it finds how this system is laid out and what of ``/etc`` exists.

The root is an allow-list: a fresh tmpfs that holds the system's programs, a small ``/etc``, private
scratch directories, an empty home, what the operator named, and the workspace. Nothing is hidden by
name; what is not listed is not there. Masks exist only for private directories that a bind would
otherwise show. Reasons stand beside each operation; reference numbers (T..) are security.md's.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Iterable, Mapping

from ..errors import ContainmentError, UsageError
from ..limits import ResourceLimits
from .bubblewrap import HARDENING_OPTIONS
from .cgroup import NO_LIMIT
from .files import read_head
from .ledger import TOKEN_VARIABLE
from .machine import DEFAULT_PATH, Machine
from .paths import lies_in
from .toolchain import Toolchain
from .workspace import WorkspaceView

__all__ = [
    "PEER_DIRECTORY",
    "Operation",
    "PlanRequest",
    "SandboxPlan",
    "SystemLayout",
    "check_workspace",
    "make_plan",
    "survey",
]

PEER_DIRECTORY = "/run/peer"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Toolchain roots that whole distributions keep outside /usr; none holds anything of a user.
_SYSTEM_ROOTS = (
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    "/etc/static",
    "/home/linuxbrew/.linuxbrew",
)
# What programs need of /etc. Files are copied (a copy costs no mount), directories are bound.
_ETC = (
    "ld.so.cache ld.so.conf ld.so.conf.d alternatives nsswitch.conf hosts host.conf gai.conf services "
    "protocols localtime timezone os-release mime.types fonts crypto-policies ssl/certs ssl/openssl.cnf "
    "ssl/cert.pem pki/tls pki/ca-trust ca-certificates ca-certificates.conf resolv.conf"
).split()
_HOST_VALUES = ("TZ", "TERM")


@dataclass(frozen=True)
class Operation:
    """One option of bubblewrap with its arguments, and why it is there.

    ``content`` is set for an operation that copies a file: a path to read at the start, or the bytes.
    ``pinned`` is set for a bind whose source others may swap after it was judged (security.md T1, T3): it
    must still be of this ``kind`` (0 for any), at this very path, when it is mounted.
    """

    option: str
    arguments: tuple[str, ...] = ()
    reason: str = ""
    content: str | bytes | None = None
    pinned: bool = False
    kind: int = 0

    def __str__(self) -> str:
        source = f" < {self.content}" if isinstance(self.content, str) else ""
        return " ".join([self.option, *self.arguments]) + source


@dataclass(frozen=True)
class SystemLayout:
    """How this system is laid out, as :func:`survey` found it.

    ``home`` is the operator's real home; ``home_links`` recreate the links on the way to it.
    ``missing`` says what of the system exists and cannot be shown.
    """

    system: tuple[Operation, ...]
    visible: tuple[Path, ...]
    home: Path
    home_links: tuple[Operation, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanRequest:
    """What is to run and what it may see.

    ``workspace`` is a real path, or None for a sandbox without one (the probe). ``writable`` opens the
    workspace for writing; ``network`` shares the network; ``private_directory`` starts in ``/run/peer``
    (hosts) instead of the workspace (commands). ``environment`` is what the operator hands in.
    ``hidden`` are the directories to mask. ``bounded`` is whether the number of processes can be bounded
    here.
    """

    argv: tuple[str, ...]
    workspace: Path | None
    view: WorkspaceView
    toolchain: Toolchain
    writable: bool = False
    network: bool = False
    private_directory: bool = False
    in_workspace: bool = True
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ro_paths: tuple[Path, ...] = ()
    rw_paths: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    resources: ResourceLimits = field(default_factory=ResourceLimits)
    bounded: bool = True


@dataclass(frozen=True)
class SandboxPlan:
    """An ordered list of operations, the command, and what the plan cannot give on this host.

    ``required`` are directories that must exist before the start, because a mask needs its place.
    """

    operations: tuple[Operation, ...]
    argv: tuple[str, ...]
    required: tuple[Path, ...]
    missing: tuple[str, ...]
    network: bool
    resources: ResourceLimits

    @property
    def argument_count(self) -> int:
        """How many words bubblewrap is given for this plan, options and command."""
        words = sum(1 + (one.content is not None) + len(one.arguments) for one in self.operations)
        return words + len(self.argv)

    def lines(self) -> list[str]:
        """Return the plan for a person: one operation a line, its reason behind it."""
        shown = [
            f"{operation}  # {operation.reason}" if operation.reason else str(operation)
            for operation in self.operations
        ]
        reach = (
            "network: everything this machine reaches, its own services and metadata addresses included"
            if self.network
            else "network: none"
        )
        return [*shown, "-- " + " ".join(self.argv), reach, *[f"missing: {text}" for text in self.missing]]


def survey(machine: Machine, *, root: Path = Path("/")) -> SystemLayout:
    """Look at the disk and return the system's layout. *root* is a seam for tests."""
    operations = [Operation("--ro-bind", ("/usr", "/usr"), "the system's programs and libraries")]
    visible = [Path("/usr")]
    for name in _MERGED:
        path = root / name
        if os.path.islink(path):
            operations.append(Operation("--symlink", (os.readlink(path), f"/{name}"), "as on this system"))
            visible.append(Path("/", name))
        elif os.path.isdir(path):
            operations.append(Operation("--ro-bind", (f"/{name}", f"/{name}"), "as on this system"))
            visible.append(Path("/", name))
    links = _links_towards(machine.home, root)
    for name in _SYSTEM_ROOTS:
        if os.path.exists(root / name.lstrip("/")):
            # NOTE: below a link that is recreated there is nothing to mount at.
            place = _through(links, name)
            operations.append(Operation("--ro-bind", (place, place), "the distribution's programs"))
            visible += dict.fromkeys((Path(name), Path(place)))
    missing: list[str] = []
    for name in _ETC:
        operations += _etc_entry(root / "etc" / name, f"/etc/{name}", missing)
    return SystemLayout(
        system=tuple(operations),
        visible=tuple(visible),
        home=_real(machine.home, root),
        home_links=tuple(links),
        missing=tuple(missing),
    )


def _links_towards(path: Path, root: Path) -> list[Operation]:
    """Recreate the links on the way to *path* (``/home -> /var/home``), so that its name exists inside."""
    links, place = [], Path("/")
    for part in path.parts[1:]:
        place = place / part
        if os.path.islink(root / str(place).lstrip("/")):
            target = _real(place, root)
            links.append(Operation("--symlink", (str(target), str(place)), "as on this system"))
            place = target
    return links


def _real(path: Path, root: Path) -> Path:
    """Return where *path* really is, as seen from *root*."""
    real = os.path.realpath(root / str(path).lstrip("/"))
    return Path("/", os.path.relpath(real, os.path.realpath(root)))


def _through(links: list[Operation], path: str) -> str:
    """Return where *path* really is, as far as *links* lead."""
    for target, place in (link.arguments for link in links):
        if lies_in(path, place):
            path = os.path.join(target, os.path.relpath(path, place)) if path != place else target
    return path


def _etc_entry(path: Path, shown: str, missing: list[str]) -> list[Operation]:
    # NOTE: the real path as source, because resolv.conf and others are links out of /etc.
    real = os.path.realpath(path)
    if os.path.isdir(real):
        return [Operation("--ro-bind", (real, shown))]
    if not os.path.exists(real):
        return []
    try:
        # NOTE: read, because a permission does not say whether a file can be read.
        read_head(Path(real), max_bytes=1)
    except ContainmentError as error:
        missing.append(f"{shown} is not shown: {error}")
        return []
    return [Operation("--file", (shown,), content=real)]


def make_plan(
    request: PlanRequest, layout: SystemLayout, machine: Machine, features: frozenset[str]
) -> SandboxPlan:
    """Return the plan for *request* with the options that *features* (bubblewrap's own list) allow.

    Pure. Raises :class:`UsageError` for a workspace whose bind would undo the masks.
    """
    if request.workspace is not None:
        check_workspace(request.workspace, layout.home)
    missing = [*layout.missing, *([] if request.bounded else [NO_LIMIT])]
    masks = _masks(request, layout)
    operations = [
        *_namespaces(request),
        *_kernel_views(request, machine),
        *_scratch(request),
        # NOTE: before the binds, which may lie below what they point to and could not be undone.
        *layout.home_links,
        *layout.system,
        *_identity(machine),
        *_tmpfs(_home_place(layout.home), "0700", request.resources.home_bytes, "an empty home"),
        *_binds(request, masks),
        *_seals(masks),
        *_environment(request, layout, machine),
        Operation("--chdir", (_directory(request),)),
    ]
    kept = [operation for operation in operations if _usable(operation, features, missing)]
    return SandboxPlan(
        operations=tuple(kept),
        argv=request.argv,
        required=(*[path for path, _ in masks], *request.view.required),
        missing=tuple(dict.fromkeys(missing)),
        network=request.network,
        resources=request.resources,
    )


def check_workspace(workspace: Path, home: Path) -> None:
    """Raise :class:`UsageError` for a *workspace* whose bind would show the *home*, or everything.

    Both are real paths.
    """
    if workspace == Path("/"):
        raise UsageError(
            'workspace "/": it would show the whole machine',
            hint="choose the directory of one project with -C",
        )
    if workspace == home or workspace in home.parents:
        raise UsageError(
            f'workspace "{workspace}": it is or contains your home directory, so nothing in it would be '
            "hidden",
            hint="choose a directory below it with -C",
        )


def _namespaces(request: PlanRequest) -> list[Operation]:
    operations = [
        # NOTE: not --unshare-all, which goes on without a user namespace when root may not make one.
        Operation("--unshare-user"),
        Operation("--unshare-pid", reason="one kill ends the whole tree"),
        Operation("--unshare-ipc"),
        Operation("--unshare-uts"),
        Operation("--unshare-cgroup-try"),
    ]
    if not request.network:
        operations.append(Operation("--unshare-net", reason="no network, no abstract sockets"))
    return [
        *operations,
        Operation("--disable-userns", reason="no namespaces inside"),
        Operation("--cap-drop", ("ALL",), "root keeps every capability otherwise"),
        Operation("--die-with-parent"),
        Operation("--new-session", reason="no keystrokes into our terminal"),
        Operation("--hostname", ("sandbox",)),
    ]


def _identity(machine: Machine) -> list[Operation]:
    user, shell = machine.user, "/bin/sh"
    passwd = f"{user}:x:{machine.uid}:{machine.gid}::{machine.home}:{shell}\n"
    passwd += f"nobody:x:65534:65534::/:{shell}\n"
    group = f"{user}:x:{machine.gid}:\nnogroup:x:65534:\n"
    return [
        Operation("--file", ("/etc/passwd",), "two users, not the host's list", os.fsencode(passwd)),
        Operation("--file", ("/etc/group",), "", os.fsencode(group)),
    ]


def _kernel_views(request: PlanRequest, machine: Machine) -> list[Operation]:
    operations = [Operation("--proc", ("/proc",))]
    if machine.uid == 0:
        operations.append(
            Operation("--ro-bind", ("/proc/sys", "/proc/sys"), "sysctls ask for uid 0, not for a capability")
        )
    return [*operations, Operation("--dev", ("/dev",))]


def _scratch(request: PlanRequest) -> list[Operation]:
    resources = request.resources
    operations = [
        *_tmpfs("/dev/shm", "1777", resources.shm_bytes),
        *_tmpfs("/tmp", "1777", resources.tmp_bytes),
        *_tmpfs("/var/tmp", "1777", resources.var_tmp_bytes),
        Operation("--dir", ("/run",)),
    ]
    if request.private_directory:
        operations += _tmpfs(PEER_DIRECTORY, "0700", resources.peer_bytes, "the peer's own directory")
    return operations


def _home_place(home: Path) -> str:
    # NOTE: a daemon's home may be "/" or a directory of the system's programs, which must not be covered.
    return "/home/user" if home == Path("/") or Path("/usr") in (home, *home.parents) else str(home)


def _tmpfs(path: str, mode: str, size: int, reason: str = "") -> list[Operation]:
    return [
        Operation("--perms", (mode,)),
        Operation("--size", (str(size),)),
        Operation("--tmpfs", (path,), reason),
    ]


def _binds(request: PlanRequest, masks: list[tuple[Path, bool]]) -> list[Operation]:
    """Binds and masks together, parents first; at one path the mask comes last and wins."""
    placed: list[tuple[int, int, tuple[Operation, ...]]] = []

    def place(rank: int, path: Path, *operations: Operation) -> None:
        placed.append((len(path.parts), rank, operations))

    for root in request.toolchain.roots:
        # NOTE: a command's are found in the home by table, and may be many.
        place(0, root, _bind(root, "toolchain", pinned=request.private_directory))
    for source in request.ro_paths:
        place(0, source, _bind(source, "ro_paths"))
    for source in request.rw_paths:
        place(1, source, _bind(source, "rw_paths", writable=True))
    if request.workspace is not None:
        workspace = _bind(request.workspace, "the workspace", writable=request.writable, kind=stat.S_IFDIR)
        place(2, request.workspace, workspace)
    for one in request.view.protections:
        place(3, one.path, _bind(one.path, one.reason, writable=one.writable, kind=one.kind))
    for hidden, sealed in masks:
        place(
            4,
            hidden,
            Operation("--perms", ("0000" if sealed else "0755",)),
            Operation("--tmpfs", (str(hidden),), "private: masked (T11)"),
        )
    placed.sort(key=lambda item: item[:2])
    links = [Operation("--symlink", (target, path), "toolchain") for target, path in request.toolchain.links]
    return [*[operation for *_, group in placed for operation in group], *links]


def _bind(
    path: Path, reason: str, *, writable: bool = False, kind: int = 0, pinned: bool = True
) -> Operation:
    return Operation(
        "--bind" if writable else "--ro-bind", (str(path), str(path)), reason, pinned=pinned, kind=kind
    )


def _masks(request: PlanRequest, layout: SystemLayout) -> list[tuple[Path, bool]]:
    """The private directories that a bind shows, each with whether nothing is bound inside it."""
    binds = [*request.toolchain.roots, *request.ro_paths, *request.rw_paths, *layout.visible]
    binds += [protection.path for protection in request.view.protections]
    if request.workspace is not None:
        binds.append(request.workspace)
    masks: list[tuple[Path, bool]] = []
    for path in sorted(set(request.hidden)):
        # NOTE: below a closed mask nothing can be mounted, and nothing needs to be.
        closed = any(sealed and mask in path.parents for mask, sealed in masks)
        if not closed and any(bind == path or bind in path.parents for bind in binds):
            masks.append((path, not any(path in bind.parents for bind in binds)))
    return masks


def _seals(masks: list[tuple[Path, bool]]) -> list[Operation]:
    return [
        *[Operation("--remount-ro", (str(path),)) for path, _ in masks],
        Operation("--remount-ro", ("/dev",), "no files without a size limit"),
        Operation("--remount-ro", ("/",), "the root is sealed"),
    ]


def _environment(request: PlanRequest, layout: SystemLayout, machine: Machine) -> list[Operation]:
    known = machine.environment
    values = {
        "PATH": _path(request),
        "HOME": (
            str(machine.home) if _home_place(layout.home) == str(layout.home) else _home_place(layout.home)
        ),
        "USER": machine.user,
        "LOGNAME": machine.user,
        "SHELL": "/bin/sh",
        "LANG": known.get("LANG") or "C.UTF-8",
        "LC_ALL": known.get("LC_ALL") or "C.UTF-8",
        "TMPDIR": "/tmp",
        "LATCH_SANDBOX": "1",
        **({} if request.workspace is None else {"LATCH_WORKSPACE": str(request.workspace)}),
        **{name: known[name] for name in _HOST_VALUES if known.get(name)},
        **request.environment,
    }
    return [
        Operation("--clearenv"),
        Operation("--unsetenv", (TOKEN_VARIABLE,)),
        *[Operation("--setenv", (name, value)) for name, value in values.items()],
    ]


def _path(request: PlanRequest) -> str:
    entries: Iterable[str] = dict.fromkeys(str(entry) for entry in request.toolchain.path_entries)
    return ":".join(entries) or DEFAULT_PATH


def _directory(request: PlanRequest) -> str:
    in_workspace = request.in_workspace and request.workspace is not None
    return str(request.workspace) if in_workspace else PEER_DIRECTORY


def _usable(operation: Operation, features: frozenset[str], missing: list[str]) -> bool:
    lacking = operation.option in HARDENING_OPTIONS and operation.option not in features
    if lacking:
        missing.append(f"this bubblewrap has no {operation.option}: {HARDENING_OPTIONS[operation.option]}")
    return not lacking
