"""Rows that are written again are deleted first: where a vector is replaced, Chroma's queries lose others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray
from tests.adapters.killing import SAVED_OFTEN

from chroma_eddy import memory_client, open_index
from chroma_eddy.storage import collection_pair
from chroma_eddy.storage.names import DOCUMENTS, MAIN
from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.store import Store
from chroma_eddy.storage.vectors import ROW
from eddy_embed import Embedder


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method="plain:exit=2")


@pytest.fixture(scope="module")
def library(embedder: Embedder) -> NDArray[np.float32]:
    """Four different vectors."""
    return np.asarray(embedder.encode_document(["One.", "Granite cools.", "The ferry leaves.", "Bread rises."]))


@pytest.fixture
def store(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Store]:
    """Open, or begin, the rows of an index at a place."""
    monkeypatch.setattr(collection_pair, "_COSINE_CONFIG", SAVED_OFTEN)

    def opened(place: Any) -> Store:
        index = open_index(place, "notes", embedder)
        index.create()
        return index.store

    return opened


@pytest.mark.parametrize("length", [1, 300])
@pytest.mark.parametrize("kind", [MAIN, DOCUMENTS], ids=["passages", "documents"])
@pytest.mark.parametrize("kept", [True, False], ids=["in a folder", "on a server"])
def test_only_rows_of_documents_are_replaced_in_one_step(
    kept: bool,
    kind: str,
    length: int,
    library: NDArray[np.float32],
    store: Callable[[Any], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which others a query no longer finds is chance; metadata and texts are replaced in any case."""
    rows, wanted = store(tmp_path if kept else memory_client()), library * length
    write, replaced = Collection.upsert, list[str]()
    assert (rows.vectors is not None) == kept

    def told(self: Collection, ids: list[str], *columns: Any) -> None:
        replaced.extend(self.get(ids=ids)["ids"])
        write(self, ids, *columns)

    monkeypatch.setattr(Collection, "upsert", told)
    rows.upsert(kind, Rows(["a", "b", "d"], [{"x": 1}, {"x": 2, "y": 1}, {"x": 0}], ["one", "two", "four"], wanted[:3]))
    metadatas = [{"x": 3, "y": None}, {"x": 4, "y": None}, {"x": 5}, {"x": 6}]
    rows.upsert(kind, Rows(["b", "a", "c", "d"], metadatas, ["two", "uno", "", "four"], wanted[[1, 0, 3, 3]]))
    assert replaced == (["a", "d"] if kind == DOCUMENTS else [])
    for id_, text, x, vector in (("a", "uno", 4, 0), ("b", "two", 3, 1), ("c", "", 5, 3), ("d", "four", 6, 3)):
        got = rows.get(kind, ids=[id_], documents=True, metadatas=True, embeddings=True)
        own = {key: value for key, value in got.metadatas[0].items() if key != ROW}
        assert (got.texts, own) == ([text], {"x": x})
        for found in (got.vectors, rows.vectors_of(kind, got)):
            np.testing.assert_allclose(found[0], wanted[vector], rtol=1e-6, atol=1e-6)
