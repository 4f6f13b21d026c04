"""PEFT adapters: attached, merged, switched off, by name, above the exit; or refused with the reason."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests import families
from tests.comparison import TEXTS
from tests.selection import mostly_slow
from transformers import AutoModelForCausalLM

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, ModelNotFound, UnsupportedModel

if TYPE_CHECKING:
    import peft

METHOD = "htp:range=1-3,exit=3"
EVERYWHERE = ["q_proj", "v_proj", "down_proj"]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import the package, which takes seconds, where a test uses it."""
    global peft
    import peft


def lora(targets: str | list[str], **more: Any) -> Callable[[], peft.LoraConfig]:
    return lambda: peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False, **more)


CONFIGS: dict[str, Callable[[], peft.PeftConfig]] = {
    "lora": lora(EVERYWHERE, lora_alpha=16),
    "dora": lora(EVERYWHERE, use_dora=True),
    "embeddings": lora(["embed_tokens", "q_proj", "lm_head"]),
    "saved": lora(["q_proj"], modules_to_save=["embed_tokens"]),
    "tokens": lora(["q_proj"], trainable_token_indices=[1, 2, 300]),
    "adalora": lambda: peft.AdaLoraConfig(init_r=4, total_step=10, target_modules=EVERYWHERE, init_lora_weights=False),
    "ia3": lambda: peft.IA3Config(target_modules=EVERYWHERE, feedforward_modules=["down_proj"]),
    "loha": lambda: peft.LoHaConfig(r=4, target_modules=EVERYWHERE, init_weights=False),
    "lokr": lambda: peft.LoKrConfig(r=4, target_modules=EVERYWHERE, init_weights=False),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    model, tokenizer = families.build("llama")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(base: Path, config: peft.PeftConfig, **more: object) -> peft.PeftModel:
    """A model with an adapter whose values are as if it had learned something."""
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base, **more), config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ia3_" in name or "lora_E" in name or "trainable_tokens_delta" in name or "modules_to_save" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def made(model: torch.nn.Module | Path) -> Embedder:
    tokenizer = None if isinstance(model, Path) else families.build("llama")[1]
    return Embedder(model, tokenizer=tokenizer, method=METHOD)


@pytest.mark.parametrize("kind", mostly_slow(CONFIGS, ["lora", "embeddings", "tokens"]))
def test_attached_merged_and_by_name_are_one(kind: str, base: Path, tmp_path: Path) -> None:
    model = trained(base, CONFIGS[kind]())
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attached = made(model)
    vectors, plain = attached.encode_document(TEXTS), made(base)
    assert np.abs(vectors - plain.encode_document(TEXTS)).max() > 1e-2
    assert attached.fingerprint != plain.fingerprint

    model.save_pretrained(tmp_path)
    by_name = made(tmp_path)
    assert np.array_equal(by_name.encode_document(TEXTS), vectors)
    assert by_name.fingerprint == attached.fingerprint

    merged = made(copy.deepcopy(model).merge_and_unload())
    assert np.abs(merged.encode_document(TEXTS) - vectors).max() <= 1e-5
    assert np.array_equal(made(model.get_base_model().model).encode_document(TEXTS), vectors)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_scaling_switches_and_choices_enter_the_fingerprint(base: Path) -> None:
    model = trained(base, CONFIGS["lora"]())
    model.add_adapter("other", CONFIGS["lora"]())
    plain = Embedder(base, method=METHOD).encode_document(TEXTS)
    found: dict[str, Embedder] = {"first": made(model)}
    model.set_adapter("other")
    found["second"] = made(model)
    with model.disable_adapter():
        found["off"] = made(model)
    for layer in model.modules():
        if hasattr(layer, "scale_layer"):
            layer.scale_layer(0.5)
    found["halved"] = made(model)
    # An embedder keeps what was chosen when it was made.
    vectors = {name: e.encode_document(TEXTS) for name, e in found.items()}
    model.merge_adapter()
    found["merged"] = made(model)
    vectors["merged"] = found["merged"].encode_document(TEXTS)
    assert len({e.fingerprint for e in found.values()}) == len(found)
    assert np.array_equal(vectors["off"], plain)
    assert np.abs(vectors["halved"] - vectors["merged"]).max() <= 1e-5
    for one, other in (("first", "second"), ("first", "off"), ("second", "off"), ("second", "halved")):
        assert np.abs(vectors[one] - vectors[other]).max() > 1e-2
    model.disable_adapter_layers()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(UnsupportedModel, match=r"merged and switched off at once.*unmerge_adapter"):
        made(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_adapters_above_the_exit_are_nothing(base: Path, tmp_path: Path) -> None:
    model = trained(base, lora(["q_proj"], layers_to_transform=[4, 5])())
    model.save_pretrained(tmp_path)
    plain = Embedder(base, method=METHOD)
    for e in (made(model), Embedder(tmp_path, method=METHOD)):
        assert np.array_equal(e.encode_document(TEXTS), plain.encode_document(TEXTS))
        assert e.fingerprint == plain.fingerprint
    assert Embedder(tmp_path, method="plain").fingerprint != Embedder(base, method="plain").fingerprint


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "prompt"),
        (lambda: peft.OFTConfig(oft_block_size=8, target_modules=["q_proj"]), "kind oft"),
        (lora(["q_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=[5, 6]), "kind a?lora"),
    ],
    ids=["prompt", "oft", "alora"],
)
def test_other_kinds_are_refused(
    config: Callable[[], peft.PeftConfig], reason: str, base: Path, tmp_path: Path
) -> None:
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config())
    model.save_pretrained(tmp_path)
    for given in (model, tmp_path):
        with pytest.raises(UnsupportedModel, match=reason):
            made(given)


def test_folders_of_adapters_that_cannot_be_used(base: Path, tmp_path: Path, monkeypatch) -> None:
    trained(base, CONFIGS["lora"]()).save_pretrained(tmp_path)
    config, weights = tmp_path / "adapter_config.json", tmp_path / "adapter_model.safetensors"
    entries, tensors = json.loads(config.read_text()), load_file(weights)

    def refused(error: type[Exception], message: str, **options: Any) -> None:
        with pytest.raises(error, match=message):
            Embedder(tmp_path, method=METHOD, **options)

    of_layer = "base_model.model.model.layers.1.self_attn"
    name = f"{of_layer}.q_proj.lora_A.weight"
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, weights)
    refused(UnsupportedModel, r"1 of its tensors do not fit, such as .*layers\.1")
    save_file({**tensors, name: torch.zeros(5, 64)}, weights)
    refused(UnsupportedModel, "the adapter does not fit LlamaForCausalLM")
    weights.write_bytes(b"rubbish")
    refused(ModelNotFound, r"adapter's weights in .* could not be read")
    save_file(tensors, weights)
    config.write_text(json.dumps({**entries, "base_model_name_or_path": None}))
    refused(ModelNotFound, "does not name its model")
    config.write_text(json.dumps({**entries, "base_model_name_or_path": "/no/such/folder"}))
    refused(ModelNotFound, "no model at '/no/such/folder'")
    config.write_text(json.dumps(entries))
    refused(InvalidParameter, "an adapter is put into a model in one place", model_kwargs={"device_map": "cpu"})
    with monkeypatch.context() as patch:
        patch.setattr("eddy_embed.model.loading.peft.find_spec", lambda _: None)
        refused(UnsupportedModel, "holds a PEFT adapter; pip install peft")
    shutil.copy(base / "config.json", tmp_path)
    refused(ModelNotFound, r"holds a model .* and an adapter")
