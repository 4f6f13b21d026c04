"""Rows that a framework has cut, beside documents that the index has cut itself."""

from __future__ import annotations

from typing import Any

import chromadb
import numpy as np
import pytest
from tests.adapters.indexes import MAIN, SENTENCES, documents, rows

from chroma_eddy import ForeignCollection, Index, open_index

ASKED = "When do boats with a deep keel leave?"
TEXTS = {f"row/{at}": text for at, text in enumerate(SENTENCES)}


def put(index: Index, texts: dict[str, str], **metadata: Any) -> None:
    vectors = index.embedder.encode_document(list(texts.values())) if texts else np.zeros((0, 0))
    owners, about = ["book"] * len(texts), [metadata] * len(texts)
    index.upsert_rows(list(texts), list(texts.values()), vectors, about, owners, index.embedder.fingerprint)


def test_twice_changes_nothing_and_a_known_id_is_replaced_with_all_its_metadata(tmp_path, embedder, monkeypatch):
    with open_index(tmp_path, "notes", embedder) as index:
        monkeypatch.setattr(type(index.storage.client), "get_max_batch_size", lambda _: 4)
        sizes, upsert = [], chromadb.Collection.upsert
        monkeypatch.setattr(
            chromadb.Collection, "upsert", lambda self, ids, *more: (sizes.append(len(ids)), upsert(self, ids, *more))
        )
        put(index, {})
        assert not index.exists and index.get()["ids"] == [] and index.query(ASKED) == []
        put(index, TEXTS, number=1)
        assert sizes == [4, 4, 3]
        before = rows(index)[MAIN]
        put(index, TEXTS, number=1)
        after = rows(index)[MAIN]
        assert after.keys() == before.keys() == TEXTS.keys() and len(sizes) == 3
        assert all((after[id_][0] == before[id_][0]).all() and after[id_][1:] == before[id_][1:] for id_ in after)
        put(index, {"row/1": "Something else."}, shelf="c")
        vector, row, text = rows(index)[MAIN]["row/1"]
        assert (text, row) == ("Something else.", {"shelf": "c", "eddy_document": "book", "eddy_digest": ""})
        np.testing.assert_allclose(vector, index.embedder.encode_document(text), atol=1e-5)


def test_rows_and_documents_are_found_together_and_go_each_by_itself(index):
    passages = {*index.get()["ids"]}
    put(index, TEXTS)
    assert {hit.id for hit in index.query(ASKED, 100)} == passages | TEXTS.keys()
    with pytest.raises(ForeignCollection, match="passage of a document"):
        put(index, {min(passages): "Mine."})
    victim = index.get(where={"eddy_document": "papers/1"})["ids"][0]
    index.collection.delete(ids=[victim])
    assert index.check().keys() == {"papers/1"}
    visible = {*index.get()["ids"]}
    assert not visible & {*index.get([victim])["ids"]} and visible < passages | TEXTS.keys()
    assert {hit.id for hit in index.query(ASKED, 100)} == visible
    assert index.remove_rows(ids=["row/0", "nowhere", min(visible & passages)]) == 1
    assert index.get(["row/0", "row/1"])["ids"] == ["row/1"]
    assert index.remove([document.id for document in documents()]) == 6
    book = index.get(where={"eddy_document": "book"})["ids"]
    assert {*index.get()["ids"]} == {*book} == TEXTS.keys() - {"row/0"}
