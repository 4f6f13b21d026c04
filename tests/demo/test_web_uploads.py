"""Uploads on their way into the library of one server: written, known, failed, cancelled, and coming again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, CLOCK, TIDES, opened
from tests.demo.site import Site, long_text, serving, two_pages, wait
from tests.demo.word_files import docx

from chroma_eddy.storage.locks import WriterLock
from eddy_demo.errors import Unreadable
from eddy_demo.library.settings import original_path
from eddy_demo.readers.process import ReaderProcess
from eddy_demo.web import library_reader
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.uploads import library_writer
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_demo.web.uploads.stored_uploads import StoredUploads, Upload, clean_name
from eddy_demo.web.uploads.upload_job import FINISHED, IN_PROGRESS, TRANSITIONS, UploadJob

FILES = {"tides.md": TIDES, "bread.txt": BREAD, "clock.html": CLOCK}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library") as site:
        site.upload("lamp.txt", "A lighthouse stands on the cliff.")
        site.settled()
        yield site


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than a user needs."""
    monkeypatch.setattr(library_writer, "_BUSY_SECONDS", 0.1)


def together(site: Site, **files: str | bytes) -> dict[str, dict[str, Any]]:
    """Upload files so that they are written together; the jobs as they end."""
    with WriterLock(site.folder, timeout=60):
        for name, data in files.items():
            assert site.upload(f"{name}.txt", data).status_code == 200
        site.until(lambda p: p["busy"])  # what began before the last one came has been put back
    return {job["name"]: job for job in site.settled()}


def names(site: Site) -> list[str]:
    return [row["name"] for row in site.documents()]


def ids(site: Site, name: str) -> list[str]:
    return [job["id"] for job in site.state.jobs.snapshot() if job["name"] == name]


def uploads(site: Site) -> list[str]:
    return [path.name for path in (site.folder / "uploads").iterdir()]


# --- States


def test_states_follow_on_one_another_as_written_down() -> None:
    upload = Upload("ab" * 32, "a.txt", 4)
    for before, following in TRANSITIONS.items():
        for after in TRANSITIONS:
            job = UploadJob(upload, before, "told before", done=0.5)
            if after == before or after in following:
                job.enter(after)
                assert (job.state, job.message) == (after, "")
                assert job.done == (0.5 if after in IN_PROGRESS else float(after in FINISHED))
            else:
                with pytest.raises(ValueError, match=f"a file that is {before} cannot become {after}"):
                    job.enter(after)


def test_what_failed_and_what_comes_in_takes_room(tmp_path: Path) -> None:
    jobs = JobQueue(tmp_path, 2, ChangeSignal())
    part = jobs.uploads.new_part()
    part.write_bytes(b"text")
    with jobs.reserve():
        assert jobs.accept(part, Upload("ab" * 32, "a.txt", 4), None) == "waiting"
    with (
        jobs.reserve(),
        pytest.raises(RequestRefused, match="2 files are waiting already; wait until some are written"),
        jobs.reserve(),
    ):
        pass
    (job,) = jobs.waiting()
    jobs.begin(job, "reading")
    jobs.end(job, "failed", "it is odd")
    with (
        jobs.reserve(),
        pytest.raises(RequestRefused, match=r"1 of which failed; .* or put away those that failed"),
        jobs.reserve(),
    ):
        pass
    jobs.clear(failed=True)
    with jobs.reserve(), jobs.reserve():
        assert list(jobs.uploads.folder.iterdir()) == []


