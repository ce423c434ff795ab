"""Package metadata. The version is read as text: building must not import what it builds."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
RUNTIME = ["requests>=2.28,<3", "PyYAML>=5.3.1,<7", 'tomli>=2,<3; python_version<"3.11"']
EXTRAS = {"test": ["pytest", "coverage", "tomli>=2,<3"], "encryption": ["cryptography"]}


def version() -> str:
    """Return ``__version__`` of ``latch/__init__.py`` without running it."""
    text = (HERE / "latch" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("latch/__init__.py states no __version__")
    return found.group(1)


def packages() -> list[str]:
    """Return every package below ``latch/``, so that a new one is never forgotten here."""
    found = (HERE / "latch").rglob("__init__.py")
    return sorted(".".join(file.parent.relative_to(HERE).parts) for file in found)


if __name__ == "__main__":
    setup(
        name="latch-toolkit",
        version=version(),
        description="Hosts sandboxed tool extensions over JSON-RPC, synchronously and with few dependencies",
        python_requires=">=3.9",
        install_requires=RUNTIME,
        extras_require=EXTRAS,
        packages=packages(),
        package_data={"latch": ["py.typed"]},
        scripts=["bin/latch"],
    )
