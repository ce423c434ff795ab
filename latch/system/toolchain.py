"""What a program needs of the host to run behind an empty home, and what may be shown at all.

Decisions over look-ups: links are followed hop by hop, ``#!`` lines and ``pyvenv.cfg`` are read,
nothing is run and nothing is written. Each file found outside the visible trees is widened to a
*toolchain root*: the directory that holds a whole interpreter or environment and no credentials.
:data:`TOOLCHAIN_ROWS` is that knowledge as a table; the rules behind it serve what it does not list.

Trust (security.md T2): a chain is trusted while it consists of the operator's own words and files.
Once it passed through a workspace file it yields rows of the table only. For commands, whose words
are a model's, the whole answer comes from the operator's ``PATH`` and rows of the table.

Not here: the order of mounts (``plan.py``), and whether a root may be shown: every root, and every
path an operator names, is to be handed to :func:`~.bindsources.check_bind_source`.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from ..errors import CommandUnusable, ContainmentError
from ..limits import FileLimits
from .files import read_contained_head, read_contained_text, read_head, read_regular
from .paths import both_names, lies_in, lies_in_any, passes_through, real_path

__all__ = [
    "SYSTEM_TREES",
    "TOOLCHAIN_ROWS",
    "Toolchain",
    "find_toolchain",
    "resolve_command",
    "toolchain_from_path",
]

# Toolchain roots. Relative ones lie in the home; behind "/*" the root is the entry, not the directory.
TOOLCHAIN_ROWS = tuple("""
    .nvm/versions/node/* .nvm/versions/io.js/* .fnm .local/share/fnm .volta .nodenv .bun .deno
    .local/share/pnpm .npm-global .pyenv .local/share/uv/python/* .local/share/uv/tools/* .local/pipx/venvs/*
    .local/share/pipx/venvs/* miniconda3 anaconda3 miniforge3 mambaforge micromamba .local/share/mamba
    .conda/envs/* .cargo/bin .rustup .asdf .local/share/mise .sdkman/candidates .rbenv .goenv go .juliaup
    .ghcup .elan .dotnet
    /opt/* /nix/store /gnu/store /home/linuxbrew/.linuxbrew
    """.split())

# What a row is useless without, itself relative to the home.
_COMPANIONS = {".cargo/bin": (".rustup",), ".asdf": (".tool-versions",)}

# The trees every sandbox shows; callers that know the layout of the system pass their own.
SYSTEM_TREES = tuple(Path("/", name) for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"))

# Directories that gather things of every kind: one file of theirs is shown, never the whole.
_BROAD_IN_HOME = (".local", ".local/bin", ".local/share", ".local/state", ".local/lib", ".config", ".cache")
_BROAD = ("/var/tmp", "/var/lib", "/var/cache", "/dev/shm", "/run/user")

_ENV_PROGRAMS = ("/usr/bin/env", "/bin/env")
_PYTHON = re.compile(r"python(3\.[0-9]+)")


@dataclass(frozen=True)
class Toolchain:
    """What must be visible for a program, or for commands in general (``program`` is None then).

    ``roots`` are real paths to bind read-only at the same path, parents of none of each other.
    ``links`` are (target, path) pairs to recreate as symbolic links, in none of the roots; those on
    the way to the home itself are left to the plan. ``path_entries`` is ``PATH`` inside. ``hops`` are
    the links and files passed on the way to what is run at last, in order.
    """

    program: Path | None = None
    roots: tuple[Path, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    path_entries: tuple[Path, ...] = ()
    hops: tuple[Path, ...] = ()


def resolve_command(command: str, *, search_path: str, outside: Path | None) -> Path:
    """Return the absolute path of *command* as found, links not followed.

    A plain name is looked up in *search_path*, less its empty, relative and *outside* entries
    (*outside* is the workspace: code of a repository never gets a peer's secrets, security.md T6); an
    absolute path is taken as it is. Raises :class:`CommandUnusable`: 127 not found, 126 not executable.
    """
    if not command or "\0" in command:
        raise CommandUnusable("the command is empty or contains a NUL character", status=127)
    if command.startswith("/"):
        return _check_program(Path(command), outside)
    if "/" in command:
        raise CommandUnusable(
            f'"{command}" is a relative path',
            status=127,
            hint="name the program alone, to be found in PATH, or by its absolute path",
        )
    unusable: CommandUnusable | None = None
    for entry in _absolute_entries(search_path):
        candidate = Path(entry, command)
        if not os.path.lexists(candidate) or os.path.isdir(candidate):
            continue
        if outside is not None and passes_through(entry, both_names(outside)):
            unusable = _in_workspace(candidate)
            continue
        if os.path.isfile(candidate) and not os.access(candidate, os.X_OK):
            unusable = CommandUnusable(f'"{candidate}" is not an executable file', status=126)
            continue
        return _check_program(candidate, outside)
    if unusable is not None:
        raise unusable
    raise CommandUnusable(f'"{command}" was not found in PATH ({search_path})', status=127)


def find_toolchain(
    program: Path,
    *,
    args: tuple[str, ...] = (),
    home: Path,
    search_path: str,
    visible: tuple[Path, ...] = SYSTEM_TREES,
    workspace: Path,
    limits: FileLimits = FileLimits(),
) -> Toolchain:
    """Return what the operator's *program* needs besides the *visible* trees and the *workspace*.

    *args* are examined for absolute names of files; hand them in only where the operator wrote them.
    Raises :class:`CommandUnusable` when an interpreter on the way does not exist.
    """
    search = _Search(home=home, workspace=workspace, visible=visible, limits=limits)
    search.run(program, search_path)
    for argument in args:
        if argument.startswith("/") and os.path.isfile(argument):
            search.include(argument)
    return search.result(program, search_path, in_workspace=False)


def toolchain_from_path(
    search_path: str,
    *,
    home: Path,
    workspace: Path,
    visible: tuple[Path, ...] = SYSTEM_TREES,
    limits: FileLimits = FileLimits(),
) -> Toolchain:
    """Return the rows of the table that *search_path* and a venv of the workspace lie in.

    This is the toolchain of commands, whose words are not the operator's: none is looked at.
    """
    search = _Search(home=home, workspace=workspace, visible=visible, limits=limits)
    for entry in _absolute_entries(search_path):
        search.include_row(entry)
        if real_path(entry) == real_path(os.path.join(search.home, ".local/bin")):
            search.include_programs(entry)
        for name in ("python3", "python"):
            search.include_user_site(real_path(os.path.join(entry, name)))
    for name in (".venv", "venv", "env"):
        search.include_base(os.path.join(search.workspaces[0], name), trusted=False)
    return search.result(None, search_path, in_workspace=True)


class _Search:
    """One search: it gathers roots, links and hops, and answers what of the disk is visible."""

    def __init__(self, *, home: Path, workspace: Path, visible: tuple[Path, ...], limits: FileLimits) -> None:
        self.limits = limits
        self.home = real_path(home)
        self.homes = both_names(home)
        # NOTE: the real path first.
        self.workspaces = both_names(workspace)[::-1]
        self.visible = [place for tree in visible for place in both_names(tree)]
        self.roots: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.hops: list[str] = []
        self.searched: list[str] = []
        self.rows = list(_rows(self.home))

    def run(self, program: Path, search_path: str) -> None:
        """Follow *program*, its interpreter, and so on, and include each."""
        pending, seen = [(str(program), True)], set()
        while pending:
            path, trusted = pending.pop(0)
            if path in seen:
                continue
            seen.add(path)
            landing = self.follow(path, trusted=trusted)
            self.hops += [place for place in landing.stops if place not in self.hops]
            if not landing.exists:
                raise CommandUnusable(
                    f'"{program}" needs "{landing.place}", which does not exist or cannot be reached',
                    status=127,
                    hint="repair the installation of that program",
                )
            self.admit(landing)
            pending += [(needed, landing.trusted) for needed in self.interpreters(path, landing, search_path)]

    def interpreters(self, path: str, landing: _Landing, search_path: str) -> list[str]:
        """Return the programs that the ``#!`` line of *landing* names: the interpreter, and env's."""
        named = _parse_shebang(self.read_head(landing.place))
        if named is None:
            return []
        interpreter, through_env = named
        if through_env is None:
            return [interpreter]
        if "/" in through_env:
            return [interpreter, through_env] if through_env.startswith("/") else [interpreter]
        # Programs of one installation lie side by side, also where PATH does not name their directory.
        own = ":".join(os.path.dirname(place) for place in (path, landing.place))
        try:
            found = resolve_command(
                through_env, search_path=f"{search_path}:{own}", outside=Path(self.workspaces[0])
            )
        except CommandUnusable as error:
            raise CommandUnusable(
                f'"{landing.place}" runs through "env {through_env}": {error.reason}',
                status=error.status,
                hint=error.hint,
            ) from error
        self.searched.append(str(found.parent))
        return [interpreter, str(found)]

    def follow(self, path: str, *, trusted: bool) -> _Landing:
        """Walk absolute *path* as the kernel would, noting every link on the way."""
        place, followed = "/", 0
        links: list[tuple[str, str]] = []
        stops: list[str] = []
        pending = path.split("/")[::-1]
        while pending:
            part = pending.pop()
            if part == "..":
                place = os.path.dirname(place)
            if part in ("", ".", ".."):
                continue
            place = os.path.join(place, part)
            try:
                target = os.readlink(place)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    continue
                return _Landing(place, False, trusted, tuple(links), (*stops, place))
            followed += 1
            if followed > self.limits.max_links:
                return _Landing(place, False, trusted, tuple(links), (*stops, place))
            trusted = trusted and not self.in_workspace(place)
            if trusted or self.row_of(place) is not None:
                links.append((target, place))
            if not pending:
                stops.append(place)
            pending.extend(target.split("/")[::-1])
            place = "/" if target.startswith("/") else os.path.dirname(place)
        trusted = trusted and not self.in_workspace(place)
        return _Landing(place, True, trusted, tuple(links), (*stops, place))

    def admit(self, landing: _Landing) -> None:
        """Include the root of *landing* and of the venvs on the way to it, and its links."""
        self.add_root(landing.place, landing.trusted)
        self.links += landing.links
        self.include_user_site(landing.place)
        for stop in landing.stops:
            prefix = os.path.dirname(os.path.dirname(stop))
            if os.path.lexists(os.path.join(prefix, "pyvenv.cfg")):
                self.add_root(stop, landing.trusted, whole=True)
                self.include_base(prefix, trusted=landing.trusted)

    def include(self, path: str) -> None:
        """Include the operator's own file *path*."""
        landing = self.follow(path, trusted=True)
        if landing.exists:
            self.admit(landing)

    def include_row(self, path: str) -> bool:
        """Include the row of the table that *path* leads to, and the links on the way; say if visible."""
        landing = self.follow(path, trusted=True)
        if not landing.exists:
            return False
        self.add_root(landing.place, trusted=False)
        if not self.is_visible(landing.place):
            return False
        self.links += landing.links
        return True

    def include_programs(self, directory: str) -> None:
        """Include the programs of the operator's *directory* one by one, each with its row."""
        for name in sorted(_names(directory)):
            path = os.path.join(directory, name)
            real = real_path(path)
            if not os.path.isfile(real) or not os.access(real, os.X_OK):
                continue
            if os.path.islink(path):
                self.include_row(path)
            else:
                self.roots.append(real)
            named = _parse_shebang(self.read_head(real))
            if named is not None:
                self.include_row(named[0])
                self.include_bases_of(named[0])

    def include_bases_of(self, interpreter: str) -> None:
        """Include the base of the venv that *interpreter* belongs to, where there is one."""
        for stop in self.follow(interpreter, trusted=True).stops:
            self.include_base(os.path.dirname(os.path.dirname(stop)), trusted=False)

    def include_base(self, prefix: str, *, trusted: bool) -> None:
        """Include the interpreter that the venv *prefix* was made from."""
        base = _parse_pyvenv(self.read_text(os.path.join(prefix, "pyvenv.cfg")))
        if base is None:
            return
        landing = self.follow(base, trusted=trusted)
        if os.path.isdir(landing.place):
            # NOTE: judged as a program in it would be, so that the whole prefix is found.
            self.add_root(os.path.join(landing.place, "python3"), landing.trusted, whole=True)
            self.links += landing.links

    def include_user_site(self, place: str) -> None:
        """Include what ``pip install --user`` put where the system's Python at *place* looks."""
        version = _PYTHON.fullmatch(os.path.basename(place))
        if version and lies_in_any(place, self.visible):
            packages = os.path.join(self.home, ".local/lib", version.group(0), "site-packages")
            if real_path(packages) == packages and os.path.isdir(packages):
                self.roots.append(packages)

    def add_root(self, place: str, trusted: bool, *, whole: bool = False) -> None:
        """Widen *place*, a real path, to its root; *whole*: leave it out when that is the file alone."""
        if self.is_visible(place):
            return
        row = self.row_of(place)
        if row is not None:
            self.roots.append(row[0])
            for companion in row[1]:
                landing = self.follow(companion, trusted=True)
                if landing.exists:
                    self.roots.append(landing.place)
                    self.links += landing.links
        elif trusted:
            root = self.widen(place)
            if root != place or not whole:
                self.roots.append(root)

    def widen(self, place: str) -> str:
        """Return the root of a file that the table does not know: its prefix, its directory, or itself."""
        directory, below = os.path.dirname(place), ""
        while not self.is_broad(directory):
            if _is_prefix(directory, below):
                return directory
            directory, below = os.path.dirname(directory), os.path.basename(directory)
        directory = os.path.dirname(place)
        return place if self.is_broad(directory) else directory

    def row_of(self, place: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the root of the row that *place* lies in, and its companions, or None."""
        for base, entry, companions in self.rows:
            if not lies_in(place, base) or (entry and place == base):
                continue
            root = os.path.join(base, place[len(base) :].split("/")[1]) if entry else base
            if any(lies_in(other, root) for other in (self.home, *(self.workspaces if entry else ()))):
                continue
            return root, companions
        return None

    def is_broad(self, directory: str) -> bool:
        """Say whether *directory* holds so much that only single files of it are shown."""
        if os.path.dirname(directory) == "/" or directory in _BROAD:
            return True
        if any(directory == os.path.join(home, name) for home in self.homes for name in _BROAD_IN_HOME):
            return True
        return any(lies_in(place, directory) for place in (*self.homes, *self.workspaces))

    def is_visible(self, place: str) -> bool:
        """Say whether the real path *place* is shown by a tree, the workspace or a root found so far."""
        return lies_in_any(place, [*self.visible, *self.workspaces, *self.roots])

    def in_workspace(self, place: str) -> bool:
        """Say whether *place* is the repository's."""
        return lies_in_any(place, self.workspaces)

    def read_text(self, path: str) -> str | None:
        """Return a small text file, contained where it is the workspace's (security.md T7); else None."""
        limit = self.limits.max_workspace_file_bytes
        try:
            if self.in_workspace(path):
                root, relative = self.contained(path)
                return read_contained_text(root, relative, max_bytes=limit)
            return os.fsdecode(read_regular(Path(path), max_bytes=limit))
        except ContainmentError:
            return None

    def read_head(self, path: str) -> bytes:
        """Return the first bytes of a program, contained where it is the workspace's; else nothing."""
        most = self.limits.max_shebang_bytes
        try:
            if self.in_workspace(path):
                root, relative = self.contained(path)
                return read_contained_head(root, relative, max_bytes=most)
            return read_head(Path(path), max_bytes=most)
        except ContainmentError:
            return b""

    def contained(self, path: str) -> tuple[Path, str]:
        """Return the workspace and the name of *path* in it."""
        root = next(root for root in self.workspaces if lies_in(path, root))
        return Path(root), os.path.relpath(path, root)

    def result(self, program: Path | None, search_path: str, *, in_workspace: bool) -> Toolchain:
        """Return what was gathered, each thing once; *in_workspace* keeps the repository's PATH entries."""
        shown = [*self.visible, *self.workspaces]
        self.roots = _outermost([root for root in self.roots if not lies_in_any(root, shown)])
        entries = list(self.entries(search_path, in_workspace))
        # NOTE: the plan recreates the links on the way to the home itself.
        links = [
            (target, place)
            for target, place in dict.fromkeys(self.links)
            if not self.is_visible(place) and not any(lies_in(home, place) for home in self.homes)
        ]
        return Toolchain(
            program=program,
            roots=tuple(map(Path, self.roots)),
            links=tuple(links),
            path_entries=tuple(map(Path, entries)),
            hops=tuple(map(Path, self.hops)),
        )

    def entries(self, search_path: str, in_workspace: bool) -> Iterator[str]:
        """Yield the entries of PATH that exist inside, in order, then where programs were found besides."""
        known = _absolute_entries(search_path)
        for entry in known:
            landing = self.follow(entry, trusted=True)
            if self.in_workspace(entry) or self.in_workspace(landing.place):
                if in_workspace and os.path.isdir(entry):
                    yield entry
            elif os.path.isdir(landing.place) and self.shows(landing.place):
                self.links += landing.links
                yield entry
        yield from dict.fromkeys(entry for entry in self.searched if entry not in known)

    def shows(self, directory: str) -> bool:
        """Say whether *directory* is shown, or single files or links of it are."""
        single = [*self.roots, *(place for _, place in self.links)]
        return self.is_visible(directory) or any(os.path.dirname(place) == directory for place in single)


@dataclass(frozen=True)
class _Landing:
    """Where a path leads: the real place, or the first one that is missing.

    ``links`` are those on the way, ``stops`` the links and the file that the last component named.
    """

    place: str
    exists: bool
    trusted: bool
    links: tuple[tuple[str, str], ...]
    stops: tuple[str, ...]


def _rows(home: str) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """Yield (real directory, whether the root is an entry of it, companions) for each row."""
    for row in TOOLCHAIN_ROWS:
        entry = row.endswith("/*")
        name = row[:-2] if entry else row
        companions = tuple(os.path.join(home, other) for other in _COMPANIONS.get(row, ()))
        yield real_path(os.path.join(home, name)), entry, companions


def _is_prefix(directory: str, below: str) -> bool:
    """Say whether *directory*, which holds our file below its entry *below*, is one installation."""
    if os.path.isfile(os.path.join(directory, "pyvenv.cfg")):
        return True
    if os.path.isdir(os.path.join(directory, "conda-meta")):
        return True
    if below not in ("bin", "lib"):
        return False
    library = os.path.join(directory, "lib")
    names = _names(library)
    return "node_modules" in names or any(map(_PYTHON.fullmatch, names))


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _parse_shebang(head: bytes) -> tuple[str, str | None] | None:
    """Return (absolute interpreter, program named after env or None) of a ``#!`` line, or None."""
    line = head.split(b"\n", 1)[0]
    if not line.startswith(b"#!") or b"\0" in line:
        return None
    interpreter, *rest = os.fsdecode(line[2:]).strip(" \t\r").split(None, 1) or [""]
    if not interpreter.startswith("/"):
        return None
    if interpreter not in _ENV_PROGRAMS or not rest:
        return interpreter, None
    words = rest[0].split()
    if words[0].startswith("--split-string="):
        words[0] = words[0].split("=", 1)[1]
    elif words[0].startswith("-S") and words[0] != "-S":
        words[0] = words[0][2:]
    return interpreter, next((word for word in words if not word.startswith("-") and "=" not in word), None)


def _parse_pyvenv(text: str | None) -> str | None:
    """Return the absolute ``home`` of a ``pyvenv.cfg``, or None."""
    for line in (text or "").splitlines():
        key, found, value = line.partition("=")
        if found and key.strip().lower() == "home":
            home = value.strip()
            return home if home.startswith("/") and "\0" not in home else None
    return None


def _check_program(path: Path, outside: Path | None) -> Path:
    if outside is not None and passes_through(path, both_names(outside)):
        raise _in_workspace(path)
    if not os.path.exists(path):
        reason = "is a link to nothing" if os.path.lexists(path) else "does not exist"
        raise CommandUnusable(f'"{path}" {reason}', status=127)
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise CommandUnusable(f'"{path}" is not an executable file', status=126)
    return path


def _in_workspace(path: Path) -> CommandUnusable:
    return CommandUnusable(
        f'"{path}" lies in the workspace: code of a repository would run with the secrets of this peer',
        status=126,
        hint="name a program outside the workspace",
    )


def _absolute_entries(search_path: str) -> list[str]:
    return list(dict.fromkeys(entry for entry in search_path.split(":") if entry.startswith("/")))


def _outermost(paths: list[str]) -> list[str]:
    """Return *paths* without those that lie in another, each once, in order."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not any(path != other and lies_in(path, other) for other in unique)]
