"""A configuration file that cannot be read says which, where and why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from latch.config.tomlfile import load_toml, parse_toml
from latch.errors import ConfigError, MissingDependency, UnsafeModes
from latch.limits import FileLimits

US = (os.getuid(),)


def test_values_are_plain() -> None:
    assert parse_toml(b'a = 1\n[b]\nc = ["x"]\n', file="f") == {"a": 1, "b": {"c": ["x"]}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a = 1\nb =\n", "is not TOML: invalid value (at line 2, column 4)"),
        (b"a = 1\na = 2\n", "is not TOML: cannot overwrite a value (at line 2, column 6)"),
        (b"a = 2020-99-99\n", "is not TOML: "),
        (b"a = 'x'\nb = '\xff'\n", "is not UTF-8 (at line 2)"),
        (b"a = " + b"[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_file_that_is_not_toml_names_file_and_line(data: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(data, file="/etc/config.toml")
    (problem,) = caught.value.problems
    assert problem.file == "/etc/config.toml"
    assert problem.reason.startswith(reason)


@pytest.mark.parametrize("missing", ["tomllib", "tomli"])
def test_either_parser_will_do(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "tomli" and sys.version_info < (3, 11):
        pytest.skip("this Python has no parser of its own")
    monkeypatch.setitem(sys.modules, missing, None)
    assert parse_toml(b"a = 1", file="f") == {"a": 1}


def test_without_a_parser_the_package_and_the_file_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", None)
    with pytest.raises(MissingDependency) as caught:
        parse_toml(b"a = 1", file="/etc/config.toml")
    assert caught.value.package == "tomli"
    assert caught.value.needed_for == 'reading "/etc/config.toml" on Python below 3.11'


def test_a_file_is_loaded_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_bytes(b"a = 1")
    (tmp_path / "real.toml").chmod(0o644)
    (tmp_path / "config.toml").symlink_to("real.toml")
    assert load_toml(tmp_path / "config.toml", trusted_uids=US) == {"a": 1}


def test_an_absent_file_is_none(tmp_path: Path) -> None:
    assert load_toml(tmp_path / "config.toml", trusted_uids=US) is None


def test_a_file_that_others_may_write_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "a: b.toml"
    path.write_bytes(b"a = 1")
    path.chmod(0o664)
    with pytest.raises(UnsafeModes) as caught:
        load_toml(path, trusted_uids=US)
    assert str(caught.value) == f"{path}: has mode 0664, must be writable by its owner alone"
    assert caught.value.hint == f"chmod go-w {path}"


def test_a_file_of_a_stranger_or_one_that_is_none_is_no_matter_of_modes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"")
    path.chmod(0o666)
    for place, uids, reason in (
        (path, (os.getuid() + 1,), "belongs to uid"),
        (tmp_path, US, "is a directory"),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            load_toml(place, trusted_uids=uids)
        assert not isinstance(caught.value, UnsafeModes)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"#" * 11)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is larger than 10 bytes"):
        load_toml(path, trusted_uids=US, limits=FileLimits(max_config_bytes=10))
