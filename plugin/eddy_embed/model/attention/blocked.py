"""Attention by blocks of queries, for layers whose logits are capped or whose window hides distant keys."""

from __future__ import annotations

import torch

from eddy_embed.model.attention.traits import AttentionSpec

SCORES = 2**24
"""Scores that the blocked kernel holds at once."""
ROWS = 128
"""Most queries in a block: the smaller, the fewer keys are scored that a window or the order of the text hides."""


def blocked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    traits: AttentionSpec,
    factor: float,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithm of the softmax's denominator, shape (batch, heads, tokens); bias as in `between`."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    q = query.reshape(batch, shared, heads // shared, length, width).to(dtype) * traits.scale
    k, v = (states.unsqueeze(2).to(dtype) for states in (key, value))
    out = query.new_empty(batch, heads, length, value.shape[3])
    mass = query.new_empty(batch, heads, length, dtype=dtype)
    positions = torch.arange(length, device=query.device)
    block = max(1, min(length, ROWS, SCORES // (batch * heads * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        seen = 0 if traits.window is None else max(0, first - traits.window + 1)
        last = end if traits.causal else length if traits.window is None else min(length, end - 1 + traits.window)
        scores = capped(q[..., first:end, :] @ k[..., seen:last, :].transpose(-1, -2), traits)
        if bias is not None:
            scores += between(bias, first, end, seen, last).to(dtype).reshape(scores.shape[1:])
        scores = scores * factor
        distance = positions[first:end, None] - positions[None, seen:last]
        scores = scores.masked_fill(unseen(distance, traits), float("-inf"))
        mass[:, :, first:end] = scores.logsumexp(-1).flatten(1, 2)
        out[:, :, first:end] = (scores.softmax(-1) @ v[..., seen:last, :]).flatten(1, 2).to(query.dtype)
    return out, mass


def unseen(distance: torch.Tensor, traits: AttentionSpec) -> torch.Tensor:
    """Which keys the order of the text or the layer's window hides.

    Args:
        distance: Positions of queries minus positions of keys, any shape.
        traits: Of the layer.
    """
    hidden = (distance < 0) & traits.causal
    return hidden if traits.window is None else hidden | (distance.abs() >= traits.window)


def capped(scores: torch.Tensor, traits: AttentionSpec) -> torch.Tensor:
    """Scaled logits behind the layer's soft cap."""
    return scores if traits.cap is None else torch.tanh(scores / traits.cap) * traits.cap


def between(bias: torch.Tensor, first: int, end: int, seen: int, last: int) -> torch.Tensor:
    """The bias of some queries and keys.

    Args:
        bias: For keys from n - 1 tokens before their query to n - 1 behind it, shape (heads, 2n - 1).
        first: The first query.
        end: The one after the last.
        seen: The first key.
        last: The one after the last.

    Returns:
        Shape (heads, end - first, last - seen).
    """
    same = bias.shape[1] // 2
    # Rows of neighbouring queries are the same numbers, moved by one: the last query's begin furthest to the left.
    needed = bias[:, same + seen - end + 1 : same + last - first]
    return needed.unfold(1, last - seen, 1).flip(1)
