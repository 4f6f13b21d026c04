"""BM25 over the passages of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eddy_embed.errors import MissingExtra


class Bm25Index:
    """BM25 over texts (Lucene's variant, k1 = 1.5, b = 0.75), in memory."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str], language: str) -> None:
        """Count words.

        Args:
            ids: Of the texts.
            texts: What is searched.
            language: Of the texts; English stop words are left out.

        Raises:
            MissingExtra: bm25s is not installed.
        """
        try:
            import bm25s
        except ModuleNotFoundError:
            raise MissingExtra('bm25s is not installed; hybrid queries need pip install "eddy-embed[hybrid]"') from None
        self.ids = list(ids)
        self._stop = "en" if language == "en" else []
        self._index: Any = None
        self._split = bm25s.tokenize
        tokens = self._split(list(texts), stopwords=self._stop, show_progress=False)
        if any(len(each) for each in tokens.ids):
            self._index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
            self._index.index(tokens, show_progress=False)

    def rank(self, question: str, allowed: set[str] | None, most: int) -> list[str]:
        """Ids of the texts that share a word with a question, best first.

        Args:
            question: What is asked.
            allowed: Ids that may be given; None: all.
            most: How many are wanted.
        """
        words = self._split([question], stopwords=self._stop, show_progress=False, return_ids=False)[0]
        if self._index is None or not words:
            return []
        scores = self._index.get_scores(words)
        found: list[str] = []
        for at in np.argsort(-scores, kind="stable"):
            if scores[at] <= 0 or len(found) == most:
                break
            if allowed is None or self.ids[at] in allowed:
                found.append(self.ids[at])
        return found
