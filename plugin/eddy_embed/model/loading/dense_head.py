"""The layers that a fine-tuned embedding model applies to its pooled states, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.fingerprint import weights_digest
from eddy_embed.utils.arrays import Doubles

Weights = Mapping[str, torch.Tensor]
_ACTIVATIONS = ("torch.nn.modules.activation.", "torch.nn.modules.linear.Identity")


class Head:
    """Layers after the pooling, in order.

    Attributes:
        start: Width of the input, None for any.
        width: Width of the output, None for that of the input.
    """

    def __init__(self, layers: list[nn.Module], description: str) -> None:
        """Put layers together; `description` holds their names and configurations, which enter the digest."""
        self._layers = nn.Sequential(*layers).double().eval()
        self._description = description
        sized = [layer for layer in layers if isinstance(layer, Dense | Norm)]
        for before, after in pairwise(sized):
            if before.width != after.start:
                raise UnsupportedModel(
                    f"a module behind the pooling gives {before.width} numbers, and the next one takes {after.start}"
                )
        self.start: int | None = sized[0].start if sized else None
        self.width: int | None = sized[-1].width if sized else None

    def __call__(self, raw: Doubles) -> Doubles:
        """Pooled states of shape (width,) or (vectors, width) through all layers."""
        with torch.inference_mode():
            return np.asarray(self._layers(torch.from_numpy(np.asarray(raw, np.float64))).numpy())

    @property
    def digest(self) -> str:
        """Hash of the layers, their order and their weights."""
        return weights_digest([(self._description, torch.zeros(1)), *self._layers.named_parameters()])


class Dense(nn.Module):
    """A linear layer and an activation, with or without a residual connection."""

    def __init__(self, config: Mapping[str, Any], weights: Weights) -> None:
        """Make it from its configuration; refuse activations that are not torch's."""
        super().__init__()
        self.start, self.width = int(config["in_features"]), int(config["out_features"])
        self.linear = nn.Linear(self.start, self.width, bias=bool(config.get("bias", True)))
        self.activation = _activation(str(config.get("activation_function", "torch.nn.modules.activation.Tanh")))
        self.residual: nn.Module | None = None
        if config.get("use_residual"):
            same = self.start == self.width
            self.residual = nn.Identity() if same else nn.Linear(self.start, self.width, bias=False)
        _filled(self, weights, "Dense")

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """States of shape (.., start) to shape (.., width)."""
        out: torch.Tensor = self.activation(self.linear(states))
        return out if self.residual is None else out + self.residual(states)


class Norm(nn.Module):
    """Layer normalisation."""

    def __init__(self, config: Mapping[str, Any], weights: Weights) -> None:
        """Make it from its configuration."""
        super().__init__()
        self.start = self.width = int(config["dimension"])
        self.norm = nn.LayerNorm(self.width)
        _filled(self, weights, "LayerNorm")

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """States of shape (.., width)."""
        out: torch.Tensor = self.norm(states)
        return out


class Normalize(nn.Module):
    """Division by the length."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """States of shape (.., width)."""
        return nn.functional.normalize(states, dim=-1)


def _filled(layer: nn.Module, weights: Weights, name: str) -> None:
    """Load a layer's weights, or refuse those of another kind of layer."""
    try:
        layer.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise UnsupportedModel(
            f"the weights of the module {name} do not go with its config.json: {' '.join(str(error).split())}"
        ) from None


def _activation(path: str) -> nn.Module:
    found = getattr(nn, path.rpartition(".")[2], None) if path.startswith(_ACTIVATIONS) else None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UnsupportedModel(f"the activation {path} of the module Dense is not supported; torch's own are")
    return found()
