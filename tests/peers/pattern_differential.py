"""Compares the matcher of patterns with the regular expressions of node, with the u flag.

Run with the program to compare with::

    python3 tests/peers/pattern_differential.py NODE [--pairs 20000] [--seed N]

Invented patterns are searched in invented texts by both, and texts made of pieces of patterns must be
patterns for both or for neither, except for what is not supported or beyond a limit here. What node finds
between the halves of an astral character is left out: with the u flag there is no such place. Prints the seed
and every disagreement; the exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Iterable

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from latch.errors import SchemaError  # noqa: E402
from latch.limits import DEFAULT  # noqa: E402
from latch.schema.patterns import compile_pattern  # noqa: E402
from tests.support.pattern_pairs import chance_patterns, pattern_pairs  # noqa: E402

TEXTS = 5
NODE_SECONDS = 300
# Reads [pattern, text] pairs, writes for each whether it was found, null where it is no pattern, and "inside"
# where it was found between the halves of a character.
PROGRAM = r"""
const pairs = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(pairs.map(([pattern, text]) => {
  let compiled;
  try { compiled = new RegExp(pattern, "u"); } catch (error) { return null; }
  const found = compiled.exec(text);
  if (found === null) return false;
  const halves = text.slice(Math.max(0, found.index - 1), found.index + 1);
  return /^[\ud800-\udbff][\udc00-\udfff]$/.test(halves) ? "inside" : true;
})));
"""


def main() -> int:
    """Compare, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("node")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    invented = pattern_pairs(asked.seed, patterns=asked.pairs // TEXTS, texts=TEXTS)
    pairs = [(pattern.ecma, text) for _, pattern, text in invented]
    pairs.extend((pattern, "ab-1") for pattern in chance_patterns(asked.seed, count=asked.pairs))
    theirs = answers_of(asked.node, pairs)
    refused = unsupported = disagreements = 0
    for (pattern, text), answer in zip(pairs, theirs):
        ours, why = search(pattern, text)
        refused += answer is None
        lacking = "not supported" in why or "(max_" in why
        unsupported += lacking and answer is not None
        if ours is not answer and answer != "inside" and not lacking:
            disagreements += 1
            print(f"{pattern!a} in {text!a}: {ours} {why} here, {answer} there")
    print(
        f"{len(pairs)} pairs, {refused} of them no patterns, {unsupported} not supported here, "
        f"{disagreements} disagreements"
    )
    return 1 if disagreements else 0


def answers_of(node: str, pairs: Iterable[tuple[str, str]]) -> list[bool | str | None]:
    """Return what *node* answers for each of *pairs*."""
    done = subprocess.run(
        [node, "-e", PROGRAM],
        input=json.dumps(list(pairs)),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
        timeout=NODE_SECONDS,
    )
    return json.loads(done.stdout)


def search(pattern: str, text: str) -> tuple[bool | None, str]:
    """Return what the matcher answers and an empty reason, or None and why it is no pattern."""
    try:
        return compile_pattern(pattern, DEFAULT.schema).search(text), ""
    except SchemaError as error:
        return None, error.reason


if __name__ == "__main__":
    sys.exit(main())
