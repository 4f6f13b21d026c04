"""Hashes of settings and weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from eddy_embed.model.packed import PackedWeight


SAMPLED = 1024
"""Values of each tensor that enter the weights' digest."""


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor | PackedWeight]]) -> str:
    """Hash of names, shapes and evenly spaced values of tensors, rounded to bfloat16.

    Rounding makes the digest the same in float32 and bfloat16; float16, which rounds otherwise, gives another. A packed
    matrix counts by its values, so that it is the same whether it is packed in memory or not.
    """
    import torch

    from eddy_embed.model.packed import PackedWeight
    from eddy_embed.model.view import unpacked

    sha = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        shape = (tensor.rows, tensor.width) if isinstance(tensor, PackedWeight) else tuple(tensor.shape)
        count = math.prod(shape)
        index = torch.linspace(0, max(count - 1, 0), min(SAMPLED, count), dtype=torch.float64).long()
        if isinstance(tensor, PackedWeight):
            values = tensor.values_at(index)
        else:
            flat = unpacked(tensor.detach()).reshape(-1)
            values = flat[index.to(flat.device)]
        sha.update(f"{name}{shape}".encode() + values.to(torch.bfloat16).float().cpu().numpy().tobytes())
    return sha.hexdigest()
