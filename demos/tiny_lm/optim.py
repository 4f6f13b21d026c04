"""Optimisers: torch's Muon for the matrices inside the layers, its AdamW for the embedding and the norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Muon, Optimizer

from tiny_lm.model import EMBEDDING, Weights

MATRICES_TOGETHER = 8
"""Matrices that one thread updates at a time."""


@dataclass(frozen=True)
class LearningRates:
    """Peak learning rates and the constants of both optimisers."""

    matrix: float = 0.02
    embedding: float = 0.003
    norm: float = 0.003
    momentum: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.95
    decay: float = 0.01
    clip: float = 1.0


def rate_factor(step: int, knots: Sequence[tuple[int, float]]) -> float:
    """Return the factor on the rates: linear between knots (step, factor), level outside them."""
    steps, factors = zip(*knots, strict=True)
    return float(np.interp(step, steps, factors))


class Optimiser:
    """Updates float32 weights in place; a step depends on them, the moments, the gradients and the factor alone."""

    def __init__(self, weights: Weights, rates: LearningRates) -> None:
        self.weights, self.clip = weights, rates.clip
        matrices = [n for n, w in weights.items() if w.ndim == 2 and n != EMBEDDING]
        norms = [w for w in weights.values() if w.ndim == 1]
        groups = [{"params": [weights[EMBEDDING]], "lr": rates.embedding}, {"params": norms, "lr": rates.norm}]
        self.optimisers: list[Optimizer] = [AdamW(groups, betas=(rates.beta1, rates.beta2), weight_decay=0.0)]
        for at in range(0, len(matrices), MATRICES_TOGETHER):
            together = [weights[n] for n in matrices[at : at + MATRICES_TOGETHER]]
            self.optimisers.append(Muon(together, rates.matrix, weight_decay=rates.decay, momentum=rates.momentum))
        self._peaks = [[group["lr"] for group in optimiser.param_groups] for optimiser in self.optimisers]

    @property
    def state(self) -> Weights:
        """What the optimisers keep of each weight, by kind and name; nothing before the first step."""
        kept = {weight: values for optimiser in self.optimisers for weight, values in optimiser.state.items()}
        return {f"{kind}.{n}": v for n, weight in self.weights.items() for kind, v in kept.get(weight, {}).items()}

    def load(self, tensors: Weights) -> None:
        """Set the weights, named "w.", and the optimisers' state."""
        owners = {w: o for o in self.optimisers for group in o.param_groups for w in group["params"]}
        for key, tensor in tensors.items():
            kind, _, name = key.partition(".")
            weight = self.weights[name]
            if kind == "w":
                weight.copy_(tensor)
            else:  # AdamW keeps the number of the step on the CPU
                owners[weight].state[weight][kind] = tensor if kind == "step" else tensor.to(weight.device)

    def step(self, grads: Weights, factor: float, run: Callable[..., Iterable[object]] = map) -> float:
        """Update the weights by float32 gradients; return the norm of all gradients before clipping.

        `run` applies a function to the optimisers, in any order.
        """
        for name, grad in grads.items():
            self.weights[name].grad = grad
        norm = clip_grad_norm_(self.weights.values(), self.clip)
        for optimiser, peaks in zip(self.optimisers, self._peaks, strict=True):
            for group, peak in zip(optimiser.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
        list(run(lambda optimiser: optimiser.step(), self.optimisers))
        return float(norm)
