"""One folder and several processes: who reads sees what others write, who writes loses nothing of theirs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Event as SharedEvent
from pathlib import Path

import pytest
from chromadb import Collection
from tests.adapters.indexes import apart, assert_same, documents, rows
from tests.adapters.killing import METHOD, after, save_often, started, stop_at
from tests.processes import context

from chroma_eddy import Document, Index, open_index
from chroma_eddy.database import WRITER
from chroma_eddy.storage import Storage
from eddy_embed import Embedder

ASKED = "When do boats with a deep keel leave?"


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method=METHOD)


@pytest.fixture(autouse=True)
def saved_often(monkeypatch: pytest.MonkeyPatch) -> None:
    save_often(monkeypatch)


def opened(place: Path | str, embedder: Embedder | None = None) -> Index:
    return open_index(place, "notes", embedder or Embedder("eddy-tiny", method=METHOD), passage_size=24, timeout=120)


def wait_and_sync(place: str) -> None:
    with opened(place) as index:
        index.sync(after())


@pytest.fixture
def elsewhere(tmp_path: Path, embedder: Embedder) -> Callable[[int | list[Document]], None]:
    """Makes documents, or so many, those that the index holds, as another process does."""

    def write(wanted: int | list[Document]) -> None:
        with apart(), opened(tmp_path / "db", embedder) as index:
            index.sync(documents(wanted) if isinstance(wanted, int) else wanted)

    return write


def test_a_reader_finds_what_others_have_written_and_writes_on_top_of_it(tmp_path, embedder, elsewhere):
    elsewhere(2)
    with opened(tmp_path / "db", embedder) as index:
        for wanted in (documents(4), documents(6), documents(5, version=2)):  # before any question, and after one
            elsewhere(wanted)
            texts = {document.id: document.text for document in wanted}
            for unit in ("passage", "sentence", "document"):
                hits = index.query(ASKED, 100, unit=unit)
                assert {hit.document for hit in hits} == set(texts)
                assert all(texts[hit.document][hit.start : hit.end] == hit.text for hit in hits)
            assert len(index.query(ASKED, 100)) == index.status().passages
            assert all(hit.best for hit in index.query(ASKED, 3, sentences=True))
            assert {hit.document for hit in index.query("Granite cools", 100)} == set(texts)
            assert list(index.documents()) == wanted
        index.upsert(documents(7))
    with opened(tmp_path / "db", embedder) as index:
        elsewhere(7)
        index.upsert(documents(8))  # before any question
    with apart(), opened(tmp_path / "db", embedder) as index, opened(tmp_path / "alone", embedder) as alone:
        alone.upsert(documents(8))
        assert_same(rows(index), rows(alone))


def test_what_a_killed_writer_left_is_kept_whoever_has_written_since(tmp_path, embedder, elsewhere, monkeypatch):
    elsewhere(2)
    with opened(tmp_path / "db", embedder) as index:
        assert index.query(ASKED)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 1, Storage, "mark_written")  # it cannot say that it has written
            elsewhere(6)
        (tmp_path / "db" / WRITER).write_text("{}")
        with apart(), open_index(tmp_path / "db", "others", embedder) as other:
            other.upsert(documents(1))
        index.upsert(documents(8))
    with apart(), opened(tmp_path / "db", embedder) as index:
        hits = index.query(ASKED, 100)
        assert len({hit.document for hit in hits}) == 8 and len(hits) == index.status().passages


@pytest.mark.parametrize("killed", [False, True])
def test_a_whole_document_has_the_cosine_of_the_version_that_is_found(killed, tmp_path, embedder, monkeypatch):
    """Also if another process writes that version between a reader's look at what is new and his search."""
    query = Collection.query

    def changed_before(self: Collection, *args: object, **kwargs: object) -> object:
        monkeypatch.setattr(Collection, "query", query)
        with apart(), monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            if killed:
                stop_at(patch, 1, Storage, "mark_written")
            with opened(tmp_path / "db", embedder) as other:
                other.upsert(documents(2, version=2))
        return query(self, *args, **kwargs)

    with opened(tmp_path / "db", embedder) as index:
        index.upsert(documents(2))
        assert index.query(ASKED, unit="document")
        monkeypatch.setattr(Collection, "query", changed_before)
        hits = index.query(ASKED, unit="document")
        assert {hit.text for hit in hits} == {document.text for document in documents(2, version=2)}
        for hit in hits:
            vector = embedder.encode_long(hit.text, passage_size=24).vector
            assert hit.cosine == pytest.approx(float(vector @ embedder.encode_query(ASKED)), abs=1e-5)


def check_answers(index: Index) -> None:
    """Whether each answer has every document, in one version of it."""
    versions = [{document.id: document.text for document in documents(5, version=version)} for version in (1, 2)]
    query = index.embedder.encode_query(ASKED)
    for unit in ("passage", "sentence", "document"):
        found: dict[str, set[int]] = {}
        for hit in index.search([query], 100, unit=unit, sentences=unit == "passage")[0]:
            own = {v for v, texts in enumerate(versions) if texts[hit.document][hit.start : hit.end] == hit.text}
            found[hit.document] = found.get(hit.document, {0, 1}) & own
        assert len(found) == 5 and all(found.values())


def change_until(place: str, begin: Barrier, end: SharedEvent) -> None:
    with opened(place) as index:
        begin.wait(120)
        while not end.is_set():
            for version in (1, 2):
                index.upsert(documents(5, version=version))


def ask_until(place: str, begin: Barrier, end: SharedEvent) -> None:
    with opened(place) as index:
        begin.wait(120)
        while not end.is_set():
            check_answers(index)


@pytest.mark.parametrize("seconds", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_no_answer_mixes_versions_while_two_processes_read_and_one_writes(seconds, tmp_path, embedder):
    place, begin, end = tmp_path / "db", context().Barrier(3), context().Event()
    with opened(place, embedder) as index:
        index.upsert(documents(5))
        others = [context().Process(target=job, args=(str(place), begin, end)) for job in (change_until, ask_until)]
        for process in others:
            process.start()
        begin.wait(120)
        until, asked = time.monotonic() + seconds, 0
        try:
            while time.monotonic() < until or asked < 10:
                check_answers(index)
                asked += 1
                assert all(process.exitcode is None for process in others)
        finally:
            end.set()
            for process in others:
                process.join()
        assert [process.exitcode for process in others] == [0, 0]
        last = {document.text for document in documents(5, version=2)}
        assert {hit.text for hit in index.query(ASKED, 5, unit="document")} == last and index.check() == {}


def test_two_writers_at_once_take_turns_and_embed_nothing_twice(tmp_path, embedder):
    place, log = tmp_path / "db", tmp_path / "log"
    writers = [started(str(place), wait_and_sync, log) for _ in range(2)]
    for process, _ in writers:
        process.join()
    assert [process.exitcode for process, _ in writers] == [0, 0]
    assert set(Counter(log.read_text().split()).values()) == {1}
    with opened(place, embedder) as index, opened(tmp_path / "alone", embedder) as alone:
        alone.sync(after())
        assert_same(rows(index), rows(alone))
