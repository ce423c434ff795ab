"""The package copied under another name, as a tool does that ships its own: no import knows its name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import PEER
from tests.support.tree import PACKAGE

pytestmark = pytest.mark.usefixtures("sandbox")

NAMES = ("othertool._vendor.latch", "secondtool._vendor.latch_copy")
SMOKE = """
import importlib, json, sys
place, peer, *names = sys.argv[1:]
sys.path.insert(0, place)
packages = [importlib.import_module(name) for name in names]
said = []
hosts = []
for package in packages:
    scope = package.Scope.root(60)
    for name in package.__all__:
        assert getattr(package, name).__module__.startswith(package.__name__ + "."), name
    done = package.run_sandboxed(["sh", "-c", "touch x || echo refused"], workspace="workspace", scope=scope)
    settings = package.ExtensionSettings(name="peer", command=sys.executable, args=("-ES", peer))
    hosts.append(package.ExtensionHost.open(settings, workspace="workspace", scope=scope))
    echoed = hosts[-1].call_tool("echo", {"from": package.__name__}, scope)
    said.append([done.status, done.stdout.decode(), echoed])
for host in hosts:
    host.close()
foreign = [name for name in sys.modules if name == "latch" or name.startswith("latch.")]
print(json.dumps([said, foreign, packages[0].LatchError is packages[-1].LatchError]))
"""


def smoke(place: Path, *names: str) -> list[object]:
    for name in names:
        target = place.joinpath(*name.split("."))
        shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
        for package in (target.parent, target.parent.parent):
            (package / "__init__.py").touch()
    (place / "workspace").mkdir()
    command = [sys.executable, "-I", "-c", SMOKE, str(place), str(PEER), *names]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((place / "workspace").iterdir()) == []
    return json.loads(done.stdout)


def test_a_copy_hosts_an_extension_and_runs_a_command(tmp_path: Path) -> None:
    said, foreign, _ = smoke(tmp_path, NAMES[0])
    assert said == [[0, "refused\n", {"from": NAMES[0]}]]
    assert foreign == []


def test_two_copies_live_in_one_process_without_knowing_of_each_other(tmp_path: Path) -> None:
    said, foreign, same = smoke(tmp_path, *NAMES)
    assert said == [[0, "refused\n", {"from": name}] for name in NAMES]
    assert (foreign, same) == ([], False)
