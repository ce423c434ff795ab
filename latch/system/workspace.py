"""What in a workspace is protected, and what must not have appeared or changed after a run.

A workspace is written by repositories and models, so nothing read from it names a bind source,
except the git directory of a worktree or submodule, and that only when it is ours and names this
workspace itself (security.md T1, T3). Reads go through the contained read; nothing here follows a
link.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Mapping

from ..errors import ContainmentError, Denied
from ..limits import FileLimits
from .files import read_contained, read_contained_text, read_regular, remove_tree
from .machine import Machine
from .paths import lies_in, relation_of

__all__ = [
    "AppearedFile",
    "GitPlace",
    "Protection",
    "WorkspaceView",
    "changed_since",
    "git_identity",
    "look_at_workspace",
    "planted_git_files",
    "protected_snapshot",
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
    """One bind on top of the workspace's: read-only, or writable where only what lies in it is closed.

    ``kind`` is what it was found to be (``stat.S_IFDIR``), 0 where that was not looked at.
    """

    path: Path
    writable: bool
    reason: str
    kind: int = 0


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
        kind = _kind_of(path)
        _refuse_link(path, kind, rule="T1")
        if writable and kind:
            keeps_open = open_git and name == ".git" and kind == stat.S_IFDIR
            protections.append(Protection(path, keeps_open, "protected name", kind))
    if git is not None and git.outside:
        reason = "the git directory of this worktree"
        protections.append(Protection(git.directory, open_git, reason, stat.S_IFDIR))
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
        except FileNotFoundError:
            continue
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
    git = view.git
    if git is None and _kind_of(workspace / ".git") == stat.S_IFDIR:
        # It appeared after the look.
        git = GitPlace(workspace / ".git", outside=False)
    if git is None:
        return MappingProxyType({})
    directory = git.directory
    places = [directory]
    places += [
        entry
        for entry in _subdirectories(directory / "worktrees")
        if not _is_inside(entry, workspace, limits)
    ]
    paths = [place / name for place in places for name in _GIT_PLANTED]
    return MappingProxyType({path: _content_of(path, limits) for path in paths if os.path.lexists(path)})


def protected_snapshot(
    view: WorkspaceView, workspace: Path, limits: FileLimits = FileLimits()
) -> Mapping[Path, object]:
    """Return what identifies the protected names of *workspace*, what lies in them, and git's own such files.

    Of a directory only that it is the same: its entries stand for themselves, but for those of ``.git``,
    which change with every use. At most ``limits.max_protected_entries`` are looked at (security.md T29).
    """
    known: dict[Path, object] = {}
    for name in PROTECTED_NAMES:
        _identify(workspace / name, known, limits, entries=name != ".git")
    if view.git is not None:
        for path in _git_places(view.git.directory, limits)[1]:
            if path.name not in _GIT_PLANTED:
                _identify(path, known, limits)
                if path.name == "hooks" and _kind_of(path) == stat.S_IFDIR:
                    # NOTE: we make it where it is absent, so that it can be closed.
                    known.pop(path, None)
    return MappingProxyType(known)


def changed_since(
    before: Mapping[Path, object], view: WorkspaceView, workspace: Path, limits: FileLimits = FileLimits()
) -> list[Path]:
    """Return the protected names that appeared or changed since *before* (of :func:`protected_snapshot`).

    Of what appeared, only the outermost. The *view* is that of the plan.
    """
    now = protected_snapshot(view, workspace, limits)
    changed = [path for path in sorted(now) if before.get(path) != now[path]]
    appeared = {path for path in changed if path not in before}
    return [path for path in changed if appeared.isdisjoint(path.parents)]


def _identify(path: Path, known: dict[Path, object], limits: FileLimits, *, entries: bool = True) -> None:
    pending = [path]
    while pending and len(known) < limits.max_protected_entries:
        place = pending.pop(0)
        try:
            status = os.lstat(place)
        except OSError:
            continue
        kind = stat.S_IFMT(status.st_mode)
        if kind != stat.S_IFDIR:
            times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known[place] = (kind, status.st_dev, status.st_ino, *times)
            continue
        known[place] = (kind, status.st_dev, status.st_ino)
        if entries:
            pending += [place / name for name in _names(place)]


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


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


def _kind_of(path: Path) -> int:
    """Return what *path* itself is (``stat.S_IFLNK``), or 0 where it is not there or cannot be looked at."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


def _refuse_link(path: Path, kind: int, *, rule: str) -> None:
    if kind == stat.S_IFLNK:
        raise Denied(
            f'"{path}" is a symbolic link, and what it points to would be protected instead of it',
            rule=rule,
            hint="replace the link by the file or directory itself",
        )


