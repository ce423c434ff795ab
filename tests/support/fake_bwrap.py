"""Programs that stand in for bubblewrap: one that fails with given words, one
that is 0.4.0, one that does not do as it is told, two that go bad.

Each is a real program that the product starts as it would start bubblewrap. The failing one cannot
run anything; the old one hands its options, checked against what 0.4.0 knew, to the real program; the
altered one hands over others than it was given; the spoiling one is the real one for its first starts, and
the outliving one lets the real one do as it is told and then does something else.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from latch.system.bubblewrap import BASELINE_OPTIONS, HARDENING_OPTIONS

__all__ = [
    "RAN",
    "altered_bwrap",
    "failing_bwrap",
    "old_bwrap",
    "outliving_bwrap",
    "program",
    "spoiling_bwrap",
]

# What a fake writes beside itself when it was asked to start something.
RAN = "was-asked"

# Options of 0.4.0 and how many arguments each takes.
_OLD = {
    **dict.fromkeys(
        "--help --version --unshare-all --share-net --unshare-user --unshare-user-try --unshare-ipc "
        "--unshare-pid --unshare-net --unshare-uts --unshare-cgroup --unshare-cgroup-try --new-session "
        "--die-with-parent --as-pid-1".split(),
        0,
    ),
    **dict.fromkeys(
        "--args --userns --userns2 --pidns --uid --gid --hostname --chdir --unsetenv --lock-file --sync-fd "
        "--remount-ro --exec-label --file-label --proc --dev --tmpfs --mqueue --dir --seccomp --block-fd "
        "--userns-block-fd --info-fd --json-status-fd --cap-add --cap-drop".split(),
        1,
    ),
    **dict.fromkeys(
        "--setenv --bind --bind-try --dev-bind --dev-bind-try --ro-bind --ro-bind-try --file --bind-data "
        "--ro-bind-data --symlink".split(),
        2,
    ),
}

_OLD_PROGRAM = """#!{python} -IS
import os, sys
OLD = {options!r}
words = sys.argv[1:]
if words == ["--help"]:
    print(" ".join(OLD))
    sys.exit()
if words == ["--version"]:
    print("bubblewrap 0.4.0")
    sys.exit()
options = words[: words.index("--")]
if options[0] == "--args":
    content = b""
    while True:
        chunk = os.read(int(options[1]), 65536)
        if not chunk:
            break
        content += chunk
    os.lseek(int(options[1]), 0, os.SEEK_SET)
    options = [word.decode("utf-8", "surrogateescape") for word in content.split(b"\\0")[:-1]]
while options:
    if options[0] not in OLD:
        sys.exit("bwrap: Unknown option " + options[0])
    del options[: 1 + OLD[options[0]]]
os.execv({real!r}, ["bwrap", *words])
"""


_ALTERED_PROGRAM = """#!{python} -IS
import os, sys
words = sys.argv[1:]
if words[0] == "--args":
    place = int(words[1])
    content = os.pread(place, 1 << 20, 0).replace({option!r}, {instead!r})
    os.ftruncate(place, 0)
    os.pwrite(place, content, 0)
os.execv({real!r}, ["bwrap", *words])
"""


_OUTLIVING_PROGRAM = """#!{python} -IS
import os, subprocess, sys, time
words = sys.argv[1:]
if words[0] != "--args":
    os.execv({real!r}, ["bwrap", *words])
place = int(words[1])
content = os.pread(place, 1 << 20, 0)
names = content.split(b"\\0")
if {silent}:
    os.ftruncate(place, 0)
    os.pwrite(place, content.replace(b"--json-status-fd\\0", b"--unsetenv\\0"), 0)
started = subprocess.Popen([{real!r}, *words], close_fds=False)
os.close(int(names[names.index(b"--info-fd") + 1]))
status = started.wait()
{then}
"""


def program(path: Path, text: str, *, mode: int = 0o755) -> Path:
    """Write an executable script to *path* and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def failing_bwrap(path: Path, words: str, *, status: int = 1, lacks: tuple[str, ...] = ()) -> Path:
    """Write a bubblewrap that lists every option but *lacks* and fails each start with *words* on stderr."""
    listed = " ".join(option for option in (*BASELINE_OPTIONS, *HARDENING_OPTIONS) if option not in lacks)
    return program(
        path,
        "#!/bin/sh\n"
        f'case "$1" in --help) echo "{listed}"; exit 0;; --version) echo bubblewrap 0.8.0; exit 0;; esac\n'
        f"echo asked > {shlex.quote(str(path.with_name(RAN)))}\n"
        f"printf '%s\\n' {shlex.quote(words)} >&2\nexit {status}\n",
    )


def altered_bwrap(path: Path, real: Path, option: tuple[str, ...], instead: tuple[str, ...]) -> Path:
    """Write a bubblewrap that does *instead* where it is told *option*, and says nothing of it."""
    told, done = ("".join(f"{word}\0" for word in words).encode() for words in (option, instead))
    return program(
        path, _ALTERED_PROGRAM.format(python=sys.executable, option=told, instead=done, real=str(real))
    )


def outliving_bwrap(path: Path, real: Path, then: str, *, silent: bool = False) -> Path:
    """Write a bubblewrap that lets *real* do a start and does Python's *then* after its end, whose status is
    ``status``. One that is *silent* keeps from us how the program ended.
    """
    text = _OUTLIVING_PROGRAM.format(python=sys.executable, real=str(real), then=then, silent=silent)
    return program(path, text)


def spoiling_bwrap(path: Path, real: Path, does: str, *, good: int = 1) -> Path:
    """Write a bubblewrap that is *real* for *good* starts, and from then on does the shell's *does* instead."""
    starts = shlex.quote(str(path.with_name(f"{path.name}-starts")))
    return program(
        path,
        f'#!/bin/sh\nif [ "$1" = --args ]; then\n  echo >> {starts}\n'
        f'  if [ $(wc -l < {starts}) -gt {good} ]; then {does}; fi\nfi\nexec {shlex.quote(str(real))} "$@"\n',
    )


def old_bwrap(path: Path, real: Path) -> Path:
    """Write a bubblewrap that knows and lists the options of 0.4.0 and hands over to *real*."""
    return program(path, _OLD_PROGRAM.format(python=sys.executable, options=_OLD, real=str(real)))
