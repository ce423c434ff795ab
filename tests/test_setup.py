"""setup.py: metadata only, and in step with what the Makefile installs."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from latch import __version__
from tests.support.tree import ROOT


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py hands to setuptools, which itself is not needed."""
    seen: dict[str, Any] = {}
    setuptools = types.ModuleType("setuptools")
    setuptools.setup = seen.update  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "setuptools", setuptools)
    runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")
    return seen


def lines_of(name: str) -> list[str]:
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_version_is_the_package_s_own(metadata: dict[str, Any]) -> None:
    assert metadata["version"] == __version__


def test_the_distribution_does_not_take_a_stranger_s_name(metadata: dict[str, Any]) -> None:
    assert metadata["name"] == "latch-toolkit"


def test_what_is_needed_is_stated(metadata: dict[str, Any]) -> None:
    assert metadata["python_requires"] == ">=3.9"
    assert metadata["install_requires"] == lines_of("runtime.txt")
    assert metadata["extras_require"] == {
        "test": ["pytest", "coverage", "tomli>=2,<3"],
        "encryption": ["cryptography"],
    }
    assert metadata["extras_require"]["test"] == lines_of("test.txt")


def test_every_package_is_listed_and_the_typing_marker_goes_along(metadata: dict[str, Any]) -> None:
    with_code = {
        str(path.parent.relative_to(ROOT)).replace("/", ".") for path in (ROOT / "latch").rglob("*.py")
    }
    assert set(metadata["packages"]) == with_code
    for package, files in metadata["package_data"].items():
        assert all((ROOT / package / file).is_file() for file in files)


def test_the_command_is_installed(metadata: dict[str, Any]) -> None:
    assert metadata["scripts"] == ["bin/latch"]
    assert all((ROOT / script).is_file() for script in metadata["scripts"])


def test_reading_it_does_not_import_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setuptools", types.SimpleNamespace(setup=lambda **words: None))
    for name in [name for name in sys.modules if name == "latch" or name.startswith("latch.")]:
        monkeypatch.delitem(sys.modules, name)
    runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")
    assert "latch" not in sys.modules


def test_a_package_without_a_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "latch").mkdir()
    (tmp_path / "latch" / "__init__.py").write_text("", encoding="utf-8")
    copy = tmp_path / "setup.py"
    copy.write_text((ROOT / "setup.py").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "setuptools", types.SimpleNamespace(setup=lambda **words: None))
    with pytest.raises(SystemExit, match="states no __version__"):
        runpy.run_path(str(copy), run_name="__main__")
