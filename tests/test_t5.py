"""Encoders of models that write too, with a bias by distance: read alone, in every kernel, under every temperature."""

from __future__ import annotations

from collections.abc import Callable
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

from eddy_embed import Embedder
from eddy_embed.errors import UnsupportedModel
from eddy_embed.model import attention, hooks, host
from eddy_embed.model.attention import blocked, kernels
from eddy_embed.model.attention.kernels import KernelChoice

METHOD = "plain+tempscale"


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


MUTATIONS = {
    "none": lambda patch: None,
    "no bias": _unbiased(lambda layer: True),
    "no bias behind the first layer": _unbiased(lambda layer: layer > 0),
    "no bias in the last layer": _unbiased(lambda layer: layer == families.LAYERS - 1),
    "the other direction": lambda patch: change_result(patch, hooks, "_checked_bias", lambda row, *_: row.flip(1)),
    "temperature on the scores alone": _temperature_beside_it,
}


@pytest.mark.parametrize(("family", "name"), each_once(["t5", "umt5"], MUTATIONS))
def test_mutation_is_noticed(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder(family, METHOD, exactly=True)
    MUTATIONS[name](monkeypatch)
    assert (gap(e, family, METHOD, TEXTS) > 1e-4) is (name != "none")


def test_a_bias_that_is_none_of_distances_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "by_distance", lambda view: None)
    with pytest.raises(UnsupportedModel, match=r"a position bias of shape \(1, 4, 32, 32\), not one by distance"):
        embedder("t5", "plain")
