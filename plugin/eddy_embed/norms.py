"""Root mean square norms of a view's layers by one kernel of an accelerator.

Models compute them in seven operations, most of them in float32: for every number in bfloat16 some 36 bytes are moved,
where 4 would do. Torch has a kernel for it on accelerators. On a processor its own function takes longer than the
operations (docs/performance.md), so there they stay.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, cast

import torch
from torch import nn

ROUNDINGS = 4
"""Largest difference from a module's own result, in roundings of a number: some modules round once more than others."""


def fuse(view: nn.Module) -> None:
    """Have a view's norms computed by one kernel where there is one; what they compute stays the same, to rounding.

    Which modules are such norms is found out by what they compute, whatever their class is called.

    Args:
        view: Modules of our own around somebody's weights, which stay as they are.
    """
    for module in view.modules():
        if _alone(module) and _agrees(module):
            module.__class__ = _fused(type(module))  # type: ignore[arg-type]


def _alone(module: nn.Module) -> bool:
    """Whether all that a module has is one weight on an accelerator, and a forward of one argument."""
    weight = module._parameters.get("weight")
    if weight is None or weight.ndim != 1 or not weight.is_floating_point() or isinstance(module, nn.RMSNorm):
        return False
    only = len(module._parameters) == 1 and not module._buffers and not module._modules
    here = weight.device.type not in ("cpu", "meta") and isinstance(_epsilon(module), float)
    return only and here and "forward" not in vars(module) and len(inspect.signature(module.forward).parameters) == 1


def _epsilon(module: Any) -> Any:
    """What a norm adds to the mean square, by the names that it goes by; None for neither."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def _agrees(module: nn.Module) -> bool:
    """Whether a module gives what the kernel gives, for states far from zero and for those as small as its epsilon."""
    weight = cast("torch.Tensor", module.weight)
    draw = torch.randn(8, len(weight), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scales = torch.tensor([3.0, _epsilon(module) ** 0.5], dtype=torch.float64).repeat(4).unsqueeze(1)
    states = ((draw + 0.5) * scales).to(weight.device, weight.dtype)
    with torch.no_grad():
        own, ours = module(states), _kernel(module, states)
    if own.dtype != ours.dtype or own.shape != ours.shape:
        return False
    most = ROUNDINGS * torch.finfo(weight.dtype).eps
    return bool(((own - ours).abs() <= most * own.abs()).all())


def _kernel(module: Any, states: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(states, module.weight.shape, module.weight, _epsilon(module))


@functools.cache
def _fused(kind: type[nn.Module]) -> type[nn.Module]:
    """A class of norms, with the kernel in place of its operations."""

    class Fused(kind):  # type: ignore[misc,valid-type]
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            if hidden_states.dtype != self.weight.dtype or torch.is_autocast_enabled(hidden_states.device.type):
                return cast("torch.Tensor", super().forward(hidden_states))
            return _kernel(self, hidden_states)

    Fused.__name__ = Fused.__qualname__ = kind.__name__
    return Fused
