"""Optimiser: Muon for the matrices inside the layers, Adam for the embedding and the norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tiny_lm.model import EMBEDDING, Weights


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


def orthogonalise(update: Tensor) -> Tensor:
    """Approximate the nearest semi-orthogonal matrices, (N, R, C), by five Newton-Schulz steps (Jordan et al. 2024)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = update.shape[1] > update.shape[2]
    x = update.transpose(1, 2) if tall else update
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(torch.bfloat16)
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = (x.transpose(1, 2) if tall else x).to(update.dtype)
    return result


class Optimiser:
    """Keeps float32 weights and moments; a step is a pure function of them, the gradients and the factor."""

    def __init__(self, weights: Weights, rates: LearningRates) -> None:
        self.weights, self.rates = weights, rates
        self.matrices = [n for n, w in weights.items() if w.ndim == 2 and n != EMBEDDING]
        self.others = [n for n in weights if n not in set(self.matrices)]
        self.groups = self._groups()
        self.state: Weights = {f"m.{n}": torch.zeros_like(w) for n, w in weights.items()}
        self.state.update({f"v.{n}": torch.zeros_like(weights[n]) for n in self.others})

    def _groups(self, most: int = 8) -> list[list[str]]:
        """Group matrices of equal shape, since Newton-Schulz works on stacks."""
        by_shape: dict[tuple[int, ...], list[str]] = {}
        for name in self.matrices:
            by_shape.setdefault(tuple(self.weights[name].shape), []).append(name)
        return [names[i : i + most] for names in by_shape.values() for i in range(0, len(names), most)]

    @torch.no_grad()
    def step(self, grads: Weights, factor: float, number: int, run: Callable[..., Iterable[object]] = map) -> float:
        """Update the weights in place; return the norm of all gradients before clipping."""
        norm = float(torch.stack([g.norm() for g in grads.values()]).norm())
        scale = min(1.0, self.rates.clip / (norm + 1e-12))

        @torch.no_grad()
        def update(names: list[str]) -> None:
            scaled = {name: grads[name].mul_(scale) for name in names}
            if names == self.others:
                self._adam(scaled, factor, number)
            else:
                self._muon(scaled, factor)

        list(run(update, [self.others, *self.groups]))
        return norm

    def _muon(self, grads: Weights, factor: float) -> None:
        rates = self.rates
        updates = []
        for name, grad in grads.items():
            moment = self.state[f"m.{name}"].mul_(rates.momentum).add_(grad)
            updates.append(grad + rates.momentum * moment)
        rate = rates.matrix * factor
        for name, update in zip(grads, orthogonalise(torch.stack(updates)), strict=True):
            weight = self.weights[name]
            stretch = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            weight.mul_(1 - rate * rates.decay).add_(update, alpha=-rate * stretch)

    def _adam(self, grads: Weights, factor: float, number: int) -> None:
        rates = self.rates
        for name, grad in grads.items():
            m, v = self.state[f"m.{name}"], self.state[f"v.{name}"]
            m.lerp_(grad, 1 - rates.beta1)
            v.lerp_(grad.square(), 1 - rates.beta2)
            bias1, bias2 = 1 - rates.beta1 ** (number + 1), 1 - rates.beta2 ** (number + 1)
            rate = factor * (rates.embedding if name == EMBEDDING else rates.norm)
            self.weights[name].addcdiv_(m / bias1, (v / bias2).sqrt().add_(1e-8), value=-rate)
