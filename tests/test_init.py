"""latch/__init__.py: names resolved on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import latch
from tests.support.tree import ROOT


def test_an_unknown_name_is_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="module 'latch' has no attribute 'Nothing'"):
        latch.Nothing  # noqa: B018


def test_dir_lists_the_public_names() -> None:
    assert set(latch.__all__) <= set(dir(latch)) and "__version__" in dir(latch)


def test_a_name_is_imported_on_first_use_and_then_kept() -> None:
    program = """
import sys, latch
assert "latch.limits" not in sys.modules and "Limits" not in vars(latch)
latch.Limits
assert "latch.limits" in sys.modules and vars(latch)["Limits"] is latch.Limits
assert "logging" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_copy_under_another_name_resolves_its_own() -> None:
    program = f"""
import importlib.util, sys
place = {str(ROOT / "latch")!r}
spec = importlib.util.spec_from_file_location(
    "host_vendor_copy", place + "/__init__.py", submodule_search_locations=[place])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
assert module.Scope.__module__ == "host_vendor_copy.system.scope"
assert not [name for name in sys.modules if name.split(".")[0] == "latch"]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd="/", capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
