"""Watched folders: `eddy-demo ingest --watch` as a process of its own, and what becomes of changes and errors."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from eddy_demo.library.index import read_entries
from eddy_demo.library.ingest import Failures, changed_documents, ingest
from eddy_demo.library.library_lock import lock_library
from eddy_demo.library.watching import WatchedFolder
from tests.demo.conftest import fail_on
from tests.processes import Command

from chroma_eddy import IndexInUse
from eddy_demo.library.settings import LibrarySettings, holds_library
from eddy_embed import Embedder
from readers_eddy.documents import SourceDocument, list_skipped
from readers_eddy.errors import NothingToRead

Run = Callable[..., Any]
WAIT = 60
"""Seconds within which a change must be told."""
COMMAND = """
import sys
from eddy_demo.cli import main
from eddy_demo.library import watching
watching._TICK_MS = 100
sys.argv[0] = "eddy-demo"
main()
"""
"""Looks for folders more often than users need."""


def test_a_watched_folder_and_its_library_stay_alike(documents: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    arguments = ("ingest", documents, "--library", library, "--method", "plain:exit=0", "--watch")
    process = Command(COMMAND, *arguments, err=tmp_path / "said.txt")

    def wait_for(words: str, times: int = 1) -> None:
        end = time.monotonic() + WAIT
        while " ".join(process.said.split()).count(words) < times:
            assert process.status is None and time.monotonic() < end, process.said
            time.sleep(0.05)

    def names() -> set[str]:
        return {str(entry.metadata["name"]) for entry in read_entries(library).values()}

    try:
        wait_for("Watching")
        before = names()
        (documents / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
        wait_for("broken.pdf")
        (documents / "zinc.txt").write_text("Zinc is a metal that keeps iron from rust.", encoding="utf-8")
        wait_for("1 document written")
        assert names() == {*before, "zinc.txt"}
        (documents / "zinc.txt").unlink()
        wait_for("Taken out, because no longer there: zinc.txt.")
        assert names() == before
        documents.rename(tmp_path / "away")
        wait_for("is not there any more; it is read again when it is.")
        assert names() == before
        (tmp_path / "away" / "tin.txt").write_text("Tin is a metal that keeps cans from rust.", encoding="utf-8")
        (tmp_path / "away").rename(documents)
        wait_for("1 document written", times=2)
        assert names() == {*before, "tin.txt"}
        is_written(library)
        time.sleep(0.3)  # until it looks at the folders again
        process.signal(signal.SIGINT)
        assert process.wait(WAIT) == 0
        assert process.said.splitlines()[-1] == "Watching ended; the library is complete."
    finally:
        process.kill()


def is_written(library: Path) -> None:
    """Wait until nobody writes to a library."""
    while True:
        with suppress(IndexInUse), lock_library(library):
            return
        time.sleep(0.05)


def test_a_file_cannot_be_watched(documents: Path, tmp_path: Path, run: Run) -> None:
    file = next(documents.glob("*.md"))
    refused = run("ingest", file, "--library", tmp_path / "library", "--watch")
    assert refused.code == 1 and "is no folder, and --watch takes folders" in " ".join(refused.err.split())
    assert not (tmp_path / "library").exists()


class Followed:
    """A folder, a library and what is written to it."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder, self.library = WatchedFolder(folder), library
        self.settings = LibrarySettings("eddy-tiny", "plain:exit=0")
        self.embedder = Embedder("eddy-tiny", method="plain:exit=0")

    def write(self, documents: Sequence[SourceDocument]) -> Failures:
        changed = changed_documents(self.library, documents)
        return ingest(self.library, self.settings, self.embedder, changed, lambda *_: None)[1]

    def read(self) -> list[str]:
        """Names of what was taken out."""
        return self.folder.keep_alike(self.library, self.folder.read(self.library), self.write)

    @property
    def names(self) -> set[str]:
        return {str(entry.metadata["name"]) for entry in read_entries(self.library).values()}

    @property
    def errors(self) -> list[str]:
        return list_skipped([each for file in self.folder.skipped.values() for each in file])


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    (tmp_path / "folder").mkdir()
    for name in ("tin", "zinc", "lead"):
        (tmp_path / "folder" / f"{name}.txt").write_text(f"The metal is {name}.", encoding="utf-8")
    return Followed(tmp_path / "folder", tmp_path / "library")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding fails on texts with this word."""
    fail_on("poison", "the vector of 'poison' holds NaN", monkeypatch)


@pytest.mark.usefixtures("poison")
def test_a_text_that_cannot_be_embedded_is_named_and_the_others_are_written(
    followed: Followed, tmp_path: Path, run: Run
) -> None:
    folder = followed.folder.path
    (folder / "bad.txt").write_text("It is poison.", encoding="utf-8")
    told = run("ingest", folder, "--library", tmp_path / "other", "--method", "plain:exit=0")
    assert told.code == 1 and "3 documents written" in told.err
    assert "bad.txt: it cannot be embedded: the vector of 'poison' holds NaN" in " ".join(told.err.split())
    for file in folder.glob("[!b]*.txt"):
        file.unlink()
    assert run("ingest", folder, "--library", tmp_path / "none", "--method", "plain:exit=0").code == 1
    assert not holds_library(tmp_path / "none")


@pytest.mark.usefixtures("poison")
def test_an_error_stays_until_its_file_is_read_or_removed_and_stops_no_other(followed: Followed) -> None:
    folder = followed.folder.path
    (folder / "bad.txt").write_text("It is poison.", encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"id": "a#b", "text": "poison"}\n{"id": 2}\n', encoding="utf-8")
    (folder / "worse.pdf").write_bytes(b"no PDF")
    followed.read()
    assert followed.names == {"tin.txt", "zinc.txt", "lead.txt"}
    told = followed.errors
    assert [line.split(":")[0] for line in told] == ["bad.txt", "a#b", "worse.pdf", "rows.jsonl, line 2"]
    assert told[0] == "bad.txt: it cannot be embedded: the vector of 'poison' holds NaN"
    (folder / "iron.txt").write_text("Iron rusts.", encoding="utf-8")
    followed.read()
    assert followed.errors == told and "iron.txt" in followed.names
    (folder / "bad.txt").write_text("It is sound.", encoding="utf-8")
    (folder / "worse.pdf").unlink()
    followed.read()
    assert followed.errors == [told[1], told[3]] and "bad.txt" in followed.names


def test_a_disk_that_is_not_there_takes_nothing_out(followed: Followed) -> None:
    """Its folder is empty, and another one; one in which nothing is left is the same as before."""
    folder = followed.folder.path
    followed.read()
    folder.rename(folder.with_name("disk"))
    with pytest.raises(NothingToRead):
        followed.read()
    folder.mkdir()
    assert followed.read() == [] and len(followed.names) == 3
    folder.rmdir()
    folder.with_name("disk").rename(folder)
    assert followed.read() == []
    (folder / "tin.txt").unlink()
    assert followed.read() == ["tin.txt"]
    for file in folder.iterdir():
        file.unlink()
    assert sorted(followed.read()) == ["lead.txt", "zinc.txt"]
