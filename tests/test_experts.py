"""Mixtures of experts: a token's experts depend on its own state, so company, order and length change no vector."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.comparison import TEXTS, embedder, loaded

from eddy_embed import Embedder

LONG = "The keeper wrote a line in the log. " * 60


@pytest.mark.parametrize("method", ["plain", "htp", "kv:layers=2-4,n=40"])
@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_routing_knows_no_company(family: str, method: str) -> None:
    e = embedder(family, method)
    alone = np.stack([e.encode_document(text) for text in TEXTS])
    together = e.encode_document([*TEXTS[::-1], LONG, *TEXTS])
    assert np.abs(together[: len(TEXTS)][::-1] - alone).max() <= 1e-5
    assert np.abs(together[-len(TEXTS) :] - alone).max() <= 1e-5


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_in_half_precision_a_token_that_goes_elsewhere_is_no_fault(family: str) -> None:
    # Rounding sends a token of the trial texts to another expert here and there, and its state jumps.
    model, tokenizer = loaded(family)
    half = Embedder(copy.deepcopy(model).to(torch.bfloat16), tokenizer=tokenizer, method="plain")
    vectors = half.encode_document(TEXTS)
    assert np.abs(vectors - np.stack([half.encode_document(text) for text in TEXTS])).max() <= 2e-2
    assert np.sum(vectors * embedder(family, "plain").encode_document(TEXTS), axis=1).min() > 0.9
