"""MCP servers as tools: sandboxed on stdio, or remote over Streamable HTTP. Every protocol revision.

``versions`` says which revision a server speaks, ``conversation`` what is said in it, ``catalogue`` what
it offers, ``headers`` what HTTP repeats of a call, ``results`` what an answer may be: none of them does
I/O. ``stdio`` and ``streamable`` carry messages, ``client`` puts it all together. Read them in this order.

Nothing that a server says grants anything: its descriptions and annotations are data.
"""
