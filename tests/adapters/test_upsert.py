"""Rows that are written again: every row is found by its own vector afterwards."""

from __future__ import annotations

from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray
from tests.adapters.indexes import apart

from chroma_eddy.storage.pages import upsert

ROWS, STEP, TRIALS = 36, 6, 20


def collection(place: Path) -> Collection:
    return chromadb.PersistentClient(place).get_or_create_collection(
        "notes", configuration={"hnsw": {"space": "cosine", "sync_threshold": 16, "batch_size": 8}}
    )


def vectors(random: np.random.Generator, centre: NDArray[np.float64]) -> NDArray[np.float32]:
    """Near each other, as those of one library are."""
    found = centre + random.standard_normal((ROWS, len(centre))) * 0.2
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("changed", [False, True], ids=["the same vectors", "other vectors"])
def test_rows_written_again_are_all_found(changed: bool, tmp_path: Path) -> None:
    """By several processes, each of which writes its rows and some of those before it: Chroma's upsert loses a few."""
    random, lost = np.random.default_rng(0), 0
    for trial in range(TRIALS):
        centre = random.standard_normal(16)
        wanted = vectors(random, centre)
        for start in range(0, ROWS, STEP):
            again = np.arange(max(0, start - STEP), start + STEP)
            if changed:
                wanted[again] = vectors(random, centre)[again]
            with apart():
                rows = collection(tmp_path / str(trial))
                upsert(rows, [str(row) for row in again], wanted[again], [{"row": int(row)} for row in again])
        found = rows.query(query_embeddings=wanted, n_results=1, include=["distances"])["distances"] or []
        assert len(found) == ROWS
        lost += sum(distance > 1e-4 for (distance,) in found)
    assert lost == 0


def test_metadata_and_texts_are_replaced(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows, wanted = collection(tmp_path), vectors(random, random.standard_normal(16))[:3]
    upsert(rows, ["a", "b"], wanted[:2], [{"x": 1}, {"x": 2}], ["one", "two"])
    upsert(rows, ["b", "a", "c"], wanted[[1, 0, 2]], [{"x": 3}, {"x": 4}, {"x": 5}], ["two", "uno", "three"])
    for id_, text, x in (("a", "uno", 4), ("b", "two", 3), ("c", "three", 5)):
        got = rows.get(ids=[id_], include=["documents", "metadatas"])
        assert (got["documents"], got["metadatas"]) == ([text], [{"x": x}])
