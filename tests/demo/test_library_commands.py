"""`eddy-demo library`: list, remove, rebuild, and what `serve` refuses before it listens."""

from __future__ import annotations

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.killing import SAVED_OFTEN
from tests.demo.conftest import FAST, cut_power, opened, run

from chroma_eddy import storage as chroma_storage
from eddy_demo.library.settings import read_settings, write_settings
from eddy_embed import Embedder


def test_list_and_remove(library: Path) -> None:
    rows = json.loads(run("library", "list", "--library", library, "--json").out)
    assert {row["name"] for row in rows} == {"tides.md", "bread.txt", "clock.html"}
    assert all(row["complete"] and row["passages"] and row["characters"] for row in rows)
    table = run("library", "list", "--library", library).out
    assert all(row["id"] in table and row["name"] in table for row in rows)
    key = next(row["id"] for row in rows if row["name"] == "clock.html")
    outcome = run("library", "remove", "bread.txt", key, "--library", library)
    assert outcome.code == 0
    assert "bread.txt, clock.html" in " ".join(outcome.err.split())
    (row,) = json.loads(run("library", "list", "--library", library, "--json").out)
    assert row["name"] == "tides.md"
    unknown = run("library", "remove", "bread.txt", "--library", library)
    assert (unknown.code, "no document 'bread.txt'" in unknown.err) == (1, True)
    assert run("library", "list", "--library", library.parent / "nothing").code == 1
    nothing = run("library", "remove", "--library", library)
    assert (nothing.code, "name a document" in nothing.err) == (1, True)


def test_removed_texts_can_be_erased(library: Path) -> None:
    def holds(word: bytes) -> bool:
        return any(word in path.read_bytes() for path in library.rglob("*") if path.is_file())

    assert run("library", "remove", "bread.txt", "--library", library).code == 0
    assert holds(b"flour") and holds(b"bread.txt") and holds(b"pendulum")
    outcome = run("library", "remove", "--erase", "--library", library)
    assert outcome.code == 0 and "removed texts are erased" in outcome.err
    assert not (holds(b"flour") or holds(b"bread.txt")) and holds(b"pendulum")
    outcome = run("library", "remove", "clock.html", "--erase", "--library", library)
    assert outcome.code == 0 and not holds(b"pendulum") and holds(b"harbour")


def test_rebuild(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same documents, by another method; after an interruption the same command only writes the settings."""
    with opened(library) as index:
        before = {document.id: document.text for document in index.documents()}
    rebuilding = ("library", "rebuild", "--library", library, "--method", "plain:exit=0")
    with monkeypatch.context() as patch:
        cut_power(patch)
        assert run(*rebuilding).code == 1
    assert read_settings(library).next is not None
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    listed = run("library", "list", "--library", library).out
    assert "with plain:exit=0 " in listed and "made anew" not in listed
    outcome = run(*rebuilding)
    assert outcome.code == 0, outcome.err
    settings = read_settings(library)
    assert (settings.method, settings.passage_size) == ("plain:exit=0", 24)
    assert settings.next is None
    embedder = Embedder("eddy-tiny", method="plain:exit=0")
    with opened(library) as index:
        assert {document.id: document.text for document in index.documents()} == before
        assert index.status().fingerprint == embedder.fingerprint
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    assert run("library", "rebuild", "--library", library, "--method", "nonsense").code == 1


def test_check(library: Path) -> None:
    assert run("library", "check", "--full", "--library", library).err.endswith("no damage in 3 documents.\n")
    with opened(library) as index:
        collection = index.storage.collection()
        row = collection.get(where={"name": "bread.txt"}, limit=1, include=["embeddings"])
        collection.update(ids=row["ids"], documents=["Altered."], embeddings=row["embeddings"])
    outcome = run("library", "check", "--library", library)
    assert outcome.code == 1 and "bread.txt: another text" in outcome.err and "damaged in" in outcome.err


def test_without_any_vectors_only_rebuild_works(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier rebuild was interrupted."""
    library = tmp_path / "library"
    monkeypatch.setattr(chroma_storage, "_COSINE_CONFIG", SAVED_OFTEN)
    made = ("ingest", documents, "--library", library, "--passage-size", 12, *FAST)
    assert run(*made).code == 0
    with opened(library) as index:
        before = {document.id: document.text for document in index.documents()}
    stored = read_settings(library)
    write_settings(library, replace(stored, next=stored, fingerprint="another fingerprint"))
    for folder in [each.parent for each in library.rglob("header.bin")] + [*library.glob("chroma/eddy.vectors/*")]:
        shutil.rmtree(folder)
    for command in (("ask", "When do boats leave?"), ("library", "list"), ("library", "remove", "bread.txt")):
        outcome = run(*command, "--library", library)
        assert outcome.code == 1 and "eddy-demo library rebuild" in outcome.err, outcome.err
    assert run("library", "rebuild", "--library", library).code == 0
    with opened(library) as index:
        assert {document.id: document.text for document in index.documents()} == before
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    assert read_settings(library).next is None


def test_a_port_that_is_taken(library: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("serve", "--library", library, "--port", port)
    assert outcome.code == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in outcome.err
    assert "choose another with --port" in " ".join(outcome.err.split())


def test_other_machines_are_let_in_with_a_token_only(library: Path) -> None:
    outcome = run("serve", "--library", library, "--port", 0, "--host", "0.0.0.0")
    assert outcome.code == 1
    assert "whoever reaches 0.0.0.0 could read and change the library: set a token" in " ".join(outcome.err.split())
