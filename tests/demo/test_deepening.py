"""Which method a library has; and one that is searchable at once, and read more closely while it answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.indexes import assert_same
from tests.demo.conftest import TWO_METHODS, cut_power, opened, recommend, run, write_documents
from tests.demo.test_cli import QUESTION, refused, rows

from eddy_demo import handbook
from eddy_demo.cli import work
from eddy_demo.library import library as libraries
from eddy_demo.library.library import (
    RebuildProgress,
    choose_settings,
    lock_library,
    next_settings,
    read_progress,
    rebuild_library,
)
from eddy_demo.library.settings import Choices, LibrarySettings, read_settings
from eddy_embed import Embedder
from eddy_embed.errors import ZeroVector
from eddy_embed.methods.recommended import Recommendation

MODEL, (FAST, BEST) = "eddy-tiny", TWO_METHODS
SIZE = ("--passage-size", 24)
pytestmark = pytest.mark.usefixtures("two_methods")


def answers(library: Path) -> list[dict[str, Any]]:
    asked = run("ask", QUESTION, "--library", library, "-k", 100, "--json")
    assert asked.code == 0, asked.err
    found: list[dict[str, Any]] = json.loads(asked.out)
    return found


def state(library: Path) -> tuple[str, str]:
    settings = read_settings(library)
    return settings.method, "deepen" if settings.deepens else settings.plan


def change(documents: Path) -> None:
    """Edit one of the documents, and add one."""
    (documents / "zinc.txt").write_text("Zinc is a metal. It melts at 420 degrees.", encoding="utf-8")
    (documents / "bread.txt").write_text("Rye bread needs no yeast.", encoding="utf-8")


@pytest.fixture(scope="module")
def fast_library(documents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that shall stay fast, to copy."""
    library = tmp_path_factory.mktemp("fast") / "library"
    made = run("ingest", write_documents(documents_folder), "--library", library, *SIZE, "--fast")
    assert f"Method {FAST}: recommended for retrieval on eddy-tiny, without its layers." in made.err
    return library


