"""Weights other than one float32 tensor each: half precision, codes and scales, spread over devices, by other names."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests import families
from tests.comparison import TEXTS, embedder
from tests.selection import each_once, mostly_slow, turns
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig
from torchao.quantization.granularity import PerGroup
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, TorchAoConfig

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, ModelNotFound, UnsupportedModel
from eddy_embed.parts.readout import gather

logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # says in each product that its input is cast

METHOD = "htp:range=1-3,exit=3"
FAMILIES = [*families.FAMILIES, *families.MORE_FAMILIES, *families.OWN_ATTENTION]
SOME = (*families.FAMILIES, "qwen3_moe", "gpt_oss", "falcon")
"""Dense models, experts, and attention of their own."""
SOME_ENCODERS, ENCODERS_METHODS = ["bert", "modernbert", "t5"], ["plain", "plain+tempscale:tau=0.7"]
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])
HALF = 0.9
"""Least cosine in bfloat16, over all families."""
ENCODERS_HALF = 0.99
"""The same over all encoders."""
COMPANY = 2e-2
"""Largest difference between a text's vectors alone and in company, unless weights and states are plain float32."""


QUANTISED: dict[str, tuple[Callable[[], Any], float]] = {
    "torchao int8": (lambda: TorchAoConfig(quant_type=Int8WeightOnlyConfig()), 0.998),
    "torchao int8, activations too": (lambda: TorchAoConfig(quant_type=Int8DynamicActivationInt8WeightConfig()), 0.996),
    "torchao int4": (
        lambda: TorchAoConfig(quant_type=IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))),
        0.75,
    ),
    "bitsandbytes int8": (lambda: BitsAndBytesConfig(load_in_8bit=True), 0.996),
    "bitsandbytes nf4": (
        lambda: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
        0.8,
    ),
}
"""What quantises at loading, and the least cosine with the plain vectors: random weights magnify what is lost."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose widths are multiples of 64: bitsandbytes' blocks on a processor lie within rows."""
    folder = tmp_path_factory.mktemp("llama")
    model = AutoModelForCausalLM.from_config(LlamaConfig(**families._shape(intermediate_size=128)), dtype=torch.float32)
    model.save_pretrained(folder)
    families.build("llama")[1].save_pretrained(folder)
    return folder


