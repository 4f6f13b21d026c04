"""What a question asks of words beyond their terms: an "exact phrase", and -words that a passage must not have."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import regex

from chroma_eddy.words.terms import UNSPACED

LONGEST = 16
"""Words of the longest question in which quotation marks and minus signs are operators, not prose."""
_QUOTED = '"([^"]+)"|“([^”“]+)[”“]|„([^“”]+)[“”]|«([^»]+)»'
_PHRASE = regex.compile(_QUOTED)
_MINUS = regex.compile(rf"(?<!\S)-(?:{_QUOTED}|(\p{{L}}[\p{{L}}\p{{M}}\p{{N}}]+))(?=[\s?!.,;]|$)")
_SPACED = regex.compile(rf"(?V1)[[\p{{L}}\p{{N}}_]--[{UNSPACED}]]")
"""Characters beside which a word may end."""
_EITHER = str.maketrans(dict.fromkeys("'’", "['’]"))


class Asked(NamedTuple):
    """A question without its operators, and what they ask, as Chroma's conditions on a passage's text."""

    text: str
    conditions: list[dict[str, Any]]

    @classmethod
    def of(cls, question: str) -> Asked:
        """Read the operators. A minus before a single letter, or a second one, is none: `-e`, `--force`."""
        if len(question.split()) > LONGEST:
            return cls(question, [])
        conditions = []
        for match in _MINUS.finditer(question):
            conditions += [{"$not_regex": own} for own in _patterns(match)]
        text = _MINUS.sub(" ", question)
        for match in _PHRASE.finditer(text):
            conditions += [{"$regex": own} for own in _patterns(match)]
        return cls(_PHRASE.sub(lambda match: f" {match[match.lastindex or 0]} ", text), conditions)


def _patterns(match: regex.Match[str]) -> list[str]:
    """The pattern of a quoted phrase or a word: upper or lower case, with any white space; none for blanks."""
    words = str(match[match.lastindex or 0]).split()
    if not words:
        return []
    pattern = r"\s+".join(re.escape(word).translate(_EITHER) for word in words)
    before, after = (r"\b" * bool(_SPACED.match(edge)) for edge in (words[0][0], words[-1][-1]))
    return [f"(?i){before}{pattern}{after}"]
