"""Time, processes and files: everything that can block, start something or touch the disk.

Whatever may wait takes a :class:`~.scope.Scope` last. Bytes and their meaning come from ``wire`` and
``schema`` below; policy and peers are above and unknown here.

Reading order: ``machine`` (who we are), ``scope`` (deadline and cancel), ``files``, ``toolchain``,
``workspace``, ``plan``, ``bubblewrap``, ``child``.
"""
