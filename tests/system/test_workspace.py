"""What of a workspace is closed in a plan, and what a run may not leave behind, with git's own layouts."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from latch.errors import Denied
from latch.limits import FileLimits
from latch.system.machine import Machine
from latch.system.workspace import (
    PROTECTED_NAMES,
    AppearedFile,
    Protection,
    WorkspaceView,
    changed_since,
    git_identity,
    look_at_workspace,
    planted_git_files,
    protected_snapshot,
    remove_planted_git_files,
)
from tests.support.sandboxes import git

UID = os.getuid()


@pytest.fixture
def repository(workspace: Path) -> Path:
    """A workspace with one commit."""
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "one").write_text("1\n")
    git(workspace, "add", "one")
    git(workspace, "commit", "-q", "-m", "one")
    return workspace


@pytest.fixture
def worktree(repository: Path, tmp_path: Path) -> Path:
    """A second worktree of the repository, outside of it."""
    git(repository, "worktree", "add", "-q", str(tmp_path / "second"))
    return tmp_path / "second"


def opened(workspace: Path) -> WorkspaceView:
    """Look as for a command that was granted git's metadata."""
    return look_at_workspace(workspace, uid=UID, writable=True, git_metadata=True)


def closed(view: WorkspaceView) -> set[Path]:
    """Return what a view closes."""
    return {one.path for one in view.protections if not one.writable}


def kept(view: WorkspaceView) -> set[Path]:
    """Return what a view makes a writable mount point."""
    return {one.path for one in view.protections if one.writable}


# -- protected names


def test_an_empty_workspace_has_nothing_to_protect(workspace: Path) -> None:
    assert look_at_workspace(workspace, uid=UID, writable=True) == WorkspaceView()


def test_every_protected_name_that_exists_is_closed_in_a_writable_plan(workspace: Path) -> None:
    for name in PROTECTED_NAMES:
        (workspace / name).touch() if name.endswith(".md") else (workspace / name).mkdir()
    view = look_at_workspace(workspace, uid=UID, writable=True)
    assert closed(view) == {workspace / name for name in PROTECTED_NAMES}
    assert kept(view) == set()


