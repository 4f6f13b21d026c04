"""`EddyReranker`: a language model sorts LangChain's documents by how likely it finds the question after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field

from eddy_embed.integrations.shared import RerankerOwner
from langchain_eddy.embeddings import loaded_of

if TYPE_CHECKING:
    from typing_extensions import Self

SCORE = "relevance_score"
"""Metadata with the score, as LangChain's rerankers call it."""


class EddyReranker(RerankerOwner, BaseDocumentCompressor):
    """Sorts documents by the likelihood that a language model gives the question after each (`eddy_embed.Reranker`).

    For `ContextualCompressionRetriever`. The constructor loads the model, so a wrong name fails there; objects of equal
    settings share it within a process. Each document that is kept has its score in its metadata, as "relevance_score".

    Args:
        model: A name, a path, or a `Reranker`; a loaded model with `tokenizer=`.
        top_n: Most documents that are kept.
        seconds: Re-rank the first documents for so long; None: all. Those that were not read keep their order, at the
            end, without a score. Blank ones come last, with 0.
        **settings: The other arguments of `Reranker`.

    Raises:
        InvalidParameter: An argument is unknown or outside its range.
        ModelNotFound, UnsupportedModel: No such model, or one without a language-model head.
    """

    model_config = ConfigDict(protected_namespaces=(), arbitrary_types_allowed=True)

    top_n: int = Field(3, gt=0, description="Most documents that are kept.")

    @classmethod
    def from_llm(cls, llm: Any, **settings: Any) -> Self:
        """Re-rank with the loaded model of a `HuggingFacePipeline`, or of a `ChatHuggingFace` around one.

        Raises:
            InvalidParameter: The object holds no loaded model.
        """
        model, tokenizer = loaded_of(cls.__name__, llm)
        return cls.from_model(model, tokenizer, **settings)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the best documents for a question, best first, as copies with their scores."""
        if not documents:
            return []
        best, scores = self._ranked(query, [document.page_content for document in documents])
        return [_scored(documents[at], float(scores[at])) for at in best]


def _scored(document: Document, score: float) -> Document:
    more = {} if np.isnan(score) else {SCORE: score}
    return document.model_copy(update={"metadata": {**document.metadata, **more}})
