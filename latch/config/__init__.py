"""The operator's configuration: TOML on disk to the frozen values of ``settings.py``.

Only files that the operator named or owns are read, never a project's. Reading creates nothing.
``tomlfile`` turns bytes into plain values; ``checks`` and ``remote`` check single ones, ``keys`` says which
key is checked by what, and ``load`` puts it together and names every fault it finds.
"""
