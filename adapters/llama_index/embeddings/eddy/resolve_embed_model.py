"""Resolve the argument `embed_model` to an `EddyEmbedding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core import Settings

from eddy_embed.errors import InvalidParameter
from llama_index.embeddings.eddy.base import EddyEmbedding


def resolve_embed_model(value: EddyEmbedding | Mapping[str, Any] | None, reason: str) -> EddyEmbedding:
    """The model, or that of its parameters; None for `Settings.embed_model`; `reason` says what needs it."""
    if isinstance(value, Mapping):
        return EddyEmbedding.from_dict(value)
    try:
        model = value if value is not None else Settings.embed_model
    except (ImportError, ValueError) as error:  # from LlamaIndex's default, OpenAI's model
        raise InvalidParameter(
            "embed_model is missing, and Settings.embed_model is not set; give "
            "embed_model=EddyEmbedding(model_name=..., method=...)."
        ) from error
    if not isinstance(model, EddyEmbedding):
        raise InvalidParameter(
            f"embed_model is a {type(model).__name__}; {reason} an EddyEmbedding: give "
            "embed_model=EddyEmbedding(model_name=..., method=...)."
        )
    return model