def test_an_upload_has_reached_the_disk_before_it_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content before its name, so that a power failure leaves no name without content."""
    done, fsync, replace = list[tuple[str, str]](), os.fsync, os.replace

    def recorded_sync(descriptor: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    uploads, id_ = StoredUploads(tmp_path), "a" * 64
    part = uploads.new_part()
    part.write_bytes(b"text")
    uploads.keep(part, Upload(id_, "a.txt", 4))
    note = f"{id_}.json"
    written = f".{note}.{os.getpid()}.part"
    assert done == [("sync", part.name), ("rename", id_), ("sync", written), ("rename", note), ("sync", "uploads")]


HOSTILE = (
    "../../../../tmp/escaped.txt",
    "..\\..\\windows\\escaped.txt",
    "/etc/cron.d/escaped.txt",
    "nul\0byte\n.txt",
    "\u202etxt.exe\u202c.txt",
    "~/.ssh/.txt",
    "é" * 400 + ".txt",
    "library.json.txt",
    "<script>alert(1)</script>.txt",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    """Uploaded files lie under their hash, in one folder, and nothing else appears anywhere."""
    shown = clean_name(name)
    assert shown == "" or not set(shown) & set("/\\\0\n\u202e")
    assert len(shown) <= 150
    library = tmp_path / "library"
    queue = StoredUploads(library)
    part = queue.new_part()
    part.write_bytes(b"text")
    queue.keep(part, Upload("ab" * 32, shown, 4))
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {
        f"library/uploads/{'ab' * 32}",
        f"library/uploads/{'ab' * 32}.json",
    }
    assert [upload.name for upload in StoredUploads(library).load()] == [shown]
    with pytest.raises(ValueError, match="is no hash"):
        queue.content_path("../library.json")


def test_what_an_interruption_left_of_an_upload_goes(tmp_path: Path) -> None:
    """The server ended after it had moved the file to the originals."""
    queue, upload = StoredUploads(tmp_path), Upload("ab" * 32, "ferry.pdf", 4)
    part = queue.new_part()
    part.write_bytes(b"%PDF")
    queue.keep(part, upload)
    queue.content_path(upload.id).unlink()
    assert queue.load() == []
    assert list(queue.folder.iterdir()) == []


# --- On the server


def test_files_become_documents(site: Site) -> None:
    for name, text in FILES.items():
        assert site.upload(name, text).status_code == 200
    site.upload("letter.docx", docx("The mill stands by the river."))
    site.upload("pages.PDF", two_pages())
    jobs = {job["name"]: job for job in site.settled()}
    added = (*FILES, "letter.docx", "pages.PDF")
    assert {jobs[name]["state"] for name in added} == {"done"}, jobs
    rows = {row["name"]: row for row in site.documents()}
    assert rows.keys() == {*added, "lamp.txt"} and rows["pages.PDF"]["pages"] == 2
    found = dict(site.ask("When does the ferry to the southern island leave?", 1))["hit"]
    assert (found["page"], found["last_page"]) == (1, 2)
    with opened(site.folder) as index:
        assert {each.metadata["name"]: each.text for each in index.documents()}["bread.txt"] == BREAD
    assert uploads(site) == []
    page = site.client.get(f"/documents/{jobs['tides.md']['document']}").text
    assert "The moon pulls the water of the sea towards it." in page


def test_the_same_content_is_taken_once(site: Site) -> None:
    site.upload("loaf.txt", "Rye makes a dark loaf.")
    site.settled()
    before = len(names(site))
    assert site.upload("other name.txt", "Rye makes a dark loaf.").json()["state"] == "known"
    site.upload("marked.txt", b"\xef\xbb\xbfRye makes a dark loaf.")  # other bytes, and the same text
    jobs = {job["name"]: job for job in site.settled()}
    for name in ("other name.txt", "marked.txt"):
        assert (jobs[name]["state"], jobs[name]["message"]) == ("known", "already in the library as loaf.txt")
    assert len(names(site)) == before and uploads(site) == []


def test_the_documents_rows_are_read_once_for_a_batch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, entries, prepare = site.state.writer, site.state.reader.entries, site.state.writer._prepare
    reads, counts = list[int](), list[tuple[int, int]]()

    def prepared(batch: Any) -> Any:
        reads.clear()
        ready = prepare(batch)
        counts.append((len(batch), len(reads)))
        return ready

    monkeypatch.setattr(site.state.reader, "entries", lambda: reads.append(1) or entries())
    monkeypatch.setattr(writer, "_prepare", prepared)
    together(site, **{f"batch{number}": f"The batch has a file number {number}." for number in range(6)})
    assert counts[-1] == (6, 1) and {count for _, count in counts} == {1}


def test_what_cannot_be_read_says_why(site: Site) -> None:
    """A failed file is kept, to be tried again or put away; the others are written."""
    site.upload("broken.pdf", b"%PDF-1.4 nothing more")
    site.upload("latin.txt", "Schöne Grüße".encode("latin-1"))
    site.upload("odd.pdf", two_pages().replace(b"/Root", b"/Encrypt << /Filter /Other >> /Root"))
    failing = ("broken.pdf", "latin.txt", "odd.pdf")
    jobs = {job["name"]: job for job in site.settled()}
    assert {jobs[name]["state"] for name in failing} == {"failed"}
    assert "not UTF-8: byte 0xf6 at position 3" in jobs["latin.txt"]["message"]
    assert "damaged, or no PDF file: open it in a PDF reader" in jobs["odd.pdf"]["message"]
    assert len(uploads(site)) == 6
    assert site.client.post(f"/api/jobs/{jobs['latin.txt']['id']}/retry").status_code == 200
    site.settled()
    for name in failing:
        assert site.client.post(f"/api/jobs/{jobs[name]['id']}/cancel").status_code == 200
    assert uploads(site) == []
    assert site.client.post(f"/api/jobs/{jobs['latin.txt']['id']}/cancel").status_code == 404


def test_a_text_is_written_once_among_files_that_come_together(site: Site) -> None:
    """Also where the first of them is cancelled in the midst: the other takes its place."""
    jobs = together(site, a="Eels swim in the ditch.", b=b"\xef\xbb\xbfEels swim in the ditch.", c="Herons wait.")
    told = {name: (jobs[f"{name}.txt"]["state"], jobs[f"{name}.txt"]["message"]) for name in "abc"}
    assert told == {"a": ("done", ""), "b": ("known", "already in the library as a.txt"), "c": ("done", "")}
    assert {"a.txt", "c.txt"} <= set(names(site))
    assert "b.txt" not in names(site)
    assert uploads(site) == []

    resume, text = site.pause(), long_text(120)
    with WriterLock(site.folder, timeout=60):
        first = site.upload("first.txt", text).json()["id"]
        site.upload("second.txt", b"\xef\xbb\xbf" + text.encode())
        site.until(lambda p: p["busy"])
    site.halfway()
    site.client.post(f"/api/jobs/{first}/cancel")
    resume()
    assert {job["name"]: job["state"] for job in site.settled()}["second.txt"] == "done"
    assert "first.txt" not in names(site)


def test_an_edited_file_can_replace_the_one_before(site: Site) -> None:
    """Both are in the library until the older one is deleted."""
    first = together(site, plan="The boat sails at six.")["plan.txt"]
    second = together(site, plan="The boat sails at seven.")["plan.txt"]
    assert (first["older"], second["older"]) == ("", first["document"]) and names(site).count("plan.txt") == 2
    assert site.client.delete(f"/api/documents/{second['older']}").status_code == 200
    wait(lambda: names(site).count("plan.txt") == 1 and not site.state.jobs.pending_removals())
    (job,) = [job for job in site.state.jobs.snapshot() if job["document"] == second["document"]]
    assert job["older"] == ""
    third = together(site, plan="The boat sails at eight.")["plan.txt"]
    site.client.delete(f"/api/documents/{third['document']}")  # the newer: the older must not be offered any more
    wait(lambda: names(site).count("plan.txt") == 1)
    assert not any(job["older"] for job in site.state.jobs.snapshot())
    assert [each["id"] for each in site.documents() if each["name"] == "plan.txt"] == [second["document"]]


def test_the_same_file_from_many_sides(site: Site) -> None:
    text = "The miller grinds rye at night."
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: site.upload(f"rye{number}.txt", text), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, answers
    jobs = [job for job in site.settled() if job["name"].startswith("rye")]
    assert {job["state"] for job in jobs} <= {"done", "known"}, jobs
    assert len([name for name in names(site) if name.startswith("rye")]) == 1
    assert uploads(site) == []


MILL = "The mill grinds rye and wheat by the river."


def keys(site: Site, name: str) -> list[str]:
    return [row["id"] for row in site.documents() if row["name"] == name]


def test_a_deleted_document_can_come_again(site: Site) -> None:
    """Also where it is still listed as known, and before its removal has been carried out."""
    for state in ("waiting", "known"):
        assert site.upload("mill.txt", MILL).json()["state"] == state
        site.settled()
    (key,) = keys(site, "mill.txt")
    site.client.delete(f"/api/documents/{key}")
    wait(lambda: not keys(site, "mill.txt"))
    site.upload("mill.txt", MILL)
    site.settled()
    assert keys(site, "mill.txt") == [key]
    with WriterLock(site.folder, timeout=60):  # the removal cannot be carried out yet
        site.client.delete(f"/api/documents/{key}")
        assert site.upload("mill.txt", MILL).json()["state"] == "waiting"
    assert [job["state"] for job in site.settled() if job["document"] == key] == ["done"]
    wait(lambda: not site.state.jobs.pending_removals())
    assert keys(site, "mill.txt") == [key]
    site.client.delete(f"/api/documents/{key}")
    wait(lambda: not keys(site, "mill.txt"))
    for address in (f"/api/documents/{key}", f"/documents/{key}"):
        assert site.client.request("DELETE" if "api" in address else "GET", address).status_code == 404


def test_a_cancel_that_comes_too_late_is_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is written, and nobody has said so yet: it leaves the library again, and can come again."""
    write = library_writer.ingest

    def cancelled(*arguments: Any) -> Any:
        *given, progress = arguments

        def told(characters: float, written: int) -> None:
            if written and ids(site, "late.txt"):
                assert site.client.post(f"/api/jobs/{ids(site, 'late.txt')[0]}/cancel").status_code == 200
            progress(characters, written)

        return write(*given, told)

    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "ingest", cancelled)
        jobs = together(site, late="The cat sleeps on the wall.", beside="The dog sleeps under it.")
    assert "late.txt" not in jobs
    assert jobs["beside.txt"]["state"] == "done", jobs
    wait(lambda: "late.txt" not in names(site))
    assert "beside.txt" in names(site)
    site.upload("late.txt", "The cat sleeps on the wall.")
    site.settled()
    assert "late.txt" in names(site)


