"""How much each token of a text moves a readout: by gradients (HTP, theorem 3.1)."""

from __future__ import annotations

import numpy as np
import torch

from eddy_embed.utils.arrays import Doubles


def probes(width: int, count: int, seed: int = 0) -> torch.Tensor:
    """Orthonormal directions of a readout's space, shape (min(count, width), width), the same on every machine.

    With as many as the readout is wide, gradients along them hold the whole Jacobian.
    """
    drawn = np.random.default_rng(seed).standard_normal((width, min(count, width)))
    axes, _ = np.linalg.qr(drawn)
    return torch.from_numpy(np.ascontiguousarray(axes.T))


def sensitivity(readout: torch.Tensor, leaf: torch.Tensor, directions: torch.Tensor) -> Doubles:
    """Frobenius norm of the Jacobian of a readout by each token's state on its way into the model.

    From a few directions of the readout: the mean of the squared gradients along orthonormal ones, times the width, is
    the squared norm in expectation, and is the norm itself where the directions are as many as the width. Theorem 3.1
    bounds the operator norm, which is at most this one.

    Args:
        readout: Shape (width,), with its graph.
        leaf: What the graph begins with, shape (.., tokens, width of a state).
        directions: Orthonormal, shape (directions, width).

    Returns:
        Shape (tokens,).
    """
    total = torch.zeros(leaf.shape[-2], dtype=torch.float64, device=leaf.device)
    for direction in directions.to(readout):
        (gradient,) = torch.autograd.grad(readout, leaf, direction, retain_graph=True)
        total += gradient.double().square().sum(-1).reshape(-1, leaf.shape[-2]).sum(0)
    return np.asarray((total * (len(readout) / len(directions))).sqrt().cpu().numpy())


def evenness(norms: Doubles) -> float:
    """How many of n tokens count, as a share of all: 1 where each moves the readout alike, 1/n where one alone does.

    The effective number (sum)^2 / sum of squares over n, of norms of shape (n,); NaN where all are zero.
    """
    total = float(norms.sum())
    return float(total**2 / (len(norms) * float(norms @ norms))) if total > 0 else float("nan")


def by_place(norms: Doubles, places: int) -> Doubles:
    """Norms of a text's tokens over its length, in so many places from its beginning to its end, mean 1.

    A token lies where it stands in the text; one that straddles two places counts in both, in parts.

    Args:
        norms: Of each token, shape (tokens,); not all zero.
        places: Number of places.

    Returns:
        Shape (places,).
    """
    edges = np.linspace(0, len(norms), places + 1)
    reached = np.interp(edges, np.arange(len(norms) + 1), np.concatenate([np.zeros(1), np.cumsum(norms)]))
    return np.asarray(np.diff(reached) * places / reached[-1])
