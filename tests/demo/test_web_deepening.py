"""The page of a library that answers at once, and is read more closely in the background."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.indexes import assert_same, rows
from tests.demo.conftest import BREAD, CLOCK, DOCUMENTS, TIDES, opened, recommend
from tests.demo.site import Site, hold_rebuild, serving, wait

from chroma_eddy.write import writer
from eddy_demo.library import rebuild
from eddy_demo.library.library_lock import lock_library
from eddy_demo.library.rebuild import next_settings, read_state, rebuild_library
from eddy_demo.library.settings import NEXT_SETTINGS, read_settings
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.recommended import Recommendation
from eddy_embed.model.loading import inventory

FAST, BEST = "plain:exit=0", "plain:exit=1"
QUESTION = "Who winds the weights by hand?"


@pytest.fixture(autouse=True)
def two_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    recommend(monkeypatch, Recommendation(BEST), FAST)
    monkeypatch.setattr(writer, "GROUP_DOCUMENTS", 1)


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What a library holds of documents that were read once, closely."""

    def made(*names: str) -> dict[str, Any]:
        with serving(tmp_path / "expected", method=BEST) as site:
            for name in names:
                site.upload(name, DOCUMENTS[name])
            site.settled()
        with opened(tmp_path / "expected") as index:
            return rows(index)

    return made


def held_rows(library: Path) -> dict[str, Any]:
    with opened(library) as index:
        return rows(index)


def cosine(site: Site) -> float:
    return float(dict(site.ask(QUESTION, k=1))["hit"]["cosine"])


def cosine_by(method: str, library: Path) -> float:
    """Cosine of the question with the only passage of the document that answers it."""
    with opened(library) as index:
        (text,) = (each.text for each in index.documents() if each.metadata["name"] == "clock.html")
    embedder = Embedder("eddy-tiny", method=method)
    (passage,) = embedder.encode_long(text, passage_size=128).passages
    return float(passage.vector @ embedder.encode_query(QUESTION))


def plan(library: Path) -> str:
    return read_settings(library).plan


