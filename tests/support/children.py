"""Children for tests: plain processes behind the pipes of a :class:`Child`, and sandboxed ones.

A plain child is started by the real spawner without bubblewrap: its status pipe is inherited by the
program itself, so it counts as ended when the program and what it started have ended or closed it.
Both kinds use scopes without a token, so that only the child's own descriptors are open.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

from latch.limits import DEFAULT, ProcessLimits
from latch.settings import SandboxSettings
from latch.system import spawner
from latch.system.child import Child, Pipes
from latch.system.ledger import TOKEN_VARIABLE
from latch.system.sandbox import Sandbox
from latch.system.starting import pipes_and_request
from latch.system.scope import Scope
from tests.support.pace import MS

__all__ = ["gated_child", "patient", "plain_child", "sandboxed_child"]

# For plain_child's shell: write what bubblewrap would when the program ends with a status.
TELL_STATUS = 'tell() { echo "{ \\"exit-code\\": $1 }" > /proc/self/fd/$STATUS; }; '


def patient(seconds: float = 20.0) -> Scope:
    """A scope with a deadline, later on a slow machine, and no token."""
    return Scope.root().shielded(seconds * 1000 * MS)


@contextmanager
def plain_child(
    script: str,
    *,
    language: str = "sh",
    limits: ProcessLimits = DEFAULT.process,
    environment: dict[str, str] | None = None,
    on_end: Callable[[], None] = lambda: None,
    told: bytes = b"",
    token_entry: bytes = b"TOKEN=none",
) -> Iterator[Child]:
    """Start *script* as a child without a sandbox and end it afterwards; ``$STATUS`` names its status pipe.

    *language* is ``sh`` or ``python``; *told* is what stands on the information pipe.
    """
    pipes = Pipes()
    child_stdin, pipes.stdin = os.pipe()
    pipes.stdout, child_stdout = os.pipe()
    pipes.stderr, child_stderr = os.pipe()
    pipes.status, child_status = os.pipe()
    pipes.info, child_info = os.pipe()
    os.write(child_info, told)
    os.close(child_info)
    argv = ("/bin/sh", "-c", script) if language == "sh" else (sys.executable, "-ESu", "-c", script)
    request = spawner.SpawnRequest(
        argv=argv,
        environment={"PATH": os.environ["PATH"], "STATUS": str(child_status), **(environment or {})},
        stdin=child_stdin,
        stdout=child_stdout,
        stderr=child_stderr,
        descriptors=(child_status,),
    )
    process = spawner.spawn(request, patient())
    child = Child(process, pipes, token_entry=token_entry, limits=limits, on_end=on_end)
    try:
        yield child
    finally:
        child.end(patient())


@contextmanager
def sandboxed_child(
    script: str,
    workspace: Path,
    *,
    python: bool = False,
    sandbox: Sandbox | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[Child]:
    """Start *script* in the sandbox, as a shell or, with *python*, in this interpreter; end it afterwards."""
    sandbox = sandbox or Sandbox(SandboxSettings())
    bubblewrap = sandbox.ready(patient(), wanted="test", workspace=workspace)
    prepared = sandbox.planner.prepare_peer(
        "test",
        sys.executable if python else "/bin/sh",
        ("-ESu", "-c", script) if python else ("-c", script),
        workspace=workspace,
        environment=environment or {},
        features=bubblewrap.features,
    )
    child = sandbox.start(prepared, patient())
    try:
        yield child
    finally:
        child.end(patient())


@contextmanager
def gated_child(script: str, workspace: Path, *, token: str) -> Iterator[Child]:
    """Start *script* in the sandbox up to its gate, which nobody opens; end it afterwards."""
    sandbox = Sandbox(SandboxSettings())
    bubblewrap = sandbox.ready(patient(), wanted="test", workspace=workspace)
    prepared = sandbox.planner.prepare_peer(
        "test", "/bin/sh", ("-c", script), workspace=workspace, environment={}, features=bubblewrap.features
    )
    pipes, request = pipes_and_request(bubblewrap, prepared.plan, token, None)
    process = spawner.spawn(request, patient())
    child = Child(
        process,
        pipes,
        token_entry=f"{TOKEN_VARIABLE}={token}".encode(),
        limits=DEFAULT.process,
        on_end=lambda: None,
    )
    try:
        yield child
    finally:
        child.end(patient())
