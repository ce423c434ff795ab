"""Where the kernel's side and the integrations meet: bindings, and the wiring of one configuration.

Start with ``assembly.py``. Nothing below this level knows both sides.
"""
