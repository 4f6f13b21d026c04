"""How probable a question is after a text: one token after the other, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .double import apply, double
from .forward import forward


def vocabulary(model: Any, state: torch.Tensor) -> torch.Tensor:
    """Unnormalised scores of every token after a state of the last layer, shape (vocabulary,)."""
    whole = double(model)
    scores = apply(whole.get_output_embeddings(), state[None])[0]
    cap = getattr(whole.config, "final_logit_softcapping", None)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    return scores / (getattr(whole.config, "logits_scaling", None) or 1.0)


def likelihood(model: Any, ids: Sequence[int], first: int) -> float:
    """Mean log-probability of the tokens from position `first` on, each after all that stand before it, in nats."""
    states = forward(model, ids)[-1]
    found = []
    for position in range(first, len(ids)):
        scores = vocabulary(model, states[position - 1])
        largest = float(scores.max())
        total = sum(math.exp(float(score) - largest) for score in scores)
        found.append(float(scores[ids[position]]) - largest - math.log(total))
    return sum(found) / len(found)
