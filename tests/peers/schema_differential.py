"""Holds invented instances against invented schemas, with Latch and with the ``jsonschema`` package.

Run with a Python that has jsonschema::

    PYTHON tests/peers/schema_differential.py [--pairs 10000] [--seed N]

Prints the seed and every disagreement; the exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from jsonschema.validators import validator_for

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from latch.limits import DEFAULT  # noqa: E402
from latch.schema.compile import Schema  # noqa: E402
from tests.support.schema_pairs import pairs  # noqa: E402

INSTANCES = 5


def main() -> int:
    """Compare, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    valid = disagreements = 0
    for label, schema, instance in pairs(asked.seed, schemas=asked.pairs // INSTANCES, instances=INSTANCES):
        compiled = Schema.compile(schema, DEFAULT.schema)
        ours = compiled.is_valid(instance)
        theirs = validator_for(schema)(schema).is_valid(instance)
        valid += ours
        if ours is not theirs or compiled.unchecked:
            disagreements += 1
            print(f"{label}: {ours} here, {theirs} there: {json.dumps(schema)} {json.dumps(instance)}")
            print(f"    {compiled.first_issue(instance)} {' '.join(compiled.unchecked)}")
    print(f"{asked.pairs} pairs, {valid} of them valid, {disagreements} disagreements")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
