"""A library that is kept like folders: what is read, removed, and never deleted; and kills at any moment."""

from __future__ import annotations

import ast
import hashlib
import random
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import fail_on, opened, recommend, run, write_documents
from tests.demo.site import long_text, serving, wait
from tests.processes import Command, context

from chroma_eddy import IndexInUse
from chroma_eddy import index as chroma_index
from eddy_demo.library.library import delete_upload, ingest, lock_library, read_entries
from eddy_demo.library.settings import LibrarySettings, holds_library, upload_path
from eddy_demo.library.sync import FileReport, Root, SyncResult, sync
from eddy_embed import Embedder
from eddy_embed.methods.recommended import Recommendation
from readers_eddy.content import NothingToRead
from readers_eddy.documents import list_skipped
from readers_eddy.process import ReaderProcess

WAIT = 60
"""Seconds within which a change must be told."""
COMMAND = """
import sys
from eddy_demo.cli import main
from eddy_demo.library import sync
sync._TICK_MS = 100
sys.argv[0] = "eddy-demo"
main()
"""
"""Looks for folders more often than users need."""


def names(library: Path) -> set[str]:
    return {str(entry.metadata["name"]) for entry in read_entries(library).values()}


def test_a_watched_folder_and_its_library_stay_alike(documents: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    arguments = ("ingest", documents, "--library", library, "--method", "plain:exit=0", "--watch")
    process = Command(COMMAND, *arguments, err=tmp_path / "said.txt")

    def wait_for(words: str, times: int = 1) -> None:
        end = time.monotonic() + WAIT
        while " ".join(process.said.split()).count(words) < times:
            assert process.status is None and time.monotonic() < end, process.said
            time.sleep(0.05)

    try:
        wait_for("Watching")
        before = names(library)
        (documents / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
        wait_for("broken.pdf")
        (documents / "zinc.txt").write_text("Zinc is a metal that keeps iron from rust.", encoding="utf-8")
        wait_for("1 document written")
        assert names(library) == {*before, "zinc.txt"}
        (documents / "zinc.txt").unlink()
        wait_for("Taken out, because no longer there: zinc.txt.")
        assert names(library) == before
        documents.rename(tmp_path / "away")
        wait_for("is not there any more; it is read again when it is.")
        assert names(library) == before
        (tmp_path / "away" / "tin.txt").write_text("Tin is a metal that keeps cans from rust.", encoding="utf-8")
        (tmp_path / "away").rename(documents)
        wait_for("1 document written", times=2)
        assert names(library) == {*before, "tin.txt"}
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


def test_a_file_cannot_be_watched(documents: Path, tmp_path: Path) -> None:
    file = next(documents.glob("*.md"))
    refused = run("ingest", file, "--library", tmp_path / "library", "--watch")
    assert refused.code == 1 and "is no folder, and --watch takes folders" in " ".join(refused.err.split())
    assert not (tmp_path / "library").exists()


class Kept:
    """A folder and the library that is kept like it."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.library, self.root = library, Root(folder)
        self.settings = LibrarySettings("eddy-tiny", "plain:exit=0")
        self.embedder = Embedder("eddy-tiny", method="plain:exit=0")
        self.reports: dict[str, list[str]] = {}

    def sync(self, **options: Any) -> SyncResult:
        def write(documents: Any, progress: Any) -> Any:
            return ingest(self.library, self.settings, self.embedder, documents, progress)[1]

        def report(told: FileReport) -> None:
            self.reports.setdefault(Path(told.path).name, []).append(told.state)

        self.reports.clear()
        with lock_library(self.library):
            return sync(self.library, [self.root], write, report, **options)

    def removed(self) -> list[str]:
        return sorted(self.sync().missing.values())

    @property
    def errors(self) -> list[str]:
        return list_skipped([each for file in self.root.skipped.values() for each in file])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    for name in ("tin", "zinc", "lead"):
        (made / f"{name}.txt").write_text(f"The metal is {name}.", encoding="utf-8")
    return made


@pytest.fixture
def kept(folder: Path, tmp_path: Path) -> Kept:
    return Kept(folder, tmp_path / "library")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding fails on texts with this word."""
    fail_on("poison", "the vector of 'poison' holds NaN", monkeypatch)


@pytest.mark.usefixtures("poison")
def test_a_library_whose_only_text_cannot_be_embedded_is_none(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        file.write_text("It is poison.", encoding="utf-8")
    told = run("ingest", folder, "--library", tmp_path / "none", "--method", "plain:exit=0")
    assert told.code == 1 and "tin.txt: it cannot be embedded: the vector of 'poison' holds NaN" in told.err
    assert not holds_library(tmp_path / "none")


def test_each_file_written_with_others_shows_its_share(kept: Kept) -> None:
    reports = list[tuple[str, str, float]]()

    def write(documents: Any, progress: Any) -> dict[str, Exception]:
        lead, tin, zinc = (len(document.text) for document in documents)
        progress(lead + tin / 2, 0)
        progress(lead + tin + zinc, 1)
        return {}

    sync(kept.library, [kept.root], write, lambda told: reports.append((Path(told.path).stem, told.state, told.share)))
    shown = [report for report in reports if report[1] != "reading"][:5]
    assert shown[:3] == [("lead", "embedding", 1.0), ("tin", "embedding", 0.5), ("lead", "done", 1.0)]
    assert shown[3:] == [("tin", "embedding", 1.0), ("zinc", "embedding", 1.0)]


def test_rows_among_the_uploads_are_documents_of_their_own(kept: Kept) -> None:
    files = kept.library / "files"
    files.mkdir(parents=True)
    rows = '{"id": "tin", "text": "Tin is a metal."}\n{"id": "lead", "text": "Lead is one."}\n'
    (files / "metals.jsonl").write_text(rows, encoding="utf-8")
    kept.root = Root(files)
    assert len(kept.sync().changed) == 2 and kept.reports["metals.jsonl"][-1] == "done"
    origins = {entry.metadata["origin"] for entry in read_entries(kept.library).values()}
    assert origins == {"files/metals.jsonl#tin", "files/metals.jsonl#lead"}
    assert not kept.sync().changed and kept.removed() == []


@pytest.mark.usefixtures("poison")
def test_an_error_stays_until_its_file_is_read_or_removed_and_stops_no_other(kept: Kept, folder: Path) -> None:
    (folder / "bad.txt").write_text("It is poison.", encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"id": "a#b", "text": "poison"}\n{"id": 2}\n', encoding="utf-8")
    (folder / "worse.pdf").write_bytes(b"no PDF")
    kept.sync()
    assert names(kept.library) == {"tin.txt", "zinc.txt", "lead.txt"}
    assert kept.reports["tin.txt"][-1] == "done"
    assert kept.reports["bad.txt"][-1] == kept.reports["worse.pdf"][-1] == "failed"
    told = kept.errors
    assert sorted(line.split(":")[0] for line in told) == ["a#b", "bad.txt", "rows.jsonl, line 2", "worse.pdf"]
    assert "bad.txt: it cannot be embedded: the vector of 'poison' holds NaN" in told
    (folder / "iron.txt").write_text("Iron rusts.", encoding="utf-8")
    kept.sync()
    assert kept.errors == told and "iron.txt" in names(kept.library)
    (folder / "bad.txt").write_text("It is sound.", encoding="utf-8")
    (folder / "worse.pdf").unlink()
    kept.sync()
    assert [line.split(":")[0] for line in kept.errors] == ["a#b", "rows.jsonl, line 2"]
    assert "bad.txt" in names(kept.library)


def test_files_are_read_once_also_by_the_next_process(
    kept: Kept, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that cannot be read too, by size and time, until they change or somebody asks to try again."""
    (folder / "worse.pdf").write_bytes(b"no PDF")
    kept.sync()
    reads, read = list[str](), ReaderProcess.read
    monkeypatch.setattr(
        ReaderProcess, "read", lambda self, path, kind: reads.append(path.name) or read(self, path, kind)
    )
    another = Kept(folder, kept.library)
    another.sync()
    assert reads == [] and another.errors == kept.errors != []
    another.root.retry.add(another.root.real_path)
    another.sync()
    (folder / "worse.pdf").write_bytes(b"no PDF still")
    (folder / "tin.txt").write_text("Tin is soft.", encoding="utf-8")
    another.sync()
    assert reads == ["worse.pdf", "tin.txt", "worse.pdf"]


def test_a_disk_that_is_not_there_removes_nothing(kept: Kept, folder: Path) -> None:
    """Its folder is missing, empty, or another one; also for the next process."""
    kept.sync()
    before = names(kept.library)
    folder.rename(folder.with_name("disk"))
    with pytest.raises(NothingToRead):
        kept.sync()
    folder.mkdir()
    assert kept.removed() == [] and Kept(folder, kept.library).removed() == []
    for name in ("readme.txt", "other.txt"):
        (folder / name).write_text(f"This is {name}.", encoding="utf-8")
        for again in (kept, Kept(folder, kept.library)):
            assert again.removed() == [] and names(kept.library) >= {*before, name}


def test_files_that_go_from_a_folder_leave_the_library(kept: Kept, folder: Path) -> None:
    kept.sync()
    (folder / "tin.txt").unlink()
    assert kept.removed() == ["tin.txt"]
    (folder / "zinc.txt").rename(folder / "zn.txt")
    (folder / "lead.txt").unlink()
    assert kept.removed() == ["lead.txt", "zinc.txt"], "the same folder, in which nothing is left that was there"
    (folder / "zn.txt").unlink()
    assert kept.removed() == [], "an empty folder may be a disk that is not there"


# --- Only uploaded files are ever deleted


def test_one_place_deletes_documents_and_only_below_the_uploads(tmp_path: Path) -> None:
    """What else unlinks names the library's own files: settings, parts of uploads, an old database."""
    calls = set[str]()
    for path in Path(delete_upload.__code__.co_filename).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if re.search(r"\.(unlink|rmtree|rmdir|removedirs)$|^os\.(remove|truncate)$", called):
                calls.add(f"{path.name}: {called}({', '.join(map(ast.unparse, node.args))})")
    assert calls == {
        "library.py: (folder / name).unlink()",
        "library.py: (folder / SETTINGS).unlink()",
        "library.py: file.unlink()",
        "library.py: folder.rmdir()",
        "library.py: shutil.rmtree(folder / DATABASE_FOLDER)",
        "uploads.py: part.unlink()",
        "api.py: part.unlink()",
    }
    for origin in ("/etc/passwd", "files/../library.json", "files//etc/passwd", "files", "files/", "other/a.txt"):
        assert upload_path(tmp_path, origin) is None, origin


def test_nothing_touches_the_files_of_a_user(tmp_path: Path) -> None:
    """Whatever is done: followed and not, uploaded with the same bytes, removed, erased, made anew."""
    mine, library = write_documents(tmp_path / "mine"), tmp_path / "library"

    def digest() -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in mine.rglob("*")}

    before = digest()
    with serving(library) as site:
        site.watch(mine)
        site.watched(lambda told: told["state"] == "watching" and told["files"] == 3)
        key = next(row["id"] for row in site.documents() if row["name"] == "tides.md")
        refused = site.client.delete(f"/api/documents/{key}")
        assert refused.status_code == 409 and "a file of your own, which Eddy never deletes" in refused.json()["error"]
        assert not any(row["uploaded"] for row in site.documents())
        site.upload("tides.md", (mine / "tides.md").read_bytes())
        site.settled()
        (uploaded,) = [row["id"] for row in site.documents() if row["uploaded"]]
        site.client.delete(f"/api/documents/{uploaded}")
        wait(lambda: len(site.documents()) == 3)
        site.client.delete("/api/folders", params={"path": str(mine)})
        assert len(site.documents()) == 3, "unfollowing keeps the documents"
    assert run("library", "remove", "tides.md", "bread.txt", "--erase", "-l", library).code == 0
    assert run("ingest", mine, "-l", library, "--sync").code == 0
    assert run("library", "rebuild", "-l", library, "--method", "plain:exit=1").code == 0
    assert digest() == before


# --- Kills


def busy_server(library: Path, folder: Path, log: Path) -> None:
    """A server that removes documents and takes files, and reads more closely, until it is killed."""

    def note(line: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    with pytest.MonkeyPatch.context() as patch:
        recommend(patch, Recommendation("plain:exit=1"))
        patch.setattr(chroma_index, "GROUP_DOCUMENTS", 1)
        with serving(library, method=None) as site:
            wait(lambda: site.state.reader.ready)
            note("serves ")
            for row in site.documents()[:2]:
                note(f"removing {row['name']}")
                if site.client.delete(f"/api/documents/{row['id']}").status_code == 200:
                    note(f"removed {row['name']}")
            for file in sorted(folder.iterdir()):
                if site.upload(file.name, file.read_bytes()).status_code == 200:
                    note(f"uploaded {file.name}")
            threading.Event().wait()


@pytest.mark.slow
def test_twenty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """At any moment of uploads, removals and reading more closely: `pytest -m slow tests/demo/test_sync.py`."""
    library, chance = tmp_path / "library", random.Random(7)
    wanted, gone = dict[str, str](), set[str]()
    for kill in range(20):
        log, folder = tmp_path / f"{kill}.log", tmp_path / f"files-{kill}"
        log.touch()
        folder.mkdir()
        for number in range(3):
            (folder / f"{kill}-{number}.txt").write_text(long_text(5, seed=kill * 10 + number), encoding="utf-8")
        process = context().Process(target=busy_server, args=(library, folder, log), daemon=True)
        process.start()
        wait(lambda log=log: "serves" in log.read_text("utf-8"))
        time.sleep(chance.uniform(0.0, 4.0))
        process.kill()
        process.join()
        for action, name in (line.split(" ") for line in log.read_text("utf-8").splitlines()):
            if action == "uploaded":
                wanted[name] = (folder / name).read_text("utf-8")
            elif action == "removing":  # it may be gone without having said so
                wanted.pop(name, None)
            elif action == "removed":
                gone.add(name)
    with serving(library, method=None) as site:
        files = [*library.glob("files/*-*")]
        wait(lambda: site.state.reader.ready and len(site.names()) == len(files))
        site.until(lambda _: site.state.reader.settings.next is None)
    with opened(library) as index:
        stored = [(str(each.metadata["name"]), each.text) for each in index.documents()]
        assert not index.incomplete() and not index.check(full=True)
    assert wanted and gone and len(stored) == len(dict(stored)) == len(files)
    assert wanted.items() <= dict(stored).items() and not gone & dict(stored).keys()
