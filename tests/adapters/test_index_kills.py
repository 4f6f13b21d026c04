"""Killed at any moment: the next run finishes, as if nothing had happened.

Crash points: before and after every `Collection.upsert`, `update`, `delete` and `modify`, every making and deleting of
a collection of Chroma's, and every `os.fsync`, `os.replace` and `shutil.rmtree`; each in turn within this process,
which then writes nothing more, and at random times by SIGKILL from another one.

- a sync of new, changed, relabelled, unchanged and removed documents, in a folder, where the writer dies;
- the same on a server, where the writer or the server dies;
- a reindexing, with the exchange of the collections' names.

After every other kill in a folder, the files in which Chroma keeps vectors are cut in half.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from tests.adapters import killing
from tests.adapters.indexes import Server, apart, served
from tests.adapters.killing import MOST_STEPS, UNREACHABLE, Killed, collections_of, kill_process, killed, started

from chroma_eddy import Document, Index, IndexSettings, open_index
from eddy_embed import Embedder

KILLS = {"folder": 100, "server": 50}
NEW = "plain:exit=-2"
"""The method of what a library is made anew with."""
QUESTION = "Document of version"
"""Whose words every document has."""
Rows = dict[str, tuple[np.ndarray, dict[str, Any], str]]


@cache
def embedder(method: str = killing.METHOD) -> Embedder:
    return Embedder("eddy-tiny", method=method)


def opened(place: Path | str, method: str = killing.METHOD) -> Index:
    return open_index(place, "notes", embedder(method), passage_size=24)


def reindex(place: str) -> None:
    with open_index(place, "notes") as index:
        index.reindex(embedder(NEW))


def plain_rows(place: Path | str) -> dict[str, Rows]:
    """Rows of the index's collections as plain Chroma has them, without the numbers of stored vectors."""
    client: Any = chromadb.HttpClient if str(place).startswith("http") else chromadb.PersistentClient
    port = {"host": "127.0.0.1", "port": int(str(place).rpartition(":")[2])} if client is chromadb.HttpClient else {}
    with apart():
        database = client(**(port or {"path": str(place)}), settings=chromadb.Settings(anonymized_telemetry=False))
        read: dict[str, Rows] = {}
        for name in ("notes", "notes-documents"):
            got = database.get_collection(name, embedding_function=None).get(
                include=["embeddings", "metadatas", "documents"]
            )
            texts = got["documents"] or [None] * len(got["ids"])
            for row in got["metadatas"]:
                row.pop("eddy_vector", None)
                row["eddy_row"] = {k: v for k, v in json.loads(row["eddy_row"]).items() if k != "vectors"}
            columns = zip(np.asarray(got["embeddings"]), got["metadatas"], texts, strict=True)
            read[name] = dict(zip(got["ids"], columns, strict=True))
    return read


def assert_same(one: Rows, other: Rows) -> None:
    """Row by row: the same ids, metadata and texts, and vectors as near as other texts in the batch let them be."""
    assert one.keys() == other.keys()
    for id_, (vector, metadata, text) in one.items():
        assert (metadata, text) == other[id_][1:], id_
        np.testing.assert_allclose(vector, other[id_][0], rtol=1e-7, atol=1e-5)


def check_stored(index: Index, place: Path | str, *versions: list[Document]) -> None:
    """Whether each document is one of its versions, whole, and every search finds that one alone."""
    known = [{document.id: document for document in version} for version in versions]
    stored = {document.id: document for document in index.documents()}
    assert all(document in [version.get(id_) for version in known] for id_, document in stored.items())
    rows = plain_rows(place)
    for id_, (_, metadata, _) in rows["notes-documents"].items():
        passages = [row for row in rows["notes"].values() if row[1]["eddy_digest"] == metadata["eddy_digest"]]
        assert id_ in stored and len(passages) == metadata["eddy_row"]["passages"]
    by_vectors, both, keywords = (
        {hit.id: hit for hit in index.query(QUESTION, 1000, **options)} for options in ({"alpha": 1}, {}, {"alpha": 0})
    )
    assert by_vectors.keys() == both.keys() >= keywords.keys(), "a passage that only one side has"
    for hits in (both, keywords):
        assert {hit.document for hit in hits.values()} == set(stored)
    for hit in both.values():
        assert stored[hit.document].text[hit.start : hit.end] == hit.text


def check_finished(index: Index, place: Path | str, undisturbed: dict[str, Rows]) -> None:
    """Whether an index is what an undisturbed writer leaves."""
    assert index.status().incomplete == () and index.check(full=True) == {}
    check_stored(index, place, killing.after())
    assert {document.id for document in index.documents()} == {document.id for document in killing.after()}
    rows = plain_rows(place)
    for name, expected in undisturbed.items():
        assert_same(rows[name], expected)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index before the change."""
    folder = tmp_path_factory.mktemp("before")
    with pytest.MonkeyPatch.context() as patch:
        killing.save_often(patch)
        with opened(folder) as index:
            index.upsert(killing.before())
    return folder


@pytest.fixture(scope="module")
def undisturbed(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The rows of an index that was changed without a disturbance."""
    folder = shutil.copytree(template, tmp_path_factory.mktemp("after") / "db")
    with opened(folder) as index:
        index.sync(killing.after())
    return plain_rows(folder)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """The rows of an index that was made with the new embedder."""
    folder = tmp_path_factory.mktemp("rebuilt")
    with opened(folder, NEW) as index:
        index.upsert(killing.before())
    return plain_rows(folder)


