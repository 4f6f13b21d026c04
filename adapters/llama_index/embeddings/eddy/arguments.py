"""Constructor arguments of `EddyEmbedding`, also by the names of LlamaIndex's other embedding classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.callbacks import CallbackManager

from eddy_embed.integrations import check_count, check_kind, put, refuse_unknown

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
    """Resolve alternative names of arguments, and refuse those that LlamaIndex's own fields do not take."""
    values = dict(values)
    if values.pop("show_progress_bar", False):
        values["show_progress"] = True
    alias = values.pop("model", None)
    if alias is not None:
        put(values, "model_name", alias, "model")
    refuse_unknown("EddyEmbedding", values, fields, _HINTS)
    check_count("embed_batch_size", values.get("embed_batch_size", 1))
    check_count("num_workers", values.get("num_workers"), optional=True)
    manager = values.get("callback_manager")
    check_kind("callback_manager", manager, CallbackManager | None, "LlamaIndex's CallbackManager, or None")
    return {k: v for k, v in values.items() if v is not None or k != "callback_manager"}
