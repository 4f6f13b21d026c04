"""The type of number in which sums are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def exact(dtype: torch.dtype) -> torch.dtype:
    """float32 for states in float32 and the shorter types, float64 for float64."""
    import torch

    return torch.float64 if dtype == torch.float64 else torch.float32
