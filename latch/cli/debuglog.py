"""What ``-v`` adds: the package's own debug messages, on stderr, while a command runs.

Modules log through ``logging`` under their own names, which are below the package's whatever it is
called. Nothing is configured for anybody else, and nothing stays after the command.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import Iterator

from .terminal import Terminal

__all__ = ["debug_messages"]

_PACKAGE = __name__.rpartition(".cli.")[0]


class _ToTerminal(logging.Handler):
    def __init__(self, io: Terminal) -> None:
        super().__init__(logging.DEBUG)
        self._io = io

    def emit(self, record: logging.LogRecord) -> None:
        self._io.diagnostic(f"{record.name}: {record.getMessage()}\n")


@contextmanager
def debug_messages(io: Terminal) -> Iterator[None]:
    """Let *io* show every message of this package's loggers as one line."""
    logger, handler = logging.getLogger(_PACKAGE), _ToTerminal(io)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