def test_a_read_only_plan_needs_no_protection(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    assert look_at_workspace(workspace, uid=UID).protections == ()


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("target", ["/etc", "elsewhere", "one"])
@pytest.mark.parametrize("name", PROTECTED_NAMES)
def test_t1_a_protected_name_that_is_a_link_is_refused_and_named(
    workspace: Path, name: str, target: str, writable: bool
) -> None:
    (workspace / "one").mkdir()
    (workspace / name).symlink_to(target)
    with pytest.raises(Denied, match="is a symbolic link") as caught:
        look_at_workspace(workspace, uid=UID, writable=writable)
    assert caught.value.rule == "T1"
    assert str(workspace / name) in str(caught.value)


# -- a .git directory


def test_without_the_grant_git_is_closed_whole(repository: Path) -> None:
    view = look_at_workspace(repository, uid=UID, writable=True)
    assert closed(view) == {repository / ".git"}
    assert kept(view) == set()


def test_the_grant_opens_git_and_closes_what_git_executes(repository: Path) -> None:
    view = opened(repository)
    place = repository / ".git"
    assert kept(view) == {place, place / "info"}
    assert closed(view) == {place / "config", place / "hooks", place / "info" / "exclude"}
    assert view.protections[0] == Protection(place, True, "protected name", stat.S_IFDIR)
    kinds = {one.path.name: one.kind for one in view.protections}
    assert (kinds["config"], kinds["hooks"], kinds["exclude"]) == (stat.S_IFREG, stat.S_IFDIR, stat.S_IFREG)


def test_what_is_closed_follows_what_holds_it(repository: Path) -> None:
    order = [one.path for one in opened(repository).protections]
    for path in order:
        assert all(order.index(parent) < order.index(path) for parent in path.parents if parent in order)


@pytest.mark.parametrize("name", ["config.worktree", "info/attributes", "info/sparse-checkout"])
def test_the_grant_closes_what_else_git_obeys_where_it_exists(repository: Path, name: str) -> None:
    (repository / ".git" / name).touch()
    assert repository / ".git" / name in closed(opened(repository))


def test_hooks_and_info_are_made_so_that_they_can_be_closed(workspace: Path) -> None:
    git(workspace, "init", "-q", "--template=")
    view = opened(workspace)
    assert set(view.required) == {workspace / ".git" / "hooks", workspace / ".git" / "info"}
    assert workspace / ".git" / "hooks" in closed(view)


@pytest.mark.parametrize("name", ["libs/deep/sub", "sub"])
def test_the_grant_closes_every_submodule_and_what_holds_it(
    repository: Path, tmp_path: Path, name: str
) -> None:
    git(tmp_path, "clone", "-q", str(repository), "other")
    git(repository, "submodule", "--quiet", "add", "--name", name, str(tmp_path / "other"), "sub")
    modules = repository / ".git" / "modules"
    view = opened(repository)
    assert {modules / name / "config", modules / name / "hooks"} <= closed(view)
    holders = {modules / name, *(modules / name).parents}
    assert {path for path in holders if modules == path or modules in path.parents} <= kept(view)
    assert modules / name / "hooks" in view.required


def test_a_submodules_objects_are_not_mounted_one_by_one(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "other")
    git(repository, "submodule", "--quiet", "add", "--name", "sub", str(tmp_path / "other"), "sub")
    (repository / ".git" / "modules" / "sub" / "HEAD").unlink()
    assert all("objects" not in path.parts for path in kept(opened(repository)))


def test_a_submodule_of_a_submodule_is_closed(repository: Path) -> None:
    inner = repository / ".git/modules/a/modules/b"
    (inner / "hooks").mkdir(parents=True)
    for module in (inner, inner.parents[1]):
        (module / "config").touch()
    assert {inner / "hooks", inner / "config"} <= closed(opened(repository))


def test_the_grant_closes_what_binds_the_entries_of_worktrees(repository: Path, worktree: Path) -> None:
    entry = repository / ".git/worktrees/second"
    (entry / "config.worktree").touch()
    view = opened(repository)
    assert {entry / "commondir", entry / "gitdir", entry / "config.worktree"} <= closed(view)
    assert {entry, entry.parent} <= kept(view)


def test_t3_submodules_deeper_than_are_looked_for_refuse_the_grant(repository: Path) -> None:
    deep = repository / ".git" / "modules" / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "config").touch()
    assert deep / "config" in closed(opened(repository))
    with pytest.raises(Denied, match="nested too deeply") as caught:
        look_at_workspace(
            repository, uid=UID, writable=True, git_metadata=True, limits=FileLimits(max_module_depth=2)
        )
    assert (caught.value.rule, f'"{deep.parent}"' in str(caught.value)) == ("T3", True)


@pytest.mark.parametrize("name", ["config", "hooks", "info", "modules", "worktrees", "info/exclude"])
def test_t3_a_link_in_place_of_what_is_closed_refuses_the_grant(
    repository: Path, tmp_path: Path, name: str
) -> None:
    place = repository / ".git" / name
    if os.path.lexists(place):
        place.rename(tmp_path / "moved")
    else:
        (tmp_path / "moved").mkdir()
    place.symlink_to(tmp_path / "moved")
    with pytest.raises(Denied, match="is a symbolic link") as caught:
        opened(repository)
    assert caught.value.rule == "T3"
    assert str(place) in str(caught.value)


def test_t1_a_link_to_modules_names_no_bind_source(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / ".aws").mkdir(parents=True)
    (tmp_path / "home" / ".aws" / "config").write_text("secret")
    (repository / ".git" / "modules").symlink_to(tmp_path / "home")
    with pytest.raises(Denied):
        opened(repository)


# -- a .git file


