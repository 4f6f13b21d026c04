"""`EddyEmbeddings`: a causal language model as LangChain's embeddings, without training."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from eddy_embed.engines import Holder, in_worker
from eddy_embed.errors import EddyError
from eddy_embed.inputs import check_one, several
from langchain_eddy.arguments import checked, parts_of

if TYPE_CHECKING:
    from typing_extensions import Self


class EddyEmbeddings(Holder, BaseModel, Embeddings):
    """Embeds queries and documents with a causal language model that was never trained to embed.

    The model is loaded when the object is made, so that a wrong name or method fails there. Objects of equal
    configuration share one loaded model within a process. A pickled copy carries the configuration only and loads
    the model again on first use.

    Texts are embedded as they are, line breaks included.

    Attributes:
        model_name: `"eddy-tiny"` (bundled), a Hugging Face id or a path. `model` is another name for it.
        method: How a text becomes a vector, such as `"htp"`, `"plain:pool=mean"` or `"tp:prompt=prompteol"`.
        max_length: Most tokens in one pass; None: the model's window.
        overflow: What happens to a longer text: `"window"` reads all of it in overlapping windows, `"error"` refuses
            it, `"truncate"` cuts and counts.
        query_instruction: Stands before every query.
        text_instruction: Stands before every document.
        normalize: Whether vectors have length 1. Also as `encode_kwargs={"normalize_embeddings": ...}`.
        batch_size: Most texts in one forward pass. Also as `encode_kwargs={"batch_size": ...}`.
        batch_tokens: Most tokens in one forward pass; None: the engine's choice.
        post: For a method with post-processing, the file that `Embedder.fit(texts).save(path)` wrote.
        device: Such as `"cpu"` or `"cuda:1"`; None: the best one present. Also as an entry of `model_kwargs`, like
            `dtype`, `revision`, `trust_remote_code` and `local_files_only`.
        dtype: `"auto"`, `"float32"`, `"bfloat16"` or `"float16"`.
        language: Language of the sentence rules.
        revision: Revision of a model on the Hugging Face hub.
        cache_folder: Where downloaded models are kept.
        trust_remote_code: Whether code that comes with the model may run.
        local_files_only: Never ask the hub.
        model_kwargs: Further arguments of `from_pretrained`.
        compile: Whether layers run as torch.compile makes them, on a processor.
        show_progress: A progress bar over documents; never over a query.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_name: str
    method: str
    max_length: int | None = Field(default=None, gt=0)
    overflow: Literal["window", "error", "truncate"] = "window"
    query_instruction: str | None = None
    text_instruction: str | None = None
    normalize: bool = True
    post: str | None = None
    batch_size: int | None = Field(default=None, gt=0)
    batch_tokens: int | None = Field(default=None, gt=0)
    device: str | None = None
    dtype: str = "auto"
    language: str = "en"
    revision: str | None = None
    cache_folder: str | None = None
    trust_remote_code: bool = False
    local_files_only: bool = False
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    compile: bool = False
    show_progress: bool = False

    _engine: Any = PrivateAttr(default=None)
    _engine_key: str = PrivateAttr(default="")
    _live: Any = PrivateAttr(default=None)

    def __init__(self, **settings: Any) -> None:
        """Load the model.

        Args:
            **settings: The attributes of the class, and the names that `HuggingFaceEmbeddings` has for them.

        Raises:
            InvalidParameter: An unknown parameter, or one outside its range.
            ModelNotFound: No such model.
            UnknownMethod: No such method.
        """
        self._configure(settings)
        _ = self.embedder

    def _configure(self, values: dict[str, Any]) -> None:
        super().__init__(**checked(values, tuple(type(self).model_fields)))

    @classmethod
    def from_llm(cls, llm: Any, *, method: str, **settings: Any) -> Self:
        """Embed with the model that an LLM of LangChain has loaded: one set of weights answers and embeds.

        As `from_model` otherwise.

        Args:
            llm: A `HuggingFacePipeline`, or a `ChatHuggingFace` around one (package langchain-huggingface); it may go
                on generating meanwhile.
            method: How a text becomes a vector.
            **settings: The other parameters of the class.

        Raises:
            InvalidParameter: The object holds no loaded model.
        """
        return cls.from_model(*parts_of(llm), method=method, **settings)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents.

        Args:
            texts: The documents, in a list; none may be blank.

        Returns:
            One vector for each, in their order.
        """
        vectors: list[list[float]] = self.embedder.encode_document(
            several(texts), show_progress=self.show_progress
        ).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query.

        Args:
            text: The query; not blank.
        """
        check_one(text)
        vector: list[float] = self.embedder.encode_query(text, show_progress=False).tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents in a thread, one call after the other; the event loop goes on."""
        return await in_worker(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query in a thread; the event loop goes on."""
        return await asyncio.to_thread(self.embed_query, text)

    def __getstate__(self) -> dict[Any, Any]:
        if self._live is not None:
            raise EddyError(
                f"{self.model_name!r} is a live model: it cannot be copied to another process. Name the model instead, "
                "EddyEmbeddings(model_name=..., method=...), or call EddyEmbeddings.from_model in the other process."
            )
        return self._state()

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}
