"""Time, processes and files: everything that can block, start something or touch the disk.

Whatever may wait takes a :class:`~.scope.Scope` last. Bytes and their meaning come from ``wire`` and
``schema`` below; policy and peers are above and unknown here.

Reading order: ``machine`` (who we are), ``scope`` (deadline and cancel), ``paths`` and ``files``; what a
child may see: ``toolchain``, ``bindsources``, ``workspace``, ``plan``, ``planning``; how it runs:
``bubblewrap`` (which, and why not), ``kernelcalls``, ``processes``, ``cgroup``, ``spawner``, ``mounts``,
``ledger`` (what a killed host left), ``child``, ``starting``, ``housekeeper``; for HTTP ``tls``,
``httpsocket``, ``http``; and what others use: ``sandbox``, ``command``, ``throwaway``.
"""
