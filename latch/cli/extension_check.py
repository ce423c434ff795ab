"""``latch extensions --check``: start each enabled extension, list what it offers, stop it, report."""

from __future__ import annotations

import argparse
import threading
from typing import Mapping

from ..extensions.host import ExtensionHost
from ..limits import DEFAULT
from ..settings import ExtensionSettings, Settings
from ..tools.assembly import extension_openings, sandbox_for
from ..tools.names import catalogue_names
from ..tools.peers import check_peers, close_peers
from .failures import tell_all
from .progress import show_end
from .terminal import Terminal, escape

__all__ = ["ExtensionCheck"]


class ExtensionCheck:
    """One run of ``--check`` or ``--trace``: start all, close all, report all."""

    def __init__(
        self,
        options: argparse.Namespace,
        settings: Settings,
        entries: list[ExtensionSettings],
        io: Terminal,
        *,
        traced: bool = False,
    ) -> None:
        self._options = options
        self._settings = settings
        self._entries = entries
        self._io = io
        self._traced = traced
        self._frames: list[tuple[str, str]] = []
        self._left_bytes = DEFAULT.extension.max_trace_bytes
        self._not_kept = 0
        self._lock = threading.Lock()

    def run(self) -> int:
        """Check, print, and return the status."""
        openings = extension_openings(
            self._entries,
            workspace=self._options.cwd,
            sandbox=sandbox_for(self._settings, machine=self._options.machine),
            trace=self._keep_frame if self._traced else None,
        )
        outcomes = check_peers(openings, scope=self._options.scope, on_end=show_end(self._io))
        hosts = [outcome for outcome in outcomes if isinstance(outcome, ExtensionHost)]
        names = catalogue_names(hosts)
        unruly = dict(close_peers(hosts, self._options.scope))
        failures = [unruly.get(one) if isinstance(one, ExtensionHost) else one for one in outcomes]
        reports = [
            _report(entry, outcome, names)
            for entry, outcome, failure in zip(self._entries, outcomes, failures)
            if failure is None and isinstance(outcome, ExtensionHost)
        ]
        self._print_reports(reports, any(failures))
        return tell_all(self._io, [failure for failure in failures if failure is not None])

    def _print_reports(self, reports: list[dict[str, object]], failed: bool) -> None:
        if self._io.as_json and not failed:
            frames = [{"direction": way, "body": body} for way, body in self._frames]
            traced = {"frames": frames, "frames_not_kept": self._not_kept} if self._traced else {}
            self._io.json({"extensions": reports, **traced})
        elif not self._io.as_json:
            self._print(reports)

    def _keep_frame(self, direction: str, body: bytes) -> None:
        with self._lock:
            self._left_bytes -= len(body)
            if self._left_bytes < 0:
                self._not_kept += 1
            else:
                self._frames.append((direction, body.decode("utf-8", "replace")))

    def _print(self, reports: list[dict[str, object]]) -> None:
        for direction, body in self._frames:
            self._io.result(f"{direction} {body}")
        if self._not_kept:
            self._io.result(f"{self._not_kept} frames more were not kept")
        for report in reports:
            self._io.result("\n".join(_lines(report)))
        if not self._entries:
            self._io.result("no extension is enabled")


def _report(
    entry: ExtensionSettings, host: ExtensionHost, names: Mapping[tuple[str, str], str]
) -> dict[str, object]:
    known = host.registrations
    return {
        "name": entry.name,
        "command": entry.command,
        "args": list(entry.args),
        "network": entry.network,
        "seconds": {stage: round(seconds, 4) for stage, seconds in host.timings.items()},
        "tools": [
            {
                "name": tool.name,
                "catalogue_name": names[entry.name, tool.name],
                "description": tool.description,
                "input_schema": dict(tool.input_schema),
            }
            for tool in known.tools
        ],
        "commands": [{"name": one.name, "description": one.description} for one in known.commands],
        "observers": list(known.observers),
        "transforms": list(known.transforms),
        "guards": list(known.guards),
        "context_sources": [
            {"name": one.name, "description": one.description} for one in known.context_sources
        ],
        "diagnostics": list(host.diagnostics),
        "ignored_notifications": host.ignored,
    }


def _lines(report: dict[str, object]) -> list[str]:
    seconds = report["seconds"]
    assert isinstance(seconds, dict)
    lines = [
        f"{report['name']}: ready, stopped with status 0",
        "  seconds: " + ", ".join(f"{stage} {value:.3f}" for stage, value in seconds.items()),
    ]
    for kind in ("tools", "commands", "context_sources"):
        entries = report[kind]
        assert isinstance(entries, list)
        for one in entries:
            shown = one.get("catalogue_name", one["name"])
            known_as = "" if shown == one["name"] else f" (as {shown})"
            about = " ".join(one["description"].split())
            # NOTE: a name may hold a newline, which would begin a line that looks like ours.
            lines.append(
                f"  {kind[:-1].replace('_', ' ')} {escape(one['name'])}{known_as}"
                + (f": {about}" if about else "")
            )
    for kind in ("observers", "transforms", "guards"):
        names = report[kind]
        assert isinstance(names, list)
        lines += [f"  {kind[:-1]} {escape(name)}" for name in names]
    notes = report["diagnostics"]
    assert isinstance(notes, list)
    return [*lines, *[f"  note: {escape(text)}" for text in notes]]
