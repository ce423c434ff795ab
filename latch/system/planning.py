"""From what somebody wants to run to a plan: the program and its toolchain found, every path judged.

Looks at the disk and starts nothing. The plan itself is put together by ``plan.py``, purely.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping

from ..errors import CommandUnusable, ContainmentError, LatchError, UsageError
from ..settings import SandboxSettings
from . import cgroup
from .bindsources import SECRET_ENTRIES, check_bind_source
from .machine import Machine
from .plan import PlanRequest, SandboxPlan, SystemLayout, check_workspace, make_plan, survey
from .toolchain import Toolchain, find_toolchain, resolve_command, toolchain_from_path
from .workspace import git_identity, look_at_workspace

__all__ = ["Planner", "Prepared"]

# Options whose last argument is a path that exists inside.
_SHOWING = ("--bind", "--ro-bind", "--symlink")


@dataclass(frozen=True)
class Prepared:
    """A plan with the real path of its workspace, and what is needed to explain why it did not run: what
    was wanted, which program, which files that needs."""

    plan: SandboxPlan
    workspace: str
    wanted: str
    program: str
    hops: tuple[Path, ...]


class Planner:
    """Plans for one configuration on one machine. Safe to use from several threads."""

    def __init__(self, settings: SandboxSettings, machine: Machine) -> None:
        self._settings = settings
        self._machine = machine
        self._state = settings.state_directory or machine.state_directory
        self._known_layout: SystemLayout | None = None
        self._bounded: bool | None = None

    @property
    def layout(self) -> SystemLayout:
        """How the system is laid out, looked at once."""
        if self._known_layout is None:
            self._known_layout = survey(self._machine)
        return self._known_layout

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
            visible=self.layout.visible,
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
            view=look_at_workspace(real, uid=self._machine.uid, writable=writable, git_metadata=git_metadata),
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
            rw_paths=self._check_writable(
                checked(request.rw_paths, "rw_paths", writable=True), request.workspace
            ),
            hidden=(*hidden, *self._secrets()),
            resources=self._settings.resources,
        )
        plan = make_plan(request, self.layout, machine, features)
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
        shown = (*self.layout.visible, *toolchain.roots, *links, workspace)
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
            raise UsageError(
                f'workspace "{workspace}": {error.strerror}', hint="choose one with -C"
            ) from error
        if not os.path.isdir(real):
            raise UsageError(f'workspace "{workspace}" is not a directory', hint="choose one with -C")
        check_workspace(real, self.layout.home)
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
        return tuple(
            dict.fromkeys((*self._credentials(), *[Path(os.path.realpath(path)) for path in others]))
        )

    def _secrets(self) -> tuple[Path, ...]:
        """Return the real directories of the home's credentials, for where a bind would show them."""
        home = self.layout.home
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
        home, trees = self.layout.home, self.layout.visible
        return directory in (home, *home.parents) or any(
            directory in (tree, *tree.parents) or tree in directory.parents for tree in trees
        )

    def hidden_hops(self, prepared: Prepared) -> tuple[Path, ...]:
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
                visible=self.layout.visible,
                workspace=Path(prepared.workspace),
            ).hops
        except LatchError:
            return ()

    def _bounds_processes(self) -> bool:
        """Say whether the number of processes can be bounded, which for root takes a control group."""
        if self._bounded is None:
            name = f"latch-plan-{os.getpid()}-{threading.get_ident()}"
            group = None if self._machine.uid != 0 else cgroup.make_pids_group(name, 1)
            if group is not None:
                cgroup.remove_pids_group(group)
            self._bounded = group is not None or self._machine.uid != 0
        return self._bounded
