"""Directions of the token embeddings taken out of vectors: parts, fits and limits; `test_methods` has whole texts."""

from __future__ import annotations

import numpy as np
import pytest
from tests import families
from tests.comparison import TEXTS, embedder, loaded
from tests.reference.readout import filtered, unit

from eddy_embed import Embedder
from eddy_embed.analysis.evaluate.task_vectors import embed
from eddy_embed.analysis.evaluate.tasks import Pairs
from eddy_embed.encoding import build
from eddy_embed.errors import IncompatibleMethods, InvalidParameter

LONG = " ".join(TEXTS[:3])


def test_every_part_of_a_document_is_filtered() -> None:
    model, _ = loaded("llama")
    raw, e = embedder("llama", "plain", normalize=False), embedder("llama", "plain+filter:drop=4")
    before, after = raw.encode_long(LONG, passage_size=20), e.encode_long(LONG, passage_size=20)
    table = model.get_input_embeddings().weight
    for old, new in zip(before.passages + before.sentences, after.passages + after.sentences, strict=True):
        assert np.abs(new.vector - unit(filtered(old.vector, table, 4))).max() < 1e-5
    assert e.dimension == raw.dimension and e.fingerprint != embedder("llama", "plain+filter:drop=5").fingerprint


def test_post_processing_is_fitted_on_filtered_vectors() -> None:
    model, tokenizer = families.build("llama")
    e = Embedder(model, tokenizer=tokenizer, method="plain+filter:drop=4+centre")
    filtered_alone = Embedder(model, tokenizer=tokenizer, method="plain+filter:drop=4")
    fitted = e.fit(TEXTS[:3])
    expected = fitted.apply(filtered_alone.encode_query(TEXTS))
    assert np.abs(e.encode_query(TEXTS) - expected / np.linalg.norm(expected, axis=1)[:, None]).max() < 1e-5
    assert str(e.with_post(None).method) == "plain+filter:drop=4"
    assert np.abs(e.with_post(None).encode_query(TEXTS) - filtered_alone.encode_query(TEXTS)).max() < 1e-6


def test_evaluations_filter_too() -> None:
    e = embedder("llama", "plain+filter:drop=4")
    task = Pairs("own", TEXTS[:2], TEXTS[1:3], [1.0, 2.0])
    vectors = embed(e, [families.LAYERS], task, 256)[0]
    assert np.abs(vectors.library - e.encode_document(TEXTS[:3])).max() < 1e-5


def test_a_large_vocabulary_is_sampled_at_equal_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = families.build("llama")
    rows = model.get_input_embeddings().weight
    monkeypatch.setattr(build, "FILTER_ROWS", len(rows) // 2)
    raw = Embedder(model, tokenizer=tokenizer, method="plain").encode_document(TEXTS[0])
    found = Embedder(model, tokenizer=tokenizer, method="plain+filter:drop=3").encode_document(TEXTS[0])
    step = -(-len(rows) // (len(rows) // 2))
    assert np.abs(found - unit(filtered(raw.astype(np.float64), rows[::step], 3))).max() < 1e-5


@pytest.mark.parametrize(("drop", "said"), [(0, "at least 1"), (64, "below the vectors' width of 64")])
def test_directions_that_are_not_there_are_refused(drop: int, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        embedder("llama", f"plain+filter:drop={drop}")


def test_one_filter_is_enough() -> None:
    with pytest.raises(IncompatibleMethods, match="both set filter"):
        embedder("llama", "plain+filter+filter:drop=2")
