"""One module per command of the table in ``cli/main.py``, imported only when it is chosen.

Each exposes ``configure(parser)``, which adds the command's own arguments, and ``run(options, io)``,
which does the work and returns the exit status. ``cli/arguments.py`` says what ``options`` holds.
"""
