"""Chroma's files of vectors: whatever happens to them, they are made anew from the vectors beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from tests.adapters.indexes import DOCUMENTS, MAIN, apart, assert_same, documents, rows, served
from tests.adapters.killing import SAVED_OFTEN, save_often, stop_at

from chroma_eddy import Index, StorageError, open_index, reindex
from chroma_eddy import index as chroma_index
from chroma_eddy.storage import Storage, StoredVectors
from eddy_embed import Embedder


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[::7] = b"\xab" * len(content[::7])
    path.write_bytes(content)


def blank(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> tuple[Path, dict[str, Any]]:
    """The folder of an index that is left alone, and its rows."""
    place = Path(tmp_path_factory.mktemp("whole")) / "db"
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch)
        with opened(place, embedder) as index:
            index.upsert(documents(8))
            return place, rows(index)


@pytest.fixture
def place(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole[0], tmp_path / "db"))


def opened(place: Path | str, embedder: Embedder) -> Index:
    return open_index(place, "notes", embedder, passage_size=24)


def is_saved(path: Path) -> bool:
    """Whether Chroma has saved the collection of a folder or a file."""
    return any((folder / "index_metadata.pickle").exists() for folder in (path, path.parent))


def check_all_is_there(place: Path, embedder: Embedder, expected: dict[str, Any]) -> None:
    texts = embedder.counts.texts
    with opened(place, embedder) as index:
        assert_same(rows(index), expected, atol=0)
        assert len(index.query("When do boats leave?", 100)) == len(expected[MAIN])
        assert index.check(full=True) == {}
    assert embedder.counts.texts == texts + 1, "vectors were made by the model"


OURS, RECORD = "eddy.vectors/*/rows.f32", "eddy.vectors/*/hnsw.json"
DAMAGE: dict[str, tuple[dict[str, Callable[[Any], object]], bool]] = {
    "Chroma's files are shorter": ({"*-*/length.bin": cut}, False),
    "Chroma's files are gone": ({"*-*/index_metadata.pickle": Path.unlink}, False),
    "a killed writer left them short": ({"*-*/data_level0.bin": cut, RECORD: Path.unlink}, False),
    "a killed writer left none": ({"*-*": shutil.rmtree, RECORD: Path.unlink}, False),
    "ours are gone": ({OURS: Path.unlink, RECORD: Path.unlink}, False),
    "Chroma's files hold zeros": ({"*-*/data_level0.bin": blank}, True),
    "Chroma's files cannot be read": ({"*-*/index_metadata.pickle": scribble}, True),
    "ours are zeros": ({OURS: blank}, True),
    "ours are short": ({OURS: cut}, True),
}
"""What is done to files, and whether sizes do not show it, so that a full check has to find it."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_vectors_are_made_anew_from_sound_ones(kind, place, whole, embedder, caplog):
    harms, hidden = DAMAGE[kind]
    for pattern, harm in harms.items():
        paths = [path for path in place.glob(pattern) if "vectors" in pattern or is_saved(path)]
        assert len(paths) == (1 if "vectors" in pattern else 2)
        for path in paths:
            harm(path)
    if hidden:
        with opened(place, embedder) as index:
            assert index.check(full=True) == {}
    check_all_is_there(place, embedder, whole[1])
    assert hidden or caplog.text.count("are made anew") == 1


def test_without_any_vectors_texts_are_embedded_again(place, whole, embedder):
    shutil.rmtree(place / "eddy.vectors")
    for path in place.glob("*-*/index_metadata.pickle"):
        scribble(path)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"texts are there.*chroma_eddy\.reindex\(place, name, embedder\)"):
            opened(place, embedder)
    with open_index(place, "notes", texts_only=True) as index:
        assert list(index.documents()) == documents(8)
    assert reindex(place, "notes", embedder).written == 8
    with opened(place, embedder) as index:
        assert_same(rows(index), whole[1])


def test_a_reindexing_that_lost_its_vectors_begins_anew(place, whole, embedder, monkeypatch):
    """What it had done still counts until then: who reads only that leaves the damage alone."""
    new, before = Embedder("eddy-tiny", method="plain:exit=1"), set(place.iterdir())
    vectors = set((place / "eddy.vectors").iterdir())
    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 2)
    with opened(place, embedder) as index:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            save_often(patch)
            stop_at(patch, 7, Storage, "upsert")
            index.reindex(new)
        done = len(index.rebuilt())
    assert 0 < done < 8
    for path in (set((place / "eddy.vectors").iterdir()) - vectors) | (set(place.iterdir()) - before):
        if path.is_dir():
            shutil.rmtree(path)
    with opened(place, embedder) as index:
        assert len(index.rebuilt()) == done
        assert index.reindex(new).written == 8
        assert index.embedder is new and index.check(full=True) == {}