def check_rebuilt(place: str, rebuilt: dict[str, Rows]) -> None:
    """Whether a reindexing is finished, as if nothing had happened."""
    with apart():
        assert collections_of(place) == {"notes", "notes-documents"}
    with apart(), opened(place, NEW) as index:
        check_stored(index, place, killing.before())
        assert index.check(full=True) == {}
    rows = plain_rows(place)
    for name, expected in rebuilt.items():
        assert_same(rows[name], expected)


def stopped_everywhere(template: Path, folder: Path, job: Callable[[Path], None], every: int) -> Iterator[Path]:
    """Yield copies of an index in which a job was stopped, at each step in turn, until it is no longer stopped."""
    for step in count(1, every):
        place = shutil.copytree(template, folder / str(step))
        try:
            with apart(), killing.stopped_at(step):
                job(place)
        except Killed:
            yield place
            shutil.rmtree(place)
        else:
            return


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_a_sync_that_is_stopped_at_any_step_is_finished_by_the_next(every, template, undisturbed, tmp_path):
    def sync(place: Path) -> None:
        with opened(place) as index:
            killing.sync_index(index)

    points = 0
    for place in stopped_everywhere(template, tmp_path, sync, every):
        with apart(), opened(place) as index:
            check_stored(index, place, killing.before(), killing.after())
            index.sync(killing.after())
            check_finished(index, place, undisturbed)
        points += 1
    assert points * every > 100


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_reindexing_that_is_stopped_at_any_step_is_finished_by_the_next(every, template, rebuilt, tmp_path):
    points = 0
    for place in stopped_everywhere(template, tmp_path, lambda place: reindex(str(place)), every):
        with apart(), open_index(place, "notes") as index:
            assert [document.id for document in index.documents()] and len(index.entries()) == len(killing.before())
        with apart():
            reindex(str(place))
        check_rebuilt(str(place), rebuilt)
        points += 1
    assert points * every > 20


# --- By SIGKILL


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

    def truncate(self) -> None:
        """Cut the files in which Chroma keeps vectors."""
        for path in self.folder.glob("*-*-*-*-*/*"):
            os.truncate(path, path.stat().st_size // 2)


@contextmanager
def placed(kind: str, folder: Path, template: Path) -> Iterator[Place]:
    if kind == "folder":
        yield Place(folder, template, None)
        return
    with served(folder) as server:
        yield Place(folder, template, server)


def interrupted(place: Place, job: Callable[[str], None], log: Path, moment: random.Random) -> bool:
    """One run that is killed, or whose server is; whether it was still at work, having embedded nothing twice."""
    with open_index(place.address, "notes") as index:
        whole = index.rebuilt() if job is reindex else index.entries()
    digests = {document.text_digest for document in whole.values() if document.digest}
    seen = len(log.read_text().split()) if log.exists() else 0
    process, pipe = started(place.address, job, log)
    server = place.server if place.server and moment.random() < 0.5 else None
    caught = killed(process, pipe, moment, MOST_STEPS, server.kill if server else kill_process(process))
    process.join()
    embedded = log.read_text().split()[seen:] if log.exists() else []
    assert not digests & set(embedded), "a document that was stored whole was embedded again"
    if not caught:
        assert process.exitcode == 0
    elif server:
        # Unless it had written everything by then, it ends with an error that says what is the matter.
        assert process.exitcode in (0, UNREACHABLE)
        server.start()
    return caught


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "server"])
def test_a_killed_sync_is_finished_by_the_next(kind, template, undisturbed, tmp_path):
    kills = KILLS[kind]
    moment, log = random.Random(kills), tmp_path / "embedded.log"
    with placed(kind, tmp_path / "db", template) as place:
        place.renew()
        while kills:
            if interrupted(place, killing.sync, log, moment):
                kills -= 1
                if kind == "folder":
                    if kills % 2:
                        place.truncate()
                    with opened(place.address) as index:
                        check_stored(index, place.address, killing.before(), killing.after())
            else:
                place.renew()
        with opened(place.address) as index:
            report = index.sync(killing.after())
            assert report.written + report.relabelled + report.unchanged == len(killing.after())
            check_finished(index, place.address, undisturbed)


@pytest.mark.slow
def test_a_killed_reindexing_goes_on(template, rebuilt, tmp_path):
    kills, log = KILLS["folder"], tmp_path / "embedded.log"
    moment, place = random.Random(kills), Place(tmp_path / "db", template, None)
    place.renew()
    while kills:
        if interrupted(place, reindex, log, moment):
            kills -= 1
            if kills % 2:
                place.truncate()
            with open_index(place.address, "notes", embedder(NEW) if is_new(place) else embedder()) as index:
                check_stored(index, place.address, killing.before())
        else:
            place.renew()
    reindex(place.address)
    check_rebuilt(place.address, rebuilt)


def is_new(place: Place) -> bool:
    with open_index(place.address, "notes") as index:
        settings: IndexSettings = index.settings
        return settings.fingerprint == embedder(NEW).fingerprint