def test_a_cancel_of_what_fails_is_not_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next upload of the file would be taken for the one that was cancelled."""

    def failing(*_: Any) -> None:
        site.client.post(f"/api/jobs/{ids(site, 'odd.txt')[0]}/cancel")
        raise Unreadable("it is odd")

    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "read_document", failing)
        site.upload("odd.txt", "The owl hoots twice.")
        wait(lambda: not ids(site, "odd.txt"))
    site.upload("odd.txt", "The owl hoots twice.")
    site.settled()
    assert "odd.txt" in names(site)


def test_a_file_that_is_wanted_again_is_not_cancelled(site: Site) -> None:
    """Its cancel has not been carried out yet."""
    resume, text = site.pause(), long_text(100, seed=3)
    id_ = site.upload("again.txt", text).json()["id"]
    site.halfway()
    check = site.state.writer.check
    site.state.writer.check = lambda: None
    site.client.post(f"/api/jobs/{id_}/cancel")
    assert {job["name"]: job["cancelled"] for job in site.state.jobs.snapshot()}["again.txt"] is True  # said at once
    assert site.upload("again.txt", text).json()["state"] == "waiting"
    site.state.writer.check = check
    resume()
    assert {job["name"]: job["state"] for job in site.settled()}["again.txt"] == "done"
    assert "again.txt" in names(site)


def test_few_files_are_read_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, write = [], library_writer.ingest

    def counted(*arguments: Any) -> Any:
        sizes.append(len(arguments[3]))
        return write(*arguments)

    monkeypatch.setattr(library_writer, "ingest", counted)
    monkeypatch.setattr(site.state.writer, "limits", replace(site.state.limits, batch_characters=40))
    files = {name: f"The {name} is painted blue, and nobody knows why." for name in ("door", "gate")}
    jobs = together(site, **files)
    assert {jobs[f"{name}.txt"]["state"] for name in files} == {"done"}
    assert sizes[-2:] == [1, 1]


def failing(*_: Any) -> None:
    raise RuntimeError("the device has no memory left")


def test_the_work_goes_on_after_any_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files say what happened and can be tried again; a removal is tried again by itself."""
    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "ingest", failing)
        id_ = site.upload("note.txt", "Herons stand in the reeds.").json()["id"]
        (job,) = [each for each in site.settled() if each["id"] == id_]
    assert (job["state"], job["message"]) == ("failed", "RuntimeError: the device has no memory left")
    assert site.client.post(f"/api/jobs/{id_}/retry").status_code == 200
    assert {each["state"] for each in site.settled() if each["id"] == id_} == {"done"}
    (key,) = keys(site, "note.txt")
    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "remove_documents", failing)
        site.client.delete(f"/api/documents/{key}")
        site.until(lambda p: "the device has no memory left" in p["busy"])
    site.until(lambda p: not p["busy"])
    assert not keys(site, "note.txt")


