"""Every error Latch raises. This module imports nothing.

::

    LatchError                 reason, hint, peer, stage, aftermath; code; to_dict()
    +-- UsageError             our caller's mistake
    |   +-- ConcurrentUse      two threads drove one peer
    +-- ConfigError            the operator's mistake: one problem or several, each with file, entry, key
    |   +-- UnsafeModes        what is ours can be read or changed by others
    +-- CommandUnusable        a program that was to be started is absent or not executable
    +-- CredentialError        a credential is missing, or was refused
    +-- MissingDependency      an optional package that this feature needs
    +-- SandboxUnavailable     no working sandbox: cause and remedy; nothing was run
    +-- Denied                 a rule or a person said no
    |   +-- ApprovalNeeded     a person has to say yes, and nobody can be asked
    +-- PeerError              the other side's fault: peer and stage are always set
    |   +-- PeerProtocolError  bad frame, JSON, order, id, version
    |   +-- PeerRefused        the peer answered with an error
    |   +-- PeerGone           the peer ended early
    |   +-- PeerLimit          the peer exceeded a limit
    |   +-- DeadlineMissed     also a TimeoutError
    +-- ContainmentError       a path left its root: link, hard link, encoding
    +-- StoreError             something we keep on disk is damaged or cannot be written
    Cancelled                  a BaseException: nothing that catches failures may swallow it
    WireError, SchemaError     reason only; raised by level 1, converted by whoever drives the peer

The type says whose fault it was. The text is one sentence built from the attributes, lower case
after the first colon, without a trailing stop: ``extension "lint": registration: no ready within
30 s; killed (signal 9)``.
"""

from __future__ import annotations

__all__ = [
    "ApprovalNeeded",
    "Cancelled",
    "CommandUnusable",
    "ConcurrentUse",
    "ConfigError",
    "ConfigProblem",
    "ContainmentError",
    "CredentialError",
    "DeadlineMissed",
    "Denied",
    "LatchError",
    "MissingDependency",
    "PeerError",
    "PeerGone",
    "PeerLimit",
    "PeerProtocolError",
    "PeerRefused",
    "SandboxUnavailable",
    "SchemaError",
    "StoreError",
    "UnsafeModes",
    "UsageError",
    "WireError",
    "seconds_text",
]


def seconds_text(seconds: float) -> str:
    """Return *seconds* as error texts show them: ``30 s``, ``0.5 s``, ``0.0012 s``."""
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


class LatchError(Exception):
    """The root of every failure of ours.

    ``reason`` is the sentence without its prefix, ``hint`` what to do about it (or None), ``peer``
    and ``stage`` who and when (or None), ``aftermath`` what was found or done afterwards, in order.
    """

    code = "error"

    def __init__(
        self, reason: str, *, hint: str | None = None, peer: str | None = None, stage: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.peer = peer
        self.stage = stage
        self.aftermath: list[str] = []

    def after(self, fact: str) -> None:
        """Append *fact*, something learnt after the failure; it never replaces the reason."""
        if fact not in self.aftermath:
            self.aftermath.append(fact)

    def __str__(self) -> str:
        subject = [part for part in (self.peer, self.stage) if part]
        return "; ".join([": ".join([*subject, self.reason]), *self.aftermath])

    def to_dict(self) -> dict[str, object]:
        """Return the error as JSON-ready values: code, message, and what is known of hint, peer, stage."""
        known = {"hint": self.hint, "peer": self.peer, "stage": self.stage}
        return {
            "code": self.code,
            "message": str(self),
            **{name: value for name, value in known.items() if value is not None},
        }


class UsageError(LatchError):
    """Our caller's mistake: a wrong argument, or a call at the wrong time."""

    code = "usage"


class ConcurrentUse(UsageError):
    """Two threads drove one peer; another thread may only cancel."""

    code = "concurrent_use"


class ConfigProblem:
    """One fault in one configuration file: where it is and what is allowed.

    ``entry`` names the table or list entry (``extensions[0] "lint"``), or is None for the file as a
    whole; ``key`` the key in it, or None.
    """

    def __init__(self, file: str, reason: str, *, entry: str | None = None, key: str | None = None) -> None:
        self.file = file
        self.entry = entry
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.entry, self.key, self.reason) if part)

    def to_dict(self) -> dict[str, object]:
        """Return the problem as JSON-ready values."""
        return {"file": self.file, "entry": self.entry, "key": self.key, "reason": self.reason}


class ConfigError(LatchError):
    """The operator's mistake. ``problems`` holds every fault found, in file order; never empty."""

    code = "config"

    def __init__(self, problems: list[ConfigProblem], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint=hint)
        self.problems = tuple(problems)

    def to_dict(self) -> dict[str, object]:
        """Return the error as JSON-ready values, with every problem."""
        return {**super().to_dict(), "problems": [problem.to_dict() for problem in self.problems]}


class UnsafeModes(ConfigError):
    """A file or directory of ours can be read or changed by others; nothing in it was believed."""

    code = "unsafe_modes"


