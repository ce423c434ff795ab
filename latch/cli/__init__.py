"""The command line, level 6: the only package that prints, prompts, or turns failures into exit codes.

Reading order: ``main`` (command table, dispatch, signals), ``arguments`` (flags), ``failures`` (exit
table), ``terminal`` (what is shown), ``context`` (settings of one run), then one module per command in
``commands``.
"""
