"""What is known of a model before any weight is loaded: its shape, and the methods that run on its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Pooling:
    """The pooling that an embedding model was trained with.

    Attributes:
        named: Its name in the model's own configuration.
        pool: The same pooling of the readout; None if there is none.
        prompt: Whether a mean also covers the instruction, and the specials before it.
    """

    named: str
    pool: Literal["mean", "last", "weighted", "cls"] | None
    prompt: bool = True


@dataclass(frozen=True)
class Backbone:
    """Shape of a model, read from its configuration.

    Attributes:
        architecture: Model type as transformers names it ("llama", "gpt2").
        layers: Number L of decoder layers in the full model.
        hidden: Width of a hidden state.
        vocabulary: Number of rows of the embedding matrix.
        window: Longest sequence the model was made for, in tokens.
        pooling: The pooling that an embedding model was trained with, None for other models.
    """

    architecture: str
    layers: int
    hidden: int
    vocabulary: int
    window: int
    pooling: Pooling | None = None


ALL = frozenset(
    {
        *("llama", "qwen3", "gpt2", "gemma2", "mistral", "qwen2", "gemma3", "phi3", "gpt_neox", "olmo2", "mixtral"),
        *("qwen3_moe", "phi", "smollm3", "stablelm", "granite", "gpt_oss", "opt"),
    }
)
"""Families on which every method runs."""
OWN_ATTENTION = frozenset({"falcon", "bloom", "gptj", "gpt_neo"})
"""Families that compute their attention themselves."""
ENCODERS = frozenset({"bert", "roberta", "xlm_roberta", "distilbert", "modernbert", "mpnet", "t5", "mt5", "umt5"})
"""Families that read in both directions."""


def methods_on(family: str) -> str:
    """Return, in words, the methods that run on a model type of transformers, or GGUF's architecture."""
    name = _name(family)
    if name in ALL:
        return "all"
    if name in OWN_ATTENTION:
        return "all but kv, reroute, reba"
    if name in ENCODERS:
        return "plain, tempscale, layeravg, standardise"
    return "not tested; opening it tells"


def is_encoder(family: str) -> bool:
    """Return whether a family is known to read in both directions."""
    return _name(family) in ENCODERS


def _name(family: str) -> str:
    return family.replace("-", "_").removesuffix("_text")
