"""system/peer.py: a peer's process from its plan to its end, and the one error that tells what went wrong."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest

from latch.errors import (
    CommandUnusable,
    ConcurrentUse,
    ConfigError,
    DeadlineMissed,
    Denied,
    LatchError,
    PeerError,
    PeerGone,
    PeerProtocolError,
    SandboxUnavailable,
    UsageError,
    WireError,
)
from latch.limits import DEFAULT
from latch.settings import ExtensionSettings, McpServerSettings, SandboxSettings
from latch.system.peer import Entry, PeerProcess, prepare_entry, problem_of
from latch.system.planning import Prepared
from latch.system.sandbox import Sandbox
from latch.system.scope import Scope
from latch.wire.httpfields import Redactor
from tests.support import census, hosted

Json = Any

PEER = 'extension "small"'


def settings(body: str = "", **changes: Any) -> ExtensionSettings:
    """An entry that runs a line of Python."""
    known: dict[str, Any] = {"command": sys.executable, "args": ("-ES", "-c", body), "network": False}
    return ExtensionSettings(name="small", **{**known, **changes})


def prepared_for(
    entry: Entry, sandbox: Sandbox, workspace: Path, features: frozenset[str] = frozenset(), **known: str
) -> Prepared:
    return prepare_entry(
        entry,
        sandbox,
        peer=PEER,
        table="extensions",
        workspace=workspace,
        environment=known,
        features=features,
    )


@contextmanager
def running(
    workspace: Path, body: str, *, redactor: Redactor | None = None, **changes: Any
) -> Iterator[PeerProcess]:
    """Start a peer that runs *body*; nothing of it is left."""
    marker = hosted.new_marker()
    entry, scope = settings(body, **changes), Scope.root(30).within(None, peer=PEER, stage="start")
    sandbox = Sandbox(entry.sandbox)
    bubblewrap = sandbox.ready(scope, wanted=PEER, workspace=workspace, network=False)
    prepared = prepared_for(entry, sandbox, workspace, bubblewrap.features, **hosted.marked(marker))
    process = PeerProcess(sandbox, prepared, sandbox.start(prepared, scope), peer=PEER, redactor=redactor)
    try:
        yield process
    finally:
        process.kill(UsageError("the test is over"))
    assert census.eventually(lambda: not census.carriers(marker), seconds=2)


def told(error: BaseException, scope: Scope) -> None:
    """A settlement that adds nothing."""


def wait_for_end(process: PeerProcess, scope: Scope) -> None:
    """Return once the child has ended by itself."""
    with process.child.driving(), pytest.raises(PeerGone):
        process.child.pump(lambda chunk: False, scope)


@pytest.fixture
def scope() -> Scope:
    return Scope.root(30).within(None, peer=PEER, stage="call")


# -- an exchange -------------------------------------------------------------------------------------


def test_an_exchange_holds_the_child_and_gives_it_back(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "input(); print('hello', flush=True); input()") as process:
        heard: list[bytes] = []

        def work() -> str:
            process.child.queue(b"go\n")
            process.child.pump(lambda chunk: bool(heard.append(chunk) or True), scope)
            with pytest.raises(ConcurrentUse):
                process.child.hold()
            return "done"

        assert process.exchange(work, scope, settle=told) == "done"
        assert b"".join(heard) == b"hello\n" and process.over is None
        assert process.exchange(lambda: 5, scope, settle=told) == 5


@pytest.mark.parametrize("error", [WireError("bad"), KeyboardInterrupt(), UsageError("ours")])
def test_what_goes_wrong_is_settled_and_raised_and_the_child_given_back(
    sandbox: Path, workspace: Path, scope: Scope, error: BaseException
) -> None:
    with running(workspace, "input()") as process:
        settled: list[tuple[BaseException, Scope]] = []

        def work() -> None:
            raise error

        with pytest.raises(type(error)) as raised:
            process.exchange(work, scope, settle=lambda *what: settled.append(what))
        assert raised.value is error and settled == [(error, scope)]
        assert process.exchange(lambda: "again", scope, settle=told) == "again"


def test_a_settlement_may_raise_another_error(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "input()") as process:
        other = PeerGone("gone", peer=PEER, stage="call")

        def settle(error: BaseException, within: Scope) -> None:
            raise process.end(other, within)

        def work() -> None:
            raise WireError("bad")

        with pytest.raises(PeerGone) as raised:
            process.exchange(work, scope, settle=settle)
        assert raised.value is other and process.over is other
        with pytest.raises(PeerGone) as again:
            process.check_usable()
        assert again.value is other


def test_a_second_thread_is_refused_and_does_not_release_what_it_never_held(
    sandbox: Path, workspace: Path, scope: Scope
) -> None:
    with running(workspace, "input()") as process:
        refusals: list[BaseException] = []

        def intrude() -> None:
            try:
                process.exchange(lambda: None, scope, settle=told)
            except BaseException as error:
                refusals.append(error)

        def work() -> None:
            for _ in range(2):
                thread = threading.Thread(target=intrude)
                thread.start()
                thread.join(10)

        process.exchange(work, scope, settle=told)
        assert [type(error) for error in refusals] == [ConcurrentUse, ConcurrentUse]


# -- an end ------------------------------------------------------------------------------------------


def test_an_end_that_we_made_is_told_with_the_error(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "input()") as process:
        process.was_heard = True
        error = process.end(PeerProtocolError("bad frame", peer=PEER, stage="call"), scope)
        assert str(error) == f"{PEER}: call: bad frame; killed (signal 9)"
        assert process.over is error


def test_the_last_words_and_the_status_of_one_that_died_are_told(
    sandbox: Path, workspace: Path, scope: Scope
) -> None:
    body = "import sys; sys.stderr.write('no  such\\nfile-9000 '); sys.exit(3)"
    with running(workspace, body, redactor=Redactor(["file-9000"])) as process:
        wait_for_end(process, scope)
        process.was_heard = True
        error = process.end(PeerGone("ended", peer=PEER, stage="call"), scope)
        assert isinstance(error, PeerGone) and error.status == 3
        assert error.aftermath == [
            "its sandbox exited with status 3",
            'its stderr ends: "no such [redacted]"',
        ]
        assert process.stderr_text() == "no  such\n[redacted] "


def test_a_known_status_is_not_told_twice(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "raise SystemExit(3)") as process:
        wait_for_end(process, scope)
        process.was_heard = True
        error = process.end(PeerGone("exited with status 3", status=3, peer=PEER, stage="call"), scope)
        assert error.aftermath == []


def test_long_last_words_are_quoted_in_part(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "import sys; sys.stderr.write('x' * 5000)") as process:
        wait_for_end(process, scope)
        process.was_heard = True
        error = process.end(PeerGone("ended", status=0, peer=PEER, stage="call"), scope)
        assert len(str(error)) < 700 and len(process.stderr_text()) == 5000


def test_one_that_never_ran_is_a_missing_sandbox_and_not_the_peers_fault(
    sandbox: Path, workspace: Path, scope: Scope
) -> None:
    with running(workspace, "input()") as process:
        unavailable = SandboxUnavailable("cannot start", cause="refused", hint="h", peer=PEER)
        explained = _Explaining(unavailable)
        process._sandbox = explained  # type: ignore[assignment]
        error = process.end(PeerGone("ended", peer=PEER, stage="call"), scope)
        assert error is unavailable and error.peer is None and process.over is error


def test_one_that_said_a_byte_did_run(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "input()") as process:
        process._sandbox = _Explaining(  # type: ignore[assignment]
            SandboxUnavailable("cannot start", cause="refused", hint="h", peer=PEER)
        )
        process.was_heard = True
        gone = PeerGone("ended", peer=PEER, stage="call")
        assert process.end(gone, scope) is gone


def test_what_is_no_early_end_stays_what_it_is(sandbox: Path, workspace: Path, scope: Scope) -> None:
    with running(workspace, "input()") as process:
        process._sandbox = _Explaining(  # type: ignore[assignment]
            SandboxUnavailable("cannot start", cause="refused", hint="h", peer=PEER)
        )
        late = DeadlineMissed("late", seconds=1, peer=PEER, stage="call")
        assert process.end(late, scope) is late


class _Explaining:
    """A sandbox that says of every child why it never ran."""

    def __init__(self, reason: SandboxUnavailable) -> None:
        self.limits = DEFAULT
        self._reason = reason

    def explain(self, *what: object) -> SandboxUnavailable:
        """Say why."""
        return self._reason


class _Immortal:
    """A child of which a process may have outlived its end."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def end(self, scope: Scope) -> Any:
        """Say that it was killed."""
        return type("Ended", (), {"killed": True, "status": None, "__str__": lambda self: "killed"})()

    def stderr_text(self) -> str:
        """Say nothing."""
        return ""

    def unproven(self, *, peer: str, stage: str) -> PeerError:
        """Name what may be left."""
        return PeerError(self._reason, hint="look for process 7", peer=peer, stage=stage)


