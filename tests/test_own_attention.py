"""Models whose attention is their own or has a bias by distance: all else works on them, exactly, in any company."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests import families
from tests.comparison import TEXTS, change_result, embedder, gap, loaded
from tests.selection import each_once
from tests.test_contract import unchanged
from tests.test_kernels import BIASED
from transformers import AutoModelForCausalLM

from eddy_embed import Embedder
from eddy_embed.errors import InterventionDidNotRun, UnsupportedModel
from eddy_embed.model import attention, hooks, host
from eddy_embed.model.attention import blocked, kernels
from eddy_embed.model.attention.kernels import KernelChoice
from eddy_embed.model.hooks import PassState
from eddy_embed.text.sequence import Packed

HTP = "htp:range=1-4,exit=-1"
ALIKE = [TEXTS[0], f"{TEXTS[0]} Nobody.", TEXTS[3], f"Well. {TEXTS[0]}", "Salt."]
"""Three of these share a pass, filled up to the longest."""


@pytest.mark.parametrize("family", families.OWN_ATTENTION)
def test_company_changes_nothing_and_nothing_is_left_behind(family: str) -> None:
    model, tokenizer = loaded(family)
    with unchanged(model):
        e = Embedder(model, tokenizer=tokenizer, method=HTP)
        together, long = e.encode_document(ALIKE), e.encode_long(" ".join(TEXTS), passage_size=8, late=True)
        assert np.abs(together - np.stack([e.encode_document(text) for text in ALIKE])).max() <= 1e-5
        assert len(long.passages) > 1 and np.abs(long.vector - e.encode_document(" ".join(TEXTS))).max() <= 1e-5
    assert e.explain(TEXTS[0]).kernels == ["own"] * families.LAYERS


def _off(packed: Packed, **change: int) -> Packed:
    return replace(packed, **{name: np.maximum(getattr(packed, name) - by, 0) for name, by in change.items()})


MUTATIONS = {
    "none": lambda packed: packed,
    "positions run on": lambda packed: replace(packed, positions=np.arange(len(packed.ids))),
    "edges off by one": lambda packed: _off(packed, edges=1),
    "no edges": lambda packed: replace(packed, edges=packed.edges[:0]),
    "placeholders off by one": lambda packed: replace(packed, placeholders=packed.placeholders + np.array([1, 0])),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_moved_into_rows_is_noticed_when_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("gpt_neo", HTP, exactly=True)
    change_result(monkeypatch, host, "padded_rows", lambda packed, *_: MUTATIONS[name](packed))
    try:
        difference = gap(e, "gpt_neo", HTP, ALIKE[:2])
    except IndexError:  # a position beyond the last that was learned
        difference = np.inf
    assert (difference > 1e-5) is (name != "none")


UNTRIED = [
    *(
        transformers.FalconConfig(**families._shape(None), **options)
        for options in ({"alibi": True}, {"multi_query": False, "parallel_attn": False}, {})
    ),
    transformers.Mamba2Config(
        vocab_size=640, hidden_size=64, num_hidden_layers=4, num_heads=8, head_dim=16, state_size=16, n_groups=1
    ),
]
"""Older Falcons, and a model without any attention."""


@pytest.mark.parametrize("config", UNTRIED, ids=lambda config: config.model_type)
def test_further_models_give_the_states_of_transformers(config: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model, tokenizer = AutoModelForCausalLM.from_config(config).eval(), families.byte_level_tokenizer()
    e = Embedder(model, tokenizer=tokenizer, method="plain:exit=4+start:token=none", normalize=False)
    vectors = e.encode_document(ALIKE)
    for text, vector in zip(ALIKE, vectors, strict=True):
        with torch.no_grad():
            states = model(torch.tensor([tokenizer(text)["input_ids"]]), output_hidden_states=True).hidden_states[4][0]
        assert np.abs(vector - states.numpy().mean(0)).max() <= 1e-4 * float(states.abs().max())
    if config.model_type == "mamba2":
        with pytest.raises(UnsupportedModel, match="a temperature cannot be put into it"):
            Embedder(model, tokenizer=tokenizer, method="plain+tempscale")


TEMPERED = ["plain+tempscale", "plain+tempscale:rule=log", 'plain+tempscale:lengths="1:1,20:0.7,40:0.5"']


@pytest.mark.parametrize(("family", "method"), each_once([*families.OWN_ATTENTION, "mpnet"], TEMPERED))
def test_a_temperature_reaches_the_models_own_softmax(family: str, method: str) -> None:
    model, _ = loaded(family)
    with unchanged(model):
        e = embedder(family, method)
        together = e.encode_document(ALIKE)
        assert np.abs(together - np.stack([e.encode_document(text) for text in ALIKE])).max() <= 1e-5
    plain = embedder(family, "plain").encode_document(ALIKE)
    assert np.abs(together - plain).max() > 1e-3
    neutral = embedder(family, "plain+tempscale:tau=1").encode_document(ALIKE)
    assert np.abs(neutral - plain).max() <= 1e-6
    with pytest.raises(UnsupportedModel, match=r"a temperature and re-routed entries cannot be put|directions"):
        embedder(family, "kv:layers=2-4+tempscale")


@pytest.mark.parametrize(("family", "place"), [("bloom", "_SOFTMAX"), ("falcon", "_FUSED")])
def test_a_softmax_that_is_not_found_is_no_silent_loss(
    family: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = embedder(family, "plain+tempscale")
    monkeypatch.setattr(hooks, place, ())
    with pytest.raises(InterventionDidNotRun, match=r"expected .*'softmax': 6.* counted .*'softmax': 0"):
        e.encode_document(ALIKE)
    with pytest.raises(UnsupportedModel, match="a temperature cannot be put into it"):
        embedder(family, "plain+tempscale")


@pytest.mark.parametrize("named", [False, True])
def test_fused_attention_is_given_the_temperature_beside_its_mask(named: bool) -> None:
    attend, call = torch.nn.functional.scaled_dot_product_attention, PassState([], factor=1.25)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        query, key, value = torch.randn(3, 2, 4, 7, 8, dtype=torch.float64)
        mask = torch.randn(2, 1, 7, 7, dtype=torch.float64)
    mask[..., 3:] = mask[..., 3:].masked_fill(torch.ones(7, 4).triu(-2).bool(), torch.finfo(mask.dtype).min)
    with hooks.SoftmaxTemperatureMode(call, (2, 7), transformers.MPNetConfig(**families._shape(None))):
        found = attend(query, key, value, attn_mask=mask) if named else attend(query, key, value, mask)
        seen = attend(query, key, value, attn_mask=mask > -9)
        other = attend(query[..., :1, :], key, value)
    logits = query @ key.mT / 8**0.5
    assert (found - (1.25 * (logits + mask)).softmax(-1) @ value).abs().max() <= 1e-12
    assert (seen - (1.25 * logits.masked_fill(mask <= -9, -torch.inf)).softmax(-1) @ value).abs().max() <= 1e-12
    assert (other - logits[..., :1, :].softmax(-1) @ value).abs().max() <= 1e-12 and call.ran["softmax"] == 2


def test_other_threads_and_other_shapes_keep_their_softmax() -> None:
    call = PassState([], factor=2.0)
    scores = torch.tensor([0.0, 1.0]).expand(1, 3, 2, 2)
    right, sharp = scores.softmax(-1), (2 * scores).softmax(-1)
    config = transformers.MPNetConfig(**families._shape(None, num_attention_heads=3))
    with hooks.SoftmaxTemperatureMode(call, (1, 2), config), ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(torch.softmax, scores, -1).result()
        several = [torch.softmax(scores, -1), torch.nn.functional.softmax(scores, dim=-1), scores.softmax(dim=-1)]
        others = [torch.softmax(scores[0, 0], -1), torch.softmax(scores[..., :1, :], dim=-1)]
    assert torch.equal(elsewhere, right) and all(torch.equal(each, sharp) for each in several)
    assert torch.equal(others[0], right[0, 0]) and torch.equal(others[1], right[..., :1, :])
    assert call.ran["softmax"] == len(several)
    assert torch.equal(torch.softmax(scores, -1), right)


# --- encoders of models that write too, with a bias by distance: read alone, in every kernel, under every temperature

TEMPERED_T5 = "plain+tempscale"


def writing(family: str) -> Any:
    """The model that an encoder belongs to, with its decoder."""
    encoder, _ = loaded(family)
    kind = {
        "t5": transformers.T5ForConditionalGeneration,
        "mt5": transformers.MT5ForConditionalGeneration,
        "umt5": transformers.UMT5ForConditionalGeneration,
    }[family]
    whole = kind(type(encoder.config)(**families._T5)).eval()
    whole.load_state_dict(encoder.state_dict(), strict=False)
    return whole


@pytest.mark.parametrize(("family", "exit_layer"), each_once(families.T5S, [families.LAYERS, 2]))
def test_a_folder_with_a_decoder_is_read_without_it(
    family: str, exit_layer: int, tmp_path: Path, read: set[str]
) -> None:
    whole, (_, tokenizer), method = writing(family), loaded(family), f"plain:exit={exit_layer}+tempscale"
    whole.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    read.clear()
    ours = Embedder(tmp_path, method=method)
    assert read and not any("decoder" in name or "lm_head" in name for name in read)
    assert {int(name.split(".")[2]) for name in read if ".block." in name} == set(range(exit_layer))
    with unchanged(whole.encoder), Embedder(whole, tokenizer=tokenizer, method=method) as shared:
        vectors = shared.encode_document(TEXTS)
        assert shared.fingerprint == ours.fingerprint == embedder(family, method).fingerprint
        assert shared.explain(TEXTS[0]).bytes == ours.explain(TEXTS[0]).bytes
    assert np.array_equal(vectors, ours.encode_document(TEXTS))
    assert np.array_equal(vectors, embedder(family, method).encode_document(TEXTS))


@pytest.mark.parametrize("traits", BIASED, ids=str)
def test_every_kernel_adds_the_bias_before_the_temperature(
    traits: attention.blocked.AttentionSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, factors = (1, 13, 13, 40), (1.25, 1.25, 1.25, 0.6)
    offsets = np.cumsum([0, *lengths])
    with torch.random.fork_rng():
        torch.manual_seed(7)
        query, key, value = torch.randn(3, 1, 4, offsets[-1], 8, dtype=torch.float64)
        bias = torch.randn(4, 2 * max(lengths) - 1, dtype=torch.float64)
    for module in (blocked, kernels):
        monkeypatch.setattr(module, "SCORES", 3 * 4 * 40)  # so that blocks end within the texts
    groups = attention.blocked.group(offsets, factors, even=True)
    names = ["blocked"] if traits.cap or traits.window else ["blocked", "fused"]
    for name in names:
        kernel = KernelChoice(name, name)  # type: ignore[arg-type]
        out = attention.kernels.attend(query, key, value, groups, traits, kernel, bias=bias)
        for at, factor in enumerate(factors):
            rows = slice(offsets[at], offsets[at + 1])
            logits = traits.scale * query[0, :, rows] @ key[0, :, rows].mT
            if traits.cap:
                logits = traits.cap * torch.tanh(logits / traits.cap)
            far = torch.arange(lengths[at]) - torch.arange(lengths[at])[:, None]
            logits = logits + bias[:, far + max(lengths) - 1]
            if traits.window:
                logits = logits.masked_fill(far.abs() >= traits.window, -torch.inf)
            expected = (factor * logits).softmax(-1) @ value[0, :, rows]
            assert (out[0, rows].transpose(0, 1) - expected).abs().max() <= 1e-12, name


def test_long_texts_ask_for_no_matrix_and_meet_every_distance() -> None:
    # Some 500 tokens in one pass with others: the model itself takes each text alone.
    model, tokenizer = loaded("t5")
    texts = [" ".join(TEXTS) * 4, TEXTS[1], " ".join(TEXTS) * 2]
    vectors = embedder("t5", "plain", normalize=False).encode_document(texts)
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            states = model(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0, :-1]
        assert np.abs(vector - states.mean(0).numpy()).max() <= 1e-4


def _unbiased(wrong: Callable[[int], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    """Leave the bias of some layers out."""
    return lambda patch: change_result(
        patch, hooks, "_checked_bias", lambda row, module, *_: row * (not wrong(int(module.layer_idx)))
    )


def _temperature_beside_it(patch: pytest.MonkeyPatch) -> None:
    kernel = kernels.fused
    patch.setattr(
        kernels, "fused", lambda q, k, v, traits, factor, bias: kernel(q, k, v, traits, factor, bias / factor)
    )


BIAS_FAULTS = {
    "none": lambda patch: None,
    "no bias": _unbiased(lambda layer: True),
    "no bias behind the first layer": _unbiased(lambda layer: layer > 0),
    "no bias in the last layer": _unbiased(lambda layer: layer == families.LAYERS - 1),
    "the other direction": lambda patch: change_result(patch, hooks, "_checked_bias", lambda row, *_: row.flip(1)),
    "temperature on the scores alone": _temperature_beside_it,
}


@pytest.mark.parametrize(("family", "name"), each_once(["t5", "umt5"], BIAS_FAULTS))
def test_a_wrong_bias_is_noticed(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder(family, TEMPERED_T5, exactly=True)
    BIAS_FAULTS[name](monkeypatch)
    assert (gap(e, family, TEMPERED_T5, TEXTS) > 1e-4) is (name != "none")


def test_a_bias_that_is_none_of_distances_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "by_distance", lambda view: None)
    with pytest.raises(UnsupportedModel, match=r"a position bias of shape \(1, 4, 32, 32\), not one by distance"):
        embedder("t5", "plain")
