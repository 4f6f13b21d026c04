"""Encoders: each token sees those behind it, positions begin where the model's do, and the end specials stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import families
from tests.comparison import ONLY_ENCODERS, TEXTS, embedder, gap, loaded
from tests.selection import each_once
from transformers import BertForMaskedLM

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model import hooks

RUN = [
    "plain:pool=weighted,exit=-2",
    "plain:pool=hybrid,exit=3",
    "plain:exit=0",
    "plain:pool=last+tempscale:tau=0.9,query_tau=0.5",
    'plain+tempscale:lengths="1:1,20:0.7,40:0.5"',
    "plain+last2avg",
    "plain:exit=-1+sif:a=0.01+layeravg:layers=1-2+standardise",
    *ONLY_ENCODERS,
]
REFUSED = {
    "prompteol": "a prompt",
    "echo": "a prompt",
    "tp": "placeholders",
    "htp": "placeholders",
    "reroute:layers=2+plain": "re-routed entries",
    "kv:layers=2-4": "a prompt and re-routed entries",
    "kv:layers=auto": "a prompt and re-routed entries",  # without looking for any
    "reba": "a repeated text and a watch",
}


@pytest.mark.parametrize(("family", "method"), each_once(families.ENCODERS, RUN))
def test_vectors_are_those_of_the_reference(family: str, method: str) -> None:
    assert gap(embedder(family, method, exactly=True), family, method, TEXTS) <= 1e-9


def test_what_serves_reading_from_left_to_right_is_refused() -> None:
    for method, reason in REFUSED.items():
        with pytest.raises(UnsupportedModel, match=f"both directions, which leaves no reason for {reason}"):
            embedder("bert", method)


@pytest.mark.parametrize(("family", "first"), [("bert", 0), ("roberta", 3), ("mpnet", 2), ("modernbert", 0)])
def test_positions_begin_where_the_models_do(family: str, first: int) -> None:
    room = families.WINDOW - first
    assert embedder(family, "plain", max_length=room)
    with pytest.raises(InvalidParameter, match=f"window of {families.WINDOW - first} tokens"):
        embedder(family, "plain", max_length=room + 1)
    # The longest sequence is read to its last row.
    vector = embedder(family, "plain", overflow="truncate").encode_document("stone " * families.WINDOW)
    assert np.isfinite(vector).all()


def test_a_folder_is_read_without_its_pooler_and_up_to_the_exit(tmp_path: Path) -> None:
    model, tokenizer = loaded("bert")
    whole = BertForMaskedLM(model.config)  # which has no pooler
    whole.bert.load_state_dict(model.state_dict(), strict=False)
    whole.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for method in ("plain", "plain:exit=3"):
        ours, shared = Embedder(tmp_path, method=method), embedder("bert", method)
        assert np.abs(ours.encode_document(TEXTS) - shared.encode_document(TEXTS)).max() <= 1e-6
        assert ours.fingerprint == shared.fingerprint


def test_every_window_of_a_long_text_ends_with_the_special() -> None:
    _, tokenizer = loaded("bert")
    e = embedder("bert", "plain", max_length=24)
    plans = e._pipeline.planner.plan([" ".join(TEXTS)], "document")
    ids = [job.sequence.ids.tolist() for job in plans[0].windows]
    assert len(ids) > 2
    assert all(row[0] == tokenizer.bos_token_id and row[-1] == tokenizer.eos_token_id for row in ids)
    assert max(map(len, ids)) <= 24


def test_a_fault_is_found_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = hooks.attend

    def causal(query: Any, key: Any, value: Any, groups: Any, traits: Any, *more: Any) -> Any:
        return attend(query, key, value, groups, replace(traits, causal=True), *more)

    monkeypatch.setattr(hooks, "attend", causal)
    with pytest.raises(UnsupportedModel, match="differ from the model's own"):
        embedder("roberta", "plain")
