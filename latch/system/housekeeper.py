"""One thread for the process that keeps idle peers from stalling.

A few times a second it makes one pass over every registered child that nobody drives: its stderr is
drained, its stdout read, its questions answered, its exit noticed. It blocks nobody for longer than
one such pass and knows nothing of what the bytes mean.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import weakref

from .child import Child
from .scope import Scope

__all__ = ["tend"]


class _Housekeeper:
    def __init__(self, seconds: float) -> None:
        self.pid = os.getpid()
        self._seconds = seconds
        self._children: weakref.WeakSet[Child] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"{__name__}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error

    def works(self) -> bool:
        """Return whether its thread is there: not in a forked child, nor after it could not go on."""
        return self.pid == os.getpid() and self._thread.is_alive()

    def add(self, child: Child) -> None:
        with self._lock:
            self._children.add(child)

    def _run(self) -> None:
        # NOTE: without a token, whose pipe takes descriptors that there may not be.
        scope = Scope.root().shielded(math.inf)
        while True:
            scope.pause(self._seconds)
            with self._lock:
                children = list(self._children)
            # NOTE: no name of this thread may hold a child between two passes, or a dropped one lived on.
            while children:
                self._look_after(children.pop())

    def _look_after(self, child: Child) -> None:
        child.tend()
        if child.has_exited():
            with self._lock:
                self._children.discard(child)


# NOTE: one for the process, made on first use, like the spawner.
_ONLY: dict[str, _Housekeeper] = {}
_MAKING = threading.Lock()


def tend(child: Child, seconds: float) -> None:
    """Have *child* looked after until it has ended; *seconds* between passes, set by the first caller."""
    with _MAKING:
        keeper = _ONLY.get("housekeeper")
        if keeper is None or not keeper.works():
            keeper = _ONLY["housekeeper"] = _Housekeeper(seconds)
    keeper.add(child)
