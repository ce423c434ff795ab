"""JSON Schema as far as values from outside are held against it, and patterns in linear time.

Nothing here waits, reads a clock or asks a network: a schema and an instance go in, a verdict comes out, and
neither can make the work unbounded. A schema that cannot be used is a :class:`~latch.errors.SchemaError`, a
reason with the place in the schema; whoever got it from a peer adds the name.

Reading order for patterns: ``characters``, ``expressions``, ``patterns`` (text to expression), ``positions``
(expression to tables), ``automaton`` (the search). For schemas: ``dialects``, ``references``, ``verdicts``,
``sites``, then the keywords (``equality``, ``keywords``, ``applicators``, ``evaluated``) and ``compile``.
"""
