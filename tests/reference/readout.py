"""Hidden states to one vector."""

from __future__ import annotations

from collections.abc import Sequence

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
