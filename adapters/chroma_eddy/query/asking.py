"""A question by its text: embedded, perhaps together with a passage that might answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.errors import IndexInUse
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.options import Query
from chroma_eddy.query.reranking import reranker_of
from chroma_eddy.query.search import search
from chroma_eddy.types import Hit
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations import Doubles, unit

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

OWN = 0.7
"""Weight of a question's own vector beside that of a passage that might answer it."""


def ask(index: IndexCore, question: str, query: Query, expand: Any = None) -> list[Hit]:
    """Find a question's hits, best first; another process may make the index anew meanwhile.

    With `expand="answer"`, the model that judges, or else that of the index, writes a passage that might answer, and
    the vectors of both are averaged.

    Raises:
        InvalidParameter: `expand` is anything else, or the model of the index has no name to open it by.
        IndexInUse: The index is made anew all the time.
    """
    if expand not in (None, "answer"):
        raise InvalidParameter(f'expand={expand!r:.80} is unknown; choose "answer", or None for the question alone')
    writer = None if expand is None else query.rerank or reranker_of(index, True)
    written = "" if writer is None else writer.write(question)
    for _ in range(2):
        embedder = index.embedder
        try:
            return search(index, _vector(embedder, question, written), [question], query, embedder.fingerprint)[0]
        except FingerprintMismatch:
            if index.embedder.fingerprint == embedder.fingerprint:
                raise
    raise IndexInUse(f"index {index.name!r} is being made anew all the time: ask again")  # in other threads


def _vector(embedder: Embedder, question: str, written: str) -> Doubles:
    """The question's vector, with what is written, if anything is, shape (1, dimension).

    Both are encoded as questions: as a document, what is written gained nothing on the manuals.
    """
    own = embedder.encode_query([question, written] if written else [question], show_progress=False).astype(np.float64)
    return own if len(own) == 1 else np.array([OWN, 1 - OWN]) @ unit(own)[None]
