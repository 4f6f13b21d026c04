"""`EddyRerank`: a causal language model sorts LlamaIndex's nodes by how likely it finds the question after each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.bridge.pydantic import ConfigDict, Field, SerializationInfo, model_serializer
from llama_index.core.bridge.pydantic import SerializerFunctionWrapHandler as Handler
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.settings import check_loaded
from eddy_embed.integrations.shared import RerankerOwner, live_error

if TYPE_CHECKING:
    from typing_extensions import Self

RETRIEVAL_SCORE = "retrieval_score"
"""Metadata with the score before, as `SentenceTransformerRerank` calls it."""


class EddyRerank(RerankerOwner, BaseNodePostprocessor):
    """Sorts nodes by the likelihood that a causal language model gives the question after each (`eddy_embed.Reranker`).

    The constructor loads the model, so a wrong name fails there; objects of equal settings share it within a process.

    Args:
        model: A name, a path, or a `Reranker`; a loaded model with `tokenizer=`.
        top_n: Most nodes that are kept.
        keep_retrieval_score: Put the score before into the metadata, as "retrieval_score".
        seconds: Re-rank the first nodes for so long; None: all. Those that were not read keep their order, at the end,
            without a score. Blank ones come last, with 0.
        **settings: The other arguments of `Reranker`.

    Raises:
        InvalidParameter: An argument is unknown or outside its range.
        ModelNotFound, UnsupportedModel: No such model, or one without a language-model head.
    """

    model_config = ConfigDict(protected_namespaces=("pydantic_model_",), arbitrary_types_allowed=True)

    top_n: int = Field(default=2, gt=0, description="Most nodes that are kept.")
    keep_retrieval_score: bool = Field(default=False, description="Put the score before into the metadata.")

    @classmethod
    def from_llm(cls, llm: Any, **settings: Any) -> Self:
        """Re-rank with the loaded model of an LLM of LlamaIndex, a `HuggingFaceLLM`; it may generate at the same time.

        Raises:
            InvalidParameter: The object holds no loaded model.
        """
        model, tokenizer = getattr(llm, "_model", None), getattr(llm, "_tokenizer", None)
        check_loaded("EddyRerank", llm, "HuggingFaceLLM", model, tokenizer)
        return cls.from_model(model, tokenizer, **settings)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "EddyRerank"

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: Handler, info: SerializationInfo) -> dict[str, Any]:
        """Return the fields, and whether they are those of a live model."""
        live = {"live_model": True} if self._live else {}
        return {**handler(self), "class_name": self.class_name(), **live}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> Self:
        """Rebuild from `to_dict()`, with `kwargs` in place of the dictionary's values.

        Raises:
            InvalidParameter: The dictionary describes a live model.
        """
        values = {**data, **kwargs}
        if values.pop("live_model", False):
            raise InvalidParameter(live_error("EddyRerank", str(data.get("model")), "model"))
        values.pop("class_name", None)
        return cls(**values)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InvalidParameter("EddyRerank ranks nodes for a question: pass query_str= or query_bundle=")
        if not nodes:
            return []
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: self.model,
            EventPayload.QUERY_STR: query_bundle.query_str,
            EventPayload.TOP_K: self.top_n,
        }
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            texts = [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
            best, scores = self._ranked(query_bundle.query_str, texts)
            reranked = []
            for at in best:
                node = nodes[at]
                if self.keep_retrieval_score:
                    node.node.metadata[RETRIEVAL_SCORE] = node.score
                node.score = None if np.isnan(scores[at]) else float(scores[at])
                reranked.append(node)
            event.on_end(payload={EventPayload.NODES: reranked})
        return reranked
