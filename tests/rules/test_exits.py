"""README's table of exit codes has a row for every status a failure ends with, and no other."""

from __future__ import annotations

import re

from latch import errors
from latch.cli.failures import EXITS, SIGNAL_EXITS
from tests.support.tree import ROOT

DONE = 0


def test_readme_lists_every_exit_code() -> None:
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    table = re.search(r"^==== =+\ncode meaning\n==== =+\n(.*?)^==== =+$", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    listed = [int(number) for number in re.findall(r"^(\d+) +\S", table[1], re.MULTILINE)]
    assert listed == sorted({DONE, *EXITS.values(), *SIGNAL_EXITS.values()})


def test_every_code_in_the_table_is_that_of_an_error() -> None:
    codes = {vars(kind).get("code") for kind in vars(errors).values() if isinstance(kind, type)}
    assert set(EXITS) <= codes
