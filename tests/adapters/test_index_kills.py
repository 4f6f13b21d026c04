"""Killed at random moments, by SIGKILL from another process: the next run finishes, as if nothing had happened."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.adapters import killing
from tests.adapters.indexes import Server, assert_same, rows, served, words_of
from tests.adapters.killing import MOST_STEPS, SAVED_OFTEN, UNREACHABLE, kill_process, killed, started

from chroma_eddy import Index, IndexSettings, open_index
from chroma_eddy.rows.schema import fields
from chroma_eddy.storage import collection_pair
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT
from eddy_embed import Embedder

KILLS = {"folder": 100, "server": 50}
NEW = "plain:exit=-2"
"""The method of what a library is made anew with."""


def embedder(method: str = killing.METHOD) -> Embedder:
    return Embedder("eddy-tiny", method=method)


def reindex(place: str) -> None:
    with open_index(place, "notes") as index:
        index.reindex(embedder(NEW))


@pytest.fixture(scope="module", params=["folder", "server"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def truncate(folder: Path) -> None:
    """Cut the files in which Chroma keeps vectors."""
    for path in folder.glob("*-*-*-*-*/*"):
        os.truncate(path, path.stat().st_size // 2)


def check_stored_documents(index: Index, *versions: dict) -> None:
    """Whether each document has ids, texts and vectors of one of its versions, as a writer left alone writes them."""
    held = rows(index)
    known = {id_: row for version in versions for id_, row in version[MAIN].items()}
    for id_, (vector, about, _) in held[DOCUMENTS].items():
        own = {row: held[MAIN][row] for row in held[MAIN] if held[MAIN][row][1]["eddy_digest"] == about["eddy_digest"]}
        assert len(own) == about["eddy_passages"]
        assert_same({MAIN: own}, {MAIN: {row: known[row] for row in own}})
        whole = [version[DOCUMENTS][id_] for version in versions if id_ in version[DOCUMENTS]]
        assert any(np.allclose(vector, each[0], atol=1e-5) and about == each[1] for each in whole)


@pytest.fixture(scope="module")
def expected(kind: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, dict]:
    """An index before the change, its rows, and those of one that was changed without a disturbance."""
    folder = tmp_path_factory.mktemp("expected")
    with pytest.MonkeyPatch.context() as patch:
        if kind == "folder":  # a server's files are its own
            patch.setattr(collection_pair, "_COSINE_CONFIG", SAVED_OFTEN)
        with open_index(folder / "before", "notes", embedder(), passage_size=24) as index:
            index.upsert(killing.before())
            old = rows(index)
    shutil.copytree(folder / "before", folder / "after")
    with open_index(folder / "after", "notes", embedder(), passage_size=24) as index:
        index.sync(killing.after())
        return folder / "before", old, rows(index)


class Place:
    """Where the index is, and how the writer or the server is killed there."""

    def __init__(self, folder: Path, template: Path, server: Server | None) -> None:
        self.folder, self.template, self.server = folder, template, server
        self.address = server.url if server else str(folder)

    def renew(self) -> None:
        if self.server:
            self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        if self.server:
            self.server.start()


@contextmanager
def placed(kind: str, folder: Path, template: Path) -> Iterator[Place]:
    if kind == "folder":
        yield Place(folder, template, None)
        return
    with served(folder) as server:
        yield Place(folder, template, server)


def stored(place: Place, suffix: str = "") -> set[str]:
    """Digests of the texts that are stored whole, in the index or in the one that is to replace it."""
    with open_index(place.address, "notes") as index:
        found = index.store.with_suffix(suffix)
        documents = found.get(DOCUMENTS, metadatas=True).metadatas if found.find() is not None else []
        return {str(fields(row)["text"]) for row in documents if row["eddy_digest"]}


def interrupted(place: Place, job: Callable[[str], None], log: Path, moment: random.Random) -> bool:
    """One run that is killed, or whose server is; whether it was still at work, having embedded nothing twice."""
    whole = stored(place, NEXT if job is reindex else "")
    seen = len(log.read_text().split()) if log.exists() else 0
    process, pipe = started(place.address, job, log)
    server = place.server if place.server and moment.random() < 0.5 else None
    caught = killed(process, pipe, moment, MOST_STEPS, server.kill if server else kill_process(process))
    process.join()
    embedded = log.read_text().split()[seen:] if log.exists() else []
    assert not whole & set(embedded), "a document that was stored whole was embedded again"
    if not caught:
        assert process.exitcode == 0
    elif server:
        # Unless it had written everything by then, it ends with an error that says what is the matter.
        assert process.exitcode in (0, UNREACHABLE)
        server.start()
    return caught


def both_sides_agree(index: Index) -> bool:
    """Whether a question to words finds no passage that one to meaning does not."""
    question = "Document of version"
    found = {hit.id for hit in index.query(question, 1000, hybrid=True)}
    return bool(found) and found == {hit.id for hit in index.query(question, 1000, hybrid=False)}


@pytest.mark.slow
def test_a_killed_sync_is_finished_by_the_next(kind: str, expected: tuple[Path, dict, dict], tmp_path: Path) -> None:
    """Of new, changed, relabelled and removed documents; after every other kill in a folder, Chroma's files are cut."""
    (template, before, undisturbed), kills = expected, KILLS[kind]
    moment, log = random.Random(kills), tmp_path / "embedded.log"
    with placed(kind, tmp_path / "db", template) as place:
        place.renew()
        while kills:
            if interrupted(place, killing.sync, log, moment):
                kills -= 1
                if kind == "folder":
                    if kills % 2:
                        truncate(place.folder)
                    with open_index(place.address, "notes", embedder(), passage_size=24) as index:
                        check_stored_documents(index, before, undisturbed)
                        assert {each.id for each in killing.before()} - set(index.entries()) <= {"papers/3"}
            else:
                place.renew()
        with open_index(place.address, "notes", embedder(), passage_size=24) as index:
            assert both_sides_agree(index)
            report = index.sync(killing.after())
            assert report.written + report.relabelled + report.unchanged == len(killing.after())
            assert both_sides_agree(index)
            if kind == "folder":
                assert set(words_of(index)) == set(rows(index)[MAIN])
            assert index.status().incomplete == () and index.check(full=True) == {}
            assert list(index.documents()) and set(index.entries()) == {each.id for each in killing.after()}
            found = rows(index)
            assert_same(
                {part: found[part] for part in (MAIN, DOCUMENTS)},
                {part: undisturbed[part] for part in (MAIN, DOCUMENTS)},
            )


@pytest.mark.slow
def test_a_killed_reindexing_goes_on(tmp_path: Path) -> None:
    template, kills, log = tmp_path / "before", KILLS["folder"], tmp_path / "embedded.log"
    moment, held = random.Random(kills), []
    for folder, method in ((template, killing.METHOD), (tmp_path / "wanted", NEW)):
        with open_index(folder, "notes", embedder(method), passage_size=24) as index:
            index.upsert(killing.before())
            held.append(rows(index))
    place = Place(tmp_path / "db", template, None)
    place.renew()
    while kills:
        if interrupted(place, reindex, log, moment):
            kills -= 1
            if kills % 2:
                truncate(place.folder)
            with open_index(place.address, "notes") as index:
                check_stored_documents(index, held[0] if index.settings == index_settings(template) else held[1])
                assert len(index.entries()) == len(killing.before())
        else:
            place.renew()
    reindex(place.address)
    with open_index(place.address, "notes", embedder(NEW)) as index:
        assert_same(rows(index), held[1])
        names = {collection.name for collection in index.store.client.list_collections()}
        assert names == {"notes", "notes-documents"} and index.check(full=True) == {}


def index_settings(place: Path) -> IndexSettings:
    with open_index(place, "notes") as index:
        return index.settings
