"""Linear layers in int8: exact to their definition, in every family and method, and refused where they cannot be."""

from __future__ import annotations

import copy
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.comparison import TEXTS
from tests.families import ENCODERS, FAMILIES, MORE_FAMILIES, OWN_ATTENTION, build
from tests.reference import int8 as reference
from tests.selection import mostly_slow, slow, turns
from torch import nn
from transformers import AutoModelForCausalLM

from eddy_demo.library.settings import LibrarySettings
from eddy_demo.web.answers.generation import Generator
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.library_reader import LibraryOptions, LibraryReader
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model.speed import int8_linear, numbers
from eddy_embed.model.speed.int8_linear import Int8Linear, multiplies_int8, use_int8
from eddy_embed.model.view import text_model
from openai_eddy.engine import open_models

OF_OTHER_LAYERS = {"gpt2", "falcon"}
"""Families whose linear layers are not torch's own."""
METHODS = ["plain", "tp", "htp", "echo", "prompteol", "kv:layers=2-4", "reba", "plain+tempscale:tau=0.7"]
DECODERS = [*FAMILIES, *MORE_FAMILIES, *OWN_ATTENTION]
USUAL = [*turns(DECODERS, METHODS), *((family, "plain") for family in ENCODERS)]
needs_vnni = pytest.mark.skipif(not multiplies_int8(), reason="this processor does not multiply int8 (AVX512-VNNI)")


def layer(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    torch.manual_seed(inputs)
    return nn.Linear(inputs, outputs, bias=bias)


@needs_vnni
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "bias", "dtype"),
    [
        (1, 3, 5, True, torch.float32),
        (7, 64, 48, False, torch.float32),
        (33, 200, 1, True, torch.bfloat16),
        (7, 64, 48, False, torch.bfloat16),
    ],
)
def test_a_product_is_what_it_is_defined_to_be(
    rows: int, inputs: int, outputs: int, bias: bool, dtype: torch.dtype
) -> None:
    linear = layer(inputs, outputs, bias).to(dtype)
    states = (torch.randn(1, rows, inputs) * 10 + 3).to(dtype)
    states[0, 0] = 0
    states[0, -1, 0] = 1e4
    with torch.inference_mode():
        got = Int8Linear(linear)(states)
    assert got.dtype == dtype and got.shape == (1, rows, outputs)
    exact = reference.product(
        states[0].float().numpy(),
        linear.weight.detach().float().numpy(),
        linear.bias.detach().float().numpy() if bias else None,
    )
    rounding = {torch.float32: 1e-6, torch.bfloat16: 2**-7}[dtype]
    assert np.abs(got[0].float().numpy() - exact).max() <= rounding * np.abs(exact).max()


@needs_vnni
@pytest.mark.parametrize(
    ("family", "method"),
    mostly_slow(product([*DECODERS, *ENCODERS], METHODS), USUAL) if multiplies_int8() else USUAL[:1],
)
def test_every_family_computes_as_defined_or_is_refused(family: str, method: str) -> None:
    model, tokenizer = build(family)
    if family in OF_OTHER_LAYERS:
        with pytest.raises(
            UnsupportedModel, match=r"has no linear layers of torch's own to put in int8; choose dtype='auto'"
        ):
            Embedder(model, method, tokenizer=tokenizer, dtype="int8", check=False)
        return
    try:
        usual = Embedder(model, method, tokenizer=tokenizer, check=False)
    except (InvalidParameter, UnsupportedModel) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            Embedder(model, method, tokenizer=tokenizer, dtype="int8", check=False)
        return
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    one = Embedder(model, method, tokenizer=tokenizer, dtype="int8", check=False)
    stack = one._pipeline.open_runner.host._stack
    own = dict(text_model(model.base_model).named_modules())
    seen: list[float] = []

    def check(name: str, _: nn.Module, given: tuple[torch.Tensor], out: torch.Tensor) -> None:
        exact = reference.double_product(given[0].flatten(0, -2), own[name].weight, own[name].bias)
        seen.append(float((out.flatten(0, -2) - exact).abs().max() / exact.abs().max()))

    layers = {name: module for name, module in one._pipeline.open_runner.host._view.named_modules()}
    eight = {name: module for name, module in layers.items() if isinstance(module, Int8Linear)}
    assert len(eight) == sum(isinstance(module, Int8Linear) for module in stack.modules())
    for name, module in eight.items():
        module.register_forward_hook(partial(check, name))
    vectors = one.encode_document(TEXTS)
    assert len(seen) >= len(eight) >= len(stack)
    # A code may differ by one where float32 rounds at half of one: 1 / 127 of a state.
    assert max(seen) <= 1e-2 and np.median(seen) <= 1e-5
    assert 0.5 < (vectors * usual.encode_document(TEXTS)).sum(1).min() < 1 - 1e-7
    assert one.dtype == "int8" and one.fingerprint != usual.fingerprint
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@needs_vnni
@pytest.mark.parametrize("method", mostly_slow(METHODS, ["plain", "kv:layers=2-4"]))
def test_alone_and_in_company(method: str) -> None:
    model, tokenizer = build("qwen3")
    embedder = Embedder(model, method, tokenizer=tokenizer, dtype="int8")
    for text, vector in zip(TEXTS, embedder.encode_document(TEXTS), strict=True):
        assert np.abs(embedder.encode_document(text) - vector).max() <= 1e-2


