"""What a method may ask about a model before any weight is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Pooling:
    """How an embedding model was trained to be read.

    Attributes:
        named: In the words of its own configuration.
        pool: The readout's pooling that is the same; None where there is none.
        prompt: Whether a mean also covers the instruction, and the specials ahead of it.
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
        pooling: How it was trained to be read, for an embedding model; None: it is no such model.
    """

    architecture: str
    layers: int
    hidden: int
    vocabulary: int
    window: int
    pooling: Pooling | None = None