def _find_git(workspace: Path, uid: int, limits: FileLimits) -> GitPlace | None:
    path = workspace / ".git"
    if _kind_of(path) == stat.S_IFDIR:
        return GitPlace(path, outside=False)
    pointed = _read_pointer(workspace, ".git", "gitdir:", limits)
    if pointed is None:
        return None
    directory = Path(os.path.realpath(workspace / pointed))
    common = _read_pointer(directory, "commondir", "", limits)
    shared = directory if common is None else Path(os.path.realpath(directory / common))
    # NOTE: nothing that a repository ships may name what is bound: not an entry that lies in the workspace, nor a
    # directory that holds it, nor one that is no git directory. The shared one must own the entry.
    if lies_in(str(directory), str(workspace)) or relation_of(str(shared), str(workspace)) is not None:
        return None
    if common is not None and directory.parent != shared / "worktrees" or not _is_git_directory(shared):
        return None
    if not _is_ours(directory, uid) or not _is_ours(shared, uid):
        return None
    if not (_named_path(directory, limits) == path or _core_worktree(directory, limits) == workspace):
        return None
    return GitPlace(shared, outside=True)


def _is_git_directory(directory: Path) -> bool:
    # gitrepository-layout(5): what git itself takes a directory for a repository by
    parts = (("HEAD", stat.S_ISREG), ("objects", stat.S_ISDIR), ("refs", stat.S_ISDIR))
    try:
        return all(is_kind(os.lstat(directory / name).st_mode) for name, is_kind in parts)
    except OSError:
        return False


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
    kept, closed = _git_places(directory, limits)
    for path in (directory / "modules", directory / "worktrees", *kept, *closed):
        _refuse_link(path, _kind_of(path), rule="T3")
    # NOTE: made where they are absent, before they are held.
    required = [directory / "info", *[path for path in closed if path.name == "hooks"]]
    found = [Protection(path, True, "holds what git obeys", stat.S_IFDIR) for path in kept]
    found += [
        Protection(path, False, "executed or obeyed by git", _kind_of(path) or stat.S_IFDIR)
        for path in closed
        if path in required or _kind_of(path)
    ]
    return found, tuple(required)


def _git_places(directory: Path, limits: FileLimits) -> tuple[list[Path], list[Path]]:
    """Return what in a git *directory* holds what git obeys, and what git would execute or obey."""
    kept = [directory / "info"]
    closed = [directory / name for name in _GIT_PROTECTED]
    closed += [directory / "info" / name for name in _GIT_INFO_PROTECTED]
    kept += _tree(directory / "modules", limits.max_module_depth)
    closed += [module / name for module in kept[1:] for name in ("config", "hooks") if _is_module(module)]
    entries = _subdirectories(directory / "worktrees")
    kept += [directory / "worktrees", *entries] if entries else []
    closed += [entry / name for entry in entries for name in _GIT_PLANTED]
    return kept, closed


def _tree(directory: Path, depth: int) -> list[Path]:
    """Return *directory* of submodules' git directories and what lies in it, parents first.

    A submodule's name may hold slashes, and a submodule submodules of its own. Below *depth* levels the
    grant is refused, because what is not found there would not be closed.
    """
    if _kind_of(directory) != stat.S_IFDIR:
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
    if os.path.islink(directory):
        return []
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
    return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _content_of(path: Path, limits: FileLimits) -> bytes:
    """Return what tells whether *path* is still what it was."""
    try:
        if os.path.islink(path):
            return b"link " + os.fsencode(os.readlink(path))
        return b"file " + read_contained(path.parent, path.name, max_bytes=limits.max_workspace_file_bytes)
    except (ContainmentError, OSError):
        pass
    try:
        status = os.lstat(path)
    except OSError:
        return b"gone"
    return f"other {status.st_ino} {status.st_ctime_ns}".encode()


def _is_ours(directory: Path, uid: int) -> bool:
    try:
        return os.path.isdir(directory) and os.stat(directory).st_uid == uid
    except OSError:
        return False


def _read_pointer(directory: Path, name: str, prefix: str, limits: FileLimits) -> str | None:
    text = _read_text(directory, name, limits)
    if text is None or not text.startswith(prefix) or "\0" in text:
        return None
    return text[len(prefix) :].strip() or None


def _read_text(directory: Path, name: str, limits: FileLimits) -> str | None:
    try:
        return read_contained_text(directory, name, max_bytes=limits.max_workspace_file_bytes)
    except (ContainmentError, OSError):
        return None
