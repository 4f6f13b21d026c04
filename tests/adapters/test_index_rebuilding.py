"""Another embedder or other sizes: the old index is found until the new one is complete."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb import Collection
from filelock import FileLock
from tests.adapters.indexes import DOCUMENTS, MAIN, SENTENCES_OF, apart, assert_same, documents, rows
from tests.adapters.killing import stop_at

from chroma_eddy import Index, WriterLock, open_index
from chroma_eddy import index as chroma_index
from chroma_eddy.database import LOCK
from chroma_eddy.storage import Storage
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch

ASKED = "Do dogs pay?"


@pytest.fixture(scope="module")
def new() -> Embedder:
    return Embedder("eddy-tiny", method="plain:exit=1")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory, new) -> dict:
    """RowBatch of an index that the other embedder made from the beginning."""
    with open_index(tmp_path_factory.mktemp("wanted"), "notes", new, passage_size=24) as index:
        index.upsert(documents())
        return rows(index)


def names_of(index: Index) -> set[str]:
    return {collection.name for collection in index.storage.client.list_collections()}


def test_the_old_index_is_found_until_the_new_one_is_complete(folder, embedder, new, wanted, monkeypatch):
    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 2)
    with open_index(folder, "notes", embedder) as index:
        before = [(hit.id, hit.cosine) for hit in index.query(ASKED)]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 5, Storage, "upsert")
            open_index(folder, "notes").reindex(new)
        assert [(hit.id, hit.cosine) for hit in index.query(ASKED)] == before
        assert index.status().rebuilt == len(index.rebuilt()) and index.rebuilt().keys() < index.entries().keys()
        assert index.upsert(documents()).unchanged == 6
        with pytest.raises(FingerprintMismatch, match=r"restart=True(.|\n)*method.readout.exit"):
            index.reindex(Embedder("eddy-tiny", method="plain:exit=3"))
        texts = new.counts.texts
        report = index.reindex(new)
        assert report.unchanged > 0 and new.counts.texts - texts == report.written < 6
        assert_same(rows(index), wanted)
        assert names_of(index) == {"notes", "notes-documents"}
        assert index.embedder is new and index.query(ASKED, alpha=1)[0].cosine == pytest.approx(
            max(float(v @ new.encode_query(ASKED)) for v, _, _ in wanted[MAIN].values()), abs=1e-5
        )
    with pytest.raises(FingerprintMismatch):
        open_index(folder, "notes", embedder)


def test_sizes_change_too_and_what_was_begun_can_be_left_or_discarded(folder, embedder, new, monkeypatch):
    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 2)
    with open_index(folder, "notes", embedder) as index:
        before = rows(index)

        def begin() -> None:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                stop_at(patch, 5, Storage, "upsert")
                index.reindex(new)
            assert index.rebuilt()

        begin()
        for _ in range(2):
            index.discard_rebuilt()
        assert index.status().rebuilt is None and index.rebuilt() == {}
        assert names_of(index) == {"notes", "notes-documents"}
        assert_same(rows(index), before, atol=0)
        begin()
        index.reindex(embedder, passage_size=12, sentence_vectors=False, restart=True)
        after = rows(index)
        assert SENTENCES_OF not in after and names_of(index) == {"notes", "notes-documents"}
        assert list(index.documents()) == documents()
        assert max(row["eddy_n_tokens"] for _, row, _ in after[MAIN].values()) < 24
        index.remove(list(index.entries()))
        index.reindex(new)  # of nothing, there is nothing to embed
        assert not index.exists and index.upsert(documents(1)).written == 1
        assert index.settings.fingerprint == new.fingerprint


def test_who_opens_while_another_exchanges_waits_for_it(folder, new, wanted, monkeypatch):
    """Also where it has to wait for the lock, and there is nothing left to exchange when it has got it."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 1, Storage, "_swap")
        open_index(folder, "notes").reindex(new)
    writer, hold_lock = FileLock(folder / LOCK), WriterLock.__enter__

    def let_go(_: float) -> None:
        writer.release()
        monkeypatch.setattr(WriterLock, "__enter__", after_the_other)

    def after_the_other(self: WriterLock) -> WriterLock:
        monkeypatch.setattr(WriterLock, "__enter__", hold_lock)
        with apart(), open_index(folder, "notes"):
            return self.__enter__()

    monkeypatch.setattr(time, "sleep", let_go)
    with writer.acquire(), open_index(folder, "notes", new) as index:
        assert not writer.is_locked
        assert_same(rows(index), wanted)


