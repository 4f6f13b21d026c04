"""Attention by blocks of queries, for layers with capped logits or a sliding window, and rows of it recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from eddy_embed.model.attention.spec import AttentionSpec

SCORES = 2**24
"""Scores that the blocked kernel holds at once."""
ROWS = 128
"""Most queries in a block: the smaller, the fewer keys are scored that causality or a sliding window hides."""


def blocked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    spec: AttentionSpec,
    factor: float,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the log-sum-exp of each row's logits, shape (batch, heads, tokens); bias as in `between`."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    q = query.reshape(batch, shared, heads // shared, length, width).to(dtype) * spec.scale
    k, v = (states.unsqueeze(2).to(dtype) for states in (key, value))
    out = query.new_empty(batch, heads, length, value.shape[3])
    lse = query.new_empty(batch, heads, length, dtype=dtype)
    positions = torch.arange(length, device=query.device)
    block = max(1, min(length, ROWS, SCORES // (batch * heads * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        seen = 0 if spec.window is None else max(0, first - spec.window + 1)
        last = end if spec.causal else length if spec.window is None else min(length, end - 1 + spec.window)
        scores = capped(q[..., first:end, :] @ k[..., seen:last, :].transpose(-1, -2), spec)
        if bias is not None:
            scores += between(bias, first, end, seen, last).to(dtype).reshape(scores.shape[1:])
        scores = scores * factor
        distance = positions[first:end, None] - positions[None, seen:last]
        scores = scores.masked_fill(unseen(distance, spec), float("-inf"))
        lse[:, :, first:end] = scores.logsumexp(-1).flatten(1, 2)
        out[:, :, first:end] = (scores.softmax(-1) @ v[..., seen:last, :]).flatten(1, 2).to(query.dtype)
    return out, lse


def unseen(distance: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Which keys causality or the layer's sliding window hides; `distance`: query positions minus key positions."""
    hidden = (distance < 0) & spec.causal
    return hidden if spec.window is None else hidden | (distance.abs() >= spec.window)


def capped(scores: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Scaled logits after the layer's soft cap."""
    return scores if spec.cap is None else torch.tanh(scores / spec.cap) * spec.cap


def between(bias: torch.Tensor, first: int, end: int, seen: int, last: int) -> torch.Tensor:
    """The bias of queries `first` .. `end` - 1 and keys `seen` .. `last` - 1, shape (heads, queries, keys).

    `bias` is by distance, for keys from n - 1 tokens before their query to n - 1 after it, shape (heads, 2n - 1).
    """
    same = bias.shape[1] // 2
    # Rows of neighbouring queries are the same numbers, moved by one: the last query's begin furthest to the left.
    needed = bias[:, same + seen - end + 1 : same + last - first]
    return needed.unfold(1, last - seen, 1).flip(1)


@dataclass(frozen=True, eq=False)
class Rows:
    """One layer's attention of one sequence, recomputed from the log-sum-exp that a kernel gives for each row.

    What sinks and extra entries took is missing from the rows.

    Attributes:
        query: Shape (heads, tokens, head width).
        key: Shape (key-value heads, tokens, head width).
        lse: Log-sum-exp of each row's logits, shape (heads, tokens).
        spec: What the layer does to its logits.
        factor: On the logits, after scale and cap.
        bias: On the logits by distance as in `between`, None for none.
    """

    query: torch.Tensor
    key: torch.Tensor
    lse: torch.Tensor
    spec: AttentionSpec
    factor: float
    bias: torch.Tensor | None = None

    @property
    def step(self) -> int:
        """Queries in a block: as many as `SCORES` allows."""
        heads, length, _ = self.query.shape
        return max(1, min(length, SCORES // (heads * length)))

    def block(self, first: int, end: int) -> torch.Tensor:
        """Attention of some queries, shape (heads, end - first, tokens)."""
        heads, length, width = self.query.shape
        shared = self.key.shape[0]
        q = self.query[:, first:end].to(self.lse.dtype).reshape(shared, heads // shared, -1, width) * self.spec.scale
        scores = capped(q @ self.key.to(self.lse.dtype).unsqueeze(1).transpose(-1, -2), self.spec).flatten(0, 1)
        if self.bias is not None:
            scores = scores + between(self.bias, first, end, 0, length).to(scores.dtype)
        positions = torch.arange(length, device=scores.device)
        hidden = unseen(positions[first:end, None] - positions, self.spec)
        scores = scores * self.factor - self.lse[:, first:end, None]
        return scores.masked_fill(hidden, float("-inf")).exp()

    def blocks(self) -> Iterator[torch.Tensor]:
        """Attention, block by block of queries, in order."""
        for first in range(0, self.query.shape[1], self.step):
            yield self.block(first, min(first + self.step, self.query.shape[1]))
