"""Norms by one kernel: put in place of those classes that compute the same, and of no others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests import families
from tests.selection import each_once
from torch import nn

from eddy_embed.model import products
from eddy_embed.model.products import use_fused_norms


def norms(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]


def replaced(model: nn.Module) -> int:
    use_fused_norms(model, "cpu")
    return sum("forward" in vars(module) for module in norms(model))


@pytest.mark.parametrize(
    ("family", "dtype"),
    each_once([*families.FAMILIES, *families.MORE_FAMILIES, *families.ENCODERS], products.ROUNDING),
)
def test_they_give_what_the_own_class_gives(family: str, dtype: torch.dtype) -> None:
    model = copy.deepcopy(families.build(family)[0]).to(dtype)
    states = torch.randn(7, max((len(norm.weight) for norm in norms(model)), default=1)).to(dtype) * 3
    own = [norm(states[:, : len(norm.weight)]) for norm in norms(model)]
    assert replaced(model) == (0 if family.startswith("gemma") else len(own))
    for norm, before in zip(norms(model), own, strict=True):
        after = norm(states[:, : len(norm.weight)])
        assert after.dtype == before.dtype
        assert (after - before).norm() <= products.ROUNDING[dtype] * before.norm()


def another_epsilon(norm: Any, states: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(states, norm.weight.shape, norm.weight, 1e-3)


def gain_over_one(norm: Any, states: torch.Tensor) -> torch.Tensor:
    return nn.functional.rms_norm(states, norm.weight.shape, 1 + norm.weight, norm.variance_epsilon)


@pytest.mark.parametrize("forward", [another_epsilon, gain_over_one])
def test_norms_that_compute_something_else_or_elsewhere_stay(forward: Any) -> None:
    model = copy.deepcopy(families.build("llama")[0])
    norms(model)[3].__class__ = type("OwnRMSNorm", (type(norms(model)[3]),), {"forward": forward})
    norms(model)[4].double()
    norms(model)[5].weight = nn.Parameter(norms(model)[5].weight.to("meta"))
    assert replaced(model) == 10 and not any("forward" in vars(norm) for norm in norms(model)[3:6])
