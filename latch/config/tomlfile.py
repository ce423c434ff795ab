"""TOML files of the operator to plain values. The only importer of a TOML parser.

Python has one from 3.11 on; below that the package tomli is used where it is installed. Every fault
of a file is a :class:`ConfigError` that names it, and the line where the parser knows it.

Not here: what the keys mean.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from ..errors import ConfigError, ConfigProblem, ContainmentError, MissingDependency, UnsafeModes
from ..limits import FileLimits
from ..system.files import find_regular

__all__ = ["load_toml", "parse_toml"]


def load_toml(
    path: Path, *, trusted_uids: tuple[int, ...], limits: FileLimits = FileLimits()
) -> dict[str, object] | None:
    """Return the values of the file *path*, or None where there is none.

    The file must belong to one of *trusted_uids* and be writable by its owner alone; where its mode is the
    fault, the error is :class:`UnsafeModes`.
    """
    try:
        data = find_regular(path, max_bytes=limits.max_config_bytes, trusted_uids=trusted_uids)
    except ContainmentError as error:
        reason = error.reason.removeprefix(f'"{error.path}": ')
        # NOTE: of all that is refused there, only a mode has a cure.
        kind = ConfigError if error.hint is None else UnsafeModes
        raise kind([ConfigProblem(str(path), reason)], hint=error.hint) from error
    return None if data is None else parse_toml(data, file=str(path))


def parse_toml(data: bytes, *, file: str) -> dict[str, object]:
    """Return the values of TOML *data*; *file* is its name in errors."""
    parser = _parser(file)
    try:
        return dict(parser.loads(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 (at line {line})"
    except RecursionError:
        reason = "is nested too deeply"
    except ValueError as error:
        # NOTE: the parser's own error is one; so are numbers and dates that Python cannot hold.
        text = str(error)
        reason = f"is not TOML: {text[:1].lower()}{text[1:]}"
    raise ConfigError([ConfigProblem(file, reason)])


def _parser(file: str) -> ModuleType:
    try:
        import tomllib
    except ModuleNotFoundError:
        pass
    else:
        return tomllib
    try:
        import tomli
    except ModuleNotFoundError as error:
        raise MissingDependency("tomli", needed_for=f'reading "{file}" on Python below 3.11') from error
    return tomli
