"""What the author of an extension imports, or copies beside the script: this one file.

::

    from sdk import Extension, allow, deny

    ext = Extension()

    @ext.tool(input_schema={"type": "object", "properties": {"text": {"type": "string"}}})
    def echo(arguments):
        "Return the text it was given."
        return arguments["text"]

    @ext.guard("tool.execute")
    def no_rm(action, payload):
        return deny("rm is never run here") if payload["name"] == "rm" else allow()

    ext.run()

What a function receives and returns:

======================== ============================= ==============================================
registered by            called with                   returns
======================== ============================= ==============================================
``ext.tool``             ``arguments``                 any JSON value, None included
``ext.command``          ``arguments``                 any JSON value
``ext.observe``          ``event, payload``            nothing that anybody reads
``ext.transform``        ``structure, value``          the value that replaces it
``ext.guard``            ``action, payload``           ``allow()``, ``deny(reason)`` or ``ask(reason)``
``ext.context_source``   nothing                       any JSON value, usually text
======================== ============================= ==============================================

Each of the six works as a decorator and as a plain call, ``ext.tool("echo")(function)``, and hands the
function back unchanged. All of them come before :meth:`Extension.run`.

What this file promises: while ``run`` works, nothing but the protocol reaches standard output. ``print``,
``os.write(1, …)`` and the output of child processes go to standard error, and standard input reads as
empty. A function that raises is answered as an error and its traceback goes to standard error; a guard
that raises, or returns anything but one of the three answers, is an error too, which the host takes as a
denial. One request runs at a time, in the thread that called ``run``; there are no other threads.

What it does not do: it cannot interrupt a function. A long one asks :meth:`Extension.cancelled` now and
then and raises :class:`Cancelled`; one that never asks is ended by the host. It does not check names or
schemas: the host does, and its refusal is shown on standard error. It grants nothing: what a tool may
touch is decided by the sandbox the host started it in.
"""

from __future__ import annotations

import collections
import json
import os
import re
import select
import sys
import traceback
from typing import Any, Callable, Deque, Dict, Iterator, List, Set, Tuple

__all__ = ["PROTOCOL_VERSION", "Cancelled", "Extension", "allow", "ask", "deny", "log"]

PROTOCOL_VERSION = "0.1"
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_HEADER_BYTES = 8 * 1024
# what a host reads: values nested deeper, or numbers written with more characters, would be the end of us
MAX_DEPTH = 128
MAX_NUMBER_CHARS = 400

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HANDLER_FAILED = -32000
REQUEST_CANCELLED = -32800

_READ_BYTES = 64 * 1024
_MAX_ERROR_CHARS = 4000
_TOO_DEEP = "a message is nested deeper than {} levels".format(MAX_DEPTH)
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_NUMBER_CHARS - 1))
_LARGEST = 10**MAX_NUMBER_CHARS - 1
_SMALLEST = 1 - 10 ** (MAX_NUMBER_CHARS - 1)
_HEADER_END = re.compile(rb"(?:^|\n)\r?\n")
_STRICTEST_FIRST = ("deny", "ask", "allow")

Json = Any
Message = Dict[str, Json]
Function = Callable[..., Json]
Decorator = Callable[[Function], Function]


class Cancelled(BaseException):
    """Raised by a function that stops because the host cancelled its request.

    Not an :class:`Exception`, so that code between the function and ``run`` does not swallow it.
    """


def allow() -> Message:
    """Return a guard's answer: nothing against it."""
    return {"decision": "allow"}


def deny(reason: str) -> Message:
    """Return a guard's answer: it must not happen, because of *reason*; no approval lifts this."""
    return {"decision": "deny", "reason": reason}


def ask(reason: str) -> Message:
    """Return a guard's answer: a person decides, and is shown *reason*."""
    return {"decision": "ask", "reason": reason}


