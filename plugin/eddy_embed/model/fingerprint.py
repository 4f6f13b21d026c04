"""What made a vector, as a hash; and what was read on the way."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from eddy_embed.encoding.planner import Planned

SAMPLED = 1024
"""Values of each tensor that enter the weights' digest."""


@dataclass
class Counts:
    """What an embedder has read so far.

    Attributes:
        texts: Texts.
        tokens: Tokens of the texts, without prompts and placeholders.
        windows: Windows of the texts.
        windowed_texts: Texts that exceeded the window and were read in several.
        truncated_texts: Texts whose end was cut, as asked.
        truncated_tokens: Tokens cut.
        positions: Positions run through the model: tokens, prompts, placeholders, copies, overlaps of windows.
    """

    texts: int = 0
    tokens: int = 0
    windows: int = 0
    windowed_texts: int = 0
    truncated_texts: int = 0
    truncated_tokens: int = 0
    positions: int = 0

    def add(self, planned: Iterable[Planned]) -> None:
        """Count texts."""
        for plan in planned:
            self.texts += 1
            self.tokens += plan.tokens
            self.windows += plan.windows
            self.windowed_texts += plan.windows > 1
            self.truncated_texts += plan.truncated > 0
            self.truncated_tokens += plan.truncated


def digest(settings: dict[str, Any]) -> str:
    """Hash of plain values, the same in every process."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:32]


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hash of names, shapes and evenly spaced values of tensors, rounded to bfloat16.

    Rounding makes the digest the same in float32 and bfloat16; float16, which rounds otherwise, gives another.
    """
    import torch

    from eddy_embed.model.weights import unpacked

    found = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        flat = unpacked(tensor.detach()).reshape(-1)
        at = torch.linspace(0, max(flat.numel() - 1, 0), min(SAMPLED, flat.numel()), dtype=torch.float64).long()
        values = flat[at.to(flat.device)].to(torch.bfloat16).float().cpu().numpy()
        found.update(f"{name}{tuple(tensor.shape)}".encode() + values.tobytes())
    return found.hexdigest()
