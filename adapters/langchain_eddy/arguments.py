"""Constructor arguments of `EddyEmbeddings`, also by the names of LangChain's other embedding classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.arguments import plain, put, refuse_unknown

# Parameters of HuggingFaceEmbeddings without a counterpart, and what to use instead.
_HINTS = {
    "query_encode_kwargs": "use query_instruction= for what stands before a query",
    "target_devices": "name one device=, and run one process for each device",
    "tokenizer_kwargs": "the model's own tokenizer is used; EddyEmbeddings.from_model takes another",
}
# Entries of encode_kwargs and their parameters.
_ENCODE = {"batch_size": "batch_size", "normalize_embeddings": "normalize", "show_progress_bar": "show_progress"}
_ENCODE_HINTS = {
    "prompt": "use text_instruction= and query_instruction=",
    "prompt_name": "use text_instruction= and query_instruction=",
    "convert_to_numpy": "vectors are lists of floats, as LangChain asks",
    "convert_to_tensor": "vectors are lists of floats, as LangChain asks",
    "device": "use device=",
    "precision": "vectors are lists of floats, as LangChain asks",
    "truncate_dim": "join it to the method, as in method='htp+truncate:dims=256'",
}
# Entries of model_kwargs for sentence-transformers that from_pretrained does not have.
_MODEL_HINTS = {
    "prompts": "use query_instruction= and text_instruction=",
    "default_prompt_name": "use query_instruction= and text_instruction=",
    "truncate_dim": _ENCODE_HINTS["truncate_dim"],
    "similarity_fn_name": "the product of two vectors is their cosine",
    "tokenizer_kwargs": _HINTS["tokenizer_kwargs"],
    "processor_kwargs": _HINTS["tokenizer_kwargs"],
}
# Entries of model_kwargs that are parameters here; the others go to from_pretrained.
_MODEL = {
    "device": "device",
    "trust_remote_code": "trust_remote_code",
    "revision": "revision",
    "local_files_only": "local_files_only",
    "cache_folder": "cache_folder",
    "dtype": "dtype",
    "torch_dtype": "dtype",
}


def resolve_arguments(arguments: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Resolve alternative names of arguments, and convert paths and torch objects to plain types.

    Args:
        arguments: Arguments by name.
        fields: Names of all parameters.

    Raises:
        InvalidParameter: A name is unknown, or a value is wrong, missing or given twice.
    """
    values = dict(arguments)
    for name in ("encode_kwargs", "model_kwargs"):
        if not isinstance(values.get(name), Mapping | None):
            raise InvalidParameter(f"{name}={values[name]!r:.80} must be a dictionary, or None.")
    if values.pop("multi_process", False):
        raise InvalidParameter(
            "multi_process=True is not offered: one model in each process. Run several processes over parts of the "
            "documents, each with its own EddyEmbeddings; the vectors are the same."
        )
    if values.get("model") is not None:
        put(values, "model_name", values["model"], "model")
    values.pop("model", None)
    _unpack(values, "encode_kwargs", _ENCODE, _ENCODE_HINTS)
    _unpack_model_kwargs(values)
    refuse_unknown("EddyEmbeddings", values, fields, _HINTS)
    return plain("EddyEmbeddings", values)


def loaded_model(llm: Any) -> tuple[Any, Any]:
    """The model and the tokenizer of a `HuggingFacePipeline`, or of a chat model around one.

    Args:
        llm: The LLM object.

    Raises:
        InvalidParameter: The object holds no model, because its model runs elsewhere or not on torch.
    """
    pipeline = getattr(getattr(llm, "llm", llm), "pipeline", None)
    model, tokenizer = getattr(pipeline, "model", None), getattr(pipeline, "tokenizer", None)
    if model is None or tokenizer is None:
        raise InvalidParameter(
            f"llm is a {type(llm).__name__}, which holds no loaded model to share; give a HuggingFacePipeline, or the "
            "model itself: EddyEmbeddings.from_model(model, tokenizer, method=...)."
        )
    return model, tokenizer


def _unpack(values: dict[str, Any], outer: str, known: Mapping[str, str], hints: Mapping[str, str]) -> None:
    for name, value in (values.pop(outer, None) or {}).items():
        if name not in known:
            hint = hints.get(name) or f"known: {', '.join(known)}"
            raise InvalidParameter(f"{outer} has no entry {name!r} (given: {value!r}); {hint}")
        put(values, known[name], value, f"{outer}[{name!r}]")


def _unpack_model_kwargs(values: dict[str, Any]) -> None:
    rest = dict(values.pop("model_kwargs", None) or {})
    # HuggingFaceEmbeddings has a nested model_kwargs for from_pretrained.
    rest.update(rest.pop("model_kwargs", None) or {})
    if (backend := rest.pop("backend", "torch")) != "torch":
        raise InvalidParameter(f"model_kwargs['backend']={backend!r} is not offered; models run on torch.")
    for name in rest:
        if name in _MODEL_HINTS:
            hint = _MODEL_HINTS[name]
            raise InvalidParameter(f"model_kwargs has no entry {name!r} (given: {rest[name]!r}); {hint}")
    for name in [name for name in rest if name in _MODEL]:
        value = rest.pop(name)
        value = str(value).removeprefix("torch.") if _MODEL[name] == "dtype" else value
        put(values, _MODEL[name], value, f"model_kwargs[{name!r}]")
    if rest:
        values["model_kwargs"] = rest
