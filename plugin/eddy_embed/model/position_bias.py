"""Models that add a bias by distance to their logits: they are asked for one row of it, and never for a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from eddy_embed.model.hooks import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def by_distance(view: nn.Module) -> None:
    """Have the modules of a view that compute a bias for all queries and keys of a pass compute it for all distances.

    A pass holds many sequences in one row, and most distances in it lie between tokens that never meet.
    """
    for module in view.modules():
        own = getattr(module, "compute_bias", None)
        if callable(own) and isinstance(getattr(module, "relative_attention_bias", None), torch.nn.Embedding):
            module.compute_bias = _row(own)  # type: ignore[assignment]


def _row(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def compute(*lengths: int, device: Any = None, **more: Any) -> torch.Tensor:
        """Shape (1, heads, 1, 2n - 1) for the n tokens of the longest sequence; keys before their query first."""
        call = current.get()
        if call is None:
            return own(*lengths, device=device, **more)
        longest = max(int(members.rows.shape[1]) for members in call.groups)
        before = own(longest, 1, device=device).transpose(2, 3).flip(3)  # of one key, seen from all queries
        behind = own(1, longest, device=device)
        return torch.cat([before[..., :-1], behind], dim=-1)

    return compute
