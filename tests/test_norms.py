"""Which norms are left to a model's own operations: those of a processor, and whatever is more than a norm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.families import build
from torch import nn

from eddy_embed import norms


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


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the processor for an accelerator: the kernel has another name there, and the same result."""
    alone = norms._alone

    def on_accelerator(module: Any) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "device", torch.device("cuda"))
            return alone(module)

    monkeypatch.setattr(norms, "_alone", on_accelerator)


def fused(module: nn.Module) -> bool:
    kind = type(module)
    norms.fuse(module)
    return type(module) is not kind


def test_on_a_processor_they_stay() -> None:
    model, _ = build("llama")
    before = [type(module) for module in model.modules()]
    norms.fuse(model)
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
@pytest.mark.parametrize("kind", [Gated, Elsewhere, Biased, lambda: nn.LayerNorm(8, bias=False), lambda: nn.RMSNorm(8)])
def test_what_is_no_such_norm_is_left_alone(kind: Any) -> None:
    assert not fused(kind())


@pytest.mark.usefixtures("anywhere")
def test_one_whose_forward_somebody_replaced_is_left_alone() -> None:
    module = Norm()
    module.forward = lambda states: states  # type: ignore[method-assign]
    assert not fused(module)


@pytest.mark.usefixtures("anywhere")
def test_states_of_another_type_go_through_its_own_operations() -> None:
    module = Norm()
    states = torch.randn(3, 8, dtype=torch.float64)
    expected = module(states)
    assert fused(module)
    assert module(states).dtype == torch.float64 and torch.equal(module(states), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(states.float()).dtype == torch.float32
