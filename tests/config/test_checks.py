"""Each value of the configuration is taken for what it means, or refused with what is allowed and was found."""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path

import pytest

from latch.config import checks
from latch.config.checks import Checker, Fault, Place, holds_home, is_entry_name, is_variable_name
from latch.limits import DEFAULT, ExtensionLimits, FileLimits, Limits, McpLimits

LARGEST = 2**63 - 1
HOME = Path("/home/somebody")
PLACE = Place(HOME, HOME / "conf", DEFAULT, private=(HOME / "vault",))

ALONE = 'must be the program alone, which is "{}": the words after it go to args'

strings = partial(checks.check_list, what="words", check=checks.check_string)
choice = partial(checks.check_choice, choices=("one", "two"))
tables = partial(checks.check_tables, table="things")
positive = partial(checks.check_integer, least=1)
shown = partial(checks.check_bind, writable=False)
written = partial(checks.check_bind, writable=True)


def fault(check: Checker, value: object, place: Place = PLACE) -> Fault:
    """Return why *check* refuses *value*."""
    with pytest.raises(Fault) as caught:
        check(value, place)
    assert str(caught.value) == caught.value.reason
    return caught.value


@pytest.mark.parametrize(
    ("check", "value", "meaning"),
    [
        (checks.check_string, "a b", "a b"),
        (checks.check_bool, False, False),
        (positive, 1, 1),
        (positive, LARGEST, LARGEST),
        (partial(checks.check_integer, least=0), 0, 0),
        (checks.check_table, {"a": 1}, {"a": 1}),
        (tables, [{"a": 1}, {}], [{"a": 1}, {}]),
        (strings, [], ()),
        (strings, ["a", "b"], ("a", "b")),
        (choice, "two", "two"),
        (checks.check_lifecycle_seconds, 0.001, 0.001),
        (checks.check_lifecycle_seconds, 3600, 3600),
        (checks.check_timeout_seconds, 1, 1),
        (checks.check_timeout_seconds, 3600.0, 3600.0),
        (checks.check_name, "Lint-2", "Lint-2"),
        (checks.check_name, "x" * 32, "x" * 32),
        (checks.check_command, "python3", "python3"),
        (checks.check_command, "/opt/x", "/opt/x"),
        (checks.check_command, "~/bin/x", f"{HOME}/bin/x"),
        (checks.check_command, "/opt/no such/x", "/opt/no such/x"),
        (checks.check_command, "~/my bin/x", f"{HOME}/my bin/x"),
        (checks.check_argument, "", ""),
        (checks.check_variable, "_a9", "_a9"),
        (checks.check_environment, {"A": "", "b": "2"}, {"A": "", "b": "2"}),
        (checks.check_permission, "observe:*", "observe:*"),
        (checks.check_permission, "transform:tool_result", "transform:tool_result"),
        (checks.check_permission, "guard:*", "guard:*"),
        (checks.check_path, "/a/b", Path("/a/b")),
        (checks.check_path, "~", HOME),
        (checks.check_path, "~/a", HOME / "a"),
        (shown, "/opt/tools", Path("/opt/tools")),
        (shown, "~/.profile", HOME / ".profile"),
        (written, "~/cache", HOME / "cache"),
        (checks.check_bwrap, "/usr/bin/bwrap", Path("/usr/bin/bwrap")),
        (checks.check_state_directory, "state", HOME / "conf" / "state"),
        (checks.check_state_directory, "../state", HOME / "state"),
        (checks.check_state_directory, "~/state", HOME / "state"),
        (checks.check_state_directory, "/var/lib/latch", Path("/var/lib/latch")),
    ],
)
def test_a_right_value_is_taken_for_what_it_means(check: Checker, value: object, meaning: object) -> None:
    assert check(value, PLACE) == meaning


