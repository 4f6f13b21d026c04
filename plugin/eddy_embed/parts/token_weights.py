"""Weights of tokens in a mean by how rare they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.arrays import Doubles, Ints

ZIPF, OFFSET = 0.1, 2.7
"""Of Zipf's law in Mandelbrot's form: the word of rank r has the frequency 0.1 / (r + 2.7)."""


@dataclass(frozen=True)
class TokenWeights:
    """Smooth inverse frequency: a token of frequency p weighs a / (a + p) (Arora, Liang and Ma 2017, algorithm 1).

    Frequencies follow Zipf's law over ranks, so that no text has to be counted.

    Attributes:
        a: Frequency at which a token weighs half.

    Raises:
        InvalidParameter: `a` is not above 0.
    """

    a: float = 3e-5

    def __post_init__(self) -> None:
        if not 0 < self.a < float("inf"):
            raise InvalidParameter(f"sif: a={self.a} must be a number above 0, such as 3e-5")

    def of(self, ranks: Ints) -> Doubles:
        """The weight of each token of a vocabulary, from its rank by frequency, shape (tokens,)."""
        return np.asarray(self.a / (self.a + ZIPF / (ranks + OFFSET)))


def weighed(weights: Doubles, ids: Ints, table: Doubles) -> Doubles:
    """Weights of positions times those of their tokens, shape (positions,); placeholders, of negative id, weigh 1."""
    return weights * np.where(ids < 0, 1.0, table[ids])
