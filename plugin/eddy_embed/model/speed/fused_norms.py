"""RMS norms by one kernel on an NVIDIA device, where transformers' classes start seven and round twice.

They read and write a token's state so often that they take a third of a small model's pass there (docs/performance.md).
"""

from __future__ import annotations

from types import MethodType
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from eddy_embed.model.view import hooks_of

ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Largest relative difference of what rounds otherwise; another definition of the norm, such as Gemma's, which adds 1
to its weight, differs by more."""


def use_fused_norms(view: nn.Module, device_type: str = "cuda") -> None:
    """Have a view's RMS norms computed by torch's kernel, each that gives what its own class gives."""
    for module in view.modules():
        weight = getattr(module, "weight", None)
        if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight, torch.Tensor) or hooks_of(module):
            continue
        if weight.device.type == device_type and weight.dtype in ROUNDING and _alike(module, weight):
            module.forward = MethodType(_fused, module)


def _epsilon(module: nn.Module) -> float:
    return float(cast("float", getattr(module, "variance_epsilon", getattr(module, "eps", 0.0))))


def _fused(module: Any, states: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(states, module.weight.shape, module.weight, _epsilon(module))


@torch.inference_mode()
def _alike(module: nn.Module, weight: torch.Tensor) -> bool:
    """Whether both give the same for a state of usual size, and for one so small that epsilon decides."""
    states = torch.linspace(-1, 1, weight.shape[-1], dtype=torch.float32).add(0.1).expand(2, -1)
    sizes = torch.tensor([[1.0], [_epsilon(module) ** 0.5]])
    states = (states * sizes).to(weight.device, weight.dtype)
    own, fused = module(states).double(), _fused(module, states).double()
    return bool(((own - fused).norm(dim=1) <= ROUNDING[weight.dtype] * own.norm(dim=1)).all())
