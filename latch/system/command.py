"""Run one command in the sandbox to its end.

The caller gets what it wrote, bounded, and how it ended. Nothing of it lives on afterwards: what it
put into the background ends with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from ..errors import Cancelled, LatchError, UsageError
from ..limits import DEFAULT, Limits
from ..settings import SandboxSettings
from .child import ChildExit
from .planning import Prepared
from .sandbox import Sandbox
from .scope import Scope
from .workspace import (
    AppearedFile,
    changed_since,
    look_at_workspace,
    planted_git_files,
    protected_snapshot,
    remove_planted_git_files,
)

__all__ = ["CommandResult", "WorkspaceWatch", "run_prepared", "run_sandboxed", "tell_changes"]


@dataclass(frozen=True)
class CommandResult:
    """How a command ended and what it wrote.

    ``status`` is its exit status, 128 + N when signal N ended it. ``stdout`` and ``stderr`` are the first
    bytes of each, ``dropped`` how many bytes of both were not kept. ``removed`` is what it
    planted where git would have obeyed it (security.md T3), and what of that could not be removed. ``changed``
    are the protected names that appeared or changed in a writable run (security.md T29): instructions and
    settings that nobody accepted yet.
    """

    status: int
    stdout: bytes
    stderr: bytes
    dropped: int = 0
    removed: tuple[AppearedFile, ...] = ()
    changed: tuple[Path, ...] = ()


class WorkspaceWatch:
    """What a writable run leaves among the names that git, a host or an agent obeys (security.md T3, T29)."""

    def __init__(
        self, sandbox: Sandbox, workspace: Path, *, writable: bool, git_metadata: bool = False
    ) -> None:
        """Look at the real path *workspace* as it is before the run."""
        self._workspace = workspace
        self._limits = sandbox.limits.file
        self._view = look_at_workspace(
            workspace,
            uid=sandbox.machine.uid,
            writable=writable,
            git_metadata=git_metadata,
            limits=self._limits,
        )
        self._known = protected_snapshot(self._view, workspace, self._limits) if writable else None
        self._planted = planted_git_files(self._view, workspace, self._limits) if git_metadata else None

    def end(self) -> tuple[list[AppearedFile], list[Path]]:
        """Remove what was planted, and return it and the protected names that appeared or changed."""
        removed: list[AppearedFile] = []
        if self._planted is not None:
            removed = remove_planted_git_files(self._view, self._workspace, self._planted, self._limits)
        if self._known is None:
            return removed, []
        return removed, changed_since(self._known, self._view, self._workspace, self._limits)


def tell_changes(removed: Sequence[AppearedFile], changed: Sequence[Path]) -> list[str]:
    """Return a sentence for each thing that :meth:`WorkspaceWatch.end` returned."""
    planted = [(one.path, "was removed" if one.removed else "could not be removed") for one in removed]
    return [
        *[f'"{path}", where git would have obeyed it, appeared and {what}' for path, what in planted],
        *[f'"{path}" appeared or changed: read it before anything obeys it' for path in changed],
    ]


class _Kept:
    """The first bytes of a stream, and a count of the rest."""

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self.dropped = 0
        self._most = most

    def add(self, chunk: bytes) -> None:
        kept = chunk[: self._most - len(self.data)]
        self.data += kept
        self.dropped += len(chunk) - len(kept)


def run_sandboxed(
    argv: Sequence[str],
    *,
    workspace: Path | str,
    writable: bool = False,
    network: bool = False,
    git_metadata: bool = False,
    scope: Scope,
    sandbox: Sandbox | None = None,
    limits: Limits = DEFAULT,
) -> CommandResult:
    """Run *argv* in *workspace* inside the sandbox, with nothing on its stdin, and return its result.

    A status other than 0 is a result, not an error. Where *scope* has no deadline, it is ended after
    ``limits.process.command_seconds`` (security.md T16). Raises :class:`SandboxUnavailable`,
    :class:`CommandUnusable`, :class:`Denied`, :class:`UsageError` and what *scope* raises; nothing is
    left running in any case.
    """
    if isinstance(argv, (str, bytes)):
        raise UsageError(
            "argv must be a sequence of words, not one text", hint='write it as ["git", "status"]'
        )
    sandbox = sandbox or Sandbox(SandboxSettings(), limits=limits)
    wanted = f'command "{argv[0] if argv else ""}"'
    if scope.deadline is None:
        scope = scope.within(limits.process.command_seconds, peer=wanted)
    bubblewrap = sandbox.ready(scope, wanted=wanted, workspace=Path(workspace), network=network)
    prepared = sandbox.planner.prepare_command(
        tuple(argv),
        workspace=Path(workspace),
        writable=writable,
        network=network,
        git_metadata=git_metadata,
        features=bubblewrap.features,
    )
    stdout, stderr = _Kept(limits.process.max_output_bytes), _Kept(limits.process.max_output_bytes)
    watch = WorkspaceWatch(sandbox, Path(prepared.workspace), writable=writable, git_metadata=git_metadata)
    try:
        ended = run_prepared(sandbox, prepared, scope, on_stdout=stdout.add, on_stderr=stderr.add)
    except (LatchError, Cancelled) as error:
        for fact in tell_changes(*watch.end()):
            error.after(fact)
        raise
    except BaseException:
        watch.end()
        raise
    removed, changed = watch.end()
    return CommandResult(
        status=ended.status if ended.status is not None else 255,
        stdout=bytes(stdout.data),
        stderr=bytes(stderr.data),
        dropped=stdout.dropped + stderr.dropped,
        removed=tuple(removed),
        changed=tuple(changed),
    )


def run_prepared(
    sandbox: Sandbox,
    prepared: Prepared,
    scope: Scope,
    *,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    stdin: int | None = None,
) -> ChildExit:
    """Run what was prepared to its end, handing over its output as it comes; see :func:`run_sandboxed`.

    *stdin* is a descriptor to inherit, which stays the caller's; None gives it nothing to read.
    """
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if stdin is None else stdin
    try:
        child = sandbox.start(prepared, scope, stdin=null)
    finally:
        if stdin is None:
            os.close(null)
    ended = child.run_out(scope, on_stdout=on_stdout, on_stderr=on_stderr)
    failure: LatchError | None = sandbox.explain(child, prepared)
    if failure is not None:
        raise failure
    return ended
