"""How a failure ends a command: its exit status, its sentence, its hint.

The exit table of the product is data here, beside the edge that needs it, and no attribute of the
errors. A command that passes other statuses through (``sandbox``) still says with :func:`tell` which
row of the table a failure is.
"""

from __future__ import annotations

from typing import Sequence

from ..errors import Cancelled, LatchError
from .terminal import Terminal

__all__ = ["EXITS", "SIGNAL_EXITS", "exit_status", "tell", "tell_all"]

# error code -> exit status; a code that is not listed takes the row of the class it derives from
EXITS = {
    "error": 1,
    "containment": 1,
    "store": 1,
    "usage": 2,
    "config": 2,
    "command": 2,
    "missing_dependency": 2,
    "denied": 3,
    "approval_needed": 4,
    "credential": 5,
    "peer": 6,
    "unsafe_modes": 8,
    "sandbox_unavailable": 8,
}
# SIGPIPE is the end of whoever read our output; the interpreter ignores the signal itself
SIGNAL_EXITS = {"SIGHUP": 129, "SIGINT": 130, "SIGPIPE": 141, "SIGTERM": 143}


def exit_status(error: BaseException) -> int:
    """Return the status that *error* ends a command with; what is not ours is 1."""
    if isinstance(error, Cancelled):
        return SIGNAL_EXITS.get(error.reason, 1)
    codes = (vars(kind).get("code") for kind in type(error).__mro__)
    return next((EXITS[code] for code in codes if code in EXITS), 1)


def tell(io: Terminal, error: BaseException) -> int:
    """Print *error* as this command's failure and return its exit status."""
    status = exit_status(error)
    if isinstance(error, LatchError):
        io.error(str(error), code=error.code, exit_status=status, hint=error.hint)
    elif isinstance(error, Cancelled):
        io.error(str(error), code="cancelled", exit_status=status)
    else:
        text = f"internal error: {type(error).__name__}: {error}".rstrip(": ")
        io.error(text, code="internal", exit_status=status, hint="run it again with -v for the traceback")
    return status


def tell_all(io: Terminal, failures: Sequence[LatchError]) -> int:
    """Print *failures*, each with its hint, and return the exit status of the first; 0 for none.

    With ``--json`` they are one: the first, and all of them in its ``errors``.
    """
    if not failures:
        return 0
    status = exit_status(failures[0])
    for failure in failures[:1] if io.as_json else failures:
        io.error(
            str(failure),
            code=failure.code,
            exit_status=status,
            hint=failure.hint,
            details={"errors": [one.to_dict() for one in failures]},
        )
    return status
