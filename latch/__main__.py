"""``python -m latch``, or this file by its path: version guard, clean search path, then :func:`cli.main.main`.

In a directory that is not trusted use ``bin/latch``: with ``-m`` the interpreter itself looks in the
working directory for the package, before any line of ours runs. In the grammar of Python 3.6.
"""

import sys


def start() -> int:
    """Run the command line of this process and return its exit status."""
    if sys.version_info < (3, 9):
        sys.stderr.write(
            "latch: needs Python 3.9 or newer, this is Python %d.%d\n" % tuple(sys.version_info[:2])
        )
        return 2
    forget_working_directory()
    if not __package__:
        return sys.modules[import_own_package() + ".cli.main"].main()
    from .cli.main import main

    return main()


def forget_working_directory() -> None:
    """Drop relative entries and the working directory, however spelt, from the module search path."""
    import posix  # compiled into the interpreter: no file of that name is ever looked for

    for entry in list(sys.path):
        try:
            if entry[:1] != "/" or posix.stat(entry)[1:3] == posix.stat(".")[1:3]:
                sys.path.remove(entry)
        except OSError:
            pass


def import_own_package() -> str:
    """Import the command line of the package that this file, started by its path, lies in; returns its name."""
    import os.path

    here = os.path.dirname(os.path.realpath(__file__))
    # NOTE: the interpreter put our own directory first, whose modules must not pass for anybody else's; the
    # one around it is on the path for this one import only.
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]
    root, name = os.path.split(here)
    sys.path.insert(0, root)
    __import__(name + ".cli.main")
    sys.path.remove(root)
    return name


def end_on_sigint() -> None:
    """Let SIGINT end this process until the command takes it, unless it is ignored."""
    import _signal  # compiled into the interpreter, as posix is

    # NOTE: as an exception it could strike a callback of the import system, which would swallow it and, worse,
    # keep the import lock for ever.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


if __name__ == "__main__":
    end_on_sigint()
    sys.exit(start())
