"""Whole sequences through torch's fused causal attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from eddy_embed.attention.settings import Traits


def fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: Traits, factor: float) -> torch.Tensor:
    """Attention, shape as the queries."""
    from torch.nn import functional

    grouped = key.shape[1] != query.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=traits.scale * factor, enable_gqa=grouped
    )


def fused_with_mass(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: Traits, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithm of the softmax's denominator, shape (batch, heads, tokens)."""
    import torch

    out, mass = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, True, attn_mask=None, scale=traits.scale * factor
    )
    return out, mass
