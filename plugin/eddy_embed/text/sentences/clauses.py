"""Cuts overlong sentences at the borders of clauses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_BORDERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[.!?…;:][\"'”’»)\]]*(?=\s)|[。！？；：][」』”’）]*|\s[—–](?=\s)|—",
        r",[\"'”’»)\]]*(?=\s)|[，、؛،]",
        r"(?=[\n\r])",
        r"(?=\s)",
    )
)
"""Borders from the best to the least: stop, semicolon, colon or dash; comma; line break; any whitespace."""

_LEAST_SHARE = 0.25
_JOINERS = "\u200d\u034f"


def cut(text: str, start: int, end: int, max_chars: int) -> Iterator[tuple[int, int]]:
    """Cut text, stripped from `start` to `end`, into stripped spans of at most ``max_chars`` characters.

    Each span ends at the last border of the best kind within the limit; borders in its first quarter don't count, so
    that spans don't become tiny. Without a border it ends at the limit, but not inside a combining sequence, an emoji
    joined from several, a flag, or a Hangul syllable, unless that alone is longer than the limit.
    """
    while end - start > max_chars:
        border = _border(text, start, start + max_chars)
        piece = text[start:border]
        yield start, start + len(piece.rstrip())
        start = border
        while text[start].isspace():
            start += 1
    yield start, end


def _border(text: str, start: int, limit: int) -> int:
    early = start + 1 + int((limit - start) * _LEAST_SHARE)
    for pattern, least in zip(_BORDERS, (early, early, start + 1, start + 1), strict=True):
        # One more character than the span may hold lets a border be seen that ends exactly at the limit.
        ends = [match.end() for match in pattern.finditer(text, least - 1, limit + 1) if least <= match.end() <= limit]
        if ends:
            return ends[-1]
    border = limit
    while border > start + 1 and not _may_part(text, border):
        border -= 1
    return border if border > start + 1 or _may_part(text, start + 1) else limit


def _may_part(text: str, at: int) -> bool:
    """Whether the character at an offset begins a new grapheme, as far as a short look back can tell."""
    before, after = text[at - 1], text[at]
    if unicodedata.category(after)[0] == "M" or after in _JOINERS or before in _JOINERS:
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\u1160" <= after <= "\u11ff" or (before == "\r" and after == "\n"):
        return False
    if "\U0001f1e6" <= after <= "\U0001f1ff":
        first = at
        while first > max(0, at - 64) and "\U0001f1e6" <= text[first - 1] <= "\U0001f1ff":
            first -= 1
        return (at - first) % 2 == 0
    return not "\ud800" <= before <= "\udbff"
