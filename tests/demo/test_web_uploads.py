"""Uploads on their way into the library of one server: written, known, failed, cancelled, and coming again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, DOCUMENTS, fail_on, opened
from tests.demo.site import Site, long_text, serving, two_pages, wait
from tests.demo.word_files import docx_of

from chroma_eddy import Index, WriterLock
from eddy_demo.library.settings import original_path
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.uploads import library_writer
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_demo.web.uploads.stored_uploads import StoredUploads, Upload, clean_name
from eddy_demo.web.uploads.upload_job import UploadJob
from readers_eddy import process
from readers_eddy.process import ReaderProcess


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library") as site:
        site.upload("lamp.txt", "A lighthouse stands on the cliff.")
        site.settled()
        yield site


def together(site: Site, **files: str | bytes) -> dict[str, dict[str, Any]]:
    """Upload files so that they are written together; the jobs as they end."""
    with WriterLock(site.folder, timeout=60):
        for name, data in files.items():
            assert site.upload(f"{name}.txt", data).status_code == 200
        site.until(lambda p: p["busy"])  # what began before the last one came has been put back
    return {job["name"]: job for job in site.settled()}


def ids(site: Site, name: str) -> list[str]:
    return [job["id"] for job in site.state.jobs.snapshot() if job["name"] == name]


def uploads(site: Site) -> list[str]:
    return [path.name for path in (site.folder / "uploads").iterdir()]


# --- The queue


def accepted(jobs: JobQueue) -> UploadJob:
    """The only file of a queue, which has just come in."""
    part = jobs.uploads.new_part()
    part.write_bytes(b"text")
    assert jobs.accept(part, Upload("ab" * 32, "a.txt", 4), None) == "waiting"
    (job,) = jobs._jobs.values()
    return job


def test_what_failed_and_what_comes_in_takes_room(tmp_path: Path) -> None:
    jobs = JobQueue(tmp_path, 2, ChangeSignal())
    with jobs.reserve():
        job = accepted(jobs)
    with (
        jobs.reserve(),
        pytest.raises(RequestRefused, match="2 files are waiting already; wait until some are written"),
        jobs.reserve(),
    ):
        pass
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


def test_a_cancelled_file_can_come_again(tmp_path: Path) -> None:
    """Before its cancel has been carried out, which then is not; and after it failed, without being cancelled anew."""
    jobs = JobQueue(tmp_path, 2, ChangeSignal())
    job = accepted(jobs)
    jobs.begin(job, "reading")
    assert jobs.cancel(job.upload.id) and [each["cancelled"] for each in jobs.snapshot()] == [True]  # said at once
    assert accepted(jobs) is job and not jobs.put_back_if_interrupted()
    jobs.cancel(job.upload.id)
    jobs.end(job, "failed", "it is odd")
    assert jobs.snapshot() == [] and list(jobs.uploads.folder.iterdir()) == []
    accepted(jobs)
    assert not jobs.put_back_if_interrupted()


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


def test_a_name_is_never_a_path(tmp_path: Path) -> None:
    """Uploaded files lie under their hash, in one folder, and nothing else appears anywhere."""
    for number, name in enumerate(HOSTILE):
        shown = clean_name(name)
        assert shown == "" or not set(shown) & set("/\\\0\n\u202e")
        assert len(shown) <= 150
        library = tmp_path / str(number) / "library"
        queue = StoredUploads(library)
        part = queue.new_part()
        part.write_bytes(b"text")
        queue.keep(part, Upload("ab" * 32, shown, 4))
        files = {path.relative_to(library.parent).as_posix() for path in library.parent.rglob("*") if path.is_file()}
        assert files == {f"library/uploads/{'ab' * 32}", f"library/uploads/{'ab' * 32}.json"}
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
    for name, text in DOCUMENTS.items():
        assert site.upload(name, text).status_code == 200
    site.upload("letter.docx", docx_of("The mill stands by the river."))
    site.upload("pages.PDF", two_pages())
    jobs = {job["name"]: job for job in site.settled()}
    added = (*DOCUMENTS, "letter.docx", "pages.PDF")
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


def test_what_cannot_be_read_says_why(site: Site) -> None:
    """A failed file is kept, to be tried again or put away; the others are written."""
    site.upload("latin.txt", "Schöne Grüße".encode("latin-1"))
    job = {job["name"]: job for job in site.settled()}["latin.txt"]
    assert job["state"] == "failed" and "not UTF-8: byte 0xf6 at position 3" in job["message"]
    assert len(uploads(site)) == 2
    assert site.client.post(f"/api/jobs/{job['id']}/retry").status_code == 200
    site.settled()
    assert site.client.post(f"/api/jobs/{job['id']}/cancel").status_code == 200
    assert uploads(site) == []
    assert site.client.post(f"/api/jobs/{job['id']}/cancel").status_code == 404


def test_a_text_is_written_once_among_files_that_come_together(site: Site) -> None:
    """Also where the first is cancelled in the midst, when questions are answered: the other takes its place."""
    jobs = together(site, a="Eels swim in the ditch.", b=b"\xef\xbb\xbfEels swim in the ditch.", c="Herons wait.")
    told = {name: (jobs[f"{name}.txt"]["state"], jobs[f"{name}.txt"]["message"]) for name in "abc"}
    assert told == {"a": ("done", ""), "b": ("known", "already in the library as a.txt"), "c": ("done", "")}
    assert {"a.txt", "c.txt"} <= set(site.names())
    assert "b.txt" not in site.names()
    assert uploads(site) == []

    resume, text = site.pause(), long_text(120)
    with WriterLock(site.folder, timeout=60):
        first = site.upload("first.txt", text).json()["id"]
        site.upload("second.txt", b"\xef\xbb\xbf" + text.encode())
        site.until(lambda p: p["busy"])
    site.halfway()
    assert [name for name, _ in site.ask("Where does the lighthouse stand?", k=1)] == ["answer", "hit", "done"]
    assert ids(site, "first.txt") == [first], "it is not written yet"
    site.client.post(f"/api/jobs/{first}/cancel")
    resume()
    assert {job["name"]: job["state"] for job in site.settled()}["second.txt"] == "done"
    assert "first.txt" not in site.names()


def test_the_same_file_from_many_sides(site: Site) -> None:
    text = "The miller grinds rye at night."
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: site.upload(f"rye{number}.txt", text), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, answers
    jobs = [job for job in site.settled() if job["name"].startswith("rye")]
    assert {job["state"] for job in jobs} <= {"done", "known"}, jobs
    assert len([name for name in site.names() if name.startswith("rye")]) == 1
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
    wait(lambda: "late.txt" not in site.names())
    assert "beside.txt" in site.names()
    site.upload("late.txt", "The cat sleeps on the wall.")
    site.settled()
    assert "late.txt" in site.names()


receive = ReaderProcess._receive


def failing(*_: Any) -> None:
    raise RuntimeError("the device has no memory left")


def killed(reader: ReaderProcess, child: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
    child.kill()
    return receive(reader, child, until)


def test_the_work_goes_on_after_any_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files say what happened and can be tried again; a removal is tried again by itself."""
    monkeypatch.setattr(process, "subprocess", subprocess)
    for owner, step, broken, message in (
        (library_writer, "ingest", failing, "RuntimeError: the device has no memory left"),
        (ReaderProcess, "_receive", killed, "ended without a result (status -9)"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, broken)
            id_ = site.upload(f"{step}.txt", f"Herons stand in the reeds of {step}.").json()["id"]
            (job,) = [job for job in site.settled() if job["id"] == id_]
        assert job["state"] == "failed" and message in job["message"]
        assert site.client.post(f"/api/jobs/{id_}/retry").status_code == 200
        assert {job["state"] for job in site.settled() if job["id"] == id_} == {"done"}
    (key,) = keys(site, "ingest.txt")
    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "remove_documents", failing)
        site.client.delete(f"/api/documents/{key}")
        site.until(lambda p: "the device has no memory left" in p["busy"])
    wait(lambda: not keys(site, "ingest.txt"))
    site.until(lambda p: not p["busy"])


