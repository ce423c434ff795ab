"""From what somebody wants to run to a plan: the program and its toolchain found, every path judged.

Looks at the disk and starts nothing. The plan itself is put together by ``plan.py``, purely.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Mapping

from ..errors import CommandUnusable, ContainmentError, LatchError, UsageError
from ..limits import DEFAULT, Limits
from ..settings import SandboxSettings
from .bindsources import SECRET_ENTRIES, check_bind_source, find_entries, find_private_places
from .cgroup import can_make_pids_groups
from .machine import Machine
from .paths import both_names, lies_in, real_path
from .plan import PlanRequest, SandboxPlan, SystemLayout, check_workspace, make_plan, survey
from .toolchain import Toolchain, find_toolchain, resolve_command, toolchain_from_path
from .throwaway import base_of
from .workspace import WorkspaceView, git_identity, look_at_workspace

__all__ = ["Planner", "Prepared"]

# Options whose last argument is a path that exists inside.
_SHOWING = ("--bind", "--ro-bind", "--symlink")
# What a start adds to a plan's words: --args N --, and four options with a descriptor each (starting.py).
_WORDS_OF_A_START = 3 + 4 * 2


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

    def __init__(self, settings: SandboxSettings, machine: Machine, *, limits: Limits = DEFAULT) -> None:
        self._settings = settings
        self._machine = machine
        self._limits = limits
        self._known_layout: SystemLayout | None = None
        # For root it takes a control group (security.md T16).
        self._bounded = machine.uid != 0 or can_make_pids_groups()

    @property
    def layout(self) -> SystemLayout:
        """How the system is laid out, as the latest plan found it."""
        return self._known_layout or self._survey()

    def _survey(self) -> SystemLayout:
        # NOTE: for every plan, which takes under 1 ms: what was there at the first may be gone by now.
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
        _check_words((command, *args), "command and args")
        _check_environment(environment)
        self._survey()
        real = self._check_workspace(workspace)
        _check_text(real)
        program = resolve_command(command, search_path=self._machine.search_path, outside=real)
        toolchain = find_toolchain(
            program,
            args=args,
            home=self._machine.home,
            search_path=self._machine.search_path,
            visible=self.layout.visible,
            workspace=real,
            limits=self._limits.file,
        )
        request = PlanRequest(
            argv=(str(toolchain.program), *args),
            workspace=real,
            view=look_at_workspace(real, uid=self._machine.uid, limits=self._limits.file),
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
        if not argv or argv[0] == "":
            raise UsageError("no command was given")
        _check_words(argv, "command line")
        self._survey()
        real = self._check_workspace(workspace)
        toolchain = toolchain_from_path(
            self._machine.search_path,
            home=self._machine.home,
            workspace=real,
            limits=self._limits.file,
        )
        visible = argv[0] if "/" in argv[0] else self._visible_program(argv[0], toolchain, real)
        request = PlanRequest(
            argv=(visible, *argv[1:]),
            workspace=real,
            view=look_at_workspace(
                real,
                uid=self._machine.uid,
                writable=writable,
                git_metadata=git_metadata,
                limits=self._limits.file,
            ),
            toolchain=toolchain,
            writable=writable,
            network=network,
            environment=(
                git_identity(self._machine, real, self._limits.file) if writable and git_metadata else {}
            ),
        )
        program = os.path.join(real, visible)
        return self._plan(request, wanted=f'command "{argv[0]}"', program=program, features=features)

    def prepare_probe(
        self, argv: tuple[str, ...], *, wanted: str, network: bool, features: frozenset[str]
    ) -> Prepared:
        """Plan a program of the system, named by its path, with no workspace and nothing else shown."""
        self._survey()
        request = PlanRequest(
            argv=argv,
            workspace=None,
            view=WorkspaceView(),
            toolchain=Toolchain(program=Path(argv[0])),
            network=network,
            private_directory=True,
            in_workspace=False,
        )
        return self._prepare(request, wanted=wanted, program=argv[0], features=features)

    def _plan(self, request: PlanRequest, *, wanted: str, program: str, features: frozenset[str]) -> Prepared:
        machine, private = self._machine, find_private_places(self._machine, self._settings)
        closed = tuple(path for path in private.directories if path != request.workspace)

        def checked(paths: tuple[Path, ...], what: str, **how: Any) -> tuple[Path, ...]:
            known = {"home": machine.home, "private": (*closed, *private.files)}
            return tuple(check_bind_source(path, what=what, **known, **how) for path in paths)

        git = request.view.git
        if git is not None and git.outside:
            checked((git.directory,), "the .git file of the workspace names it", writable=request.writable)
        request = replace(
            request,
            toolchain=replace(
                request.toolchain,
                roots=checked(
                    request.toolchain.roots,
                    "its command needs it",
                    cure="move the program, with what it needs, to a directory of its own",
                ),
            ),
            ro_paths=checked(request.ro_paths, "ro_paths"),
            rw_paths=self._check_writable(
                checked(request.rw_paths, "rw_paths", writable=True), request.workspace
            ),
            hidden=(*private.directories, *self._secrets()),
        )
        return self._prepare(request, wanted=wanted, program=program, features=features)

    def _prepare(
        self, request: PlanRequest, *, wanted: str, program: str, features: frozenset[str]
    ) -> Prepared:
        request = replace(request, resources=self._settings.resources, bounded=self._bounded)
        plan = make_plan(request, self.layout, self._machine, features)
        process = self._limits.process
        count, most = plan.argument_count + _WORDS_OF_A_START, process.max_sandbox_arguments
        if count > most:
            raise CommandUnusable(
                f"the plan takes {count} arguments, and bubblewrap takes {most}",
                status=125,
                hint="name fewer paths in ro_paths and rw_paths, and fewer arguments and variables",
            )
        return Prepared(
            plan=plan,
            workspace="" if request.workspace is None else str(request.workspace),
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
        try:
            real = Path(os.path.realpath(workspace))
            status = os.stat(real)
        except ValueError:
            raise UsageError(
                f"workspace {ascii(str(workspace))} cannot be the name of a directory", hint="choose another"
            ) from None
        except OSError as error:
            raise UsageError(
                f'workspace "{workspace}": {error.strerror}', hint="choose one with -C"
            ) from error
        if not os.path.isdir(real):
            raise UsageError(f'workspace "{workspace}" is not a directory', hint="choose one with -C")
        check_workspace(real, self.layout.home)
        if lies_in(str(base_of(self._machine.uid)), str(real)):
            raise UsageError(
                f'workspace "{workspace}" is where runs that leave nothing have their places',
                hint="choose a directory in it",
            )
        state = Path(real_path(self._machine.state_directory_of(self._settings)))
        if real == state:
            raise UsageError(f'workspace "{workspace}" is the state directory', hint="choose another with -C")
        if status.st_uid != self._machine.uid:
            raise UsageError(
                f'workspace "{workspace}" belongs to user {status.st_uid} and this is user '
                f"{self._machine.uid}: inside the sandbox not even root may use another user's files",
                hint="run Latch as the owner of the workspace, or give it to this user with chown",
            )
        private = find_private_places(self._machine, self._settings)
        for secret in (*private.credentials, *self._secrets()):
            if real == secret or secret in real.parents:
                if state in real.parents and secret in (state, *state.parents):
                    # NOTE: a worktree that we keep below our own state is masked around, not refused.
                    continue
                raise UsageError(
                    f'workspace "{workspace}" is or lies in "{secret}", which holds configuration or '
                    "credentials",
                    hint="choose another workspace with -C, or move that directory",
                )
        file = self._settings.config_file
        if file is not None and any(lies_in(name, str(real)) for name in _names_of(file)):
            raise UsageError(
                f'configuration file "{file}" lies in the workspace "{workspace}", where a repository could '
                "write it",
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

    def _secrets(self) -> tuple[Path, ...]:
        """Return the real directories of the home's credentials, for where a bind would show them."""
        home = self.layout.home
        found = []
        for pattern in SECRET_ENTRIES:
            for place in find_entries(str(home), pattern):
                real = Path(real_path(place))
                directory = real if os.path.isdir(real) else real.parent
                if not self._is_common(directory):
                    found.append(directory)
        return tuple(dict.fromkeys(found))

    def _is_common(self, directory: Path) -> bool:
        """Say whether *directory* holds the home, which is not shown, or has to do with a tree for all."""
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
                limits=self._limits.file,
            ).hops
        except LatchError:
            return ()


