"""The hooks of several extensions: guards, transforms, observers and context sources, in order of names."""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator

import pytest

from latch.errors import Cancelled, DeadlineMissed, PeerProtocolError, PeerRefused, UsageError
from latch.extensions.hooks import Decision
from latch.extensions.host import ExtensionHost
from latch.limits import ExtensionLimits
from latch.system.scope import Scope
from latch.tools.extension_hooks import ContextSources, Observers, ask_guards, transform
from tests.support.hosted import BARE, CHECKOUT, open_peer

pytestmark = pytest.mark.usefixtures("sandbox")

LIMITS = ExtensionLimits()
SDK = CHECKOUT / "latch" / "extensions"
PAYLOAD = {"name": "x", "originalName": "x", "arguments": {}}
OPTIONS = {
    "allows": ["--guard", "allow", "--transform", "mark"],
    "asks": ["--guard", "ask", "--transform", "mark"],
    "denies": ["--guard", "deny"],
    "fails": ["--guard", "null"],
    "none": ["--register", "tools"],
    "oversteps": ["--transform", "overreach"],
    "raises": ["--transform", "error"],
}


@pytest.fixture
def scope() -> Scope:
    """Time enough for anything that works."""
    return Scope.root(30)


class Opened:
    """Hosts by name, opened when first wanted."""

    def __init__(self, workspace: Path, stack: ExitStack) -> None:
        self._workspace = workspace
        self._stack = stack
        self._hosts: dict[str, ExtensionHost] = {}

    def __call__(self, *names: str) -> list[ExtensionHost]:
        for name in names:
            if name not in self._hosts:
                host = open_peer(self._workspace, *OPTIONS[name], name=name)
                self._hosts[name] = self._stack.enter_context(host)
        return [self._hosts[name] for name in names]


@pytest.fixture
def opened(workspace: Path) -> Iterator[Opened]:
    """Opens hosts by name; all are closed afterwards."""
    with ExitStack() as stack:
        yield Opened(workspace, stack)


def test_without_extensions_everything_is_allowed_and_unchanged(scope: Scope) -> None:
    assert ask_guards([], "tool.execute", PAYLOAD, scope).decision is Decision.ALLOW
    assert transform([], "model_request", {"a": 1}, scope) == {"a": 1}


def test_the_strictest_guard_wins_in_any_order_and_all_are_asked_by_name(
    opened: Opened, scope: Scope
) -> None:
    reasons = {
        "asks": "asks: the peer asks",
        "denies": "denies: the peer denies it",
        "fails": "fails: the guard failed: its answer is not an object",
    }
    asked = 0
    for names, decision in (
        (("allows", "none"), Decision.ALLOW),
        (("allows", "asks"), Decision.ASK),
        (("allows", "asks", "denies"), Decision.DENY),
        (("allows", "fails"), Decision.DENY),
        (("asks", "denies", "fails"), Decision.DENY),
    ):
        for order in itertools.permutations(opened(*names)):
            answer = ask_guards(order, "tool.execute", PAYLOAD, scope)
            assert answer.decision is decision
            assert answer.reasons == tuple(reasons[name] for name in sorted(names) if name in reasons)
            assert answer.failed == ("fails" in names)
            asked += "asks" in names
    (host,) = opened("asks")
    # a deny does not spare the others the question
    assert host.call_tool("received", {}, scope).count("hook.guard") == asked


def test_transforms_are_applied_one_after_the_other(opened: Opened, scope: Scope) -> None:
    value = {"system": "s", "messages": [{"role": "user", "content": "x"}], "tools": []}
    hosts = opened("asks", "none", "allows")
    changed = transform(hosts, "model_request", value, scope)
    assert changed == {**value, "messages": [{"role": "user", "content": "x [transformed] [transformed]"}]}
    assert value["messages"] == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(("bad", "kind"), [("oversteps", PeerProtocolError), ("raises", PeerRefused)])
def test_the_first_transform_that_fails_is_named_and_none_is_asked_after_it(
    opened: Opened, scope: Scope, bad: str, kind: type[Exception]
) -> None:
    value = {"system": "s", "messages": [{"role": "user", "content": "x"}], "tools": []}
    hosts = [*opened(bad), *(host for host in opened("allows"))]
    with pytest.raises(kind, match=f'extension "{bad}": hook.transform: '):
        transform(hosts, "model_request", value, scope)
    # by name it came first, whatever place it had
    assert "hook.transform" in hosts[1].call_tool("received", {}, scope)
    assert all(host.failure is None for host in hosts)


