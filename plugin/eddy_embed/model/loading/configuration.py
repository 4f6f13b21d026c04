"""A model's configuration, refused before memory or time is spent where no model can be as it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig

from eddy_embed.errors import UnsupportedModel

_MOST = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 512),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "num_heads", "n_head", "n_heads"), 2**14),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 2**18),
    "vocab_size": 2**24,
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 2**31),
}
"""Entries of a configuration whose smallest value is 1, and their largest, far above every published model's."""


def read_config(where: str, options: dict[str, Any]) -> Any:
    """The configuration in a folder or of a hub id.

    Args:
        where: The folder or hub id.
        options: Of `from_pretrained`, `trust_remote_code` among them: without it transformers would ask on stdin.

    Raises:
        UnsupportedModel: A size is none that a model can have.
        Exception: Whatever transformers raises on a file that is absent, damaged or wrong.
    """
    # The raw file: some classes make lists as long as the number of layers.
    raw, _ = PreTrainedConfig.get_config_dict(where, **options)
    for part in (raw, *(each for each in raw.values() if isinstance(each, dict))):
        for key, value in part.items():
            if isinstance(value, int) and not 1 <= value <= _MOST.get(key, value) and key in _MOST:
                raise UnsupportedModel(
                    f"{where!r}: config.json says {key}={value}, and a model has 1 to {_MOST[key]:,}; fetch it again"
                )
    return AutoConfig.from_pretrained(where, **options)


def check_size(where: str, subfolder: str, config: Any, kind: Any) -> None:
    """Refuse a configuration of more values than the files of its folder can hold, before memory is set aside.

    Args:
        where: A folder; nothing is checked of a hub id.
        subfolder: Where in the folder the weights are.
        config: The configuration, of the layers that will be loaded.
        kind: The auto class of transformers that will load it.

    Raises:
        UnsupportedModel: The files are too small.
        Exception: Whatever the model's class raises on a configuration that describes no model.
    """
    if not os.path.isdir(where):
        return
    with torch.device("meta"):
        model = kind.from_config(config, trust_remote_code=False)
    values = sum(parameter.numel() for parameter in model.parameters())
    held = sum(file.stat().st_size for file in Path(where, subfolder).iterdir() if file.is_file())
    # Quantised values may take a bit.
    if values > held * (1 if getattr(config, "quantization_config", None) is None else 8):
        raise UnsupportedModel(
            f"{where!r}: a {type(model).__name__} as config.json describes it has {values:,} values, and the files "
            f"there have {held:,} bytes; config.json is not that of these weights: fetch the model again"
        )
