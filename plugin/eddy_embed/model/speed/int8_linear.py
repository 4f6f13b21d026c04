"""Linear layers in int8: a scale for each output of the weight, and one for each token, found as it comes.

With s = max|w| / 127 over a weight's row and t = max|x| / 127 over a token's states, the product is
round(x / t) round(w / s)^T, exact in 32 bits, times s and t. OneDNN multiplies with AVX512-VNNI, four bytes at a time,
by unsigned states: 128 is added to them, and what that adds to the product is taken off again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import cast

import torch
from torch import nn

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.packed.linear import PackedLinear
from eddy_embed.model.speed.onednn_linear import PLAIN_LINEARS, UNFUSED
from eddy_embed.model.view import unpacked

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that the models of transformers give the same states, one right after the other."""
LARGEST = 127
_OFFSET = 128
_SMALLEST = 1e-30
"""In place of a token's largest state where all are 0."""


def multiplies_int8() -> bool:
    """Whether the processor multiplies int8 itself (AVX512-VNNI); without, sums of two products would be cut off."""
    return bool(torch.cpu._is_vnni_supported() and torch.cpu._is_avx512_supported())


def use_int8(module: nn.Module, name: str) -> None:
    """Put an `Int8Linear` in place of each linear layer inside a module of the model of this name.

    Raises:
        UnsupportedModel: There is none, or PEFT adapters, which read the weight of the layer that they wrap.
    """
    if any(type(each).__module__.startswith("peft.") for each in module.modules()):
        raise UnsupportedModel(
            f"{name} has PEFT adapters, which int8 would lose; save the merged model (merge_and_unload) and name that, "
            "or choose dtype='auto'"
        )
    found = [
        (parent, child_name, child)
        for parent in module.modules()
        for child_name, child in parent.named_children()
        if type(child) in (*PLAIN_LINEARS, PackedLinear)
    ]
    if not found:
        raise UnsupportedModel(f"{name} has no linear layers of torch's own to put in int8; choose dtype='auto'")
    for parent, child_name, child in found:
        setattr(parent, child_name, Int8Linear(cast("nn.Linear", child)))
    for parent, names in product(module.modules(), SIBLINGS):
        layers = [layer for each in names if isinstance(layer := getattr(parent, each, None), Int8Linear)]
        if len(layers) == len(names):
            shared = SharedCodes(len(layers))
            for layer in layers:
                layer.quantised = shared


class Int8Linear(nn.Module):
    """A linear layer in int8; its outputs have the type of the states given to it."""

    weight: torch.Tensor
    scale: torch.Tensor
    zeros: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = unpacked(linear.weight.detach()).float()
        scale = weight.abs().amax(1).clamp_min_(_SMALLEST) / LARGEST
        codes = (weight / scale[:, None]).round_().to(torch.int8)
        self.register_buffer("weight", torch.ops.onednn.qlinear_prepack(codes, None))
        self.register_buffer("scale", scale)
        self.register_buffer("zeros", torch.zeros(len(scale), dtype=torch.long), persistent=False)
        self.bias = linear.bias
        self.quantised: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = quantised

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Shape (.., outputs), for states of shape (.., inputs)."""
        codes, scale = self.quantised(states)
        out = self.multiply(codes, states.dtype)
        out *= scale.to(out.dtype)
        if self.bias is not None:
            out += self.bias
        return out.view(*states.shape[:-1], -1)

    def multiply(self, codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Codes times the weight, without the tokens' scales and the bias."""
        weight, output = (self.weight, self.scale, self.zeros), (1.0, 0, dtype)
        out = torch.ops.onednn.qlinear_pointwise(codes, 1.0, _OFFSET, *weight, None, *output, *UNFUSED)
        return cast("torch.Tensor", out)


def quantised(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes 1 .. 255, shape (tokens, width), of states of shape (.., width), and each token's scale, (tokens, 1)."""
    # A copy: what follows works in place.
    values = states.reshape(-1, states.shape[-1]).to(torch.float32, copy=True)
    highest, lowest = values.amax(-1, keepdim=True), values.amin(-1, keepdim=True)
    largest = torch.maximum(highest, lowest.neg_()).clamp_min_(_SMALLEST)
    # By way of int8, since torch is slow to make bytes of floats; the highest bit, turned over, adds the offset.
    codes = values.mul_(LARGEST / largest).round_().to(torch.int8).bitwise_xor_(-_OFFSET).view(torch.uint8)
    return codes, largest / LARGEST


class SharedCodes(threading.local):
    """`quantised` for layers that are given the same states one after the other, computed once in each thread."""

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.left = 0
        self.states: torch.Tensor | None = None
        self.codes: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `quantised`; nothing is kept after the last layer."""
        codes = self.codes
        if codes is None or states is not self.states:
            codes = self.codes = quantised(states)
            self.states, self.left = states, self.layers
        self.left -= 1
        if not self.left:
            self.states = self.codes = None
        return codes
