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

from ..errors import ContainmentError, Denied
from ..limits import FileLimits
from .files import read_contained_text

__all__ = [
    "AppearedFile",
    "GitPlace",
    "Protection",
    "WorkspaceView",
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
    """What lies on top of a workspace's own bind, parents first, and where its git directory is."""

    protections: tuple[Protection, ...] = ()
    git: GitPlace | None = None


@dataclass(frozen=True)
class AppearedFile:
    """A file that a run planted where git would obey it; it was removed."""

    path: Path


def look_at_workspace(
    workspace: Path, *, uid: int, writable: bool = False, git_metadata: bool = False
) -> WorkspaceView:
    """Return what of *workspace* (a real path) is to be protected in a plan.

    *writable* is whether the plan lets the workspace be written, *git_metadata* the approved grant of
    security.md T3. Raises :class:`Denied` when a protected name is a symbolic link (T1).
    """
    git = _find_git(workspace, uid)
    open_git = writable and git_metadata and git is not None
    protections = []
    for name in PROTECTED_NAMES:
        path = workspace / name
        if path.is_symlink():
            raise Denied(
                f'"{path}" is a symbolic link, and what it points to would be protected instead of it',
                rule="T1",
                hint="replace the link by the file or directory itself",
            )
        if writable and path.exists():
            keeps_open = open_git and name == ".git" and path.is_dir()
            protections.append(Protection(path, keeps_open, "protected name"))
    if git is not None and git.outside:
        protections.append(Protection(git.directory, open_git, "the git directory of this worktree"))
    if open_git:
        assert git is not None
        protections += _git_protections(git.directory)
    return WorkspaceView(protections=tuple(protections), git=git)


def remove_planted_git_files(view: WorkspaceView, workspace: Path, before: frozenset[Path]) -> list[AppearedFile]:
    """Remove what redirects git and was not in *before* (of :func:`planted_git_files`), and return it."""
    appeared = []
    for path in sorted(planted_git_files(view, workspace) - before):
        try:
            os.unlink(path)
        except OSError:
            continue
        appeared.append(AppearedFile(path))
    return appeared


def planted_git_files(view: WorkspaceView, workspace: Path) -> frozenset[Path]:
    """Return the files that would redirect git: directly in its directory, or in a foreign worktree entry."""
    if view.git is None:
        return frozenset()
    directory = view.git.directory
    found = {directory / name for name in _GIT_PLANTED if os.path.lexists(directory / name)}
    for entry in _subdirectories(directory / "worktrees"):
        if not _names_path_below(entry, workspace):
            found |= {entry / name for name in _GIT_PLANTED if os.path.lexists(entry / name)}
    return frozenset(found)


def _find_git(workspace: Path, uid: int) -> GitPlace | None:
    path = workspace / ".git"
    if path.is_dir():
        return GitPlace(path, outside=False)
    pointed = _read_pointer(workspace, ".git", "gitdir:")
    if pointed is None:
        return None
    directory = Path(os.path.realpath(workspace / pointed))
    common = _read_pointer(directory, "commondir", "")
    shared = directory if common is None else Path(os.path.realpath(directory / common))
    if not _is_ours(directory, uid) or not _is_ours(shared, uid):
        return None
    if not (_names_path(directory, path) or _core_worktree(directory) == workspace):
        return None
    return GitPlace(shared, outside=True)


def _names_path(directory: Path, path: Path) -> bool:
    named = _read_pointer(directory, "gitdir", "")
    return named is not None and Path(os.path.normpath(directory / named)) == path


def _names_path_below(directory: Path, workspace: Path) -> bool:
    named = _read_pointer(directory, "gitdir", "")
    return named is not None and workspace in Path(os.path.normpath(directory / named)).parents


def _core_worktree(directory: Path) -> Path | None:
    for line in (_read_text(directory, "config") or "").splitlines():
        key, _, value = line.strip().partition("=")
        if key.strip().lower() == "worktree" and value.strip():
            return Path(os.path.realpath(directory / value.strip()))
    return None


def _git_protections(directory: Path) -> list[Protection]:
    closed = [directory / name for name in _GIT_PROTECTED]
    closed += [directory / "info" / name for name in _GIT_INFO_PROTECTED]
    for module in _subdirectories(directory / "modules"):
        closed += [module / name for name in ("config", "hooks")]
    closed += [entry / "config.worktree" for entry in _subdirectories(directory / "worktrees")]
    # NOTE: info is a mount point of its own, so that it cannot be renamed away; only three names in it
    # are closed.
    found = [Protection(directory / "info", True, "holds files that git obeys")]
    found += [Protection(path, False, "executed or obeyed by git") for path in closed]
    return [one for one in found if one.path.exists() and not one.path.is_symlink()]


def _subdirectories(directory: Path) -> list[Path]:
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
    return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _is_ours(directory: Path, uid: int) -> bool:
    try:
        return directory.is_dir() and os.stat(directory).st_uid == uid
    except OSError:
        return False


def _read_pointer(directory: Path, name: str, prefix: str) -> str | None:
    text = _read_text(directory, name)
    if text is None or not text.startswith(prefix):
        return None
    return text[len(prefix) :].strip() or None


def _read_text(directory: Path, name: str) -> str | None:
    try:
        return read_contained_text(directory, name, max_bytes=FileLimits().max_workspace_file_bytes)
    except (ContainmentError, OSError):
        return None
