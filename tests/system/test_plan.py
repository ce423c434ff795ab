"""A plan is a value, its order is policy, and every system's layout is recreated."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latch.errors import UsageError
from latch.limits import ResourceLimits
from latch.system.bubblewrap import HARDENING_OPTIONS
from latch.system.ledger import TOKEN_VARIABLE
from latch.system.machine import Machine
from latch.system.plan import Operation, PlanRequest, SandboxPlan, SystemLayout, make_plan, survey
from latch.system.toolchain import Toolchain
from latch.system.workspace import Protection, WorkspaceView

EVERY = frozenset(HARDENING_OPTIONS)
HOME = Path("/home/someone")
WORKSPACE = HOME / "projects" / "one"
MACHINE = replace(
    Machine.read({"HOME": str(HOME)}), uid=1000, gid=1000, user="someone", latch_directory=HOME / ".latch"
)
LAYOUT = SystemLayout(
    system=(Operation("--ro-bind", ("/usr", "/usr"), "the system"),), visible=(Path("/usr"),), home=HOME
)
REQUEST = PlanRequest(
    argv=("tool", "--bind"), workspace=WORKSPACE, view=WorkspaceView(), toolchain=Toolchain()
)


def plan(
    *,
    layout: SystemLayout = LAYOUT,
    machine: Machine = MACHINE,
    features: frozenset[str] = EVERY,
    **changes: Any,
) -> SandboxPlan:
    """Plan a changed request."""
    return make_plan(replace(REQUEST, **changes), layout, machine, features)


def words(made: SandboxPlan) -> list[str]:
    """Return the operations as bubblewrap would get them."""
    return [" ".join([one.option, *one.arguments]) for one in made.operations]


def variables(made: SandboxPlan) -> dict[str, str]:
    """Return the environment of a plan."""
    return dict(one.arguments for one in made.operations if one.option == "--setenv")


def in_order(made: SandboxPlan, *expected: str) -> None:
    """Insist that *expected* are operations of the plan, in this order."""
    found = words(made)
    places = [found.index(one) for one in expected]
    assert places == sorted(places)


# -- a value


def test_the_same_request_gives_the_same_plan() -> None:
    assert plan(network=True) == plan(network=True)


def test_the_whole_plan_of_a_plain_command() -> None:
    sizes = ResourceLimits()
    assert words(plan()) == [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--unshare-net",
        "--disable-userns",
        "--cap-drop ALL",
        "--die-with-parent",
        "--new-session",
        "--hostname sandbox",
        "--proc /proc",
        "--dev /dev",
        "--perms 1777",
        f"--size {sizes.shm_bytes}",
        "--tmpfs /dev/shm",
        "--perms 1777",
        f"--size {sizes.tmp_bytes}",
        "--tmpfs /tmp",
        "--perms 1777",
        f"--size {sizes.var_tmp_bytes}",
        "--tmpfs /var/tmp",
        "--dir /run",
        "--ro-bind /usr /usr",
        "--file /etc/passwd",
        "--file /etc/group",
        "--perms 0700",
        f"--size {sizes.home_bytes}",
        f"--tmpfs {HOME}",
        f"--ro-bind {WORKSPACE} {WORKSPACE}",
        "--remount-ro /dev",
        "--remount-ro /",
        "--clearenv",
        f"--unsetenv {TOKEN_VARIABLE}",
        "--setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"--setenv HOME {HOME}",
        "--setenv USER someone",
        "--setenv LOGNAME someone",
        "--setenv SHELL /bin/sh",
        "--setenv LANG C.UTF-8",
        "--setenv LC_ALL C.UTF-8",
        "--setenv TMPDIR /tmp",
        "--setenv LATCH_SANDBOX 1",
        f"--setenv LATCH_WORKSPACE {WORKSPACE}",
        f"--chdir {WORKSPACE}",
    ]


def test_the_command_is_kept_apart_from_the_operations() -> None:
    assert plan().argv == ("tool", "--bind")
    assert "-- tool --bind" in plan().lines()


# -- what changes with the request


def test_a_writable_workspace_is_bound_for_writing() -> None:
    assert f"--bind {WORKSPACE} {WORKSPACE}" in words(plan(writable=True))


def test_a_shared_network_has_no_network_namespace() -> None:
    assert "--unshare-net" not in words(plan(network=True))


def test_t23_the_plan_says_what_a_shared_network_reaches() -> None:
    shared, none = plan(network=True).lines(), plan().lines()
    assert (
        "network: everything this machine reaches, its own services and metadata addresses included" in shared
    )
    assert "network: none" in none


def test_root_gets_the_sysctls_read_only_after_proc() -> None:
    in_order(
        plan(machine=replace(MACHINE, uid=0)), "--proc /proc", "--ro-bind /proc/sys /proc/sys", "--dev /dev"
    )
    assert "--ro-bind /proc/sys /proc/sys" not in words(plan())


def test_t6_a_peer_starts_in_a_small_directory_of_its_own() -> None:
    made = plan(private_directory=True, in_workspace=False)
    place = words(made).index("--tmpfs /run/peer")
    assert words(made)[place - 2 : place] == ["--perms 0700", f"--size {ResourceLimits().peer_bytes}"]
    assert words(made)[-1] == "--chdir /run/peer"


def test_t6_a_peer_starts_in_the_workspace_only_where_asked() -> None:
    assert words(plan(private_directory=True, in_workspace=True))[-1] == f"--chdir {WORKSPACE}"


def test_a_probe_has_no_workspace() -> None:
    made = plan(workspace=None, private_directory=True, in_workspace=False)
    assert "LATCH_WORKSPACE" not in variables(made)
    assert words(made)[-1] == "--chdir /run/peer"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("home_bytes", str(HOME)),
        ("tmp_bytes", "/tmp"),
        ("var_tmp_bytes", "/var/tmp"),
        ("shm_bytes", "/dev/shm"),
    ],
)
def test_every_size_can_be_set(name: str, place: str) -> None:
    made = words(plan(resources=replace(ResourceLimits(), **{name: 12345})))
    assert made[made.index(f"--tmpfs {place}") - 1] == "--size 12345"


# -- order


def test_parents_are_bound_before_what_lies_in_them() -> None:
    made = plan(
        writable=True,
        toolchain=Toolchain(roots=(HOME / ".pyenv",)),
        ro_paths=(HOME / "projects",),
        rw_paths=(HOME / "projects" / "data" / "deep",),
        view=WorkspaceView((Protection(WORKSPACE / ".git", False, ""),)),
        hidden=(WORKSPACE / "state",),
    )
    in_order(
        made,
        f"--tmpfs {HOME}",
        f"--ro-bind {HOME}/projects {HOME}/projects",
        f"--bind {WORKSPACE} {WORKSPACE}",
        f"--ro-bind {WORKSPACE}/.git {WORKSPACE}/.git",
        f"--tmpfs {WORKSPACE}/state",
        f"--remount-ro {WORKSPACE}/state",
        "--remount-ro /dev",
        "--remount-ro /",
    )


def test_at_one_path_the_mask_wins_over_every_bind() -> None:
    made = plan(ro_paths=(HOME / "shown",), hidden=(HOME / "shown",))
    in_order(made, f"--ro-bind {HOME}/shown {HOME}/shown", f"--tmpfs {HOME}/shown")


def test_at_one_path_the_workspace_wins_over_ro_paths() -> None:
    made = plan(writable=True, ro_paths=(WORKSPACE,))
    in_order(made, f"--ro-bind {WORKSPACE} {WORKSPACE}", f"--bind {WORKSPACE} {WORKSPACE}")


def test_links_of_the_toolchain_come_after_what_they_point_to() -> None:
    made = plan(toolchain=Toolchain(roots=(HOME / "a",), links=(("a/b", f"{HOME}/link"),)))
    in_order(made, f"--ro-bind {HOME}/a {HOME}/a", f"--symlink a/b {HOME}/link", "--remount-ro /")


# -- what is pinned


def pinned(made: SandboxPlan) -> dict[str, int]:
    """Return the paths that must still be what they are at the start, with what kind each must be."""
    assert all(one.option in ("--bind", "--ro-bind") for one in made.operations if one.pinned)
    return {one.arguments[0]: one.kind for one in made.operations if one.pinned}


def test_t1_what_others_may_swap_before_it_is_bound_is_pinned() -> None:
    made = plan(
        ro_paths=(HOME / "shown",),
        rw_paths=(HOME / "data",),
        toolchain=Toolchain(roots=(HOME / ".pyenv",)),
        view=WorkspaceView((Protection(WORKSPACE / "AGENTS.md", False, "", stat.S_IFREG),)),
    )
    assert pinned(made) == {
        str(WORKSPACE): stat.S_IFDIR,
        str(WORKSPACE / "AGENTS.md"): stat.S_IFREG,
        str(HOME / "shown"): 0,
        str(HOME / "data"): 0,
    }


def test_t1_what_a_peers_program_needs_is_pinned_too() -> None:
    made = plan(private_directory=True, toolchain=Toolchain(roots=(HOME / "tools",)))
    assert pinned(made) == {str(WORKSPACE): stat.S_IFDIR, str(HOME / "tools"): 0}


# -- masks


def test_t11_what_no_bind_shows_is_not_masked_and_so_not_named() -> None:
    made = plan(hidden=(HOME / ".latch", Path("/srv/state")))
    assert not any(".latch" in one or "/srv" in one for one in words(made))
    assert made.required == ()


@pytest.mark.parametrize("shown", ["ro_paths", "rw_paths", "root", "system", "protection", "workspace"])
def test_t11_what_a_bind_shows_is_masked_closed_and_sealed(shown: str) -> None:
    place = (
        WORKSPACE if shown == "workspace" else Path("/usr") if shown == "system" else Path("/srv/a")
    ) / "state"
    how: dict[str, Any] = {"ro_paths": (Path("/srv/a"),)} if shown == "ro_paths" else {}
    how = {"rw_paths": (Path("/srv/a"),)} if shown == "rw_paths" else how
    how = {"toolchain": Toolchain(roots=(Path("/srv/a"),))} if shown == "root" else how
    how = {"view": WorkspaceView((Protection(Path("/srv/a"), True, ""),))} if shown == "protection" else how
    made = plan(hidden=(place,), **how)
    at = words(made).index(f"--tmpfs {place}")
    assert words(made)[at - 1] == "--perms 0000"
    assert f"--remount-ro {place}" in words(made)[at:]
    assert made.required == (place,)


def test_t11_a_mask_around_the_workspace_lets_it_be_mounted() -> None:
    state = HOME / "state"
    made = plan(workspace=state / "trees" / "one", ro_paths=(HOME,), hidden=(state,))
    assert words(made)[words(made).index(f"--tmpfs {state}") - 1] == "--perms 0755"
    in_order(
        made, f"--tmpfs {state}", f"--ro-bind {state}/trees/one {state}/trees/one", f"--remount-ro {state}"
    )


def test_t11_a_mask_inside_a_closed_mask_is_not_repeated() -> None:
    made = plan(hidden=(WORKSPACE / "latch" / "state", WORKSPACE / "latch"))
    assert f"--tmpfs {WORKSPACE}/latch" in words(made)
    assert made.required == (WORKSPACE / "latch",)


def test_what_the_view_needs_is_required() -> None:
    assert plan(view=WorkspaceView(required=(WORKSPACE / ".git/hooks",))).required == (
        WORKSPACE / ".git/hooks",
    )


# -- refusals


@pytest.mark.parametrize(
    ("workspace", "said"),
    [("/", "whole machine"), (str(HOME), "is or contains your home"), ("/home", "is or contains your home")],
)
def test_a_workspace_that_would_undo_the_masks_is_refused_with_the_reason(workspace: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        plan(workspace=Path(workspace))
    assert f'workspace "{workspace}"' in str(caught.value)
    assert caught.value.hint is not None


# -- the environment


def test_the_environment_is_exactly_what_is_promised() -> None:
    known = {
        "HOME": "/x",
        "TZ": "Europe/Oslo",
        "TERM": "dumb",
        "SECRET_KEY": "x",
        "LD_PRELOAD": "/x",
        "LANG": "de",
    }
    made = plan(machine=replace(MACHINE, environment=known), environment={"OWN": "1"})
    assert variables(made) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(HOME),
        "USER": "someone",
        "LOGNAME": "someone",
        "SHELL": "/bin/sh",
        "LANG": "de",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": "/tmp",
        "LATCH_SANDBOX": "1",
        "LATCH_WORKSPACE": str(WORKSPACE),
        "TZ": "Europe/Oslo",
        "TERM": "dumb",
        "OWN": "1",
    }


@pytest.mark.parametrize("known", [{}, {"TZ": "", "TERM": ""}])
def test_what_the_host_does_not_have_is_not_made_up(known: dict[str, str]) -> None:
    assert {"TZ", "TERM"}.isdisjoint(variables(plan(machine=replace(MACHINE, environment=known))))


def test_path_inside_is_the_toolchains_in_its_order() -> None:
    entries = (HOME / "b", Path("/usr/bin"), HOME / "b", HOME / "a")
    assert variables(plan(toolchain=Toolchain(path_entries=entries)))["PATH"] == f"{HOME}/b:/usr/bin:{HOME}/a"


# -- an older bubblewrap


@pytest.mark.parametrize("option", sorted(EVERY))
def test_an_option_that_is_not_listed_is_left_out_and_named_once(option: str) -> None:
    made = plan(features=EVERY - {option})
    assert option not in [one.option for one in made.operations]
    assert made.missing == (f"this bubblewrap has no {option}: {HARDENING_OPTIONS[option]}",)
    assert f"missing: {made.missing[0]}" in made.lines()


def test_nothing_is_missing_where_every_option_is_listed() -> None:
    assert plan().missing == ()


# -- the home


def test_a_home_that_is_a_link_is_mounted_where_it_is_and_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "var" / "home" / "someone").mkdir(parents=True)
    (tmp_path / "home").symlink_to("var/home")
    layout = survey(replace(MACHINE, home=tmp_path / "home" / "someone"))
    assert layout.home == tmp_path / "var/home/someone"
    assert [one.arguments for one in layout.home_links] == [
        (str(tmp_path / "var/home"), str(tmp_path / "home"))
    ]
    made = plan(layout=layout, machine=replace(MACHINE, home=tmp_path / "home" / "someone"))
    assert f"--tmpfs {tmp_path}/var/home/someone" in words(made)
    assert variables(made)["HOME"] == f"{tmp_path}/home/someone"


def test_a_distributions_root_below_a_linked_home_is_mounted_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "var" / "home" / "linuxbrew" / ".linuxbrew").mkdir(parents=True)
    (tmp_path / "var" / "home" / "someone").mkdir()
    (tmp_path / "home").symlink_to("var/home")
    layout = survey(MACHINE, root=tmp_path)
    assert layout.home == Path("/var/home/someone")
    assert {Path("/home/linuxbrew/.linuxbrew"), Path("/var/home/linuxbrew/.linuxbrew")} <= set(layout.visible)
    made = plan(layout=layout)
    in_order(
        made,
        "--symlink /var/home /home",
        "--ro-bind /var/home/linuxbrew/.linuxbrew /var/home/linuxbrew/.linuxbrew",
        "--tmpfs /var/home/someone",
    )
    assert not any(one.startswith("--ro-bind /home/") and "linuxbrew" in one for one in words(made))
    assert variables(made)["HOME"] == str(HOME)


def test_a_distributions_root_below_another_link_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "data" / "store").mkdir(parents=True)
    (tmp_path / "nix").symlink_to("data")
    assert paths_of(survey(MACHINE, root=tmp_path))["/nix/store"] == ("--ro-bind", "/nix/store")


def test_links_to_the_home_come_after_the_scratch_directories_and_before_every_bind(tmp_path: Path) -> None:
    (tmp_path / "real" / "someone").mkdir(parents=True)
    (tmp_path / "home").symlink_to("real")
    machine = replace(MACHINE, home=tmp_path / "home" / "someone")
    made = plan(layout=survey(machine), machine=machine)
    in_order(
        made,
        "--tmpfs /tmp",
        f"--symlink {tmp_path}/real {tmp_path}/home",
        "--ro-bind /usr /usr",
        f"--tmpfs {tmp_path}/real/someone",
    )


def test_names_that_are_no_text_are_handed_on_as_they_are() -> None:
    odd = os.fsdecode(b"/h\xff")
    made = plan(machine=replace(MACHINE, home=Path(odd), user=os.fsdecode(b"u\xff")))
    passwd = next(one.content for one in made.operations if one.arguments == ("/etc/passwd",))
    assert isinstance(passwd, bytes) and passwd.startswith(b"u\xff:x:1000:1000::/h\xff:/bin/sh\n")


def test_every_link_on_the_way_to_the_home_is_recreated(tmp_path: Path) -> None:
    (tmp_path / "data" / "someone").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "home").symlink_to("var")
    (tmp_path / "var" / "someone").symlink_to(tmp_path / "data" / "someone")
    layout = survey(replace(MACHINE, home=tmp_path / "home" / "someone"))
    assert [one.arguments for one in layout.home_links] == [
        (str(tmp_path / "var"), str(tmp_path / "home")),
        (str(tmp_path / "data/someone"), str(tmp_path / "var/someone")),
    ]


@pytest.mark.parametrize("home", ["/", "/usr", "/usr/sbin"])
def test_a_home_among_the_systems_programs_does_not_cover_them(home: str) -> None:
    made = plan(layout=replace(LAYOUT, home=Path(home)), machine=replace(MACHINE, home=Path(home)))
    assert "--tmpfs /home/user" in words(made)
    assert f"--tmpfs {home}" not in words(made)
    assert variables(made)["HOME"] == "/home/user"


# -- the system


def paths_of(layout: SystemLayout) -> dict[str, tuple[str, ...]]:
    """Return destination -> (option, source) of what a layout mounts."""
    return {one.arguments[-1]: (one.option, *one.arguments[:-1]) for one in layout.system}


def test_a_merged_system_keeps_its_links(tmp_path: Path) -> None:
    for name, target in (("bin", "usr/bin"), ("lib64", "usr/lib64")):
        (tmp_path / name).symlink_to(target)
    found = paths_of(survey(MACHINE, root=tmp_path))
    assert found["/bin"] == ("--symlink", "usr/bin")
    assert found["/lib64"] == ("--symlink", "usr/lib64")
    assert "/sbin" not in found


def test_an_unmerged_system_keeps_its_directories(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    layout = survey(MACHINE, root=tmp_path)
    assert paths_of(layout)["/bin"] == ("--ro-bind", "/bin")
    assert Path("/bin") in layout.visible


@pytest.mark.parametrize(
    "name", ["/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew", "/run/current-system"]
)
def test_a_distributions_own_roots_are_shown_where_they_exist(tmp_path: Path, name: str) -> None:
    assert name not in paths_of(survey(MACHINE, root=tmp_path))
    (tmp_path / name[1:]).mkdir(parents=True)
    layout = survey(MACHINE, root=tmp_path)
    assert paths_of(layout)[name] == ("--ro-bind", name)
    assert Path(name) in layout.visible


def test_t11_opt_is_not_shown_for_itself(tmp_path: Path) -> None:
    (tmp_path / "opt").mkdir()
    assert "/opt" not in paths_of(survey(MACHINE, root=tmp_path))


def test_of_etc_only_what_programs_need_is_shown(tmp_path: Path) -> None:
    for name in ("hosts", "shadow", "ssl/private/key", "ssl/certs/one", "passwd", "ssh/ssh_host_key"):
        (tmp_path / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "etc" / name).touch()
    found = paths_of(survey(MACHINE, root=tmp_path))
    assert sorted(path for path in found if path.startswith("/etc")) == ["/etc/hosts", "/etc/ssl/certs"]


def test_a_linked_resolver_file_is_copied_from_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "stub.conf").write_text("nameserver 127.0.0.53\n")
    (tmp_path / "etc" / "resolv.conf").symlink_to("../stub.conf")
    made = {one.arguments[-1]: one for one in survey(MACHINE, root=tmp_path).system}["/etc/resolv.conf"]
    assert (made.option, made.content) == ("--file", str(tmp_path / "stub.conf"))
    assert str(made) == f"--file /etc/resolv.conf < {tmp_path}/stub.conf"


def test_a_file_of_etc_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    # Its first bytes cannot be read by anybody, whatever its mode says.
    (tmp_path / "etc" / "hosts").symlink_to("/proc/self/mem")
    os.mkfifo(tmp_path / "etc" / "services")
    layout = survey(MACHINE, root=tmp_path)
    assert not {"/etc/hosts", "/etc/services"} & set(paths_of(layout))
    assert [text.partition(": ")[0] for text in layout.missing] == [
        "/etc/hosts is not shown",
        "/etc/services is not shown",
    ]
    assert "cannot be read: input/output error" in layout.missing[0]
    made = plan(layout=layout)
    assert made.missing == layout.missing
    assert [line for line in made.lines() if line.startswith("missing: ")] == [
        f"missing: {text}" for text in layout.missing
    ]


def test_t16_a_plan_without_a_process_limit_says_so() -> None:
    assert plan(bounded=False).missing == ("no process limit (root)",)
    assert plan().missing == ()


def test_a_plan_counts_the_words_that_bubblewrap_is_given() -> None:
    operations = (
        Operation("--clearenv"),
        Operation("--file", ("/a",), content=b"1"),
        Operation("--dir", ("/b",)),
    )
    made = SandboxPlan(
        operations=operations, argv=("tool", "x"), required=(), missing=(), network=False, resources=ResourceLimits(),
    )  # fmt: skip
    assert made.argument_count == 1 + 3 + 2 + 2


def test_a_resolver_link_to_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "resolv.conf").symlink_to("absent")
    assert "/etc/resolv.conf" not in paths_of(survey(MACHINE, root=tmp_path))


def test_inside_there_are_two_users() -> None:
    files = {one.arguments[0]: one.content for one in plan().operations if one.option == "--file"}
    assert files["/etc/passwd"] == (
        b"someone:x:1000:1000::/home/someone:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
    )
    assert files["/etc/group"] == b"someone:x:1000:\nnogroup:x:65534:\n"
