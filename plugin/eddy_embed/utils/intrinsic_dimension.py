"""How many dimensions a cloud of points has, from the two nearest neighbours of each (TwoNN, Facco et al. 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.arrays import Doubles

DROPPED = 0.1
"""Share of the points with the largest ratios that the fit leaves out, as Facco et al. do: they obey the law least."""
DISTANCES = 2**22
"""Distances held at once."""


def distinct(points: NDArray[Any]) -> Doubles:
    """The points in float64, each once, shape (points, width): equal ones are at distance 0, which has no ratio."""
    return np.unique(np.asarray(points, np.float64), axis=0)


def neighbours(points: Doubles) -> Doubles:
    """Distances of each of three or more different points to its two nearest, nearest first, shape (points, 2)."""
    # Around the mean, because the squares below lose the digits that all points have in common.
    centred = points - points.mean(axis=0)
    squares = np.einsum("nd,nd->n", centred, centred)
    found = np.empty((len(points), 2))
    rows = max(1, DISTANCES // len(points))
    for first in range(0, len(points), rows):
        block = centred[first : first + rows]
        apart = squares - 2 * (block @ centred.T)  # without the row's own square, which changes no order
        apart[np.arange(len(block)), np.arange(first, first + len(block))] = np.inf
        two = np.argpartition(apart, 1, axis=1)[:, :2]
        for column in (0, 1):
            found[first : first + rows, column] = np.linalg.norm(block - centred[two[:, column]], axis=1)
    return np.sort(found, axis=1)


def intrinsic_dimension(points: NDArray[Any]) -> float:
    """Intrinsic dimension of points.

    The ratios mu = r2/r1 of the distances to the second and the first neighbour follow F(mu) = 1 - mu^-d where the
    density is even (equation 5); d is the slope of -log(1 - F) over log mu, fitted through the origin.

    Args:
        points: Shape (points, width); equal ones count once.

    Returns:
        The dimension; NaN where three different points or more are not there, or all are equally far apart.

    Raises:
        InvalidParameter: Not of that shape, or NaN or infinity among them.
    """
    given = np.asarray(points)
    if given.ndim != 2 or not np.isfinite(given).all():
        raise InvalidParameter(f"points of shape {given.shape} must be finite numbers of shape (points, width)")
    cloud = distinct(given)
    count = len(cloud)
    if count < 3:
        return float("nan")
    near = neighbours(cloud)
    kept = int((1 - DROPPED) * count)
    x = np.sort(np.log(near[:, 1] / near[:, 0]))[:kept]
    y = -np.log1p(-np.arange(1, kept + 1) / count)
    spread = float(x @ x)
    return float(x @ y) / spread if spread > 0 else float("nan")
