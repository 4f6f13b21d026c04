"""Hidden states to one vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray


def mean(h: Floats, span: Sequence[int]) -> Floats:
    total = np.zeros(h.shape[1])
    for position in span:
        total = total + h[position]
    return total / len(span)


def last(h: Floats, span: Sequence[int]) -> Floats:
    """The last token of the sequence, whatever the span."""
    return h[len(h) - 1]


def first(h: Floats, span: Sequence[int]) -> Floats:
    """The first token of the sequence, whatever the span."""
    return h[0]


def hybrid(h: Floats, span: Sequence[int]) -> Floats:
    return (mean(h, span) + last(h, span)) / 2


def weighted(h: Floats, span: Sequence[int]) -> Floats:
    """Weights i / Σi over the span, i from 1 (SGPT)."""
    total, weights = np.zeros(h.shape[1]), 0
    for i, position in enumerate(span, start=1):
        total, weights = total + i * h[position], weights + i
    return total / weights


POOLINGS = {"mean": mean, "last": last, "cls": first, "hybrid": hybrid, "weighted": weighted}


def unit(vector: Floats) -> Floats:
    return vector / np.sqrt((vector**2).sum())


def sif(tokenizer: Any, token: int, a: float) -> float:
    """a / (a + p), where p is 0.1 / (rank + 2.7)."""
    pieces = {number: piece.replace("▁", "").replace("Ġ", "") for piece, number in tokenizer.get_vocab().items()}
    rank = token
    if len(pieces[token]) == 1:  # its place among the single characters
        rank = sum(1 for number, piece in pieces.items() if len(piece) == 1 and number < token)
    ascii_character = len(pieces[token]) == 1 and ord(pieces[token]) < 128
    if ascii_character or not [character for character in pieces[token] if character.isalnum()]:
        rank = 0
    return a / (a + 0.1 / (rank + 2.7))


def filtered(vector: Floats, table: Any, drop: int) -> Floats:
    """The vector minus its parts along the first right singular vectors of a table of token embeddings."""
    directions = np.linalg.svd(table.detach().double().numpy(), full_matrices=False)[2][:drop]
    for direction in directions:
        vector = vector - (vector @ direction) * direction
    return vector


def weighed(h: Floats, weights: dict[int, float]) -> Floats:
    """The mean of positions, each with its weight."""
    total, all_weights = np.zeros(h.shape[1]), 0.0
    for position, weight in weights.items():
        total, all_weights = total + weight * h[position], all_weights + weight
    return total / all_weights
