"""Attention sinks, merged into finished attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def with_sinks(out: torch.Tensor, mass: torch.Tensor, sinks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Let each head's sink take its share of every row: one more logit, without a value of its own.

    A sink is a logit as the model learnt it, which no temperature divides.

    Args:
        out: Attention without sinks, shape (batch, heads, tokens, head width).
        mass: Logarithm of each row's denominator, shape (batch, heads, tokens).
        sinks: Logits, shape (heads,).

    Returns:
        Attention and mass with the sinks.
    """
    import torch

    whole = torch.logaddexp(mass, sinks.to(mass.dtype)[:, None])
    return (out.to(mass.dtype) * torch.exp(mass - whole).unsqueeze(-1)).to(out.dtype), whole