@pytest.mark.parametrize("step", [1, 2])
def test_two_that_exchange_at_once_lose_nothing(step, embedder, new, wanted, monkeypatch):
    """Where no lock of a folder keeps one who opens apart from a writer, as on a server."""
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    modify, calls = Collection.modify, count(1)
    with open_index(client, "letters", embedder, passage_size=24) as writer:
        writer.upsert(documents())

        def overtaken(self: Collection, **change: Any) -> None:
            if "name" in change and next(calls) == step:
                monkeypatch.setattr(Collection, "modify", modify)
                writer.storage.finish_swap(clean=True)
            modify(self, **change)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 1, Storage, "_swap")
            writer.reindex(new)
        monkeypatch.setattr(Collection, "modify", overtaken)
        with open_index(client, "letters", new) as reader:
            assert Collection.modify is modify
            assert_same(rows(reader), {kind: wanted[kind] for kind in (MAIN, DOCUMENTS)})
            reader.remove(list(reader.entries()))
            reader.storage.drop_all()


def test_a_reader_goes_on_when_the_index_is_exchanged(folder, embedder, new):
    with open_index(folder, "notes", embedder) as index, open_index(folder, "notes", embedder) as reader:
        assert reader.query(ASKED)
        index.annotate(of="facts")
        index.reindex(embedder, passage_size=12)
        assert index.collection.metadata["of"] == "facts"
        assert [hit.id for hit in reader.query(ASKED)] == [hit.id for hit in index.query(ASKED)]
        index.reindex(new)
        for _ in range(2):  # asked again, the vectors are still another method's
            with pytest.raises(FingerprintMismatch, match="reindex"):
                reader.query(ASKED)


def test_a_search_goes_on_when_the_index_is_exchanged_under_it(folder, embedder, monkeypatch):
    """Its vectors and keywords are deleted."""
    query = Collection.query

    def exchanged_after(self: Collection, *args: object, **kwargs: object) -> object:
        monkeypatch.setattr(Collection, "query", query)
        found = query(self, *args, **kwargs)
        with apart(), open_index(folder, "notes", embedder) as other:
            other.reindex(embedder, passage_size=12)
        return found

    with open_index(folder, "notes", embedder) as reader:
        monkeypatch.setattr(Collection, "query", exchanged_after)
        assert {hit.id for hit in reader.query(ASKED, 100)} == {*reader.get()["ids"]}


READS: dict[str, tuple[Callable[[Index], Any], Any]] = {
    "entries": (lambda index: len(index.entries()), 0),
    "documents": (lambda index: len(list(index.documents())), 0),
    "incomplete": (Index.incomplete, []),
    "get": (lambda index: len(index.get()["ids"]), 0),
    "status": (lambda index: index.status().documents, 0),
    "embedded": (lambda index: index.embedded("papers/1") is None, True),
    "query": (lambda index: len(index.query(ASKED, 100)), 0),
}


@pytest.mark.parametrize("read", READS)
def test_a_reader_of_anything_goes_on_when_another_process_has_made_the_index_anew_or_dropped_it(
    read, folder, embedder
):
    call, nothing = READS[read]
    with open_index(folder, "notes", embedder) as reader:
        assert call(reader) != nothing or read == "incomplete"
        with apart(), open_index(folder, "notes", embedder) as other:
            other.reindex(embedder, passage_size=12)
            assert call(reader) == call(other)
            other.drop()
        assert call(reader) == nothing


def test_of_damaged_documents_alone_there_is_nothing_to_embed(folder, embedder, new):
    with open_index(folder, "notes", embedder) as index:
        index.collection.delete(index.get()["ids"])
        assert len(index.check()) == 6
        assert index.reindex(new).written == 0 and index.upsert(documents(2)).written == 2


def test_a_question_embedded_before_a_reindexing_is_embedded_again(folder, embedder, new, monkeypatch):
    """As two threads with one index do it."""
    with open_index(folder, "notes", embedder) as index:
        encode = Embedder.encode_query

        def reindexed_after(self: Embedder, *args: object, **kwargs: object) -> np.ndarray:
            monkeypatch.setattr(Embedder, "encode_query", encode)
            vector = encode(self, *args, **kwargs)
            index.reindex(new)
            return vector

        monkeypatch.setattr(Embedder, "encode_query", reindexed_after)
        hit = index.query(ASKED, 1)[0]
        vector = rows(index)[MAIN][hit.id][0]
        assert hit.cosine == pytest.approx(float(vector @ new.encode_query(ASKED)), abs=1e-5)
