"""From a plan to a running, limited, recorded child.

A start goes: token into the ledger; spawn; process 1 named on the information pipe; limits set, processes
recorded and mounts looked at while the child waits at its gate; gate opened (security.md T1, T16, T24). Whatever
fails on the way ends the child before the error leaves.

The way to the open gate has a deadline of its own. Until then nothing but bubblewrap runs: whatever hangs,
dies or says a word is bubblewrap, and the error is that of a missing sandbox.
"""

from __future__ import annotations

import errno
import os
import resource
import select
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterator

from ..errors import DeadlineMissed, LatchError, SandboxUnavailable, StoreError, UsageError, seconds_text
from ..limits import Limits, ProcessLimits
from . import cgroup, kernelcalls, spawner
from .bubblewrap import Bubblewrap, own_words, unaccounted, unavailable
from .child import Child, ChildExit, Pipes
from .files import ensure_directory
from .ledger import TOKEN_VARIABLE, Ledger, group_name
from .mounts import expect_mounts, find_unplanned, is_set_up, may_be_set_up, read_mounts
from .paths import changed_since_plan
from .plan import Operation, SandboxPlan
from .planning import Prepared
from .processes import identify, is_want, own_processes
from .scope import Scope

__all__ = ["Answer", "Heard", "Starter", "hang", "is_crash", "pipes_and_request", "telling_what"]

# Since this kernel RLIMIT_NPROC counts a user namespace's own tasks (its change is in ucounts).
_NPROC_PER_NAMESPACE = (5, 14)

# The monitor and process 1, which are in the control group beside what the program may have.
_BUBBLEWRAPS_PROCESSES = 2


@dataclass(frozen=True)
class Answer:
    """What a bubblewrap said about itself, on both streams, and how it ended then."""

    text: str
    ending: ChildExit