@pytest.fixture(scope="module")
def stopped_library(fast_library: Path, documents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of which two documents of three are read more closely when Ctrl-C comes, to copy."""
    library = Path(shutil.copytree(fast_library, tmp_path_factory.mktemp("stopped") / "library"))

    def interrupted(folder: Path, settings: LibrarySettings, embedder: Embedder, report: libraries.Report) -> None:
        def reported(now: RebuildProgress) -> None:
            report(now)
            if now.written == 2:
                os.kill(os.getpid(), signal.SIGINT)

        rebuild_library(folder, settings, embedder, reported)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "rebuild_library", interrupted)
        stopped = run("ingest", write_documents(documents_folder), "--library", library, "--best")
    assert stopped.code == 130 and state(library) == (FAST, "deepen") and read_settings(library).fingerprint
    said = "Interrupted. The library answers from its fast index. Run the same command again to read on, or with --fast"
    assert said in " ".join(stopped.err.split())
    return library


@pytest.fixture
def stopped(stopped_library: Path, documents: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_library, tmp_path / "library"))


@pytest.fixture
def fast(fast_library: Path, documents: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fast_library, tmp_path / "library"))


@pytest.fixture(scope="module")
def expected(documents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a library holds of the changed documents that were read once, closely."""
    library = tmp_path_factory.mktemp("best") / "library"
    change(write_documents(documents_folder))
    assert run("ingest", documents_folder, "--library", library, *SIZE, "--best").code == 0
    assert state(library) == (BEST, "best")
    return rows(library)


# --- The two steps


def test_both_steps_give_what_one_gives(
    expected: dict[str, Any], documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that changes after them is read closely at once."""
    ingest = ("ingest", documents, "--library", tmp_path, *SIZE)
    made = run(*ingest)
    assert made.code == 0 and state(tmp_path) == (BEST, "best"), made.err
    assert f"Method {BEST}: recommended for retrieval on eddy-tiny. Another: --method." in made.err
    assert "Searchable now" not in made.err and "more closely" not in made.err, "three short texts are read at once"
    assert f"with {BEST} (best)" in run("library", "list", "--library", tmp_path).out
    again = run(*ingest)
    assert "nothing to do" in again.err and len(again.err.splitlines()) == 1
    change(documents)
    monkeypatch.setattr(work, "rebuild", None)
    again = run(*ingest)
    assert again.code == 0 and "2 documents written" in again.err, again.err
    assert_same(rows(tmp_path), expected)


def test_the_user_learns_what_it_takes(fast: Path, documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_NOTICEABLE_TOKENS", 1)
    monkeypatch.setattr(handbook, "folder", lambda: documents)
    demo = run("demo", "--library", fast, "--best")
    assert demo.code == 0 and state(fast) == (BEST, "best"), demo.err
    nothing, now, end = demo.err.splitlines()
    assert "nothing to do, 3 documents unchanged" in nothing
    assert now.startswith("Searchable now: eddy-demo ask ")
    assert now.endswith(f'ask "..." --library {fast}, in another terminal. Ctrl-C leaves it so.')
    assert re.fullmatch(rf"{fast}: read more closely, with {BEST} \(\d+ s\)\.", end)


# --- Interrupted


def test_an_interrupted_reading_goes_on(
    fast_library: Path,
    stopped: Path,
    expected: dict[str, Any],
    documents: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fast index answers until then; what is ingested meanwhile is read closely, too, and nothing twice."""
    assert answers(stopped) == answers(fast_library)
    before = read_progress(stopped)
    assert (before.total, before.written) == (3, 2) and 0.3 < before.done < 1
    title = " ".join(run("library", "list", "--library", stopped).out.split())
    assert f"{FAST} (fast; {before.done:.0%} read more closely, which `eddy-demo ingest` continues)" in title
    change(documents)
    seen, rebuild = list[RebuildProgress](), work.rebuild_library
    monkeypatch.setattr(work, "rebuild_library", lambda *given: rebuild(*given[:3], seen.append))
    assert run("ingest", documents, "--library", stopped).code == 0 and state(stopped) == (BEST, "best")
    assert read_settings(stopped).next is None
    assert seen[0].done > 0 and [now.done for now in seen] == sorted(now.done for now in seen)
    assert seen[-1].done == pytest.approx(1) and seen[-1].written == seen[-1].total == 4
    assert_same(rows(stopped), expected)


def test_whoever_writes_waits_for_who_reads_closely(
    stopped: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as other:

        def lock(folder: Path, seconds: float = 0.0) -> AbstractContextManager[None]:
            if seconds < 0:  # it waits
                other.close()
            return lock_library(folder, seconds)

        other.enter_context(lock_library(stopped))
        monkeypatch.setattr(work, "lock_library", lock)
        waited = run("ingest", documents, "--library", stopped, "--fast")
    assert waited.code == 0 and waited.err.startswith(f"{stopped}: process {os.getpid()} (since 20")
    assert re.search(r"is reading it more closely, \d\d% done. Waiting for that", waited.err)


def test_an_exchange_without_its_settings_is_finished(
    stopped: Path, expected: dict[str, Any], documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        cut_power(patch)
        assert run("ingest", documents, "--library", stopped).code == 1
    assert state(stopped) == (FAST, "deepen")
    change(documents)
    again = run("ingest", documents, "--library", stopped)
    assert again.code == 0 and state(stopped) == (BEST, "best") and "2 documents written" in again.err, again.err
    assert_same(rows(stopped), expected)


def test_a_question_during_the_exchange_is_asked_again(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model was loaded for the fast index, in whose place the other one is by then."""
    load = work.load_embedder

    def overtaken(settings: LibrarySettings, device: str | None) -> Embedder:
        embedder = load(settings, device)
        if settings.method == FAST:
            assert settings.next is not None
            rebuild_library(stopped, settings.next, Embedder("eddy-tiny", method=BEST))
        return embedder

    monkeypatch.setattr(work, "load_embedder", overtaken)
    assert answers(stopped) and state(stopped) == (BEST, "best")


def test_a_text_that_cannot_be_read_closely_leaves_the_fast_index(
    stopped: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is there anything left over that keeps another rebuild from its work."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroVector("text 1 has a vector of zeros")

    with monkeypatch.context() as patch:
        patch.setattr(libraries, "reindex", fail)
        failed = run("ingest", documents, "--library", stopped)
    refused(failed, "vector of zeros", "The library answers from its fast index; --fast leaves it so.")
    assert state(stopped) == (FAST, "deepen") and answers(stopped)
    assert not read_settings(stopped).fingerprint
    assert run("library", "rebuild", "--library", stopped, "--method", FAST).code == 0
    assert state(stopped) == (FAST, "chosen")


def test_removed_texts_can_be_erased_before_it_is_read_closely(stopped: Path) -> None:
    """The unfinished index held them too, and is made again without them."""

    def holds(word: bytes) -> bool:
        return any(word in path.read_bytes() for path in stopped.rglob("*") if path.is_file())

    assert run("library", "remove", "bread.txt", "--erase", "--library", stopped).code == 0
    assert not holds(b"flour") and holds(b"pendulum")
    assert read_progress(stopped).written == 0
    assert {row["document"] for row in answers(stopped)} == {"tides.md", "clock.html"}


# --- One step alone


def test_fast_is_remembered_until_best_is_asked_for(fast: Path, documents: Path) -> None:
    change(documents)
    assert run("ingest", documents, "--library", fast).code == 0 and state(fast) == (FAST, "fast")
    assert read_settings(fast).next is None, "the page would read it closely"
    assert run("library", "rebuild", "--library", fast, "--passage-size", 12).code == 0
    assert state(fast) == (FAST, "fast") and "(fast)" in run("library", "list", "--library", fast).out
    deepened = run("ingest", documents, "--library", fast, "--best")
    assert deepened.code == 0 and state(fast) == (BEST, "best"), deepened.err
    refused(
        run("ingest", documents, "--library", fast, "--fast"), f"made with method {BEST}, not {FAST}: leave out --fast"
    )
    assert run("library", "rebuild", "--library", fast, "--fast").code == 0 and state(fast) == (FAST, "fast")
    for line in (("ingest", documents), ("library", "rebuild")):
        refused(run(*line, "--library", fast, "--fast", "--method", "htp"), "--fast chooses the method, and so")


def test_fast_stops_a_reading_that_was_interrupted(stopped: Path, documents: Path) -> None:
    for options in (("--fast",), ()):
        assert run("ingest", documents, "--library", stopped, *options).code == 0 and state(stopped) == (FAST, "fast")
        assert read_settings(stopped).next is None
    with opened(stopped) as index:
        assert index.status().rebuilt is None and index.rebuilt() == {}


# --- The method of a library


def test_a_new_library_takes_a_method_that_embeds_at_once(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Post-processing for a fit of one's own is left out, and what the table says later changes no library."""
    recommend(monkeypatch, Recommendation(FAST, post="whiten"))
    ingest = ("ingest", documents / "bread.txt", "--library", tmp_path, "--model", MODEL)
    made = run(*ingest)
    assert made.code == 0, made.err
    assert made.err.count("recommended") == made.err.count(f"Method {FAST}: recommended for retrieval on {MODEL}") == 1
    stored = read_settings(tmp_path)
    assert (stored.method, stored.plan) == (FAST, "best")
    with opened(tmp_path) as index:
        assert index.settings.fingerprint == Embedder(MODEL, method=FAST).fingerprint
    recommend(monkeypatch, Recommendation("tp"))
    assert "recommended" not in run(*ingest).err
    assert run("ask", "Where does mint grow?", "--library", tmp_path).code == 0
    assert read_settings(tmp_path) == stored
    refused = run(*ingest, "--method", "recommended")
    assert refused.code == 1 and f"with method {FAST}, not tp" in refused.err


def test_which_method_a_library_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that stands for another is stored in full; a library made anew takes what is recommended by then."""
    recommend(monkeypatch, Recommendation(BEST), FAST)
    for method, expected in (
        (None, (FAST, "fast")),
        ("fast", (FAST, "chosen")),
        ("best", (BEST, "chosen")),
        ("recommended", (BEST, "chosen")),
        ("tp", ("tp", "chosen")),
    ):
        settings = choose_settings(tmp_path, Choices(MODEL, method))
        assert (settings.method, settings.plan, settings.deepens) == (*expected, method is None), method
    chosen = LibrarySettings(MODEL, "plain:exit=2")
    assert next_settings(chosen, Choices()) == chosen
    assert next_settings(chosen, Choices(MODEL)) == LibrarySettings(MODEL, BEST, plan="best")
    for fast, expected in ((True, (FAST, "fast")), (False, (BEST, "best"))):
        settings = next_settings(chosen, Choices(fast=fast))
        assert (settings.method, settings.plan) == expected
    recommend(monkeypatch, Recommendation(FAST), FAST)
    assert choose_settings(tmp_path, Choices(MODEL)).plan == "best", "one method for both is one step"
    assert next_settings(LibrarySettings(MODEL, BEST, plan="best"), Choices()).method == FAST
