"""The public names: each resolves, on first use, README lists them, and there are no others."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

import latch
from latch import errors
from tests.support.tree import ROOT


@pytest.mark.parametrize("name", latch.__all__)
def test_public_name_resolves(name: str) -> None:
    value = getattr(latch, name)
    assert value.__name__ == name


def test_readme_lists_every_public_name() -> None:
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    table = text[text.index("The public names, each resolved") :].split("\n\n")[1]
    assert sorted(re.findall(r"``(\w+)``", table)) == sorted(latch.__all__)


def test_every_error_is_public() -> None:
    assert set(errors.__all__) - {"seconds_text"} <= set(latch.__all__)


def test_a_name_is_the_one_of_its_module() -> None:
    assert latch.LatchError is importlib.import_module("latch.errors").LatchError


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    program = "import sys, latch; print([name for name in sys.modules if name.startswith('latch.')])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
