"""Hidden states to one vector."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

Floats = np.ndarray


def mean(h: Floats, span: Sequence[int]) -> Floats:
    return np.asarray(sum(h[position] for position in span) / len(span))


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


@cache
def pieces_of(tokenizer: Any) -> dict[int, str]:
    """Return what is written of each token of a vocabulary, without the signs of blanks."""
    return {number: piece.replace("▁", "").replace("Ġ", "") for piece, number in tokenizer.get_vocab().items()}


def sif(tokenizer: Any, token: int, a: float) -> float:
    """a / (a + p), where p is 0.1 / (rank + 2.7)."""
    pieces = pieces_of(tokenizer)
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


def standardised(
    vectors: Sequence[Floats], passages: Sequence[Sequence[Floats]], questions: Sequence[Sequence[Floats]] | None
) -> list[Floats]:
    """A text's unit vectors, one of each layer, minus the passages' mean and divided by their deviation.

    Given questions, the text is one, and loses their mean. That is drawn towards the passages' by its share that may be
    chance (James and Stein): one question more counts, as far from the mean as a passage. Numbers that hardly differ
    between passages are divided by a thousandth of all numbers' root mean square deviation.
    """
    library = [np.concatenate(each) for each in passages]
    mean = sum(library) / len(library)
    variance = sum((x - mean) ** 2 for x in library) / len(library)
    least = 1e-3 * np.sqrt(sum(variance) / len(variance))
    subtracted = mean
    if questions is not None:
        asked = [np.concatenate(each) for each in questions]
        own = sum(asked) / len(asked)
        spread = sum(((x - own) ** 2).sum() for x in asked) / len(asked) + sum(variance) / len(asked)
        chance = min(1.0, spread / len(asked) / ((own - mean) ** 2).sum())
        subtracted = own + chance * (mean - own)
    result, start = [], 0
    for vector in vectors:
        changed = np.zeros(len(vector))
        for at in range(len(vector)):
            deviation = max(np.sqrt(variance[start + at]), least)
            changed[at] = (vector[at] - subtracted[start + at]) / deviation
        result.append(unit(changed))
        start += len(vector)
    return result


def weighed(h: Floats, weights: dict[int, float]) -> Floats:
    """The mean of positions, each with its weight."""
    total, all_weights = np.zeros(h.shape[1]), 0.0
    for position, weight in weights.items():
        total, all_weights = total + weight * h[position], all_weights + weight
    return total / all_weights