class CommandUnusable(LatchError):
    """A program that was to be started is absent (status 127) or cannot be executed (126)."""

    code = "command"

    def __init__(
        self,
        reason: str,
        *,
        status: int,
        hint: str | None = None,
        peer: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(reason, hint=hint, peer=peer, stage=stage)
        self.status = status


class CredentialError(LatchError):
    """A credential is missing, or the other side refused it; no part of one is ever in the text."""

    code = "credential"


class MissingDependency(LatchError):
    """An optional package is not installed; ``package`` is its distribution name."""

    code = "missing_dependency"

    def __init__(self, package: str, *, needed_for: str) -> None:
        super().__init__(
            f"{package} is not installed, needed for {needed_for}",
            hint=f"install the Python package {package}",
        )
        self.package = package
        self.needed_for = needed_for


class SandboxUnavailable(LatchError):
    """There is no working sandbox, so nothing was run. ``cause`` is one of the causes in
    ``system/bubblewrap.py``; ``hint`` is the remedy."""

    code = "sandbox_unavailable"

    def __init__(self, reason: str, *, cause: str, hint: str, peer: str | None = None) -> None:
        super().__init__(reason, hint=hint, peer=peer)
        self.cause = cause
        self.after("nothing was run unsandboxed")

    def to_dict(self) -> dict[str, object]:
        """Return the error as JSON-ready values, with its cause."""
        return {**super().to_dict(), "cause": self.cause}


class Denied(LatchError):
    """A rule or a person said no; ``rule`` identifies which."""

    code = "denied"

    def __init__(self, reason: str, *, rule: str, hint: str | None = None, peer: str | None = None) -> None:
        super().__init__(reason, hint=hint, peer=peer)
        self.rule = rule


class ApprovalNeeded(Denied):
    """A person has to say yes, and nobody can be asked."""

    code = "approval_needed"


class PeerError(LatchError):
    """The other side's fault. ``peer`` and ``stage`` are always set."""

    code = "peer"


class PeerProtocolError(PeerError):
    """The peer broke the protocol: a bad frame, JSON, order, id or version."""

    code = "peer_protocol"


class PeerRefused(PeerError):
    """The peer answered with an error. ``data`` is what it sent, as JSON values."""

    code = "peer_refused"

    def __init__(
        self,
        reason: str,
        *,
        data: object = None,
        hint: str | None = None,
        peer: str | None,
        stage: str | None,
    ) -> None:
        super().__init__(reason, hint=hint, peer=peer, stage=stage)
        self.data = data

    def to_dict(self) -> dict[str, object]:
        """Return the error as JSON-ready values, with what the peer sent."""
        return {**super().to_dict(), "data": self.data}


class PeerGone(PeerError):
    """The peer ended early. ``status`` is its exit status (128 + N for signal N, or None when it is
    unknown), ``stderr_tail`` the last bytes it wrote to stderr, as text."""

    code = "peer_gone"

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        stderr_tail: str = "",
        hint: str | None = None,
        peer: str | None,
        stage: str | None,
    ) -> None:
        super().__init__(reason, hint=hint, peer=peer, stage=stage)
        self.status = status
        self.stderr_tail = stderr_tail


class PeerLimit(PeerError):
    """The peer exceeded a limit. ``limit`` is its name in ``limits.py``, ``amount`` the bound."""

    code = "peer_limit"

    def __init__(
        self, reason: str, *, limit: str, amount: float, peer: str | None = None, stage: str | None = None
    ) -> None:
        super().__init__(reason, peer=peer, stage=stage)
        self.limit = limit
        self.amount = amount


class DeadlineMissed(PeerError, TimeoutError):
    """A deadline passed. ``seconds`` is the length of the deadline that was missed; ``own`` is False
    when it was an outer one (the caller's) that ended a narrower stage."""

    code = "deadline"

    def __init__(
        self,
        reason: str,
        *,
        seconds: float,
        own: bool = True,
        peer: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(reason, peer=peer, stage=stage)
        self.seconds = seconds
        self.own = own


class ContainmentError(LatchError):
    """A path left the root it must stay in, or is not the plain file it must be."""

    code = "containment"

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f'"{path}": {reason}', hint=hint)
        self.path = path


class StoreError(LatchError):
    """Something we keep on disk is damaged or cannot be written; ``path`` names it."""

    code = "store"

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f'"{path}": {reason}', hint=hint)
        self.path = path


class Cancelled(BaseException):
    """The work was cancelled. ``reason`` is what the canceller said; ``peer`` and ``stage`` what was
    running. Not an :class:`Exception`, so that nothing that catches failures swallows it."""

    def __init__(self, reason: str, *, peer: str | None = None, stage: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.peer = peer
        self.stage = stage
        self.aftermath: list[str] = []

    def after(self, fact: str) -> None:
        """Append *fact*, something done because of it (a peer that was killed)."""
        self.aftermath.append(fact)

    def __str__(self) -> str:
        subject = ": ".join(part for part in (self.peer, self.stage, f"cancelled ({self.reason})") if part)
        return "; ".join([subject, *self.aftermath])


class WireError(Exception):
    """Bytes that break a format. ``reason`` never quotes more than a few bytes of them; ``limit`` and
    ``amount`` are set when a limit of ``limits.py`` was exceeded."""

    def __init__(self, reason: str, *, limit: str | None = None, amount: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.limit = limit
        self.amount = amount


class SchemaError(Exception):
    """A JSON Schema that cannot be used; ``reason`` names the place in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
