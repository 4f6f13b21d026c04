"""Where an index lives, and what goes wrong there: other writers, dead servers, full disks, locked folders."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chromadb
import pytest
from chromadb.errors import InternalError
from tests.adapters.indexes import SENTENCES_OF, apart, assert_same, documents, rows, served
from tests.adapters.killing import save_often, stop_at
from tests.disk import files_of_at_most
from tests.processes import UNPRIVILEGED, run_code

from chroma_eddy import Document, IndexInUse, StorageError, WriterLock, memory_client, open_index
from chroma_eddy.database import LOCK, WRITER, translated_errors
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter
from langchain_eddy import EddyChroma, EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.vector_stores.eddy import EddyChromaVectorStore

# --- One writer


def test_a_second_writer_is_told_of_the_first_or_waits(folder, index, embedder):
    """The lock is the operating system's, and so the same for another process as for another lock of this one."""
    with WriterLock(folder):
        with pytest.raises(IndexInUse, match=rf"process {os.getpid()} \(since 20.* is writing"):
            index.upsert(documents(7))
        assert index.query("Do dogs pay?", 1)  # who only reads need not wait
    first, held = WriterLock(folder), threading.Event()

    def hold() -> None:
        with first:
            held.set()
            time.sleep(0.2)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(10)
    with open_index(folder, "notes", embedder, timeout=60) as patient:
        assert patient.upsert(documents(7)).written == 1
    other.join()
    assert (folder / LOCK).exists() and not (folder / WRITER).exists()


def test_threads_with_one_index_take_turns(tmp_path, embedder):
    with open_index(tmp_path, "notes", embedder, timeout=120) as index:
        work = [threading.Thread(target=index.upsert, args=([each],)) for each in documents(4)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert index.status().documents == 4 and index.check() == {}


# --- Servers


def test_a_server_holds_the_same_rows_as_a_folder(tmp_path, embedder, shelf):
    with served(tmp_path / "server") as server:
        with open_index(server.url, "notes", embedder, passage_size=24) as index:
            index.upsert(documents())
            own = {kind: held for kind, held in rows(shelf).items() if kind != SENTENCES_OF}  # kept beside Chroma
            assert_same(rows(index), own)
            assert index.query("Do dogs pay?", sentences=True)[0].best is not None
            client = chromadb.HttpClient("127.0.0.1", server.port)
            assert open_index(client, "notes", embedder).query("Do dogs pay?")[0].text
            place = {"host": "127.0.0.1", "port": server.port}
            settings = {"model_name": "eddy-tiny", "method": "plain:exit=2", "query_instruction": "Find the answer."}
            chain = EddyChroma("notes", EddyEmbeddings(**settings), **place)
            assert chain.add_texts(["A piece."], ids=["piece"]) == ["piece"] and chain.searches_by == "hybrid"
            assert chain.similarity_search("piece", 1, alpha=0)[0].id == chain.similarity_search("piece", 1)[0].id
            llama = EddyChromaVectorStore("notes", EddyEmbedding(**settings), **place)
            assert [node.get_content() for node in llama.get_nodes(["piece"])] == ["A piece."]
            llama.delete_nodes(["piece"])
            server.kill()
            for call in (lambda: index.upsert(documents(8)), lambda: index.query("Do dogs pay?"), index.status):
                with pytest.raises(StorageError, match=f"server at {server.url} does not answer"):
                    call()
            with pytest.raises(StorageError, match="start it"):
                open_index(server.url, "notes", embedder)
            server.start()
            texts = embedder.counts.texts
            assert index.upsert(documents(8)).written == 2  # the same object goes on
            assert embedder.counts.texts == texts + 2 and index.check() == {}


# --- Disks and folders


@pytest.mark.parametrize("size", [100, 260_000])
def test_a_full_disk_is_named_and_nothing_is_lost(size, tmp_path, embedder, shelf):
    folder = tmp_path / "db"
    if size > 100:
        with open_index(folder, "notes", embedder, passage_size=24) as index:
            index.upsert(documents(2))
    with pytest.raises(StorageError, match=r"see that the disk has room|too large"), files_of_at_most(size):
        open_index(folder, "notes", embedder, passage_size=24).upsert(documents())
    with apart(), open_index(folder, "notes", embedder, passage_size=24) as index:
        index.upsert(documents())
        assert index.check() == {} and not index.incomplete()
        assert_same(rows(index), rows(shelf))


def test_no_room_left_is_told_from_no_permission_and_from_damage(tmp_path, monkeypatch):
    def cause(error: BaseException) -> str:
        with pytest.raises(StorageError) as raised, translated_errors(tmp_path):
            raise error
        return str(raised.value)

    assert "reports: Error in compaction; see that the disk has room" in cause(InternalError("Error in compaction"))
    assert "cannot be written to" in cause(PermissionError(13, "Permission denied"))
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5000))
        assert "is full (4 kB left): make room" in cause(InternalError("Error in compaction"))
    with pytest.raises(KeyError), translated_errors(tmp_path):
        raise KeyError("an error of ours is none of the database's")


