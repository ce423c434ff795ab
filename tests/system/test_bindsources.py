"""What holds secrets or runs by itself is never shown or written, by whatever name it is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from latch.errors import ContainmentError
from latch.settings import SandboxSettings
from latch.system.bindsources import (
    SECRET_ENTRIES,
    STARTUP_ENTRIES,
    PrivatePlaces,
    check_bind_source,
    find_bind_refusal,
    find_private_places,
)
from latch.system.machine import Machine
from latch.system.toolchain import TOOLCHAIN_ROWS

SSH = 'is "~/.ssh", which may hold secrets'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a few secrets in it."""
    place = tmp_path / "home" / "user"
    for name in (".ssh/keys", ".config/gh", ".config/tool", "work", ".local/bin", ".cargo/bin"):
        (place / name).mkdir(parents=True)
    (place / ".bash_history").touch()
    (place / "pass.kdbx").touch()
    return place


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/", "contains the home directory"),
        ("{home}", "is the home directory"),
        ("{home}/..", "contains the home directory"),
        ("/run", "is /run"),
        ("/etc", "is /etc"),
        ("/tmp", "contains the home directory"),
        ("/home", "is /home"),
        ("/proc", "is or lies in /proc"),
        ("/proc/self/root", "is or lies in /proc"),
        ("/proc/1/root", "is or lies in /proc"),
        ("/sys/kernel", "is or lies in /sys"),
        ("/dev", "is or lies in /dev"),
        ("{home}/.ssh", 'is "~/.ssh"'),
        ("{home}/.ssh/keys", 'lies in "~/.ssh"'),
        ("{home}/.config/gh", 'is "~/.config/gh"'),
        ("{home}/.config", 'contains "~/.config/gcloud"'),
        ("{home}/.cargo", 'contains "~/.cargo/credentials"'),
        ("{home}/.bash_history", 'is "~/.*_history"'),
        ("{home}/pass.kdbx", 'is "~/*.kdbx"'),
        ("{home}/.config/../.ssh", 'is "~/.ssh"'),
    ],
)
def test_what_holds_secrets_is_not_shown(home: Path, path: str, reason: str) -> None:
    assert reason in (find_bind_refusal(Path(path.format(home=home)), home=home, private=()) or "")


@pytest.mark.parametrize(
    "path", ["work", ".config/tool", ".cargo/bin", ".local/bin", ".sshd", "work/.ssh", "x.kdb"]
)
def test_what_is_beside_secrets_is_shown(home: Path, path: str) -> None:
    assert find_bind_refusal(home / path, home=home, private=()) is None


def test_a_place_in_another_tree_may_be_named_like_a_secret(home: Path, tmp_path: Path) -> None:
    assert find_bind_refusal(tmp_path / "other" / ".ssh", home=home, private=()) is None


