"""From a command to a running, limited, recorded child inside the sandbox.

:class:`Sandbox` belongs to one configuration. It plans (``plan.py``), finds bubblewrap and probes it
once, sweeps once what dead hosts left, and starts. There is no other way to start anything for a
peer, a model or a skill, and no way round the sandbox.

A start goes: token into the ledger; spawn; process 1 named on the information pipe; limits set and
processes recorded while the child waits at its gate; gate opened. Whatever fails on the way ends the
child before the error leaves.
"""

from __future__ import annotations

import os
import platform
import resource
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping

from ..errors import CommandUnusable, ContainmentError, LatchError, UsageError
from ..limits import DEFAULT, Limits
from ..settings import SandboxSettings
from . import cgroup, kernelcalls, spawner
from .bubblewrap import BASELINE_OPTIONS, Bubblewrap, Surroundings, explain_failure, find_bubblewrap, unavailable
from .child import Child, Pipes
from .files import ensure_directory
from .ledger import TOKEN_VARIABLE, Ledger, sweep
from .machine import Machine
from .plan import Operation, PlanRequest, SandboxPlan, SystemLayout, check_workspace, make_plan, survey
from .processes import identify, own_processes
from .scope import Scope
from .toolchain import (
    SECRET_ENTRIES,
    Toolchain,
    check_bind_source,
    find_toolchain,
    resolve_command,
    toolchain_from_path,
)
from .workspace import WorkspaceView, git_identity, look_at_workspace

__all__ = ["Prepared", "Sandbox"]

# What the probe's shell must print, line by line; see _PROBE_SCRIPT.
_PROBE_SCRIPT = """
while read -r key value; do
  case $key in CapEff:|NoNewPrivs:) echo "$key $value" ;; esac
done < /proc/self/status
read -r name < /proc/1/comm; echo "init: $name"
if (: >> /proc/sys/kernel/core_pattern) 2> /dev/null; then echo "sysctl: open"; else echo "sysctl: closed"; fi
for entry in "$HOME"/* "$HOME"/.[!.]*; do [ ! -e "$entry" ] || echo "home: $entry"; done
"""
_PROBE_ANSWER = ["CapEff: 0000000000000000", "NoNewPrivs: 1", "init: bwrap", "sysctl: closed"]
# Options whose last argument is a path that exists inside.
_SHOWING = ("--bind", "--ro-bind", "--symlink")
# Since this kernel RLIMIT_NPROC counts a user namespace's own tasks (its change is in ucounts).
_NPROC_PER_NAMESPACE = (5, 14)


@dataclass(frozen=True)
class Prepared:
    """A plan with the real path of its workspace, and what is needed to explain why it did not run: what
    was wanted, which program, which files that needs."""

    plan: SandboxPlan
    workspace: str
    wanted: str
    program: str
    hops: tuple[Path, ...]


# NOTE: what is known of a bwrap file, by its path, inode, mtime, our uid and the probed options: facts
# about the machine, shared by every Sandbox of the process, so that each start does not probe again.
_KNOWN: dict[tuple[object, ...], Bubblewrap] = {}
_SWEPT: set[tuple[int, Path]] = set()
_LOCK = threading.Lock()


