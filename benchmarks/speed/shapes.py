"""Models with the shapes of known ones and random weights: speed does not depend on values.

Their vocabulary is that of the bundled tokenizer, since embedding is a table look-up, and their weights are small, so
that states stay finite through all layers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen3Config

import eddy_embed

BUNDLED = Path(eddy_embed.__file__).parent / "model" / "tiny"
"""The bundled model; where only its tokenizer is used, texts become about as many tokens as with a large one's."""
WINDOW = 40_960


def _qwen3(hidden: int, inner: int, layers: int, heads: int, shared: int, width: int) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=shared,
        head_dim=width,
        max_position_embeddings=WINDOW,
        initializer_range=0.01,
    )


SHAPES: dict[str, PreTrainedConfig] = {
    "small": _qwen3(128, 256, 4, 4, 2, 32),
    "smollm2-135m": LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=WINDOW,
        initializer_range=0.01,
    ),
    "base": _qwen3(768, 2304, 12, 12, 4, 64),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, 8, 128),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, 8, 128),
    "mistral-7b": MistralConfig(sliding_window=None, initializer_range=0.01),
}
"""`small` is there to try the benchmarks themselves; `base` has the size of many encoders."""


def tokenizer() -> Any:
    """The bundled model's, for texts as long as the shapes take."""
    found = AutoTokenizer.from_pretrained(BUNDLED)
    found.model_max_length = WINDOW
    return found


def random_model(name: str, dtype: str = "float32", device: str = "cpu", layers: int | None = None) -> Any:
    """A causal language model of a shape, with a head; the same weights each time.

    Args:
        name: One of `SHAPES`, or "eddy-tiny" for the bundled model itself.
        dtype: Of its weights.
        device: Where they are made.
        layers: Fewer than the shape has; None: all.
    """
    if name == "eddy-tiny":
        return AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=dtype).to(device).eval()
    config = type(SHAPES[name]).from_dict(SHAPES[name].to_dict())
    config.vocab_size = len(tokenizer())
    config.num_hidden_layers = layers or config.num_hidden_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()


def bare(name: str, under: Path, dtype: str = "float32", layers: int | None = None) -> Path:
    """The same as a folder, without its head; made once."""
    path = under / f"{name}-{dtype}{'' if layers is None else f'-{layers}'}-bare"
    if not (path / "tokenizer.json").exists():
        random_model(name, dtype, layers=layers).base_model.save_pretrained(path)
        tokenizer().save_pretrained(path)
    return path
