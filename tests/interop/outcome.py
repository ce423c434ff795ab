"""What came of one run, and the line that says so."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Iterator


@dataclass
class Outcome:
    """One thing that was tried: its name, what is worth knowing of it, and what went wrong."""

    name: str
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, text: str) -> None:
        """Add a few words for its line."""
        self.notes.append(text)

    def remark(self, text: str) -> None:
        """Add a sentence worth a line of its own, which is no failure."""
        self.remarks.append(text)

    def fail(self, text: str) -> None:
        """Add what went wrong; one is enough for it to have failed."""
        self.problems.append(text)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time within as this one's."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began

    def show(self) -> None:
        """Print its line, and indented below it what went wrong."""
        verdict = "FAIL" if self.problems else "ok"
        print(f"{verdict:<5} {self.name:<44} {self.seconds:6.2f} s  {', '.join(self.notes)}", flush=True)
        for remark in self.remarks:
            print(f"      note: {remark}", flush=True)
        for problem in self.problems:
            print("      " + problem.replace("\n", "\n      "), flush=True)
