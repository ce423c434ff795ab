"""README's table of limits says what ``limits.py`` says."""

from __future__ import annotations

import re
from dataclasses import fields

from latch.limits import DEFAULT
from tests.support.tree import ROOT

ROW = re.compile(r"^``([a-z]+\.[a-z_]+)`` +(\S+)$", re.MULTILINE)


def test_readme_lists_every_limit_with_its_value() -> None:
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    listed = dict(ROW.findall(text))
    groups = {group.name: getattr(DEFAULT, group.name) for group in fields(DEFAULT)}
    known = {
        f"{name}.{limit.name}": str(getattr(group, limit.name))
        for name, group in groups.items()
        for limit in fields(group)
    }
    assert listed == known