@pytest.mark.parametrize(
    ("check", "value", "reason"),
    [
        (checks.check_string, 3, "must be a string, found 3"),
        (checks.check_string, "", "must not be empty"),
        (checks.check_string, "a\0", "contains a NUL character"),
        (checks.check_bool, 0, "must be true or false, found 0"),
        (positive, 0, f"must be a whole number from 1 to {LARGEST}, found 0"),
        (positive, True, f"must be a whole number from 1 to {LARGEST}, found true"),
        (positive, 1.0, f"must be a whole number from 1 to {LARGEST}, found 1.0"),
        (positive, LARGEST + 1, f"must be a whole number from 1 to {LARGEST}, found a number beyond 64 bits"),
        (checks.check_table, [], "must be a table, found a list"),
        (tables, {}, "must be written [[things]], once for each entry, found a table"),
        (tables, [{}, 1], "must be a table, found 1"),
        (strings, "a", 'must be a list of words, found "a"'),
        (strings, ["a", 1], "must be a string, found 1"),
        (choice, "three", 'must be "one" or "two", found "three"'),
        (choice, [], 'must be "one" or "two", found a list'),
        (checks.check_name, "a_b", 'must be 1 to 32 letters, digits or hyphens, found "a_b"'),
        (
            checks.check_command,
            "./x",
            'must be the name of a program, or begin with "/" or "~/", found "./x"',
        ),
        (
            checks.check_command,
            "dir/a b",
            'must be the name of a program, or begin with "/" or "~/", found "dir/a b"',
        ),
        (checks.check_command, "python3 server.py", ALONE.format("python3")),
        (checks.check_command, "npx -y @x/y --token=secret", ALONE.format("npx")),
        (checks.check_command, "/bin/sh -c x", ALONE.format("/bin/sh")),
        (checks.check_command, " /bin/sh\t-c", ALONE.format("/bin/sh")),
        (checks.check_argument, datetime.date(2020, 1, 1), "must be a string, found a date or time"),
        (checks.check_argument, "secret\0", "contains a NUL character"),
        (
            checks.check_variable,
            "9a",
            '"9a" is no name of a variable: letters, digits and _, no digit first',
        ),
        (
            checks.check_variable,
            "PATH",
            '"PATH" follows from the command; show more directories with ro_paths',
        ),
        (checks.check_variable, "HOME", '"HOME" is set by the sandbox itself'),
        (checks.check_environment, {"HOME": ""}, '"HOME" is set by the sandbox itself'),
        (checks.check_environment, {"A": 1}, "must be a string, found 1"),
        (
            checks.check_permission,
            "watch:x",
            'must be observe:NAME, transform:NAME or guard:NAME, found "watch:x"',
        ),
        (
            checks.check_permission,
            "guard: ",
            'must be observe:NAME, transform:NAME or guard:NAME, found "guard: "',
        ),
        (
            checks.check_permission,
            "transform:*",
            '"transform:*": transform has no wildcard, name each structure',
        ),
        (checks.check_path, "a/b", 'must begin with "/" or "~/", found "a/b"'),
        (checks.check_path, "~other/b", 'must begin with "/" or "~/", found "~other/b"'),
        (checks.check_bwrap, "bwrap", 'must be an absolute path, found "bwrap"'),
        (checks.check_state_directory, "~", f'"{HOME}" is or contains the home directory'),
        (checks.check_state_directory, "/", '"/" is or contains the home directory'),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(check: Checker, value: object, reason: str) -> None:
    assert fault(check, value).reason == reason


@pytest.mark.parametrize(
    ("check", "value", "inside"),
    [
        (tables, [{}, 1], "[1]"),
        (strings, ["a", 1], "[1]"),
        (checks.check_environment, {"A": "", "B": 1}, ".B"),
        (checks.check_environment, {"A-B": ""}, ""),
        (checks.check_string, 1, ""),
    ],
)
def test_a_fault_inside_of_a_value_says_where(check: Checker, value: object, inside: str) -> None:
    assert fault(check, value).inside == inside


@pytest.mark.parametrize(
    ("check", "allowed", "value", "found"),
    [
        (check, allowed, value, found)
        for check, allowed, least in (
            (checks.check_lifecycle_seconds, "above 0 and at most 9", 0),
            (checks.check_timeout_seconds, "from 2 to 9", 1.5),
        )
        for value, found in (
            (least, str(least)),
            (9.5, "9.5"),
            (-1, "-1"),
            (float("nan"), "nan"),
            (float("inf"), "inf"),
            (True, "true"),
            ("5", '"5"'),
            ({}, "a table"),
        )
    ],
)
def test_a_deadline_lies_within_its_limits(check: Checker, allowed: str, value: object, found: str) -> None:
    limits = Limits(
        extension=ExtensionLimits(max_lifecycle_seconds=9),
        mcp=McpLimits(min_timeout_seconds=2, max_timeout_seconds=9),
    )
    place = Place(HOME, HOME, limits)
    assert fault(check, value, place).reason == f"must be a number of seconds {allowed}, found {found}"


def test_what_is_quoted_of_a_value_has_its_limit() -> None:
    place = Place(HOME, HOME, Limits(file=FileLimits(max_quoted_chars=3)))
    assert fault(checks.check_bool, "abcd", place).reason == 'must be true or false, found "abc..."'
    assert fault(checks.check_bool, "abc", place).reason == 'must be true or false, found "abc"'


def test_a_number_too_long_for_a_line_is_not_written_out() -> None:
    assert fault(checks.check_bool, 16**10000).reason.endswith("found a number beyond 64 bits")


@pytest.mark.parametrize(
    ("check", "path", "words"),
    [
        (shown, "/", "contains the home directory"),
        (shown, "~/.ssh", "which may hold secrets"),
        (shown, "~/vault/x", "which is private"),
        (written, "~/vault", "which is private"),
        (written, "~/.profile", "which runs when you log in or work"),
    ],
)
def test_t2_t11_what_a_child_never_sees_or_writes_is_refused(check: Checker, path: str, words: str) -> None:
    reason = fault(check, path).reason
    assert reason.startswith(f'"{path.replace("~", str(HOME))}" ') and words in reason


def test_a_program_with_blanks_in_its_path_is_no_command_line(tmp_path: Path) -> None:
    (tmp_path / "sh").touch()
    (tmp_path / "sh -c").touch()
    assert checks.check_command(f"{tmp_path}/sh -c", PLACE) == f"{tmp_path}/sh -c"
    at_home = Place(tmp_path, tmp_path, DEFAULT)
    assert checks.check_command("~/sh -c", at_home) == f"{tmp_path}/sh -c"
    assert fault(checks.check_command, "~/sh -x", at_home).reason.endswith("the words after it go to args")


@pytest.mark.parametrize(
    ("check", "value", "found"),
    [
        (tables, [1, {}, []], [("[0]", "a table, found 1"), ("[2]", "a table, found a list")]),
        (strings, [1, "a", ""], [("[0]", "a string, found 1"), ("[2]", "not be empty")]),
        (
            checks.check_environment,
            {"HOME": "", "A": 1, "B": "", "9": 2},
            [("", '"HOME" is set'), (".A", "found 1"), ("", '"9" is no name'), (".9", "found 2")],
        ),
    ],
)
def test_every_fault_in_a_value_is_found(check: Checker, value: object, found: list[tuple[str, str]]) -> None:
    first = fault(check, value)
    faults = (first, *first.more)
    assert [one.inside for one in faults] == [inside for inside, _ in found]
    assert [words for (_, words), one in zip(found, faults) if words not in one.reason] == []


def test_an_environment_cannot_be_changed() -> None:
    environment = checks.check_environment({"A": "1"}, PLACE)
    with pytest.raises(TypeError):
        environment["A"] = "2"  # type: ignore[index]


@pytest.mark.parametrize("value", ["", "a" * 33, "a b", "a\n", "é", 7, None])
def test_what_cannot_name_an_entry_is_told(value: object) -> None:
    assert is_entry_name("a-1") and not is_entry_name(value)


@pytest.mark.parametrize("value", ["", "1A", "A-B", "A\n", "Ä", 7, None])
def test_what_cannot_name_a_variable_is_told(value: object) -> None:
    assert is_variable_name("_A1") and not is_variable_name(value)


def test_a_directory_that_holds_the_home_is_told_through_links(tmp_path: Path) -> None:
    home = tmp_path / "homes" / "user"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to("homes")
    assert holds_home(home, home) and holds_home(tmp_path / "link", home)
    assert not holds_home(home / "below", home)
