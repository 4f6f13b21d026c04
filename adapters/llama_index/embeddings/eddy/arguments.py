"""Constructor arguments of `EddyEmbedding`, also by the names of LlamaIndex's other embedding classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.callbacks import CallbackManager

from eddy_embed.encoding.validation import check_count
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.arguments import plain, put, refuse_unknown

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


def resolve_arguments(values: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Resolve alternative names of arguments, and convert paths and torch objects to plain types.

    Args:
        values: Arguments by name.
        fields: Names of all parameters.

    Raises:
        InvalidParameter: A name is unknown, or a value is wrong, missing or given twice.
    """
    values = dict(values)
    if values.pop("show_progress_bar", False):
        values["show_progress"] = True
    alias = values.pop("model", None)
    if alias is not None:
        put(values, "model_name", alias, "model")
    refuse_unknown("EddyEmbedding", values, fields, _HINTS)
    values = plain("EddyEmbedding", values)
    check_count("embed_batch_size", values.get("embed_batch_size", 1))
    check_count("num_workers", values.get("num_workers"), optional=True)
    manager = values.get("callback_manager")
    if manager is not None and not isinstance(manager, CallbackManager):
        raise InvalidParameter(f"callback_manager={manager!r:.80} must be LlamaIndex's CallbackManager, or None.")
    return {k: v for k, v in values.items() if v is not None or k not in ("model_kwargs", "callback_manager")}


def loaded_model(llm: Any) -> tuple[Any, Any]:
    """The model and the tokenizer of a `HuggingFaceLLM`, which keeps them in private attributes.

    Args:
        llm: The LLM object.

    Raises:
        InvalidParameter: The object holds no model, because its model runs elsewhere or not on torch.
    """
    model, tokenizer = getattr(llm, "_model", None), getattr(llm, "_tokenizer", None)
    if model is None or tokenizer is None:
        raise InvalidParameter(
            f"llm is a {type(llm).__name__}, which holds no loaded model to share; give a HuggingFaceLLM, or the model "
            "itself: EddyEmbedding.from_model(model, tokenizer, method=...)."
        )
    return model, tokenizer
