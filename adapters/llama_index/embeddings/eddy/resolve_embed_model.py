"""The embedding model that a class of this distribution was given, or that LlamaIndex's settings hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core import Settings

from eddy_embed.errors import InvalidParameter
from llama_index.embeddings.eddy.base import EddyEmbedding


def embedding_of(given: EddyEmbedding | Mapping[str, Any] | None, why: str) -> EddyEmbedding:
    """The embedding model itself.

    Args:
        given: It, or its parameters as a dictionary; None: `Settings.embed_model`.
        why: What needs an `EddyEmbedding`, for the message.

    Raises:
        InvalidParameter: There is none, or it is another one.
    """
    if isinstance(given, Mapping):
        return EddyEmbedding.from_dict(given)
    try:
        model = given if given is not None else Settings.embed_model
    except (ImportError, ValueError) as error:  # of the model that LlamaIndex takes where none is set: OpenAI's
        raise InvalidParameter(
            "embed_model is missing, and Settings.embed_model is not set; give "
            "embed_model=EddyEmbedding(model_name=..., method=...)."
        ) from error
    if not isinstance(model, EddyEmbedding):
        raise InvalidParameter(
            f"embed_model is a {type(model).__name__}; {why} an EddyEmbedding: give "
            "embed_model=EddyEmbedding(model_name=..., method=...)."
        )
    return model