class Sandbox:
    """Plans and starts sandboxed children for one configuration. Safe to use from several threads."""

    def __init__(
        self, settings: SandboxSettings, *, machine: Machine | None = None, limits: Limits = DEFAULT
    ) -> None:
        self._settings = settings
        self._machine = machine or Machine.read()
        self._limits = limits
        self._state = settings.state_directory or self._machine.state_directory
        self._ledger = Ledger(self._state)
        self._layout: SystemLayout | None = None
        self._bounded: bool | None = None

    @property
    def machine(self) -> Machine:
        """The machine this sandbox plans for."""
        return self._machine

    @property
    def limits(self) -> Limits:
        """The limits this sandbox works under."""
        return self._limits

    @property
    def state_directory(self) -> Path:
        """Where the ledger is kept."""
        return self._state

    # -- planning ---------------------------------------------------------------------------------

    def prepare_peer(
        self,
        wanted: str,
        command: str,
        args: tuple[str, ...],
        *,
        workspace: Path,
        environment: Mapping[str, str],
        ro_paths: tuple[Path, ...] = (),
        rw_paths: tuple[Path, ...] = (),
        network: bool = True,
        in_workspace: bool = False,
        features: frozenset[str],
    ) -> Prepared:
        """Plan an operator's extension or MCP host: read-only workspace, a private directory of its own.

        *wanted* names it in errors. Raises :class:`CommandUnusable`, :class:`Denied`,
        :class:`ContainmentError` and :class:`UsageError`.
        """
        real = self._check_workspace(workspace)
        program = resolve_command(command, search_path=self._machine.search_path, outside=real)
        toolchain = find_toolchain(
            program,
            args=args,
            home=self._machine.home,
            search_path=self._machine.search_path,
            visible=self._survey().visible,
            workspace=real,
        )
        request = PlanRequest(
            argv=(str(toolchain.program), *args),
            workspace=real,
            view=look_at_workspace(real, uid=self._machine.uid),
            toolchain=toolchain,
            network=network,
            private_directory=True,
            in_workspace=in_workspace,
            environment=environment,
            ro_paths=ro_paths,
            rw_paths=rw_paths,
        )
        return self._plan(request, wanted=wanted, program=str(program), features=features)

    def prepare_command(
        self,
        argv: tuple[str, ...],
        *,
        workspace: Path,
        writable: bool,
        network: bool,
        git_metadata: bool = False,
        features: frozenset[str],
    ) -> Prepared:
        """Plan one command in *workspace*; toolchains come from the operator's PATH alone (T2)."""
        if not argv or not argv[0]:
            raise UsageError("no command was given")
        real = self._check_workspace(workspace)
        toolchain = toolchain_from_path(self._machine.search_path, home=self._machine.home, workspace=real)
        visible = argv[0] if "/" in argv[0] else self._visible_program(argv[0], toolchain, real)
        request = PlanRequest(
            argv=(visible, *argv[1:]),
            workspace=real,
            view=look_at_workspace(
                real, uid=self._machine.uid, writable=writable, git_metadata=git_metadata
            ),
            toolchain=toolchain,
            writable=writable,
            network=network,
            environment=git_identity(self._machine, real) if writable and git_metadata else {},
        )
        program = os.path.join(real, visible)
        return self._plan(request, wanted=f'command "{argv[0]}"', program=program, features=features)

    def _plan(self, request: PlanRequest, *, wanted: str, program: str, features: frozenset[str]) -> Prepared:
        machine, hidden = self._machine, self._hidden()
        private = tuple(path for path in hidden if path != request.workspace)

        def checked(paths: tuple[Path, ...], what: str, *, writable: bool = False) -> tuple[Path, ...]:
            return tuple(
                check_bind_source(path, home=machine.home, private=private, what=what, writable=writable)
                for path in paths
            )

        request = replace(
            request,
            toolchain=replace(request.toolchain, roots=checked(request.toolchain.roots, "toolchain root")),
            ro_paths=checked(request.ro_paths, "ro_paths"),
            rw_paths=self._check_writable(checked(request.rw_paths, "rw_paths", writable=True), request.workspace),
            hidden=(*hidden, *self._secrets()),
            resources=self._settings.resources,
        )
        plan = make_plan(request, self._survey(), machine, features)
        if not self._bounds_processes():
            plan = replace(plan, missing=(*plan.missing, "no process limit (root)"))
        return Prepared(
            plan=plan,
            workspace=str(request.workspace),
            wanted=wanted,
            program=program,
            hops=request.toolchain.hops,
        )

    def _visible_program(self, name: str, toolchain: Toolchain, workspace: Path) -> str:
        found = resolve_command(name, search_path=self._machine.search_path, outside=None)
        links = [Path(link) for _, link in toolchain.links]
        shown = (*self._survey().visible, *toolchain.roots, *links, workspace)
        if any(root == found or root in found.parents for root in shown):
            return str(found)
        # NOTE: never let it fall through to a system program of the same name.
        raise CommandUnusable(
            f'command "{name}" is "{found}" on this machine, which is not visible in the sandbox',
            status=127,
            hint=f'move "{found.parent}" out of the home directory, or name the program by its system path',
        )

    def _check_workspace(self, workspace: Path) -> Path:
        real = Path(os.path.realpath(workspace))
        try:
            status = os.stat(real)
        except OSError as error:
            raise UsageError(f'workspace "{workspace}": {error.strerror}', hint="choose one with -C") from error
        if not os.path.isdir(real):
            raise UsageError(f'workspace "{workspace}" is not a directory', hint="choose one with -C")
        check_workspace(real, self._survey().home)
        state = Path(os.path.realpath(self._state))
        if real == state:
            raise UsageError(f'workspace "{workspace}" is the state directory', hint="choose another with -C")
        if status.st_uid != self._machine.uid:
            raise UsageError(
                f'workspace "{workspace}" belongs to user {status.st_uid} and this is user {self._machine.uid}: inside '
                "the sandbox not even root may use another user's files",
                hint="run Latch as the owner of the workspace, or give it to this user with chown",
            )
        for secret in (*self._credentials(), *self._secrets()):
            if real == secret or secret in real.parents:
                if state in real.parents and secret in (state, *state.parents):
                    # NOTE: a worktree that we keep below our own state is masked around, not refused.
                    continue
                raise UsageError(
                    f'workspace "{workspace}" is or lies in "{secret}", which holds configuration or credentials',
                    hint="choose another workspace with -C, or move that directory",
                )
        file = self._settings.config_file
        if file is not None and real in Path(os.path.realpath(file)).parents:
            raise UsageError(
                f'configuration file "{file}" lies in the workspace "{workspace}", where a repository could write it',
                hint="move it out of the workspace, for example to ~/.latch/config.toml",
            )
        return real

    def _check_writable(self, paths: tuple[Path, ...], workspace: Path) -> tuple[Path, ...]:
        for path in paths:
            if path == workspace or workspace in path.parents or path in workspace.parents:
                raise ContainmentError(
                    str(path),
                    f'rw_paths may not be, lie in or contain the workspace "{workspace}"',
                    hint="name a directory for the extension's own data",
                )
        return paths

    def _credentials(self) -> tuple[Path, ...]:
        machine = self._machine
        known = (machine.latch_directory, machine.latchkey_directory, *self._settings.credential_directories)
        return tuple(dict.fromkeys(Path(os.path.realpath(path)) for path in known))

    def _hidden(self) -> tuple[Path, ...]:
        others = (self._state, *self._settings.private_directories)
        return tuple(dict.fromkeys((*self._credentials(), *[Path(os.path.realpath(path)) for path in others])))

    def _secrets(self) -> tuple[Path, ...]:
        """Return the real directories of the home's credentials, for where a bind would show them."""
        home = self._survey().home
        found = []
        for pattern in SECRET_ENTRIES:
            for place in home.glob(pattern) if "*" in pattern else [home / pattern]:
                real = Path(os.path.realpath(place))
                directory = real if real.is_dir() else real.parent
                if os.path.lexists(place) and not self._is_common(directory):
                    found.append(directory)
        return tuple(dict.fromkeys(found))

    def _is_common(self, directory: Path) -> bool:
        """Say whether *directory* holds the home, which is not shown, or has to do with a tree that all can read."""
        home, trees = self._survey().home, self._survey().visible
        return directory in (home, *home.parents) or any(
            directory in (tree, *tree.parents) or tree in directory.parents for tree in trees
        )

    def _survey(self) -> SystemLayout:
        if self._layout is None:
            self._layout = survey(self._machine)
        return self._layout

    # -- bubblewrap -------------------------------------------------------------------------------

    def ready(self, scope: Scope, *, wanted: str, workspace: Path | None = None, network: bool = True) -> Bubblewrap:
        """Return a bubblewrap that was seen to work with the options in use, or say why there is none.

        The first call of a process with a given bwrap probes it, and sweeps what dead hosts left.
        Raises :class:`SandboxUnavailable` and what *scope* raises.
        """
        path = find_bubblewrap(self._settings.bwrap, self._machine, workspace=workspace, wanted=wanted)
        status = os.stat(path)
        key = (path, status.st_ino, status.st_mtime_ns, self._machine.uid, self._machine.home, network)
        with _LOCK:
            known = _KNOWN.get(key)
            unswept = (os.getpid(), self._state) not in _SWEPT
            _SWEPT.add((os.getpid(), self._state))
        if unswept:
            self.sweep(scope)
        if known is None:
            known = self._probe(path, scope, wanted=wanted, network=network)
            with _LOCK:
                _KNOWN[key] = known
        return known

    def sweep(self, scope: Scope) -> None:
        """End what killed hosts of this state directory left; see ``ledger.py``."""
        sweep(self._state, uid=self._machine.uid, limits=self._limits.process, scope=scope)

    def _probe(self, path: Path, scope: Scope, *, wanted: str, network: bool) -> Bubblewrap:
        within = scope.within(self._limits.process.probe_seconds, peer="bwrap", stage="probe")
        try:
            help_text = _run_plain((str(path), "--help"), within)
            features = frozenset(word for word in help_text.split() if word.startswith("--"))
            lacking = [option for option in BASELINE_OPTIONS if option not in features]
            if lacking:
                raise unavailable("too old", wanted=wanted, detail=f"no {' '.join(lacking)}")
            version = _run_plain((str(path), "--version"), within).strip()
            found = Bubblewrap(path=path, version=version.rpartition(" ")[2], features=features)
            self._probe_inside(found, within, wanted=wanted, network=network)
        except TimeoutError as error:
            scope.check()
            raise unavailable("hang", wanted=wanted) from error
        except OSError as error:
            raise unavailable("unknown", wanted=wanted, detail=str(error.strerror)) from error
        return found

    def _probe_inside(self, bubblewrap: Bubblewrap, scope: Scope, *, wanted: str, network: bool) -> None:
        request = PlanRequest(
            argv=("/bin/sh", "-c", _PROBE_SCRIPT),
            workspace=None,
            view=WorkspaceView(),
            toolchain=Toolchain(roots=(), links=(), path_entries=(), hops=(), program=Path("/bin/sh")),
            network=network,
            private_directory=True,
            in_workspace=False,
            resources=self._settings.resources,
        )
        plan = make_plan(request, self._survey(), self._machine, bubblewrap.features)
        prepared = Prepared(plan=plan, workspace="", wanted=wanted, program="/bin/sh", hops=())
        said = bytearray()
        child = self._start(bubblewrap, prepared, scope, stdin=None)
        child.on_idle = said.extend
        try:
            with child.driving():
                child.wait_exit(scope)
        finally:
            ended = child.end(scope.shielded(self._limits.process.kill_seconds))
        if not ended.executed:
            raise self._explain(child.stderr_text(), prepared)
        answer = bytes(said).decode("ascii", "replace").split("\n")[:-1]
        wrong = [line for line in answer if line not in _PROBE_ANSWER]
        wrong += [f"no {line}" for line in _PROBE_ANSWER if line not in answer]
        if wrong or ended.status != 0:
            raise unavailable("unsound", wanted=wanted, detail="; ".join(wrong) or str(ended))

    # -- starting ---------------------------------------------------------------------------------

    def start(self, prepared: Prepared, scope: Scope, *, stdin: int | None = None) -> Child:
        """Start what was prepared and return the child, past its gate. The caller drives and ends it.

        *stdin* is a descriptor to inherit instead of a pipe; it stays the caller's. The plan's own
        features must be those of :meth:`ready`. Raises :class:`SandboxUnavailable`,
        :class:`CommandUnusable`, :class:`StoreError` and what *scope* raises; nothing is left running.
        """
        bubblewrap = self.ready(
            scope, wanted=prepared.wanted, workspace=Path(prepared.workspace), network=prepared.plan.network
        )
        return self._start(bubblewrap, prepared, scope, stdin=stdin)

    def explain(self, child: Child, prepared: Prepared) -> LatchError | None:
        """Return why an ended *child* never ran its program, or None when it did."""
        if child.exit is None or child.exit.executed:
            return None
        return self._explain(child.stderr_text(), prepared)

    def _explain(self, stderr: str, prepared: Prepared) -> LatchError:
        return explain_failure(
            stderr,
            wanted=prepared.wanted,
            uid=self._machine.uid,
            program=prepared.program,
            hops=self._hidden_hops(prepared),
            surroundings=Surroundings.look(),
        )

    def _hidden_hops(self, prepared: Prepared) -> tuple[Path, ...]:
        """Return what of the files that the program needs the plan does not show."""
        shown = [Path(one.arguments[-1]) for one in prepared.plan.operations if one.option in _SHOWING]
        hops = prepared.hops or self._hops_of_command(prepared)
        return tuple(hop for hop in hops if not any(place == hop or place in hop.parents for place in shown))

    def _hops_of_command(self, prepared: Prepared) -> tuple[Path, ...]:
        # NOTE: for the message alone; what a command names opens nothing (T2).
        try:
            return find_toolchain(
                Path(prepared.program),
                home=self._machine.home,
                search_path=self._machine.search_path,
                visible=self._survey().visible,
                workspace=Path(prepared.workspace),
            ).hops
        except LatchError:
            return ()

    def _start(self, bubblewrap: Bubblewrap, prepared: Prepared, scope: Scope, *, stdin: int | None) -> Child:
        for path in prepared.plan.required:
            if not path.exists():
                ensure_directory(path)
        token = self._ledger.begin(prepared.wanted)
        pipes, request = _pipes_and_request(bubblewrap, prepared.plan, token, stdin)
        try:
            process = spawner.spawn(request, scope)
        except OSError as error:
            pipes.close()
            self._ledger.ended(token)
            raise unavailable("unknown", wanted=prepared.wanted, detail=str(error.strerror)) from error
        except BaseException:
            # NOTE: the entry stays open, because the spawner thread may only now be ending the process.
            pipes.close()
            raise
        group = self._make_group(token, prepared.plan)
        child = Child(
            process,
            pipes,
            token_entry=f"{TOKEN_VARIABLE}={token}".encode(),
            limits=self._limits.process,
            on_end=lambda: self._finish(token, group),
        )
        try:
            self._pass_gate(child, token, group, prepared, scope)
        except BaseException:
            child.end(scope.shielded(self._limits.process.kill_seconds))
            raise
        return child

    def _pass_gate(self, child: Child, token: str, group: Path | None, prepared: Prepared, scope: Scope) -> None:
        init = child.read_init_pid(scope)
        if init is None:
            child.end(scope.shielded(self._limits.process.kill_seconds))
            raise self._explain(child.stderr_text(), prepared)
        try:
            for limit, value in self._resource_limits(prepared.plan):
                kernelcalls.set_limit(init, limit, value)
        except ProcessLookupError:
            child.end(scope.shielded(self._limits.process.kill_seconds))
            raise self._explain(child.stderr_text(), prepared) from None
        if group is not None:
            cgroup.enter_pids_group(group, init)
        self._ledger.started(
            token,
            init=identify(init),
            monitor=identify(child.monitor_pid),
            group=None if group is None else str(group),
        )
        child.open_gate()

    def _resource_limits(self, plan: SandboxPlan) -> list[tuple[int, int]]:
        resources = plan.resources
        return [
            (resource.RLIMIT_NPROC, resources.max_processes + self._present_tasks()),
            (resource.RLIMIT_NOFILE, resources.max_open_files),
            (resource.RLIMIT_CORE, resources.max_core_bytes),
            (resource.RLIMIT_FSIZE, resources.max_file_bytes),
        ]

    def _present_tasks(self) -> int:
        numbers = platform.release().split("-")[0].split(".")
        if tuple(int(number) for number in numbers[:2] if number.isdigit()) >= _NPROC_PER_NAMESPACE:
            return 0
        return sum(_tasks_of(pid) for pid in own_processes(self._machine.uid))

    def _bounds_processes(self) -> bool:
        """Say whether the number of processes can be bounded, which for root takes a control group."""
        if self._bounded is None:
            name = f"latch-plan-{os.getpid()}-{threading.get_ident()}"
            group = None if self._machine.uid != 0 else cgroup.make_pids_group(name, 1)
            if group is not None:
                cgroup.remove_pids_group(group)
            self._bounded = group is not None or self._machine.uid != 0
        return self._bounded

    def _make_group(self, token: str, plan: SandboxPlan) -> Path | None:
        if self._machine.uid != 0:
            return None
        # One more than the program may have: bubblewrap's own process 1 is in the group.
        return cgroup.make_pids_group(f"latch-{token}", plan.resources.max_processes + 1)

    def _finish(self, token: str, group: Path | None) -> None:
        if group is not None:
            cgroup.remove_pids_group(group)
        self._ledger.ended(token)


