"""One sandboxed extension: started, driven through its conversation, and ended.

The conversation (``conversation.py``) knows the protocol, the child (``system/child.py``) the pipes;
this file owns time: each stage has its deadline, and whatever goes wrong names the extension and the
stage, kills the whole tree and proves that it is gone. A host whose stream is in an unknown state is
never used again.

An extension that answers with an error stays usable. One that misses a deadline, breaks the protocol
or ends is over for good: later calls raise the error that ended it, and its guards keep answering
deny. An end that could not be proven is an error that names the process, whoever asked for the end.
Nothing an extension says grants permission.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Iterable, Iterator, Mapping, TypeVar

from .. import __version__
from ..errors import (
    Cancelled,
    ConcurrentUse,
    ConfigError,
    LatchError,
    PeerError,
    PeerGone,
    PeerProtocolError,
    PeerRefused,
    UsageError,
    WireError,
)
from ..limits import LifecycleLimits, Limits
from ..settings import ExtensionSettings, subject_of
from ..system import housekeeper
from ..system.child import Child
from ..system.faults import broken, refused
from ..system.peer import PeerProcess, prepare_entry, problem_of
from ..system.planning import Prepared
from ..system.sandbox import Sandbox
from ..system.scope import Scope
from ..wire.excerpts import quote, shorten
from ..wire.jsontext import Json
from .conversation import Answered, Became, Event, ExtensionConversation, Ignored, Refused, State
from .hooks import Decision, GuardAnswer, check_transformed, parse_guard_answer
from .registrations import Registrations

__all__ = ["ExtensionHost", "prepare_extension"]

_T = TypeVar("_T")


class _Trace:
    """Hands frames to somebody's trace and keeps what that raised, to be told from what a peer did."""

    def __init__(self, trace: Callable[[str, bytes], None] | None) -> None:
        self.fault: BaseException | None = None
        self._trace = trace

    def __call__(self, direction: str, body: bytes) -> None:
        try:
            if self._trace is not None:
                self._trace(direction, body)
        except BaseException as error:
            self.fault = error
            raise


