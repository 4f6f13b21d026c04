"""What a method may ask about a model before any weight is loaded."""

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