def _pipes_and_request(
    bubblewrap: Bubblewrap, plan: SandboxPlan, token: str, stdin: int | None
) -> tuple[Pipes, spawner.SpawnRequest]:
    inherited: list[int] = []
    pipes = Pipes()
    child_stdin = os.dup(stdin) if stdin is not None else -1
    if stdin is None:
        child_stdin, pipes.stdin = os.pipe()
    pipes.stdout, child_stdout = os.pipe()
    pipes.stderr, child_stderr = os.pipe()
    pipes.info, child_info = os.pipe()
    pipes.status, child_status = os.pipe()
    child_gate, pipes.gate = os.pipe()
    # NOTE: the sandbox holds the gate's write end itself: a dead host must not open it by an end of file.
    child_hold = os.dup(pipes.gate)
    inherited += [child_info, child_status, child_gate, child_hold]
    own = [
        "--info-fd", str(child_info), "--json-status-fd", str(child_status),
        "--block-fd", str(child_gate), "--sync-fd", str(child_hold),
    ]  # fmt: skip
    words: list[str] = []
    for operation in plan.operations:
        words.append(operation.option)
        if operation.content is not None:
            descriptor = _memory_file(_content(operation))
            inherited.append(descriptor)
            words.append(str(descriptor))
        words += operation.arguments
    options = _memory_file(b"".join(os.fsencode(word) + b"\0" for word in [*own, *words]))
    inherited.append(options)
    request = spawner.SpawnRequest(
        argv=(str(bubblewrap.path), "--args", str(options), "--", *plan.argv),
        environment={TOKEN_VARIABLE: token},
        stdin=child_stdin,
        stdout=child_stdout,
        stderr=child_stderr,
        descriptors=tuple(inherited),
    )
    return pipes, request


def _content(operation: Operation) -> bytes:
    if isinstance(operation.content, bytes):
        return operation.content
    try:
        with open(str(operation.content), "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _memory_file(content: bytes) -> int:
    # NOTE: a file, not a pipe: its content may be larger than a pipe holds, and wrappers re-read it.
    descriptor = os.memfd_create("latch", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _run_plain(argv: tuple[str, ...], scope: Scope) -> str:
    """Run bubblewrap itself for what it says about itself; it starts nothing with these options."""
    output, child_output = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        process = spawner.spawn(
            spawner.SpawnRequest(argv=argv, environment={}, stdin=null, stdout=child_output, stderr=child_output), scope
        )
        said = bytearray()
        try:
            while True:
                scope.wait([output])
                chunk = os.read(output, 65536)
                if not chunk:
                    break
                said += chunk
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(output)
    return said.decode("utf-8", "replace")


def _tasks_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
