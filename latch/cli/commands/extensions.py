"""``latch extensions``: what is configured; with ``--check``, what each one offers when started."""

from __future__ import annotations

import argparse
import threading

from ...errors import LatchError, UsageError
from ...extensions.host import ExtensionHost
from ...extensions.registrations import catalogue_name
from ...settings import ExtensionSettings, Settings
from ...tools.assembly import check_extensions, sandbox_for
from ..context import load_settings
from ..failures import exit_status
from ..terminal import Terminal

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("--check", action="store_true", help="start each enabled one, list what it offers, stop it")
    parser.add_argument("--trace", metavar="NAME", help="check the one called NAME and show its frames")


def run(options: argparse.Namespace, io: Terminal) -> int:
    """List the configured extensions, or check them; a failed check ends with that failure's status."""
    settings = load_settings(options)
    if options.trace is not None:
        return _Check(options, settings, [_named(settings, options.trace)], io, traced=True).run()
    if options.check:
        return _Check(options, settings, [one for one in settings.extensions if one.enabled], io).run()
    if io.as_json:
        io.json({"file": None if settings.file is None else str(settings.file),
                 "extensions": [_entry(entry) for entry in settings.extensions]})
    elif not settings.extensions:
        io.result(f"no extensions are configured; add [[extensions]] to {_file(options, settings)}")
    else:
        rows = [
            (entry.name, "yes" if entry.enabled else "no", "on" if entry.network else "off",
             " ".join([entry.command, *entry.args]))
            for entry in settings.extensions
        ]
        io.table(rows, ("name", "enabled", "network", "command"))
    return 0


class _Check:
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
        self._lock = threading.Lock()

    def run(self) -> int:
        """Check, print, and return the status."""
        outcomes = check_extensions(
            self._entries,
            workspace=self._options.cwd,
            sandbox=sandbox_for(self._settings, machine=self._options.machine),
            scope=self._options.scope,
            trace=self._keep_frame if self._traced else None,
            on_end=lambda entry, seconds: self._io.progress(f'extension "{entry.name}": started in {seconds:.2f} s'),
        )
        reports, failures = [], []
        for entry, outcome in zip(self._entries, outcomes):
            failure = outcome if isinstance(outcome, LatchError) else self._close(outcome)
            if failure is not None:
                failures.append(failure)
            elif isinstance(outcome, ExtensionHost):
                reports.append(_report(entry, outcome))
        if self._io.as_json and not failures:
            frames = {"frames": [{"direction": way, "body": body} for way, body in self._frames]}
            self._io.json({"extensions": reports, **(frames if self._traced else {})})
        elif not self._io.as_json:
            self._print(reports)
        return self._tell(failures)

    def _keep_frame(self, direction: str, body: bytes) -> None:
        with self._lock:
            self._frames.append((direction, body.decode("utf-8", "replace")))

    def _close(self, host: ExtensionHost) -> LatchError | None:
        try:
            host.close(self._options.scope)
        except LatchError as error:
            return error
        return None

    def _print(self, reports: list[dict[str, object]]) -> None:
        for direction, body in self._frames:
            self._io.result(f"{direction} {body}")
        for report in reports:
            self._io.result("\n".join(_lines(report)))
        if not self._entries:
            self._io.result("no extension is enabled")

    def _tell(self, failures: list[LatchError]) -> int:
        if not failures:
            return 0
        status = exit_status(failures[0])
        hints = dict.fromkeys(failure.hint for failure in failures if failure.hint)
        self._io.error(
            "\n".join(str(failure) for failure in failures),
            code=failures[0].code,
            exit_status=status,
            hint="; ".join(hints) or None,
        )
        return status


def _named(settings: Settings, name: str) -> ExtensionSettings:
    for entry in settings.extensions:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in settings.extensions) or "none"
    raise UsageError(f'no extension "{name}" is configured', hint=f"configured: {known}")


def _file(options: argparse.Namespace, settings: Settings) -> str:
    return str(settings.file or options.machine.latch_directory / "config.toml")


def _entry(entry: ExtensionSettings) -> dict[str, object]:
    return {
        "name": entry.name,
        "enabled": entry.enabled,
        "command": entry.command,
        "args": list(entry.args),
        "network": entry.network,
        "cwd": entry.cwd,
    }


def _report(entry: ExtensionSettings, host: ExtensionHost) -> dict[str, object]:
    known = host.registrations
    return {
        **_entry(entry),
        "seconds": {stage: round(seconds, 4) for stage, seconds in host.timings.items()},
        "tools": [
            {
                "name": tool.name,
                "catalogue_name": catalogue_name(entry.name, tool.name),
                "description": tool.description,
                "input_schema": dict(tool.input_schema),
            }
            for tool in known.tools
        ],
        "commands": [{"name": one.name, "description": one.description} for one in known.commands],
        "observers": list(known.observers),
        "transforms": list(known.transforms),
        "guards": list(known.guards),
        "context_sources": [{"name": one.name, "description": one.description} for one in known.context_sources],
        "diagnostics": list(host.diagnostics),
        "ignored_notifications": host.ignored,
    }


def _lines(report: dict[str, object]) -> list[str]:
    seconds = report["seconds"]
    assert isinstance(seconds, dict)
    lines = [f"{report['name']}: ready, stopped with status 0",
             "  seconds: " + ", ".join(f"{stage} {value:.3f}" for stage, value in seconds.items())]
    for kind in ("tools", "commands", "context_sources"):
        entries = report[kind]
        assert isinstance(entries, list)
        for one in entries:
            shown = one.get("catalogue_name", one["name"])
            known_as = "" if shown == one["name"] else f" (as {shown})"
            about = " ".join(one["description"].split())
            lines.append(f"  {kind[:-1].replace('_', ' ')} {one['name']}{known_as}" + (f": {about}" if about else ""))
    for kind in ("observers", "transforms", "guards"):
        names = report[kind]
        assert isinstance(names, list)
        lines += [f"  {kind[:-1]} {name}" for name in names]
    notes = report["diagnostics"]
    assert isinstance(notes, list)
    return [*lines, *[f"  note: {text}" for text in notes]]
