"""Bytes to values and back, for every protocol Latch speaks.

Nothing here waits, reads a clock, opens a file or knows who sent the bytes: readers are fed and asked,
encoders return bytes. A refusal is a :class:`~latch.errors.WireError`, a reason without a name; whoever
drives the peer adds the name. Reading order: ``buffer``, then the two ways of cutting a stream into
messages, ``framing`` and ``lines``, then ``jsontext`` and, on top of it, ``jsonrpc``; for HTTP ``httpurl``,
``httpfields``, ``httpreply`` and ``sse``.
"""
