"""What in a workspace is protected, and what must not have appeared after a run.

A workspace is written by repositories and models, so nothing read from it names a bind source,
except the git directory of a worktree or submodule, and that only when it is ours and names this
workspace itself (security.md T1, T3). Reads go through the contained read; nothing here follows a
link.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Mapping

from ..errors import ContainmentError, Denied
from ..limits import FileLimits
from .files import read_contained, read_contained_text, read_regular, remove_tree
from .machine import Machine

__all__ = [
    "AppearedFile",
    "GitPlace",
    "Protection",
    "WorkspaceView",
    "git_identity",
    "look_at_workspace",
    "planted_git_files",
    "remove_planted_git_files",
]

# security.md T3, T29: what the host, or an agent on it, would execute or obey.
PROTECTED_NAMES = (".git", ".latch", ".agents", ".claude", "AGENTS.md", "CLAUDE.md")
_GIT_PROTECTED = ("config", "config.worktree", "hooks")
_GIT_INFO_PROTECTED = ("attributes", "exclude", "sparse-checkout")
_GIT_PLANTED = ("commondir", "gitdir", "config.worktree")


@dataclass(frozen=True)
class GitPlace:
    """The git directory of a workspace. ``outside`` is True for a worktree's or submodule's, which lies
    elsewhere and is bound beside the workspace."""

    directory: Path
    outside: bool


@dataclass(frozen=True)
class Protection:
    """One bind on top of the workspace's: read-only, or writable where only what lies in it is closed."""

    path: Path
    writable: bool
    reason: str


@dataclass(frozen=True)
class WorkspaceView:
    """What lies on top of a workspace's own bind, parents first, and where its git directory is.

    ``required`` are directories that must exist before the start, so that they can be closed.
    """

    protections: tuple[Protection, ...] = ()
    git: GitPlace | None = None
    required: tuple[Path, ...] = ()


@dataclass(frozen=True)
class AppearedFile:
    """A file, link or directory that a run planted or changed where git would obey it, and whether it could
    be removed."""

    path: Path
    removed: bool = True


def look_at_workspace(
    workspace: Path,
    *,
    uid: int,
    writable: bool = False,
    git_metadata: bool = False,
    limits: FileLimits = FileLimits(),
) -> WorkspaceView:
    """Return what of *workspace* (a real path) is to be protected in a plan.

    *writable* is whether the plan lets the workspace be written, *git_metadata* the approved grant of
    security.md T3. Raises :class:`Denied` when a protected name is a symbolic link (T1, T3), or when not
    all that the grant must keep closed can be found.
    """
    git = _find_git(workspace, uid, limits)
    open_git = writable and git_metadata and git is not None
    protections = []
    for name in PROTECTED_NAMES:
        path = workspace / name
        _refuse_link(path, rule="T1")
        if writable and path.exists():
            keeps_open = open_git and name == ".git" and path.is_dir()
            protections.append(Protection(path, keeps_open, "protected name"))
    if git is not None and git.outside:
        protections.append(Protection(git.directory, open_git, "the git directory of this worktree"))
    required: tuple[Path, ...] = ()
    if open_git:
        assert git is not None
        closed, required = _git_protections(git.directory, limits)
        protections += closed
    return WorkspaceView(protections=tuple(protections), git=git, required=required)


def remove_planted_git_files(
    view: WorkspaceView, workspace: Path, before: Mapping[Path, bytes], limits: FileLimits = FileLimits()
) -> list[AppearedFile]:
    """Remove what redirects git and was not so in *before* (of :func:`planted_git_files`), and return it,
    with what of it could not be removed."""
    appeared = []
    for path, content in sorted(planted_git_files(view, workspace, limits).items()):
        if before.get(path) == content:
            continue
        try:
            remove_tree(path)
        except OSError:
            appeared.append(AppearedFile(path, removed=False))
        else:
            appeared.append(AppearedFile(path))
    return appeared