def log(text: str) -> None:
    """Write one line of diagnostics to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Extension:
    """One extension: what it offers, and the loop that serves it.

    ``workspace`` is the absolute path of the workspace and ``client`` what the host says of itself
    (``{"name": …, "version": …}``); both are None until the host has introduced itself, so functions may
    use them and the script's top level may not.
    """

    def __init__(self) -> None:
        self.workspace: str | None = None
        self.client: Json = None
        self._registrations: List[Tuple[str, Message]] = []
        self._functions: Dict[str, Dict[str, Function]] = {}
        self._unanswered: Dict[int, str] = {}
        self._running = False
        self._registered = False
        self._input = -1
        self._output = -1
        self._frames = _FrameReader()
        self._queue: Deque[Message] = collections.deque()
        self._ended = False
        self._fault: str | None = None
        self._current: str | None = None
        self._cancelled: Set[str] = set()
        self._answers: Dict[str, Callable[[Message], Json]] = {
            "initialize": self._initialize,
            "tool.execute": self._execute_tool,
            "command.execute": self._execute_command,
            "hook.transform": self._transform,
            "hook.guard": self._guard,
            "context_source.get": self._context,
            "shutdown": self._shutdown,
        }

    # What an extension offers

    def tool(
        self, name: str | None = None, description: str | None = None, input_schema: Message | None = None
    ) -> Decorator:
        """Offer a tool, by default under the function's name with its docstring's first line.

        *input_schema* is a JSON Schema of type object; without one any object is accepted.
        """
        return self._offer(
            "tool.register", "name", name, {"description": description, "inputSchema": input_schema}
        )

    def command(self, name: str | None = None, description: str | None = None) -> Decorator:
        """Offer a command, which a person calls by its name."""
        return self._offer("command.register", "name", name, {"description": description})

    def observe(self, event: str) -> Decorator:
        """Be told of an event, or of all with ``*``."""
        return self._offer("hook.observe", "event", _text(event), {})

    def transform(self, structure: str) -> Decorator:
        """Replace a structure before it is used."""
        return self._offer("hook.transform", "structure", _text(structure), {})

    def guard(self, action: str) -> Decorator:
        """Judge an action, or all with ``*``; where both match, both are asked and the strictest counts."""
        return self._offer("hook.guard", "action", _text(action), {})

    def context_source(self, name: str | None = None, description: str | None = None) -> Decorator:
        """Offer something the model is to be told with each of its requests."""
        return self._offer("context_source.register", "name", name, {"description": description})

    def _offer(self, method: str, key: str, name: str | None, extra: Message) -> Decorator:
        if name is not None:
            _text(name)

        def keep(function: Function) -> Function:
            self._keep(method, {key: name or function.__name__, **extra}, function)
            return function

        return keep

    def _keep(self, method: str, params: Message, function: Function) -> None:
        if self._running:
            raise RuntimeError("an extension registers before it runs")
        name = next(iter(params.values()))
        if name in self._functions.setdefault(method, {}):
            raise ValueError('{} "{}" is there already'.format(method, name))
        if "description" in params and params["description"] is None:
            params["description"] = ((function.__doc__ or "").strip().splitlines() or [None])[0]
        self._functions[method][name] = function
        kept = {member: value for member, value in params.items() if value is not None}
        self._registrations.append((method, kept))

    # What a running function may ask

    def cancelled(self, within: float = 0.0) -> bool:
        """Return whether the request being served was cancelled, or the host has gone.

        Waits up to *within* seconds for that; it may return earlier when something else arrives. For the
        thread that called ``run`` only.
        """
        if self._current not in self._cancelled and not self._ended:
            self._read(within)
        return self._current in self._cancelled or self._ended

    # The loop

    def run(self) -> None:
        """Serve the host until it says exit or closes the pipe, then return.

        Takes over descriptors 0 and 1 and does not give them back: what is printed afterwards still goes
        to standard error. A frame that cannot be read ends the process with status 1 and a message.
        """
        self._running = True
        self._take_descriptors()
        try:
            self._serve()
        except BrokenPipeError:
            log("the host closed the pipe")
        finally:
            os.close(self._input)
            os.close(self._output)

    def _take_descriptors(self) -> None:
        self._input = os.dup(0)
        self._output = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        sys.stdout.flush()
        sys.stdout = sys.stderr

    def _serve(self) -> None:
        while True:
            message = self._next_message()
            if message is None or message.get("method") == "exit":
                return
            if "method" not in message:
                self._take_answer(message)
            elif "id" in message:
                self._take_request(message["id"], message["method"], message.get("params"))
            else:
                self._take_notification(message["method"], message.get("params"))
            # some interpreters buffer it, and a host that looks for a reason looks now
            sys.stderr.flush()

    def _next_message(self) -> Message | None:
        while not self._queue:
            if self._fault is not None:
                raise SystemExit("bad frame: " + self._fault)
            if self._ended:
                return None
            self._read(None)
        return self._queue.popleft()

    def _read(self, seconds: float | None) -> None:
        """Queue what has arrived, waiting at most *seconds* for it; a cancellation takes effect at once."""
        poll = select.poll()
        poll.register(self._input, select.POLLIN)
        if not poll.poll(None if seconds is None else seconds * 1000):
            return
        chunk = os.read(self._input, _READ_BYTES)
        try:
            for message in self._frames.feed(chunk):
                if message.get("method") == "$/cancelRequest" and "id" not in message:
                    self._cancel(_object(message.get("params")).get("id"))
                else:
                    self._queue.append(message)
        except ValueError as fault:
            self._fault = str(fault)
        self._ended = not chunk or self._fault is not None

    def _cancel(self, request_id: Json) -> None:
        key = _id_key(request_id)
        waiting = [message for message in self._queue if "method" in message and "id" in message]
        # one that was answered already must not be remembered: nothing would ever forget it
        if key == self._current or any(key == _id_key(message["id"]) for message in waiting):
            self._cancelled.add(key)

    # Messages

    def _take_answer(self, message: Message) -> None:
        request_id = message.get("id")
        what = self._unanswered.pop(request_id, None) if isinstance(request_id, int) else None
        if "error" in message:
            log("the host refused {}: {}".format(what or "a message", json.dumps(message["error"])))

    def _take_notification(self, method: Json, params: Json) -> None:
        if method == "initialized":
            self._register()
        elif method == "hook.observe":
            self._observe(_object(params))

    def _take_request(self, request_id: Json, method: Json, params: Json) -> None:
        self._current = _id_key(request_id)
        head = {"jsonrpc": "2.0", "id": request_id}
        try:
            if self._current in self._cancelled:
                raise Cancelled
            frame = _encode_frame({**head, "result": self._answer(method, params)})
        except Cancelled:
            frame = _encode_error(head, REQUEST_CANCELLED, "cancelled")
        except _Refused as refusal:
            frame = _encode_error(head, refusal.code, str(refusal))
        # a function that calls sys.exit, as command line libraries do, must not end the extension
        except (Exception, SystemExit) as fault:
            log(traceback.format_exc())
            frame = _encode_error(head, HANDLER_FAILED, "{}: {}".format(type(fault).__name__, fault))
        finally:
            self._cancelled.discard(self._current)
            self._current = None
        self._send(frame)

    def _answer(self, method: Json, params: Json) -> Json:
        if self.workspace is None and method != "initialize":
            raise _Refused(INVALID_REQUEST, "initialize comes first")
        if not isinstance(method, str) or method not in self._answers:
            raise _Refused(METHOD_NOT_FOUND, "unknown method {}".format(json.dumps(method)))
        return self._answers[method](_object(params))

    def _initialize(self, params: Message) -> Json:
        version = params.get("protocolVersion")
        if version != PROTOCOL_VERSION:
            spoken = 'this extension speaks "{}", not {}'.format(PROTOCOL_VERSION, json.dumps(version))
            raise _Refused(INVALID_PARAMS, spoken)
        self.workspace = _member(params, "workspace")
        self.client = params.get("client")
        return {"protocolVersion": PROTOCOL_VERSION}

    def _register(self) -> None:
        if self._registered:
            return
        self._registered = True
        for number, (method, params) in enumerate(self._registrations, start=1):
            self._unanswered[number] = "{} {}".format(method, json.dumps(next(iter(params.values()))))
            self._send(_encode_frame({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        self._send(_encode_frame({"jsonrpc": "2.0", "method": "ready", "params": {}}))

    def _execute_tool(self, params: Message) -> Json:
        return self._function("tool.register", params, "name")(params.get("arguments", {}))

    def _execute_command(self, params: Message) -> Json:
        return self._function("command.register", params, "name")(params.get("arguments", {}))

    def _observe(self, params: Message) -> None:
        try:
            event = _member(params, "event")
            for function in self._matching("hook.observe", event):
                function(event, params.get("payload"))
        except (Exception, SystemExit, Cancelled):
            log(traceback.format_exc())

    def _transform(self, params: Message) -> Json:
        function = self._function("hook.transform", params, "structure")
        return function(params["structure"], params.get("value"))

    def _guard(self, params: Message) -> Json:
        action = _member(params, "action")
        functions = self._matching("hook.guard", action)
        answers = [_judged(function(action, params.get("payload"))) for function in functions]
        if not answers:
            raise _Refused(METHOD_NOT_FOUND, "no guard for {}".format(json.dumps(action)))
        return min(answers, key=lambda answer: _STRICTEST_FIRST.index(answer["decision"]))

    def _context(self, params: Message) -> Json:
        return self._function("context_source.register", params, "name")()

    def _shutdown(self, _params: Message) -> None:
        return None

    def _function(self, registration: str, params: Message, member: str) -> Function:
        name = _member(params, member)
        if name not in self._functions.get(registration, {}):
            raise _Refused(METHOD_NOT_FOUND, "no {} of {}".format(registration, json.dumps(name)))
        return self._functions[registration][name]

    def _matching(self, registration: str, name: str) -> List[Function]:
        functions = self._functions.get(registration, {})
        return [functions[key] for key in dict.fromkeys((name, "*")) if key in functions]

    def _send(self, frame: bytes) -> None:
        rest = memoryview(frame)
        while rest:
            try:
                rest = rest[os.write(self._output, rest) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._output, select.POLLOUT)
                poll.poll()


class _Refused(Exception):
    """A request that is answered with an error of the protocol and is nobody's bug here."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _FrameReader:
    """Bytes in, messages out; ValueError for a frame that cannot be read, after which it is useless."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Give out the messages that *chunk* completes; an empty one says that the stream has ended."""
        self._buffer += chunk
        if not chunk and (self._buffer or self._length is not None):
            raise ValueError("the stream ended inside a frame")
        while self._has_length() and len(self._buffer) >= (self._length or 0):
            body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            self._length = None
            yield _parse_body(body)

    def _has_length(self) -> bool:
        if self._length is None:
            end = _HEADER_END.search(self._buffer, 0, MAX_HEADER_BYTES)
            if end is not None:
                self._length = _parse_header(bytes(self._buffer[: end.end()]))
                del self._buffer[: end.end()]
            elif len(self._buffer) >= MAX_HEADER_BYTES:
                raise ValueError("the header is over {} bytes".format(MAX_HEADER_BYTES))
        return self._length is not None


