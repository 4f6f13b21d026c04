"""What a linear layer in int8 is defined to be, in Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def codes(row: Any) -> tuple[list[int], float]:
    """A row as whole numbers of -127 to 127, and the number that they are multiples of."""
    largest = max(abs(float(value)) for value in row)
    scale = max(largest, 1e-30) / 127
    return [int(np.floor(float(value) / scale + 0.5)) for value in row], scale


def product(states: Any, weight: Any, bias: Any | None) -> Any:
    """States of shape (tokens, inputs) times a weight of shape (outputs, inputs)."""
    out = np.zeros((len(states), len(weight)))
    rows = [codes(row) for row in weight]
    for token, state in enumerate(states):
        given, step = codes(state)
        for output, (row, scale) in enumerate(rows):
            whole = sum(one * other for one, other in zip(given, row, strict=True))
            out[token, output] = whole * step * scale + (0 if bias is None else float(bias[output]))
    return out


def double_product(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The same in float64: whole numbers below 2 ** 53 are exact there."""
    one, step = _rounded(states.double())
    other, scale = _rounded(weight.detach().double())
    out = one @ other.T * step * scale.squeeze(-1)
    return out if bias is None else out + bias


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    return torch.floor(rows / scale + 0.5), scale
