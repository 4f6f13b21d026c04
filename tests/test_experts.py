"""Mixtures of experts: a token's experts depend on its own state, so company, order and length change no vector."""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparison import TEXTS, embedder

LONG = "The keeper wrote a line in the log. " * 60


@pytest.mark.parametrize("method", ["plain", "htp", "kv:layers=2-4,n=40"])
@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_routing_knows_no_company(family: str, method: str) -> None:
    e = embedder(family, method)
    alone = np.stack([e.encode_document(text) for text in TEXTS])
    together = e.encode_document([*TEXTS[::-1], LONG, *TEXTS])
    assert np.abs(together[: len(TEXTS)][::-1] - alone).max() <= 1e-5
    assert np.abs(together[-len(TEXTS) :] - alone).max() <= 1e-5
