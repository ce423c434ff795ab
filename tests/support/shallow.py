"""Work done where little of the stack is left, as in a host that nests deeply itself."""

from __future__ import annotations

import sys
from typing import Any, Callable

from latch.errors import SchemaError


def outcomes_near_the_end(work: Callable[[], Any]) -> set[Any]:
    """Return what *work* returned, or the reasons it was refused with, at many distances from the end."""
    return {_outcome(work, frames) for frames in range(20, 400, 4)}


def _outcome(work: Callable[[], Any], frames: int) -> Any:
    used = 0
    frame = sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back
    return _descend(work, sys.getrecursionlimit() - used - frames)


def _descend(work: Callable[[], Any], frames: int) -> Any:
    if frames > 0:
        return _descend(work, frames - 1)
    try:
        return work()
    except SchemaError as error:
        return error.reason
