"""Models that cannot be run exactly are refused with the reason; the fingerprint tells all that decides a vector."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests import families
from tests.comparison import embedder, loaded
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from eddy_embed import Embedder
from eddy_embed.errors import EddyError, InvalidParameter, UnsupportedModel
from eddy_embed.model.loading.names import BUNDLED

SMALL: dict[str, Any] = {
    "vocab_size": families.VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
SHAPE = SMALL | {"num_hidden_layers": 4, "num_key_value_heads": 2, "sliding_window": 16}
EXPERTS = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4}
CAUSAL = AutoModelForCausalLM.from_config
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lfm2": (
        lambda: CAUSAL(
            transformers.Lfm2Config(**SMALL, num_key_value_heads=2, layer_types=["conv", "full_attention", "conv"])
        ),
        "1 of 3 layers run their attention",
    ),
    "opt with a projection": (
        lambda: CAUSAL(transformers.OPTConfig(**SMALL, ffn_dim=96, word_embed_proj_dim=32, do_layer_norm_before=False)),
        r"hidden states have shape \(\d+, 32\), not width 64",
    ),
    "llama 4": (
        lambda: CAUSAL(
            transformers.Llama4TextConfig(
                **SMALL, num_key_value_heads=2, head_dim=16, intermediate_size_mlp=96, num_local_experts=2
            )
        ),
        r"gives no hidden states.*such as model\.model",
    ),
    **{
        f"windows that only a mask holds, {config.model_type}": (lambda config=config: CAUSAL(config), "16 tokens")
        for config in (
            transformers.PhimoeConfig(**SHAPE, num_local_experts=4),
            transformers.Qwen2MoeConfig(
                **SHAPE, **EXPERTS, use_sliding_window=True, layer_types=["sliding_attention"] * 4
            ),
        )
    },
    "no weights": (lambda: copy.deepcopy(loaded("llama")[0]).to("meta"), "fails on a trial text"),
    "no language model": (lambda: torch.nn.Linear(2, 2), "does not describe a causal language model"),
}


def test_architectures_that_cannot_be_run_exactly_are_refused() -> None:
    for name, (build, reason) in REFUSED.items():
        with pytest.raises(UnsupportedModel, match=reason):
            Embedder(build().eval(), tokenizer=families.byte_level_tokenizer(), method="plain")
            pytest.fail(name)
    # The same class without a window in any layer is read exactly.
    full = CAUSAL(transformers.Qwen2MoeConfig(**SHAPE, **EXPERTS))
    assert Embedder(full.eval(), tokenizer=families.byte_level_tokenizer(), method="plain")


def test_a_model_that_copies_its_weights_is_refused() -> None:
    model, tokenizer = loaded("llama")
    model = copy.deepcopy(model)

    class Clone(torch.nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Linear:
            new = torch.nn.Linear(self.in_features, self.out_features, bias=False)
            new.load_state_dict(self.state_dict())
            return new

    model.model.layers[0].mlp.up_proj.__class__ = Clone
    with pytest.raises(UnsupportedModel, match="copies its weights"):
        Embedder(model, tokenizer=tokenizer, method="plain")


@pytest.mark.parametrize(("layer", "dtype"), [(0, torch.float32), (0, torch.bfloat16), (4, torch.float32)])
def test_layers_that_mix_neighbours_are_refused(layer: int, dtype: torch.dtype) -> None:
    model, tokenizer = loaded("llama")
    model = copy.deepcopy(model).to(dtype)

    class Smooth(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden + hidden.mean(1, keepdim=True)

    model.model.layers[layer].mlp = Smooth()
    with pytest.raises(UnsupportedModel, match="differ from the model's own"):
        Embedder(model, tokenizer=tokenizer, method="plain")


@pytest.mark.parametrize("part", ["embed_tokens", "norm"])
def test_weights_of_two_dtypes_that_do_not_go_together_are_refused(part: str) -> None:
    model, tokenizer = loaded("llama")
    mixed = copy.deepcopy(model).to(torch.bfloat16)
    for name, module in mixed.named_modules():
        if part in name:
            module.to(torch.float32)
    for method in ("plain", "htp", "kv:layers=1-2"):
        with pytest.raises(UnsupportedModel, match="bfloat16 and float32 at once: load it in one"):
            Embedder(mixed, tokenizer=tokenizer, method=method)


def test_a_tokenizer_that_is_missing_slow_or_of_another_model_is_refused() -> None:
    model, _ = loaded("llama")
    e = Embedder(model, tokenizer=AutoTokenizer.from_pretrained(BUNDLED["eddy-tiny"]), method="plain")
    with pytest.raises(UnsupportedModel, match="has 640 token embeddings, and the tokenizer gives"):
        e.encode_document("zebra xylophone")
    with pytest.raises(InvalidParameter, match="tokenizer="):
        Embedder(model, method="plain")

    class Slow:
        is_fast = False

    with pytest.raises(UnsupportedModel, match=r"Slow gives no character offsets.*use_fast=True"):
        Embedder(model, tokenizer=Slow(), method="plain")


# --- the fingerprint


def prints(**changes: Any) -> str:
    options = {"family": "llama", "method": "htp", **changes}
    return embedder(options.pop("family"), options.pop("method"), **options).fingerprint


def test_whatever_decides_a_vector_and_nothing_else_is_in_the_fingerprint() -> None:
    # What is said and what is the default, and what decides no vector.
    first = prints()
    assert first == prints(method="htp:range=1-2,exit=-2,k=1,seed=0") == prints(method="htp:exit=5")
    assert first == prints(batch_size=3, batch_tokens=77, show_progress=False, device="cpu", max_length=families.WINDOW)
    assert len(first) == 32 and int(first, 16) >= 0
    changes: list[dict[str, Any]] = [
        *({"method": "htp:exit=-3"}, {"method": "tp"}, {"family": "qwen3"}, {"normalize": False}),
        *({"query_instruction": "Find it"}, {"text_instruction": "Find it"}),
        *({"max_length": 100}, {"overflow": "truncate"}, {"language": "de"}),
    ]
    assert len({first, *(prints(**each) for each in changes)}) == 1 + len(changes)


def test_the_weights_and_the_configuration_that_run_are_in_the_fingerprint() -> None:
    def of(model: Any, method: str = "plain") -> str:
        return Embedder(model, tokenizer=loaded("llama")[1], method=method).fingerprint

    def configured(family: str, **changes: Any) -> Any:
        model, _ = loaded(family)
        other = type(model)(type(model.config)(**{**model.config.to_dict(), **changes}))
        other.load_state_dict(model.state_dict())
        return other.eval()

    model = copy.deepcopy(loaded("llama")[0])
    before = of(model)
    assert before == prints(method="plain") == of(configured("llama"))
    others = [of(configured("llama", rms_norm_eps=0.5)), of(configured("llama", hidden_act="relu"))]
    with torch.no_grad():
        model.model.layers[4].mlp.up_proj.weight.mul_(1.5)
    assert len({before, of(model), *others}) == 4
    assert of(model, "plain:exit=4") == prints(method="plain:exit=4"), "layer 5 does not run"
    first, last = (configured("smollm3", no_rope_layers=[1, 0, 1, 0, 1, turned]) for turned in (0, 1))
    assert of(first) != of(last)
    assert of(first, "plain:exit=4") == of(last, "plain:exit=4"), "layer 6 does not run"


def test_the_tokenizer_is_in_the_fingerprint() -> None:
    model, tokenizer = loaded("qwen3")
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["river"])
    padded = PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(tokenizer.backend_tokenizer))
    padded.backend_tokenizer.enable_truncation(4)
    padded.backend_tokenizer.enable_padding(length=9)
    before = Embedder(model, tokenizer=tokenizer, method="plain")
    assert Embedder(model, tokenizer=other, method="plain").fingerprint != before.fingerprint
    same = Embedder(model, tokenizer=padded, method="plain")
    assert same.fingerprint == before.fingerprint
    text = "Padding and truncation set on the tokenizer change nothing."
    assert np.array_equal(same.encode_document(text), before.encode_document(text))


def test_the_settings_are_plain_values_and_survive_closing() -> None:
    import json

    e = embedder("llama", "htp")
    settings, fingerprint = json.loads(json.dumps(e.settings)), e.fingerprint
    assert settings["method"]["rewire"]["span"] == [1, 2] and settings["method"]["readout"]["exit"] == 5
    assert not {"dtype", "device", "batch_size", "batch_tokens"} & set(settings)
    e.close()
    assert e.fingerprint == fingerprint
    with pytest.raises(EddyError, match="closed"):
        e.encode_document("a")
