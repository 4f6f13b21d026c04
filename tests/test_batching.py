"""Which sequences share a pass, and what happens when memory does not suffice."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.comparison import TEXTS, embedder

from eddy_embed.encoding import encoder
from eddy_embed.encoding.runner import run_halving
from eddy_embed.errors import TextTooLong
from eddy_embed.model import host
from eddy_embed.text.sequence import passes


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(1, 200), st.one_of(st.none(), st.integers(1, 6)))
def test_passes_hold_every_sequence_once_within_their_limits(
    lengths: list[int], batch_tokens: int, batch_size: int | None
) -> None:
    found = passes(lengths, batch_tokens, batch_size)
    assert sorted(index for members in found for index in members) == list(range(len(lengths)))
    for members in found:
        assert len(members) == 1 or sum(lengths[index] for index in members) <= batch_tokens
        assert len(members) <= (batch_size or len(lengths))
    flat = [lengths[index] for members in found for index in members]
    assert flat == sorted(lengths, reverse=True), "the longest first"


def test_work_that_does_not_fit_is_halved_in_order_and_other_failures_are_not_tried_again() -> None:
    calls: list[list[int]] = []

    def run(items: list[int], most: int = 2, error: Exception | None = None) -> list[int]:
        calls.append(items)
        if len(items) > most:
            raise error or RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return [item * 10 for item in items]

    assert run_halving(run, [1, 2, 3, 4, 5]) == [10, 20, 30, 40, 50]
    assert calls == [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5]]
    for error in (MemoryError("no room"), type("OutOfMemoryError", (RuntimeError,), {})("no room")):
        with pytest.raises(MemoryError, match=r"no room\); choose a smaller max_length"):
            run_halving(partial(run, most=0, error=error), [1, 2])
    calls.clear()
    with pytest.raises(RuntimeError, match="mat1"):
        run_halving(partial(run, error=RuntimeError("mat1 and mat2 shapes cannot be multiplied")), [1, 2, 3])
    assert len(calls) == 1


def test_texts_planned_beside_an_accelerators_passes_keep_their_order_and_numbers(monkeypatch) -> None:
    e, strict = embedder("llama", "htp"), embedder("llama", "plain", overflow="error", max_length=40)
    texts = [f"{number}. {text}" for number in range(5) for text in TEXTS]
    (whole,) = e._pipeline._planned(texts, "document", sentences=True)
    for each in (e, strict):
        monkeypatch.setattr(each._pipeline.open_runner.host, "device", torch.device("meta"))
    monkeypatch.setattr(encoder, "AHEAD_CHARACTERS", 50)
    parts = list(e._pipeline._planned(texts, "document", sentences=True))
    assert [text for _, chunk, _ in parts for text in chunk] == texts and len(parts) > 3
    assert [plan.tokens for _, _, plans in parts for plan in plans] == [plan.tokens for plan in whole[2]]
    with pytest.raises(TextTooLong, match="text 3"):
        list(strict._pipeline._planned([*["Short."] * 3, "The tide " * 50, "Short."], "document"))


def test_a_pass_that_does_not_fit_gives_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("llama", "htp")
    expected = e.encode_document(TEXTS)
    run, refused = host.ModelView.run, []

    def tight(self: host.ModelView, packed: object, *more: object, **named: object) -> object:
        if len(packed.offsets) > 2:
            refused.append(packed)
            raise MemoryError
        return run(self, packed, *more, **named)

    monkeypatch.setattr(host.ModelView, "run", tight)
    assert np.abs(e.encode_document(TEXTS) - expected).max() <= 1e-5
    assert refused
