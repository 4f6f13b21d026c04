"""Weights kept as oneDNN multiplies by them: the same vectors, fingerprints and bytes, in models of our own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.comparison import TEXTS
from tests.families import ENCODERS, FAMILIES, MORE_FAMILIES, OWN_ATTENTION, build
from torch import nn

from eddy_embed import Embedder, products
from eddy_embed.errors import InvalidParameter
from eddy_embed.weights import unpacked

NEAR = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
ELSEWHERE = {"gpt2", "falcon"}
"""Families whose products are not those of torch's own linear layer."""
pytestmark = pytest.mark.skipif(
    not products.available(), reason="this build of torch has no oneDNN, so that no weight is laid out for it"
)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that multiplies bfloat16, of AMD's."""
    monkeypatch.setattr(products, "slower_in_mkl", lambda: True)
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: True)


def packed(model: nn.Module) -> list[str]:
    return [name for name, tensor in model.named_parameters() if tensor.is_mkldnn]


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("family", [*FAMILIES, *MORE_FAMILIES, *OWN_ATTENTION, *ENCODERS])
def test_vectors_are_the_same(family: str, dtype: torch.dtype) -> None:
    """With and without biases, in every family; where products are of another kind, nothing happens."""
    model, tokenizer = build(family)
    usual = copy.deepcopy(model).to(dtype)
    own = copy.deepcopy(usual)
    products.prepack(own)
    assert (len(packed(own)) >= 12) == (family not in ELSEWHERE)
    one, other = (Embedder(each, tokenizer=tokenizer, method="plain") for each in (usual, own))
    np.testing.assert_allclose(other.encode_document(TEXTS), one.encode_document(TEXTS), atol=NEAR[dtype])
    assert other.fingerprint == one.fingerprint
    assert other.explain(TEXTS[0]).bytes == one.explain(TEXTS[0]).bytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_loaded_by_name(dtype: str) -> None:
    """Every weight of every layer, in as many bytes; a loaded model that is handed over keeps its own."""
    own = Embedder("eddy-tiny", method="plain", dtype=dtype)
    view = own._pipeline.open_runner.host._view
    assert len(packed(view)) == 7 * own._pipeline.open_runner.host.kept
    assert sum(torch.ops.mkldnn._nbytes(p) for p in view.parameters() if p.is_mkldnn) == sum(
        p.numel() * p.element_size() for p in view.parameters() if p.is_mkldnn
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDDY_PREPACK", "0")
        usual = Embedder("eddy-tiny", method="plain", dtype=dtype)
        patch.setenv("EDDY_PREPACK", "no")
        with pytest.raises(InvalidParameter, match="EDDY_PREPACK='no' is unknown; choose 1, or 0 for"):
            Embedder("eddy-tiny", method="plain", dtype=dtype)
    assert packed(usual._pipeline.open_runner.host._view) == []
    np.testing.assert_allclose(
        own.encode_document(TEXTS), usual.encode_document(TEXTS), atol=NEAR[getattr(torch, dtype)]
    )
    assert (own.fingerprint, own.explain("a").bytes) == (usual.fingerprint, usual.explain("a").bytes)
    model, tokenizer = build("llama")
    given = Embedder(model, tokenizer=tokenizer, method="plain")
    assert packed(model) == packed(given._pipeline.open_runner.host._view) == []


def test_models_with_code_of_their_own_or_an_adapter_are_left_alone(tmp_path: Path) -> None:
    """Somebody else's code may look at a weight past its module."""
    from peft import LoraConfig, get_peft_model

    model, tokenizer = build("llama")
    tokenizer.save_pretrained(tmp_path / "base")
    model.save_pretrained(tmp_path / "base")
    assert packed(Embedder(str(tmp_path / "base"), method="plain")._pipeline.open_runner.host._view)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(target_modules=["q_proj"]))
    adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    adapted.save_pretrained(tmp_path / "adapter")
    assert not packed(Embedder(str(tmp_path / "adapter"), method="plain")._pipeline.open_runner.host._view)


def test_what_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types, other kinds, weights in two places, and those that would take more bytes."""
    names = ("own", "short", "turned", "tied", "derived", "replaced")
    model = nn.ModuleDict({name: nn.Linear(64, 64) for name in names})
    linear: Any = model
    linear["short"].to(torch.float16)
    linear["turned"].weight.data = linear["turned"].weight.data.t()
    model["table"] = nn.Embedding(64, 64)
    linear["table"].weight = linear["tied"].weight
    linear["derived"].__class__ = type("Own", (nn.Linear,), {})
    linear["replaced"].forward = lambda states: states
    model["narrow"] = nn.Linear(48, 100)
    before = {name: module.weight for name, module in linear.items()}
    products.prepack(model)
    assert packed(model) == ["own.weight"]
    assert torch.equal(unpacked(linear["own"].weight), before["own"])
    assert all(linear[name].weight is weight for name, weight in before.items() if name != "own")
    for name in ("slower_in_mkl", "available"):
        again = nn.Sequential(nn.Linear(64, 64))
        with monkeypatch.context() as patch:
            patch.setattr(products, name, lambda: False)
            products.prepack(again)
        assert packed(again) == []


def test_gradients_pass() -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    weight = model[0].weight.detach().clone()
    products.prepack(model)
    states = torch.randn(3, 64, requires_grad=True)
    model(states).sum().backward()
    assert states.grad is not None and torch.allclose(states.grad, weight.sum(0).expand(3, 64))