def quantised(llama: Path, name: str, dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(llama, quantization_config=QUANTISED[name][0](), dtype=dtype)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


# --- half precision


@pytest.mark.parametrize(
    ("family", "method"),
    [
        *mostly_slow([(family, METHOD) for family in FAMILIES], [(family, METHOD) for family in SOME]),
        *mostly_slow(product(families.ENCODERS, ENCODERS_METHODS), turns(SOME_ENCODERS, ENCODERS_METHODS)),
    ],
)
def test_bfloat16_is_near_float32_and_knows_no_company(family: str, method: str) -> None:
    model, tokenizer = families.build(family)
    half = Embedder(copy.deepcopy(model).bfloat16(), tokenizer=tokenizer, method=method)
    full = embedder(family, method)
    assert half.explain("a").dtype == "bfloat16" and half.fingerprint == full.fingerprint
    vectors = half.encode_document(TEXTS)
    assert np.abs(vectors - np.stack([half.encode_document(text) for text in TEXTS])).max() <= COMPANY
    # Large random weights magnify roundings, and experts jump.
    least = ENCODERS_HALF if family in families.ENCODERS else HALF
    assert np.sum(vectors * full.encode_document(TEXTS), axis=1).min() > least
    assert half.explain("a").bytes < full.explain("a").bytes


@pytest.mark.parametrize("family", families.T5S)
def test_encoders_that_keep_a_part_in_float32_run_so(family: str, tmp_path: Path) -> None:
    model, tokenizer = families.build(family)
    model.save_pretrained(tmp_path)
    given = type(model).from_pretrained(tmp_path, dtype=torch.float16)
    assert {weight.dtype for weight in given.parameters()} == {torch.float16, torch.float32}
    vectors = Embedder(given, tokenizer=tokenizer, method="plain").encode_document(TEXTS)
    assert np.sum(vectors * embedder(family, "plain").encode_document(TEXTS), axis=1).min() > 0.9999


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_states_are_summed_in_float32_at_least(dtype: torch.dtype) -> None:
    # In bfloat16, 256 + 1 is 256: the sum of 256 and a hundred ones would stay there.
    hidden = torch.tensor([[256.0]] + [[1.0]] * 100, dtype=dtype)
    out = gather(hidden, torch.arange(101), torch.ones(101), torch.tensor([101]))
    assert out.dtype == torch.promote_types(dtype, torch.float32) and out.item() == 356


# --- codes and scales


@pytest.mark.parametrize(("dtype", "name"), each_once(["float32", "bfloat16"], QUANTISED))
def test_quantised_models_run_by_name_and_by_hand_and_stay_as_they_are(name: str, dtype: str, llama: Path) -> None:
    quantise, least = QUANTISED[name]
    tokenizer = families.build("llama")[1]
    by_name = Embedder(llama, method=METHOD, dtype=dtype, model_kwargs={"quantization_config": quantise()})
    vectors = by_name.encode_document(TEXTS)
    plain = Embedder(llama, method=METHOD)
    assert np.sum(vectors * plain.encode_document(TEXTS), axis=1).min() > least
    assert by_name.fingerprint != plain.fingerprint
    assert by_name.explain("a").bytes < 0.6 * plain.explain("a").bytes
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert np.abs(by_name.encode_document(text) - vector).max() <= COMPANY

    # Two of a kind: one is embedded with before it ever ran, and must not know.
    handed, twin = (quantised(llama, name, getattr(torch, dtype)) for _ in range(2))
    shared = Embedder(handed, tokenizer=tokenizer, method=METHOD)
    assert np.array_equal(shared.encode_document(TEXTS), vectors)
    assert shared.fingerprint == by_name.fingerprint
    assert torch.equal(logits(handed), logits(twin))
    after = Embedder(handed, tokenizer=tokenizer, method=METHOD)
    assert np.array_equal(after.encode_document(TEXTS), vectors) and after.fingerprint == by_name.fingerprint

    # What it reads is the model's own hidden states.
    ids = torch.tensor([tokenizer(TEXTS[0])["input_ids"]])
    with torch.no_grad():
        state = twin(ids, output_hidden_states=True).hidden_states[3][0, -1].float()
    last = Embedder(handed, tokenizer=tokenizer, method="plain:exit=3,pool=last").encode_document(TEXTS[0])
    assert np.abs(last - torch.nn.functional.normalize(state, dim=0).numpy()).max() <= 1e-2

    # Scales and codes enter the fingerprint.
    if name in ("torchao int8", "bitsandbytes int8", "bitsandbytes nf4"):
        other = quantised(llama, name, getattr(torch, dtype))  # a pass takes bitsandbytes' scales from the weight
        weight = other.model.layers[2].mlp.up_proj.weight
        scales = getattr(weight, "scale", getattr(weight, "SCB", None))
        (weight.quant_state.absmax if scales is None else scales).mul_(2)
        assert Embedder(other, tokenizer=tokenizer, method=METHOD).fingerprint != by_name.fingerprint


@pytest.mark.parametrize("name", ["torchao int8", "bitsandbytes nf4"])
def test_folders_of_quantised_models(name: str, llama: Path, tmp_path: Path) -> None:
    tokenizer = families.build("llama")[1]
    at_loading = quantised(llama, name, torch.bfloat16)
    expected = Embedder(at_loading, tokenizer=tokenizer, method=METHOD)
    at_loading.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    if name == "torchao int8":  # whose files AutoModel cannot read without the head
        with pytest.raises(UnsupportedModel, match="AutoModelForCausalLM, and hand it over"):
            Embedder(tmp_path, method=METHOD)
        whole = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        stored = Embedder(whole, tokenizer=tokenizer, method=METHOD)
    else:
        stored = Embedder(tmp_path, method=METHOD, dtype="bfloat16")
    assert np.array_equal(stored.encode_document(TEXTS), expected.encode_document(TEXTS))
    assert stored.settings["weights"] == expected.settings["weights"]
    assert stored.fingerprint == expected.fingerprint


# --- several devices, and none


def places(model: torch.nn.Module, *, on_disk: tuple[int, ...]) -> dict[str, str]:
    """A device map with some layers on disk, named as in the model with its head."""
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        parent, _, last = name.rpartition(".")
        if last.isdigit() and parent.endswith((".layers", ".h")):
            found[name] = "disk" if int(last) in on_disk else "cpu"
        elif not list(module.children()) and not any(part.isdigit() for part in name.split(".")):
            found[name] = "cpu" if on_disk != tuple(range(families.LAYERS)) else "disk"
    return found


@pytest.mark.parametrize("on_disk", [(1, 4), tuple(range(families.LAYERS))], ids=["some", "all"])
@pytest.mark.parametrize("family", mostly_slow(["llama", "gpt2"], ["gpt2"]))
def test_layers_on_disk(family: str, on_disk: tuple[int, ...], tmp_path: Path) -> None:
    model, tokenizer = families.build(family)
    model.save_pretrained(tmp_path / "model")
    spread = places(model, on_disk=on_disk)
    reference = embedder(family, METHOD)
    expected = reference.encode_document(TEXTS)
    prefix = f"{model.base_model_prefix}."
    for named in (spread, {name.removeprefix(prefix): at for name, at in spread.items() if name.startswith(prefix)}):
        kwargs = {"device_map": named, "offload_folder": str(tmp_path / "off")}
        loaded = Embedder(tmp_path / "model", tokenizer=tokenizer, method=METHOD, model_kwargs=kwargs)
        assert np.array_equal(loaded.encode_document(TEXTS), expected)
        assert loaded.fingerprint == reference.fingerprint
        assert loaded.explain("a").bytes == reference.explain("a").bytes

    given = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=spread, offload_folder=str(tmp_path / "off")
    )
    before, parts = logits(given), dict(given.named_parameters())
    for method in (METHOD, "kv:layers=2-4"):
        shared = Embedder(given, tokenizer=tokenizer, method=method, device="cpu")
        assert np.array_equal(shared.encode_document(TEXTS), embedder(family, method).encode_document(TEXTS))
        assert shared.fingerprint == embedder(family, method).fingerprint
    assert all(part.is_meta == parts[name].is_meta for name, part in given.named_parameters())
    assert torch.equal(logits(given), before)


