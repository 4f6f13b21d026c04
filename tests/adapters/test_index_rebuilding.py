"""Another embedder, or post-processing fitted anew: the old index is found until the new one is complete."""

from __future__ import annotations

import shutil
import time

import chromadb
import numpy as np
import pytest
from chromadb import Collection
from filelock import FileLock
from tests.adapters.indexes import apart, assert_same, documents, rows
from tests.adapters.killing import stop_at
from tests.selection import slow

from chroma_eddy import Document, Index, open_index
from chroma_eddy.storage import swap
from chroma_eddy.storage.locks import WriterLock
from chroma_eddy.storage.names import LOCK, MAIN, SENTENCES, WRITER
from chroma_eddy.storage.store import Store
from chroma_eddy.write import writer
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter

ASKED = "Do dogs pay?"


@pytest.fixture(scope="module")
def old(embedder: Embedder) -> Embedder:
    return embedder


@pytest.fixture(scope="module")
def new() -> Embedder:
    return Embedder("eddy-tiny", method="plain:exit=-2")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory, new) -> dict:
    """Rows of an index that the other embedder made from the beginning."""
    with open_index(tmp_path_factory.mktemp("wanted"), "notes", new, passage_size=24) as index:
        index.upsert(documents())
        return rows(index)


def names_of(index: Index) -> set[str]:
    return {collection.name for collection in index.store.client.list_collections()}


def test_the_old_index_is_found_until_the_new_one_is_complete(folder, old, new, wanted, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_DOCUMENTS", 2)
    with open_index(folder, "notes", old) as index:
        before = [(hit.id, hit.cosine) for hit in index.query(ASKED)]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 9, Store, "upsert")
            open_index(folder, "notes").reindex(new)
        assert [(hit.id, hit.cosine) for hit in index.query(ASKED)] == before
        assert index.status().rebuilt and index.upsert(documents()).unchanged == 6
        with pytest.raises(FingerprintMismatch, match=r"restart=True(.|\n)*method.readout.exit"):
            index.reindex(Embedder("eddy-tiny", method="plain:exit=-3"))
        texts = new.counts.texts
        report = index.reindex(new)
        assert report.unchanged > 0 and new.counts.texts - texts == report.written < 6
        assert_same(rows(index), wanted)
        assert names_of(index) == {"notes", "notes-sentences", "notes-documents"}
        assert index.embedder is new and index.query(ASKED, hybrid=False)[0].cosine == pytest.approx(
            max(float(v @ new.encode_query(ASKED)) for v, _, _ in wanted[MAIN].values()), abs=1e-5
        )
    with pytest.raises(FingerprintMismatch):
        open_index(folder, "notes", old)


def test_sizes_change_too_and_what_was_begun_can_be_left(folder, old, new, monkeypatch):
    with open_index(folder, "notes", old) as index:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 3, Store, "upsert")
            index.reindex(new)
        index.reindex(old, passage_size=12, sentence_vectors=False, restart=True)
        held = rows(index)
        assert SENTENCES not in held and names_of(index) == {"notes", "notes-documents"}
        assert list(index.documents()) == documents()
        assert max(row["eddy_n_tokens"] for _, row, _ in held[MAIN].values()) < 24
        index.remove(list(index.entries()))
        index.reindex(new)  # of nothing, there is nothing to embed
        assert not index.exists and index.upsert(documents(1)).written == 1
        assert index.settings.fingerprint == new.fingerprint


def test_an_exchange_that_is_cut_short_is_finished_by_whoever_comes_next(folder, tmp_path, new, wanted, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 1, swap, "_swap")
        open_index(folder, "notes").reindex(new)
    for step in range(1, 14):
        copy = shutil.copytree(folder, tmp_path / str(step))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, step, Store, "rename", "drop", "update_metadata")
            with open_index(copy, "notes", new) as index:
                index.upsert([])
            break
        with open_index(copy, "notes", new) as index:
            assert_same(rows(index), wanted)
            assert index.upsert(documents()).unchanged == 6
            assert names_of(index) == {"notes", "notes-sentences", "notes-documents"}
    assert step > 8


