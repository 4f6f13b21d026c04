"""Copies of hidden states between layers, from one position to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.arrays import Doubles
from eddy_embed.utils.checks import check_choice, check_count

if TYPE_CHECKING:
    import torch

Initialization = Literal["scaled", "gaussian", "uniform", "zeros", "ones", "space"]


@dataclass(frozen=True)
class CopyEdges:
    """Copy states along a sequence's edges, on the inputs of layers s+1 .. e.

    Attributes:
        span: (s, e) with 1 <= s <= e: the copy changes h[s] .. h[e-1]; s = e is empty. None: the backbone's default,
            filled in before anything runs.
        seed: Seed of the placeholders' values.
        init: These values, up to the first copy: "scaled", Gaussian and as spread as the embeddings; "gaussian", of
            deviation 1; "uniform" from 0 to 1; "zeros"; "ones"; or "space", the embedding of a blank.

    Raises:
        InvalidParameter: The range does not satisfy 1 <= s <= e, the seed is negative or has no effect, or the values
            are unknown.
    """

    span: tuple[int, int] | None = None
    seed: int = 0
    init: Initialization = "scaled"

    def __post_init__(self) -> None:
        check_count("seed", self.seed, least=0)
        check_choice("init", self.init, get_args(Initialization))
        if self.seed and self.init in ("zeros", "ones", "space"):
            raise InvalidParameter(f"seed={self.seed} has no effect with init={self.init}; leave one out")
        if self.span is not None and not 1 <= self.span[0] <= self.span[1]:
            raise InvalidParameter(f"range={self.span[0]}-{self.span[1]} must satisfy 1 <= start <= end")

    def inputs(self, exit_layer: int) -> range:
        """Return the indices l whose state h[l] is edited on its way into layer l+1, up to `exit_layer`."""
        assert self.span is not None, "resolve the method for a backbone first"
        start, end = self.span
        return range(start, min(end, exit_layer))

    def initial(self, width: int, spread: float) -> Doubles:
        """Return values of PST and B-PST, shape (2, width), but for "space", made in numpy on every device."""
        if self.init in ("zeros", "ones"):
            return np.full((2, width), float(self.init == "ones"))
        generators = [np.random.default_rng([self.seed, kind]) for kind in (0, 1)]
        if self.init == "uniform":
            return np.stack([rng.random(width) for rng in generators])
        spread = spread if self.init == "scaled" else 1.0
        return np.stack([rng.standard_normal(width) for rng in generators]) * spread


def copy_states(hidden: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Copy rows of states, shape (tokens, width), along (destination, source) edges, all at once."""
    return hidden.index_copy(0, edges[:, 0], hidden.index_select(0, edges[:, 1]))
