"""Which sentences that a model writes are supported by a sentence of the library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from chroma_eddy import TermAnalyzer
from eddy_demo.web.answers.support import COLONS
from eddy_embed.text.sentences import Segmenter

_LANGUAGE = "en"  # as libraries of the demo have it
_SUPPORTED = 0.9
"""Least share of a written sentence's words, without stop words, in one sentence of the library."""
_IN_ORDER = 0.75
"""Least share of them that stand there in the same order."""
_TOLD = 0.2
"""Least share of them that the question does not have, or the sentence only restates it."""
_NEGATION = re.compile(r"\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot)\b|n['’]t\b", re.IGNORECASE)
"""English words that deny, which are stop words."""
_NUMBER = re.compile(r"[-−]?\d+(?:[.,]\d+)*")
_LOOP = 6
"""Number of words that a model repeats in order only when it goes round in circles."""


class Evidence:
    """The sentences found for a question, as grounds of what a model writes."""

    def __init__(self, question: str, sentences: Sequence[dict[str, Any]]) -> None:
        """`sentences` have a number `n` and a `text`."""
        self._segmenter, self._analyzer = Segmenter(_LANGUAGE), TermAnalyzer(_LANGUAGE)
        self._question = set(self._analyzer.of_question(question))
        self._texts = {each["n"]: str(each["text"]) for each in sentences}
        self._terms = {number: [term.text for term in self._analyzer(text)] for number, text in self._texts.items()}

    def supporting(self, written: str) -> int | None:
        """The number of the sentence that supports a written one best; None if none does, or it says nothing new.

        An announcement ("The answer is:") says nothing. Numbers must be the sentence's own, and a sentence that denies
        something supports none that does not.
        """
        if written.rstrip().endswith(COLONS):
            return None
        terms = self._analyzer.of_question(written)
        if not terms or sum(term not in self._question for term in terms) < _TOLD * len(terms):
            return None
        shared = {number: sum(term in own for term in terms) for number, own in self._terms.items()}
        numbers, denies = set(_NUMBER.findall(written)), bool(_NEGATION.search(written))
        supporting = [
            number
            for number, text in self._texts.items()
            if shared[number] >= _SUPPORTED * len(terms)
            and _in_order(terms, self._terms[number]) >= _IN_ORDER * len(terms)
            and numbers <= set(_NUMBER.findall(text))
            and bool(_NEGATION.search(text)) == denies
        ]
        return max(supporting, key=lambda number: shared[number], default=None)

    def repeats(self, written: str) -> bool:
        """Whether a written sentence has the same words as a sentence of the library, all in the same order."""
        return [term.text for term in self._analyzer(written)] in self._terms.values()

    def complete_sentences(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the sentences of a text as its pieces complete them, and "" for each piece that completes none.

        Ends where the text goes round in circles.
        """
        written: set[str] = set()
        text = ""
        for piece in pieces:
            text += piece
            sentences = self._segmenter.sentences(text)
            complete = sentences[:-1]
            for sentence in complete:
                if sentence.text in written:
                    return
                written.add(sentence.text)
                yield sentence.text
            if sentences:
                text = text[sentences[-1].start :]
            if _loops(text.split()):
                return
            if not complete:
                yield ""
        if text.strip() and text.strip() not in written:
            yield text.strip()


def _in_order(terms: Sequence[str], others: Sequence[str]) -> int:
    """The most terms that others have too, in the same order: the length of their longest common subsequence."""
    lengths = [0] * (len(others) + 1)
    for term in terms:
        before = list(lengths)
        for at, other in enumerate(others, start=1):
            lengths[at] = before[at - 1] + 1 if term == other else max(before[at], lengths[at - 1])
    return lengths[-1]


def _loops(words: Sequence[str]) -> bool:
    """Whether the last words stand in the same order before."""
    last = words[-_LOOP:]
    return any(words[at : at + _LOOP] == last for at in range(len(words) - _LOOP))
