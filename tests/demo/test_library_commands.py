"""`eddy-demo library`: list, remove, reindex, and what `serve` refuses before it listens."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.indexes import assert_same, rows
from tests.adapters.killing import SAVED_OFTEN
from tests.demo.conftest import opened

from chroma_eddy.storage import store
from chroma_eddy.storage.names import NEXT
from eddy_demo.library import rebuild
from eddy_demo.library.settings import NEXT_SETTINGS, original_path, read_settings
from eddy_embed import Embedder

Run = Callable[..., Any]


def test_list_and_remove(library: Path, run: Run) -> None:
    rows = json.loads(run("library", "list", "--library", library, "--json").out)
    assert {row["name"] for row in rows} == {"tides.md", "bread.txt", "clock.html"}
    assert all(row["complete"] and row["passages"] and row["characters"] for row in rows)
    table = run("library", "list", "--library", library).out
    assert all(row["id"] in table and row["name"] in table for row in rows)
    key = next(row["id"] for row in rows if row["name"] == "clock.html")
    outcome = run("library", "remove", "bread.txt", key, "--library", library)
    assert outcome.code == 0
    assert "bread.txt, clock.html" in " ".join(outcome.err.split())
    assert [row["name"] for row in json.loads(run("library", "list", "--library", library, "--json").out)] == [
        "tides.md"
    ]
    unknown = run("library", "remove", "bread.txt", "--library", library)
    assert (unknown.code, "no document 'bread.txt'" in unknown.err) == (1, True)
    assert run("library", "list", "--library", library.parent / "nothing").code == 1
    nothing = run("library", "remove", "--library", library)
    assert (nothing.code, "name a document" in nothing.err) == (1, True)


def test_removed_texts_can_be_erased(library: Path, run: Run) -> None:
    def holds(word: bytes) -> bool:
        return any(word in path.read_bytes() for path in library.rglob("*") if path.is_file())

    assert run("library", "remove", "bread.txt", "--library", library).code == 0
    assert holds(b"flour") and holds(b"bread.txt") and holds(b"pendulum")
    outcome = run("library", "remove", "--erase", "--library", library)
    assert outcome.code == 0 and "removed texts are erased" in outcome.err
    assert not (holds(b"flour") or holds(b"bread.txt")) and holds(b"pendulum")
    outcome = run("library", "remove", "clock.html", "--erase", "--library", library)
    assert outcome.code == 0 and not holds(b"pendulum") and holds(b"harbour")


def test_erasing_waits_for_an_unfinished_rebuild(library: Path, run: Run) -> None:
    """Refused before anything is deleted."""
    with opened(library) as index:
        key = next(iter(index.entries()))
        index.store.with_suffix(NEXT).open_or_create("")
    original = original_path(library, key)
    original.parent.mkdir()
    original.write_bytes(b"%PDF")
    outcome = run("library", "remove", key, "--erase", "--library", library)
    assert outcome.code == 1 and "finish it (eddy-demo library reindex" in outcome.err
    assert original.exists()
    assert run("library", "remove", key, "--library", library).code == 0
    assert not original.exists()


def test_reindex(library: Path, run: Run) -> None:
    """The same documents, by another method; an interruption after the exchange of indexes loses nothing."""
    with opened(library) as index:
        before = {document.id: document.text for document in index.documents()}
    assert run("library", "reindex", "--library", library, "--method", "plain:exit=2").code == 0
    settings = read_settings(library)
    assert (settings.method, settings.passage_size) == ("plain:exit=2", 24)
    assert not (library / NEXT_SETTINGS).exists()
    embedder = Embedder("eddy-tiny", method="plain:exit=2")
    with opened(library) as index:
        assert {document.id: document.text for document in index.documents()} == before
        assert index.status().fingerprint == embedder.fingerprint
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    assert run("library", "reindex", "--library", library, "--method", "nonsense").code == 1


def test_reindex_is_finished_after_an_interruption(library: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between the exchange and the settings: the same command only writes the settings."""

    def cut(*_: object) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "_write_new_settings", cut)
        assert run("library", "reindex", "--library", library, "--method", "plain:exit=2").code == 1
    assert (library / NEXT_SETTINGS).exists()
    assert run("ask", "When do boats leave?", "--library", library).code == 1
    outcome = run("library", "reindex", "--library", library, "--method", "plain:exit=2")
    assert outcome.code == 0, outcome.err
    assert run("ask", "When do boats leave?", "--library", library).code == 0


def test_snapshot_and_restore(library: Path, documents: Path, run: Run, tmp_path: Path) -> None:
    copy, original = tmp_path / "kept" / "copy", original_path(library, "ab" * 8)
    original.parent.mkdir()
    original.write_bytes(b"%PDF")
    assert run("library", "snapshot", copy, "--library", library).code == 0
    with opened(library) as index, opened(copy) as copied:
        before = rows(index)
        assert_same(rows(copied), before, atol=0)
    again = run("library", "snapshot", copy, "--library", library)
    assert (again.code, "name a new folder" in again.err) == (1, True)
    assert run("library", "remove", "bread.txt", "--library", library).code == 0
    for target in (library, tmp_path / "elsewhere"):
        assert run("library", "restore", copy, "--library", target).code == 0
        with opened(target) as index:
            assert_same(rows(index), before, atol=0)
        assert original_path(target, "ab" * 8).read_bytes() == b"%PDF"
        assert run("ask", "When do boats leave?", "--library", target).code == 0
    assert run("library", "restore", documents, "--library", library).code == 1
    with opened(library) as index:
        assert_same(rows(index), before, atol=0)


def test_check_and_repair(library: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose vectors are gone with their copy, and whose text somebody has changed."""
    assert run("library", "check", "--full", "--library", library).err.endswith("no damage in 3 documents.\n")
    monkeypatch.setattr(store, "_COSINE_CONFIG", SAVED_OFTEN)
    assert run("library", "reindex", "--library", library).code == 0
    with opened(library) as index:
        before = rows(index)
    for header in library.rglob("header.bin"):
        header.unlink()
    for command in (("ask", "When do boats leave?"), ("library", "check")):
        outcome = run(*command, "--library", library)
        assert (outcome.code, "eddy-demo library repair" in outcome.err) == (1, True)
    outcome = run("library", "repair", "--library", library)
    assert outcome.code == 0, outcome.err
    with opened(library) as index:
        assert_same(rows(index), before)
        row = index.collection.get(where={"name": "bread.txt"}, limit=1)["ids"]
        index.collection.update(
            ids=row, documents=["Altered."], embeddings=[index.store.get("", ids=row, embeddings=True).vectors[0]]
        )
    outcome = run("library", "check", "--library", library)
    assert outcome.code == 1 and "bread.txt: another text" in outcome.err and "damaged in" in outcome.err


def test_a_port_that_is_taken(library: Path, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("serve", "--library", library, "--port", port)
    assert outcome.code == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in outcome.err
    assert "choose another with --port" in " ".join(outcome.err.split())


def test_other_machines_are_let_in_with_a_token_only(library: Path, run: Run) -> None:
    outcome = run("serve", "--library", library, "--port", 0, "--host", "0.0.0.0")
    assert outcome.code == 1
    assert "whoever reaches 0.0.0.0 could read and change the library: set a token" in " ".join(outcome.err.split())