def test_the_page_survives_the_death_of_a_worker(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = ReaderProcess._receive

    def killed(process: ReaderProcess, child: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
        child.kill()
        return receive(process, child, until)

    with monkeypatch.context() as patch:
        patch.setattr(ReaderProcess, "_receive", killed)
        id_ = site.upload("killed.txt", "Nobody has read this yet.").json()["id"]
        (job,) = (job for job in site.settled() if job["id"] == id_)
    assert job["state"] == "failed" and "ended without a result (status -9)" in job["message"]
    assert site.client.post(f"/api/jobs/{id_}/retry").status_code == 200
    assert {each["state"] for each in site.settled() if each["id"] == id_} == {"done"}


def test_a_document_that_goes_while_it_is_opened(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.upload("brief.txt", "The mayfly lives for a day.")
    key = {job["name"]: job["document"] for job in site.settled()}["brief.txt"]
    read = library_reader.read_embedded_documents

    def gone(*arguments: Any, **options: Any) -> Any:
        site.client.delete(f"/api/documents/{key}")
        wait(lambda: not site.state.jobs.pending_removals())
        return read(*arguments, **options)

    monkeypatch.setattr(library_reader, "read_embedded_documents", gone)
    answer = site.client.get(f"/documents/{key}")
    assert (answer.status_code, "not in the library any more" in answer.text) == (404, True)


def test_an_upload_is_kept_as_long_as_its_document(site: Site) -> None:
    data = two_pages("Herons fish at low tide.")
    site.upload("dogs.pdf", data)
    key = {job["name"]: job for job in site.settled()}["dogs.pdf"]["document"]
    kept, place = original_path(site.folder, key), f"/api/documents/{key}/page?start=0&end=9"
    assert kept.read_bytes() == data and uploads(site) == []
    kept.write_bytes(b"%PDF-1.4 damaged")
    refused = site.client.get(place)
    assert refused.status_code == 422 and "page 1 cannot be drawn" in refused.json()["error"]
    kept.unlink()
    refused = site.client.get(place)
    assert refused.status_code == 404 and "delete the document and upload it again" in refused.json()["error"]
    kept.write_bytes(data)
    site.client.delete(f"/api/documents/{key}")
    wait(lambda: not kept.exists())


def test_questions_are_answered_while_a_document_is_written(site: Site) -> None:
    resume = site.pause()
    site.upload("long.txt", long_text(150))
    site.halfway()
    answers = [site.ask(f"Where does the lighthouse stand? Number {number}.", k=1) for number in range(4)]
    assert all([name for name, _ in events] == ["answer", "hit", "done"] for events in answers)
    assert {job["name"]: job["state"] for job in site.state.writer.snapshot()["jobs"]}["long.txt"] == "embedding"
    resume()
    assert {job["name"]: job["state"] for job in site.settled()}["long.txt"] == "done"
