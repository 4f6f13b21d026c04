"""Matrix products and norms of a view's layers, by the library that is fastest on the device at hand.

In float32 torch multiplies with Intel's MKL, which on AMD's processors takes twice the time of oneDNN
(docs/performance.md). Torch has oneDNN too, in the operator that its own compiler uses. oneDNN rearranges a weight for
every product unless it is kept in that layout (prepacked), which with few rows is half of its time.
"""

from __future__ import annotations

import functools
import os
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from eddy_embed.errors import InvalidParameter
from eddy_embed.model.view import hooks_of, unpacked

ROWS, SHARE, FEW = 8, 32, 8
"""Rows that a processor multiplies at a time, or half of them: one row more takes as long as all of these. For every
number of rows and every shape of weights oneDNN keeps kernels, half a MiB; so passes are padded to few numbers of rows:
by at most one in `SHARE`, and below `ROWS` * `FEW`, where each row counts, by one in `FEW`."""
PREPACK = "EDDY_PREPACK"
"""The variable that says with 0 that weights are to stay as the file has them, in memory that processes share."""
CPUINFO = Path("/proc/cpuinfo")


def use_onednn(view: nn.Module) -> None:
    """Have a view's layers multiply by the fastest library here; results stay the same, up to rounding."""
    if not slower_in_mkl():
        return
    for module in view.modules():
        faster = _OWN.get(type(module))
        if faster is not None and _plain(module) and module.weight.dtype == torch.float32:
            module.__class__ = faster


def prepack(model: nn.Module) -> None:
    """Put a model's weights, which nobody else uses, in oneDNN's own layout, in as many bytes.

    `view.unpacked` gives the same values back. Left as they are: subclasses of Linear, shared weights, and those that
    would take more bytes, such as ones whose outputs are not a multiple of 64.
    """
    uses = Counter(id(tensor) for _, tensor in model.named_parameters(remove_duplicate=False))
    for module in model.modules():
        if type(module) is not nn.Linear or not _plain(module) or uses[id(module.weight)] > 1:
            continue
        if _packable(module.weight.dtype):
            weight = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach())
            if torch.ops.mkldnn._nbytes(weight) == weight.numel() * weight.element_size():
                module.weight = nn.Parameter(weight, requires_grad=False)
                module.__class__ = _Linear


def prepacks() -> bool:
    """Return whether weights are kept in oneDNN's layout, as the variable EDDY_PREPACK says: 1, or 0 for no."""
    value = os.environ.get(PREPACK) or "1"
    if value not in ("0", "1"):
        raise InvalidParameter(f"{PREPACK}={value!r} is unknown; choose 1, or 0 for weights as the file has them")
    return value == "1"


def unpack(model: nn.Module) -> bool:
    """Undo `prepack`, and return whether there was anything to undo."""
    modules = packed(model)
    for module in modules:
        module.weight = nn.Parameter(unpacked(module.weight.detach()), requires_grad=False)
        module.__class__ = nn.Linear
    return bool(modules)


def packed(model: nn.Module) -> list[nn.Linear]:
    """Return the modules whose weights `prepack` rearranged."""
    modules = (module for module in model.modules() if type(module) is _Linear)
    return [module for module in modules if module.weight.is_mkldnn]


def _packable(dtype: torch.dtype) -> bool:
    """Return whether oneDNN multiplies in a dtype here, and can say how it lays weights out."""
    if not (available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")):
        return False
    if dtype == torch.bfloat16:
        return multiplies_bfloat16() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32 and slower_in_mkl()


def multiplies_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 matrices itself (AVX512_BF16, which every one with AMX has)."""
    return bool(torch.cpu._is_avx512_bf16_supported())


def pad_rows(rows: int, device: torch.device) -> int:
    """Return rows of a pass, with padding that makes it faster and is not read."""
    if device.type != "cpu":
        return rows
    step = max(min(ROWS, _power(rows // FEW)), _power(rows // SHARE))
    return rows + -rows % step


def _power(number: int) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return 1 << max(number, 1).bit_length() - 1


@functools.cache
def slower_in_mkl() -> bool:
    """Return whether torch would multiply with MKL, Intel's, on an AMD processor, and oneDNN is there."""
    return available() and vendor() == "AuthenticAMD"


def available() -> bool:
    """Return whether this build of torch has both libraries."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return both and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def vendor() -> str:
    """Return the maker of the processor, as it names itself; "" if unknown."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    except (OSError, StopIteration):
        return platform.processor().rpartition(", ")[2]  # Windows: "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"


def _plain(module: nn.Module) -> bool:
    """Return whether a module holds its weight in a plain tensor on the processor, and its forward is not replaced."""
    weight = cast("torch.Tensor", module.weight)
    here = type(weight.data) is torch.Tensor and weight.device.type == "cpu" and weight.layout == torch.strided
    return here and weight.is_contiguous() and "forward" not in vars(module)


@functools.cache
def operator() -> Callable[..., torch.Tensor]:
    """Return oneDNN's product of states, a weight and a bias, with an operation fused after it."""
    return cast("Callable[..., torch.Tensor]", torch.ops.mkldnn._linear_pointwise.default)


def product(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return `linear` by oneDNN for states of shape (.., in) and a (prepacked) weight of shape (out, in).

    A weight that is stored neither by rows nor by columns takes hundreds of times as long.
    """
    if not states.numel() or torch.is_autocast_enabled("cpu"):
        return nn.functional.linear(states, unpacked(weight), bias)
    return operator()(states, weight, bias, "none", [], "")  # no operation is fused after it


class _Linear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return product(input, self.weight, self.bias)


class _Conv1D(Conv1D):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return product(x, self.weight.t(), self.bias)


_OWN: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: _Linear, Conv1D: _Conv1D}


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
    """Return whether both give the same for a state of usual size, and for one so small that epsilon decides."""
    states = torch.linspace(-1, 1, weight.shape[-1], dtype=torch.float32).add(0.1).expand(2, -1)
    sizes = torch.tensor([[1.0], [_epsilon(module) ** 0.5]])
    states = (states * sizes).to(weight.device, weight.dtype)
    expected, fused = module(states).double(), _fused(module, states).double()
    return bool(((expected - fused).norm(dim=1) <= ROUNDING[weight.dtype] * expected.norm(dim=1)).all())
