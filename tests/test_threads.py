"""A shared model in two threads: its owner calls it unlocked while it embeds, and both get what they get alone."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import TEXTS, loaded
from tests.selection import mostly_slow, turns
from tests.test_contract import EVERY, FEW
from transformers import Phi3Config, Phi3ForCausalLM

from eddy_embed import Embedder

PASSES = 15
LONG_ROPE = {
    **{"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16},
    **{"short_factor": [1.0] * 8, "long_factor": [4.0] * 8},
}


def beside(work: list[Callable[[], None]], passes: int = PASSES) -> None:
    """Runs everything at once, as often as `passes` says, and raises what any of it raises."""
    start = threading.Barrier(len(work))

    def repeat(step: Callable[[], None]) -> None:
        start.wait()
        for _ in range(passes):
            step()

    with ThreadPoolExecutor(len(work)) as threads:
        for done in [threads.submit(repeat, step) for step in work]:
            done.result()


def equal(found: Any, expected: Any) -> None:
    same = torch.equal if isinstance(found, torch.Tensor) else np.array_equal
    assert same(found, expected)


@pytest.mark.parametrize(
    ("family", "method"), mostly_slow(product(families.FAMILIES, EVERY), turns(families.FAMILIES, FEW))
)
def test_the_owner_may_call_the_model_meanwhile(family: str, method: str) -> None:
    model, tokenizer = loaded(family)
    model = copy.deepcopy(model)
    ids = torch.tensor([tokenizer(TEXTS[0])["input_ids"]])
    e = Embedder(model, tokenizer=tokenizer, method=method)

    def call() -> torch.Tensor:
        with torch.no_grad():
            return model(ids, output_hidden_states=True).logits

    expected = e.encode_document(TEXTS[:2]), call(), tokenizer(TEXTS[0])["input_ids"]
    beside(
        [
            lambda: equal(e.encode_document(TEXTS[:2]), expected[0]),
            lambda: equal(call(), expected[1]),
            lambda: equal(torch.tensor(tokenizer(TEXTS[0])["input_ids"]), torch.tensor(expected[2])),
        ]
    )


def test_one_embedder_in_three_threads() -> None:
    model, tokenizer = loaded("llama")
    e = Embedder(model, tokenizer=tokenizer, method="htp", max_length=32)
    expected = [e.encode_document(text) for text in TEXTS[:3]]
    beside([lambda at=at: equal(e.encode_document(TEXTS[at]), expected[at]) for at in range(3)])


def test_angles_that_depend_on_length_stay_their_owners() -> None:
    # transformers writes the angles of "longrope" models into a buffer in each pass, others beyond the original window.
    config = Phi3Config(**families._shape(), original_max_position_embeddings=16, rope_parameters=LONG_ROPE)
    model = Phi3ForCausalLM(config).eval()
    tokenizer = families.byte_level_tokenizer()
    short, long = "Salt.", TEXTS[0]
    ids = torch.tensor([tokenizer(long)["input_ids"]])
    assert ids.shape[1] > 16

    def call() -> torch.Tensor:
        with torch.no_grad():
            return model(ids).logits

    theirs = call()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    e = Embedder(model, tokenizer=tokenizer, method="plain+start:token=none")
    assert e.max_length == 16, "longer texts are read in windows, where the angles are always the same"
    alone = e.encode_document(short)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert np.abs(e.encode_document([short, long])[0] - alone).max() <= 1e-5
    with torch.no_grad():
        states = model.base_model(torch.tensor([tokenizer(short)["input_ids"]])).last_hidden_state[0].mean(0)
    assert np.abs(alone - (states / states.norm()).numpy()).max() <= 1e-5
    beside([lambda: equal(call(), theirs), lambda: equal(e.encode_document(short), alone)])