def test_a_worktree_shows_the_repository_it_belongs_to(repository: Path, worktree: Path) -> None:
    view = look_at_workspace(worktree, uid=UID, writable=True)
    assert view.git is not None and view.git.outside
    assert closed(view) == {worktree / ".git", repository / ".git"}


def test_the_grant_opens_the_repository_of_a_worktree(repository: Path, worktree: Path) -> None:
    view = opened(worktree)
    place = repository / ".git"
    entry = place / "worktrees" / "second"
    assert place in kept(view)
    assert {worktree / ".git", place / "config", place / "hooks", entry / "commondir"} <= closed(view)


def test_a_submodule_shows_its_git_directory(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "other")
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "other"), "sub")
    view = opened(repository / "sub")
    place = repository / ".git/modules/sub"
    assert view.git is not None and view.git.directory == place
    assert {place / "config", place / "hooks", repository / "sub" / ".git"} <= closed(view)


def test_a_read_only_plan_of_a_worktree_shows_its_repository_read_only(
    repository: Path, worktree: Path
) -> None:
    view = look_at_workspace(worktree, uid=UID)
    assert [(one.path, one.writable) for one in view.protections] == [(repository / ".git", False)]


def lay_git_file(
    workspace: Path, directory: Path, *, names: str | None = None, common: str | None = None
) -> None:
    """Write a ``.git`` file to *directory*, which names *names* back and shares *common*."""
    for part in ("objects", "refs"):
        (directory / (common or "") / part).mkdir(parents=True, exist_ok=True)
    (directory / (common or "") / "HEAD").touch()
    directory.mkdir(parents=True, exist_ok=True)
    (workspace / ".git").write_text(f"gitdir: {directory}\n")
    if names is not None:
        (directory / "gitdir").write_text(f"{names}\n")
    if common is not None:
        (directory / "commondir").write_text(f"{common}\n")


@pytest.mark.parametrize("names", [None, "/somewhere/.git", "{workspace}", "{workspace}/sub/.git", ""])
def test_t1_a_git_file_is_not_followed_to_a_directory_that_does_not_name_the_workspace(
    workspace: Path, tmp_path: Path, names: str | None
) -> None:
    lay_git_file(workspace, tmp_path / "elsewhere", names=names and names.format(workspace=workspace))
    assert look_at_workspace(workspace, uid=UID).git is None


@pytest.mark.parametrize("names", ["{workspace}/.git", "../workspace/.git"])
def test_a_git_file_is_followed_to_a_directory_that_names_the_workspace(
    workspace: Path, tmp_path: Path, names: str
) -> None:
    lay_git_file(workspace, tmp_path / "elsewhere", names=names.format(workspace=workspace))
    view = look_at_workspace(workspace, uid=UID)
    assert view.git is not None and view.git.directory == tmp_path / "elsewhere"


def test_a_git_file_is_followed_where_core_worktree_names_the_workspace(
    workspace: Path, tmp_path: Path
) -> None:
    lay_git_file(workspace, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "config").write_text("[core]\n\tbare = false\n\tworktree = ../workspace\n")
    view = look_at_workspace(workspace, uid=UID)
    assert view.git is not None and view.git.directory == tmp_path / "elsewhere"


def test_t1_a_git_directory_of_another_user_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    lay_git_file(workspace, tmp_path / "elsewhere", names=str(workspace / ".git"))
    assert look_at_workspace(workspace, uid=UID + 1).git is None


