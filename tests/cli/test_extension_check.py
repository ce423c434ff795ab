"""cli/extension_check.py: each extension started, listed, stopped and reported."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Operator

pytestmark = pytest.mark.usefixtures("sandbox")

STAGES = ["spawn", "initialize", "registration", "shutdown", "exit"]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def check(operator: Operator, *entries: dict[str, Any], flags: tuple[str, ...] = ()) -> Any:
    operator.configure(*entries)
    return operator.run("extensions", "--check", *flags)


def test_the_report_names_everything_that_was_registered(operator: Operator) -> None:
    entry = operator.peer(
        "--register", "tools,command,observe,transform,guard,context", "--tool", "lock the door"
    )
    done = check(operator, entry)
    lines = done.text.splitlines()
    assert done.status == 0
    assert lines[0] == "one: ready, stopped with status 0"
    assert [part.split()[0] for part in lines[1].partition(": ")[2].split(", ")] == STAGES
    for line in (
        "  tool echo",
        "  command peer",
        "  context source peer",
        "  observer user_message",
        "  transform model_request",
        "  guard tool.execute",
    ):
        assert line in lines
    assert any(line.startswith("  tool lock the door (as ext_one_") for line in lines)


def test_t29_names_of_a_session_stand_beside_the_original_ones(operator: Operator) -> None:
    entries = [
        operator.peer("--register", "", "--tool", tool, "--tool", "own-" + name, name=name)
        for name, tool in (("b", "run"), ("a", "run"))
    ]
    lines = check(operator, *entries).text.splitlines()
    digest = hashlib.sha256(b"run").hexdigest()[:24]
    assert [line for line in lines if line.startswith("  tool ")] == [
        f"  tool run (as ext_b_{digest})",
        "  tool own-b",
        f"  tool run (as ext_a_{digest})",
        "  tool own-a",
    ]


def test_a_built_in_command_is_refused(operator: Operator) -> None:
    program = operator.place / "greedy.py"
    sdk = Path(__file__).parents[2] / "latch" / "extensions"
    program.write_text(
        f"import sys; sys.path.append({str(sdk)!r})\n"
        "from sdk import Extension\next = Extension()\next.command('doctor')(print)\next.run()\n",
        encoding="utf-8",
    )
    done = check(operator, operator.program(program, name="greedy", ro_paths=[str(sdk)]))
    assert done.status == 6
    assert (
        'extension "greedy": registration: command.register: name "doctor" is that of a built-in' in done.said
    )


def test_a_description_is_shown_in_one_line(operator: Operator) -> None:
    program = operator.place / "described.py"
    sdk = Path(__file__).parents[2] / "latch" / "extensions"
    program.write_text(
        f"import sys; sys.path.append({str(sdk)!r})\n"
        "from sdk import Extension\n"
        "ext = Extension()\n"
        "ext.tool('greet', description='Say\\n  hello.')(lambda arguments: None)\n"
        "ext.run()\n",
        encoding="utf-8",
    )
    done = check(operator, operator.program(program, ro_paths=[str(sdk)]))
    assert "  tool greet: Say hello." in done.text.splitlines(), done


def test_the_report_as_json(operator: Operator) -> None:
    entry = operator.peer(
        "--register", "guard,transform,observe", "--tool", "lock the door", "--misbehave", "notifications"
    )
    done = check(operator, entry, flags=("--json",))
    (report,) = done.value["extensions"]
    assert done.err == b""
    assert list(report["seconds"]) != [] and set(report["seconds"]) == set(STAGES)
    assert all(0 <= seconds < 30 for seconds in report["seconds"].values())
    assert (report["name"], report["command"], report["network"]) == ("one", entry["command"], False)
    (tool,) = report["tools"]
    assert (tool["name"], tool["input_schema"], tool["description"]) == (
        "lock the door",
        {"type": "object"},
        "",
    )
    assert tool["catalogue_name"].startswith("ext_one_")
    assert (report["guards"], report["transforms"], report["observers"]) == (
        ["tool.execute"],
        ["model_request"],
        ["user_message"],
    )
    assert (report["commands"], report["context_sources"], report["diagnostics"]) == ([], [], [])
    assert report["ignored_notifications"] > 0
    assert "frames" not in done.value


def test_what_never_fires_is_noted(operator: Operator) -> None:
    done = check(operator, operator.peer("--events", "sunrise", "--register", "observe"))
    assert done.status == 0
    assert [line for line in done.text.splitlines() if line.startswith("  note: ") and "sunrise" in line]


def test_with_nothing_enabled_it_says_so(operator: Operator) -> None:
    done = check(operator, operator.peer(enabled=False))
    assert (done.status, done.out) == (0, b"no extension is enabled\n")
    assert operator.run("extensions", "--check", "--json").value == {"v": 1, "extensions": []}


def test_each_failure_is_told_and_the_others_are_reported(operator: Operator) -> None:
    entries = (
        operator.peer("--misbehave", "silent", name="hung", lifecycle={"initialize_seconds": 0.2}),
        operator.peer(name="good"),
        operator.peer("--misbehave", "exits-nonzero", name="bad-end"),
        operator.peer(
            "--misbehave", "ignores-shutdown", name="stubborn", lifecycle={"shutdown_seconds": 0.2}
        ),
    )
    done = check(operator, *entries)
    assert done.status == 6
    assert [line for line in done.text.splitlines() if "ready" in line] == [
        "good: ready, stopped with status 0"
    ]
    assert [line for line in done.said.splitlines() if line.startswith("latch:")] == [
        'latch: extension "hung": initialize: no answer within 0.2 s; killed (signal 9)',
        'latch: extension "bad-end": exit: exited with status 3 instead of 0',
        'latch: extension "stubborn": shutdown: no answer within 0.2 s; killed (signal 9)',
    ]
    told = {
        line.partition('"')[2].partition('"')[0]: line for line in done.said.splitlines() if line[0] == "e"
    }
    assert "failed after" in told["hung"] and "started in" in told["good"] and len(told) == 4
    assert operator.left() == []


def test_a_failure_leaves_no_document_but_one_error(operator: Operator) -> None:
    absent = operator.peer(name="absent", command="nowhere-at-all")
    hung = operator.peer("--misbehave", "silent", name="hung", lifecycle={"initialize_seconds": 0.2})
    done = check(operator, operator.peer(), absent, hung, flags=("--json",))
    error = done.error
    assert (done.status, error["exit"], error["code"]) == (2, 2, "command")
    assert "nowhere-at-all" in error["message"] and done.err.count(b"\n") == 1
    assert [(one["code"], one["peer"]) for one in error["errors"]] == [
        ("command", 'extension "absent"'),
        ("deadline", 'extension "hung"'),
    ]
    assert error["errors"][0]["message"] == error["message"]


def test_each_failure_is_followed_by_its_own_hint(operator: Operator) -> None:
    unset = operator.peer(name="unset", env_from=["NOT_SET_ANYWHERE"])
    gone = operator.peer(name="gone", ro_paths=["/nonexistent/tools"])
    done = check(operator, unset, gone, flags=("-q",))
    first, cure, second, other = done.said.splitlines()
    assert done.status == 2 and '"NOT_SET_ANYWHERE" is not set' in first and "/nonexistent/tools" in second
    assert cure == "hint: set the variable, or remove its name from env_from"
    assert other.startswith("hint: ") and other != cure


def test_one_line_a_stage_where_there_is_no_terminal(operator: Operator) -> None:
    done = check(operator, operator.peer(), operator.peer(name="two"))
    lines = sorted(done.said.splitlines())
    assert [line.partition(": started in ")[0] for line in lines] == ['extension "one"', 'extension "two"']
    assert all(line.endswith(" s)") for line in lines) and "\x1b" not in done.said
    assert operator.run("extensions", "--check", "-q").err == b""


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_progress_is_drawn_over_itself_on_a_terminal(operator: Operator, flags: tuple[str, ...]) -> None:
    operator.configure(operator.peer())
    with operator.on_terminal("extensions", "--check", *flags, stdout=-1) as terminal:
        done = terminal.finish()
    assert done.status == 0 and done.out.count(b"\n") == (1 if flags else len(done.out.splitlines()))
    assert done.said.startswith('\r\x1b[Kextension "one": started in ') and done.said.endswith("\r\x1b[K")
    assert "\n" not in done.said


def test_a_trace_shows_each_frame(operator: Operator) -> None:
    operator.configure(operator.peer("--register", "guard"))
    lines = operator.run("extensions", "--trace", "one").text.splitlines()
    frames = [line for line in lines if line[:2] in ("->", "<-")]
    told = {
        way: [json.loads(line[3:]).get("method") for line in frames if line[:2] == way]
        for way in ("->", "<-")
    }
    assert told == {
        "->": ["initialize", "initialized", None, "shutdown", "exit"],
        "<-": [None, "hook.guard", "ready", None],
    }
    assert lines[: len(frames)] == frames and lines[len(frames)] == "one: ready, stopped with status 0"


def test_a_trace_as_json_is_part_of_the_one_document(operator: Operator) -> None:
    operator.configure(operator.peer("--register", "guard"))
    value = operator.run("extensions", "--trace", "one", "--json").value
    assert value["frames"][0]["direction"] == "->"
    assert json.loads(value["frames"][0]["body"])["method"] == "initialize"
    assert len(value["frames"]) == 9 and [one["name"] for one in value["extensions"]] == ["one"]


def test_a_trace_of_one_that_fails_shows_what_was_said_before(operator: Operator) -> None:
    operator.configure(operator.peer("--misbehave", "wrong-version"))
    done = operator.run("extensions", "--trace", "one")
    assert done.status == 6
    assert [line[:2] for line in done.text.splitlines()] == ["->", "<-"]


def test_text_of_a_peer_reaches_no_terminal_raw(operator: Operator) -> None:
    entry = operator.peer("--register", "observe", "--events", "\x1b[31m\u202e", "--tool", "red\x1b[32m")
    operator.configure(entry)
    with operator.on_terminal("extensions", "--check", "-q") as terminal:
        screen = terminal.finish().said
    assert "\x1b" not in screen and "\u202e" not in screen
    assert "observer \\x1b[31m\\u{202E}" in screen and "tool red\\x1b[32m" in screen


def test_what_fails_while_a_terminal_watches_is_escaped_too(operator: Operator) -> None:
    operator.configure(operator.peer("--misbehave", "answers-error:\x1b[31m\u202e:initialize"))
    with operator.on_terminal("extensions", "--check", "-q") as terminal:
        done = terminal.finish()
    assert done.status == 6 and "\x1b" not in done.said and "\u202e" not in done.said
    assert "31m" in done.said


def test_a_reader_that_goes_away_ends_it_quietly(operator: Operator) -> None:
    operator.configure(operator.peer())
    with operator.start("extensions", "--check", "-q") as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)
    assert operator.left() == []


def test_a_name_with_a_newline_begins_no_line_of_its_own(operator: Operator) -> None:
    done = check(
        operator, operator.peer("--register", "", "--tool", "a\nforged: ready, stopped with status 0")
    )
    assert done.status == 0
    (line,) = [line for line in done.text.splitlines() if line.startswith("  tool ")]
    assert line.startswith("  tool a\\x0aforged: ready, stopped with status 0 (as ext_one_")
    assert [line for line in done.text.splitlines() if line.startswith("forged")] == []


def test_a_trace_keeps_so_much_and_says_how_much_more_there_was(operator: Operator) -> None:
    chatter = {"jsonrpc": "2.0", "method": "$/chatter", "params": {"text": "x" * (1 << 20)}}
    program = operator.place / "chatter.py"
    program.write_text(
        "import json, sys\n"
        f"body = json.dumps({chatter!r}).encode()\n"
        "out = sys.stdout.buffer\n"
        "def send(body):\n"
        "    out.write(b'Content-Length: %d\\r\\n\\r\\n' % len(body) + body); out.flush()\n"
        "for _ in range(40): send(body)\n"
        "sys.exit(3)\n"
    )
    operator.configure(operator.program(program))
    done = operator.run("extensions", "--trace", "one")
    assert done.status == 6
    assert done.text.count("$/chatter") == 31
    assert done.text.rstrip().endswith("9 frames more were not kept")