def _parse_header(block: bytes) -> int:
    lengths = set()
    for line in block.splitlines():
        name, colon, value = line.partition(b":")
        if line and not colon:
            raise ValueError("a header line has no colon")
        if name.strip().lower() == b"content-length":
            lengths.add(value.strip().lstrip(b"0") or value.strip()[:1])
    if len(lengths) != 1:
        raise ValueError("a frame needs one Content-Length, this one has {}".format(len(lengths)))
    digits = lengths.pop()
    if not digits.isdigit():
        raise ValueError("Content-Length is not a number")
    # judged by its digits first: converting a long number is quadratic, and refused by newer interpreters
    if len(digits) > len(str(MAX_BODY_BYTES)) or int(digits) > MAX_BODY_BYTES:
        raise ValueError("the body is over {} bytes".format(MAX_BODY_BYTES))
    return int(digits)


def _parse_body(body: bytes) -> Message:
    try:
        value = json.loads(body.decode("utf-8"))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("the body is not a JSON object")
    return value


def _encode_frame(message: Message) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    body = text.encode("utf-8")
    if len(body) > MAX_BODY_BYTES:
        raise ValueError("a message of {} bytes is over {}".format(len(body), MAX_BODY_BYTES))
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH or _LONG_NUMBER.search(body):
        _check_values(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _check_values(message: Message) -> None:
    # level by level, so that no depth exhausts the stack; what was encoded has no cycles
    level: List[Json] = [message]
    for _ in range(MAX_DEPTH):
        inner: List[Json] = []
        for value in level:
            inner.extend(value.values() if isinstance(value, dict) else value)
        if any(isinstance(value, int) and not _SMALLEST <= value <= _LARGEST for value in inner):
            raise ValueError("a number of a message has over {} characters".format(MAX_NUMBER_CHARS))
        level = [value for value in inner if isinstance(value, (dict, list, tuple))]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _encode_error(head: Message, code: int, text: str) -> bytes:
    # a text that cannot be encoded must not turn a reported failure into a dead extension
    message = text[:_MAX_ERROR_CHARS].encode("utf-8", "replace").decode("utf-8")
    return _encode_frame({**head, "error": {"code": code, "message": message}})


def _judged(answer: Json) -> Message:
    if not isinstance(answer, dict) or answer.get("decision") not in _STRICTEST_FIRST:
        raise TypeError("a guard returns allow(), deny(reason) or ask(reason), not {!r}".format(answer))
    return answer


def _object(params: Json) -> Message:
    return params if isinstance(params, dict) else {}


def _member(params: Message, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise _Refused(INVALID_PARAMS, '"{}" must be text'.format(name))
    return value


def _text(name: Json) -> str:
    if not isinstance(name, str):
        raise TypeError("a name is text; a decorator without one is written with parentheses, @ext.tool()")
    return name


def _id_key(request_id: Json) -> str:
    # ids may be of any JSON type, and 1, 1.0 and true are three different ones
    return json.dumps(request_id, sort_keys=True)
