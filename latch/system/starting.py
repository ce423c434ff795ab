"""From a plan to a running, limited, recorded child.

A start goes: token into the ledger; spawn; process 1 named on the information pipe; limits set and
processes recorded while the child waits at its gate; gate opened (security.md T16, T24). Whatever
fails on the way ends the child before the error leaves.
"""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Callable

from ..errors import Cancelled, DeadlineMissed, LatchError, UsageError
from ..limits import Limits
from . import cgroup, kernelcalls, spawner
from .bubblewrap import Bubblewrap, unavailable
from .child import Child, Pipes
from .files import ensure_directory
from .ledger import TOKEN_VARIABLE, Ledger, group_name
from .plan import Operation, SandboxPlan
from .planning import Prepared
from .processes import identify, own_processes
from .scope import Scope

__all__ = ["Starter", "pipes_and_request"]

# Since this kernel RLIMIT_NPROC counts a user namespace's own tasks (its change is in ucounts).
_NPROC_PER_NAMESPACE = (5, 14)


class Starter:
    """Starts children of one user and records them in one ledger. Safe to use from several threads."""

    def __init__(self, ledger: Ledger, *, uid: int, limits: Limits) -> None:
        self._ledger = ledger
        self._uid = uid
        self._limits = limits
        self._groups = cgroup.pids_groups() if uid == 0 else None

    def start(
        self,
        bubblewrap: Bubblewrap,
        prepared: Prepared,
        scope: Scope,
        *,
        stdin: int | None,
        explain: Callable[[str], LatchError],
    ) -> Child:
        """Start *prepared* with *bubblewrap* and return the child, past its gate.

        *explain* turns the words of a bubblewrap that could not set up the sandbox into the error.
        """
        for path in prepared.plan.required:
            if not path.exists():
                ensure_directory(path)
        token = self._ledger.begin(prepared.wanted, groups=self._groups)
        try:
            pipes, request = pipes_and_request(bubblewrap, prepared.plan, token, stdin)
        except (LatchError, OSError) as error:
            self._ledger.ended(token)
            raise _as_ours(error, prepared.wanted) from error
        try:
            process = spawner.spawn(request, scope)
        except (DeadlineMissed, Cancelled):
            # NOTE: the entry stays open, because the spawner thread may only now be ending the process.
            pipes.close()
            raise
        except (LatchError, OSError) as error:
            pipes.close()
            self._ledger.ended(token)
            raise _as_ours(error, prepared.wanted) from error
        group = self._make_group(token, prepared.plan)
        child = Child(
            process,
            pipes,
            token_entry=f"{TOKEN_VARIABLE}={token}".encode(),
            limits=self._limits.process,
            on_end=lambda: self._finish(token, group),
        )
        try:
            is_set_up = self._pass_gate(child, token, group, prepared.plan, scope)
        except OSError as error:
            child.end(scope.shielded(self._limits.process.kill_seconds))
            raise _as_ours(error, prepared.wanted) from error
        except BaseException:
            child.end(scope.shielded(self._limits.process.kill_seconds))
            raise
        if not is_set_up:
            child.end(scope.shielded(self._limits.process.kill_seconds))
            raise explain(child.stderr_text())
        return child

    def _pass_gate(
        self, child: Child, token: str, group: Path | None, plan: SandboxPlan, scope: Scope
    ) -> bool:
        """Set limits, record, open the gate; False when the sandbox was not there to be let go."""
        init = child.read_init_pid(scope)
        if init is None:
            return False
        try:
            for limit, value in self._resource_limits(plan):
                kernelcalls.set_limit(init, limit, value)
        except ProcessLookupError:
            return False
        if group is not None:
            cgroup.enter_pids_group(group, init)
        self._ledger.started(token, init=identify(init), monitor=identify(child.monitor_pid))
        child.open_gate()
        return True

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
        return sum(_tasks_of(pid) for pid in own_processes(self._uid))

    def _make_group(self, token: str, plan: SandboxPlan) -> Path | None:
        if self._groups is None:
            return None
        # One more than the program may have: bubblewrap's own process 1 is in the group.
        return cgroup.make_pids_group(
            group_name(token), plan.resources.max_processes + 1, groups=self._groups
        )

    def _finish(self, token: str, group: Path | None) -> None:
        if group is not None:
            cgroup.remove_pids_group(group)
        self._ledger.ended(token)


def _as_ours(error: LatchError | OSError, wanted: str) -> LatchError:
    # NOTE: a missed deadline is both.
    if isinstance(error, LatchError):
        return error
    return unavailable("unknown", wanted=wanted, detail=str(error.strerror))


def pipes_and_request(
    bubblewrap: Bubblewrap, plan: SandboxPlan, token: str, stdin: int | None
) -> tuple[Pipes, spawner.SpawnRequest]:
    """Return our ends of the pipes, and the request that hands the other ends and the plan to bubblewrap.

    *stdin* is a descriptor to inherit, which stays the caller's, or None for a pipe.
    """
    pipes = Pipes()
    inherited: list[int] = []
    try:
        return pipes, _request(bubblewrap, plan, token, stdin, pipes, inherited)
    except UnicodeEncodeError as error:
        pipes.close()
        _close_all(inherited)
        raise UsageError(f"a path or an argument cannot be handed to a program: {error.reason}") from None
    except BaseException:
        pipes.close()
        _close_all(inherited)
        raise


def _request(
    bubblewrap: Bubblewrap,
    plan: SandboxPlan,
    token: str,
    stdin: int | None,
    pipes: Pipes,
    inherited: list[int],
) -> spawner.SpawnRequest:
    """Fill *pipes* and *inherited* as descriptors are made, so that a failure midway can close them."""

    def keep(descriptor: int) -> int:
        inherited.append(descriptor)
        return descriptor

    if stdin is None:
        child_stdin, pipes.stdin = os.pipe()
    else:
        child_stdin = os.dup(stdin)
    keep(child_stdin)
    pipes.stdout, child_stdout = os.pipe()
    keep(child_stdout)
    pipes.stderr, child_stderr = os.pipe()
    keep(child_stderr)
    pipes.info, child_info = os.pipe()
    keep(child_info)
    pipes.status, child_status = os.pipe()
    keep(child_status)
    child_gate, pipes.gate = os.pipe()
    keep(child_gate)
    # NOTE: the sandbox holds the gate's write end itself: a dead host must not open it by an end of file.
    child_hold = keep(os.dup(pipes.gate))
    own = [
        "--info-fd", str(child_info), "--json-status-fd", str(child_status),
        "--block-fd", str(child_gate), "--sync-fd", str(child_hold),
    ]  # fmt: skip
    words: list[str] = []
    for operation in plan.operations:
        words.append(operation.option)
        if operation.content is not None:
            words.append(str(keep(_memory_file(_content(operation)))))
        words += operation.arguments
    options = keep(_memory_file(b"".join(os.fsencode(word) + b"\0" for word in [*own, *words])))
    return spawner.SpawnRequest(
        argv=(str(bubblewrap.path), "--args", str(options), "--", *plan.argv),
        environment={TOKEN_VARIABLE: token},
        stdin=child_stdin,
        stdout=child_stdout,
        stderr=child_stderr,
        descriptors=tuple(set(inherited) - {child_stdin, child_stdout, child_stderr}),
    )


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


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


def _tasks_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
