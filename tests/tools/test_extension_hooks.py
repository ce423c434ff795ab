"""The hooks of several extensions: all guards are asked, all transforms applied, in the order of names."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator

import pytest

from latch.errors import PeerProtocolError, PeerRefused
from latch.extensions.hooks import Decision
from latch.extensions.host import ExtensionHost
from latch.system.scope import Scope
from latch.tools.extension_hooks import ask_guards, transform
from tests.support.hosted import open_peer

pytestmark = pytest.mark.usefixtures("sandbox")

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
