"""`EddyEmbedding`: a causal language model as LlamaIndex's embedding model, without training."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding, Embedding
from llama_index.core.bridge.pydantic import ConfigDict, Field, SerializationInfo, model_serializer
from llama_index.core.bridge.pydantic import SerializerFunctionWrapHandler as Handler
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR

from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations import (
    EmbedderOwner,
    check_kind,
    check_loaded,
    check_one,
    checked_text_list,
    contrast,
    filled,
    in_worker,
    live_error,
    page_name,
    warn_of_blank,
)
from llama_index.embeddings.eddy.arguments import resolve_arguments
from llama_index.embeddings.eddy.cache import RoleKeyedCache, query_role
from llama_index.embeddings.eddy.vector_metadata import KEYS, FingerprintedVector, has_vector_of

if TYPE_CHECKING:
    from typing_extensions import Self

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Aggregate = Callable[..., Embedding]


def _traced_by_base(method: _Method) -> _Method:
    """Mark a method whose base method, which it calls, already opens the instrumentation span."""
    setattr(method, DISPATCHER_SPAN_DECORATED_ATTR, True)
    return method


class EddyEmbedding(EmbedderOwner, BaseEmbedding):
    """Embeds queries, texts and nodes with a causal language model that was never trained to embed.

    The constructor loads the model, so a wrong name or method fails there. Objects of equal configuration share one
    loaded model within a process. A pickled copy carries only the configuration and loads the model on first use.

    As a pipeline transformation it keeps vectors of `LongDocumentNodeParser` made by the same embedder, and embeds the
    other nodes.

    Args:
        model_name: `"eddy-tiny"`, a path, a Hugging Face id, or another name for `Embedder`; `model` is an alias.
        method: How a text becomes a vector, such as `"htp"` or `"tp:prompt=prompteol"`; if left out, as is recommended
            for the model, and then the full text of that.
        embed_batch_size: Maximum number of texts in a call of the engine, 1 to 2,048.
        fitted: For a method with post-processing, the file that `Embedder.fit(texts).save(path)` wrote; or call `fit`.
        show_progress: Whether every call over a batch of texts shows a progress bar.
        num_workers: Maximum number of concurrent batches in `aget_text_embedding_batch`.
        embeddings_cache: A key-value store; queries, texts and different embedders have separate collections.
        callback_manager: LlamaIndex's callbacks.
        rate_limiter: LlamaIndex's limiter; a local model seldom needs one.
        **settings: The other parameters of `eddy_embed.Embedder`; a name that is none is refused.

    Raises:
        InvalidParameter: A parameter is unknown or outside its range.
        ModelNotFound: No such model.
        UnknownMethod: No such method.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=("pydantic_model_",), arbitrary_types_allowed=True)

    batch_size: ClassVar[None] = None  # type: ignore[misc]  # embed_batch_size has its place
    embed_batch_size: int = Field(default=64, gt=0, le=2048)
    # Excluded like callbacks: it changes no vector, and JSON cannot hold a store.
    embeddings_cache: Any | None = Field(default=None, exclude=True)

    def __init__(self, model_name: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._configure({"model_name": model_name, **settings})
        _ = self.embedder

    def _configure(self, values: dict[str, Any]) -> None:
        store = values.pop("embeddings_cache", None)
        super().__init__(**resolve_arguments(values, tuple(type(self).model_fields)))
        self.embeddings_cache = store

    @staticmethod
    def _text_of(document: Any) -> str:
        check_kind("library", document, BaseNode, "texts, or LlamaIndex's documents or nodes")
        text: str = document.get_content(metadata_mode=MetadataMode.NONE)
        return text

    @classmethod
    def from_llm(cls, llm: Any, *, method: str | None = None, **settings: Any) -> Self:
        """Embed with the loaded model of an LLM of LlamaIndex; see `from_model`.

        Args:
            llm: A `HuggingFaceLLM` (package llama-index-llms-huggingface); it may generate at the same time.
            method: How a text becomes a vector; None: as is recommended for the model.
            **settings: The other parameters of the class.

        Raises:
            InvalidParameter: The object holds no loaded model.
        """
        model, tokenizer = getattr(llm, "_model", None), getattr(llm, "_tokenizer", None)
        check_loaded("EddyEmbedding", llm, "HuggingFaceLLM", model, tokenizer)
        return cls.from_model(model, tokenizer, method=method, **settings)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "EddyEmbedding"

    # --- LlamaIndex's interface ---

    def _get_query_embedding(self, query: str) -> Embedding:
        check_one(query)
        vector: Embedding = self.embedder.encode_query(query, show_progress=False).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> Embedding:
        check_one(text)
        vector: Embedding = self.embedder.encode_document(*filled([text]), show_progress=False).tolist()
        return vector

    async def _aget_text_embedding(self, text: str) -> Embedding:
        return await asyncio.to_thread(self._get_text_embedding, text)

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        vectors: list[Embedding] = self.embedder.encode_document(filled(texts), show_progress=False).tolist()
        return vectors

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return await in_worker(self._get_text_embeddings, texts)

    @_traced_by_base
    def get_query_embedding(self, query: str) -> Embedding:
        """Embed a query, or take it from the cache; the vector has a `fingerprint`."""
        with query_role():
            return FingerprintedVector(super().get_query_embedding(query), self.fingerprint)

    @_traced_by_base
    async def aget_query_embedding(self, query: str) -> Embedding:
        """As `get_query_embedding`, in a thread."""
        with query_role():
            return FingerprintedVector(await super().aget_query_embedding(query), self.fingerprint)

    def get_agg_embedding_from_queries(self, queries: list[str], agg_fn: _Aggregate | None = None) -> Embedding:
        """Embed several queries as one vector, by default their mean; the vector has a `fingerprint`."""
        return FingerprintedVector(super().get_agg_embedding_from_queries(queries, agg_fn), self.fingerprint)

    async def aget_agg_embedding_from_queries(self, queries: list[str], agg_fn: _Aggregate | None = None) -> Embedding:
        """As `get_agg_embedding_from_queries`, in a thread."""
        vector = await super().aget_agg_embedding_from_queries(queries, agg_fn)
        return FingerprintedVector(vector, self.fingerprint)

    @_traced_by_base
    def get_text_embedding_batch(self, texts: list[str], show_progress: bool = False, **kwargs: Any) -> list[Embedding]:
        """Embed texts in batches of `embed_batch_size`; a blank text has the vector of a full stop."""
        given = checked_text_list(texts, blank=True)
        return super().get_text_embedding_batch(given, show_progress or self.show_progress, **kwargs)

    @_traced_by_base
    async def aget_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **kwargs: Any
    ) -> list[Embedding]:
        """Embed texts in batches of `embed_batch_size`, in threads."""
        return await super().aget_text_embedding_batch(
            checked_text_list(texts, blank=True), show_progress or self.show_progress, **kwargs
        )

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Embed every node without a vector of this embedder; blank nodes are left out, and named in a warning."""
        kept = nodes_with_text(nodes)
        super().__call__(self._without_vector(kept), **kwargs)
        return kept

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """As a call, in threads."""
        kept = nodes_with_text(nodes)
        rest = await asyncio.to_thread(self._without_vector, kept)
        await super().acall(rest, **kwargs)
        return kept

    def _without_vector(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        fingerprint = self.fingerprint
        rest = [node for node in nodes if not has_vector_of(node, fingerprint)]
        for node in rest:
            for key in KEYS:
                node.metadata.pop(key, None)
        return rest

    # --- serialization: the configuration without the weights ---

    def to_payload(self) -> dict[str, Any]:
        """Data for instrumentation events."""
        return {**super().to_payload(), "method": self.method}

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: Handler, info: SerializationInfo) -> dict[str, Any]:
        """The fields and the fingerprint; the ingestion cache hashes them, and a model's folder may change."""
        data: dict[str, Any] = handler(self)
        data.update(class_name=self.class_name(), fingerprint=self.fingerprint)
        if self._live is not None or self._fitted_here:
            data["live_model"] = True
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> Self:
        """Rebuild from `to_dict()`, with `kwargs` in place of the dictionary's values.

        Raises:
            InvalidParameter: The dictionary describes a live model.
            FingerprintMismatch: The configuration is the same, but the model behind it gives other vectors now.
        """
        check_kind("data", data, Mapping, "a dictionary that to_dict() made")
        values = {k: v for k, v in {**data, **kwargs}.items() if k not in ("class_name", "fingerprint")}
        if values.pop("live_model", False):
            raise InvalidParameter(live_error("EddyEmbedding", str(data.get("model_name"))))
        self = cls(**values)
        saved = data.get("fingerprint")
        if saved is not None and not kwargs and saved != self.fingerprint:
            raise FingerprintMismatch(
                f"The configuration was {contrast(data, vars(self))}.\nIts fingerprint was {saved} and is "
                f"{self.fingerprint} now. Embed the texts again, or drop 'fingerprint' from the dictionary."
            )
        return self

    def _state(self) -> dict[str, Any]:
        # Callbacks and limiters belong to this process.
        names = set(type(self).model_fields) - {"callback_manager", "rate_limiter"}
        cache = self.embeddings_cache
        return {k: getattr(self, k) for k in names} | {"embeddings_cache": cache.store if cache else None}

    def _twin(self, state: dict[str, Any]) -> Self:
        process = {"callback_manager": self.callback_manager, "rate_limiter": self.rate_limiter}
        return super()._twin({**state, **process})

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "embeddings_cache" and value is not None and not isinstance(value, RoleKeyedCache):
            value = RoleKeyedCache(value, self)
        super().__setattr__(name, value)