def test_who_opens_while_another_exchanges_waits_for_it(folder, new, wanted, monkeypatch):
    """Also where it has to wait for the lock, and there is nothing left to exchange when it has got it."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 1, swap, "_swap")
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


@pytest.mark.parametrize("lacking", ["notes", "notes-documents"])
def test_who_reads_finishes_an_exchange_that_left_a_collection_without_its_name(lacking, folder, old, monkeypatch):
    rename = Store.rename

    def killed(self: Store, part: str, name: str) -> None:
        if name == lacking:
            raise KeyboardInterrupt
        rename(self, part, name)

    with open_index(folder, "notes", old) as reader:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), apart():
            patch.setattr(Store, "rename", killed)
            with open_index(folder, "notes", old) as writer:
                writer.reindex(old, passage_size=12)
        assert {hit.document for hit in reader.query(ASKED, 100)} == {each.id for each in documents()}
        assert reader.settings.passage_size == 12


@pytest.mark.parametrize("found", ["letters-next", "letters"])
def test_two_that_exchange_at_once_lose_nothing(found, old, new, wanted, monkeypatch):
    """Where no lock of a folder keeps one who opens apart from a writer, as on a server."""
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    monkeypatch.setattr(swap, "_TIMEOUT", 0.0)
    find, rename = Store.find, Store.rename
    with open_index(client, "letters", old, passage_size=24) as writer:
        writer.upsert(documents())

        def overtaken(self: Store, part: str = MAIN) -> Collection | None:
            own = find(self, part)
            if (self.name, part) == (found, SENTENCES):
                monkeypatch.setattr(Store, "find", find)
                swap.finish_swap(writer.store, clean=found == "letters")
            return own

        def cleaned(self: Store, part: str, name: str) -> None:
            rename(self, part, name)
            if self.connection is not writer.store.connection:
                swap.finish_swap(writer.store, clean=True)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 1, swap, "_swap")
            writer.reindex(new)
        monkeypatch.setattr(Store, "find", overtaken)
        monkeypatch.setattr(Store, "rename", cleaned)
        with open_index(client, "letters", new) as reader:
            assert Store.find is find
            assert_same(rows(reader), wanted)
            reader.remove(list(reader.entries()))
            reader.store.drop_all()


# --- Post-processing


@pytest.mark.parametrize(
    ("post", "normalize"),
    [("centre", True), slow("whiten:dims=16", False), slow("whiten:power=0.5", True), slow("abtt:k=2", True)],
)
def test_a_grown_index_is_fitted_again_without_the_model(post, normalize, tmp_path):
    embedder = Embedder("eddy-tiny", method=f"plain+{post}", normalize=normalize)
    with open_index(tmp_path, "notes", embedder, passage_size=24) as index:
        assert index.upsert(documents(3)).fitted_on == index.status().sentences
        index.upsert(documents(8))
        texts = embedder.counts.texts
        index.upsert([*documents(7), documents(8, version=1)[7]])
        report = index.refit()
        assert (report.written, report.fitted_on) == (8, index.status().sentences)
        assert embedder.counts.texts == texts
        assert list(index.documents()) == documents(8) and index.check() == {}

        fresh = Embedder("eddy-tiny", method=f"plain+{post}", normalize=normalize)
        fresh.fit([document.text for document in documents(8)])
        held = {(row["eddy_document"], row["start_index"]): vector for vector, row, _ in rows(index)[MAIN].values()}
        found, wanted = [], []
        for document in documents(8):
            for passage in fresh.encode_long(document.text, passage_size=24).passages:
                found.append(held[document.id, passage.start])
                wanted.append(passage.vector)
        # Products: so few sentences leave the axes open behind those in which they differ.
        products = np.array(wanted) @ np.array(wanted).T
        np.testing.assert_allclose(np.array(found) @ np.array(found).T, products, atol=4e-3 * products.max())
        again = index.refit()
        assert again.written == 8 and index.status().documents == 8


def test_an_index_without_sentence_vectors_is_fitted_on_passages(tmp_path):
    embedder = Embedder("eddy-tiny", method="plain+whiten")
    with open_index(tmp_path, "notes", embedder, passage_size=24, sentence_vectors=False) as index:
        assert index.upsert(documents(3)).fitted_on == index.status().passages
        assert index.refit().fitted_on == index.status().passages


def test_questions_go_through_the_index_own_transform(tmp_path):
    unfitted = Embedder("eddy-tiny", method="plain+whiten")
    with open_index(tmp_path, "notes", unfitted, passage_size=24) as index:
        index.upsert(documents())
        fitted = index.post
        assert fitted is not None
        fitted.save(tmp_path / "post.npz")
    own = Embedder("eddy-tiny", method="plain+whiten", fitted=tmp_path / "post.npz")
    query = own.encode_query(ASKED)
    for embedder in (unfitted, own):
        with open_index(tmp_path, "notes", embedder) as index:
            hit = index.query(ASKED, 1, hybrid=False)[0]
            vector = rows(index)[MAIN][hit.id][0]
            assert hit.cosine == pytest.approx(float(vector @ query), abs=1e-5)
            assert index.collection.query(query_texts=[ASKED], n_results=1)["ids"] == [[hit.id]]
    other = Embedder("eddy-tiny", method="plain+whiten")
    other.fit([document.text for document in documents(3)])
    with pytest.raises(FingerprintMismatch, match="post "):
        open_index(tmp_path, "notes", other)


def test_a_reader_goes_on_when_the_index_is_exchanged(tmp_path, new):
    with open_index(tmp_path, "notes", Embedder("eddy-tiny", method="plain+centre"), passage_size=24) as index:
        index.upsert(documents(4))
        reader = open_index(tmp_path, "notes", Embedder("eddy-tiny", method="plain+centre"))
        index.upsert(documents())
        assert reader.query(ASKED)
        index.refit()
        assert [hit.id for hit in reader.query(ASKED)] == [hit.id for hit in index.query(ASKED)]
        index.reindex(new)
        for _ in range(2):  # asked again, the vectors are still another method's
            with pytest.raises(FingerprintMismatch, match="reindex"):
                reader.query(ASKED)


def test_an_interrupted_refit_goes_on_with_what_it_had_learned(tmp_path, old, monkeypatch):
    with open_index(tmp_path, "notes", Embedder("eddy-tiny", method="plain+abtt:k=2"), passage_size=24) as index:
        with pytest.raises(InvalidParameter, match="at least 2 vectors"):
            index.upsert([Document("one", "One sentence.")])
        assert not index.exists
        index.upsert(documents(4))
        index.upsert(documents())
        before = index.settings.fingerprint
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 14, Store, "upsert")
            index.refit()
        assert index.settings.fingerprint == before and index.query(ASKED)
        (tmp_path / WRITER).write_text("{}")  # which one who is killed leaves
        report = index.refit()
        assert report.unchanged and report.unchanged + report.written == 6
        assert index.check() == {} and list(index.documents()) == documents()
    with open_index(tmp_path, "bare", old) as bare:
        bare.upsert(documents(2))
        with pytest.raises(InvalidParameter, match="no post-processing to fit"):
            bare.refit()


def test_a_question_embedded_before_a_refit_is_embedded_again(tmp_path, monkeypatch):
    """As two threads with one index do it."""
    with open_index(tmp_path, "notes", Embedder("eddy-tiny", method="plain+whiten"), passage_size=24) as index:
        index.upsert(documents(4))
        index.upsert(documents(6))
        encode = Embedder.encode_query

        def refitted_after(self: Embedder, *args: object, **kwargs: object) -> np.ndarray:
            monkeypatch.setattr(Embedder, "encode_query", encode)
            vector = encode(self, *args, **kwargs)
            index.refit()
            return vector

        monkeypatch.setattr(Embedder, "encode_query", refitted_after)
        hit = index.query(ASKED, 1)[0]
        vector, query = rows(index)[MAIN][hit.id][0], index.embedder.encode_query(ASKED)
        assert hit.cosine == pytest.approx(float(vector @ query), abs=1e-5)