# --- by other names


@pytest.mark.parametrize("family", mostly_slow(FAMILIES, SOME))
def test_checkpoints_with_and_without_the_head(family: str, tmp_path: Path) -> None:
    model, tokenizer = families.build(family)
    model.config.save_pretrained(tmp_path)
    expected = embedder(family, METHOD)
    for state in (model.state_dict(), model.base_model.state_dict()):
        save_file({k: v.clone() for k, v in state.items()}, tmp_path / "model.safetensors", metadata={"format": "pt"})
        loaded = Embedder(tmp_path, tokenizer=tokenizer, method=METHOD)
        assert np.array_equal(loaded.encode_document(TEXTS), expected.encode_document(TEXTS))
        assert loaded.fingerprint == expected.fingerprint


def test_a_view_of_a_quantised_model_takes_no_memory_of_its_own(llama: Path) -> None:
    for name in ("torchao int8", "bitsandbytes int8"):
        given = quantised(llama, name)
        view = Embedder(given, tokenizer=families.build("llama")[1], method="plain")._pipeline.open_runner.host._view
        for ours, theirs in zip(view.parameters(), given.model.parameters(), strict=True):
            assert ours is theirs or ours.data_ptr() == theirs.data_ptr()
        ours, theirs = (each.layers[0].mlp.up_proj for each in (view, given.model))
        if name == "bitsandbytes int8":
            assert ours.state.SCB.data_ptr() == theirs.weight.SCB.data_ptr() and ours.state is not theirs.state


def test_what_cannot_be_done_with_weights_is_refused(llama: Path) -> None:
    gptq, partly = {"quant_method": "gptq", "bits": 4}, {"layers.0": "cpu", "layers.1": "disk"}
    for error, said, options, more in (
        (InvalidParameter, "is refused by the model: ", {"quantization_config": gptq}, {}),
        (InvalidParameter, "device_map say the same thing twice", {"device_map": "auto"}, {"device": "cpu"}),
        (ModelNotFound, "does not give any device for .*embed_tokens", {"device_map": partly}, {}),
    ):
        with pytest.raises(error, match=said):
            Embedder(llama, method="plain", model_kwargs=options, **more)
