"""Attention by blocks of queries, for layers with capped logits or a sliding window."""

from __future__ import annotations

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
