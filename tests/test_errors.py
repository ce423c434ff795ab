"""Whose fault, who and when are attributes; the sentence is built from them, and pinned here."""

from __future__ import annotations

import pytest

from latch import errors
from latch.errors import (
    ApprovalNeeded,
    Cancelled,
    CommandUnusable,
    ConcurrentUse,
    ConfigError,
    ConfigProblem,
    ContainmentError,
    DeadlineMissed,
    Denied,
    LatchError,
    MissingDependency,
    PeerError,
    PeerGone,
    PeerLimit,
    PeerProtocolError,
    PeerRefused,
    SandboxUnavailable,
    SchemaError,
    StoreError,
    UsageError,
    WireError,
    seconds_text,
)

PROBLEMS = [
    ConfigProblem("/c.toml", "must be true or false", entry='extensions[0] "lint"', key="network"),
    ConfigProblem("/c.toml", "is not TOML"),
]

TEXTS = [
    (LatchError("it broke"), "it broke"),
    (LatchError("it broke", peer='extension "lint"'), 'extension "lint": it broke'),
    (LatchError("it broke", peer='extension "lint"', stage="ready"), 'extension "lint": ready: it broke'),
    (LatchError("it broke", stage="ready"), "ready: it broke"),
    (UsageError("no command was given"), "no command was given"),
    (
        ConfigError(PROBLEMS),
        '/c.toml: extensions[0] "lint": network: must be true or false\n/c.toml: is not TOML',
    ),
    (CommandUnusable('command "x" is absent', status=127), 'command "x" is absent'),
    (MissingDependency("PyYAML", needed_for="skills"), "PyYAML is not installed, needed for skills"),
    (
        SandboxUnavailable("bwrap is not installed", cause="absent", hint="install it", peer="probe"),
        "probe: bwrap is not installed; nothing was run unsandboxed",
    ),
    (Denied("the rule says no", rule="r1"), "the rule says no"),
    (PeerGone("ended", status=1, peer="p", stage="call"), "p: call: ended"),
    (PeerLimit("too large", limit="max_body_bytes", amount=5, peer="p", stage="s"), "p: s: too large"),
    (DeadlineMissed("no ready within 30 s", seconds=30, peer="p", stage="s"), "p: s: no ready within 30 s"),
    (ContainmentError("a/b", "is a link"), '"a/b": is a link'),
    (StoreError("/state", "is full"), '"/state": is full'),
    (Cancelled("Ctrl+C"), "cancelled (Ctrl+C)"),
    (Cancelled("Ctrl+C", peer="p", stage="s"), "p: s: cancelled (Ctrl+C)"),
    (WireError("bad length"), "bad length"),
    (SchemaError("bad schema"), "bad schema"),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=lambda value: type(value).__name__)
def test_the_text_is_one_sentence_from_the_attributes(error: BaseException, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (UsageError, LatchError),
        (ConcurrentUse, UsageError),
        (ConfigError, LatchError),
        (CommandUnusable, LatchError),
        (MissingDependency, LatchError),
        (SandboxUnavailable, LatchError),
        (Denied, LatchError),
        (ApprovalNeeded, Denied),
        (PeerError, LatchError),
        (PeerProtocolError, PeerError),
        (PeerRefused, PeerError),
        (PeerGone, PeerError),
        (PeerLimit, PeerError),
        (DeadlineMissed, PeerError),
        (ContainmentError, LatchError),
        (StoreError, LatchError),
        (LatchError, Exception),
        (Cancelled, BaseException),
        (WireError, Exception),
        (SchemaError, Exception),
    ],
)
def test_the_type_says_whose_fault_it_was(kind: type[BaseException], parent: type[BaseException]) -> None:
    assert kind.__bases__[0] is parent


def test_nothing_that_catches_failures_swallows_a_cancel() -> None:
    assert not issubclass(Cancelled, Exception)


def test_a_missed_deadline_is_a_timeout_too() -> None:
    assert issubclass(DeadlineMissed, TimeoutError)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    words = set(errors.__doc__.replace(",", " ").split())
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert classes - words == {"ConfigProblem"}


def test_all_names_what_is_defined() -> None:
    defined = {
        name for name, value in vars(errors).items() if getattr(value, "__module__", None) == errors.__name__
    }
    assert set(errors.__all__) == defined


