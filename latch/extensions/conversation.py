"""The conversation with one extension, as a table and without I/O.

The host feeds bytes and gets events; what is to be sent collects in :meth:`take_output`. Every move
stands in ``MOVES``: the state, the kind of message that came, the next state, and what is done with
it. A pair that is not in the table is a protocol error, which is fatal: nothing is resynchronised.

What this system asks of an extension, and the shapes both ways (protocol version 0.1):

=======================  ============  ==============================  =================================
method                   kind          params                          answer
=======================  ============  ==============================  =================================
``initialize``           request       ``protocolVersion``,            ``{"protocolVersion": "0.1"}``
                                       ``client {name, version}``,
                                       ``workspace``,
                                       ``permissionContract``
``initialized``          notification  ``{}``
``tool.execute``         request       ``name``, ``arguments``         any JSON, null included
``command.execute``      request       ``name``, ``arguments``         any JSON
``hook.guard``           request       ``action``, ``payload``         ``decision`` allow | deny | ask,
                                                                       ``reason?``
``hook.transform``       request       ``structure``, ``value``        the new value itself
``context_source.get``   request       ``name``                        any JSON
``hook.observe``         notification  ``event``, ``payload``
``$/cancelRequest``      notification  ``id``
``shutdown``             request       ``{}``                          anything without ``error``
``exit``                 notification  ``{}``
=======================  ============  ==============================  =================================

Ids of the two directions are separate spaces; a message is a request or a response by its members.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Callable, Iterable, Union

from ..errors import WireError
from ..limits import Limits
from ..wire import jsonrpc
from ..wire.excerpts import quote
from ..wire.framing import FrameReader, encode_frame
from ..wire.jsonrpc import Failure, Message, Notification, Request, Response
from ..wire.jsontext import Json
from .registrations import METHODS, Registrations, RegistrationsBuilder

__all__ = [
    "MOVES",
    "PROTOCOL_VERSION",
    "Answered",
    "Became",
    "Event",
    "ExtensionConversation",
    "Ignored",
    "Kind",
    "Refused",
    "State",
]

PROTOCOL_VERSION = "0.1"
_PERMISSION_CONTRACT = "cooperative-audit"
_CLIENT_NAME = "latch"


class _Key(Enum):
    """A member that is looked up for every message: the hash of an Enum takes a call of Python."""

    __hash__ = object.__hash__


class State(_Key):
    """Where the conversation is."""

    SPAWNED = "spawned"
    INITIALIZING = "initialize"
    REGISTERING = "registration"
    READY = "ready"
    CALLING = "calling"
    STOPPING = "shutdown"
    EXITED = "exit"


class Kind(_Key):
    """What a message from the extension is, judged by its members alone."""

    ANSWER = "an answer to the outstanding request"
    STRAY = "an answer to no outstanding request"
    REGISTRATION = "a registration"
    READY = "ready"
    REQUEST = "a request"
    NOTIFICATION = "a notification"


class Act(_Key):
    """What is done with a message."""

    TAKE = "hand it on"
    REGISTER = "register it"
    FREEZE = "registration ends"
    REFUSE = "answer that there is no such method"
    LATE = "answer that it came too late"
    IGNORE = "count it"


MOVES: MappingProxyType[tuple[State, Kind], tuple[State, Act]] = MappingProxyType(
    {
        # Notifications and questions are welcome at any time, so also before we have said anything.
        (State.SPAWNED, Kind.REQUEST): (State.SPAWNED, Act.REFUSE),
        (State.SPAWNED, Kind.NOTIFICATION): (State.SPAWNED, Act.IGNORE),
        (State.INITIALIZING, Kind.ANSWER): (State.REGISTERING, Act.TAKE),
        (State.INITIALIZING, Kind.REQUEST): (State.INITIALIZING, Act.REFUSE),
        (State.INITIALIZING, Kind.NOTIFICATION): (State.INITIALIZING, Act.IGNORE),
        (State.REGISTERING, Kind.REGISTRATION): (State.REGISTERING, Act.REGISTER),
        (State.REGISTERING, Kind.READY): (State.READY, Act.FREEZE),
        (State.REGISTERING, Kind.REQUEST): (State.REGISTERING, Act.REFUSE),
        (State.REGISTERING, Kind.NOTIFICATION): (State.REGISTERING, Act.IGNORE),
        (State.READY, Kind.REGISTRATION): (State.READY, Act.LATE),
        (State.READY, Kind.READY): (State.READY, Act.LATE),
        (State.READY, Kind.REQUEST): (State.READY, Act.REFUSE),
        (State.READY, Kind.NOTIFICATION): (State.READY, Act.IGNORE),
        (State.CALLING, Kind.ANSWER): (State.READY, Act.TAKE),
        (State.CALLING, Kind.REGISTRATION): (State.CALLING, Act.LATE),
        (State.CALLING, Kind.READY): (State.CALLING, Act.LATE),
        (State.CALLING, Kind.REQUEST): (State.CALLING, Act.REFUSE),
        (State.CALLING, Kind.NOTIFICATION): (State.CALLING, Act.IGNORE),
        (State.STOPPING, Kind.ANSWER): (State.EXITED, Act.TAKE),
        (State.STOPPING, Kind.REGISTRATION): (State.STOPPING, Act.LATE),
        (State.STOPPING, Kind.READY): (State.STOPPING, Act.LATE),
        (State.STOPPING, Kind.REQUEST): (State.STOPPING, Act.REFUSE),
        (State.STOPPING, Kind.NOTIFICATION): (State.STOPPING, Act.IGNORE),
        # After shutdown nothing is answered any more; what still comes is only counted.
        (State.EXITED, Kind.REGISTRATION): (State.EXITED, Act.IGNORE),
        (State.EXITED, Kind.READY): (State.EXITED, Act.IGNORE),
        (State.EXITED, Kind.REQUEST): (State.EXITED, Act.IGNORE),
        (State.EXITED, Kind.NOTIFICATION): (State.EXITED, Act.IGNORE),
    }
)


@dataclass(frozen=True)
class Became:
    """The conversation entered ``state``: REGISTERING after a good handshake, READY after ``ready``."""

    state: State


@dataclass(frozen=True)
class Answered:
    """The outstanding request was answered with ``result``, any JSON."""

    result: Json


@dataclass(frozen=True)
class Refused:
    """The outstanding request was answered with an error; ``error`` is what was sent, any JSON."""

    error: Json


@dataclass(frozen=True)
class Ignored:
    """A message that changed nothing: an unknown notification, or a registration that came too late."""

    method: str
    late: bool


Event = Union[Became, Answered, Refused, Ignored]


class ExtensionConversation:
    """One conversation. Raises :class:`WireError` for whatever breaks the protocol; after that it is
    over, and the same error comes again."""

    def __init__(
        self,
        limits: Limits,
        *,
        allow: tuple[str, ...] = (),
        reserved: Iterable[str] = (),
        trace: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """*reserved* are names of commands that it may not register. *trace* is called with ``"->"`` or
        ``"<-"`` and each frame's body, for a person to read; what it raises comes out, and the
        conversation is over."""
        self._limits = limits
        self._trace = trace
        self._reader = FrameReader(limits.frame)
        self._builder = RegistrationsBuilder(limits, allow, reserved=reserved)
        self._registrations: Registrations | None = None
        self._output: list[bytes] = []
        self._state = State.SPAWNED
        self._awaited: int | None = None
        self._next_id = 1
        self._failure: WireError | None = None

    @property
    def state(self) -> State:
        """Where the conversation is."""
        return self._state

    @property
    def registrations(self) -> Registrations:
        """What was registered; complete once READY was reached."""
        return self._registrations or self._builder.freeze()

    # -- what we say ------------------------------------------------------------------------------

    def initialize(self, *, workspace: str, version: str) -> None:
        """Queue the first request; *version* is the product's."""
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "client": {"name": _CLIENT_NAME, "version": version},
            "workspace": workspace,
            "permissionContract": _PERMISSION_CONTRACT,
        }
        self._ask("initialize", params, {State.SPAWNED: State.INITIALIZING})

    def request(self, method: str, params: Json) -> None:
        """Queue one request; READY becomes CALLING. Raises :class:`WireError` when it cannot be encoded."""
        self._ask(method, params, {State.READY: State.CALLING})

    def notify(self, method: str, params: Json) -> None:
        """Queue one notification."""
        self._say(jsonrpc.encode_notification(method, params))

    def cancel(self) -> None:
        """Queue ``$/cancelRequest`` for the outstanding request."""
        if self._awaited is not None:
            self.notify("$/cancelRequest", {"id": self._awaited})

    def shutdown(self) -> None:
        """Queue ``shutdown``; READY becomes STOPPING."""
        self._ask("shutdown", {}, {State.READY: State.STOPPING})

    def take_output(self) -> bytes:
        """Return what is to be sent now, and forget it."""
        if not self._output:
            return b""
        output, self._output = b"".join(self._output), []
        return output

    def _ask(self, method: str, params: Json, moves: dict[State, State]) -> None:
        following = moves.get(self._state)
        if following is None:
            raise WireError(f"{method} cannot be sent in state {self._state.value}")
        self._say(jsonrpc.encode_request(self._next_id, method, params))
        self._awaited, self._state = self._next_id, following
        self._next_id += 1

    def _say(self, body: bytes) -> None:
        frame = encode_frame(body, self._limits.frame)
        if self._trace is not None:
            self._trace("->", body)
        self._output.append(frame)

    # -- what we hear -----------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Take what the extension wrote and return what happened, in order."""
        if self._failure is not None:
            raise self._failure
        events: list[Event] = []
        try:
            self._reader.feed(data)
            while (body := self._reader.next_frame()) is not None:
                if self._trace is not None:
                    self._trace("<-", body)
                events += self._hear(jsonrpc.parse_message(body, self._limits.json))
        except WireError as error:
            self._failure = error
            raise
        return events

    def _hear(self, message: Message) -> list[Event]:
        kind = self._judge(message)
        move = MOVES.get((self._state, kind))
        if move is None:
            raise WireError(_breach(kind, message, self._limits.extension.max_quoted_chars))
        before, (self._state, act) = self._state, move
        return _ACTS[act](self, message, before)

    def _judge(self, message: Message) -> Kind:
        if isinstance(message, (Response, Failure)):
            outstanding = self._awaited is not None and jsonrpc.same_id(message.id, self._awaited)
            return Kind.ANSWER if outstanding else Kind.STRAY
        if message.method in METHODS:
            return Kind.REGISTRATION
        if message.method == "ready":
            return Kind.READY
        return Kind.REQUEST if isinstance(message, Request) else Kind.NOTIFICATION

    def _take(self, message: Message, before: State) -> list[Event]:
        self._awaited = None
        if isinstance(message, Failure):
            return [Refused(message.raw)]
        assert isinstance(message, Response)
        if before is State.INITIALIZING:
            _check_version(message.result, self._limits.extension.max_quoted_chars)
            self.notify("initialized", {})
            return [Became(State.REGISTERING)]
        return [Answered(message.result)]

    def _register(self, message: Message, before: State) -> list[Event]:
        assert isinstance(message, (Request, Notification))
        try:
            self._builder.add(message.method, message.params)
        except WireError as error:
            self._answer_failure(message, jsonrpc.INVALID_PARAMS, error.reason)
            raise
        if isinstance(message, Request):
            self._say(jsonrpc.encode_result(message.id, {"ok": True}))
        return []

    def _freeze(self, message: Message, before: State) -> list[Event]:
        self._registrations = self._builder.freeze()
        return [Became(State.READY)]

    def _refuse(self, message: Message, before: State) -> list[Event]:
        assert isinstance(message, Request)
        self._answer_failure(message, jsonrpc.METHOD_NOT_FOUND, "no such method")
        return []

    def _late(self, message: Message, before: State) -> list[Event]:
        assert isinstance(message, (Request, Notification))
        self._answer_failure(message, jsonrpc.INVALID_REQUEST, "registration ended with ready")
        return [Ignored(message.method, late=True)]

    def _ignore(self, message: Message, before: State) -> list[Event]:
        assert isinstance(message, (Request, Notification))
        return [Ignored(message.method, late=False)]

    def _answer_failure(self, message: Request | Notification, code: int, text: str) -> None:
        if isinstance(message, Request):
            self._say(jsonrpc.encode_failure(message.id, code, text))


_ACTS: MappingProxyType[Act, Callable[[ExtensionConversation, Message, State], list[Event]]] = (
    MappingProxyType(
        {
            Act.TAKE: ExtensionConversation._take,
            Act.REGISTER: ExtensionConversation._register,
            Act.FREEZE: ExtensionConversation._freeze,
            Act.REFUSE: ExtensionConversation._refuse,
            Act.LATE: ExtensionConversation._late,
            Act.IGNORE: ExtensionConversation._ignore,
        }
    )
)


def _check_version(result: Json, quoted: int) -> None:
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    if version is None:
        raise WireError(f'the answer has no protocolVersion; it must be "{PROTOCOL_VERSION}"')
    if version != PROTOCOL_VERSION:
        shown = quote(version, quoted) if isinstance(version, str) else "something else"
        raise WireError(f'protocolVersion is {shown}; it must be "{PROTOCOL_VERSION}"')


def _breach(kind: Kind, message: Message, quoted: int) -> str:
    if isinstance(message, (Request, Notification)):
        return f"{quote(message.method, quoted)} came before the handshake was complete"
    return f"{kind.value} came"