WRITES = """
import json, sys
from chroma_eddy import Document, open_index
from eddy_embed import Embedder
embedder, said = Embedder("eddy-tiny", method="plain:exit=2", query_instruction="Find the answer."), []
with open_index(sys.argv[1], "notes", embedder) as index:
    said.append([hit.text for hit in index.query("When does the ferry leave?")])
    copy = index.storage.connection.folder
said[0].append(copy.exists())
for place in (sys.argv[1], sys.argv[1] + "/inside"):
    try:
        open_index(place, "notes", embedder).upsert([Document("new", "Something new.")])
    except Exception as error:
        said.append([type(error).__name__, str(error)])
print(json.dumps(said))
"""


def test_folders_that_cannot_be_written_to(tmp_path, embedder):
    with open_index(tmp_path, "notes", embedder) as index:
        index.upsert([Document("a", "The ferry leaves at noon.")])
        before = rows(index)
    paths = [tmp_path, *tmp_path.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        child = run_code(UNPRIVILEGED + WRITES, tmp_path)
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert child.returncode == 0, child.stderr
    answer, *said = json.loads(child.stdout)
    assert answer == ["The ferry leaves at noon.", False]
    assert [kind for kind, _ in said] == ["StorageError", "StorageError"], said
    assert all("cannot be written to" in message for _, message in said), said
    with open_index(tmp_path, "notes", embedder) as index:
        assert_same(rows(index), before)


def test_a_database_whose_making_was_cut_short_is_made_again(tmp_path, embedder):
    (tmp_path / ".chroma.part").mkdir()
    (tmp_path / ".chroma.part" / "chroma.sqlite3").write_bytes(b"half")
    with open_index(tmp_path, "notes", embedder) as index:
        assert index.upsert(documents(1)).written == 1
    assert not (tmp_path / ".chroma.part").exists()


def test_a_folder_that_was_deleted_is_begun_anew_and_a_closed_index_says_so(tmp_path, embedder):
    index, other = (open_index(tmp_path / name, "notes", embedder) for name in ("db", "other"))
    for shelf in (index, other):
        shelf.upsert(documents(2))
    shutil.rmtree(tmp_path / "db")  # as a notebook does, with the index still open
    for written in (2, 0):
        with open_index(tmp_path / "db", "notes", embedder) as again:
            assert again.upsert(documents(2)).written == written and len(again.query("ferry", 99)) == 2
            index.close()
            assert again.query("ferry") and other.query("ferry")
    for call in (again.status, again.get, partial(again.query, "ferry"), partial(again.upsert, documents(1))):
        with pytest.raises(StorageError, match="was closed: open it again"):
            call()


def test_chroma_s_own_client_may_have_the_folder_open(tmp_path, embedder):
    client = chromadb.PersistentClient(str(tmp_path / "plain"))
    with open_index(tmp_path / "plain", "notes", embedder) as index:
        assert index.upsert(documents(1)).passages == client.get_collection("notes").count() == index.status().passages


# --- What is left in the folder: no text that was to be erased, and nothing of what was replaced

SECRETS = ("Zqxjkvorp", "Wvuqgräfin", "Qqbuilding")
"""Words of a document that is removed, of an earlier version of one that stays, and of metadata."""


def leaks(place: Path) -> set[str]:
    """The secret words in the bytes of any file, in the encodings in which a database may hold them, and what of them
    is in the index of three letters each; but for files that Chroma saved with memory that it had not initialised."""
    parts = "data_level0.bin", "length.bin"
    saved = {path.parent / name for path in place.rglob("index_metadata.pickle") for name in parts}
    files = [path.read_bytes().lower() for path in place.rglob("*") if path.is_file() and path not in saved]
    codes = [(word, word.lower().encode(code)) for word in SECRETS for code in ("utf-8", "utf-16-le", "utf-16-be")]
    blocks = selected(place, "SELECT block FROM embedding_fulltext_search_data")
    inside = {word[:3] for word in SECRETS if any(word[:3].lower().encode() in block for block in blocks)}
    return inside | {word for word, code in codes if any(code in content for content in files)}


def selected(place: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(place / "chroma.sqlite3")) as database:
        return [value for (value,) in database.execute(statement)]


@pytest.mark.parametrize("saved", [True, False], ids=["vectors saved", "vectors in the log"])
def test_erased_texts_are_in_no_file(saved, embedder, tmp_path, monkeypatch):
    if saved:
        save_often(monkeypatch)
    place, kept = tmp_path / "db", documents(6)
    secret = Document("secret", f"The {SECRETS[0]} sleeps. Nobody wakes it.", {"where": SECRETS[2]})
    earlier = Document(kept[0].id, f"A {SECRETS[1]} was here. She has left.", kept[0].metadata)
    with open_index(place, "notes", embedder) as index:
        index.upsert([earlier, secret, *kept[1:]])
        index.upsert(kept)
        assert leaks(place) >= set(SECRETS)
        assert index.remove("secret") == 1
        before = rows(index)
        assert leaks(place)
        with open_index(place, "notes", embedder) as other:
            assert index.remove([], erase=True) == 0
            assert leaks(place) == set()
            for each in (index, other, open_index(place, "notes", embedder)):
                assert_same(rows(each), before, atol=0)
                assert [hit.document for hit in each.query("When do dogs travel?", 3)]
                assert each.check(full=True) == {}
        index.upsert([secret])
        assert index.remove("secret", erase=True) == 1
        assert leaks(place) == set()


def test_files_hold_no_memory_of_the_process(folder):
    """Chroma makes a collection's files of memory that it has not initialised."""
    made = [path for name in ("data_level0.bin", "length.bin") for path in folder.rglob(name)]
    assert len(made) == 4 and not any(path.read_bytes().strip(b"\0") for path in made)


def test_what_cannot_be_erased_is_not_removed(index, embedder, monkeypatch):
    """An unfinished reindexing holds its half of the texts; a server's files are out of reach."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 2, chromadb.Collection, "upsert")
        index.reindex(Embedder("eddy-tiny", method="plain:exit=1"))
    with open_index(memory_client(), "notes", embedder) as other:
        other.upsert(documents())
        for place, said in ((index, "'notes' is unfinished"), (other, "needs an index in a folder")):
            with pytest.raises(InvalidParameter, match=said):
                place.remove(["papers/1"], erase=True)
            assert place.status().documents == 6


def test_replaced_vectors_leave_no_folders(folder, index, monkeypatch):
    save_often(monkeypatch)
    others = {name: folder / name for name in (str(uuid.uuid4()), str(uuid.uuid4()).replace("-", "_"))}
    for other in others.values():  # of somebody else, whatever it is called
        other.mkdir()
        (other / "letter.txt").write_text("Dear reader")
    for method in ("plain:exit=1", "plain:exit=3"):
        index.reindex(Embedder("eddy-tiny", method=method))
        segments = {*selected(folder, "SELECT id FROM segments WHERE scope = 'VECTOR'")}
        folders = {path.name for path in folder.iterdir() if path.is_dir()}
        assert folders - {"eddy.vectors", "eddy.words"} == segments | set(others)
        assert all(len(list((folder / name).iterdir())) == 1 for name in ("eddy.vectors", "eddy.words"))
        assert index.check(full=True) == {}
