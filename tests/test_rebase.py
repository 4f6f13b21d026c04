"""kv:rebase: keys turned to positions -1, -2 .. exactly, whatever the host's rotary embedding; refused without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import TEXTS, change_arguments, embedder, exact, loaded, sentences_of
from tests.reference import methods as reference
from tests.reference.double import double
from tests.selection import mostly_slow
from transformers import AutoModelForCausalLM, CohereConfig, LlamaConfig

from eddy_embed import Embedder
from eddy_embed.errors import UnsupportedModel
from eddy_embed.model import hooks
from eddy_embed.model.attention.kernels import Angles

ROTARY = ["llama", "qwen3", "gemma2", "mistral", "qwen2", "gemma3", "phi3", "gpt_neox", "olmo2", "phi"]
ORIGINAL = "original_max_position_embeddings"
SCALED: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 64},
    "yarn": {"factor": 4.0, ORIGINAL: 64},
    "longrope": {
        **{"factor": 2.0, ORIGINAL: 512},
        **{"short_factor": [1.0 + at / 8 for at in range(8)], "long_factor": [2.0 + at for at in range(8)]},
    },
}
PARAMETERS = {"layers": (2, 3, 4), "n": 2, "rebase": True}
METHOD = "kv:layers=2-4,n=2,rebase=true"


def built(config: Any, tokenizer: str) -> tuple[Any, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return AutoModelForCausalLM.from_config(config).eval(), families.TOKENIZERS[tokenizer]()


def scaled(kind: str) -> tuple[Any, Any]:
    angles = {"rope_type": kind, "rope_theta": 1e4, **SCALED[kind]}
    return built(LlamaConfig(**families._shape(rope_parameters=angles)), "metaspace")


def difference(e: Embedder, model: Any, tokenizer: Any) -> float:
    expected = [
        reference.embed("kv", PARAMETERS, model, tokenizer, text, sentences=sentences_of(text), role="query")
        for text in TEXTS
    ]
    return float(np.abs(exact(e, TEXTS, "query") - np.stack(expected)).max())


@pytest.mark.parametrize("family", mostly_slow(ROTARY, ["llama", "gemma3", "gpt_neox", "phi3"]))
def test_equals_the_reference(family: str) -> None:
    e = embedder(family, METHOD, exactly=True)
    assert difference(e, *loaded(family)) <= 1e-9
    together = exact(e, TEXTS, "query")
    assert np.abs(together - np.stack([exact(e, [text], "query")[0] for text in TEXTS])).max() <= 1e-12
    where_they_stand = embedder(family, METHOD.replace(",rebase=true", ""), exactly=True)
    assert np.abs(exact(where_they_stand, TEXTS, "query") - together).max() > 1e-5


@pytest.mark.parametrize("kind", SCALED)
def test_scaled_angles_equal_the_reference(kind: str) -> None:
    model, tokenizer = scaled(kind)
    e = Embedder(double(model), tokenizer=tokenizer, method=METHOD)
    assert difference(e, model, tokenizer) <= 1e-9


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_position_off_by_one_is_noticed(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(angles: Angles, *more: torch.Tensor) -> Any:
        # -1 and -2 become 0 and -1.
        cos, sin = (
            torch.cat(pair) for pair in ((angles.cos[:1], angles.back_cos[:-1]), (angles.sin[:1], angles.back_sin[:-1]))
        )
        return (replace(angles, back_cos=cos, back_sin=sin), *more)

    e = embedder(family, METHOD, exactly=True)
    change_arguments(monkeypatch, Angles, "rebased", shifted)
    assert difference(e, *loaded(family)) > 1e-5
    with pytest.raises(UnsupportedModel, match="keys of layer 2"):
        embedder(family, METHOD)


@pytest.mark.parametrize("kind", [0, 1])
def test_angles_of_another_kind_of_layer_are_noticed(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Gemma 3 turns by smaller angles in layers without a window; 2 and 4 have one, 3 has none.
    e, right = embedder("gemma3", METHOD, exactly=True), hooks._given
    other = lambda call, _: right(call, (call.computed_angles[kind].cos,)) if call.computed_angles else None  # noqa: E731
    monkeypatch.setattr(hooks, "_given", other)
    assert difference(e, *loaded("gemma3")) > 1e-5


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_learned_positions_are_refused_with_the_reason(family: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"no rotary positions.*leave rebase out"):
        embedder(family, METHOD)
    assert embedder("gpt2", 'kv:layers="",rebase=true').encode_document("Salt.").shape == (families.HIDDEN,)


def test_other_ways_of_turning_are_refused() -> None:
    model, tokenizer = built(CohereConfig(**families._shape()), "byte-level")
    with pytest.raises(UnsupportedModel, match="not turned by their position in the usual way"):
        Embedder(model, tokenizer=tokenizer, method=METHOD)
    # Of SmolLM3's layers some know no positions; GPT-OSS gives each angle once.
    for family in ("smollm3", "gpt_oss"):
        with pytest.raises(UnsupportedModel, match="keys of layer 2 are not turned"):
            embedder(family, METHOD)
