"""Attention of one sequence computed again beside its kernel, a block of queries at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from eddy_embed.model.attention.blocked import SCORES, between, capped, unseen
from eddy_embed.model.attention.traits import AttentionSpec


@dataclass(frozen=True, eq=False)
class Rows:
    """What one layer's attention of one sequence follows from.

    A kernel leaves the logarithm of each row's softmax denominator; with it, any row can be computed again from its
    query and the keys alone. What sinks and further entries took is missing from the rows.

    Attributes:
        query: Shape (heads, tokens, head width).
        key: Shape (key-value heads, tokens, head width).
        mass: Logarithm of each row's denominator, shape (heads, tokens).
        traits: What the layer does to its logits.
        factor: On the logits, after scale and cap.
        bias: On the logits by distance as in `between`, None for none.
    """

    query: torch.Tensor
    key: torch.Tensor
    mass: torch.Tensor
    traits: AttentionSpec
    factor: float
    bias: torch.Tensor | None = None

    @property
    def step(self) -> int:
        """Queries of a block: as many as let its attention be held."""
        heads, length, _ = self.query.shape
        return max(1, min(length, SCORES // (heads * length)))

    def block(self, first: int, end: int) -> torch.Tensor:
        """Attention of some queries, shape (heads, end - first, tokens)."""
        heads, length, width = self.query.shape
        shared = self.key.shape[0]
        q = self.query[:, first:end].to(self.mass.dtype).reshape(shared, heads // shared, -1, width) * self.traits.scale
        scores = capped(q @ self.key.to(self.mass.dtype).unsqueeze(1).transpose(-1, -2), self.traits).flatten(0, 1)
        if self.bias is not None:
            scores = scores + between(self.bias, first, end, 0, length).to(scores.dtype)
        positions = torch.arange(length, device=scores.device)
        hidden = unseen(positions[first:end, None] - positions, self.traits)
        scores = scores * self.factor - self.mass[:, first:end, None]
        return scores.masked_fill(hidden, float("-inf")).exp()

    def blocks(self) -> Iterator[torch.Tensor]:
        """Attention, block by block of queries, in their order."""
        for first in range(0, self.query.shape[1], self.step):
            yield self.block(first, min(first + self.step, self.query.shape[1]))
