r"""Invented patterns and texts, each pattern written twice: for ECMA-262 with the u flag, and for ``re``.

The two dialects differ in what ``\d``, ``\w``, ``\s``, ``.`` and ``$`` mean, and ``re`` knows no general
categories. Texts are drawn from :data:`ALPHABET` alone, so every set of characters is written for ``re`` as
the characters of the alphabet in it, which the tables here say by hand. Patterns are small and counts are
low, because ``re`` may take exponential time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Iterator

ALPHABET = "abAB01_ -\n\r\u00a0\u00e9\u0663\u2028\ufeff\U0001f600"
# What of the alphabet each set holds, as ECMA-262 and Unicode have it.
SETS = {
    r"\d": "01",
    r"\w": "abAB01_",
    r"\s": " \n\r\u00a0\u2028\ufeff",
    r"\p{L}": "abAB\u00e9",
    r"\p{Lu}": "AB",
    r"\p{Lowercase_Letter}": "ab\u00e9",
    r"\p{gc=Nd}": "01\u0663",
    r"\p{General_Category=Symbol}": "\U0001f600",
    r"\p{Zs}": " \u00a0",
    r"\p{C}": "\n\r\ufeff",
    r"\p{Any}": ALPHABET,
}
OPPOSITES = {"d": "D", "w": "W", "s": "S", "p": "P"}
NOT_BY_DOT = "\n\r\u2028"
# How else a character of the alphabet may be written in ECMA-262.
ESCAPES = {
    "a": (r"\x61", r"\u0061", r"\u{61}"),
    "-": (r"\x2d", r"\u{00002D}"),
    "\n": (r"\n", r"\cJ", r"\x0a"),
    "\r": (r"\r", r"\cM", r"\u000D"),
    "\u00a0": (r"\xa0", r"\u00A0"),
    "\u2028": (r"\u2028", r"\u{2028}"),
    "\ufeff": (r"\uFEFF",),
    "\U0001f600": (r"\u{1F600}", r"\ud83d\ude00"),
}
# What patterns are made of, for texts that are patterns only by chance.
PIECES = (
    *"abk01/-_,=:<>!^$.|()[]{}*+?\\",
    *(r"\d \W \b \B \- \_ \/ \0 \00 \1 \k<n> \cA \c1 \x61 \x6 \u0061 \u006 \ud83d \ude00 \t \a").split(),
    *(r"\u{61} \u{110000} \u{} \p{L} \P{Lu} \p{gc=Nd} \p{Nope} \p \] \( \. {1} {2,1} {1,2} {,1} {1,").split(),
    *"(?: (?<n> (?<m> (?<1> (?= (?! (?<= (?<! (? [^ a-b b-a [a-b] [\\d-a] [\\b] ^* (a)".split(),
)
QUANTIFIERS = ("*", "+", "?", "{0}", "{1}", "{2}", "{0,2}", "{1,3}", "{2,}", "{0,}")


@dataclass(frozen=True)
class Written:
    """One pattern, or a part of one, in both dialects."""

    ecma: str
    python: str


def pattern_pairs(seed: int, *, patterns: int, texts: int) -> Iterator[tuple[str, Written, str]]:
    """Yield (label, pattern, text): *patterns* invented by *seed*, each with as many *texts*."""
    for number in range(patterns):
        source = random.Random(f"{seed} {number}")
        pattern = _Inventor(source).choice(3)
        few = source.sample(ALPHABET, k=3)
        for _ in range(texts):
            letters = source.choice([few, few, ALPHABET])
            text = "".join(source.choice(letters) for _ in range(source.randrange(9)))
            yield f"seed {seed}, pattern {number}", pattern, text


def chance_patterns(seed: int, *, count: int) -> Iterator[str]:
    """Yield *count* texts made of :data:`PIECES`, some of which are patterns."""
    source = random.Random(seed)
    for _ in range(count):
        yield "".join(source.choices(PIECES, k=source.choice([1, 2, 2, 3, 3, 4, 5])))


class _Inventor:
    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._names = 0

    def choice(self, depth: int) -> Written:
        options = [self.sequence(depth) for _ in range(self._source.choice([1, 1, 1, 2, 3]))]
        return Written("|".join(one.ecma for one in options), "|".join(one.python for one in options))

    def sequence(self, depth: int) -> Written:
        terms = [self.term(depth) for _ in range(self._source.choice([0, 1, 1, 2, 2, 3]))]
        return Written("".join(one.ecma for one in terms), "".join(one.python for one in terms))

    def term(self, depth: int) -> Written:
        kind = self._source.randrange(10)
        if kind == 0:
            return self._source.choice(
                [Written("^", r"\A"), Written("$", r"\Z"), self.edge(r"\b"), self.edge(r"\B")]
            )
        atom = self.group(depth - 1) if kind < 4 and depth else self.characters()
        if self._source.random() < 0.5:
            return atom
        quantifier = self._source.choice(QUANTIFIERS) + self._source.choice(["", "", "?"])
        return Written(atom.ecma + quantifier, atom.python + quantifier)

    def edge(self, escape: str) -> Written:
        # Newer versions of re let \B match in an empty text, older ones do not: said by looking around.
        before, after = (f"(?<={_one_of(SETS[_WORD])})", f"(?={_one_of(SETS[_WORD])})")
        not_before, not_after = before.replace("?<=", "?<!"), after.replace("?=", "?!")
        if escape == r"\b":
            return Written(escape, f"(?:{before}{not_after}|{not_before}{after})")
        return Written(escape, f"(?:{before}{after}|{not_before}{not_after})")

    def group(self, depth: int) -> Written:
        inside = self.choice(depth)
        opening = self._source.choice(["(?:", "(", "(?<n>"])
        if opening == "(?<n>":
            self._names += 1
            opening = f"(?<n{self._names}>"
        return Written(f"{opening}{inside.ecma})", f"(?:{inside.python})")

    def characters(self) -> Written:
        kind = self._source.randrange(10)
        if kind < 5:
            character = self._source.choice("ab01" + ALPHABET)
            return Written(self.written(character), _one_of(character))
        if kind == 5:
            return Written(".", _one_of(_others(NOT_BY_DOT)))
        if kind < 8:
            ecma, members = self.named_set()
            return Written(ecma, _one_of(members))
        return self.bracket()

    def bracket(self) -> Written:
        members, ecma = "", ""
        for _ in range(self._source.randrange(4)):
            kind = self._source.randrange(3)
            if kind == 0:
                text, more = self.named_set()
            elif kind == 1:
                first, last = sorted(self._source.choices(ALPHABET, k=2))
                text = f"{self.written(first)}-{self.written(last)}"
                more = "".join(one for one in ALPHABET if first <= one <= last)
            else:
                more = self._source.choice(ALPHABET)
                text = self.written(more)
            ecma, members = ecma + text, members + more
        if self._source.random() < 0.3:
            return Written(f"[^{ecma}]", _one_of(_others(members)))
        return Written(f"[{ecma}]", _one_of(members))

    def named_set(self) -> tuple[str, str]:
        name = self._source.choice(list(SETS))
        if self._source.random() < 0.3:
            return f"\\{OPPOSITES[name[1]]}{name[2:]}", _others(SETS[name])
        return name, SETS[name]

    def written(self, character: str) -> str:
        plain = r"\x2d" if character == "-" else character
        return self._source.choice([plain, *ESCAPES.get(character, ())])


_WORD = r"\w"


def _others(members: str) -> str:
    return "".join(one for one in ALPHABET if one not in members)


def _one_of(members: str) -> str:
    """Return a class of ``re`` with *members*; without any it never matches."""
    return f"[{''.join(f'{chr(92)}U{ord(one):08x}' for one in members)}]" if members else "(?!)"