def test_a_link_into_a_view_of_the_kernel_is_not_shown(home: Path, tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to("/sys/kernel")
    assert find_bind_refusal(tmp_path / "innocent", home=home, private=()) == "is or lies in /sys"


def test_a_link_is_judged_by_where_it_leads(home: Path, tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to(home / ".ssh")
    assert find_bind_refusal(tmp_path / "innocent", home=home, private=()) == SSH


@pytest.mark.parametrize(("path", "relation"), [("keys", "is"), ("keys/deep", "lies in"), (".", "contains")])
def test_the_target_of_a_linked_secret_is_not_shown(
    home: Path, tmp_path: Path, path: str, relation: str
) -> None:
    (tmp_path / "dotfiles" / "keys" / "deep").mkdir(parents=True)
    (home / ".gnupg").symlink_to(tmp_path / "dotfiles" / "keys")
    refusal = find_bind_refusal(tmp_path / "dotfiles" / path, home=home, private=())
    assert refusal == f'{relation} the target of "~/.gnupg", which may hold secrets'


def test_the_target_of_a_secret_known_by_a_pattern_is_not_shown(home: Path, tmp_path: Path) -> None:
    (home / "all.kdbx").symlink_to(tmp_path / "vault")
    refusal = find_bind_refusal(tmp_path / "vault", home=home, private=())
    assert refusal == 'is the target of "~/*.kdbx", which may hold secrets'


def test_a_home_behind_a_link_has_the_same_secrets(home: Path, tmp_path: Path) -> None:
    (tmp_path / "logical").symlink_to(home)
    for one, other in ((home, tmp_path / "logical"), (tmp_path / "logical", home)):
        assert find_bind_refusal(one / ".ssh", home=other, private=()) == SSH
        assert find_bind_refusal(one, home=other, private=()) == "is the home directory"


def test_a_home_that_is_absent_has_secrets_too(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert find_bind_refusal(absent / ".ssh", home=absent, private=()) == SSH
    assert find_bind_refusal(absent / "work", home=absent, private=()) is None


@pytest.mark.parametrize(
    ("path", "relation"), [("state", "is"), ("state/deep", "lies in"), (".", "contains"), ("statement", None)]
)
@pytest.mark.parametrize("through", ["real", "link"])
def test_private_directories_are_not_shown(
    home: Path, tmp_path: Path, path: str, relation: str | None, through: str
) -> None:
    place = tmp_path / "data"
    (place / "state" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(place / "state")
    private = place / "state" if through == "real" else tmp_path / "link"
    refusal = find_bind_refusal(place / path, home=home, private=(private,))
    assert refusal == (None if relation is None else f'{relation} "{private}", which is private')


@pytest.mark.parametrize("name", [".bashrc", ".config/autostart", ".local/bin", "bin", ".local/bin/tool"])
def test_what_runs_at_login_is_shown_but_not_written(home: Path, name: str) -> None:
    assert find_bind_refusal(home / name, home=home, private=()) is None
    refusal = find_bind_refusal(home / name, home=home, private=(), writable=True) or ""
    assert refusal.endswith("which runs when you log in or work")


def test_a_checked_source_is_its_real_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(home / "work")
    assert check_bind_source(tmp_path / "alias", home=home, private=(), what="ro_paths") == home / "work"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("relative", "ro_paths: must be an absolute path"),
        ("{home}/absent", "ro_paths: does not exist"),
        ("{home}/.ssh", 'ro_paths: is "~/.ssh", which may hold secrets'),
    ],
)
def test_a_refused_source_names_path_asker_and_reason(home: Path, path: str, reason: str) -> None:
    named = path.format(home=home)
    with pytest.raises(ContainmentError) as caught:
        check_bind_source(Path(named), home=home, private=(), what="ro_paths")
    assert (caught.value.path, caught.value.reason) == (named, f'"{named}": {reason}')


def test_a_written_source_is_held_against_more(home: Path) -> None:
    with pytest.raises(ContainmentError, match="rw_paths: is"):
        check_bind_source(home / ".local/bin", home=home, private=(), what="rw_paths", writable=True)


# -- the tables


def test_no_row_of_the_table_is_or_holds_a_secret(home: Path) -> None:
    rows = [row.replace("*", "x") for row in TOOLCHAIN_ROWS if not row.startswith("/")]
    assert [row for row in rows if find_bind_refusal(home / row, home=home, private=())] == []


def test_the_tables_hold_each_entry_once() -> None:
    for table in (SECRET_ENTRIES, STARTUP_ENTRIES, TOOLCHAIN_ROWS):
        assert len(set(table)) == len(table)


def test_only_first_components_are_patterns() -> None:
    assert [entry for entry in SECRET_ENTRIES if "*" in entry and "/" in entry] == []


# -- what is ours


def private(home: Path, *, settings: SandboxSettings = SandboxSettings(), **moved: Path) -> PrivatePlaces:
    """Return what is private to the user of *home*."""
    environment = {"HOME": str(home), **{name: str(path) for name, path in moved.items()}}
    return find_private_places(Machine.read(environment), settings)


def test_t11_our_directories_and_the_state_are_private_by_themselves(home: Path) -> None:
    ours = (home / ".latch", home / ".latchkey")
    assert private(home) == PrivatePlaces((*ours, home / ".latch" / "state"), ours, ())
    assert not (home / ".latch").exists()


@pytest.mark.parametrize(
    "link",
    [
        ".latch/config.toml",
        ".latch/secrets.toml",
        ".latch/credentials.json",
        ".latch/credentials.json.enc",
        ".latchkey/credentials.json",
        ".latchkey/credentials.json.enc",
    ],
)
def test_t11_where_a_linked_credential_really_lies_is_private(home: Path, tmp_path: Path, link: str) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "on-the-way").symlink_to(tmp_path / "vault" / "file")
    (home / link).parent.mkdir()
    (home / link).symlink_to(tmp_path / "on-the-way")
    found = private(home)
    assert tmp_path / "vault" in found.credentials and tmp_path / "vault" in found.directories
    assert found.files == ()


def test_t11_a_credential_beside_the_home_or_in_what_is_replaced_makes_no_directory_private(
    home: Path,
) -> None:
    (home / ".latch").mkdir()
    (home / ".latch" / "secrets.toml").symlink_to(home / "real.toml")
    (home / ".latch" / "credentials.json").symlink_to("/tmp/real.json")
    found = private(home)
    assert found.files == (home / "real.toml", Path("/tmp/real.json"))
    assert found.directories == (home / ".latch", home / ".latchkey", home / ".latch" / "state")


def test_t11_directories_behind_links_are_private_where_they_are(home: Path, tmp_path: Path) -> None:
    for name in ("latch", "keys", "conf", "state", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / f"link-{name}").symlink_to(name)
    settings = SandboxSettings(
        state_directory=tmp_path / "link-state",
        config_file=tmp_path / "link-conf" / "my.toml",
        private_directories=(tmp_path / "link-more",),
    )
    found = private(
        home,
        settings=settings,
        LATCH_DIRECTORY=tmp_path / "link-latch",
        LATCHKEY_DIRECTORY=tmp_path / "link-keys",
    )
    assert found.directories == tuple(tmp_path / name for name in ("latch", "keys", "state", "more", "conf"))
    assert found.credentials == (tmp_path / "latch", tmp_path / "keys")


def test_t11_a_linked_configuration_file_is_private_where_it_is_and_where_it_is_linked(
    home: Path, tmp_path: Path
) -> None:
    for name in ("conf", "vault"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "my.toml").symlink_to(tmp_path / "vault" / "file")
    found = private(home, settings=SandboxSettings(config_file=tmp_path / "conf" / "my.toml"))
    assert {tmp_path / "vault", tmp_path / "conf"} <= set(found.directories)
    assert tmp_path / "vault" in found.credentials and tmp_path / "conf" not in found.credentials


def test_a_configuration_file_in_the_home_itself_does_not_make_the_home_private(home: Path) -> None:
    assert home not in private(home, settings=SandboxSettings(config_file=home / "my.toml")).directories
