"""Uploads on their way into the library of one server: written, known, failed, cancelled, and coming again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, DOCUMENTS, opened
from tests.demo.site import Site, long_text, serving, two_pages, wait
from tests.readers.word_files import docx_of

from chroma_eddy import Index, WriterLock
from eddy_demo.library.sync import shown_name
from eddy_demo.web import follower
from eddy_demo.web.uploads import Uploads, clean_name
from readers_eddy.documents import file_digest
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
        site.until(lambda p: p["busy"])
    return {job["name"]: job for job in site.settled()}


def keys(site: Site, name: str) -> list[str]:
    return [row["id"] for row in site.documents() if row["name"] == name]


def job(site: Site, name: str) -> dict[str, Any]:
    (found,) = [job for job in site.settled() if job["name"] == name]
    return found


# --- Files


def test_an_upload_has_reached_the_disk_before_it_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content before its name, so that a power failure leaves no name without content; the same bytes are one."""
    done, fsync, replace = list[tuple[str, str]](), os.fsync, os.replace

    def recorded_sync(descriptor: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    uploads, digest = Uploads(tmp_path), file_digest(b"text")
    parts = [uploads.new_part(), uploads.new_part()]
    for part in parts:
        part.write_bytes(b"text")
    file, is_new = uploads.keep(parts[0], digest, "a.txt")
    assert is_new and done == [("sync", parts[0].name), ("rename", f"{digest}-a.txt"), ("sync", "files")]
    assert uploads.keep(parts[1], digest, "b.txt") == (file, False) and [*uploads.folder.iterdir()] == [file]


HOSTILE = (
    "../../../../tmp/escaped.txt",
    "..\\..\\windows\\escaped.txt",
    "/etc/cron.d/escaped.txt",
    "nul\0byte\n.txt",
    "\u202etxt.exe\u202c.txt",
    "~/.ssh/.txt",
    "é" * 400 + ".txt",
    "漢" * 400 + ".txt",
    "library.json.txt",
    "<script>alert(1)</script>.txt",
)


def test_a_name_is_never_a_path(tmp_path: Path) -> None:
    """Uploaded files lie in one folder, behind their digest, and nothing else appears anywhere."""
    for number, name in enumerate(HOSTILE):
        shown = clean_name(name)
        assert shown and not set(shown) & set("/\\\0\n\u202e") and len(shown) <= 150
        library = tmp_path / str(number) / "library"
        uploads = Uploads(library)
        part = uploads.new_part()
        part.write_bytes(b"text")
        file, _ = uploads.keep(part, "ab" * 16, shown)
        assert [path for path in library.parent.rglob("*") if path.is_file()] == [file]
        assert file.parent == library / "files" and shown_name(file.name) == shown


def test_what_was_not_received_whole_goes(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "library")
    part = uploads.new_part()
    with uploads.serve():
        assert not part.exists() and [*uploads.folder.iterdir()] == []


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
    assert (found["page"], found["cited"]) == (2, "p. 2")
    with opened(site.folder) as index:
        assert {each.metadata["name"]: each.text for each in index.documents()}["bread.txt"] == BREAD
    page = site.client.get(f"/documents/{jobs['tides.md']['document']}").text
    assert "The moon pulls the water of the sea towards it." in page


def test_what_cannot_be_read_says_why_and_is_remembered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again when it is dropped again, and put away with its file."""
    count = len([*site.folder.joinpath("files").iterdir()])
    site.upload("latin.txt", "Schöne Grüße".encode("latin-1"))
    failed = job(site, "latin.txt")
    assert failed["state"] == "failed" and "not UTF-8: byte 0xf6 at position 3" in failed["message"]
    reads, read = list[str](), ReaderProcess.read
    monkeypatch.setattr(
        ReaderProcess, "read", lambda self, path, kind: reads.append(path.name) or read(self, path, kind)
    )
    site.upload("herring.txt", "Herring swim in shoals.")
    assert job(site, "herring.txt")["state"] == "done" and len(reads) == 1
    site.upload("latin.txt", "Schöne Grüße".encode("latin-1"))
    assert job(site, "latin.txt")["state"] == "failed" and len(reads) == 2
    assert site.client.post(f"/api/jobs/{failed['id']}/cancel").status_code == 200
    assert len([*site.folder.joinpath("files").iterdir()]) == count + 1
    assert site.client.post(f"/api/jobs/{failed['id']}/cancel").status_code == 404


def test_many_files_are_counted_and_those_in_work_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_LISTED", 2)
    with serving(tmp_path / "library") as site:
        for number in range(3):
            site.upload(f"{number}.txt", f"Number {number}.")
        site.upload("odd.pdf", b"odd")
        told = site.until(lambda p: [job["state"] for job in p["jobs"]] == ["failed", "done"])
        assert (told["jobs"][0]["name"], told["more"]) == ("odd.pdf", 2)
        site.client.post("/api/jobs/clear?failed=true")
    with serving(tmp_path / "library") as site:
        assert site.settled() == [] and sorted(site.names()) == ["0.txt", "1.txt", "2.txt"]


def test_a_cancelled_file_is_not_in_the_library_however_late_the_click_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of being embedded, when questions are answered; and when it is written. Others are not lost."""
    resume = site.pause()
    first = site.upload("first.txt", long_text(120)).json()["id"]
    site.halfway()
    site.upload("second.txt", "Eels swim in the ditch.")
    assert [name for name, _ in site.ask("Where does the lighthouse stand?", k=1)] == ["answer", "hit", "done"]
    site.client.post(f"/api/jobs/{first}/cancel")
    resume()
    assert job(site, "second.txt")["state"] == "done"
    wait(lambda: "first.txt" not in site.names())

    write = follower.ingest

    def cancelled(*arguments: Any) -> Any:
        *given, progress = arguments

        def told(characters: float, written: int) -> None:
            late = [job["id"] for job in site.state.follower.snapshot()["jobs"] if job["name"] == "late.txt"]
            if written and late:
                assert site.client.post(f"/api/jobs/{late[0]}/cancel").status_code == 200
            progress(characters, written)

        return write(*given, told)

    with monkeypatch.context() as patch:
        patch.setattr(follower, "ingest", cancelled)
        jobs = together(site, late="The cat sleeps on the wall.", beside="The dog sleeps under it.")
    assert "late.txt" not in jobs and jobs["beside.txt"]["state"] == "done"
    wait(lambda: "late.txt" not in site.names() and "beside.txt" in site.names())
    site.upload("late.txt", "The cat sleeps on the wall.")
    assert job(site, "late.txt")["state"] == "done" and "late.txt" in site.names()


def test_the_same_bytes_are_one_file_from_many_sides(site: Site) -> None:
    text = "The miller grinds rye at night."
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: site.upload(f"rye{number}.txt", text), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, answers
    (name,) = [job["name"] for job in site.settled() if job["name"].startswith("rye")]
    assert [row for row in site.names() if row.startswith("rye")] == [name]
    assert site.upload("grain.txt", text).json()["state"] == "done"
    assert job(site, name)["message"] == f"already in the library as {name}"


def test_notes_of_a_file_stay_with_it(site: Site) -> None:
    site.upload(
        "tin.eml",
        "Subject: Tin\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nTin is a metal.\n"
        "--b\nContent-Type: image/png\nContent-Disposition: attachment; filename=tin.png\n\nx\n--b--\n",
    )
    assert "tin.png" in " ".join(job(site, "tin.eml")["notes"])


def test_a_deleted_document_can_come_again(site: Site) -> None:
    """Also before its removal has been carried out."""
    mill = "The mill grinds rye and wheat by the river."
    site.upload("mill.txt", mill)
    site.settled()
    (key,) = keys(site, "mill.txt")
    with WriterLock(site.folder, timeout=60):  # the removal cannot be carried out yet
        site.client.delete(f"/api/documents/{key}")
        assert [row["removing"] for row in site.documents() if row["id"] == key] == [True]
        assert site.upload("mill.txt", mill).json()["state"] == "waiting"
    assert job(site, "mill.txt")["state"] == "done" and keys(site, "mill.txt") == [key]
    site.client.delete(f"/api/documents/{key}")
    wait(lambda: not keys(site, "mill.txt"))
    assert not [*site.folder.glob("files/*-mill.txt")]
    for address in (f"/api/documents/{key}", f"/documents/{key}"):
        assert site.client.request("DELETE" if "api" in address else "GET", address).status_code == 404


receive = ReaderProcess._receive


def failing(*_: Any) -> None:
    raise OSError("the device has no memory left")


def killed(reader: ReaderProcess, child: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
    child.kill()
    return receive(reader, child, until)


@pytest.mark.usefixtures("real_processes")
def test_the_work_goes_on_after_any_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file says what happened and can be tried again; writing and removing are tried again by themselves."""
    with monkeypatch.context() as patch:
        patch.setattr(ReaderProcess, "_receive", killed)
        site.upload("herons.txt", "Herons stand in the reeds.")
        failed = job(site, "herons.txt")
    assert failed["state"] == "failed" and "ended without a result (status -9)" in failed["message"]
    site.upload("herons.txt", "Herons stand in the reeds.")
    assert job(site, "herons.txt")["state"] == "done"
    with monkeypatch.context() as patch:
        patch.setattr(follower, "ingest", failing)
        site.upload("storks.txt", "Storks stand on one leg.")
        site.until(lambda p: "the device has no memory left" in p["busy"])
    assert job(site, "storks.txt")["state"] == "done"
    with monkeypatch.context() as patch:
        patch.setattr("eddy_demo.library.sync.remove_documents", failing)
        site.client.delete(f"/api/documents/{keys(site, 'storks.txt')[0]}")
        site.until(lambda p: "the device has no memory left" in p["busy"])
    wait(lambda: not keys(site, "storks.txt"))
    site.until(lambda p: not p["busy"])


def test_a_document_that_goes_while_it_is_opened(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.upload("brief.txt", "The mayfly lives for a day.")
    key = job(site, "brief.txt")["document"]
    read = Index.embedded

    def gone(index: Index, document: str) -> Any:
        site.client.delete(f"/api/documents/{key}")
        wait(lambda: not keys(site, "brief.txt"))
        return read(index, document)

    monkeypatch.setattr(Index, "embedded", gone)
    answer = site.client.get(f"/documents/{key}")
    assert (answer.status_code, "not in the library any more" in answer.text) == (404, True)


def test_an_edited_file_can_replace_the_one_before(site: Site) -> None:
    """Both are in the library until the older one is deleted."""
    first = together(site, plan="The boat sails at six.")["plan.txt"]
    site.client.post("/api/jobs/clear")
    second = together(site, plan="The boat sails at seven.")["plan.txt"]
    assert (first["older"], second["older"]) == ("", first["document"]) and site.names().count("plan.txt") == 2
    assert site.client.delete(f"/api/documents/{second['older']}").status_code == 200
    wait(lambda: site.names().count("plan.txt") == 1)
    assert job(site, "plan.txt")["older"] == ""
