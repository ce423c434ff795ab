"""``latch doctor``: what this machine and the configuration can do, and the cure for what they cannot.

Creates nothing that stays and contacts nothing: the probe's ledger lies in a directory that is
removed again, by a later run's sweep where this one is killed.
"""

from __future__ import annotations

import argparse
import errno
import os
import platform
import stat
import sys
from dataclasses import replace
from importlib import metadata, util
from pathlib import Path
from typing import Callable, Iterator

from ... import __version__
from ...errors import ConfigError, LatchError, SandboxUnavailable
from ...limits import DEFAULT
from ...settings import Settings
from ...system import kernelcalls
from ...system.bubblewrap import HARDENING_OPTIONS, Bubblewrap
from ...system.cgroup import NO_LIMIT, can_make_pids_groups, pids_groups
from ...system.ledger import check_state
from ...system.machine import Machine
from ...system.sandbox import Sandbox
from ...system.spawner import hardening
from ...system.throwaway import state_in, throw_away_place
from ..context import load_settings
from ..failures import exit_status
from ..findings import Finding, examine_entry, find_certificates, find_proxies, find_sockets, probe_network
from ..terminal import Terminal, escape

__all__ = ["configure", "find_kernel", "run"]

# distribution, import name, what needs it
_PACKAGES = (
    ("PyYAML", "yaml", "skills"),
    ("tomli", "tomli", "configuration on Python below 3.11"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--plan", action="store_true", help="also print the sandbox plan of a command here")


def run(options: argparse.Namespace, io: Terminal) -> int:
    """Print every finding; the status is 0, or that of the first failure."""
    findings = [*_python(), *_packages()]
    settings, problems = _settings(options)
    findings += problems
    findings += list(_places(options.machine, settings))
    plan: list[str] = []
    bubblewrap = None
    try:
        with throw_away_place(uid=options.machine.uid) as place:
            probed = replace(settings.sandbox, state_directory=state_in(place))
            sandbox = Sandbox(probed, machine=options.machine)
            verdicts, bubblewrap = _sandbox(sandbox, options, io)
            findings += verdicts
            if bubblewrap is not None:
                findings += probe_network(sandbox, bubblewrap, options.scope, workspace=options.cwd)
    except LatchError as error:
        findings.append(Finding("sandbox", "fail", str(error), error.hint, exit_status(error)))
    planning = Sandbox(settings.sandbox, machine=options.machine)
    features = frozenset() if bubblewrap is None else bubblewrap.features
    for entry in (*settings.extensions, *settings.mcp_servers):
        findings += examine_entry(entry, planning, workspace=options.cwd, features=features)
    findings += list(_reach(settings, options))
    findings += [find_certificates(options.machine.environment), find_proxies(options.machine.environment)]
    if options.plan and bubblewrap is not None:
        try:
            plan = _plan(planning, options.cwd, features)
        except LatchError as error:
            findings.append(Finding("plan", "fail", str(error), error.hint, exit_status(error)))
    failed = [finding for finding in findings if finding.state == "fail"]
    status = failed[0].exit if failed else 0
    if io.as_json and failed:
        io.error(
            "; ".join(f"{finding.subject}: {finding.text}" for finding in failed),
            code="doctor",
            exit_status=status,
            hint=failed[0].hint,
        )
    elif io.as_json:
        io.json({"findings": [_value(finding) for finding in findings], "plan": plan})
    else:
        for finding in findings:
            lines = [f"{finding.state:<5} {finding.subject}: {finding.text}"]
            if finding.hint is not None and finding.state != "ok":
                lines.append(f"      cure: {finding.hint}")
            # NOTE: a terminal or not, because bubblewrap's own words are among them.
            io.result(escape("\n".join(lines), keep="\n\t"))
        if plan:
            io.result("\n".join(["", "plan of a read-only command here:", *plan]))
    return status


def _value(finding: Finding) -> dict[str, object]:
    return {"subject": finding.subject, "state": finding.state, "text": finding.text, "hint": finding.hint}


def _python() -> Iterator[Finding]:
    yield Finding("latch", "ok", f"{__version__} in {Path(__file__).parents[2]}")
    yield Finding(
        "python", "ok", f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    )
    yield find_kernel(kernelcalls.open_process)


def find_kernel(open_process: Callable[[int], int]) -> Finding:
    """Say which kernel runs, and what it loses without the process descriptors of Linux 5.3."""
    try:
        os.close(open_process(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            text = (
                f"{platform.release()} has no process descriptors: a child is ended by its numbers alone, and "
                "what a killed host left is not swept"
            )
            return Finding("kernel", "note", text, "use Linux 5.3 or newer")
    return Finding("kernel", "ok", platform.release())


def _packages() -> Iterator[Finding]:
    for distribution, module, purpose in _PACKAGES:
        if module == "tomli" and sys.version_info >= (3, 11):
            continue
        spec = util.find_spec(module)
        if spec is None:
            yield Finding(
                distribution, "note", f"not installed, needed for {purpose}", f"install {distribution}"
            )
            continue
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            version = "unknown version"
        yield Finding(distribution, "ok", f"{version} in {spec.origin}")


def _settings(options: argparse.Namespace) -> tuple[Settings, list[Finding]]:
    try:
        settings = load_settings(options)
    except ConfigError as error:
        found = [
            Finding("configuration", "fail", str(problem), error.hint, exit_status(error))
            for problem in error.problems
        ]
        return Settings(), found
    except LatchError as error:
        return Settings(), [Finding("configuration", "fail", str(error), error.hint, exit_status(error))]
    file = settings.file or f"{options.machine.latch_directory / 'config.toml'} (absent: defaults)"
    return settings, [Finding("configuration", "ok", str(file))]


def _places(machine: Machine, settings: Settings) -> Iterator[Finding]:
    yield _place("directory", machine.latch_directory)
    state = machine.state_directory_of(settings.sandbox)
    try:
        check_state(state, machine.uid)
    except LatchError as error:
        yield Finding("state", "fail", str(error), error.hint, exit_status(error))
    else:
        yield _place("state", state)


def _place(subject: str, path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return Finding(subject, "ok", f"{path} (made when needed)")
    except OSError as error:
        cure = "set LATCH_DIRECTORY to a place of yours"
        return Finding(subject, "fail", f"{path}: {error.strerror}", cure, 2)
    if not os.access(path, os.W_OK):
        cure = "set LATCH_DIRECTORY or state_dir to a directory that can be written"
        return Finding(subject, "note", f"{path} cannot be written, so nothing can be started", cure)
    return Finding(subject, "ok", f"{path} (mode {mode:04o})")


def _sandbox(
    sandbox: Sandbox, options: argparse.Namespace, io: Terminal
) -> tuple[list[Finding], Bubblewrap | None]:
    findings: list[Finding] = []
    bubblewrap = None
    for network in (True, False):
        shown = "shared network" if network else "no network"
        io.progress(f"probing the sandbox, {shown}")
        try:
            bubblewrap = sandbox.ready(
                options.scope, wanted="the probe", workspace=options.cwd, network=network
            )
        except LatchError as error:
            cause = error.cause if isinstance(error, SandboxUnavailable) else error.code
            findings.append(
                Finding(f"sandbox, {shown}", "fail", f"{error} [{cause}]", error.hint, exit_status(error))
            )
            if cause in ("absent", "setuid", "untrusted", "too old", "unusable"):
                break
        else:
            findings.append(Finding(f"sandbox, {shown}", "ok", f"probed: works ({bubblewrap.path})"))
    if bubblewrap is not None:
        findings += _hardening(bubblewrap, sandbox.machine)
        findings += [Finding("system", "note", text) for text in sandbox.planner.layout.missing]
    return findings, bubblewrap


def _hardening(bubblewrap: Bubblewrap, machine: Machine) -> Iterator[Finding]:
    lacking = [option for option in HARDENING_OPTIONS if option not in bubblewrap.features]
    version = f"bubblewrap {bubblewrap.version}"
    if lacking:
        text = f"{version} lacks {' '.join(lacking)}: " + "; ".join(
            HARDENING_OPTIONS[option] for option in lacking
        )
        yield Finding("hardening", "note", text, "install bubblewrap 0.8.0 or newer")
    else:
        yield Finding("hardening", "ok", f"{version} has every option that is used")
    known = hardening()
    for subject, works, absent in (
        ("session keyring", known.keyring, "children can read this session's keyring"),
        (
            "abstract sockets",
            known.abstract_sockets,
            "with a shared network children reach the host's abstract sockets",
        ),
    ):
        yield Finding(subject, "ok" if works else "note", "closed to children" if works else absent)
    if machine.uid == 0:
        if can_make_pids_groups():
            yield Finding("process limit", "ok", f"by control group in {pids_groups()}")
        else:
            yield Finding("process limit", "note", NO_LIMIT, "run Latch as an ordinary user")
    else:
        yield Finding("process limit", "ok", "by RLIMIT_NPROC")


def _reach(settings: Settings, options: argparse.Namespace) -> Iterator[Finding]:
    programs = [
        *settings.extensions,
        *(server for server in settings.mcp_servers if server.transport == "stdio"),
    ]
    online = [entry.name for entry in programs if entry.enabled and entry.network]
    if online:
        yield Finding(
            "network",
            "note",
            f"{', '.join(online)} can reach all that this machine reaches, its own services and metadata "
            "addresses included",
            "set network = false where it is not needed",
        )
    shown = [path for entry in programs for path in (*entry.ro_paths, *entry.rw_paths)]
    try:
        yield from find_sockets([options.cwd, *shown], options.scope, DEFAULT.file)
    except LatchError as error:
        yield Finding("socket", "fail", f"not looked for to the end: {error}", error.hint, exit_status(error))


def _plan(sandbox: Sandbox, workspace: Path, features: frozenset[str]) -> list[str]:
    prepared = sandbox.planner.prepare_command(
        ("sh",), workspace=workspace, writable=False, network=False, features=features
    )
    return prepared.plan.lines()
