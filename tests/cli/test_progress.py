"""cli/progress.py: one line for each peer that has started or failed."""

from __future__ import annotations

import io
from typing import Any

import pytest

from latch.cli.progress import show_end
from latch.cli.terminal import Terminal
from latch.tools.peers import Opening


def unopened(scope: Any) -> Any:
    """Open nothing."""
    raise AssertionError("nothing is opened here")


@pytest.mark.parametrize(
    ("has_started", "line"),
    [
        (True, 'MCP server "one": started in 1.23 s (0.0 s)\n'),
        (False, 'MCP server "one": failed after 1.23 s (0.0 s)\n'),
    ],
)
def test_an_end_of_a_start_is_told_with_its_time(has_started: bool, line: str) -> None:
    stderr = io.StringIO()
    terminal = Terminal(None, stderr, environment={}, clock=lambda: 0.0)
    show_end(terminal)(Opening("one", 'MCP server "one"', unopened), 1.2345, has_started)
    assert stderr.getvalue() == line