def planted_git_files(
    view: WorkspaceView, workspace: Path, limits: FileLimits = FileLimits()
) -> Mapping[Path, bytes]:
    """Return what would redirect git, files, links and directories, with what identifies their content.

    They lie directly in its directory, or in an entry of a worktree that is not inside *workspace*.
    """
    if view.git is None:
        return MappingProxyType({})
    directory = view.git.directory
    places = [directory]
    places += [
        entry
        for entry in _subdirectories(directory / "worktrees")
        if not _is_inside(entry, workspace, limits)
    ]
    paths = [place / name for place in places for name in _GIT_PLANTED]
    return MappingProxyType({path: _content_of(path, limits) for path in paths if os.path.lexists(path)})


def git_identity(machine: Machine, workspace: Path, limits: FileLimits = FileLimits()) -> Mapping[str, str]:
    """Return ``GIT_AUTHOR_*`` and ``GIT_COMMITTER_*`` from the operator's own git configuration.

    A value that the repository sets itself is left to it. Included files are not followed.
    """
    known: dict[str, str] = {}
    settings = Path(machine.environment.get("XDG_CONFIG_HOME") or machine.home / ".config")
    for file in (Path("/etc/gitconfig"), settings / "git/config", machine.home / ".gitconfig"):
        try:
            text = os.fsdecode(read_regular(file, max_bytes=limits.max_workspace_file_bytes))
        except ContainmentError:
            continue
        known.update(_parse_user(text))
    git = _find_git(workspace, machine.uid, limits)
    own = {} if git is None else _parse_user(_read_text(git.directory, "config", limits) or "")
    return MappingProxyType(
        {
            f"GIT_{who}_{key.upper()}": value
            for who in ("AUTHOR", "COMMITTER")
            for key, value in known.items()
            if key not in own
        }
    )


def _parse_user(text: str) -> dict[str, str]:
    """Return ``name`` and ``email`` of the section ``[user]``, as git-config(1) writes them."""
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().lower()
            continue
        key, equals, value = line.partition("=")
        if section == "user" and equals and key.strip().lower() in ("name", "email"):
            found[key.strip().lower()] = _parse_value(value.strip())
    return {key: value for key, value in found.items() if value and "\0" not in value}


def _parse_value(text: str) -> str:
    value, quoted, escaped = "", False, False
    for char in text:
        if escaped:
            value, escaped = value + char, False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            value += char
    return value.strip()


def _refuse_link(path: Path, *, rule: str) -> None:
    if path.is_symlink():
        raise Denied(
            f'"{path}" is a symbolic link, and what it points to would be protected instead of it',
            rule=rule,
            hint="replace the link by the file or directory itself",
        )


def _find_git(workspace: Path, uid: int, limits: FileLimits) -> GitPlace | None:
    path = workspace / ".git"
    if path.is_dir():
        return GitPlace(path, outside=False)
    pointed = _read_pointer(workspace, ".git", "gitdir:", limits)
    if pointed is None:
        return None
    directory = Path(os.path.realpath(workspace / pointed))
    common = _read_pointer(directory, "commondir", "", limits)
    shared = directory if common is None else Path(os.path.realpath(directory / common))
    # NOTE: the shared directory must own the entry, or an entry of the workspace's could name any directory.
    if common is not None and directory.parent != shared / "worktrees":
        return None
    if not _is_ours(directory, uid) or not _is_ours(shared, uid):
        return None
    if not (_named_path(directory, limits) == path or _core_worktree(directory, limits) == workspace):
        return None
    return GitPlace(shared, outside=True)


def _named_path(directory: Path, limits: FileLimits) -> Path | None:
    named = _read_pointer(directory, "gitdir", "", limits)
    return None if named is None else Path(os.path.normpath(directory / named))


def _is_inside(directory: Path, workspace: Path, limits: FileLimits) -> bool:
    """Say whether *directory* is the entry of a worktree below *workspace*; the workspace's own is not."""
    named = _named_path(directory, limits)
    return named is not None and workspace in named.parents and named != workspace / ".git"