class ExtensionHost:
    """A running extension. Make one with :meth:`open`; it is a context manager.

    It belongs to the thread that is driving it; another thread may only cancel the scope that was
    passed (:class:`ConcurrentUse` otherwise).
    """

    def __init__(
        self,
        settings: ExtensionSettings,
        sandbox: Sandbox,
        prepared: Prepared,
        child: Child,
        conversation: ExtensionConversation,
        limits: Limits,
        trace: _Trace,
    ) -> None:
        """Use :meth:`open`."""
        self._settings = settings
        self._process = PeerProcess(sandbox, prepared, child, peer=subject_of(settings))
        self._child = child
        self._conversation = conversation
        self._limits = limits
        self._trace = trace
        self._lifecycle = _lifecycle(settings, limits)
        self._peer = subject_of(settings)
        self._events: list[Event] = []
        self._late: dict[str, None] = {}
        self._timings: dict[str, float] = {}
        self._ignored = 0
        child.on_idle = self._hear
        housekeeper.tend(child, limits.process.housekeeping_seconds)

    # -- life -------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        settings: ExtensionSettings,
        *,
        workspace: Path | str,
        scope: Scope,
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
        reserved_commands: Iterable[str] = (),
        trace: Callable[[str, bytes], None] | None = None,
    ) -> ExtensionHost:
        """Start the extension of *settings* in its sandbox and return it ready for calls.

        *sandbox* is shared by the peers of one configuration; None makes one from
        ``settings.sandbox``. *limits* None are those of *sandbox*. An extension that registers one of
        *reserved_commands* breaks the protocol. *trace* gets ``"->"`` or ``"<-"`` and the body of each
        frame; what it raises ends the extension and comes out of the call, or of the next one where
        the frame came between calls. Raises :class:`SandboxUnavailable`, :class:`CommandUnusable`,
        :class:`ConfigError`, a :class:`PeerError` naming the stage, and what *scope* raises; then
        nothing is left running.
        """
        if sandbox is None:
            sandbox = Sandbox(settings.sandbox, **({} if limits is None else {"limits": limits}))
        limits = limits or sandbox.limits
        peer, lifecycle = subject_of(settings), _lifecycle(settings, limits)
        bubblewrap = sandbox.ready(
            scope.within(None, peer=peer, stage="spawn"),
            wanted=peer,
            workspace=Path(workspace),
            network=settings.network,
        )
        prepared = prepare_extension(
            settings, sandbox, workspace=Path(workspace), features=bubblewrap.features
        )
        kept = _Trace(trace)
        conversation = ExtensionConversation(
            limits,
            allow=settings.allow,
            reserved=reserved_commands,
            trace=None if trace is None else kept,
        )
        began = scope.now()
        within = scope.within(lifecycle.spawn_seconds, peer=peer, stage="spawn", missing="started process")
        child = sandbox.start(prepared, within)
        try:
            host = cls(settings, sandbox, prepared, child, conversation, limits, kept)
            host._exchange(lambda: host._greet(within), within)
            host._timings["spawn"] = scope.now() - began
            host._reach(State.REGISTERING, scope, seconds=lifecycle.initialize_seconds, missing="answer")
            host._reach(State.READY, scope, seconds=lifecycle.ready_seconds, missing="ready")
        except BaseException:
            # NOTE: an exchange has ended it already; this is for what fails around them.
            child.end(scope.shielded(limits.process.kill_seconds))
            raise
        return host

    def close(self, scope: Scope | None = None) -> None:
        """Shut the extension down: ``shutdown``, its answer, ``exit``, stdin closed, status 0 expected.

        Idempotent, and silent for one that is over already. Raises a :class:`PeerError` when it did
        not go by the rules; it is gone all the same. *scope* None is one that nobody cancels.
        """
        if self._process.over is not None:
            return
        outer, lifecycle = scope or Scope.root(), self._lifecycle
        within = outer.within(lifecycle.shutdown_seconds, peer=self._peer, stage="shutdown", missing="answer")
        with self._timed("shutdown", within):
            self._exchange(lambda: self._ask_shutdown(within), within)
        within = outer.within(lifecycle.exit_seconds, peer=self._peer, stage="exit", missing="exit")
        with self._timed("exit", within):
            self._exchange(lambda: self._say_exit(within), within)
        self._process.over = UsageError(f"{self._peer} was closed")

    def kill(self) -> None:
        """End the whole tree at once, without a word to it. Idempotent, and silent for a dead peer.

        Raises a :class:`PeerError` that names the process when its end could not be proven.
        """
        self._process.kill(UsageError(f"{self._peer} was closed"))

    def __enter__(self) -> ExtensionHost:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        try:
            self.kill()
        except PeerError as unproven:
            if not isinstance(error, (LatchError, Cancelled)):
                raise
            error.after(str(unproven))

    # -- what is known ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of its configuration entry."""
        return self._settings.name

    @property
    def settings(self) -> ExtensionSettings:
        """Its configuration entry."""
        return self._settings

    @property
    def registrations(self) -> Registrations:
        """What it registered, frozen at ``ready``."""
        return self._conversation.registrations

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds each stage took so far, in order."""
        return MappingProxyType(self._timings)

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """What is worth telling its operator: declarations that never fire, late registrations."""
        return (*self.registrations.diagnostics, *self._late)

    @property
    def ignored(self) -> int:
        """How many notifications of unknown methods it sent."""
        return self._ignored

    @property
    def stderr_tail(self) -> str:
        """The last of what it wrote to its standard error, undecodable bytes replaced."""
        return self._child.stderr_text()

    @property
    def failure(self) -> LatchError | None:
        """The error that ended it, or None while it is usable."""
        return self._process.over

    # -- calls ------------------------------------------------------------------------------------

    def call_tool(self, name: str, arguments: Mapping[str, Json], scope: Scope) -> Json:
        """Run the tool registered as *name* and return its JSON result, null included.

        Raises :class:`UsageError` for a name it did not register and for arguments that are no mapping of
        JSON values, :class:`PeerRefused` when the tool
        answered with an error (the extension stays usable), any other :class:`PeerError` when it is
        over, and what *scope* raises.
        """
        if not self.registrations.has_tool(name):
            raise UsageError(f'{self._peer} has no tool "{name}"', hint=self._offer("tools"))
        if type(arguments) is not dict:
            arguments = self._as_dict(arguments)
        return self._request("tool.execute", {"name": name, "arguments": arguments}, scope)

    def run_command(self, name: str, arguments: Json, scope: Scope) -> Json:
        """Run the command registered as *name*; raises as :meth:`call_tool` does."""
        if name not in {command.name for command in self.registrations.commands}:
            raise UsageError(f'{self._peer} has no command "{name}"', hint=self._offer("commands"))
        return self._request("command.execute", {"name": name, "arguments": arguments}, scope)

    def guard(self, action: str, payload: Json, scope: Scope) -> GuardAnswer:
        """Ask about *action*; an extension that does not guard it allows.

        Fails closed: whatever goes wrong with the extension is a deny with ``failed`` set. Only what
        *scope* raises on cancel comes out.
        """
        if not self.registrations.guards_action(action):
            return GuardAnswer(Decision.ALLOW)
        try:
            answer = self._request("hook.guard", {"action": action, "payload": payload}, scope)
        except ConcurrentUse:
            raise
        except LatchError as error:
            return GuardAnswer(Decision.DENY, (f"{self.name}: the guard failed: {error}",), failed=True)
        return parse_guard_answer(self.name, answer)

    def transform(self, structure: str, value: Json, scope: Scope) -> Json:
        """Return *value* as the extension changed it, or as it is when it does not transform *structure*.

        Raises :class:`PeerProtocolError` for a result that lost its shape or changed what it may not
        (the extension stays usable), and as :meth:`call_tool` does.
        """
        if not self.registrations.transforms_structure(structure):
            return value
        changed = self._request("hook.transform", {"structure": structure, "value": value}, scope)
        try:
            return check_transformed(structure, value, changed)
        except WireError as error:
            raise PeerProtocolError(
                f"{structure}: {error.reason}", peer=self._peer, stage="hook.transform"
            ) from None

    def context(self, name: str, scope: Scope) -> Json:
        """Return what the context source *name* says; raises as :meth:`call_tool` does."""
        if name not in {source.name for source in self.registrations.context_sources}:
            raise UsageError(
                f'{self._peer} has no context source "{name}"', hint=self._offer("context_sources")
            )
        return self._request("context_source.get", {"name": name}, scope)

    def observe(self, event: str, payload: Json, scope: Scope) -> None:
        """Tell the extension of *event* if it observes it; waits only until the pipe took it.

        Raises a :class:`PeerError` when it could not be told; the extension is over then.
        """
        if not self.registrations.observes(event):
            return
        self._process.check_usable()
        within = scope.within(
            self._lifecycle.request_seconds, peer=self._peer, stage="hook.observe", missing="reader"
        )
        self._exchange(lambda: self._tell_event(event, payload, within), within)

    # -- one exchange each ------------------------------------------------------------------------

    def _greet(self, scope: Scope) -> None:
        self._conversation.initialize(workspace=self._process.prepared.workspace, version=__version__)
        self._child.queue(self._conversation.take_output())
        self._child.flush(scope)

    def _await_state(self, scope: Scope) -> None:
        event = self._converse((Became, Refused), scope)
        if isinstance(event, Refused):
            raise self._refusal(event, scope)

    def _ask(self, method: str, params: Json, scope: Scope) -> Answered | Refused:
        self._say(self._conversation.request, method, params)
        try:
            answer = self._converse((Answered, Refused), scope)
        except Cancelled as cancelled:
            self._cancel_request(cancelled, scope)
            raise
        assert isinstance(answer, (Answered, Refused))
        return answer

    def _tell(self, method: str, params: Json, scope: Scope) -> bool:
        self._say(self._conversation.notify, method, params)
        self._child.queue(self._conversation.take_output())
        return self._child.flush(scope)

    def _tell_event(self, event: str, payload: Json, scope: Scope) -> None:
        if not self._tell("hook.observe", {"event": event, "payload": payload}, scope):
            raise self._child.gone(scope, before="it was told")

    def _ask_shutdown(self, scope: Scope) -> None:
        self._conversation.shutdown()
        answer = self._converse((Answered, Refused), scope)
        if isinstance(answer, Refused):
            raise self._refusal(answer, scope)

    def _say_exit(self, scope: Scope) -> None:
        self._tell("exit", {}, scope)
        self._child.wait_exit(scope)
        ended = self._child.end(scope.shielded(self._limits.process.kill_seconds))
        if ended.status != 0:
            raise PeerGone(
                f"{ended} instead of 0",
                status=ended.status,
                stderr_tail=self._child.stderr_text(),
                peer=self._peer,
                stage="exit",
            )
        self._process.check_gone("exit")

    # -- the machinery ----------------------------------------------------------------------------

    def _request(self, method: str, params: Json, scope: Scope) -> Json:
        self._process.check_usable()
        within = scope.within(
            self._lifecycle.request_seconds, peer=self._peer, stage=method, missing="answer"
        )
        # NOTE: before anything is said, because what was queued would still be sent with its cancellation.
        within.check()
        answer = self._exchange(lambda: self._ask(method, params, within), within)
        if isinstance(answer, Refused):
            raise self._refusal(answer, within)
        return answer.result

    def _say(self, speak: Callable[[str, Json], None], method: str, params: Json) -> None:
        try:
            speak(method, params)
        except WireError as error:
            # NOTE: nothing was queued: what our caller passed cannot be said at all.
            raise UsageError(f"{self._peer}: the arguments cannot be sent: {error.reason}") from None

    def _cancel_request(self, cancelled: Cancelled, scope: Scope) -> None:
        """Ask the extension to give up the request; one that does not answer in its grace is killed."""
        grace = scope.shielded(self._limits.extension.cancel_grace_seconds)
        try:
            self._conversation.cancel()
            self._converse((Answered, Refused), grace)
        except (LatchError, WireError):
            over = UsageError(f"{self._peer} was killed, because it did not answer $/cancelRequest")
            self._process.end(over, scope)
            cancelled.after("it did not answer $/cancelRequest and was killed")

    def _reach(self, state: State, scope: Scope, *, seconds: float, missing: str) -> None:
        stage = "initialize" if state is State.REGISTERING else "registration"
        within = scope.within(seconds, peer=self._peer, stage=stage, missing=missing)
        with self._timed(stage, within):
            self._exchange(lambda: self._await_state(within), within)

    def _converse(self, kinds: tuple[type[Event], ...], scope: Scope) -> Event:
        """Drive the pipes until an event of *kinds* came, and return it."""

        def heard(chunk: bytes) -> bool:
            self._hear(chunk)
            return bool(self._events)

        self._child.queue(self._conversation.take_output())
        if not self._events:
            self._child.pump(heard, scope)
        event = self._events.pop(0)
        assert isinstance(event, kinds), event
        return event

    def _hear(self, chunk: bytes) -> None:
        self._process.was_heard = True
        try:
            events = self._conversation.receive(chunk)
        except WireError:
            # NOTE: its last word: an invalid registration was answered.
            self._child.queue(self._conversation.take_output())
            self._child.send_now()
            raise
        for event in events:
            if not isinstance(event, Ignored):
                self._events.append(event)
            elif event.late:
                # NOTE: once for each method, or it could fill our memory with them.
                self._late[f'"{event.method}" came after ready and was not registered'] = None
            else:
                self._ignored += 1
                self._log_ignored(event.method)
        output = self._conversation.take_output()
        if not output:
            return
        most = self._limits.extension.max_unread_answer_bytes
        if self._child.outbox_bytes > most:
            raise WireError(
                "it asks and does not read the answers", limit="max_unread_answer_bytes", amount=most
            )
        self._child.queue(output)

    def _log_ignored(self, method: str) -> None:
        # NOTE: here, because few extensions chatter, and loading it would slow every start.
        import logging

        shown = quote(method, self._limits.extension.max_quoted_chars)
        logging.getLogger(__name__).debug("%s: unknown notification %s ignored", self._peer, shown)

    def _exchange(self, work: Callable[[], _T], scope: Scope) -> _T:
        """Hold the child while *work* runs; whatever goes wrong, but for our caller's mistakes, ends it."""
        return self._process.exchange(work, scope, settle=self._settle)

    def _settle(self, error: BaseException, scope: Scope) -> None:
        """End the extension unless *error* leaves its stream known; raises what *error* means, if another."""
        if error is self._trace.fault:
            self._process.end(self._ended_by(f"its trace failed ({type(error).__name__})"), scope)
        elif isinstance(error, UsageError):
            pass
        elif isinstance(error, WireError):
            raise self._process.end(broken(error, scope), scope) from None
        elif isinstance(error, LatchError):
            raise self._process.end(error, scope) from error.__cause__
        elif isinstance(error, OSError):
            raise self._process.end(
                PeerGone(str(error), peer=scope.peer, stage=scope.stage), scope
            ) from error
        elif not isinstance(error, Cancelled):
            # NOTE: an interrupt may come between any two steps, so also inside a message.
            self._process.end(self._ended_by(f"its use failed ({type(error).__name__})"), scope)
        elif self._process.over is None and self._conversation.state is not State.READY:
            self._process.end(self._ended_by("its use was cancelled"), scope)

    def _ended_by(self, why: str) -> UsageError:
        return UsageError(f"{self._peer} was ended, because {why}")

    def _refusal(self, answer: Refused, scope: Scope) -> PeerRefused:
        return refused(answer.error, scope, quoted_chars=self._limits.extension.max_quoted_chars)

    def _as_dict(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        if not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            raise UsageError(f"{self._peer}: the arguments of a tool must be a mapping, not {kind}")
        return dict(arguments)

    def _offer(self, kind: str) -> str:
        names = ", ".join(one.name for one in getattr(self.registrations, kind)) or "none"
        return f"it has: {shorten(names, self._limits.extension.max_quoted_chars)}"

    @contextmanager
    def _timed(self, stage: str, scope: Scope) -> Iterator[None]:
        began = scope.now()
        try:
            yield
        finally:
            self._timings[stage] = scope.now() - began


def prepare_extension(
    settings: ExtensionSettings, sandbox: Sandbox, *, workspace: Path, features: frozenset[str]
) -> Prepared:
    """Return what :meth:`ExtensionHost.open` would start; looks at the disk and starts nothing.

    *features* are the options of the bubblewrap in use. Raises :class:`ConfigError` for a fault of the
    entry, :class:`CommandUnusable` for its command, :class:`Denied` and :class:`UsageError` for the
    workspace.
    """
    return prepare_entry(
        settings,
        sandbox,
        peer=subject_of(settings),
        table="extensions",
        workspace=workspace,
        environment=_environment(settings, sandbox.machine.environment),
        features=features,
    )


def _lifecycle(settings: ExtensionSettings, limits: Limits) -> LifecycleLimits:
    return settings.lifecycle or limits.lifecycle


def _environment(settings: ExtensionSettings, known: Mapping[str, str]) -> Mapping[str, str]:
    problems = [
        problem_of(
            settings, "extensions", f'"{name}" is not set in the environment of this process', "env_from"
        )
        for name in settings.env_from
        if name not in known
    ]
    if problems:
        raise ConfigError(problems, hint="set the variable, or remove its name from env_from")
    return MappingProxyType({**{name: known[name] for name in settings.env_from}, **settings.env})