@needs_vnni
def test_a_model_loaded_by_name_holds_its_layers_in_a_byte_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    half, eight = (Embedder("eddy-tiny", "plain", dtype=dtype) for dtype in ("bfloat16", "int8"))
    vocabulary = half._pipeline.open_runner.host._view.get_input_embeddings().weight
    layers = (half.explain("a").bytes - 2 * vocabulary.numel()) / 2
    assert eight.explain("a").bytes == pytest.approx(2 * vocabulary.numel() + layers, rel=0.03)
    assert "int8 on cpu" in str(eight.explain("a"))
    monkeypatch.setenv(numbers.DTYPE, "int8")
    named = Embedder("eddy-tiny", "plain")
    assert np.array_equal(named.encode_document(TEXTS), eight.encode_document(TEXTS))
    assert named.fingerprint == eight.fingerprint != half.fingerprint


@needs_vnni
@pytest.mark.slow
def test_embedders_of_one_loaded_model_multiply_in_int8_too(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Embedder("eddy-tiny", "plain", dtype="int8")
    vectors = whole.encode_document(TEXTS[:2])
    served = open_models("eddy-tiny", ["plain", "htp"], dtype="int8")[0]["plain"]
    monkeypatch.setenv(numbers.DTYPE, "int8")
    reader = LibraryReader(LibraryOptions(Path()), ChangeSignal())
    reader.settings = LibrarySettings("eddy-tiny", "plain")
    reader.generator = Generator.load("eddy-tiny", "cpu")
    for embedder in (served, reader.begin_rebuild(reader.settings)):
        assert embedder.fingerprint == whole.fingerprint
        assert np.array_equal(embedder.encode_document(TEXTS[:2]), vectors)


@needs_vnni
@pytest.mark.parametrize("dora", [False, slow(True)])
def test_adapters_are_refused_unless_they_are_merged(dora: bool, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    model, tokenizer = build("llama")
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    config = LoraConfig(r=4, target_modules=["q_proj"], use_dora=dora, init_lora_weights=False)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    said = r"has PEFT adapters, .* save the merged model \(merge_and_unload\) and name that, or choose dtype='auto'$"
    for one, own in ((adapted, tokenizer), (tmp_path / "adapter", None)):
        with pytest.raises(UnsupportedModel, match=said):
            Embedder(one, "plain", tokenizer=own, dtype="int8")
    usual = Embedder(adapted, "plain", tokenizer=tokenizer).encode_document(TEXTS)
    merged = Embedder(adapted.merge_and_unload(), "plain", tokenizer=tokenizer, dtype="int8").encode_document(TEXTS)
    assert (merged * usual).sum(1).min() > 0.99


@needs_vnni
def test_layers_with_a_forward_of_their_own_are_left_alone() -> None:
    class Other(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) + 1

    stack = nn.ModuleList([nn.Linear(4, 4), Other(4, 4), nn.ModuleDict({"inside": nn.Linear(4, 2)})])
    use_int8(stack, "Stack")
    assert isinstance(stack[2]["inside"], Int8Linear)  # type: ignore[index]
    assert [type(module) for module in stack] == [Int8Linear, Other, nn.ModuleDict]


def test_where_int8_cannot_be_exact_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = "EDDY_DTYPE='int8' runs on a processor, not on 'cuda'; add device='cpu', or move a loaded model there"
    with pytest.raises(InvalidParameter, match=f"^{re.escape(elsewhere)}$"):
        numbers.check_int8("EDDY_DTYPE", "cuda")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    assert not int8_linear.multiplies_int8()
    model, tokenizer = build("llama")
    lacking = "dtype='int8' needs AVX512-VNNI, which this processor lacks; choose 'auto'"
    for given in ({"model": "eddy-tiny", "device": "cpu:0"}, {"model": model, "tokenizer": tokenizer}):
        with pytest.raises(InvalidParameter, match=f"^{re.escape(lacking)}$"):
            Embedder(**given, dtype="int8")  # type: ignore[arg-type]
    monkeypatch.undo()
    if multiplies_int8():
        numbers.check_int8("dtype", "cpu:0")
        wide = "dtype='int8' needs a model in bfloat16 or float32, this one is in float64; convert it, as with "
        with pytest.raises(InvalidParameter, match=f"^{re.escape(wide)}"):
            Embedder(copy.deepcopy(model).double(), tokenizer=tokenizer, dtype="int8")
        with pytest.raises(InvalidParameter, match="leave model_kwargs' device_map out"):
            Embedder("eddy-tiny", dtype="int8", model_kwargs={"device_map": "cpu"})


@needs_vnni
def test_layers_of_the_same_states_share_their_codes() -> None:
    """Computed once for all of them in each thread, and not kept; other states in between are no trouble."""
    model = copy.deepcopy(build("llama")[0])
    use_int8(model.model.layers, "llama")
    attention = model.model.layers[0].self_attn
    shared = attention.q_proj.quantised
    assert attention.k_proj.quantised is attention.v_proj.quantised is shared
    assert shared is not model.model.layers[1].self_attn.q_proj.quantised is not attention.o_proj.quantised
    states = torch.randn(64, 5, model.config.hidden_size)

    def same(index: int) -> bool:
        mine = (states[index], states[index - 1])
        turns = [0, 0, 0, 0, 1, 1, 1] * 9
        return all(torch.equal(shared(mine[turn])[0], int8_linear.quantised(mine[turn])[0]) for turn in turns)

    with torch.inference_mode(), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, range(64)))
        with pytest.MonkeyPatch.context() as patch:
            counted: list[torch.Tensor] = []
            found = int8_linear.quantised
            patch.setattr(int8_linear, "quantised", lambda given: (counted.append(given), found(given))[1])
            alone = states[0]
            for name in ("q_proj", "k_proj", "v_proj"):
                getattr(attention, name)(alone)
    assert len(counted) == 1 and shared.states is None
