"""fixtures/README.rst names every fixture, and nothing that is not there."""

from __future__ import annotations

import re

from tests.support.tree import ROOT

FIXTURES = ROOT / "fixtures"
NAME = re.compile(r"``((?:[a-z0-9_]+/)*[a-z0-9_-]+\.[a-z]+)``")


def test_every_fixture_is_named_and_every_name_is_a_fixture() -> None:
    text = (FIXTURES / "README.rst").read_text(encoding="utf-8")
    named, folder = set(), ""
    for line in text.splitlines():
        heading = re.match(r"^([a-z]+)/: ", line)
        folder = f"{heading[1]}/" if heading else folder
        # A definition list: what stands at the margin are names, the rest tells of them.
        if line.startswith("``"):
            named.update(folder + name for name in NAME.findall(line))
    files = {str(file.relative_to(FIXTURES)) for file in FIXTURES.rglob("*") if file.is_file()}
    there = {name for name in files if name != "README.rst" and "__pycache__" not in name}
    # The expected message of a bad configuration lies beside it under its name.
    assert named == {name for name in there if not re.match(r"config/bad/.+\.txt$", name)}
