"""The hooks of several extensions as one session has them, in the order of their names.

Guards are all asked and transforms all applied; observers are told until one fails; context sources add
to a model request what has changed. The three mechanisms stay apart: what an observer does changes
nothing, a transform cannot decide, a guard cannot rewrite.

::

    observers = Observers(hosts, report)
    observers.tell("user_message", {"text": "hi", "media": 0, "sessionId": session}, scope)
    sources = ContextSources(hosts, limits.extension, report)
    messages += sources.collect(scope)      # before each model request
    sources.begin_epoch()                   # where the requests start afresh

*report* takes one sentence for the record and is called once for each thing that went wrong.
"""

from __future__ import annotations

from typing import Callable, Iterable, Sequence

from ..errors import ConcurrentUse, LatchError
from ..extensions.hooks import GuardAnswer, strictest
from ..extensions.host import ExtensionHost
from ..limits import ExtensionLimits
from ..system.scope import Scope
from ..wire.excerpts import quote
from ..wire.jsontext import Json, canonical_json

__all__ = ["ContextSources", "Observers", "ask_guards", "transform"]


def ask_guards(hosts: Iterable[ExtensionHost], action: str, payload: Json, scope: Scope) -> GuardAnswer:
    """Ask every guard of *action*; the strictest answer holds and every reason is kept."""
    return strictest([host.guard(action, payload, scope) for host in _by_name(hosts)])


def transform(hosts: Iterable[ExtensionHost], structure: str, value: Json, scope: Scope) -> Json:
    """Return *value* after every transform of *structure*; raises what the first failing one does."""
    for host in _by_name(hosts):
        value = host.transform(structure, value, scope)
    return value


class Observers:
    """Those of a session's extensions that are told of events. One that cannot be told is reported once
    and is an observer no more, whatever else it still does."""

    def __init__(self, hosts: Iterable[ExtensionHost], report: Callable[[str], None]) -> None:
        self._hosts = _by_name(hosts)
        self._report = report

    def tell(self, event: str, payload: Json, scope: Scope) -> None:
        """Tell every observer of *event*; no failure of one comes out.

        Raises :class:`UsageError` for a *payload* that cannot be sent, and what *scope* raises.
        """
        for host in tuple(self._hosts):
            if not host.registrations.observes(event):
                continue
            try:
                host.observe(event, payload, scope)
            except LatchError as error:
                if host.failure is None:
                    raise
                self._hosts.remove(host)
                self._report(f"{error}; it is told of no further event")
                scope.check()


class ContextSources:
    """What the context sources of a session's extensions add to its model requests.

    Each is asked before each request. Its text is JSON under its extension's name, at most
    ``max_context_bytes``, and is added when it differs from what it added last, at most
    ``max_context_changes`` times an epoch (security.md T29). One that fails is left out of the request
    and reported, again only after it has worked in between.
    """

    def __init__(
        self, hosts: Iterable[ExtensionHost], limits: ExtensionLimits, report: Callable[[str], None]
    ) -> None:
        self._sources = [
            _Source(host, source.name)
            for host in _by_name(hosts)
            for source in host.registrations.context_sources
        ]
        self._limits = limits
        self._report = report

    def begin_epoch(self) -> None:
        """Forget what was added: the requests that follow do not hold it."""
        for source in self._sources:
            source.added, source.changes = "", 0

    def collect(self, scope: Scope) -> Sequence[str]:
        """Return the texts to add to the next request, in the order of extensions and registrations.

        Raises only what *scope* raises, and :class:`ConcurrentUse`.
        """
        texts = [self._ask(source, scope) for source in self._sources]
        return [text for text in texts if text]

    def _ask(self, source: _Source, scope: Scope) -> str:
        try:
            value = source.host.context(source.name, scope)
        except ConcurrentUse:
            raise
        except LatchError as error:
            scope.check()
            return self._leave_out(source, str(error))
        text = canonical_json(
            {"content": value, "extension": source.host.name, "source": source.name}
        ).decode()
        if len(text.encode()) > self._limits.max_context_bytes:
            return self._leave_out(source, f"{source}: over {self._limits.max_context_bytes} bytes")
        if text == source.added:
            source.fault = ""
            return ""
        if source.changes == self._limits.max_context_changes:
            return self._leave_out(source, f"{source}: changed more than {source.changes} times in one epoch")
        source.added, source.fault = text, ""
        source.changes += 1
        return text

    def _leave_out(self, source: _Source, fault: str) -> str:
        if fault != source.fault:
            source.fault = fault
            self._report(fault)
        return ""


class _Source:
    """One context source: what it added last and how often, and the fault that was reported last."""

    def __init__(self, host: ExtensionHost, name: str) -> None:
        self.host = host
        self.name = name
        self.added = ""
        self.changes = 0
        self.fault = ""

    def __str__(self) -> str:
        return f'extension "{self.host.name}": context source {quote(self.name, len(self.name))}'


def _by_name(hosts: Iterable[ExtensionHost]) -> list[ExtensionHost]:
    return sorted(hosts, key=lambda host: host.name)
