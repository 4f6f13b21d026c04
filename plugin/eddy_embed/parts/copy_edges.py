"""Copies of hidden states between layers, from one position to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy_embed.errors import InvalidParameter

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class CopyEdges:
    """Copy states along a sequence's edges, on the inputs of layers s+1 .. e.

    Attributes:
        span: (s, e) with 1 <= s <= e: the copy changes h[s] .. h[e-1]; s = e is empty. None: the backbone's default,
            filled in before anything runs.
        seed: Seed of the placeholders' values.

    Raises:
        InvalidParameter: The range does not satisfy 1 <= s <= e, or the seed is negative.
    """

    span: tuple[int, int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidParameter(f"seed={self.seed} must not be negative")
        if self.span is not None and not 1 <= self.span[0] <= self.span[1]:
            raise InvalidParameter(f"range={self.span[0]}-{self.span[1]} must satisfy 1 <= start <= end")

    def inputs(self, exit_layer: int) -> range:
        """The indices l whose state h[l] is edited on its way into layer l+1, for a pass that ends at `exit_layer`."""
        if self.span is None:
            raise InvalidParameter("the rewire range is not set; resolve the method against a backbone first")
        start, end = self.span
        return range(start, min(end, exit_layer))


def copy_states(hidden: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """A copy of states, shape (tokens, width), with rows copied along (destination, source) edges, all at once."""
    return hidden.index_copy(0, edges[:, 0], hidden.index_select(0, edges[:, 1]))