def test_collections_of_others_keep_their_vectors(tmp_path, embedder):
    stock = chromadb.PersistentClient(str(tmp_path)).create_collection("stock", configuration=dict(SAVED_OFTEN))
    vectors = np.eye(12, dtype=np.float32)
    for number, vector in enumerate(vectors):
        stock.add(ids=[str(number)], embeddings=[vector], documents=[f"text {number}"])
    SharedSystemClient.clear_system_cache()
    with opened(tmp_path, embedder) as index:
        index.upsert(documents(2))
    next(tmp_path.glob(RECORD)).unlink()
    with opened(tmp_path, embedder) as index:
        assert index.query("ferry", 1)
    SharedSystemClient.clear_system_cache()
    stock = chromadb.PersistentClient(str(tmp_path)).get_collection("stock")
    found = stock.query(query_embeddings=vectors, n_results=1)["ids"]
    assert [ids[0] for ids in found] == [str(number) for number in range(12)]


def test_a_row_is_on_the_disk_before_anything_names_it(embedder, tmp_path, monkeypatch):
    """A power failure loses what was not synced: Chroma's files of vectors, never ours, and the record with them."""
    save_often(monkeypatch)
    record, images = StoredVectors.record, list[Path]()

    def lose_power(self: StoredVectors, *given: Any) -> None:
        image = tmp_path / f"image-{len(images)}"
        shutil.copytree(tmp_path / "db", image)
        for number, path in enumerate(sorted(image.glob("*-*/*"))):
            path.write_bytes(bytes(path.stat().st_size if number % 2 else 0))
        images.append(image)
        record(self, *given)

    with opened(tmp_path / "db", embedder) as index:
        index.upsert(documents(1))
        stored = rows(index)
        monkeypatch.setattr(StoredVectors, "record", lose_power)
        index.upsert(documents(6))
        index.upsert(documents(8))
        monkeypatch.setattr(StoredVectors, "record", record)
        expected = rows(index)
    assert len(images) >= 2
    for image in images:
        with apart(), opened(image, embedder) as index:
            found = rows(index)
            for kind in (MAIN, DOCUMENTS):
                assert_same({kind: {id_: found[kind][id_] for id_ in stored[kind]}}, {kind: stored[kind]}, atol=0)
            index.upsert(documents(8))
            assert_same(rows(index), expected)
            assert index.check(full=True) == {}


def test_an_interrupted_write_leaves_chroma_s_files_whole(place, whole, embedder, caplog):
    """Ctrl-C comes between two calls of Chroma's; a failure inside one leaves nobody knows what."""
    for error, times in ((KeyboardInterrupt, 0), (OSError, 1)):
        with opened(place, embedder) as index:
            with pytest.raises((KeyboardInterrupt, StorageError)), index.writing(), index._transaction({}):
                index.storage.collection(DOCUMENTS).update(["papers/1"], metadatas=[{"number": 1}])
                raise error
        with apart():
            check_all_is_there(place, embedder, whole[1])
        assert caplog.text.count("are made anew") == times


def test_what_a_server_has_written_to_a_folder_is_found_there(place, whole, embedder, tmp_path):
    """RowBatch without a number in our file, a whole index without one, and what a killed writer left without one."""
    vector = embedder.encode_document("A row.")
    with served(place) as server:
        with opened(server.url, embedder) as index:
            changed, relabelled = documents(8, version=2)[0], replace(documents(8)[1], metadata={"shelf": "c"})
            report = index.upsert([changed, relabelled, *documents(10)[2:]])
            assert (report.written, report.relabelled) == (3, 1)
            expected = rows(index)
        with open_index(server.url, "other", embedder, passage_size=24) as other:
            other.upsert(documents(1))
        with open_index(server.url, "other", embedder, passage_size=24) as other:
            other.upsert(documents(3))
            others = rows(other)
        with opened(server.url, embedder) as killed, pytest.MonkeyPatch.context() as patch:
            stop_at(patch, 1, Storage, "mark_written")  # before it can say that it has written
            with pytest.raises(KeyboardInterrupt):
                killed.upsert_rows(["cut"], ["A row."], [vector], [{}], ["book"], embedder.fingerprint)
    with opened(place, embedder) as index:
        assert index.query("A row.", 1)[0].id == "cut"
        index.upsert_rows(["cut"], ["Another."], [-vector], [{}], ["book"], embedder.fingerprint)
        index.remove_rows(["cut"])
    with opened(place, embedder) as index, open_index(place, "other", embedder) as other:
        for found, wanted in ((index, expected), (other, others)):
            held = rows(found)
            assert_same(
                {kind: held[kind] for kind in (MAIN, DOCUMENTS)}, {k: wanted[k] for k in (MAIN, DOCUMENTS)}, 1e-7
            )
            assert found.upsert([]).written == 0 and found.check(full=True) == {}
            assert len(found.query("When do boats leave?", 100)) == len(held[MAIN])
