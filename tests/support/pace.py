"""The unit in which tests measure and wait: a millisecond, longer on a machine that says it is slow."""

from __future__ import annotations

import os

__all__ = ["MS"]

# LATCH_TEST_SLOW=3 makes every bound and all patience three times as long; what is asserted stays the same.
MS = 0.001 * float(os.environ.get("LATCH_TEST_SLOW", "1"))
