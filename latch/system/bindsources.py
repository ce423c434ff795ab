"""What may be shown to a child at all, whoever names it: a toolchain search or the operator.

A home's secrets stand here as a table. They are absent from the empty home anyway; the table is for
what a bind would bring back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Iterator

from ..errors import ContainmentError
from ..settings import SandboxSettings
from .machine import Machine
from .paths import both_names, lies_in, real_path, relation_of

__all__ = [
    "SECRET_ENTRIES",
    "STARTUP_ENTRIES",
    "PrivatePlaces",
    "check_bind_source",
    "find_bind_refusal",
    "find_entries",
    "find_private_places",
]

# Entries of a home that hold secrets. A name may be a pattern of fnmatch; order is that of messages.
SECRET_ENTRIES = tuple("""
    .ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .config/hub .config/git/credentials
    .git-credentials .git-credential-cache .netrc .npmrc .pypirc .yarnrc.yml .cargo/credentials
    .cargo/credentials.toml .gem/credentials .m2/settings.xml .gradle/gradle.properties .composer/auth.json
    .nuget .terraform.d .vault-token .pgpass .my.cnf .s3cfg .boto .config/rclone .config/op .config/heroku
    .config/doctl .password-store .local/share/keyrings .local/share/kwalletd .mozilla .thunderbird
    .config/google-chrome .config/chromium .config/BraveSoftware .cache/huggingface/token .huggingface .claude
    .claude.json .codex .gemini .config/github-copilot .config/opencode .local/share/opencode .*_history
    .lesshst .viminfo .local/share/fish .histfile *.kdbx .pki
    """.split())

# Entries of a home whose content the operator's own shell or session runs: never to be written.
STARTUP_ENTRIES = tuple("""
    .config/systemd .config/autostart .config/fish .bashrc .bash_profile .bash_login .bash_logout .profile
    .zshrc .zshenv .zprofile .zlogin .local/bin bin
    """.split())

# The files of ours that hold secrets; each may be a link to where it is really kept (security.md T11).
_LATCH_FILES = ("config.toml", "secrets.toml")
_CREDENTIAL_FILES = ("credentials.json", "credentials.json.enc")

# Never bound: the kernel's views, and trees that the sandbox builds itself.
_KERNEL_VIEWS = ("/proc", "/sys", "/dev")
_REFUSED_WHOLE = ("/run", "/etc", "/tmp", "/home", "/root")
# Places the sandbox replaces by its own: what a file of ours lies beside there is not shown anyway.
_REPLACED = ("/dev", "/dev/shm", "/etc", "/proc", "/run", "/sys", "/tmp", "/var/tmp")


@dataclass(frozen=True)
class PrivatePlaces:
    """What is ours and never shown (security.md T11), as real paths.

    ``directories`` are masked wherever a bind would show them. A workspace that is or lies in one of
    ``credentials``, which are among them, is refused. ``files`` are credentials whose directory cannot
    be masked, because it is or holds the home: no bind may name them.
    """

    directories: tuple[Path, ...]
    credentials: tuple[Path, ...]
    files: tuple[Path, ...]


def find_private_places(machine: Machine, settings: SandboxSettings) -> PrivatePlaces:
    """Return what is private on *machine* under *settings*, whoever built them. Only links are looked at."""
    ours = (machine.latch_directory, machine.latchkey_directory)
    known = [*(machine.latch_directory / name for name in _LATCH_FILES)]
    known += [directory / name for directory in ours for name in _CREDENTIAL_FILES]
    configured = [] if settings.config_file is None else [settings.config_file]
    targets = [real_path(file) for file in (*configured, *known) if os.path.islink(file)]
    kept = [target for target in targets if _can_be_private(os.path.dirname(target), machine.home)]
    credentials = [*map(real_path, ours), *map(os.path.dirname, kept)]
    others = [machine.state_directory_of(settings), *settings.private_directories]
    beside = [real_path(file.parent) for file in configured]
    directories = [
        *credentials,
        *map(real_path, others),
        *[directory for directory in beside if _can_be_private(directory, machine.home)],
    ]
    return PrivatePlaces(
        directories=_each_once(directories),
        credentials=_each_once(credentials),
        files=_each_once([target for target in targets if target not in kept]),
    )


def _can_be_private(directory: str, home: Path) -> bool:
    return directory not in _REPLACED and not lies_in(real_path(home), directory)


def _each_once(paths: list[str]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(map(Path, paths)))


def check_bind_source(
    path: Path,
    *,
    home: Path,
    private: tuple[Path, ...],
    what: str,
    writable: bool = False,
    cure: str = "name a place that holds nothing private",
) -> Path:
    """Return the real path of *path*, or raise :class:`ContainmentError` when it may not be shown.

    *what* is who asks (``ro_paths``), for the text, and *cure* what to do where it is refused. Refused:
    what is absent or relative, and what :func:`find_bind_refusal` says.
    """
    if not path.is_absolute():
        raise ContainmentError(str(path), f"{what}: must be an absolute path", hint="write it from / on")
    if not os.path.exists(path):
        raise ContainmentError(str(path), f"{what}: does not exist", hint="make it, or take it out of there")
    refusal = find_bind_refusal(path, home=home, private=private, writable=writable)
    if refusal is not None:
        raise ContainmentError(str(path), f"{what}: {refusal}", hint=cure)
    return Path(real_path(path))


def find_bind_refusal(
    path: Path, *, home: Path, private: tuple[Path, ...], writable: bool = False
) -> str | None:
    """Return why the real place of *path* may not be shown (or, *writable*, written), or None.

    It may not be, contain or lie in a secret of *home* or a directory of *private*; nor be or contain
    the home or a tree that the sandbox builds itself. *path* need not exist.
    """
    real, real_home = real_path(path), real_path(home)
    for tree in _KERNEL_VIEWS:
        # Also as named: their links lead out of them, and not to the same place for everybody.
        if lies_in(real, tree) or lies_in(os.path.abspath(path), tree):
            return f"is or lies in {tree}"
    if lies_in(real_home, real):
        return "is the home directory" if real == real_home else f'contains the home directory "{real_home}"'
    for tree in _REFUSED_WHOLE:
        if lies_in(tree, real):
            return f"is {tree}" if real == tree else f"contains {tree}"
    for directory in private:
        for place in both_names(directory):
            relation = relation_of(real, place)
            if relation:
                return f'{relation} "{directory}", which is private'
    return _find_secret(real, real_home, SECRET_ENTRIES, "may hold secrets") or (
        _find_secret(real, real_home, STARTUP_ENTRIES, "runs when you log in or work") if writable else None
    )


def _find_secret(real: str, real_home: str, entries: tuple[str, ...], why: str) -> str | None:
    parts = os.path.relpath(real, real_home).split("/") if lies_in(real, real_home) else None
    for entry in entries:
        pattern = entry.split("/")
        if parts is not None and all(map(fnmatchcase, parts, pattern)):
            depth = len(parts) - len(pattern)
            relation = "is" if depth == 0 else "contains" if depth < 0 else "lies in"
            return f'{relation} "~/{entry}", which {why}'
        for place in find_entries(real_home, entry):
            # An entry may be a link to where it is really kept.
            related = relation_of(real, real_path(place))
            if related:
                return f'{related} the target of "~/{entry}", which {why}'
    return None


def find_entries(real_home: str, entry: str) -> Iterator[str]:
    """Yield the paths in *real_home* that *entry* of the tables above names and that exist."""
    if "*" not in entry:
        place = os.path.join(real_home, entry)
        if os.path.lexists(place):
            yield place
        return
    try:
        names = os.listdir(real_home)
    except OSError:
        return
    yield from (os.path.join(real_home, name) for name in names if fnmatchcase(name, entry))