def test_t1_a_git_directory_that_the_repository_ships_cannot_name_a_shared_one(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    lay_git_file(workspace, workspace / "shipped", names="../.git", common=str(tmp_path / "home" / ".ssh"))
    view = look_at_workspace(workspace, uid=UID, writable=True)
    assert view.git is None
    assert closed(view) == {workspace / ".git"}


def test_t1_a_git_file_that_is_a_hard_link_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    lay_git_file(workspace, tmp_path / "elsewhere", names=str(workspace / ".git"))
    os.link(workspace / ".git", tmp_path / "second-name")
    assert look_at_workspace(workspace, uid=UID).git is None


@pytest.mark.parametrize(
    "text", ["", "gitdir:", "gitdir: \n", "elsewhere\n", "\0", "gitdir: /proc/self/fd/0"]
)
def test_t1_a_git_file_that_says_nothing_useful_is_only_protected(workspace: Path, text: str) -> None:
    (workspace / ".git").write_text(text)
    view = look_at_workspace(workspace, uid=UID, writable=True)
    assert (view.git, closed(view)) == (None, {workspace / ".git"})


def test_t7_a_fifo_in_place_of_the_git_file_does_not_make_us_wait(workspace: Path) -> None:
    os.mkfifo(workspace / ".git")
    assert look_at_workspace(workspace, uid=UID).git is None


# -- what a run leaves


@pytest.mark.parametrize("name", ["commondir", "gitdir", "config.worktree"])
@pytest.mark.parametrize("place", ["", "worktrees/planted"])
def test_t3_what_redirects_git_is_removed_and_reported(repository: Path, name: str, place: str) -> None:
    view = opened(repository)
    before = planted_git_files(view, repository)
    planted = repository / ".git" / place / name
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text("/somewhere\n")
    assert [one.path for one in remove_planted_git_files(view, repository, before)] == [planted]
    assert not planted.exists()


@pytest.mark.parametrize("name", ["commondir", "gitdir", "config.worktree"])
@pytest.mark.parametrize("place", ["", "worktrees/planted"])
def test_t3_a_planted_directory_is_removed_with_all_in_it_and_reported(
    repository: Path, tmp_path: Path, name: str, place: str
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    view = opened(repository)
    before = planted_git_files(view, repository)
    planted = repository / ".git" / place / name
    (planted / "a" / "b").mkdir(parents=True)
    (planted / "a" / "link").symlink_to(tmp_path / "kept")
    (planted / "a").chmod(0)
    assert remove_planted_git_files(view, repository, before) == [AppearedFile(planted)]
    assert not os.path.lexists(planted) and (tmp_path / "kept" / "file").exists()


def test_t3_a_file_that_became_a_directory_is_removed(repository: Path) -> None:
    planted = repository / ".git" / "config.worktree"
    planted.touch()
    view = opened(repository)
    before = planted_git_files(view, repository)
    planted.unlink()
    planted.mkdir()
    assert remove_planted_git_files(view, repository, before) == [AppearedFile(planted)]


def test_t3_what_cannot_be_removed_is_reported_as_still_there(repository: Path) -> None:
    view = opened(repository)
    planted = repository / ".git" / "commondir"
    planted.touch()
    if os.getuid() == 0:
        pytest.skip("permissions do not hold root")
    planted.parent.chmod(0o500)
    try:
        assert remove_planted_git_files(view, repository, {}) == [AppearedFile(planted, removed=False)]
    finally:
        planted.parent.chmod(0o700)


def test_t3_a_planted_link_is_removed_and_its_target_is_not(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    view = opened(repository)
    (repository / ".git" / "commondir").symlink_to(tmp_path / "kept")
    assert len(remove_planted_git_files(view, repository, {})) == 1
    assert (tmp_path / "kept").exists()


def test_t3_a_changed_entry_of_another_worktree_is_removed(repository: Path, worktree: Path) -> None:
    view = opened(repository)
    before = planted_git_files(view, repository)
    changed = repository / ".git/worktrees/second/commondir"
    changed.write_text("/somewhere\n")
    assert [one.path for one in remove_planted_git_files(view, repository, before)] == [changed]


def test_t3_a_changed_entry_of_the_workspace_itself_is_removed(repository: Path, worktree: Path) -> None:
    view = opened(worktree)
    before = planted_git_files(view, worktree)
    changed = repository / ".git/worktrees/second/commondir"
    changed.write_text("/somewhere\n")
    assert [one.path for one in remove_planted_git_files(view, worktree, before)] == [changed]


def test_t3_what_was_there_before_stays(repository: Path, worktree: Path) -> None:
    view = opened(repository)
    before = planted_git_files(view, repository)
    assert len(before) == 2
    assert remove_planted_git_files(view, repository, before) == []


def test_t3_a_worktree_made_inside_the_workspace_stays(repository: Path) -> None:
    view = opened(repository)
    before = planted_git_files(view, repository)
    git(repository, "worktree", "add", "-q", "inside")
    assert remove_planted_git_files(view, repository, before) == []
    assert git(repository / "inside", "status", "--porcelain") == ""


def test_t3_a_link_to_another_repositorys_entries_removes_nothing_there(
    repository: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "other" / "worktrees" / "theirs"
    foreign.mkdir(parents=True)
    (foreign / "commondir").touch()
    view = opened(repository)
    (repository / ".git" / "worktrees").symlink_to(foreign.parent)
    assert remove_planted_git_files(view, repository, {}) == []
    assert (foreign / "commondir").exists()


def test_a_workspace_without_git_has_nothing_planted(workspace: Path) -> None:
    assert planted_git_files(WorkspaceView(), workspace) == {}


def test_what_is_no_plain_file_is_compared_too(repository: Path) -> None:
    os.mkfifo(repository / ".git" / "commondir")
    view = opened(repository)
    before = planted_git_files(view, repository)
    assert remove_planted_git_files(view, repository, before) == []
    (repository / ".git" / "commondir").unlink()
    (repository / ".git" / "commondir").write_text("/somewhere\n")
    assert len(remove_planted_git_files(view, repository, before)) == 1


# -- who commits


def identity(home: Path, workspace: Path, **environment: str) -> dict[str, str]:
    """Return what git is told of the operator."""
    return dict(git_identity(Machine.read({"HOME": str(home), **environment}), workspace))


@pytest.mark.parametrize(
    ("text", "name", "email"),
    [
        ("[user]\n\tname = Some One\n\temail = one@example.org\n", "Some One", "one@example.org"),
        ("[User]\nName=Some One # who\n EMAIL = one@example.org ; where\n", "Some One", "one@example.org"),
        ('[user]\nname = "Some # One "\nemail = a\\"b@example.org\n', "Some # One", 'a"b@example.org'),
        ("[user]\nname = A\nname = B\nemail = e@example.org\n[core]\nname = C\n", "B", "e@example.org"),
    ],
)
def test_the_operators_name_and_address_are_handed_in(
    own_home: Path, workspace: Path, text: str, name: str, email: str
) -> None:
    (own_home / ".gitconfig").write_text(text)
    assert identity(own_home, workspace) == {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }


@pytest.mark.parametrize("text", ["", "[user]\n", "[user]\nname =\n", "[other]\nname = A\n", "name = A\n"])
def test_an_operator_without_a_name_hands_in_nothing(own_home: Path, workspace: Path, text: str) -> None:
    (own_home / ".gitconfig").write_text(text)
    assert identity(own_home, workspace) == {}


def test_the_home_file_wins_over_the_settings_directory(
    own_home: Path, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "settings" / "git").mkdir(parents=True)
    (tmp_path / "settings" / "git" / "config").write_text("[user]\nname = A\nemail = a@example.org\n")
    (own_home / ".gitconfig").write_text("[user]\nname = B\n")
    found = identity(own_home, workspace, XDG_CONFIG_HOME=str(tmp_path / "settings"))
    assert (found["GIT_AUTHOR_NAME"], found["GIT_AUTHOR_EMAIL"]) == ("B", "a@example.org")


def test_what_the_repository_sets_itself_is_left_to_it(own_home: Path, repository: Path) -> None:
    (own_home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.org\n")
    git(repository, "config", "user.email", "work@example.org")
    assert set(identity(own_home, repository)) == {"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"}


# -- what appeared or changed


def seen_to_change(
    workspace: Path, change: Callable[[], object], view: WorkspaceView | None = None
) -> list[str]:
    """Return the names that *change* changed, relative to the workspace."""
    view = look_at_workspace(workspace, uid=UID, writable=True) if view is None else view
    before = protected_snapshot(view, workspace)
    change()
    return [os.path.relpath(path, workspace) for path in changed_since(before, view, workspace)]


@pytest.mark.parametrize("name", PROTECTED_NAMES)
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_t29_a_protected_name_that_appeared_is_reported_once(workspace: Path, name: str, kind: str) -> None:
    def appear() -> None:
        if kind == "directory":
            (workspace / name / "deep").mkdir(parents=True)
            (workspace / name / "deep" / "file").touch()
        elif kind == "link":
            (workspace / name).symlink_to("/etc")
        else:
            (workspace / name).touch()

    assert seen_to_change(workspace, appear) == [name]


def test_t29_what_is_not_protected_may_appear_and_change(repository: Path) -> None:
    def use() -> None:
        (repository / "AGENTS.txt").touch()
        (repository / "one").write_text("2")
        (repository / "sub").mkdir()
        (repository / "sub" / "AGENTS.md").touch()
        git(repository, "commit", "-qam", "two")

    assert seen_to_change(repository, use, opened(repository)) == []


def test_t29_a_changed_file_is_reported_wherever_it_lies(workspace: Path) -> None:
    (workspace / ".agents" / "deep").mkdir(parents=True)
    for name in ("AGENTS.md", ".agents/deep/a", ".agents/deep/b"):
        (workspace / name).write_text("old")

    def change() -> None:
        (workspace / "AGENTS.md").write_text("new")
        (workspace / ".agents" / "deep" / "b").write_text("new")
        (workspace / ".agents" / "deep" / "c").touch()

    assert seen_to_change(workspace, change) == [".agents/deep/b", ".agents/deep/c", "AGENTS.md"]


def test_t29_a_file_put_in_the_place_of_another_is_reported(workspace: Path) -> None:
    (workspace / "CLAUDE.md").write_text("old")
    (workspace / "other").write_text("new")
    os.utime(workspace / "other", ns=(0, 0))
    os.utime(workspace / "CLAUDE.md", ns=(0, 0))
    assert seen_to_change(workspace, lambda: os.replace(workspace / "other", workspace / "CLAUDE.md")) == [
        "CLAUDE.md"
    ]


@pytest.mark.parametrize(
    "name", ["config.worktree", "info/attributes", "info/sparse-checkout", "hooks/post-commit"]
)
def test_t29_what_git_obeys_is_reported_where_it_appears(repository: Path, name: str) -> None:
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    # What redirects git is removed and reported by its removal.
    expected = [] if name == "config.worktree" else [f".git/{name}"]
    assert seen_to_change(repository, (repository / ".git" / name).touch, opened(repository)) == expected


def test_t29_the_directories_that_we_make_to_close_them_are_not_reported(workspace: Path) -> None:
    git(workspace, "init", "-q", "--template=")
    view = opened(workspace)
    assert seen_to_change(workspace, lambda: [path.mkdir() for path in view.required], view) == []


def test_t29_a_removed_name_has_no_content_to_report(workspace: Path) -> None:
    (workspace / "AGENTS.md").touch()
    assert seen_to_change(workspace, (workspace / "AGENTS.md").unlink) == []


def test_t29_a_directory_is_looked_through_as_far_as_the_limit(workspace: Path) -> None:
    (workspace / ".claude").mkdir()
    for number in range(9):
        (workspace / ".claude" / str(number)).touch()
    limits = replace(FileLimits(), max_protected_entries=5)
    found = protected_snapshot(WorkspaceView(), workspace, limits)
    assert sorted(path.name for path in found) == [".claude", "0", "1", "2", "3"]


def test_t3_what_redirects_git_in_a_repository_made_since_is_removed(workspace: Path) -> None:
    view = opened(workspace)
    git(workspace, "init", "-q")
    (workspace / ".git" / "commondir").write_text("/elsewhere")
    assert remove_planted_git_files(view, workspace, {}) == [AppearedFile(workspace / ".git" / "commondir")]
    assert not (workspace / ".git" / "commondir").exists()
