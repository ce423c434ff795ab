"""Connections to one HTTP service, on which nothing waits but a scope.

Sockets never block: whoever sends or receives tries first and then waits on the scope, so that every phase,
from the look-up of the name to the last byte, ends at the deadline or when it is cancelled. The one call that
cannot be interrupted, the system's look-up, runs in a thread of its own that is left behind.

A stream that TLS did not end properly counts as lost, not as finished. HTTP itself is not known here.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
from typing import Any, Callable

from ..errors import LatchError, PeerGone
from ..limits import HttpLimits
from ..wire.httpurl import HttpUrl
from .scope import Scope
from .tls import handshake_fault

__all__ = ["SYSTEM_RESOLVER", "Channel", "Resolver", "open_channel"]

# As socket.getaddrinfo: host, port, family, type.
Resolver = Callable[[bytes, int, int, int], list[Any]]
SYSTEM_RESOLVER: Resolver = socket.getaddrinfo

# What a look-up returns of each address: family and socket address.
_Address = tuple[int, Any]

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Ours, and not the fault of any address.
_SHORT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Channel:
    """One connection; the object owns the socket. It belongs to one thread at a time."""

    __slots__ = ("_descriptor", "_socket", "_wants_write")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._descriptor = connected.fileno()
        # TLS may have to send before it can receive.
        self._wants_write = False

    def send(self, data: memoryview) -> int:
        """Send the beginning of *data* and return its length, 0 when nothing can be sent now; OSError when
        the connection is lost."""
        try:
            return self._socket.send(data)
        except _NOT_NOW:
            return 0

    def receive(self, most: int) -> bytes | None:
        """Return up to *most* bytes, ``b""`` at the end of the stream, None when nothing is there now;
        OSError when the connection is lost."""
        try:
            return self._socket.recv(most)
        except _NOT_NOW as error:
            self._wants_write = isinstance(error, ssl.SSLWantWriteError)
            return None
        except ssl.SSLError as error:
            raise ConnectionAbortedError(errno.ECONNABORTED, "TLS was broken off") from error

    def wait_received(self, scope: Scope) -> None:
        """Wait until there may be something to receive."""
        if self._wants_write:
            scope.wait(writes=[self._descriptor])
        else:
            scope.wait([self._descriptor])

    def wait_sent(self, scope: Scope) -> bool:
        """Wait until more may be sent or something is to be received; return whether it is the latter."""
        reads, _ = scope.wait([self._descriptor], [self._descriptor])
        return bool(reads)

    def wait_writable(self, scope: Scope) -> None:
        """Wait until more may be sent, whatever there is to receive."""
        scope.wait(writes=[self._descriptor])

    def is_idle(self) -> bool:
        """Return whether the connection is open and silent, as one between two exchanges is."""
        try:
            return self.receive(1) is None
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection; idempotent, and silent when it is lost."""
        self._socket.close()


def open_channel(
    url: HttpUrl, *, context: ssl.SSLContext | None, resolver: Resolver, limits: HttpLimits, scope: Scope
) -> Channel:
    """Return a new connection to the service at *url*, over TLS when there is a *context*.

    Raises :class:`PeerGone` when it cannot be made, and what *scope* raises.
    """
    connected = _connect(url, _addresses(url, resolver, scope), limits, scope)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            connected = _secure(connected, context, url, scope)
    except BaseException:
        connected.close()
        raise
    return Channel(connected)


# -- names ----------------------------------------------------------------------------------------


def _addresses(url: HttpUrl, resolver: Resolver, scope: Scope) -> list[_Address]:
    """Return where to connect to, in order."""
    if url.host == "localhost":
        # security.md T22: never looked up
        return [(socket.AF_INET, ("127.0.0.1", url.port)), (socket.AF_INET6, ("::1", url.port, 0, 0))]
    if url.is_literal and ":" in url.host:
        return [(socket.AF_INET6, (url.host, url.port, 0, 0))]
    if url.is_literal:
        return [(socket.AF_INET, (url.host, url.port))]
    return _look_up(url, resolver, scope)


