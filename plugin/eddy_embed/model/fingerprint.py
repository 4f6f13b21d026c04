"""Hashes of settings and weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


SAMPLED = 1024
"""Values of each tensor that enter the weights' digest."""


def digest(settings: dict[str, Any]) -> str:
    """Hash of plain values, the same in every process."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:32]


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hash of names, shapes and evenly spaced values of tensors, rounded to bfloat16.

    Rounding makes the digest the same in float32 and bfloat16; float16, which rounds otherwise, gives another.
    """
    import torch

    from eddy_embed.model.view import unpacked

    sha = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        flat = unpacked(tensor.detach()).reshape(-1)
        index = torch.linspace(0, max(flat.numel() - 1, 0), min(SAMPLED, flat.numel()), dtype=torch.float64).long()
        values = flat[index.to(flat.device)].to(torch.bfloat16).float().cpu().numpy()
        sha.update(f"{name}{tuple(tensor.shape)}".encode() + values.tobytes())
    return sha.hexdigest()
