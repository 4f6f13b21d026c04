"""Hits sorted anew by what a language model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.options import RERANK_FROM, Query
from chroma_eddy.types import Hit
from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.shared import open_reranker

if TYPE_CHECKING:
    from eddy_embed import Reranker  # imports torch


def reranker_of(index: IndexCore, given: Any) -> Reranker | None:
    """The reranker that a query asks for: True is the model of the index, which stays loaded as long as that is open.

    Raises:
        InvalidParameter: It is none, or the index shares a loaded model, which has no name to open it by.
        UnsupportedModel: The model of the index has no language-model head, such as an encoder.
    """
    if given is False:
        return None
    from eddy_embed import Reranker

    check_kind("rerank", given, bool | Reranker, "True, False or a Reranker")
    if given is not True:
        own: Reranker = given
        return own
    if index.embedder.shares_model:
        raise InvalidParameter(
            "rerank=True opens the index's model by its name, and this index shares a loaded one: pass "
            "rerank=Reranker(model, tokenizer=tokenizer), which shares it too"
        )
    index.reranker = open_reranker(index.embedder.model_name, device=index.embedder.device)
    return index.reranker


def reranked(question: str, hits: Sequence[Hit], query: Query) -> list[Hit]:
    """The best hits by score and likelihood together; that of a passage that is not judged counts as the mean.

    The first `rerank_from` are judged, or those of them that `rerank_seconds` leaves time for.
    """
    if query.rerank is None or not hits:
        return list(hits)
    judged = hits[: query.rerank_from or RERANK_FROM]
    # After the headings above them, as they were embedded.
    texts = [f"{hit.headings}\n{hit.text}" if hit.headings else hit.text for hit in judged]
    found = query.rerank.scores(
        question, texts, seconds=query.rerank_seconds, show_progress=False, progress=query.progress
    )
    shown = [None if np.isnan(score) else float(score) for score in query.rerank.rerank_scores(found)]
    shown += [None] * (len(hits) - len(judged))
    joined = query.rerank.joined(np.array([hit.score for hit in hits]), found)
    order = np.argsort(-joined, kind="stable")[: query.k].tolist()
    return [replace(hits[at], score=float(joined[at]), rerank_score=shown[at]) for at in order]
