"""Matrix products of a view's layers, by the library that is fastest on the processor at hand.

In float32 torch multiplies with Intel's MKL, which on AMD's processors takes twice the time of oneDNN
(docs/performance.md). Torch brings oneDNN too, behind the operator that its own compiler uses. And oneDNN lays a weight
out anew for every product unless it is kept that way (prepacked), which with few rows is half of its time.
"""

from __future__ import annotations

import functools
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from eddy_embed.model.view import unpacked

ROWS, SHARE, FEW = 8, 32, 8
"""Rows that a processor multiplies at a time, or half of them: behind many, one alone takes as long. For every number
of rows and every shape of weights oneDNN keeps kernels, half a MiB; so passes are filled up to few numbers, by a row in
`SHARE`, and below `ROWS` * `FEW`, where each row takes its time, by one in `FEW`."""
ALONE: tuple[Any, ...] = ("none", [], "")
"""What comes behind a product in the same call: nothing."""
CPUINFO = Path("/proc/cpuinfo")


def use_onednn(view: nn.Module) -> None:
    """Have a view's layers multiply as is fastest here; what they compute stays the same, to rounding.

    Args:
        view: Modules of our own around somebody's weights, which stay as they are.
    """
    if not slower_in_mkl():
        return
    for module in view.modules():
        own = _OWN.get(type(module))
        if own is not None and _plain(module) and module.weight.dtype == torch.float32:
            module.__class__ = own


def prepack(model: nn.Module) -> None:
    """Keep a model's weights as oneDNN multiplies by them, in place of as they came, in as many bytes.

    `weights.unpacked` gives the same values back. Left alone are modules of a kind of their own, weights that stand in
    several places, and those that would take more bytes: not of a multiple of 64 outputs, say.

    Args:
        model: A model that nobody else holds.
    """
    held = Counter(id(tensor) for _, tensor in model.named_parameters(remove_duplicate=False))
    for module in model.modules():
        if type(module) is not nn.Linear or not _plain(module) or held[id(module.weight)] > 1:
            continue
        if _packable(module.weight.dtype):
            laid = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach())
            if torch.ops.mkldnn._nbytes(laid) == laid.numel() * laid.element_size():
                module.weight = nn.Parameter(laid, requires_grad=False)
                module.__class__ = _Linear


def unpack(model: nn.Module) -> bool:
    """Undo `prepack`.

    Returns:
        Whether there was anything to undo.
    """
    found = packed(model)
    for module in found:
        module.weight = nn.Parameter(unpacked(module.weight.detach()), requires_grad=False)
        module.__class__ = nn.Linear
    return bool(found)


def packed(model: nn.Module) -> list[nn.Linear]:
    """The modules whose weights `prepack` laid out."""
    modules = (module for module in model.modules() if type(module) is _Linear)
    return [module for module in modules if module.weight.is_mkldnn]


def _packable(dtype: torch.dtype) -> bool:
    """Whether products in a type of number are oneDNN's here, and it says how it lays weights out."""
    if not (available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")):
        return False
    if dtype == torch.bfloat16:
        return multiplies_bfloat16() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32 and slower_in_mkl()


def multiplies_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 matrices itself (AVX512_BF16, which every one with AMX has too)."""
    return bool(torch.cpu._is_avx512_bf16_supported())


def pad_rows(rows: int, device: torch.device) -> int:
    """Rows of a pass, with those that make it faster and are not read."""
    if device.type != "cpu":
        return rows
    step = max(min(ROWS, _power(rows // FEW)), _power(rows // SHARE))
    return rows + -rows % step


def _power(number: int) -> int:
    """The power of two at or below, 1 for none."""
    return 1 << max(number, 1).bit_length() - 1


@functools.cache
def slower_in_mkl() -> bool:
    """Whether torch would multiply with MKL here, on a processor that is not of its maker, and can do otherwise."""
    return available() and vendor() == "AuthenticAMD"


def available() -> bool:
    """Whether this build of torch has both libraries."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return both and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def vendor() -> str:
    """The maker of the processor, as it names itself; "" where that is not found out."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    except (OSError, StopIteration):
        return platform.processor().rpartition(", ")[2]  # Windows: "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"


def _plain(module: nn.Module) -> bool:
    """Whether a module holds its weight in a plain tensor at hand, and nobody has replaced its forward."""
    weight = cast("torch.Tensor", module.weight)
    here = type(weight.data) is torch.Tensor and weight.device.type == "cpu" and weight.layout == torch.strided
    return here and weight.is_contiguous() and "forward" not in vars(module)


@functools.cache
def operator() -> Callable[..., torch.Tensor]:
    """OneDNN's product of states, a weight and a bias, and of what comes behind it."""
    return cast("Callable[..., torch.Tensor]", torch.ops.mkldnn._linear_pointwise.default)


def product(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`linear` by oneDNN, on a processor.

    Args:
        states: Shape (..., in).
        weight: Shape (out, in), prepacked or not; one that is laid out neither by rows nor by columns takes hundreds of
            times as long.
        bias: Shape (out,), None for none.
    """
    if not states.numel() or torch.is_autocast_enabled("cpu"):
        return nn.functional.linear(states, unpacked(weight), bias)
    if torch.is_grad_enabled():
        if weight.is_mkldnn:
            return cast("torch.Tensor", _Product.apply(states, weight, bias))  # type: ignore[no-untyped-call]
        return nn.functional.linear(states, weight, bias)
    return operator()(states, weight, bias, *ALONE)


class _Product(torch.autograd.Function):
    """A product by a prepacked weight, which is unpacked for the way back alone, and then let go."""

    @staticmethod
    def forward(context: Any, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        context.weight = weight
        return operator()(states, weight, bias, *ALONE)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradients[0] @ unpacked(context.weight), None, None


class _Linear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return product(input, self.weight, self.bias)


class _Conv1D(Conv1D):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return product(x, self.weight.t(), self.bias)


_OWN: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: _Linear, Conv1D: _Conv1D}
