"""A peer's words as an error may quote them: one line, and no more of it than was asked for."""

from __future__ import annotations

__all__ = ["quote", "quote_end", "quote_whole", "shorten"]


def shorten(text: str, most: int) -> str:
    """Return the first *most* characters of a peer's *text* as one line."""
    line = " ".join(text[:most].splitlines())
    return line if len(text) <= most else f"{line}..."


def quote(text: str, most: int) -> str:
    """Return the first *most* characters of a peer's *text* in quotes, as one line."""
    return f'"{shorten(text, most)}"'


def quote_whole(text: str, most: int) -> str:
    """Return all of a peer's *text* in quotes, or, where it has more than *most* characters, only how many.

    For what a secret may be in: half of one would not be recognised when it is taken out later.
    """
    return quote(text, most) if len(text) <= most else f"a text of {len(text)} characters"


def quote_end(text: str, most: int) -> str:
    """Return the last *most* characters of a peer's *text* in quotes, as one line without runs of blanks."""
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= most else f'"...{line[-most:]}"'
