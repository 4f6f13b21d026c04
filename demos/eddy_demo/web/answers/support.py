"""Whether a passage answers a question, and whether a sentence can."""

from __future__ import annotations

import re

ANSWERS = 0.5
"""Least score of a passage that answers a question, for every model (docs/web.md)."""
CANDIDATES = 8
"""Number of passages whose sentences are candidates for an answer."""
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
