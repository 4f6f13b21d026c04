"""Where a model's weights are: in plain tensors, in ones laid out for products, in quantised ones, or on a disk.

Nothing here names a library: quantised tensors are known by torch's own protocol for tensor classes, modules that
keep more than tensors by what they save, and modules whose weights are fetched for each pass by accelerate's hook.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLAIN = (nn.Parameter.__deepcopy__, torch.Tensor.__deepcopy__)


class SharedCopies(TorchFunctionMode):
    """While it is on, a deep copy of a tensor is the tensor itself: what holds it is copied around it."""

    def __init__(self, own: set[int]) -> None:
        """Args: own: ids of the tensors that are to be copied all the same."""
        super().__init__()
        self.own = own

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept copies, and nothing else."""
        if function is torch.Tensor.__deepcopy__ and id(args[0]) not in self.own:
            return args[0]
        return function(*args, **(kwargs or {}))


def copies_itself(tensor: torch.Tensor) -> bool:
    """Whether a parameter keeps more than its data, and says how that is copied.

    bitsandbytes' do. Their modules change them in a pass (the scales move elsewhere, the data is packed anew), so a
    view needs such parameters of its own around the same memory.
    """
    return type(tensor).__deepcopy__ not in _PLAIN and not is_traceable_wrapper_subclass(tensor)


def unpacked(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as it came, where oneDNN holds it in an order of its own."""
    return tensor.to_dense() if tensor.is_mkldnn else tensor


def quantised(model: nn.Module) -> bool:
    """Whether some of a model's weights are stored as codes, for which scales stand elsewhere."""
    return getattr(getattr(model, "config", None), "quantization_config", None) is not None or any(
        copies_itself(p) or is_traceable_wrapper_subclass(p) for p in model.parameters()
    )


def hooks_of(module: nn.Module) -> list[Any]:
    """The hooks that accelerate put around a module's forward."""
    hook = getattr(module, "_hf_hook", None)
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))


def dispatched(model: nn.Module) -> bool:
    """Whether parts of a model stand on several devices, or are fetched for each pass."""
    return any(hooks_of(module) for module in model.modules())


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes, wherever its weights are kept."""
    for hook in hooks_of(module):
        if hook.execution_device is not None:
            return torch.empty(0, device=hook.execution_device).device
    return next(module.parameters()).device


def layer_of(name: str) -> int:
    """Index of the layer that a tensor or a module belongs to, -1 outside the layers."""
    number = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(number[1]) if number else -1


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a model, each tensor once: codes and scales of quantised ones, fetched from outside."""
    seen: set[int] = set()
    saved = {name: module for name, module in model.named_modules() if _saves_more(module)}
    outside = dict(_outside(model))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) in seen or name.rpartition(".")[0] in saved:
            continue
        seen.add(id(tensor))
        found = outside[name][name.rpartition(".")[2]] if name in outside else tensor
        yield from _parts(name, found)
    for name, module in saved.items():
        # Saving may repack what is saved: let it do that to a copy.
        with SharedCopies(set()):
            alone = copy.deepcopy(module)
        yield from ((f"{name}.{key}", value) for key, value in alone.state_dict().items())


def _parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    if not is_traceable_wrapper_subclass(tensor):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from _parts(f"{name}.{part}", getattr(tensor, part))


def _saves_more(module: nn.Module) -> bool:
    """Whether a module writes more into a checkpoint than its parameters and buffers, such as scales."""
    return any(copies_itself(p) for p in module.parameters(recurse=False))


def _outside(model: nn.Module) -> Iterator[tuple[str, Mapping[str, torch.Tensor]]]:
    """Names of tensors that stand on no device between passes, and the map that has them under their last name."""
    for prefix, module in model.named_modules():
        for hook in hooks_of(module):
            if not getattr(hook, "offload", False):
                continue
            for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
                if tensor.is_meta:
                    yield f"{prefix}.{name}".lstrip("."), hook.weights_map