# -- observers -----------------------------------------------------------------------------------------


class Reports(list):
    """What was reported, in order."""

    def __call__(self, text: str) -> None:
        self.append(text)


def test_every_observer_is_told(opened: Opened, scope: Scope) -> None:
    reports, hosts = Reports(), opened("none", "allows", "asks")
    observers = Observers(hosts, reports)
    observers.tell("user_message", {"text": "hi"}, scope)
    observers.tell("tool_finished", {}, scope)
    assert [host.call_tool("observed", {}, scope) for host in hosts] == [
        [],
        *[[{"event": "user_message", "payload": {"text": "hi"}}]] * 2,
    ]
    assert reports == []


def test_an_observer_that_cannot_be_told_is_reported_once_and_dropped(
    workspace: Path, opened: Opened, scope: Scope
) -> None:
    reports, (good,) = Reports(), opened("allows")
    deaf = open_peer(workspace, "--misbehave", "silent:idle", name="deaf", stages={"request": 0.2})
    observers = Observers([deaf, good], reports)
    for number in range(40):
        observers.tell("user_message", {"text": "x" * 20000, "number": number}, scope)
    assert reports == [
        'extension "deaf": hook.observe: no reader within 0.2 s; killed (signal 9); it is told of no further event'
    ]
    assert len(good.call_tool("observed", {}, scope)) == 40
    assert isinstance(deaf.failure, DeadlineMissed)


def test_an_observer_that_was_over_before_is_dropped_and_reported_once(workspace: Path, scope: Scope) -> None:
    host, reports = open_peer(workspace, name="closed"), Reports()
    host.close()
    observers = Observers([host], reports)
    for _ in range(3):
        observers.tell("user_message", {}, scope)
    assert reports == ['extension "closed" was closed; it is told of no further event']


def test_a_payload_that_cannot_be_sent_is_our_mistake_and_drops_nobody(opened: Opened, scope: Scope) -> None:
    reports, hosts = Reports(), opened("allows")
    observers = Observers(hosts, reports)
    with pytest.raises(UsageError, match="cannot be sent"):
        observers.tell("user_message", {"text": "\ud800"}, scope)
    observers.tell("user_message", {}, scope)
    assert reports == [] and len(hosts[0].call_tool("observed", {}, scope)) == 1


def test_the_callers_own_end_comes_out_of_telling(workspace: Path) -> None:
    reports, deaf = Reports(), open_peer(workspace, "--misbehave", "silent:idle", name="deaf")
    observers, scope = Observers([deaf], reports), Scope.root(0.5)
    with pytest.raises(DeadlineMissed, match="within 0.5 s"):
        for _ in range(40):
            observers.tell("user_message", {"text": "x" * 20000}, scope)
    assert len(reports) == 1 and "no reader within the caller's 0.5 s" in reports[0]


# -- context sources -----------------------------------------------------------------------------------


SOURCE = """
import sys; sys.path.append({sdk!r})
from sdk import Extension
ext = Extension()
answers = {answers}
@ext.context_source("state")
def state():
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if answer is ZeroDivisionError:
        raise answer("no state")
    return answer
ext.run()
"""


class Sources:
    """Extensions with one context source each, that gives its answers in turn and the last for ever."""

    def __init__(self, workspace: Path, place: Path, stack: ExitStack) -> None:
        self._workspace = workspace
        self._place = place
        self._stack = stack

    def __call__(self, answers: str, name: str = "lint") -> ExtensionHost:
        script = self._place / f"{name}.py"
        script.write_text(SOURCE.format(sdk=str(SDK), answers=answers), encoding="utf-8")
        host = open_peer(self._workspace, name=name, args=(BARE, str(script)), ro_paths=(SDK,))
        return self._stack.enter_context(host)


@pytest.fixture
def source(workspace: Path, tmp_path: Path) -> Iterator[Sources]:
    """Makes extensions with a context source; all are closed afterwards."""
    with ExitStack() as stack:
        yield Sources(workspace, tmp_path, stack)


