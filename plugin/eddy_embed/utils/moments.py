"""Statistics of vectors in one pass and float64: mean, variance, covariance and its shrinkage."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eddy_embed.errors import InvalidParameter, NotFinite
from eddy_embed.utils.arrays import Doubles

Floats = NDArray[np.floating[Any]]
_M = TypeVar("_M", bound="RunningMoments")


class RunningMoments:
    """Mean and variance of vectors.

    Sums are taken around the first batch's mean: in a narrow cone, sums around zero would cancel.
    """

    def __init__(self, width: int) -> None:
        """Start for vectors of this width."""
        self.count = 0
        self._origin: Doubles | None = None
        self._sum, self._squares = np.zeros(width), np.zeros(width)

    @classmethod
    def of(cls: type[_M], vectors: Floats) -> _M:
        """Return the moments of vectors of shape (vectors, width)."""
        moments = cls(vectors.shape[1])
        moments.add(vectors)
        return moments

    def add(self, vectors: Floats) -> None:
        """Add vectors of shape (vectors, width); NotFinite if one holds NaN or infinity."""
        x = np.asarray(vectors, np.float64)
        if not np.isfinite(x).all():
            raise NotFinite("a vector to fit on holds NaN or infinity; embed its text again")
        if len(x) == 0:
            return
        if self._origin is None:
            self._origin = x.mean(0)
        self._add(x - self._origin)

    def _add(self, x: Doubles) -> None:
        self.count += len(x)
        self._sum += x.sum(0)
        self._squares += (x**2).sum(0)

    @property
    def mean(self) -> Doubles:
        """Shape (width,)."""
        self._require(1)
        origin = np.zeros(len(self._sum)) if self._origin is None else self._origin
        return np.asarray(origin + self._sum / self.count)

    @property
    def variance(self) -> Doubles:
        """Of each dimension, divided by the number of vectors, shape (width,)."""
        self._require(2)
        return np.maximum(self._squares / self.count - (self._sum / self.count) ** 2, 0)

    def _require(self, count: int) -> None:
        if self.count < count:
            raise InvalidParameter(f"post-processing needs at least {count} vectors to fit on, not {self.count}")


class RunningCovariance(RunningMoments):
    """The same with covariance and shrinkage."""

    def __init__(self, width: int) -> None:
        """Start for vectors of this width."""
        super().__init__(width)
        self._outer = np.zeros((width, width))
        self._cubic = np.zeros(width)
        self._quartic = 0.0

    def _add(self, x: Doubles) -> None:
        super()._add(x)
        squares = np.einsum("nd,nd->n", x, x)
        self._outer += x.T @ x
        self._cubic += squares @ x
        self._quartic += float(squares @ squares)

    @property
    def covariance(self) -> Doubles:
        """Divided by the number of vectors, shape (width, width)."""
        self._require(2)
        shift = self._sum / self.count
        return np.asarray(self._outer / self.count - np.outer(shift, shift))

    @property
    def shrinkage(self) -> float:
        """Ledoit and Wolf's weight of the spherical covariance, between 0 and 1 (2004, section 3.2)."""
        covariance, width, n = self.covariance, len(self._sum), self.count
        shift = self._sum / n
        square = float(shift @ shift)
        # Sum over vectors of |x - m|^4, expanded so that one pass suffices.
        fourth = self._quartic - 4 * float(self._cubic @ shift) + 4 * float(shift @ self._outer @ shift)
        fourth += 2 * square * float(np.trace(self._outer)) - 4 * n * square**2 + n * square**2
        scale = float(np.trace(covariance)) / width
        dispersion = float((covariance**2).sum()) / width - scale**2
        error = (fourth / n**2 - float((covariance**2).sum()) / n) / width
        return 0.0 if dispersion <= 0 else min(max(error, 0.0), dispersion) / dispersion