class Heard:
    """The first *most* bytes that are written to a stdout."""

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self._most = most

    def add(self, chunk: bytes) -> None:
        """Take what was read."""
        self.data += chunk[: self._most - len(self.data)]

    def after(self, stderr: str) -> str:
        """Return all that was said: *stderr*, and then this."""
        return f"{stderr}\n{self.data.decode('utf-8', 'replace')}"


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
        explain: Callable[[str, ChildExit], LatchError],
    ) -> Child:
        """Start *prepared* with *bubblewrap* and return the child, past its gate.

        *explain* turns what a bubblewrap said that could not set up the sandbox, and how it ended, into the
        error. One that takes longer than ``probe_seconds``, or than the stage of *scope* has, hangs: that is
        a :class:`SandboxUnavailable` as well, while a caller's own deadline stays what it is.
        """
        within = scope.within(self._limits.process.probe_seconds)
        for path in prepared.plan.required:
            if not os.path.exists(path):
                ensure_directory(path)
        with telling_what(prepared.wanted):
            token = self._ledger.begin(prepared.wanted, groups=self._groups)
            try:
                child, group = self._spawn(bubblewrap, prepared.plan, token, stdin, within)
            except DeadlineMissed as error:
                raise self._hang(within, scope, prepared.wanted, said="") from error
            try:
                is_set_up = self._pass_gate(child, token, group, prepared.plan, within)
            except DeadlineMissed as error:
                raise self._end_hanging(child, prepared, within, scope) from error
            except BaseException as error:
                child.end_after(error, scope)
                raise
        if is_set_up:
            return child
        raise self._end_unstarted(child, prepared, scope, explain)

    def _end_hanging(
        self, child: Child, prepared: Prepared, within: Scope, scope: Scope
    ) -> SandboxUnavailable:
        heard = self._listen(child)
        try:
            child.tend()
            failure = self._hang(within, scope, prepared.wanted, said=heard.after(child.stderr_text()))
        except BaseException as error:
            child.end_after(error, scope)
            raise
        child.end_after(failure, scope)
        return failure

    def _end_unstarted(
        self, child: Child, prepared: Prepared, scope: Scope, explain: Callable[[str, ChildExit], LatchError]
    ) -> LatchError:
        heard = self._listen(child)
        try:
            # NOTE: its sandbox is gone, so it is about to end by itself and to say why.
            with child.driving():
                child.wait_exit(scope.shielded(self._limits.process.drain_seconds))
        except DeadlineMissed:
            pass
        has_ended = _has_ended(child.monitor_pid, scope, self._limits.process)
        ended = child.end(scope.shielded(self._limits.process.kill_seconds))
        said = heard.after(child.stderr_text())
        failure = self._unstarted(ended, said, prepared.wanted, has_ended=has_ended) or explain(said, ended)
        child.end_after(failure, scope)
        return failure

    def _unstarted(self, ended: ChildExit, said: str, wanted: str, *, has_ended: bool) -> LatchError | None:
        """Return the error for an end that no words explain, or None."""
        words = self._quoted(said)
        if ended.killed or not has_ended:
            detail = "no sandbox came of it, and it did not end"
            return unavailable("hang", wanted=wanted, detail=detail, said=words)
        if is_crash(ended):
            return unavailable("crash", wanted=wanted, detail=f"bwrap {ended}", said=words)
        if ended.executed:
            detail = f"bwrap {ended}, as if of a program that was not to run yet"
            return unaccounted(unavailable("unsound", wanted=wanted, detail=detail, said=words))
        return None

    def _listen(self, child: Child) -> Heard:
        heard = Heard(self._limits.process.stderr_tail_bytes)
        child.on_idle = heard.add
        return heard

    def _hang(self, within: Scope, scope: Scope, wanted: str, *, said: str) -> SandboxUnavailable:
        return hang(within, scope, missing="sandbox", wanted=wanted, said=self._quoted(said))

    def _quoted(self, said: str) -> str:
        return own_words(said, quoted_chars=self._limits.extension.max_quoted_chars)

    def _spawn(
        self, bubblewrap: Bubblewrap, plan: SandboxPlan, token: str, stdin: int | None, scope: Scope
    ) -> tuple[Child, Path | None]:
        """Start bubblewrap; return it at its gate, and the control group it is to enter, if any."""
        # NOTE: before there is a process, which nothing but its child object may come after.
        group = self._make_group(token, plan)
        try:
            pipes, request = pipes_and_request(bubblewrap, plan, token, stdin)
        except (LatchError, OSError):
            self._finish(token, group)
            raise
        process = None
        try:
            process = spawner.spawn(replace(request, group=group), scope, limits=self._limits.process)
            child = Child(
                process,
                pipes,
                token_entry=f"{TOKEN_VARIABLE}={token}".encode(),
                limits=self._limits.process,
                on_end=lambda: self._finish(token, group),
            )
        except BaseException as error:
            pipes.close()
            if process is not None:
                spawner.end_group(process, seconds=self._limits.process.kill_seconds)
            # NOTE: given up midway, the entry stays open: the spawner thread may only now be ending the process.
            if _is_refusal(error):
                self._finish(token, group)
            elif group is not None:
                cgroup.remove_pids_group(group)
            raise
        return child, group

    def ask(self, program: Path, option: str, scope: Scope, *, wanted: str) -> Answer:
        """Return what bubblewrap answers on *option*, which starts nothing inside.

        Recorded like any start: a bubblewrap that hangs must not outlive a killed host either, and is a
        :class:`SandboxUnavailable` by the same rule.
        """
        output, child_output = os.pipe()
        try:
            request = spawner.SpawnRequest(
                argv=(str(program), option),
                environment={},
                stdin=os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),
                stdout=child_output,
                stderr=child_output,
            )
            try:
                token = self._ledger.begin(f"{program} {option}")
            except StoreError:
                request.close()
                raise
            try:
                process = spawner.spawn(
                    replace(request, environment={TOKEN_VARIABLE: token}), scope, limits=self._limits.process
                )
            except BaseException as error:
                if _is_refusal(error):
                    self._ledger.ended(token)
                raise
            said = bytearray()
            has_ended = False
            try:
                _read_all(output, said, scope, self._limits.process)
                has_ended = _has_ended(process.pid, scope, self._limits.process)
            except DeadlineMissed as error:
                words = self._quoted(said.decode("utf-8", "replace"))
                raise hang(scope, scope, missing=f"answer to {option}", wanted=wanted, said=words) from error
            finally:
                if spawner.end_group(process, seconds=self._limits.process.kill_seconds):
                    self._ledger.ended(token)
            ending = _ending(process.returncode, killed=not has_ended)
            return Answer(said.decode("utf-8", "replace"), ending)
        finally:
            os.close(output)

    def _pass_gate(
        self, child: Child, token: str, group: Path | None, plan: SandboxPlan, scope: Scope
    ) -> bool:
        """Set limits, record, see what it shows, open the gate; False when there was nothing to be let go."""
        init = child.read_init_pid(scope)
        if init is None:
            return False
        try:
            for limit, value in self._resource_limits(plan):
                kernelcalls.set_limit(init, limit, value)
        except ProcessLookupError:
            return False
        # NOTE: without a limit only where the plan that was shown says so.
        if self._uid == 0 and cgroup.NO_LIMIT not in plan.missing:
            if group is None or not cgroup.enter_pids_group(group, init):
                if identify(init) is None:
                    return False
                raise OSError(errno.EPERM, "the limit on its number of processes could not be set")
        self._ledger.started(token, init=identify(init), monitor=identify(child.monitor_pid))
        if not self._shows_what_was_planned(init, plan, scope):
            return False
        child.open_gate()
        return True

    def _shows_what_was_planned(self, init: int, plan: SandboxPlan, scope: Scope) -> bool:
        """Wait until the sandbox of process *init* is set up and look at it; False when it is gone."""
        # NOTE: only now, while it is being set up anyway.
        expected = expect_mounts(plan.operations)
        try:
            mounts = read_mounts(init) if may_be_set_up(init) else []
            while not is_set_up(mounts, expected):
                scope.check()
                # NOTE: not the scope's own pause, which is as exact as a millisecond, a tenth of a start.
                select.select([], [], [], self._limits.process.gate_poll_seconds)
                mounts = read_mounts(init) if may_be_set_up(init) else []
        except DeadlineMissed:
            # NOTE: an OSError as well, to the language.
            raise
        except PermissionError:
            if identify(init) is not None:
                raise
            return False
        except OSError as error:
            if is_want(error):
                raise
            # It is gone, or about to be.
            return False
        fault = find_unplanned(mounts, expected)
        if fault is not None:
            raise changed_since_plan(fault)
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
        numbers = os.uname().release.split("-")[0].split(".")
        if tuple(int(number) for number in numbers[:2] if number.isdigit()) >= _NPROC_PER_NAMESPACE:
            return 0
        return sum(_tasks_of(pid) for pid in own_processes(self._uid))

    def _make_group(self, token: str, plan: SandboxPlan) -> Path | None:
        if self._groups is None:
            return None
        maximum = plan.resources.max_processes + _BUBBLEWRAPS_PROCESSES
        return cgroup.make_pids_group(group_name(token), maximum, groups=self._groups)

    def _finish(self, token: str, group: Path | None) -> None:
        # NOTE: the kernel lets go of a group a moment after its last process. One that stays is kept on record,
        # for a sweep.
        if group is None or self._removed(group):
            self._ledger.ended(token)

    def _removed(self, group: Path) -> bool:
        scope = Scope.root().shielded(self._limits.process.drain_seconds)
        try:
            while not cgroup.remove_pids_group(group):
                scope.pause(self._limits.process.reap_poll_seconds)
        except TimeoutError:
            return False
        return True


