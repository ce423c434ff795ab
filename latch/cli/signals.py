"""SIGINT, SIGTERM and SIGHUP while a command runs: they cancel its scope, and do nothing else.

Handlers are process-wide, so they stand only for the length of a ``with`` block and only where the
interpreter allows them, in the main thread. Anything more in a handler than setting a flag and
writing one byte can deadlock with the code it interrupted.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from types import FrameType
from typing import Iterator

from ..system.scope import CancelToken

__all__ = ["cancel_on_signals"]

_CANCELLING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def cancel_on_signals(token: CancelToken) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP cancel *token*, with the signal's name as the reason.

    A second SIGINT ends the process at once with 130. A signal that was ignored when we were started
    stays ignored (``nohup``), except SIGCHLD: bubblewrap inherits it and would wait for its child for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and token.reason is not None:
            # Nothing is left behind: sandboxed children die with their parent, one that has not
            # started yet never gets its go, and the next start sweeps whatever the ledger still names.
            os._exit(130)
        token.cancel(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in (*_CANCELLING, signal.SIGCHLD)}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _CANCELLING:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, cancel)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: installed by somebody's C code, which Python cannot put back.
            if handler is not None:
                signal.signal(number, handler)