def test_every_kind_of_failure_has_a_code_of_its_own() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LatchError)
    ]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_facts_learnt_later_follow_the_reason_and_never_twice() -> None:
    error = PeerGone("ended before it answered", status=137, stderr_tail="oops", peer="p", stage="call")
    error.after("killed (signal 9)")
    error.after("killed (signal 9)")
    error.after("its stderr ends: oops")
    assert error.reason == "ended before it answered"
    assert error.aftermath == ["killed (signal 9)", "its stderr ends: oops"]
    assert str(error) == "p: call: ended before it answered; killed (signal 9); its stderr ends: oops"


def test_a_cancel_tells_what_was_done_because_of_it() -> None:
    cancelled = Cancelled("Ctrl+C", peer="p", stage="call")
    cancelled.after("it was killed")
    assert (cancelled.reason, cancelled.peer, cancelled.stage) == ("Ctrl+C", "p", "call")
    assert str(cancelled) == "p: call: cancelled (Ctrl+C); it was killed"


def test_as_values_an_error_has_its_code_its_text_and_what_is_known() -> None:
    assert LatchError("it broke").to_dict() == {"code": "error", "message": "it broke"}
    assert PeerProtocolError("bad id", hint="h", peer="p", stage="s").to_dict() == {
        "code": "peer_protocol",
        "message": "p: s: bad id",
        "hint": "h",
        "peer": "p",
        "stage": "s",
    }


def test_as_values_a_config_error_has_every_problem() -> None:
    error = ConfigError(PROBLEMS, hint="see the file")
    assert error.problems == tuple(PROBLEMS)
    assert error.to_dict()["hint"] == "see the file"
    assert error.to_dict()["problems"] == [
        {
            "file": "/c.toml",
            "entry": 'extensions[0] "lint"',
            "key": "network",
            "reason": "must be true or false",
        },
        {"file": "/c.toml", "entry": None, "key": None, "reason": "is not TOML"},
    ]


def test_as_values_a_missing_sandbox_has_its_cause() -> None:
    error = SandboxUnavailable("no bwrap", cause="absent", hint="install it")
    assert (error.cause, error.hint, error.aftermath) == (
        "absent",
        "install it",
        ["nothing was run unsandboxed"],
    )
    assert error.to_dict()["cause"] == "absent"


def test_as_values_a_refusal_has_what_the_peer_sent() -> None:
    error = PeerRefused("tool failed", data={"x": [1]}, hint="h", peer="p", stage="call")
    assert (error.data, error.hint) == ({"x": [1]}, "h")
    assert error.to_dict()["data"] == {"x": [1]}


def test_each_error_keeps_the_facts_it_was_made_with() -> None:
    command = CommandUnusable("absent", status=127, hint="h", peer="p", stage="s")
    assert (command.status, command.hint, command.peer, command.stage) == (127, "h", "p", "s")
    missing = MissingDependency("PyYAML", needed_for="skills")
    assert (missing.package, missing.needed_for) == ("PyYAML", "skills")
    assert missing.hint == "install the Python package PyYAML"
    denied = ApprovalNeeded("ask", rule="r1", hint="h", peer="p")
    assert (denied.rule, denied.hint, denied.peer) == ("r1", "h", "p")
    gone = PeerGone("ended", status=3, stderr_tail="tail", hint="h", peer="p", stage="s")
    assert (gone.status, gone.stderr_tail, gone.hint, gone.peer, gone.stage) == (3, "tail", "h", "p", "s")
    limit = PeerLimit("too many", limit="max_tools", amount=3, peer="p", stage="s")
    assert (limit.limit, limit.amount, limit.peer, limit.stage) == ("max_tools", 3, "p", "s")
    missed = DeadlineMissed("late", seconds=2, own=False, peer="p", stage="s")
    assert (missed.seconds, missed.own, missed.peer, missed.stage) == (2, False, "p", "s")
    assert DeadlineMissed("late", seconds=2).own is True
    contained = ContainmentError("a", "is a link", hint="h")
    assert (contained.path, contained.hint) == ("a", "h")
    store = StoreError("a", "is full", hint="h")
    assert (store.path, store.hint) == ("a", "h")
    wire = WireError("too long", limit="max_header_bytes", amount=8)
    assert (wire.reason, wire.limit, wire.amount) == ("too long", "max_header_bytes", 8)
    assert SchemaError("at /a").reason == "at /a"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (30, "30 s"),
        (0.5, "0.5 s"),
        (0.0012, "0.0012 s"),
        (1.23456, "1.23 s"),
        (999, "999 s"),
        (1000, "1000 s"),
        (3600, "3600 s"),
        (0, "0 s"),
    ],
)
def test_seconds_are_shown_short_and_with_their_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