def test_questions_are_answered_and_files_taken_meanwhile(
    tmp_path: Path, expected: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files go first into the index that answers; nothing that was read closely is read again."""
    library = tmp_path / "library"
    go = hold_rebuild(monkeypatch)
    with serving(library, method=None) as site:
        site.upload("tides.md", TIDES)
        site.upload("bread.txt", BREAD)
        told = site.until(lambda p: p["rebuilding"] and p["rebuilding"]["done"] > 0)["rebuilding"]
        assert told["deepening"] and told["done"] < 1
        assert [job["state"] for job in site.settled()] == ["done", "done"]
        summary = site.client.get("/api/documents").json()["library"]
        assert (summary["method"], summary["plan"]) == (FAST, "deepen")
        assert dict(site.ask("What makes steam?", k=1))["hit"]["name"] == "bread.txt"
        site.upload("clock.html", CLOCK)
        wait(lambda: len(site.names()) == 3)
        assert cosine(site) == pytest.approx(cosine_by(FAST, library), abs=1e-4)
        go()
        wait(lambda: plan(library) == "best")
        assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""
        summary = site.client.get("/api/documents").json()["library"]
        assert (summary["method"], summary["plan"]) == (BEST, "best")
        assert cosine(site) == pytest.approx(cosine_by(BEST, library), abs=1e-4)
    assert not (library / NEXT_SETTINGS).exists()
    assert_same(held_rows(library), expected("tides.md", "bread.txt", "clock.html"))


def test_the_next_server_goes_on(
    tmp_path: Path, expected: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins where the other one stopped, and a document that was removed in between is not read."""
    library = tmp_path / "library"
    with monkeypatch.context() as patch:
        hold_rebuild(patch, after=1)
        with serving(library, method=None) as site:
            for name, text in DOCUMENTS.items():
                site.upload(name, text)
            wait(lambda: site.state.writer.rebuilding and site.state.writer.rebuilding.written)
    assert plan(library) == "deepen"
    done = read_state(library).progress
    assert 0 < done.written < done.total == 3
    go = hold_rebuild(monkeypatch, after=done.written)
    with serving(library, method=None) as site:
        told = site.until(lambda p: p["rebuilding"] and p["rebuilding"]["done"] > 0)["rebuilding"]
        assert told["deepening"] and told["done"] >= round(done.done, 4)
        key = next(row["id"] for row in site.documents() if row["name"] == "clock.html")
        site.client.delete(f"/api/documents/{key}")
        wait(lambda: len(site.names()) == 2)
        go()
        wait(lambda: plan(library) == "best")
    assert_same(held_rows(library), expected("tides.md", "bread.txt"))


def test_what_another_process_reads_is_followed(
    tmp_path: Path, expected: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows how far that is; a file that is added meanwhile waits for it."""
    library = tmp_path / "library"
    with monkeypatch.context() as patch:
        hold_rebuild(patch, after=1)
        with serving(library, method=None) as site:
            site.upload("bread.txt", BREAD)
            site.upload("clock.html", CLOCK)
            wait(lambda: site.state.writer.rebuilding and site.state.writer.rebuilding.written)
    with ExitStack() as other:
        other.enter_context(lock_library(library))
        with serving(library, method=None) as site:
            told = site.until(lambda p: p["rebuilding"])
            assert told["rebuilding"]["deepening"] and told["rebuilding"]["done"] > 0 and told["busy"] == ""
            site.upload("tides.md", TIDES)
            site.until(lambda p: p["busy"].startswith("Another process is reading the library more closely."))
            rebuild_library(library, next_settings(read_settings(library)), Embedder("eddy-tiny", method=BEST))
            wait(lambda: site.state.reader.settings.plan == "best")
            assert dict(site.ask("What makes steam?", k=1))["hit"]["name"] == "bread.txt"
            other.close()
            assert [job["state"] for job in site.settled()] == ["done"]
            assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""
    assert plan(library) == "best"
    assert_same(held_rows(library), expected("bread.txt", "clock.html", "tides.md"))


def test_another_model_comes_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun for the library's own is left, and nothing is read twice at the end."""
    own = next(each for each in inventory.found() if each.name == "eddy-tiny")
    other = inventory.FoundModel(own.path, "a folder", own.path, 22)
    monkeypatch.setattr(inventory, "found", lambda: [own, other])
    library = tmp_path / "library"
    go = hold_rebuild(monkeypatch)
    with serving(library, method=None) as site:
        site.upload("bread.txt", BREAD)
        site.upload("tides.md", TIDES)
        site.until(lambda p: p["rebuilding"] and p["rebuilding"]["done"] > 0)
        assert site.client.post("/api/rebuild", params={"model": other.name}).status_code == 200
        told = site.until(lambda p: p["rebuilding"] and not p["rebuilding"]["deepening"] and p["rebuilding"]["done"])
        assert told["rebuilding"]["done"] < 1
        go()
        wait(lambda: plan(library) == "best" and not (library / NEXT_SETTINGS).exists())
        assert read_settings(library).model == other.name
        assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""
        assert "hit" in dict(site.ask("What makes steam?"))


def test_what_fails_leaves_the_fast_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told; the next file, and the next server, try again."""
    library = tmp_path / "library"

    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidParameter("refused")

    with serving(library, method=None) as site:
        with monkeypatch.context() as patch:
            patch.setattr(rebuild, "reindex", refuse)
            site.upload("bread.txt", BREAD)
            site.until(lambda p: p["busy"] == "The library could not be read more closely: refused")
            assert "hit" in dict(site.ask("What makes steam?")) and plan(library) == "deepen"
        site.upload("tides.md", TIDES)
        wait(lambda: plan(library) == "best")
        assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""


def test_a_library_that_stays_fast(tmp_path: Path, run: Any) -> None:
    library = tmp_path / "library"
    (tmp_path / "bread.txt").write_text(BREAD, encoding="utf-8")
    assert run("ingest", tmp_path / "bread.txt", "--library", library, "--fast").code == 0
    with serving(library, method=None) as site:
        site.upload("tides.md", TIDES)
        assert [job["state"] for job in site.settled()] == ["done"]
        assert not site.state.jobs.rebuild_requested
        assert site.client.get("/api/documents").json()["library"]["plan"] == "fast"
    assert plan(library) == "fast"
