"""Files of vectors that something has damaged: put back from their copy, or refused with what to do, never used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from tests.adapters.indexes import assert_same, documents, rows
from tests.adapters.killing import SAVED_OFTEN

from chroma_eddy import DamagedVectors, Index, open_index
from chroma_eddy.storage import hnsw_files, store
from chroma_eddy.storage.backups import BEGUN, SAVED
from chroma_eddy.storage.hnsw_files import RECORD
from eddy_embed import Embedder

Harm = Callable[[Path], None]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[::7] = b"\xab" * len(content[::7])
    path.write_bytes(content)


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> tuple[Path, dict[str, Any]]:
    """The folder of an index that is left alone, and its rows."""
    place = Path(tmp_path_factory.mktemp("whole")) / "db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_COSINE_CONFIG", SAVED_OFTEN)
        with opened(place, embedder) as index:
            index.upsert(documents(8))
            return place, rows(index)


@pytest.fixture
def place(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole[0], tmp_path / "db"))


def opened(place: Path, embedder: Embedder, **more: Any) -> Index:
    return open_index(place, "notes", embedder, passage_size=24, **more)


def saved_files(place: Path, name: str) -> list[Path]:
    """Files of a name in the collections that Chroma has saved."""
    found = [path.with_name(name) for path in place.glob(f"*-*/{RECORD}")]
    assert len(found) == 3
    return found


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("length.bin", cut),
        ("data_level0.bin", scribble),
        ("index_metadata.pickle", Path.unlink),
        ("header.bin", remove_folder),
    ],
)
def test_damaged_files_are_put_back_from_their_copy(name: str, harm: Harm, place, whole, embedder, caplog):
    for path in saved_files(place, name):
        harm(path)
    with opened(place, embedder) as index:
        assert_same(rows(index), whole[1], atol=0)
        assert index.query("When do boats leave?", 100) and index.check() == {}
    assert caplog.text.count("put back from its copy") == 3


def test_damage_that_leaves_size_and_time_is_found_by_a_full_check(place, whole, embedder, caplog):
    for path in saved_files(place, "data_level0.bin"):
        stat = path.stat()
        content = bytearray(path.read_bytes())
        content[200] ^= 1  # within the first vector
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with opened(place, embedder) as index:
        assert index.check(full=True) == {}
        assert_same(rows(index), whole[1], atol=0)
    assert caplog.text.count("other bytes than were written; put back from its copy") == 3


@pytest.mark.parametrize(("name", "harm"), [("data_level0.bin", scribble), ("header.bin", remove_folder)])
def test_without_a_copy_opening_says_what_to_do_and_texts_are_embedded_again(
    name: str, harm: Harm, place, whole, embedder
):
    for path in saved_files(place, name):
        harm(path)
    for path in (place / SAVED).rglob("length.bin"):
        cut(path)
    for _ in range(2):
        with pytest.raises(DamagedVectors, match=r"eddy-demo library repair.*salvage=True"):
            opened(place, embedder)
    opened(place, embedder, salvage=True).close()  # stopped before the repair
    with pytest.raises(DamagedVectors, match="discarded"):
        opened(place, embedder)
    with opened(place, embedder, salvage=True) as index:
        assert index.repair() == {}
    with opened(place, embedder) as index:
        assert index.check(full=True) == {}
        assert_same(rows(index), whole[1])


def test_vectors_that_are_wrong_in_whole_files_are_reported_and_embedded_again(place, whole, embedder):
    """As something else may have written them: their files are what they were recorded to be."""
    for path in saved_files(place, "length.bin"):
        path.write_bytes(bytes(path.stat().st_size))
        row = int(next((place / SAVED).glob(f"{path.parent.name}.*")).suffix[1:])
        hnsw_files.record(path.parent, row)
    with opened(place, embedder) as index:
        problems = index.check()
        assert problems and all("are damaged or not found; call repair()" in said for said in problems.values())
        assert index.status().documents == 8 and index.repair() == {}
        assert index.check() == {} and index.check(full=True) == {}
        assert_same(rows(index), whole[1])


def test_a_folder_whose_times_were_lost_is_read_once(place, whole, embedder, monkeypatch):
    copied = Path(shutil.copytree(place, place.with_name("copy"), copy_function=shutil.copyfile))
    with opened(copied, embedder) as index:
        assert_same(rows(index), whole[1], atol=0)
    monkeypatch.setattr(hnsw_files, "_checksum", lambda path: pytest.fail(f"{path} was read again"))
    with opened(copied, embedder) as index:
        assert_same(rows(index), whole[1], atol=0)


def test_a_marker_that_names_no_collection_repairs_all(place, whole, embedder):
    (place / BEGUN).write_bytes(b"\xff\xfe\x00junk")
    for path in saved_files(place, "data_level0.bin"):
        cut(path)
    with opened(place, embedder) as index:
        assert_same(rows(index), whole[1], atol=0)
    assert not (place / BEGUN).exists()


@pytest.mark.parametrize("marker", [b"", b"00000000-0000-0000-0000-000000000000"])
def test_a_damaged_marker_leaves_the_vectors_of_others_alone(marker, tmp_path, embedder):
    """They have no copy here, and Chroma has purged their log: nothing could bring them back."""
    stock = chromadb.PersistentClient(str(tmp_path)).create_collection("stock", configuration=dict(SAVED_OFTEN))
    vectors = np.eye(12, dtype=np.float32)
    for number, vector in enumerate(vectors):
        stock.add(ids=[str(number)], embeddings=[vector], documents=[f"text {number}"])
    SharedSystemClient.clear_system_cache()
    with opened(tmp_path, embedder) as index:
        index.upsert(documents(2))
    (tmp_path / BEGUN).write_bytes(marker)
    with opened(tmp_path, embedder) as index:
        assert index.query("ferry", 1)
    SharedSystemClient.clear_system_cache()
    stock = chromadb.PersistentClient(str(tmp_path)).get_collection("stock")
    found = stock.query(query_embeddings=vectors, n_results=1)["ids"]
    assert [ids[0] for ids in found] == [str(number) for number in range(12)]