def immortal(reason: str = "process 7 may still run") -> PeerProcess:
    return PeerProcess(_Explaining(None), None, _Immortal(reason), peer=PEER)  # type: ignore[arg-type]


def test_an_end_that_is_not_proven_is_told_with_the_error(scope: Scope) -> None:
    error = immortal().end(PeerProtocolError("bad frame", peer=PEER, stage="call"), scope)
    assert error.aftermath == ["killed", "process 7 may still run"] and error.hint == "look for process 7"


def test_a_hint_of_the_error_itself_comes_first_and_no_reason_is_told_twice(scope: Scope) -> None:
    error = immortal("gone wrong").end(PeerError("gone wrong", hint="own", peer=PEER, stage="call"), scope)
    assert (error.aftermath, error.hint) == (["killed"], "own")


def test_a_kill_whose_end_is_not_proven_is_an_error() -> None:
    process = immortal()
    over = UsageError("closed")
    for _ in range(2):
        with pytest.raises(PeerError) as raised:
            process.kill(over)
        assert (raised.value.stage, raised.value.reason) == ("kill", "process 7 may still run")
    assert process.over is over
    with pytest.raises(PeerError) as raised:
        process.check_gone("exit")
    assert raised.value.stage == "exit"


def test_a_kill_ends_the_tree_at_once_and_keeps_what_ended_it_before(
    sandbox: Path, workspace: Path, scope: Scope
) -> None:
    with running(workspace, "import signal; signal.signal(15, 1); input()") as process:
        first, second = UsageError("first"), UsageError("second")
        process.kill(first)
        process.kill(second)
        assert process.over is first and process.child.is_proven_dead


