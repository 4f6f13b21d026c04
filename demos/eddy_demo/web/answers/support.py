"""Whether a passage answers a question, and whether a sentence can."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chroma_eddy import Hit

ANSWERS = 0.5
"""Least support of a passage that answers a question, for every model (docs/web.md)."""
CANDIDATES = 8
"""Number of passages whose sentences are candidates for an answer."""
_DEVIATIONS = 20
"""Standard deviations of a passage's cosine, above unrelated ones, that count as much as all words of the question."""
_LEAST = 1e-3
"""Least deviation that is told from rounding."""
COLONS = (":", "：")
"""Ends of an announcement, which says nothing itself."""
_WORD = re.compile(r"\w+")
_CLOSING = "\"'”’»)]*_ "
"""Quotes and marks behind a sentence's own end."""
_MIN_WORDS = 4
_LEADING_WORDS = 7


def is_prose(text: str) -> bool:
    """Whether a sentence can be an answer: no heading, table row, line of code, question or announcement."""
    line = text.strip().rstrip(_CLOSING)
    if line.startswith(("#", "|", "```", "~~~", ">>>", "$ ")) or line.endswith(("?", "？", *COLONS)):
        return False
    return len(_WORD.findall(line)) >= _MIN_WORDS or (len(line) >= 12 and not line.isascii())


def is_fragment(text: str) -> bool:
    """Whether a sentence is too short to lead an answer; texts without spaces are measured in characters."""
    return len(_WORD.findall(text)) < _LEADING_WORDS and (text.isascii() or len(text) < 2 * _LEADING_WORDS)


def support(hit: Hit, unrelated: tuple[float, float]) -> float:
    """How much of a question a passage of a hybrid query answers: by its words, at most 1, and by its cosine.

    `unrelated` is what `unrelated_cosines` gives: the same level fits any model, whatever its cosines are like.
    """
    mean, deviation = unrelated
    return (hit.coverage or 0.0) + (hit.cosine - mean) / max(deviation, _LEAST) / _DEVIATIONS


def best_support(hits: Sequence[Hit], unrelated: tuple[float, float]) -> float:
    """Highest support among hits; 0 without one."""
    return max((support(hit, unrelated) for hit in hits), default=0.0)