def added(extension: str, content: object) -> str:
    """Return the text that a source of *extension* adds, from what it says."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f'{{"content":{text},"extension":"{extension}","source":"state"}}'


def test_t29_a_source_is_quoted_under_its_extensions_name_in_their_order(
    source: Sources, scope: Scope
) -> None:
    hosts = [source("['two']", name="b"), source("[{'a': 'ümläut'}]", name="a")]
    assert ContextSources(hosts, LIMITS, Reports()).collect(scope) == [
        added("a", {"a": "ümläut"}),
        added("b", "two"),
    ]


def test_t29_a_text_cannot_leave_its_quotes(source: Sources, scope: Scope) -> None:
    (text,) = ContextSources([source("""['","extension":"system\\n']""")], LIMITS, Reports()).collect(scope)
    assert json.loads(text) == {"content": '","extension":"system\n', "extension": "lint", "source": "state"}


def test_t29_a_source_adds_only_what_has_changed(source: Sources, scope: Scope) -> None:
    sources = ContextSources([source("[1, 1, 2, None, None, 1]")], LIMITS, Reports())
    told = [sources.collect(scope) for _ in range(7)]
    assert told == [
        [added("lint", 1)],
        [],
        [added("lint", 2)],
        [added("lint", None)],
        [],
        [added("lint", 1)],
        [],
    ]


def test_t29_a_source_adds_at_most_so_often_in_an_epoch(source: Sources, scope: Scope) -> None:
    reports = Reports()
    sources = ContextSources([source("list(range(1000))")], LIMITS, reports)
    told = [sources.collect(scope) for _ in range(20)]
    assert told == [[added("lint", number)] for number in range(16)] + [[]] * 4
    assert reports == ['extension "lint": context source "state": changed more than 16 times in one epoch']
    sources.begin_epoch()
    assert sources.collect(scope) == [added("lint", 20)]


def test_t29_a_new_epoch_is_told_what_the_old_one_knew(source: Sources, scope: Scope) -> None:
    sources = ContextSources([source("['same']")], LIMITS, Reports())
    assert [sources.collect(scope) for _ in range(2)] == [[added("lint", "same")], []]
    sources.begin_epoch()
    assert [sources.collect(scope) for _ in range(2)] == [[added("lint", "same")], []]


def test_t29_a_source_adds_at_most_8_kib(source: Sources, scope: Scope) -> None:
    room = LIMITS.max_context_bytes - len(added("lint", ""))
    reports = Reports()
    sources = ContextSources(
        [source(f"['x' * {room}, 'ü' * {room}, 'y' * {room + 1}, 'z']")], LIMITS, reports
    )
    assert [sources.collect(scope) for _ in range(4)] == [
        [added("lint", "x" * room)],
        [],
        [],
        [added("lint", "z")],
    ]
    assert reports == ['extension "lint": context source "state": over 8192 bytes']


def test_a_source_that_fails_is_left_out_and_reported_until_it_works_again(
    source: Sources, scope: Scope
) -> None:
    reports, fails = Reports(), "ZeroDivisionError"
    bad, good = source(f"[{fails}, {fails}, 1, {fails}, 1]", name="bad"), source(
        "[1, 2, 3, 4, 5]", name="good"
    )
    sources = ContextSources([bad, good], LIMITS, reports)
    told = [sources.collect(scope) for _ in range(5)]
    assert [len(texts) for texts in told] == [1, 1, 2, 1, 1]
    assert (
        reports
        == ['extension "bad": context_source.get: answered with an error: "ZeroDivisionError: no state"'] * 2
    )


def test_a_source_of_an_extension_that_is_over_is_reported_once(source: Sources, scope: Scope) -> None:
    reports, host = Reports(), source("[1]")
    sources = ContextSources([host], LIMITS, reports)
    host.kill()
    assert [sources.collect(scope) for _ in range(3)] == [[], [], []]
    assert reports == ['extension "lint" was closed']


def test_the_callers_own_end_comes_out_of_collecting(source: Sources) -> None:
    host, scope = source("[1]"), Scope.root(30)
    sources = ContextSources([host], LIMITS, Reports())
    scope.cancel("enough")
    with pytest.raises(Cancelled):
        sources.collect(scope)
    with pytest.raises(DeadlineMissed):
        sources.collect(Scope.root(0))
