"""`EddyEmbeddings`: a causal language model as LangChain's embeddings, without training."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from eddy_embed.integrations import (
    EmbedderOwner,
    check_kind,
    check_one,
    checked_text_list,
    filled,
    in_worker,
)
from langchain_eddy.arguments import loaded_of, resolve_arguments

if TYPE_CHECKING:
    from typing_extensions import Self


class EddyEmbeddings(EmbedderOwner, Embeddings):
    """Embeds queries and documents with a causal language model that was never trained to embed.

    The constructor loads the model, so a wrong name or method fails there. Objects of equal configuration share one
    loaded model within a process. A pickled copy carries only the configuration and loads the model on first use.

    Line breaks in texts are kept.

    Attributes:
        model_name: `"eddy-tiny"`, a path, a Hugging Face id, or another name for `Embedder`; `model` is an alias.
        method: How a text becomes a vector, such as `"htp"` or `"tp:prompt=prompteol"`; if left out, as is recommended
            for the model, and then the full text of that.
        normalize: Whether vectors have length 1. Also as `encode_kwargs={"normalize_embeddings": ...}`.
        batch_size: Maximum number of texts in one forward pass. Also as `encode_kwargs={"batch_size": ...}`.
        fitted: For a method with post-processing, the file that `Embedder.fit(texts).save(path)` wrote; or call `fit`.
        device: Such as `"cpu"` or `"cuda:1"`; None for the best one available. Also as an entry of `model_kwargs`, like
            `dtype`, `revision`, `trust_remote_code` and `local_files_only`.
        model_kwargs: Further arguments of `from_pretrained`.
        show_progress: Whether to show a progress bar over documents; there is none over a query.

    The other attributes are those of `eddy_embed.Embedder`.
    """

    def __init__(self, **settings: Any) -> None:
        """Load the model.

        Args:
            **settings: The attributes of the class, also by the names of `HuggingFaceEmbeddings`.

        Raises:
            InvalidParameter: A parameter is unknown or outside its range.
            ModelNotFound: No such model.
            UnknownMethod: No such method.
        """
        self._configure(settings)
        _ = self.embedder

    def _configure(self, values: dict[str, Any]) -> None:
        super().__init__(**resolve_arguments(values, tuple(type(self).model_fields)))

    @staticmethod
    def _text_of(document: Any) -> str:
        check_kind("library", document, Document, "texts, or LangChain's documents")
        text: str = document.page_content
        return text

    @classmethod
    def from_llm(cls, llm: Any, *, method: str | None = None, **settings: Any) -> Self:
        """Embed with the loaded model of an LLM of LangChain; see `from_model`.

        Args:
            llm: A `HuggingFacePipeline`, or a `ChatHuggingFace` around one (package langchain-huggingface); it may
                generate at the same time.
            method: How a text becomes a vector; None: as is recommended for the model.
            **settings: The other parameters of the class.

        Raises:
            InvalidParameter: The object holds no loaded model.
        """
        model, tokenizer = loaded_of("EddyEmbeddings", llm)
        return cls.from_model(model, tokenizer, method=method, **settings)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents; return a vector for each, in their order, for a blank one that of a full stop."""
        vectors: list[list[float]] = self.embedder.encode_document(
            filled(checked_text_list(texts, blank=True)), show_progress=self.show_progress
        ).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query that is not blank."""
        check_one(text)
        vector: list[float] = self.embedder.encode_query(text, show_progress=False).tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As `embed_documents`, in a thread, one call after the other."""
        return await in_worker(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """As `embed_query`, in a thread."""
        return await asyncio.to_thread(self.embed_query, text)

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}
