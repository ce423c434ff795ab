"""Where anything may be caught, printed or waited for: a short list of sites for each.

Waiting cannot be told from the syntax tree with certainty. The rule looks at how the blocking calls
of the standard library are spelt, and lets pass what is called on a scope.
"""

from __future__ import annotations

import ast

import pytest

from tests.support.tree import imports, sources, tree_of

# They run in a process of their own at the other end of the pipe: they answer for whatever an author's
# functions raise, and there is no scope to wait on.
AUTHOR_SIDE = ("latch/extensions/sdk.py", "latch/cli/demo_peer.py")
# A site of the two lists that follow is a file, or one function of it.
# Broad handlers that swallow: each turns whatever happened into an answer, at an edge of ours.
CATCH_ALL = (
    "latch/cli/main.py",
    "latch/gateway/server.py",
    "latch/gateway/modules.py",
    "latch/agent/children.py",
    # A thread keeps whatever it meets for the thread that asked, which raises it.
    "latch/tools/peers.py",
    "latch/system/spawner.py:_start",
    # The housekeeper's pass over an idle peer: whatever reads for it may raise, and the next exchange does.
    "latch/system/child.py:tend",
    *AUTHOR_SIDE,
)
# One place per peer adds who and when to what level 1 says; what a person typed has no peer.
CATCH_WIRE = (
    "latch/cli/commands/call.py:_parse_arguments",
    "latch/config/remote.py:_refusal_of",
    "latch/extensions/host.py",
    # What bubblewrap says is no peer's message.
    "latch/system/bubblewrap.py:_member",
    "latch/system/http.py:__init__",
    "latch/system/http.py:_request_head",
    # A fault of one tool costs that tool alone; what our caller passed and cannot be sent has no peer.
    "latch/mcp/catalogue.py:_add_tool",
    "latch/mcp/conversation.py:request",
    "latch/mcp/client.py:_exchange",
    # What stands in the environment is the operator's.
    "latch/mcp/secrets.py:_check_field",
    # A fault behind an answer is kept for the next exchange; of a server that is left there is none.
    "latch/mcp/stdio.py:_hear",
    "latch/mcp/stdio.py:_say_farewell",
    "latch/mcp/stdio.py:close",
    # What is no answer of the protocol is looked at for the reason alone.
    "latch/mcp/streamable.py:_failure_in",
    "latch/mcp/streamable.py:_field_of",
    "latch/mcp/streamable.py:probe",
    "latch/gateway/proxy.py",
    "latch/agent/anthropic.py",
    "latch/agent/openai.py",
)
PRINTING = ("latch/cli/",)
WAITING = ("latch/system/", *AUTHOR_SIDE)
BROAD = {"Exception", "BaseException"}


def violations(path: str, tree: ast.Module) -> list[str]:
    found = [
        f"{path}:{line}: {name} waits outside system/"
        for name, line in imports(tree, path)
        if waits(path, name)
    ]
    functions = functions_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = caught_by(node)
            sites = {path, f"{path}:{functions.get(node)}"}
            if (not caught or caught & BROAD) and not ends_in_raise(node) and not sites & {*CATCH_ALL}:
                found.append(f"{path}:{node.lineno}: catches everything")
            if "WireError" in caught and not stays_wire(node) and not sites & {*CATCH_WIRE}:
                found.append(f"{path}:{node.lineno}: catches WireError")
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("print", "input"):
                if not path.startswith(PRINTING):
                    found.append(f"{path}:{node.lineno}: {node.func.id} outside cli/")
            if blocks(node) and not path.startswith(WAITING):
                found.append(f"{path}:{node.lineno}: waits outside system/")
    return found


def functions_of(tree: ast.Module) -> dict[ast.AST, str]:
    """Return the name of the innermost function around every node that is in one."""
    found = {}
    # Breadth first, so that an inner function comes after the one around it.
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.update(dict.fromkeys(ast.walk(function), function.name))
    return found


def caught_by(node: ast.ExceptHandler) -> set[str]:
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return {
        kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "") for kind in kinds if kind
    }


def ends_in_raise(node: ast.ExceptHandler) -> bool:
    # Cleaning up and raising on swallows nothing, be it through a function that is given what was caught.
    last = node.body[-1]
    if not isinstance(last, ast.Raise):
        return False
    raised = last.exc.args[0] if isinstance(last.exc, ast.Call) and last.exc.args else last.exc
    return raised is None or isinstance(raised, ast.Name) and raised.id == node.name


def stays_wire(node: ast.ExceptHandler) -> bool:
    # Raised on, or raised again with more of the place in it: still a fault of bytes and not of a peer.
    last = node.body[-1]
    again = isinstance(last, ast.Raise) and isinstance(last.exc, ast.Call) and ast.unparse(last.exc.func)
    return ends_in_raise(node) or again == "WireError"


def waits(path: str, name: str) -> bool:
    return name.split(".")[0] in ("select", "selectors") and not path.startswith(WAITING)


