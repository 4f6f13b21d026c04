"""Modules that compute what the model's own do, faster on the device at hand."""

from __future__ import annotations

from torch import nn

from eddy_embed.model.speed.fused_norms import use_fused_norms
from eddy_embed.model.speed.onednn_linear import pad_rows, use_onednn

__all__ = ["pad_rows", "use_fast_modules"]


def use_fast_modules(view: nn.Module) -> None:
    """Put the fastest matrix products and norms here in place of a view's; its results stay, up to rounding."""
    use_onednn(view)
    use_fused_norms(view)
