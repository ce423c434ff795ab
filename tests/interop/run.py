"""``make interop`` and ``make interop-ci``: Latch against other people's conformance suite, servers and code.

Everything is installed into ``build/interop`` and started from there; what cannot be installed fails the run.
One line is printed for each thing tried, and below it, indented, what went wrong. The status is 1 if
anything did.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.interop import programs, servers  # noqa: E402
from tests.interop.conformance import run_scenario  # noqa: E402
from tests.interop.installs import TOOLS, InstallFailed, Installs  # noqa: E402
from tests.interop.outcome import Outcome  # noqa: E402
from tests.support.tree import ROOT  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

BUILD = ROOT / "build" / "interop"
DATA = Path(__file__).resolve().with_name("peers.toml")
CONFORMANCE = "conformance"
SUITE = "core"


def main() -> int:
    """Run what the command line asks for and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ci", action="store_true", help="the part that fits into eight minutes")
    parser.add_argument("names", nargs="*", help=f"only these servers and programs, or {CONFORMANCE}")
    options = parser.parse_args()
    data = _chosen(toml.loads(DATA.read_text(encoding="utf-8")), options, parser)
    # A run that is cut off ends its servers first.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # What is tried is not to meet the person's own configuration.
    os.environ["LATCH_DIRECTORY"] = str(BUILD / "latch")
    (BUILD / "latch").mkdir(mode=0o700, parents=True, exist_ok=True)

    began = time.monotonic()
    installs = Installs(data["installs"], BUILD / "installs")
    outcomes = []
    try:
        installs.ensure(_needs(data, installs))
        print(f"installs are there, {time.monotonic() - began:.0f} s", flush=True)
        for outcome in _outcomes(data, installs):
            outcome.show()
            outcomes.append(outcome)
    except InstallFailed as error:
        print(f"cannot install {error}", file=sys.stderr)
        return 1
    failed = [outcome.name for outcome in outcomes if outcome.problems]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} passed, {time.monotonic() - began:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _chosen(
    data: dict[str, Any], options: argparse.Namespace, parser: argparse.ArgumentParser
) -> dict[str, Any]:
    """Return *data* with what the command line leaves of its tables."""
    forgotten = programs.unlisted(data["programs"])
    if forgotten:
        parser.error(f"{DATA.name} does not name {', '.join(forgotten)} of tests/peers")
    known = {CONFORMANCE, *(one["name"] for one in [*data["servers"], *data["programs"]])}
    if not known.issuperset(options.names):
        parser.error(f"known are {', '.join(sorted(known))}")

    def wanted(one: dict[str, Any]) -> bool:
        return one["name"] in options.names if options.names else bool(one.get("ci") or not options.ci)

    kept = {kind: [one for one in data[kind] if wanted(one)] for kind in ("servers", "programs")}
    scenarios = data["conformance"] if CONFORMANCE in options.names or not options.names else []
    return {**data, **kept, "conformance": scenarios}


def _needs(data: dict[str, Any], installs: Installs) -> set[str]:
    found = {TOOLS, SUITE} if data["conformance"] else {TOOLS}
    return found.union(
        *(servers.needs(one, installs) for one in data["servers"]),
        *(programs.needs(one) for one in data["programs"]),
    )


def _outcomes(data: dict[str, Any], installs: Installs) -> Iterator[Outcome]:
    suite, results = installs.folder(SUITE), BUILD / "results"
    for given in data["conformance"]:
        yield run_scenario(given, node=installs.node, folder=suite, results=results)
    for given in data["servers"]:
        yield servers.run_server(given, installs, BUILD / "servers")
    for given in data["programs"]:
        yield programs.run_program(given, installs)


if __name__ == "__main__":
    sys.exit(main())
