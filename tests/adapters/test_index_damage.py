"""RowBatch that something else has taken, changed or put in: found by `check`, left out by queries, written again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.adapters.indexes import DOCUMENTS, MAIN, assert_same, documents, rows
from tests.adapters.killing import stop_at

from chroma_eddy import ForeignCollection, Index
from chroma_eddy.storage import Storage
from eddy_embed.integrations.documents import DOCUMENT


@pytest.fixture(scope="module")
def before(shelf: Index) -> dict[str, Any]:
    return rows(shelf)


def test_rows_that_somebody_took_are_missed_and_written_again(index, before):
    victims = [id_ for id_, row in before[MAIN].items() if row[1]["eddy_document"] == "papers/4"]
    index.collection.delete(ids=victims[:1])
    wrong = index.check()
    assert wrong == {"papers/4": f"{len(victims) - 1} of {len(victims)} rows in notes"}
    assert index.status().incomplete == ("papers/4",)
    assert index.upsert(documents()).written == 1
    assert_same(rows(index), before)
    index.collection.upsert(ids=["mine"], embeddings=[index.embedder.encode_query("A guest.")], documents=["A guest."])
    with pytest.raises(ForeignCollection, match="'mine'"):
        index.query("A guest.", 1)
    index.collection.delete(ids=["mine"])


@pytest.mark.parametrize(
    ("change", "said"), [({"documents": ["Altered."]}, "another text"), ({"metadatas": [{"shelf": "z"}]}, "metadata")]
)
def test_changed_passages_are_not_found_until_they_are_written_again(change, said, index, before):
    first, vector = next((id_, v) for id_, (v, row, _) in before[MAIN].items() if row["eddy_document"] == "papers/2")
    index.storage.collection(MAIN).update(ids=[first], embeddings=[vector], **change)
    assert said in index.check()["papers/2"]
    assert not index.query("What?", documents=["papers/2"]) and index.upsert(documents()).written == 1
    assert_same(rows(index), before)


@pytest.mark.parametrize("how", ["remove", "check"])
def test_both_versions_are_hidden_where_an_update_and_then_a_removal_were_cut_short(how, index, before, monkeypatch):
    delete = Storage.delete

    def before_the_rows_go(self: Storage, part: str, ids: Any = None, where: Any = None) -> int:
        if DOCUMENT in (where or {}):
            raise KeyboardInterrupt
        return delete(self, part, ids, where)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 2, Storage, "upsert")  # the passages of the new version are in by then
        index.upsert([documents(version=2)[4]])
    if how == "check":
        victim = next(id_ for id_, row in before[MAIN].items() if row[1]["eddy_document"] == "papers/4")
        index.collection.delete(ids=[victim])
        assert "papers/4" in index.check()
    else:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Storage, "delete", before_the_rows_go)
            index.remove(["papers/4"])
    assert "papers/4" not in {hit.document for hit in index.query("What?", 100)}
    index.upsert(documents())
    assert_same(rows(index), before)


def test_rows_that_belong_to_no_version_of_a_document_end_queries_until_they_are_deleted(index, before):
    """As two writers of one document leave them on a server, or somebody who deletes a document's row."""
    vector, passage, _ = next(row for row in before[MAIN].values() if row[1]["eddy_document"] == "papers/5")
    index.storage.collection(DOCUMENTS).delete(ids=["papers/2"])
    stray = {**passage, "eddy_digest": "another"}
    index.storage.collection(MAIN).upsert(ids=["stray"], embeddings=[vector], metadatas=[stray], documents=["Stray."])
    for id_ in ("papers/2", "papers/5"):
        with pytest.raises(ForeignCollection, match=r"check\(\)"):
            index.query("What?", 100, documents=[id_])
    assert set(index.check()) == {"papers/2", "papers/5"} and index.check() == {}
    assert index.upsert(documents()).written == 1
    assert_same(rows(index), before)


@pytest.mark.parametrize("change", ["upsert", "remove"])
def test_a_damaged_document_takes_no_piece_with_it(change, index, before, monkeypatch):
    """Neither has a version."""
    text = "A piece that a framework has cut."
    vectors = index.embedder.encode_document([text])
    index.upsert_rows(["mine"], [text], vectors, [{}], ["book"], index.embedder.fingerprint)
    victims = [id_ for id_, row in before[MAIN].items() if row[1]["eddy_document"] == "papers/4"]
    index.collection.delete(ids=victims)
    assert list(index.check()) == ["papers/4"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 1, Index, "delete_rows")
        index.upsert(documents()) if change == "upsert" else index.remove(["papers/4"])
    assert "mine" in {hit.id for hit in index.query(text, 100)}
    index.upsert(documents())
    assert "mine" in {hit.id for hit in index.query(text, 100)} and index.check() == {}
