"""Causal language models that write: opened whole, with their heads, by the names that `Embedder` takes."""

from __future__ import annotations

import os
from typing import Any

from transformers import AutoModelForCausalLM

from eddy_embed import methods
from eddy_embed.encoding.build import open_model
from eddy_embed.model.loading.names import locate, reachable
from eddy_embed.model.loading.pretrained import read_config, read_tokenizer
from eddy_embed.model.view import count_parameters


def open_generator(name: str | os.PathLike[str], device: str | None = None) -> tuple[Any, Any]:
    """Open a causal language model with its head, and its tokenizer; embedders may share both.

    Raises:
        ModelNotFound: No usable model there.
        UnsupportedModel: The model has no head, or is an embedding model.
        InvalidParameter: There is no such device.
    """
    where: dict[str, Any] = {"revision": None, "cache_folder": None, "local_files_only": False}
    options = {**where, "trust_remote_code": False, "model_kwargs": {}, "show_progress": False}
    method = methods.parse("plain:exit=-1")
    opened = open_model(name, method, None, device=device, dtype="auto", **options, head=True)
    return opened.model, opened.tokenizer


def read_generator(name: str | os.PathLike[str]) -> tuple[bool, int]:
    """Return whether a model has a chat template, and its number of parameters; no weights are read.

    Raises:
        Exception: Whatever transformers raises on files that are no language model's.
    """
    where = locate(name)
    options = reachable(os.fspath(name), where, {"trust_remote_code": False})
    chat = getattr(read_tokenizer(where, options), "chat_template", None)
    return bool(chat), count_parameters(read_config(where, options), AutoModelForCausalLM)
