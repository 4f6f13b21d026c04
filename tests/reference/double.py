"""Models in float64, all the way through."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_doubles: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


class AllDouble(TorchFunctionMode):
    """Turns every request for float32 into float64.

    Norms, rotary angles and softmax of transformers go through float32 even in a float64 model, which would limit
    any comparison to 1e-7.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        for value in args:
            if value is torch.float32:
                args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        if not kwargs:
            return func(*args)
        return func(*args, **{k: torch.float64 if value is torch.float32 else value for k, value in kwargs.items()})


def double(model: nn.Module) -> Any:
    """A float64 copy of the model; the same copy for the same model, so weights must not change in between."""
    if model not in _doubles:
        _doubles[model] = copy.deepcopy(model).double().eval()
        # The products of experts in groups, which transformers prefers, know no float64.
        _doubles[model].set_experts_implementation("eager")
    return _doubles[model]


def apply(module: nn.Module, *inputs: Any) -> Any:
    """Runs one module without gradients and without a detour through float32."""
    with torch.no_grad(), AllDouble():
        return module(*inputs)