def _names_of(file: Path) -> list[str]:
    """Return where *file* really is, and where the link lies that it may be."""
    return [*both_names(file), os.path.join(real_path(file.parent), file.name)]


def _check_text(workspace: Path) -> None:
    """Raise :class:`UsageError` for a *workspace* whose name cannot be told to a peer, whose JSON is text."""
    name = os.fsencode(workspace)
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        shown = name.decode("utf-8", "backslashreplace")
        raise UsageError(
            f'workspace "{shown}": its name is not UTF-8, so that it cannot be told to an extension',
            hint="rename it, or choose another with -C; commands run in it as it is",
        ) from None


def _check_words(words: tuple[str, ...], what: str) -> None:
    for index, word in enumerate(words):
        reason = _find_fault(word)
        if reason is not None:
            raise UsageError(f"word {index} of the {what} {reason}", hint="hand in text without NUL")


def _check_environment(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        reason = _find_fault(name)
        if reason is None and (name == "" or "=" in name):
            reason = 'must not be empty or contain "="'
        if reason is not None:
            raise UsageError(f"the name of a variable {reason}: {name!r}")
        reason = _find_fault(value)
        if reason is not None:
            raise UsageError(f'the value of variable "{name}" {reason}')


def _find_fault(word: object) -> str | None:
    """Return why *word* cannot be handed to a program, or None. A word is never quoted: it may be secret."""
    if not isinstance(word, str):
        return f"must be a string, found {type(word).__name__}"
    if "\0" in word:
        return "contains a NUL character"
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        return "holds a lone surrogate"
    return None
