"""Constructor arguments of `EddyEmbeddings`, also by the names of LangChain's other embedding classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import check_loaded, put, refuse_unknown

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
_OWN = ("device", "trust_remote_code", "revision", "local_files_only", "cache_folder", "dtype")
_MODEL = {**{name: name for name in _OWN}, "torch_dtype": "dtype"}


def loaded_of(owner: str, llm: Any) -> tuple[Any, Any]:
    """The model and the tokenizer of a `HuggingFacePipeline` or a `ChatHuggingFace`, for a class of ours."""
    pipeline = getattr(getattr(llm, "llm", llm), "pipeline", None)
    model, tokenizer = getattr(pipeline, "model", None), getattr(pipeline, "tokenizer", None)
    check_loaded(owner, llm, "HuggingFacePipeline", model, tokenizer)
    return model, tokenizer


def resolve_arguments(arguments: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Resolve alternative names of arguments, and refuse unknown ones."""
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
    _unpack_encode_kwargs(values)
    _unpack_model_kwargs(values)
    refuse_unknown("EddyEmbeddings", values, fields, _HINTS)
    return values


def _unpack_encode_kwargs(values: dict[str, Any]) -> None:
    for name, value in (values.pop("encode_kwargs", None) or {}).items():
        if name not in _ENCODE:
            hint = _ENCODE_HINTS.get(name) or f"known: {', '.join(_ENCODE)}"
            raise InvalidParameter(f"encode_kwargs has no entry {name!r} (given: {value!r}); {hint}")
        put(values, _ENCODE[name], value, f"encode_kwargs[{name!r}]")


def _unpack_model_kwargs(values: dict[str, Any]) -> None:
    rest = dict(values.pop("model_kwargs", None) or {})
    # HuggingFaceEmbeddings has a nested model_kwargs for from_pretrained.
    rest.update(rest.pop("model_kwargs", None) or {})
    if (backend := rest.pop("backend", "torch")) != "torch":
        raise InvalidParameter(f"model_kwargs['backend']={backend!r} is not offered; models run on torch.")
    for name in [name for name in rest if name in _MODEL_HINTS]:
        raise InvalidParameter(f"model_kwargs has no entry {name!r} (given: {rest[name]!r}); {_MODEL_HINTS[name]}")
    for name in [name for name in rest if name in _MODEL]:
        value = rest.pop(name)
        value = str(value).removeprefix("torch.") if _MODEL[name] == "dtype" else value
        put(values, _MODEL[name], value, f"model_kwargs[{name!r}]")
    if rest:
        values["model_kwargs"] = rest
