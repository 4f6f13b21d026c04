"""Which norms are left to a model's own operations: those of a processor, and whatever is more than a norm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.families import build
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from eddy_embed.model.speed import fused_rms_norm


class Norm(nn.Module):
    """As models write it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, width))
        self.variance_epsilon = 1e-6

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.weight * states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


class Gated(Norm):
    def forward(self, states: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(states if gate is None else states * gate)


class Elsewhere(Norm):
    """Its epsilon stands outside the root."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.weight * states / (states.pow(2).mean(-1, keepdim=True).sqrt() + self.variance_epsilon)


class Biased(Norm):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8))


class Centred(Norm):
    """As Cohere's."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states - states.mean(-1, keepdim=True))


class Named(Norm):
    def forward(self, *, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states)


class Flat(Norm):
    """Takes states of another shape than those that it is tried with."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if states.ndim != 1:
            raise ValueError(f"{states.ndim} dimensions")
        return super().forward(states)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's function has the same result, in several operations."""
    monkeypatch.setattr(fused_rms_norm, "DEVICES", ("cpu",))


def fused(module: nn.Module) -> bool:
    kind = type(module)
    fused_rms_norm.fuse(module)
    return type(module) is not kind


def test_on_a_processor_they_stay() -> None:
    model, _ = build("llama")
    before = [type(module) for module in model.modules()]
    fused_rms_norm.fuse(model)
    assert [type(module) for module in model.modules()] == before


@pytest.mark.usefixtures("anywhere")
def test_a_norm_is_computed_by_the_kernel_and_keeps_its_name() -> None:
    module, states = Norm(), torch.randn(3, 8)
    expected = module(states)
    assert fused(module) and isinstance(module, Norm) and type(module).__name__ == "Norm"
    assert torch.allclose(module(states), expected, rtol=1e-6)
    given = torch.randn(3, 8, requires_grad=True)
    module(given).sum().backward()
    assert given.grad is not None and given.grad.abs().sum() > 0


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", [Gated, Elsewhere, Biased, Centred, Named, Flat, lambda: Norm(1), lambda: Norm(0)])
def test_what_is_no_such_norm_is_left_alone(kind: Any) -> None:
    assert not fused(kind())


@pytest.mark.usefixtures("anywhere")
def test_one_whose_forward_somebody_replaced_is_left_alone() -> None:
    module = Norm()
    module.forward = lambda states: states  # type: ignore[method-assign]
    assert not fused(module)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_script_among_the_modules_is_no_obstacle() -> None:
    view = nn.ModuleDict({"script": torch.jit.script(nn.ReLU()), "norm": Norm()})
    fused_rms_norm.fuse(view)
    assert type(view["norm"]) is not Norm


@pytest.mark.usefixtures("anywhere")
def test_tiny_weights_in_half_precision_are_no_obstacle() -> None:
    """Below the least normal number, a rounding is as large as right above it."""
    module = LlamaRMSNorm(4096).half()
    module.weight.data.fill_(3e-5)
    assert fused(module)


@pytest.mark.usefixtures("anywhere")
def test_with_another_device_by_default_norms_are_tried_all_the_same() -> None:
    module = Norm()
    with torch.device("meta"):
        assert fused(module)


@pytest.mark.usefixtures("anywhere")
def test_memory_that_is_out_is_said() -> None:
    class Full(Norm):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        fused(Full())


@pytest.mark.usefixtures("anywhere")
def test_what_the_kernel_was_not_tried_on_goes_through_its_own_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    module, states = Norm(), torch.randn(3, 8, dtype=torch.float64)
    expected = module(states)
    assert fused(module)
    monkeypatch.setattr(fused_rms_norm, "_kernel", None)
    assert torch.equal(module(states), expected)
    assert torch.equal(module(states=states.float()), Norm()(states.float()))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(states.float()), Norm()(states.float()))
    with pytest.raises(TypeError):
        module(states.float())