def nodes_with_text(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """The nodes that are not blank; a warning names the others, with file and page."""
    for index, node in enumerate(nodes):
        check_kind(f"nodes[{index}]", node, BaseNode, "one of LlamaIndex's nodes or documents")
    texts = [node.get_content(metadata_mode=MetadataMode.NONE).strip() for node in nodes]
    blank = compress(nodes, [not text for text in texts])
    warn_of_blank([page_name(node.metadata) or repr(node.node_id) for node in blank], len(nodes), "vector", "nodes")
    return list(compress(nodes, texts))


def resolve_embed_model(value: EddyEmbedding | Mapping[str, Any] | None, reason: str) -> EddyEmbedding:
    """The model, or that of its parameters; None for `Settings.embed_model`; `reason` says what needs it."""
    if isinstance(value, Mapping):
        return EddyEmbedding.from_dict(value)
    try:
        model = value if value is not None else Settings.embed_model
    except (ImportError, ValueError) as error:  # from LlamaIndex's default, OpenAI's model
        raise InvalidParameter(
            "embed_model is missing, and Settings.embed_model is not set; give "
            "embed_model=EddyEmbedding(model_name=...)."
        ) from error
    if not isinstance(model, EddyEmbedding):
        raise InvalidParameter(
            f"embed_model is a {type(model).__name__}; {reason} an EddyEmbedding: give "
            "embed_model=EddyEmbedding(model_name=...)."
        )
    return model
