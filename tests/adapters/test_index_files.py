"""What an index leaves in its folder: no text that was to be erased, and nothing of what was replaced."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import chromadb
import pytest
from tests.adapters.indexes import assert_same, documents, rows
from tests.adapters.killing import save_often, stop_at

from chroma_eddy import Document, Index, open_index
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter

SECRETS = ("Zqxjkvorp", "Wvuqgräfin", "Qqbuilding")
"""Words of a document that is removed, of an earlier version of one that stays, and of metadata."""


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method="plain:exit=2")


def opened(place: Path, embedder: Embedder | None, **more: Any) -> Index:
    return open_index(place, "notes", embedder, **more)


def leaks(place: Path) -> set[str]:
    """The secret words in the bytes of any file, in the encodings in which a database may hold them, and what of them
    is in the index of three letters each."""
    files = [path.read_bytes().lower() for path in place.rglob("*") if path.is_file()]
    found = {
        word
        for word in SECRETS
        for encoding in ("utf-8", "utf-16-le", "utf-16-be")
        if any(word.lower().encode(encoding) in content for content in files)
    }
    with closing(sqlite3.connect(place / "chroma.sqlite3")) as database:
        blocks = database.execute("SELECT block FROM embedding_fulltext_search_data").fetchall()
    return found | {word[:3] for word in SECRETS if any(word[:3].lower().encode() in block for (block,) in blocks)}


@pytest.mark.parametrize("saved", [True, False], ids=["vectors saved", "vectors in the log"])
def test_erased_texts_are_in_no_file(saved: bool, embedder: Embedder, tmp_path: Path, monkeypatch) -> None:
    if saved:
        save_often(monkeypatch)
    place, kept = tmp_path / "db", documents(6)
    secret = Document("secret", f"The {SECRETS[0]} sleeps. Nobody wakes it.", {"where": SECRETS[2]})
    earlier = Document(kept[0].id, f"A {SECRETS[1]} was here. She has left.", kept[0].metadata)
    with opened(place, embedder) as index:
        index.upsert([earlier, secret, *kept[1:]])
        index.upsert(kept)
        assert leaks(place) >= set(SECRETS)
        assert index.remove("secret") == 1
        before = rows(index)
        assert leaks(place)
        with opened(place, embedder) as other:
            assert index.remove([], erase=True) == 0
            assert leaks(place) == set()
            for each in (index, other, opened(place, embedder)):
                assert_same(rows(each), before, atol=0)
                assert [hit.document for hit in each.query("When do dogs travel?", 3)]
                assert each.check(full=True) == {}
        index.upsert([secret])
        assert index.remove("secret", erase=True) == 1
        assert leaks(place) == set()


def test_files_hold_no_memory_of_the_process(embedder: Embedder, tmp_path: Path) -> None:
    """Chroma makes a collection's files of memory that it has not initialised."""
    with opened(tmp_path / "db", embedder) as index:
        index.upsert(documents(3))
    made = [path for name in ("data_level0.bin", "length.bin") for path in tmp_path.rglob(name)]
    assert len(made) == 4 and not any(path.read_bytes().strip(b"\0") for path in made)


def test_erasing_waits_for_an_unfinished_reindexing(embedder: Embedder, tmp_path: Path, monkeypatch) -> None:
    """Its half of the texts would stay."""
    with opened(tmp_path / "db", embedder) as index:
        index.upsert(documents(3))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 2, chromadb.Collection, "upsert")
            index.reindex(Embedder("eddy-tiny", method="plain:exit=1"))
        with pytest.raises(InvalidParameter, match="'notes' is unfinished"):
            index.remove(["papers/1"], erase=True)
        assert index.status().documents == 3


def test_a_server_erases_nothing_and_so_removes_nothing(embedder: Embedder) -> None:
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    with open_index(client, "unerased", embedder) as index:
        index.upsert(documents(2))
        with pytest.raises(InvalidParameter, match="needs an index in a folder"):
            index.remove("papers/1", erase=True)
        assert index.status().documents == 2


def test_replaced_vectors_leave_no_folders(embedder: Embedder, tmp_path: Path, monkeypatch) -> None:
    save_often(monkeypatch)
    place = tmp_path / "db"
    other = place / str(uuid.uuid4()).replace("-", "_")
    with opened(place, embedder) as index:
        index.upsert(documents(6))
        other.mkdir()  # no name of Chroma's
        for method in ("plain:exit=1", "plain:exit=3"):
            index.reindex(Embedder("eddy-tiny", method=method))
            with closing(sqlite3.connect(place / "chroma.sqlite3")) as database:
                segments = {id_ for (id_,) in database.execute("SELECT id FROM segments WHERE scope = 'VECTOR'")}
            folders = {path.name for path in place.iterdir() if path.is_dir()}
            assert folders - {"eddy.vectors", "eddy.words", other.name} == segments
            assert all(len(list((place / name).iterdir())) == 1 for name in ("eddy.vectors", "eddy.words"))
            assert index.check(full=True) == {}
