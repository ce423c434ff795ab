"""Kernel calls that the standard library lacks, or lacks on some interpreter. The only ctypes.

Process descriptors and resource limits come from ``os``, ``signal`` and ``resource`` where those
have them (CPython) and from the C library where not (PyPy 3.9). Landlock scoping and session
keyrings have no wrapper at all. Every function says plainly when the kernel does not know a call;
none of them keeps state.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal

__all__ = [
    "join_new_session_keyring",
    "landlock_abi",
    "open_process",
    "restrict_abstract_sockets",
    "set_limit",
    "signal_process",
]

# The unified numbers of Linux 5.1 and later: the same on every architecture.
_PIDFD_SEND_SIGNAL = 424
_PIDFD_OPEN = 434
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
# keyctl is older, so each architecture has its own number.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1
# landlock(7): scopes came with ABI 6 (Linux 6.12)
_LANDLOCK_SCOPE_ABI = 6
_PR_SET_NO_NEW_PRIVS = 38


class _RulesetAttributes(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _ResourceLimit(ctypes.Structure):
    _fields_ = [("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64)]


def open_process(pid: int) -> int:
    """Return a descriptor of process *pid*, close-on-exec; readable when it is dead. The caller owns it.

    Raises :class:`OSError`: ``ESRCH`` when there is no such process, ``ENOSYS`` before Linux 5.3.
    """
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return _syscall(_PIDFD_OPEN, pid, 0)


def signal_process(descriptor: int, number: int) -> None:
    """Send signal *number* to the process of *descriptor*; raises :class:`ProcessLookupError` when dead."""
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(descriptor, number)
        return
    _syscall(_PIDFD_SEND_SIGNAL, descriptor, number, None, 0)


def set_limit(pid: int, limit: int, value: int) -> None:
    """Set resource *limit* (a ``resource.RLIMIT_*``) of process *pid* to *value*, soft and hard.

    A hard limit below *value* is kept. Raises :class:`OSError`.
    """
    if hasattr(resource, "prlimit"):
        hard = resource.prlimit(pid, limit)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, limit, (wanted, wanted))
        return
    library = _library()
    old = _ResourceLimit()
    if library.prlimit(pid, limit, None, ctypes.byref(old)) != 0:
        raise _failure()
    wanted = min(value, old.hard)
    if library.prlimit(pid, limit, ctypes.byref(_ResourceLimit(wanted, wanted)), None) != 0:
        raise _failure()


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, 0 where there is none."""
    try:
        return _syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict_abstract_sockets() -> bool:
    """Keep this thread, and what it starts, from abstract Unix sockets made outside; False if unknown.

    Sets no_new_privs on the calling thread, as Landlock demands. Other threads are untouched.
    """
    if landlock_abi() < _LANDLOCK_SCOPE_ABI:
        return False
    wanted = _RulesetAttributes(0, 0, _LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET)
    try:
        ruleset = _syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(wanted), ctypes.sizeof(wanted), 0)
    except OSError:
        return False
    try:
        if _library().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        _syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    except OSError:
        return False
    finally:
        os.close(ruleset)
    return True


def _architecture() -> str:
    return os.uname().machine


def join_new_session_keyring() -> bool:
    """Give this thread, and what it starts, an empty session keyring; False where that is impossible."""
    number = _KEYCTL.get(_architecture())
    if number is None:
        return False
    try:
        _syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)
    except OSError:
        return False
    return True


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    call = _library().syscall
    call.restype = ctypes.c_long
    result = call(ctypes.c_long(number), *[_word(argument) for argument in arguments])
    if result < 0:
        raise _failure()
    return int(result)


def _word(argument: object) -> object:
    # NOTE: a plain int would be passed as a C int, whose upper half the kernel may read as garbage.
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    return ctypes.c_void_p(None) if argument is None else argument


def _failure() -> OSError:
    number = ctypes.get_errno() or errno.EINVAL
    return OSError(number, os.strerror(number))