# -- a plan ------------------------------------------------------------------------------------------


def test_an_entry_is_planned_as_it_says(workspace: Path) -> None:
    sandbox = Sandbox(SandboxSettings())
    prepared = prepared_for(settings("pass"), sandbox, workspace, OWN="x")
    other = prepared_for(replace(settings("pass"), cwd="workspace"), sandbox, workspace, OWN="x")
    bare = prepared_for(settings("pass"), sandbox, workspace)
    assert len({repr(one.plan) for one in (prepared, other, bare)}) == 3
    assert repr(prepared_for(settings("pass"), sandbox, workspace).plan) == repr(bare.plan)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"ro_paths": (Path("/"),)}, ConfigError),
        ({"command": "nowhere-to-be-found"}, CommandUnusable),
    ],
)
def test_a_fault_of_an_entry_names_it(workspace: Path, changes: Json, kind: type[LatchError]) -> None:
    with pytest.raises(kind) as raised:
        prepared_for(settings("pass", **changes), Sandbox(SandboxSettings()), workspace)
    if isinstance(raised.value, ConfigError):
        assert raised.value.problems[0].entry == 'extensions "small"'
        assert raised.value.problems[0].file == "settings"
    else:
        assert raised.value.peer == PEER


def test_t6_a_command_of_the_workspace_is_never_a_peers(workspace: Path) -> None:
    program = workspace / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises((ConfigError, CommandUnusable, Denied)):
        prepared_for(settings(command=str(program)), Sandbox(SandboxSettings()), workspace)


def test_a_problem_names_the_file_it_came_from() -> None:
    for entry in (
        settings(),
        McpServerSettings(name="small", transport="stdio", command="x"),
    ):
        own = replace(entry, sandbox=SandboxSettings(config_file=Path("/etc/latch.toml")))
        assert str(problem_of(entry, "t", "is bad")) == 'settings: t "small": is bad'
        assert str(problem_of(own, "t", "is bad", "key")) == '/etc/latch.toml: t "small": key: is bad'


def test_t27_a_secret_that_the_tail_begins_in_the_middle_of_is_not_shown(
    sandbox: Path, workspace: Path, scope: Scope
) -> None:
    secret = "A1b2C3d4E5f6G7h8"
    body = f"import sys; sys.stderr.write({secret!r} + 'x' * (8192 - 10)); sys.exit(3)"
    with running(workspace, body, redactor=Redactor([secret])) as process:
        wait_for_end(process, scope)
        assert process.child.is_stderr_cut
        shown = process.stderr_text()
    assert set(shown) == {"x"} and len(shown) > 8000
