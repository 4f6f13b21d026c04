"""Whole sequences through torch's own attention.

The kernels for NVIDIA devices have not been run by this project's tests, which have no such device: there the
processor's stand in for them. When a model is loaded on one, they are compared with the blocked kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.model.attention.blocked import SCORES
from eddy_embed.model.attention.relative_bias import between

if TYPE_CHECKING:
    import torch

    from eddy_embed.model.attention.traits import AttentionSpec


def fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    traits: AttentionSpec,
    factor: float,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention, shape as the queries; with a bias as in `between`, where nothing is hidden, by blocks of queries."""
    import torch
    from torch.nn import functional

    more: dict[str, Any] = {"scale": traits.scale * factor, "enable_gqa": key.shape[1] != query.shape[1]}
    if bias is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=traits.causal, **more)
    length, parts = query.shape[2], []
    block = max(1, min(length, SCORES // (bias.shape[0] * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        mask = (between(bias, first, end, 0, length) * factor).to(query.dtype)
        q = query[:, :, first:end]
        parts.append(functional.scaled_dot_product_attention(q, key, value, attn_mask=mask, **more))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: AttentionSpec, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithm of the softmax's denominator, shape (batch, heads, tokens)."""
    import torch

    scale = traits.scale * factor
    if query.device.type == "cpu":
        cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, mass = cpu(query, key, value, 0.0, traits.causal, attn_mask=None, scale=scale)
        return out, mass
    out, mass, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, traits.causal, scale=scale
    )
    return out, mass


def efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: AttentionSpec, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `flash`, by the kernel that also takes float32; it wants as many key-value heads as heads."""
    import torch

    share = query.shape[1] // key.shape[1]
    k, v = (states.repeat_interleave(share, dim=1) if share > 1 else states for states in (key, value))
    out, mass, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, k, v, None, True, 0.0, traits.causal, scale=traits.scale * factor
    )
    # Its rows are filled up to whole blocks.
    return out, mass[..., : query.shape[2]]
