"""A sandboxed peer from its plan to its end, whatever it speaks.

Extensions and MCP servers are planned, driven and ended in the same way; what they say differs. This
module prepares an operator's entry, holds the child while an exchange runs, and turns whatever went
wrong into one error that names the peer, the stage, the exit status and the last words. An end that
could not be proven is told with it. It does not know what the bytes mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Mapping, TypeVar, Union

from ..errors import (
    CommandUnusable,
    ConfigError,
    ConfigProblem,
    ContainmentError,
    Denied,
    LatchError,
    PeerGone,
)
from ..settings import ExtensionSettings, McpServerSettings
from ..wire.excerpts import quote_end
from ..wire.httpfields import Redactor
from .child import Child, ChildExit
from .planning import Prepared
from .sandbox import Sandbox
from .scope import Scope

__all__ = ["Entry", "PeerProcess", "prepare_entry", "problem_of"]

# An entry of the configuration that says which program to start, and how.
Entry = Union[ExtensionSettings, McpServerSettings]

_T = TypeVar("_T")


class PeerProcess:
    """The child of one peer. ``over`` is the error that ended it, None while it is usable; ``was_heard``
    is True once it wrote a byte to its stdout."""

    def __init__(
        self,
        sandbox: Sandbox,
        prepared: Prepared,
        child: Child,
        *,
        peer: str,
        redactor: Redactor | None = None,
    ) -> None:
        """*peer* names it in errors, *redactor* takes what must not be seen out of its words. The child
        becomes this object's, which ends it."""
        self.child = child
        self.prepared = prepared
        self.over: LatchError | None = None
        self.was_heard = False
        self._sandbox = sandbox
        self._peer = peer
        self._redactor = redactor
        self._quoted_chars = sandbox.limits.extension.max_quoted_chars
        self._kill_seconds = sandbox.limits.process.kill_seconds

    def exchange(
        self, work: Callable[[], _T], scope: Scope, *, settle: Callable[[BaseException, Scope], None]
    ) -> _T:
        """Hold the child while *work* runs; what goes wrong is given to *settle*, which may raise another."""
        held = False
        try:
            self.child.hold()
            held = True
            return work()
        except BaseException as error:
            settle(error, scope)
            raise error
        finally:
            # NOTE: only after its end, which must not wait for an idle pass over a flood.
            if held:
                self.child.release()

    def end(self, error: LatchError, scope: Scope) -> LatchError:
        """End the child and return *error* with what was learnt; it is the answer to every later call."""
        ended = self.child.end(scope.shielded(self._kill_seconds))
        # NOTE: whoever said a byte did run, and what ended it is no missing sandbox.
        never_ran = None if self.was_heard else self._sandbox.explain(self.child, self.prepared)
        if never_ran is not None and isinstance(error, PeerGone):
            never_ran.peer = None
            error = never_ran
        else:
            self._add_end(error, ended)
        unproven = self.child.unproven(peer=self._peer, stage="kill")
        if unproven is not None:
            error.hint = error.hint or unproven.hint
            if unproven.reason != error.reason:
                error.after(unproven.reason)
        self.over = error
        return error

    def kill(self, over: LatchError) -> None:
        """End the whole tree at once; *over* is what later calls raise unless something ended it before.

        Idempotent, and silent for a dead peer. Raises a :class:`PeerError` that names the process when its
        end could not be proven.
        """
        self.child.end(Scope.root().shielded(self._kill_seconds))
        self.over = self.over or over
        self.check_gone("kill")

    def check_gone(self, stage: str) -> None:
        """Raise the :class:`PeerError` that names what may have outlived its end, if anything did."""
        unproven = self.child.unproven(peer=self._peer, stage=stage)
        if unproven is not None:
            raise unproven

    def check_usable(self) -> None:
        """Raise what ended it, if anything did."""
        if self.over is not None:
            raise self.over

    def stderr_text(self) -> str:
        """Return the last of what it wrote to stderr, secrets taken out."""
        text = self.child.stderr_text()
        if self._redactor is None:
            return text
        # NOTE: where the beginning is cut off, it may be in the middle of a secret, which nobody would recognise.
        cut = self._redactor.longest_form_bytes if self.child.is_stderr_cut else 0
        return self._redactor.text(text)[cut:]

    def _add_end(self, error: LatchError, ended: ChildExit) -> None:
        if ended.killed:
            error.after(str(ended))
        elif isinstance(error, PeerGone) and error.status is None and ended.status is not None:
            error.status = ended.status
            error.after(f"its sandbox {ended}")
        tail = self.stderr_text().strip()
        if tail:
            error.after(f"its stderr ends: {quote_end(tail, self._quoted_chars)}")


def prepare_entry(
    entry: Entry,
    sandbox: Sandbox,
    *,
    peer: str,
    table: str,
    workspace: Path,
    environment: Mapping[str, str],
    features: frozenset[str],
) -> Prepared:
    """Return what would be started for *entry* of the list *table*; looks at the disk and starts nothing.

    *peer* names it in errors, *environment* is its own, *features* are the options of the bubblewrap in
    use. Raises :class:`ConfigError` for a fault of the entry, :class:`CommandUnusable` for its command,
    :class:`Denied` and :class:`UsageError` for the workspace.
    """
    try:
        return sandbox.planner.prepare_peer(
            peer,
            entry.command,
            entry.args,
            workspace=workspace,
            environment=environment,
            ro_paths=entry.ro_paths,
            rw_paths=entry.rw_paths,
            network=entry.network,
            in_workspace=entry.cwd == "workspace",
            features=features,
        )
    except ContainmentError as error:
        raise ConfigError([problem_of(entry, table, error.reason)], hint=error.hint) from error
    except (CommandUnusable, Denied) as error:
        # NOTE: found before anything runs that could be asked for its name.
        error.peer = error.peer or peer
        raise


def problem_of(entry: Entry, table: str, reason: str, key: str | None = None) -> ConfigProblem:
    """Return a fault of *entry*, of its *key* if one is to blame, as one of its configuration file."""
    file = entry.sandbox.config_file
    return ConfigProblem(
        "settings" if file is None else str(file), reason, entry=f'{table} "{entry.name}"', key=key
    )