def _look_up(url: HttpUrl, resolver: Resolver, scope: Scope) -> list[_Address]:
    answers: list[Any] = []
    read_end, write_end = os.pipe()
    try:
        thread = threading.Thread(
            target=_resolve, args=(url, resolver, answers, write_end), name=__name__, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            os.close(write_end)
            raise OSError(errno.EAGAIN, str(error)) from error
        # NOTE: the thread closes its end when it has the answer, also when nobody waits any more.
        scope.wait([read_end])
    finally:
        os.close(read_end)
    answer = answers[0] if answers else None
    if not isinstance(answer, list) or not answer:
        told = f": {answer.strerror}" if isinstance(answer, OSError) and answer.strerror else ""
        raise PeerGone(f"the name {url.host} cannot be looked up{told}", peer=scope.peer, stage=scope.stage)
    return [(entry[0], entry[4]) for entry in answer]


def _resolve(url: HttpUrl, resolver: Resolver, answers: list[Any], write_end: int) -> None:
    try:
        # NOTE: as bytes, or it would be encoded as a name of another alphabet, which takes time to load.
        answers.append(resolver(url.host.encode("ascii"), url.port, 0, socket.SOCK_STREAM))
    except OSError as error:
        answers.append(error)
    finally:
        os.close(write_end)


# -- connections ----------------------------------------------------------------------------------


def _connect(url: HttpUrl, addresses: list[_Address], limits: HttpLimits, scope: Scope) -> socket.socket:
    failures = []
    for number, (family, address) in enumerate(addresses, start=1):
        patience = None if number == len(addresses) else limits.connect_seconds
        try:
            return _connect_one(family, address, patience, scope)
        except LatchError:
            # NOTE: a missed deadline is an OSError too, and none of this address.
            raise
        except OSError as error:
            if error.errno in _SHORT_OF_DESCRIPTORS:
                raise
            failures.append(os.strerror(error.errno or 0))
    told = ", ".join(dict.fromkeys(failure.lower() for failure in failures))
    raise PeerGone(f"cannot connect to {url.authority}: {told}", peer=scope.peer, stage=scope.stage)


def _connect_one(family: int, address: Any, patience: float | None, scope: Scope) -> socket.socket:
    ours = socket.socket(family, socket.SOCK_STREAM)
    try:
        ours.setblocking(False)
        code = ours.connect_ex(address)
        if code == errno.EINPROGRESS:
            if not scope.wait(writes=[ours.fileno()], at_most=patience)[1]:
                code = errno.ETIMEDOUT
            else:
                code = ours.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return ours
    except BaseException:
        ours.close()
        raise


def _secure(connected: socket.socket, context: ssl.SSLContext, url: HttpUrl, scope: Scope) -> ssl.SSLSocket:
    """Return *connected*, which is used up, as a TLS connection after its handshake."""
    secured = context.wrap_socket(
        connected,
        server_hostname=url.host.rstrip("."),
        do_handshake_on_connect=False,
        suppress_ragged_eofs=False,
    )
    try:
        while True:
            try:
                secured.do_handshake()
                return secured
            except ssl.SSLWantReadError:
                scope.wait([secured.fileno()])
            except ssl.SSLWantWriteError:
                scope.wait(writes=[secured.fileno()])
            except OSError as error:
                raise _handshake_error(error, url, scope) from error
    except BaseException:
        secured.close()
        raise


def _handshake_error(error: OSError, url: HttpUrl, scope: Scope) -> PeerGone:
    if isinstance(error, ssl.SSLError):
        told, hint = handshake_fault(error)
    else:
        told, hint = f"no TLS connection: {os.strerror(error.errno or 0).lower()}", None
    return PeerGone(
        f"cannot connect to {url.authority}: {told}", hint=hint, peer=scope.peer, stage=scope.stage
    )
