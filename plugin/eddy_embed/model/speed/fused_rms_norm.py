"""Root mean square norms of a view's layers by one kernel of an accelerator.

Models compute them in eight operations, most of them in float32: for every number in bfloat16 some 36 bytes are moved,
where 4 would do. Torch has a kernel for it on NVIDIA's and AMD's devices and on Apple's. On a processor its own
function takes longer than the operations (docs/performance.md), so there they stay.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, cast

import torch
from torch import nn

from eddy_embed.encoding.batching import out_of_memory

DEVICES = ("cuda", "mps")
"""Kinds of device on which the function is one kernel."""
ROUNDINGS = 4
"""Largest difference from a module's own result, in roundings of a number: some modules round once more than others."""
LARGE = 1000.0
"""States of large models reach as far, and their squares must not overflow in half precision."""


def fuse(view: nn.Module) -> None:
    """Have a view's norms computed by one kernel where there is one; what they compute stays the same, to rounding.

    Which modules are such norms is found out by what they compute, whatever their class is called. One that cannot be
    tried alone stays as it is.

    Args:
        view: Modules of our own around somebody's weights, which stay as they are.
    """
    for module in view.modules():
        try:
            same = _alone(module) and _agrees(module)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            if out_of_memory(error):
                raise
            continue
        if same:
            module.__class__ = _fused(type(module))  # type: ignore[arg-type]


def _alone(module: nn.Module) -> bool:
    """Whether all that a module has is one weight on such a device, and a forward of one argument."""
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    if weight is None or weight.device.type not in DEVICES or weight.ndim != 1 or len(weight) < 2:
        return False
    only = len(module._parameters) == 1 and not module._buffers and not module._modules
    # Accelerate gives modules a forward of their own where a model is spread over devices.
    if not only or not isinstance(_epsilon(module), float) or "forward" in vars(module):
        return False
    kinds = [each.kind for each in inspect.signature(module.forward).parameters.values()]
    return kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD]


def _epsilon(module: Any) -> Any:
    """What a norm adds to the mean square, by the names that it goes by; None for neither."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def _agrees(module: nn.Module) -> bool:
    """Whether a module gives what the kernel gives: for usual states, large ones, and those as small as its epsilon."""
    weight = cast("torch.Tensor", module.weight)
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(9, len(weight), generator=generator, device="cpu", dtype=torch.float64)
    scales = torch.tensor([3.0, LARGE, _epsilon(module) ** 0.5], device="cpu", dtype=torch.float64).repeat(3)
    states = ((draw + 0.5) * scales.unsqueeze(1)).to(weight.dtype).to(weight.device)
    with torch.no_grad():
        own, ours = module(states), _kernel(module, states)
    if own.dtype != ours.dtype or own.shape != ours.shape:
        return False
    limits = torch.finfo(own.dtype)
    return bool(((own - ours).abs() <= ROUNDINGS * limits.eps * own.abs().clamp(min=limits.tiny)).all())


def _kernel(module: Any, states: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(states, module.weight.shape, module.weight, _epsilon(module))


@functools.cache
def _fused(kind: type[nn.Module]) -> type[nn.Module]:
    """A class of norms, with the kernel in place of its operations."""

    class Fused(kind):  # type: ignore[misc,valid-type]
        def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            alone = len(args) == 1 and not kwargs and args[0].dtype == self.weight.dtype
            if not alone or torch.is_autocast_enabled(args[0].device.type):
                return cast("torch.Tensor", super().forward(*args, **kwargs))
            return _kernel(self, args[0])

    Fused.__name__ = Fused.__qualname__ = kind.__name__
    return Fused
