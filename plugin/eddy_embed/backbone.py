"""What a method may ask about a model before any weight is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backbone:
    """Shape of a model, read from its configuration.

    Attributes:
        architecture: Model type as transformers names it ("llama", "gpt2").
        layers: Number L of decoder layers in the full model.
        hidden: Width of a hidden state.
        vocabulary: Number of rows of the embedding matrix.
        window: Longest sequence the model was made for, in tokens.
    """

    architecture: str
    layers: int
    hidden: int
    vocabulary: int
    window: int
