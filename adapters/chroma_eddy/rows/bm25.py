"""BM25 over the passages of an index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Any

import numpy as np

from eddy_embed.errors import MissingExtra
from eddy_embed.utils.arrays import Doubles


class Bm25Index:
    """BM25 over texts (Lucene's variant, k1 = 1.5, b = 0.75), in memory."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str], language: str) -> None:
        """Count the words; leave out stop words of an English `language`; MissingExtra if bm25s is not installed."""
        try:
            import bm25s
        except ModuleNotFoundError:
            raise MissingExtra('bm25s is not installed; hybrid queries need pip install "eddy-embed[hybrid]"') from None
        self.ids, self._tokenize = ids, bm25s.tokenize
        self.rows = {id_: row for row, id_ in enumerate(ids)}
        self._stop_words = "en" if language == "en" else []
        self._index: Any = None
        tokens = self._tokenize(list(texts), stopwords=self._stop_words, show_progress=False)
        if any(len(words) for words in tokens.ids):
            self._index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
            self._index.index(tokens, show_progress=False)

    def scores(self, question: str) -> Doubles:
        """BM25 of each text for a question, shape (texts,); 0 for a text that shares no word with it."""
        words = self._tokenize([question], stopwords=self._stop_words, show_progress=False, return_ids=False)[0]
        if self._index is None or not words:
            return np.zeros(len(self.ids))
        return np.asarray(self._index.get_scores(words), np.float64)

    def rank(self, question: str, allowed: set[str] | None, most: int) -> list[str]:
        """Ids of at most `most` texts, among all or the `allowed`, that share a word with a question, best first."""
        return self.best(self.scores(question), allowed, most)

    def best(self, scores: Doubles, allowed: set[str] | None, most: int) -> list[str]:
        """The same by scores that are there already, shape (texts,)."""
        matching = takewhile(lambda number: scores[number] > 0, np.argsort(-scores, kind="stable"))
        ids = (self.ids[number] for number in matching)
        return list(islice((id_ for id_ in ids if allowed is None or id_ in allowed), most))
