"""Extensions: sandboxed programs that the operator configures, driven over their standard streams.

An extension offers tools and commands to a session, observes its events, transforms what goes to a
model, guards what is about to happen and adds context to requests. What it says is never a permission:
the process boundary is the sandbox.

========================= =====================================================================
``host.py``               :class:`~.host.ExtensionHost`: start one, call it, end it. Start here.
``conversation.py``       the protocol as a table, without I/O
``registrations.py``      what it may declare, and what of that fires
``hooks.py``              what is sent to hooks, and what an answer may be
``sdk.py``                for authors: one file, copied or imported, that needs nothing else of Latch
========================= =====================================================================

::

    settings = ExtensionSettings(name="lint", command="python3", args=("/opt/lint/lint.py",))
    with ExtensionHost.open(settings, workspace=path, scope=scope) as host:
        answer = host.guard("tool.execute", payload, scope)
        if answer.decision is Decision.ALLOW:
            host.call_tool("lint", {"path": "setup.py"}, scope)

Several of them as one session has them (names, all guards, all transforms) are the business of
``latch/tools``. Nothing here knows the kernel.
"""