def test_one_text_that_cannot_be_embedded_fails_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on("Tin", "NaN", monkeypatch)
    jobs = together(site, **{name: f"{name} is a metal." for name in ("Lead", "Tin", "Zinc")})
    states = {name: (jobs[f"{name}.txt"]["state"], jobs[f"{name}.txt"]["message"]) for name in ("Lead", "Tin", "Zinc")}
    assert states == {"Lead": ("done", ""), "Tin": ("failed", "NaN"), "Zinc": ("done", "")}
    assert site.client.post(f"/api/jobs/{jobs['Tin.txt']['id']}/cancel").status_code == 200


def test_a_document_that_goes_while_it_is_opened(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.upload("brief.txt", "The mayfly lives for a day.")
    key = {job["name"]: job["document"] for job in site.settled()}["brief.txt"]
    read = Index.embedded

    def gone(index: Index, document: str) -> Any:
        site.client.delete(f"/api/documents/{key}")
        wait(lambda: not site.state.jobs.pending_removals())
        return read(index, document)

    monkeypatch.setattr(Index, "embedded", gone)
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


def test_an_edited_file_can_replace_the_one_before(site: Site) -> None:
    """Both are in the library until the older one is deleted."""
    first = together(site, plan="The boat sails at six.")["plan.txt"]
    second = together(site, plan="The boat sails at seven.")["plan.txt"]
    assert (first["older"], second["older"]) == ("", first["document"]) and site.names().count("plan.txt") == 2
    assert site.client.delete(f"/api/documents/{second['older']}").status_code == 200
    wait(lambda: site.names().count("plan.txt") == 1 and not site.state.jobs.pending_removals())
    (job,) = [job for job in site.state.jobs.snapshot() if job["document"] == second["document"]]
    assert job["older"] == ""
    third = together(site, plan="The boat sails at eight.")["plan.txt"]
    site.client.delete(f"/api/documents/{third['document']}")  # the newer: the older must not be offered any more
    wait(lambda: site.names().count("plan.txt") == 1)
    assert not any(job["older"] for job in site.state.jobs.snapshot())
    assert [each["id"] for each in site.documents() if each["name"] == "plan.txt"] == [second["document"]]