def _core_worktree(directory: Path, limits: FileLimits) -> Path | None:
    for line in (_read_text(directory, "config", limits) or "").splitlines():
        key, _, value = line.strip().partition("=")
        if key.strip().lower() == "worktree" and value.strip():
            return Path(os.path.realpath(directory / value.strip()))
    return None


def _git_protections(directory: Path, limits: FileLimits) -> tuple[list[Protection], tuple[Path, ...]]:
    """Return what is closed below an opened git *directory*, and which directories that needs.

    What holds something closed is a mount point of its own, so that it cannot be renamed away.
    """
    hooks, information = directory / "hooks", directory / "info"
    kept = [information]
    closed = [directory / name for name in _GIT_PROTECTED]
    closed += [information / name for name in _GIT_INFO_PROTECTED]
    kept += _tree(directory / "modules", limits.max_module_depth)
    closed += [module / name for module in kept[1:] for name in ("config", "hooks") if _is_module(module)]
    entries = _subdirectories(directory / "worktrees")
    kept += [directory / "worktrees", *entries] if entries else []
    closed += [entry / name for entry in entries for name in _GIT_PLANTED]
    for path in (directory / "modules", directory / "worktrees", *kept, *closed):
        _refuse_link(path, rule="T3")
    required = [path for path in closed if path.name == "hooks"]
    found = [Protection(path, True, "holds what git obeys") for path in kept]
    found += [
        Protection(path, False, "executed or obeyed by git")
        for path in closed
        if path in required or path.exists()
    ]
    assert hooks in required
    return found, (information, *required)


def _tree(directory: Path, depth: int) -> list[Path]:
    """Return *directory* of submodules' git directories and what lies in it, parents first.

    A submodule's name may hold slashes, and a submodule submodules of its own. Below *depth* levels the
    grant is refused, because what is not found there would not be closed.
    """
    if not directory.is_dir() or directory.is_symlink():
        return []
    if depth == 0:
        raise Denied(
            f'"{directory}" is nested too deeply to close all that git would execute',
            rule="T3",
            hint="remove it, or run the command without the grant",
        )
    found = [directory]
    for entry in _subdirectories(directory):
        inner = _tree(entry / "modules", depth - 1) if _is_module(entry) else _tree(entry, depth - 1)[1:]
        found += [entry, *inner]
    return found


def _is_module(directory: Path) -> bool:
    # NOTE: HEAD alone may be taken away in one run, to have the rest unprotected in the next.
    return any(os.path.lexists(directory / name) for name in ("HEAD", "config"))


def _subdirectories(directory: Path) -> list[Path]:
    # NOTE: a link would lead to another repository's.
    if directory.is_symlink():
        return []
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
    return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _content_of(path: Path, limits: FileLimits) -> bytes:
    """Return what tells whether *path* is still what it was."""
    try:
        if path.is_symlink():
            return b"link " + os.fsencode(os.readlink(path))
        return b"file " + read_contained(path.parent, path.name, max_bytes=limits.max_workspace_file_bytes)
    except ContainmentError:
        status = os.lstat(path)
        return f"other {status.st_ino} {status.st_ctime_ns}".encode()


def _is_ours(directory: Path, uid: int) -> bool:
    try:
        return directory.is_dir() and os.stat(directory).st_uid == uid
    except OSError:
        return False


def _read_pointer(directory: Path, name: str, prefix: str, limits: FileLimits) -> str | None:
    text = _read_text(directory, name, limits)
    if text is None or not text.startswith(prefix):
        return None
    return text[len(prefix) :].strip() or None


def _read_text(directory: Path, name: str, limits: FileLimits) -> str | None:
    try:
        return read_contained_text(directory, name, max_bytes=limits.max_workspace_file_bytes)
    except (ContainmentError, OSError):
        return None
