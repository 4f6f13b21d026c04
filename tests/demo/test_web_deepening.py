"""The page of a library that answers at once, and is read more closely in the background."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, CLOCK, TIDES, TWO_METHODS, opened
from tests.demo.site import Site, hold_rebuild, serving, wait

from eddy_demo.library import library as libraries
from eddy_demo.library.library import lock_library, read_progress, rebuild_library
from eddy_demo.library.settings import read_settings
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter

FAST, BEST = TWO_METHODS
QUESTION = "Who winds the weights by hand?"
pytestmark = pytest.mark.usefixtures("two_methods")


@pytest.fixture(scope="module")
def begun_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of two documents whose server ended when one was read more closely, to copy."""
    library = tmp_path_factory.mktemp("begun") / "library"
    with pytest.MonkeyPatch.context() as patch:
        hold_rebuild(patch, after=1)
        with serving(library, method=None) as site:
            site.upload("bread.txt", BREAD)
            site.upload("clock.html", CLOCK)
            wait(lambda: site.state.follower.rebuilding and site.state.follower.rebuilding.written)
    assert plan(library) == "deepen"
    return library


@pytest.fixture
def library(begun_library: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun_library, tmp_path / "library"))


def cosine(site: Site) -> float:
    hits = [data for name, data in site.ask(QUESTION, k=3) if name == "hit"]
    return float(next(hit["cosine"] for hit in hits if hit["name"] == "clock.html"))


def cosine_by(method: str, library: Path) -> float:
    """Cosine of the question with the only passage of the document that answers it."""
    with opened(library) as index:
        (text,) = (each.text for each in index.documents() if each.metadata["name"] == "clock.html")
    embedder = Embedder("eddy-tiny", method=method)
    (passage,) = embedder.encode_long(text, passage_size=128).passages
    return float(passage.vector @ embedder.encode_query(QUESTION))


def plan(library: Path) -> str:
    settings = read_settings(library)
    return "deepen" if settings.deepens else settings.plan


def test_questions_are_answered_and_files_taken_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files go first into the index that answers; nothing that was read closely is read again."""
    library = tmp_path / "library"
    go = hold_rebuild(monkeypatch)
    with serving(library, method=None) as site:
        site.upload("tides.md", TIDES)
        site.upload("bread.txt", BREAD)
        progress = site.until(lambda p: p["rebuilding"] and p["rebuilding"]["done"] > 0)["rebuilding"]
        assert progress["deepening"] and progress["done"] < 1
        assert [job["state"] for job in site.settled()] == ["done", "done"]
        summary = site.client.get("/api/documents").json()["library"]
        assert (site.state.reader.settings.method, summary["plan"]) == (FAST, "deepen")
        assert dict(site.ask("What makes steam?", k=1))["hit"]["name"] == "bread.txt"
        site.upload("clock.html", CLOCK)
        wait(lambda: len(site.names()) == 3)
        assert cosine(site) == pytest.approx(cosine_by(FAST, library), abs=1e-4)
        go()
        wait(lambda: plan(library) == "best")
        assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""
        summary = site.client.get("/api/documents").json()["library"]
        assert (site.state.reader.settings.method, summary["plan"]) == (BEST, "best")
        assert cosine(site) == pytest.approx(cosine_by(BEST, library), abs=1e-4)
    assert read_settings(library).next is None


def test_the_next_server_goes_on(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins where the other one stopped, and a document that was removed in between is not read."""
    done = read_progress(library)
    assert 0 < done.written < done.total == 2
    go = hold_rebuild(monkeypatch, after=done.written)
    with serving(library, method=None) as site:
        progress = site.until(lambda p: p["rebuilding"] and p["rebuilding"]["done"] > 0)["rebuilding"]
        assert progress["deepening"] and progress["done"] >= done.done
        key = next(row["id"] for row in site.documents() if row["name"] == "bread.txt")
        site.client.delete(f"/api/documents/{key}")
        wait(lambda: len(site.names()) == 1)
        go()
        wait(lambda: plan(library) == "best")
        assert cosine(site) == pytest.approx(cosine_by(BEST, library), abs=1e-4)
    with opened(library) as index:
        assert [entry.metadata["name"] for entry in index.entries().values()] == ["clock.html"]


def test_what_another_process_reads_is_followed(library: Path) -> None:
    """The page shows how far that is; a file that is added meanwhile waits for it."""
    with ExitStack() as other:
        other.enter_context(lock_library(library))
        with serving(library, method=None) as site:
            progress = site.until(lambda p: p["rebuilding"])
            assert progress["rebuilding"]["deepening"] and progress["rebuilding"]["done"] > 0 and progress["busy"] == ""
            site.upload("tides.md", TIDES)
            site.until(lambda p: p["busy"].startswith("Another process is reading the library more closely."))
            following = read_settings(library).next
            assert following is not None
            rebuild_library(library, following, Embedder("eddy-tiny", method=BEST))
            wait(lambda: site.state.reader.settings.plan == "best")
            site.until(lambda p: p["rebuilding"] is None)
            assert dict(site.ask("What makes steam?", k=1))["hit"]["name"] == "bread.txt"
            other.close()
            assert [job["state"] for job in site.settled()] == ["done"]
            assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""
    assert plan(library) == "best"


def test_what_fails_leaves_the_fast_index(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told; the next file, and the next server, try again."""

    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidParameter("refused")

    with monkeypatch.context() as patch:
        patch.setattr(libraries, "reindex", refuse)
        with serving(library, method=None) as site:
            site.until(lambda p: p["busy"] == "The library could not be read more closely: refused")
            assert "hit" in dict(site.ask("What makes steam?")) and plan(library) == "deepen"
            patch.undo()
            site.upload("tides.md", TIDES)
            wait(lambda: plan(library) == "best")
            assert site.until(lambda p: p["rebuilding"] is None)["busy"] == ""
