"""Directions that a model's token embeddings share, taken out of vectors: post-processing that needs no text."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.arrays import Doubles

_ALONE = threading.Lock()  # of two limits at once, the one that ends last would restore the other's


@dataclass(frozen=True)
class EmbedFilter:
    """Vectors without the directions of the largest singular values of the model's token embeddings.

    After EmbedFilter (arXiv 2606.07502), which takes the unembedding matrix: the same matrix in models that tie the
    two, and not loaded in the others. Vectors keep their width.

    Attributes:
        drop: Number of directions taken out.

    Raises:
        InvalidParameter: `drop` is below 1.
    """

    drop: int = 16

    def __post_init__(self) -> None:
        if self.drop < 1:
            raise InvalidParameter(f"filter: drop={self.drop} must be at least 1")

    def directions(self, table: Doubles, width: int) -> Doubles:
        """Orthonormal directions, shape (width, drop), of token embeddings, shape (tokens, width).

        Raises:
            InvalidParameter: The model's states have another width, or no direction would be left.
        """
        if table.shape[1] != width:
            raise InvalidParameter(
                f"filter: the token embeddings have width {table.shape[1]}, and the states {width}; leave filter out"
            )
        if self.drop >= width:
            raise InvalidParameter(f"filter: drop={self.drop} must be below the vectors' width of {width}")
        # Threads of a matrix this small mostly wait for each other, on a busy machine for seconds.
        with _ALONE, threadpool_limits(1, "blas"):
            _, axes = np.linalg.eigh(table.T @ table)
        return np.asarray(axes[:, width - self.drop :])
