"""How vectors lie in their space: pure functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eddy_embed.encoding.finalize import unit
from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.arrays import Doubles

PAIRS = 2**22
"""Pairs of vectors looked at at once."""


def units(vectors: NDArray[Any]) -> Doubles:
    """Vectors of length 1, in float64, of finite ones of shape (vectors, width)."""
    given = np.asarray(vectors, np.float64)
    if given.ndim != 2 or not np.isfinite(given).all():
        raise InvalidParameter(f"vectors of shape {given.shape} must be finite numbers of shape (vectors, width)")
    return unit(given)


def mean_cosine(vectors: NDArray[Any]) -> float:
    """Mean cosine of every two of n different vectors, shape (n, width), NaN for fewer than two.

    1 where all point one way, -1/(n - 1) where they cancel.
    """
    given = units(vectors)
    count = len(given)
    # Of vectors of length 1 the sum's square holds all cosines, so that no pair is looked at.
    total = given.sum(axis=0)
    return float((total @ total - count) / (count * (count - 1))) if count > 1 else float("nan")


def distance_to(centre: NDArray[Any], vectors: NDArray[Any]) -> float:
    """Mean Euclidean distance of vectors of length 1, shape (vectors, width), to a centre, shape (width,)."""
    apart = np.linalg.norm(units(vectors) - np.asarray(centre, np.float64), axis=1)
    return float(apart.mean()) if len(apart) else float("nan")


def uniformity(vectors: NDArray[Any], t: float = 2.0) -> float:
    """Logarithm of the mean of exp(-t |x - y|^2) over every two different vectors of length 1; NaN for fewer than two.

    Lower is more even; 0 where all are equal (Wang and Isola 2020, section 4.1.2, with their t = 2).
    `vectors`: shape (vectors, width).
    """
    given = units(vectors)
    count = len(given)
    if count < 2:
        return float("nan")
    rows = max(1, PAIRS // count)
    total = 0.0
    for first in range(0, count, rows):
        block = given[first : first + rows]
        apart = np.maximum(2 - 2 * (block @ given.T), 0)
        near = np.exp(-t * apart)
        near[np.arange(len(block)), np.arange(first, first + len(block))] = 0
        total += float(near.sum())
    return float(np.log(total / (count * (count - 1))))


def alignment(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Mean squared distance of the two vectors of each pair of texts that mean the same; 0 where they are equal.

    Wang and Isola 2020, section 4.1.2, with their alpha = 2. Both sides: shape (pairs, width).
    """
    one, other = units(first), units(second)
    if one.shape != other.shape:
        raise InvalidParameter(f"pairs need two vectors each, not arrays of shapes {one.shape} and {other.shape}")
    return float(((one - other) ** 2).sum(axis=1).mean()) if len(one) else float("nan")


def principal(vectors: NDArray[Any]) -> tuple[float, float]:
    """How unevenly vectors of length 1, shape (vectors, width), spread over the directions of their space.

    Returns:
        The share of their variance along the first principal component, and the effective number of dimensions
        (sum of variances)^2 / sum of (variances^2): d where d directions have the same variance, 1 where all lies on a
        line. NaN where nothing varies.
    """
    given = units(vectors)
    centred = given - given.mean(axis=0) if len(given) else given
    values = np.linalg.svd(centred, compute_uv=False) ** 2 if centred.size else np.zeros(0)
    total = float(values.sum())
    # What is left of equal vectors is rounding.
    if total <= len(given) * np.finfo(np.float64).eps:
        return float("nan"), float("nan")
    return float(values[0] / total), float(total**2 / (values**2).sum())


def high_share(states: NDArray[Any]) -> float:
    """The share of a signal's energy that is not its mean over the tokens: 0 where all tokens are alike.

    The high-frequency component of TempScale (Zhou et al. 2025, section 2.1): what a Fourier transform over the
    positions leaves beside frequency 0. Of attention, taken as a signal over its queries, 0 where all pay alike.
    `states`: shape (tokens, width).
    """
    given = np.asarray(states, np.float64)
    energy = float((given**2).sum())
    return float(((given - given.mean(axis=0)) ** 2).sum() / energy) if energy > 0 else float("nan")
