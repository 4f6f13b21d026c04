"""Matrix products by oneDNN, also of weights kept in its layout: the same vectors, and only where it can multiply."""

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
from tests.selection import each_once, mostly_slow
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaModel
from transformers.pytorch_utils import Conv1D

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model import products
from eddy_embed.model.view import unpacked

METHODS = ("plain", "htp", "kv:layers=2-4", "reba", "plain+tempscale:tau=0.7")
NEAR = {torch.float32: 2e-6, torch.bfloat16: 4e-3}
ELSEWHERE = {"gpt2", "falcon"}
"""Families whose products are not those of torch's own linear layer."""
pytestmark = pytest.mark.skipif(
    not products.available(), reason="this build of torch has no oneDNN, so that no weight is laid out for it"
)


class Calls(TorchDispatchMode):
    """The operators that run, the rows that products take in, and how many products are by prepacked weights."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.rows: set[int] = set()
        self.packed = 0

    def count(self, part: str) -> int:
        return sum(part in name for name in self.names)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        self.packed += "_linear_pointwise" in str(func) and args[1].is_mkldnn
        if func in (torch.ops.aten.linear.default, torch.ops.aten.addmm.default):
            self.rows.add(args[func is torch.ops.aten.addmm.default].shape[-2])
        return func(*args, **(kwargs or {}))


def embedder(family: str, method: str, by_onednn: bool, patch: pytest.MonkeyPatch, **options: Any) -> Embedder:
    with patch.context() as context:
        context.setattr(products, "slower_in_mkl", lambda: by_onednn)
        model, tokenizer = build(family)
        return Embedder(options.pop("model", model), tokenizer=tokenizer, method=method, **options)


@pytest.mark.parametrize(("family", "method"), each_once(["llama", "gpt2", "phi"], METHODS))
def test_vectors_are_the_same(family: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With biases and without, and with weights that stand the other way round."""
    usual, own = (embedder(family, method, by, monkeypatch) for by in (False, True))
    counted = []
    for each in (usual, own):
        with Calls() as calls:
            each.encode_document(TEXTS)
        counted.append(calls.count("_linear_pointwise"))
    assert counted[0] == 0 and counted[1] >= 4 * 2  # four weights in each layer, at least
    np.testing.assert_allclose(own.encode_document(TEXTS), usual.encode_document(TEXTS), atol=2e-6)
    assert own.fingerprint == usual.fingerprint


def test_passes_are_filled_up_to_few_numbers_of_rows() -> None:
    cpu = torch.device("cpu")
    found = {rows: products.pad_rows(rows, cpu) for rows in range(1, 5000)}
    assert all(0 <= filled - rows < min(8, max(1, rows / 8)) for rows, filled in found.items() if rows < 512)
    assert all(0 <= filled - rows < rows / 32 and filled % 16 == 0 for rows, filled in found.items() if rows >= 512)
    assert (found[1], found[17], found[61], found[257], found[511], found[2000]) == (1, 18, 64, 264, 512, 2016)
    assert len({filled for rows, filled in found.items() if rows <= 1024}) <= 120
    assert products.pad_rows(7, torch.device("meta")) == 7


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5", "qwen3_moe"])
def test_rows_that_belong_to_nobody_are_not_read(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = "plain" if family in ("bert", "t5") else "htp"
    found = []
    for rows in (1, 4, 64):
        monkeypatch.setattr(products, "ROWS", rows)
        monkeypatch.setattr(products, "SHARE", 2**20)
        monkeypatch.setattr(products, "FEW", 1)
        own = embedder(family, method, False, monkeypatch)
        with Calls() as calls:
            found.append(own.encode_document(TEXTS))
        tokens = sum(own.explain(text).sequence_tokens for text in TEXTS)
        assert tokens + -tokens % rows in calls.rows and tokens % 64
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=2e-6)


def test_the_model_keeps_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = build("gpt2")
    before = [(type(module), dict(vars(module))) for module in model.modules()]
    embedder("gpt2", "plain", True, monkeypatch, model=model).encode_document(TEXTS)
    assert [(type(module), dict(vars(module))) for module in model.modules()] == before
    assert any(type(module) is Conv1D for module in model.modules())


# --- weights kept as oneDNN multiplies by them


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


def check_same(own: Embedder, usual: Embedder, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(own.encode_document(TEXTS), usual.encode_document(TEXTS), atol=atol)
    assert (own.fingerprint, own.explain("a").bytes) == (usual.fingerprint, usual.explain("a").bytes)


def unprepacked(*given: Any, **options: Any) -> Embedder:
    """An embedder whose weights are as the file has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDDY_PREPACK", "0")
        made = Embedder(*given, **options)
    assert packed(view(made)) == []
    return made


@pytest.mark.parametrize("dtype", mostly_slow(NEAR, [torch.float32]))
@pytest.mark.parametrize(
    "family",
    mostly_slow(
        [*FAMILIES, *MORE_FAMILIES, *OWN_ATTENTION, *ENCODERS], [*FAMILIES, "phi3", "qwen3_moe", "falcon", "bert", "t5"]
    ),
)
def test_vectors_by_rearranged_weights_are_the_same(family: str, dtype: torch.dtype) -> None:
    """With and without biases, in every family; where products are of another kind, nothing happens."""
    model, tokenizer = build(family)
    usual = copy.deepcopy(model).to(dtype)
    own = copy.deepcopy(usual)
    products.prepack(own)
    assert (len(packed(own)) >= 12) == (family not in ELSEWHERE)
    check_same(*(Embedder(each, tokenizer=tokenizer, method="plain") for each in (own, usual)), NEAR[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_loaded_by_name(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight of every layer, in as many bytes; a loaded model that is handed over keeps its own."""
    own = Embedder("eddy-tiny", method="plain", dtype=dtype)
    laid = [tensor for tensor in view(own).parameters() if tensor.is_mkldnn]
    assert len(laid) == 7 * own._pipeline.open_runner.host.kept
    assert all(torch.ops.mkldnn._nbytes(tensor) == tensor.numel() * tensor.element_size() for tensor in laid)
    check_same(own, unprepacked("eddy-tiny", method="plain", dtype=dtype), NEAR[getattr(torch, dtype)])
    monkeypatch.setenv("EDDY_PREPACK", "no")
    with pytest.raises(InvalidParameter, match="EDDY_PREPACK='no' is unknown; choose 1, or 0 for"):
        Embedder("eddy-tiny", method="plain", dtype=dtype)
    with Calls() as calls:
        own.encode_document(TEXTS)
    assert calls.packed >= len(laid) and not calls.count("to_dense")
    model, tokenizer = build("llama")
    given = Embedder(model, tokenizer=tokenizer, method="plain")
    assert packed(model) == packed(view(given)) == []


def test_unpacked_layers_of_a_gguf_file(tmp_path: Path) -> None:
    write(tmp_path / "wide.gguf", wide(RECIPES["llama"]), "Q8_0")
    own = Embedder(tmp_path / "wide.gguf", method="plain:exit=2", dtype="float32")
    assert len(packed(view(own))) == 14
    check_same(own, unprepacked(tmp_path / "wide.gguf", method="plain:exit=2", dtype="float32"))


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


def test_what_onednn_cannot_multiply_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types and kinds; where weights are laid out, also shared ones and those that would take more bytes."""
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
    multiplying = copy.deepcopy(model)
    products.use_onednn(multiplying)
    changed = {name for name, module in multiplying.items() if type(module) is not type(linear[name])}
    assert changed == {"own", "tied", "narrow"}
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
