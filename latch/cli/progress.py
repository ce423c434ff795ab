"""What a command shows while the peers it needs are started side by side."""

from __future__ import annotations

from typing import Any, Callable

from ..tools.peers import Opening
from .terminal import Terminal

__all__ = ["show_end"]


def show_end(io: Terminal) -> Callable[[Opening[Any], float, bool], None]:
    """Return what tells *io* that a peer has started or failed, and after how many seconds."""

    def show(opening: Opening[Any], seconds: float, has_started: bool) -> None:
        how = "started in" if has_started else "failed after"
        io.progress(f"{opening.subject}: {how} {seconds:.2f} s")

    return show
