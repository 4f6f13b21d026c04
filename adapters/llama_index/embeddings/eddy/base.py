"""`EddyEmbedding`: a causal language model as LlamaIndex's embedding model, without training."""

from __future__ import annotations

import asyncio
import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding, Embedding
from llama_index.core.bridge.pydantic import ConfigDict, Field, SerializationInfo, model_serializer
from llama_index.core.bridge.pydantic import SerializerFunctionWrapHandler as Handler
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.storage.kvstore.types import BaseKVStore
from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR

from eddy_embed.encoding.validation import checked_text_list, refuse_unknown
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import (
    FINGERPRINT,
    N_TOKENS,
    N_TRUNCATED,
    N_WINDOWS,
    filled,
    page_name,
    warn_of_blank,
)
from eddy_embed.integrations.settings import check_loaded, put
from eddy_embed.integrations.shared import EmbedderOwner, in_worker, live_error
from eddy_embed.utils.settings import contrast

if TYPE_CHECKING:
    from typing_extensions import Self

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Aggregate = Callable[..., Embedding]

TEXT_DIGEST = "eddy_text_digest"
KEYS = (FINGERPRINT, TEXT_DIGEST, N_TOKENS, N_WINDOWS, N_TRUNCATED)
PART = "eddy_part"
"""Part of the document that a node is: document, passages or sentences; independent of the vector."""
# Parameters of HuggingFaceEmbedding without a counterpart, and what to use instead.
_HINTS = {
    "pooling": "pooling is part of the method, such as method='plain:pool=last'",
    "parallel_process": "use IngestionPipeline.run(num_workers=...), which loads the model once in each worker",
    "target_devices": "name one device=, and run one worker for each device",
    "backend": "models run on torch",
    "prompts": "use query_instruction= and text_instruction=",
    "default_prompt_name": "use query_instruction= and text_instruction=",
    "truncate_dim": "join it to the method, as in method='htp+truncate:dims=256'",
    "token": "log in to the hub, or set HF_TOKEN",
    "tokenizer": "the model's own tokenizer is used; EddyEmbedding.from_model takes another",
    "tokenizer_name": "the model's own tokenizer is used; EddyEmbedding.from_model takes another",
}
# The base class looks up queries and texts by the same key; this says which of the two it embeds.
_role: ContextVar[str] = ContextVar("eddy_embedding_role", default="document")


@contextmanager
def _query_role() -> Iterator[None]:
    """Look up queries, not texts, inside this block."""
    token = _role.set("query")
    try:
        yield
    finally:
        _role.reset(token)


class _RoleKeyedCache:
    """The user's store, with a collection for each role and embedder; the base class asks for these methods alone.

    The owner's fingerprint is part of each collection's name, so that only an embedder that would compute the same
    vector gets a stored one.
    """

    def __init__(self, store: BaseKVStore, owner: EmbedderOwner) -> None:
        self.store = store
        # Weak: a cycle would keep the model's weights in memory until the next full garbage collection.
        self._owner = weakref.ref(owner)

    def _collection(self, collection: str) -> str:
        owner = self._owner()
        if owner is None:
            raise ReferenceError("The embedding object of this cache is gone; use the store itself: cache.store")
        return f"{collection}/{_role.get()}/{owner.fingerprint}"

    def put(self, key: str, val: dict[str, Any], collection: str) -> None:
        self.store.put(key, val, collection=self._collection(collection))

    async def aput(self, key: str, val: dict[str, Any], collection: str) -> None:
        await self.store.aput(key, val, collection=self._collection(collection))

    def get(self, key: str, collection: str) -> dict[str, Any] | None:
        return self.store.get(key, collection=self._collection(collection))

    async def aget(self, key: str, collection: str) -> dict[str, Any] | None:
        return await self.store.aget(key, collection=self._collection(collection))


class FingerprintedVector(list[float]):
    """A list of numbers that knows its embedder, by its fingerprint."""

    def __init__(self, values: Iterable[float], fingerprint: str) -> None:
        super().__init__(values)
        self.fingerprint = fingerprint

    def __reduce__(self) -> Any:
        return FingerprintedVector, (list(self), self.fingerprint)


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
        if values.pop("show_progress_bar", False):
            values["show_progress"] = True
        if (alias := values.pop("model", None)) is not None:
            put(values, "model_name", alias, "model")
        refuse_unknown("EddyEmbedding", values, type(self).model_fields, _HINTS)
        super().__init__(**values)
        self.embeddings_cache = self.embeddings_cache  # wraps it

    @staticmethod
    def _text_of(document: Any) -> str:
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
        vector: Embedding = self.embedder.encode_query([query], show_progress=False)[0].tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._get_text_embeddings([text])[0]

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
        with _query_role():
            return FingerprintedVector(super().get_query_embedding(query), self.fingerprint)

    @_traced_by_base
    async def aget_query_embedding(self, query: str) -> Embedding:
        """As `get_query_embedding`, in a thread."""
        with _query_role():
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
        checked = checked_text_list(texts, blank=True)
        return super().get_text_embedding_batch(checked, show_progress or self.show_progress, **kwargs)

    @_traced_by_base
    async def aget_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **kwargs: Any
    ) -> list[Embedding]:
        """Embed texts in batches of `embed_batch_size`, in threads."""
        checked = checked_text_list(texts, blank=True)
        return await super().aget_text_embedding_batch(checked, show_progress or self.show_progress, **kwargs)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Embed every node without a vector of this embedder; blank nodes are left out, and named in a warning."""
        whole = nodes_with_text(nodes)
        super().__call__(self._without_vector(whole), **kwargs)
        return whole

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """As a call, in threads."""
        whole = nodes_with_text(nodes)
        await super().acall(await asyncio.to_thread(self._without_vector, whole), **kwargs)
        return whole

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
        """Return the fields and the fingerprint; the ingestion cache hashes them, and a model's folder may change."""
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
        if name == "embeddings_cache" and value is not None and not isinstance(value, _RoleKeyedCache):
            value = _RoleKeyedCache(value, self)
        super().__setattr__(name, value)


def text_digest(text: str) -> str:
    """Hash of the text of a vector: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def has_vector_of(node: BaseNode, fingerprint: str) -> bool:
    """Return whether the embedder of this fingerprint made the node's embedding from the node's current text.

    The fingerprint alone proves nothing: a later splitter copies the embedding and metadata of a node to its pieces.
    """
    return (
        node.embedding is not None
        and node.metadata.get(FINGERPRINT) == fingerprint
        and node.metadata.get(TEXT_DIGEST) == text_digest(node.get_content(metadata_mode=MetadataMode.NONE))
    )


def nodes_with_text(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return the nodes that are not blank; a warning names the others, with file and page."""
    texts = [node.get_content(metadata_mode=MetadataMode.NONE).strip() for node in nodes]
    blank = compress(nodes, [not text for text in texts])
    warn_of_blank([page_name(node.metadata) or repr(node.node_id) for node in blank], len(nodes), "vector", "nodes")
    return list(compress(nodes, texts))


def resolve_embed_model(value: EddyEmbedding | Mapping[str, Any] | None, reason: str) -> EddyEmbedding:
    """Return the model, or that of its parameters; None for `Settings.embed_model`; `reason` says what needs it."""
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
