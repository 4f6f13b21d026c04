"""What needs no language model: shared words, and BM25."""

from __future__ import annotations

import re

import numpy as np

from eddy_embed.analysis.evaluate.tasks import Pairs, Retrieval
from eddy_embed.utils.arrays import Doubles


def overlap(task: Pairs) -> Doubles:
    """Jaccard overlap of the lower-cased words of each pair, shape (pairs,)."""
    sets = [[set(re.findall(r"\w+", text.lower())) for text in side] for side in (task.first, task.second)]
    return np.array([len(a & b) / max(len(a | b), 1) for a, b in zip(*sets, strict=True)])


def bm25(task: Retrieval) -> Doubles:
    """BM25 of every document for every query, shape (queries, documents).

    Lucene's variant with k1 = 1.5 and b = 0.75, English stop words left out, words not stemmed.
    """
    import bm25s

    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(bm25s.tokenize(task.texts, stopwords="en", show_progress=False), show_progress=False)
    queries = bm25s.tokenize(task.queries, stopwords="en", show_progress=False, return_ids=False)
    return np.stack([index.get_scores(words) for words in queries]).astype(np.float64)