def hang(within: Scope, scope: Scope, *, missing: str, wanted: str, said: str) -> SandboxUnavailable:
    """Return the error for a bubblewrap of which there was no *missing* when *within*, a part of *scope*, ended.

    Where it was the caller's own deadline that passed, its :class:`DeadlineMissed` is raised instead: that of
    a scope without a stage, or one that an outer scope had set.
    """
    try:
        scope.check()
    except DeadlineMissed as error:
        if not error.own or scope.stage is None:
            raise
    detail = f"no {missing} within {seconds_text(within.seconds or 0.0)}"
    return unavailable("hang", wanted=wanted, detail=detail, said=said)


def is_crash(ended: ChildExit) -> bool:
    """Say whether it was a signal that ended it, told as a shell tells it."""
    # signal(7): the highest is 64
    return ended.status is not None and 128 < ended.status <= 192


def _read_all(descriptor: int, said: bytearray, scope: Scope, limits: ProcessLimits) -> None:
    while len(said) < limits.max_help_bytes:
        scope.wait([descriptor])
        chunk = os.read(descriptor, limits.read_bytes)
        if not chunk:
            break
        said += chunk


def _has_ended(pid: int, scope: Scope, limits: ProcessLimits) -> bool:
    """Say whether process *pid*, which has said all, ends by itself; it is not reaped."""
    within = scope.shielded(limits.drain_seconds)
    try:
        while identify(pid) is not None:
            within.pause(limits.reap_poll_seconds)
    except DeadlineMissed:
        return False
    return True


def _ending(code: int | None, *, killed: bool) -> ChildExit:
    status = 128 - code if code is not None and code < 0 else code
    return ChildExit(status, executed=False, killed=killed)


def _is_refusal(error: BaseException) -> bool:
    """Say whether the spawner raised *error* because nothing could be started, and will not be."""
    return isinstance(error, (UsageError, OSError)) and not isinstance(error, DeadlineMissed)


@contextmanager
def telling_what(wanted: str) -> Iterator[None]:
    """Turn a failure of the system into one that says that *wanted* could not be started."""
    try:
        yield
    except LatchError:
        # NOTE: a missed deadline is a failure of the system as well, to the language.
        raise
    except OSError as error:
        detail = ": ".join(str(part) for part in (error.filename, error.strerror) if part)
        raise unavailable("system", wanted=wanted, detail=detail) from error


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
    with open(str(operation.content), "rb") as stream:
        return stream.read()


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
