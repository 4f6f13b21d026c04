"""Rows that are written again: every row is found by its own vector afterwards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray
from tests.adapters.indexes import apart, documents
from tests.adapters.killing import SAVED_OFTEN
from tests.selection import slow

from chroma_eddy.storage.pages import upsert
from eddy_embed import Embedder

ROWS, TRIALS = 37, 10


def collection(place: Path) -> Collection:
    return chromadb.PersistentClient(place).get_or_create_collection("notes", configuration=dict(SAVED_OFTEN))


@pytest.fixture(scope="module")
def library() -> NDArray[np.float32]:
    """Vectors of sentences many of which are nearly the same: of such, a query loses some most often."""
    parts = {
        part for version in (1, 2) for each in documents(40, version) for part in re.split(r"(?<=\.)\s+", each.text)
    }
    sentences = [f"{text} ({number})" for number, text in enumerate(sorted(parts - {""}))]
    return np.asarray(Embedder("eddy-tiny", method="plain:exit=2").encode_document(sentences))


@pytest.mark.parametrize("changed", [slow(False), True], ids=["the same vectors", "other vectors"])
def test_rows_written_again_are_all_found(changed: bool, library: NDArray[np.float32], tmp_path: Path) -> None:
    """By several processes, each of which writes its rows and some of those before it: Chroma's upsert loses a few."""
    random, lost = np.random.default_rng(0), 0
    for trial in range(TRIALS):
        wanted = random.permutation(library)[:ROWS]
        for end in (9, 18, 27, ROWS):
            again = np.arange(max(0, end - 15), end)
            if changed:
                wanted[again] = random.permutation(library)[: len(again)]
            with apart():
                rows = collection(tmp_path / str(trial))
                for few in np.split(again, range(5, len(again), 5)):
                    upsert(rows, [str(row) for row in few], wanted[few], [{"row": int(row)} for row in few])
        found = rows.query(query_embeddings=wanted, n_results=1, include=["distances"])["distances"] or []
        assert len(found) == ROWS
        lost += sum(distance > 1e-4 for (distance,) in found)
    assert lost == 0


@pytest.mark.parametrize("length", [1, 300])
@pytest.mark.parametrize("atomic", [False, True])
def test_vectors_are_replaced_only_in_one_step_on_demand(
    library: NDArray[np.float32], atomic: bool, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which others a query no longer finds is chance; metadata and texts are replaced in any case."""
    rows, wanted, write, replaced = collection(tmp_path), library[:4] * length, Collection.upsert, list[str]()

    def told(self: Collection, ids: list[str], **columns: Any) -> None:
        replaced.extend(self.get(ids=ids)["ids"])
        write(self, ids=ids, **columns)

    monkeypatch.setattr(Collection, "upsert", told)
    upsert(rows, ["a", "b", "d"], wanted[:3], [{"x": 1}, {"x": 2, "y": 1}, {"x": 0}], ["one", "two", "four"])
    metadatas = [{"x": 3, "y": None}, {"x": 4, "y": None}, {"x": 5}, {"x": 6}]
    upsert(rows, ["b", "a", "c", "d"], wanted[[1, 0, 3, 3]], metadatas, ["two", "uno", "", "four"], atomic=atomic)
    assert replaced == (["a", "d"] if atomic else [])
    for id_, text, x, vector in (("a", "uno", 4, 0), ("b", "two", 3, 1), ("c", "", 5, 3), ("d", "four", 6, 3)):
        got = rows.get(ids=[id_], include=["documents", "metadatas", "embeddings"])
        assert (got["documents"], got["metadatas"]) == ([text], [{"x": x}])
        np.testing.assert_allclose(np.asarray(got["embeddings"])[0], wanted[vector], rtol=1e-6, atol=1e-6)
