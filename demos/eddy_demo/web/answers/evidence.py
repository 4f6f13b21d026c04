"""Which sentences that a model writes are supported by a sentence of the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from chroma_eddy.words.terms import TermAnalyzer
from eddy_embed.text.sentences import Segmenter

_LANGUAGE = "en"  # as libraries of the demo have it
_SUPPORTED = 0.75
"""Least share of a written sentence's words, without stop words, in one sentence of the library."""
_TOLD = 0.2
"""Least share of them that the question does not have, or the sentence only restates it."""
_LOOP = 6
"""Number of words that a model repeats in order only when it goes round in circles."""


class Evidence:
    """The sentences found for a question, as grounds of what a model writes."""

    def __init__(self, question: str, sentences: Sequence[dict[str, Any]]) -> None:
        """`sentences` have a number `n` and a `text`."""
        self._segmenter, self._analyzer = Segmenter(_LANGUAGE), TermAnalyzer(_LANGUAGE)
        self._question = self._terms(question)
        self._sentences = {each["n"]: {term.text for term in self._analyzer(each["text"])} for each in sentences}

    def supporting(self, written: str) -> int | None:
        """The number of the sentence that supports a written one best; None if none does, or it says nothing new."""
        terms = self._terms(written)
        if not (terms and self._sentences) or len(terms - self._question) < _TOLD * len(terms):
            return None
        best = max(self._sentences, key=lambda number: len(terms & self._sentences[number]))
        return best if len(terms & self._sentences[best]) >= _SUPPORTED * len(terms) else None

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

    def _terms(self, text: str) -> set[str]:
        return set(self._analyzer.of_question(text))


def _loops(words: Sequence[str]) -> bool:
    """Whether the last words stand in the same order before."""
    last = words[-_LOOP:]
    return any(words[at : at + _LOOP] == last for at in range(len(words) - _LOOP))