def blocks(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return False
    called, receiver = node.func.attr, ast.unparse(node.func.value)
    if receiver.endswith("scope") or called == "wait" and node.args and isinstance(node.args[0], ast.List):
        # Scope.wait takes descriptors; what waits without a scope takes a number.
        return False
    words = {word.arg for word in node.keywords}
    if called in ("wait", "communicate", "sleep", "waitpid", "wait4", "waitid", "sigwait", "pause"):
        return True
    if called == "join":
        # str.join and path.join take what they join; Thread.join takes at most a number.
        return not node.args or "timeout" in words
    if called == "get":
        return bool(words & {"timeout", "block"})
    return called == "acquire" and bool(words & {"timeout"})


@pytest.mark.parametrize("path", sources())
def test_module_catches_prints_and_waits_only_where_it_may(path: str) -> None:
    assert violations(path, tree_of(path)) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("latch/kernel/session.py", "try:\n    pass\nexcept Exception:\n    pass"),
        (
            "latch/kernel/session.py",
            "try:\n    pass\nexcept (ValueError, Exception) as error:\n    log(error)",
        ),
        ("latch/kernel/session.py", "try:\n    pass\nexcept:\n    pass"),
        ("latch/kernel/session.py", "try:\n    pass\nexcept BaseException:\n    return_()"),
        ("latch/kernel/session.py", "try:\n    pass\nexcept BaseException as error:\n    raise other"),
        ("latch/kernel/session.py", "try:\n    pass\nexcept BaseException as error:\n    raise other('x')"),
        (
            "latch/system/child.py",
            "def end():\n    try:\n        pass\n    except Exception:\n        pass",
        ),
        (
            "latch/system/child.py",
            "def tend():\n    def end():\n        try:\n            pass\n"
            "        except Exception:\n            pass",
        ),
        ("latch/extensions/registrations.py", "try:\n    pass\nexcept WireError:\n    pass"),
        ("latch/extensions/registrations.py", "try:\n    pass\nexcept errors.WireError:\n    return_()"),
        ("latch/extensions/registrations.py", "try:\n    pass\nexcept WireError:\n    raise PeerGone('x')"),
        ("latch/mcp/client.py", "try:\n    pass\nexcept WireError:\n    pass"),
        ("latch/mcp/client.py", "def _find():\n    try:\n        pass\n    except WireError:\n        pass"),
        ("latch/kernel/session.py", "print('x')"),
        ("latch/kernel/session.py", "event.wait()"),
        ("latch/kernel/session.py", "thread.join()"),
        ("latch/kernel/session.py", "thread.join(timeout=1)"),
        ("latch/kernel/session.py", "queue.get(timeout=1)"),
        ("latch/kernel/session.py", "lock.acquire(timeout=1)"),
        ("latch/kernel/session.py", "process.communicate()"),
        ("latch/kernel/session.py", "import selectors"),
    ],
)
def test_a_stray_site_is_caught(path: str, source: str) -> None:
    assert violations(path, ast.parse(source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("latch/kernel/session.py", "try:\n    pass\nexcept BaseException:\n    close()\n    raise"),
        ("latch/kernel/session.py", "try:\n    pass\nexcept BaseException as error:\n    raise error"),
        (
            "latch/system/starting.py",
            "try:\n    pass\nexcept BaseException as error:\n    raise named(error, 'x') from None",
        ),
        ("latch/cli/main.py", "try:\n    pass\nexcept Exception:\n    pass"),
        (
            "latch/system/child.py",
            "class Child:\n    def tend(self):\n        try:\n            pass\n"
            "        except Exception as error:\n            self.fault = error",
        ),
        ("latch/extensions/host.py", "try:\n    pass\nexcept WireError:\n    pass"),
        (
            "latch/mcp/client.py",
            "def _exchange():\n    try:\n        pass\n    except WireError:\n        pass",
        ),
        ("latch/kernel/session.py", "', '.join(words)\nos.path.join(a, b)\nmapping.get('x')"),
        (
            "latch/extensions/hooks.py",
            "try:\n    pass\nexcept WireError as e:\n    raise WireError('x') from None",
        ),
        ("latch/extensions/hooks.py", "try:\n    pass\nexcept WireError:\n    answer()\n    raise"),
        (
            "latch/kernel/session.py",
            "patient.wait([1])\nscope.wait(reads=[1])\nself._scope.wait()\nscope.pause(1)",
        ),
        ("latch/system/child.py", "process.wait()"),
        ("latch/cli/terminal.py", "print('x')"),
    ],
)
def test_a_named_site_passes(path: str, source: str) -> None:
    assert violations(path, ast.parse(source)) == []


@pytest.mark.parametrize("site", [site for site in (*CATCH_ALL, *CATCH_WIRE) if ":" in site])
def test_a_named_function_still_catches(site: str) -> None:
    path, _, name = site.partition(":")
    tree = tree_of(path)
    functions = functions_of(tree)
    wanted = {"WireError"} if site in CATCH_WIRE else BROAD
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    assert [node for node in handlers if functions.get(node) == name and caught_by(node) & wanted]
