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
from tests.gguf_files import FAMILIES as RECIPES
from tests.gguf_files import wide, write
from tests.selection import mostly_slow
from tests.test_products import Calls
from torch import nn
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaModel

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model import products
from eddy_embed.model.view import unpacked

NEAR = {torch.float32: 2e-6, torch.bfloat16: 4e-3}
ELSEWHERE = {"gpt2", "falcon"}
"""Families whose products are not those of torch's own linear layer."""
pytestmark = pytest.mark.skipif(
    not products.available(), reason="this build of torch has no oneDNN, so that no weight is laid out for it"
)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As on a processor of AMD's; what is about bfloat16 needs one that oneDNN multiplies it on."""
    asked = getattr(request.node, "callspec", None)
    half = asked is not None and str(asked.params.get("dtype")).endswith("bfloat16")
    if half and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN does not multiply bfloat16 on this processor, so that no such weight is laid out for it")
    monkeypatch.setattr(products, "slower_in_mkl", lambda: True)
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: True)


def view(embedder: Embedder) -> nn.Module:
    found: nn.Module = embedder._pipeline.open_runner.host._view
    return found


def packed(model: nn.Module) -> list[str]:
    return [name for name, tensor in model.named_parameters() if tensor.is_mkldnn]


@pytest.mark.parametrize("dtype", mostly_slow(NEAR, [torch.float32]))
@pytest.mark.parametrize(
    "family",
    mostly_slow(
        [*FAMILIES, *MORE_FAMILIES, *OWN_ATTENTION, *ENCODERS], [*FAMILIES, "phi3", "qwen3_moe", "falcon", "bert", "t5"]
    ),
)
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
    laid = [tensor for tensor in view(own).parameters() if tensor.is_mkldnn]
    assert len(laid) == 7 * own._pipeline.open_runner.host.kept
    assert all(torch.ops.mkldnn._nbytes(tensor) == tensor.numel() * tensor.element_size() for tensor in laid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDDY_PREPACK", "0")
        usual = Embedder("eddy-tiny", method="plain", dtype=dtype)
        patch.setenv("EDDY_PREPACK", "no")
        with pytest.raises(InvalidParameter, match="EDDY_PREPACK='no' is unknown; choose 1, or 0 for"):
            Embedder("eddy-tiny", method="plain", dtype=dtype)
    assert packed(view(usual)) == []
    with Calls() as calls:
        own.encode_document(TEXTS)
    assert calls.packed >= len(laid) and not calls.count("to_dense")
    np.testing.assert_allclose(
        own.encode_document(TEXTS), usual.encode_document(TEXTS), atol=NEAR[getattr(torch, dtype)]
    )
    assert (own.fingerprint, own.explain("a").bytes) == (usual.fingerprint, usual.explain("a").bytes)
    model, tokenizer = build("llama")
    given = Embedder(model, tokenizer=tokenizer, method="plain")
    assert packed(model) == packed(view(given)) == []


def test_unpacked_layers_of_a_gguf_file(tmp_path: Path) -> None:
    write(tmp_path / "wide.gguf", wide(RECIPES["llama"]), "Q8_0")
    own = Embedder(tmp_path / "wide.gguf", method="plain:exit=2", dtype="float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDDY_PREPACK", "0")
        usual = Embedder(tmp_path / "wide.gguf", method="plain:exit=2", dtype="float32")
    assert len(packed(view(own))) == 14 and packed(view(usual)) == []
    np.testing.assert_allclose(own.encode_document(TEXTS), usual.encode_document(TEXTS), atol=NEAR[torch.float32])
    assert (own.fingerprint, own.explain("a").bytes) == (usual.fingerprint, usual.explain("a").bytes)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    model, tokenizer = build("llama")
    tokenizer.save_pretrained(tmp_path / "llama")
    model.save_pretrained(tmp_path / "llama")
    return str(tmp_path / "llama")


def test_adapters_placed_models_and_code_of_their_own_are_left_alone(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not transformers' may look at a weight past its module, and what is placed elsewhere is fetched."""
    from peft import LoraConfig, get_peft_model

    assert packed(view(Embedder(folder, method="plain")))
    adapted = get_peft_model(copy.deepcopy(build("llama")[0]), LoraConfig(target_modules=["q_proj"]))
    adapted.peft_config["default"].base_model_name_or_path = folder
    adapted.save_pretrained(tmp_path / "adapter")
    assert not packed(view(Embedder(str(tmp_path / "adapter"), method="plain")))
    assert not packed(view(Embedder(folder, method="plain", model_kwargs={"device_map": "cpu"})))
    monkeypatch.setattr(LlamaModel, "__module__", "transformers_modules.own")
    assert not packed(view(Embedder(folder, method="plain")))


def test_models_that_look_at_weights_past_their_modules(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs are brought back when that is found out; a model that fails in any case is still refused."""
    expected = Embedder(folder, method="plain").encode_document(TEXTS)

    def forward(self: Any, states: torch.Tensor) -> torch.Tensor:
        inner = self.act_fn(states @ self.gate_proj.weight.t()) * self.up_proj(states)
        found: torch.Tensor = self.down_proj(inner)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(LlamaMLP, "forward", forward)
        patch.setattr(torch.ops.mkldnn, "_nbytes", lambda laid: laid.numel() * laid.element_size())  # however narrow
        own = Embedder(folder, method="plain")
        assert packed(view(own)) == []
        np.testing.assert_allclose(own.encode_document(TEXTS), expected, atol=2e-6)
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, states: states[:, :, :3] + states)
    with pytest.raises(UnsupportedModel, match="LlamaModel fails on a trial text"):
        Embedder(folder, method="plain")


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
    switches = [("slower_in_mkl", torch.float32), ("available", torch.float32), ("multiplies_bfloat16", torch.bfloat16)]
    for name, dtype in switches:
        again = nn.Sequential(nn.Linear(64, 64, dtype=dtype))
        with monkeypatch.context() as patch:
            patch.setattr(products, name, lambda: False)
            products.prepack(again)
        assert packed(again) == []
