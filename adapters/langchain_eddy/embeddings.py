"""`EddyEmbeddings`: a causal language model as LangChain's embeddings, without training."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from eddy_embed.encoding.validation import checked_text_list, refuse_unknown, torch_name
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import filled
from eddy_embed.integrations.settings import check_loaded, put
from eddy_embed.integrations.shared import EmbedderOwner, in_worker

if TYPE_CHECKING:
    from typing_extensions import Self

# Entries of encode_kwargs, and their parameters here.
_ENCODE = {"batch_size": "batch_size", "normalize_embeddings": "normalize", "show_progress_bar": "show_progress"}
# Entries of model_kwargs that are parameters here; the others go to from_pretrained.
_MODEL = {
    **{"device": "device", "trust_remote_code": "trust_remote_code", "revision": "revision", "dtype": "dtype"},
    **{"local_files_only": "local_files_only", "cache_folder": "cache_folder", "torch_dtype": "dtype"},
}
# What HuggingFaceEmbeddings and its encode_kwargs and model_kwargs have besides, and what to use instead.
_HINTS = {
    **dict.fromkeys(("prompt", "prompts"), "use text_instruction= and query_instruction="),
    **dict.fromkeys(("prompt_name", "default_prompt_name"), "use text_instruction= and query_instruction="),
    **dict.fromkeys(("convert_to_numpy", "convert_to_tensor", "precision"), "vectors are lists of floats"),
    **dict.fromkeys(("tokenizer_kwargs", "processor_kwargs"), "EddyEmbeddings.from_model takes another tokenizer"),
    "query_encode_kwargs": "use query_instruction= for what stands before a query",
    "target_devices": "name one device=, and run one process for each device",
    "multi_process": "run several processes over parts of the documents, each with its own EddyEmbeddings",
    "truncate_dim": "join it to the method, as in method='htp+truncate:dims=256'",
    "similarity_fn_name": "the product of two vectors is their cosine",
    "backend": "models run on torch",
}


def loaded_of(owner: str, llm: Any) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a `HuggingFacePipeline` or a `ChatHuggingFace`, for a class of ours."""
    pipeline = getattr(getattr(llm, "llm", llm), "pipeline", None)
    model, tokenizer = getattr(pipeline, "model", None), getattr(pipeline, "tokenizer", None)
    check_loaded(owner, llm, "HuggingFacePipeline", model, tokenizer)
    return model, tokenizer


def _resolve(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by the names here, of those that are also known by the names of `HuggingFaceEmbeddings`."""
    values = dict(arguments)
    encode, model = (dict(values.pop(name, None) or {}) for name in ("encode_kwargs", "model_kwargs"))
    model.update(model.pop("model_kwargs", None) or {})  # HuggingFaceEmbeddings has another one for from_pretrained
    if not values.get("multi_process"):
        values.pop("multi_process", None)
    if model.get("backend") == "torch":
        del model["backend"]
    refuse_unknown("encode_kwargs", encode, _ENCODE, _HINTS)
    for name in model.keys() & _HINTS.keys():
        raise InvalidParameter(f"model_kwargs has no entry {name!r} (given: {model[name]!r}); {_HINTS[name]}")
    renamed = [(_ENCODE[name], name, value) for name, value in encode.items()]
    renamed += [(_MODEL[name], name, torch_name(model.pop(name))) for name in _MODEL if name in model]
    renamed += [("model_name", "model", values.pop("model"))] if values.get("model") is not None else []
    for ours, theirs, value in renamed:
        put(values, ours, value, theirs)
    values.pop("model", None)
    return {**values, "model_kwargs": model}


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
        resolved = _resolve(values)
        refuse_unknown("EddyEmbeddings", resolved, type(self).model_fields, _HINTS)
        super().__init__(**resolved)

    @staticmethod
    def _text_of(document: Any) -> str:
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
        vector: list[float] = self.embedder.encode_query([text], show_progress=False)[0].tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As `embed_documents`, in a thread, one call after the other."""
        return await in_worker(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """As `embed_query`, in a thread."""
        return await asyncio.to_thread(self.embed_query, text)
