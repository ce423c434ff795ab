"""cli/debuglog.py: debug messages on stderr while a command runs, and nothing afterwards."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest

from latch.cli.debuglog import debug_messages
from latch.cli.terminal import Terminal
from tests.support.command_line import Operator


def test_every_message_of_the_package_is_one_escaped_line_and_nobody_elses() -> None:
    said = io.StringIO()
    with debug_messages(Terminal(None, said, environment={}, quiet=True)):
        logging.getLogger("latch.extensions.host").debug("it said %s", "\x1b[31m")
        logging.getLogger("elsewhere").debug("not ours")
    assert said.getvalue() == "latch.extensions.host: it said \\x1b[31m\n"


def test_nothing_stays_configured_even_after_a_failure() -> None:
    logger, said = logging.getLogger("latch"), io.StringIO()
    before = (logger.level, list(logger.handlers))
    with pytest.raises(ZeroDivisionError):
        with debug_messages(Terminal(None, said, environment={})):
            raise ZeroDivisionError
    logger.debug("late")
    assert (logger.level, logger.handlers) == before and said.getvalue() == ""


@pytest.mark.parametrize(("flags", "told"), [(("-v",), True), ((), False)])
def test_an_unknown_notification_is_logged_only_with_v(
    sandbox: Path, tmp_path: Path, flags: tuple[str, ...], told: bool
) -> None:
    operator = Operator(tmp_path)
    operator.configure(operator.peer("--misbehave", "notifications"))
    done = operator.run("call", "--json", *flags, "one/echo")
    lines = [line for line in done.said.splitlines() if line.startswith("latch.extensions.host: ")]
    assert done.status == 0
    assert bool(lines) == told
    assert all(line.startswith('latch.extensions.host: extension "one": unknown') for line in lines)
