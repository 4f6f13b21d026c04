"""Files in, documents out: a real server, the real model, a real database."""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import pytest
from reportlab.pdfgen.canvas import Canvas
from tests.demo.conftest import BREAD, CLOCK, TIDES, opened
from tests.demo.site import Site, long_text, serving, wait
from tests.demo.word_files import bomb, docx
from tests.processes import context
from tests.selection import slow

from eddy_demo.cli import main
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.upload_queue import clean_name

FILES = {"tides.md": TIDES, "bread.txt": BREAD, "clock.html": CLOCK}


def pdf(*pages: str) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out, invariant=True)
    for page in pages:
        canvas.drawString(72, 700, page)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library", Limits(file_bytes=200_000, pages=2)) as site:
        yield site


def texts(folder: Path) -> dict[str, str]:
    with opened(folder) as index:
        return {str(each.metadata["name"]): each.text for each in index.documents()}


def uploads(site: Site) -> list[str]:
    return [path.name for path in (site.folder / "uploads").glob("*")]


def test_files_become_documents(site: Site) -> None:
    for name, text in FILES.items():
        assert site.upload(name, text.encode()).status_code == 200
    site.upload("letter.docx", docx("The mill stands by the river."))
    site.upload("pages.pdf", pdf("The first page speaks of eels.", "The second page speaks of herons."))
    jobs = site.settled()
    assert {job["name"]: job["state"] for job in jobs} == dict.fromkeys((*FILES, "letter.docx", "pages.pdf"), "done"), (
        jobs
    )
    assert {row["name"] for row in site.documents()} == {*FILES, "letter.docx", "pages.pdf"}
    assert {row["name"]: row["pages"] for row in site.documents()}["pages.pdf"] == 2
    (hit,) = [
        data for name, data in site.ask("What does the second page speak of?", 50) if data.get("name") == "pages.pdf"
    ]
    assert (hit["page"], hit["last_page"]) == (1, 2)
    assert texts(site.folder)["bread.txt"] == BREAD
    assert uploads(site) == []
    page = site.client.get(f"/documents/{next(job['document'] for job in jobs if job['name'] == 'tides.md')}").text
    assert "The moon pulls the water of the sea towards it." in page


def test_the_same_content_is_taken_once(site: Site) -> None:
    site.upload("bread.txt", BREAD.encode())
    site.settled()
    before = len(site.documents())
    assert site.upload("other name.txt", BREAD.encode()).json()["state"] == "known"
    site.upload("marked.txt", b"\xef\xbb\xbf" + BREAD.encode())  # other bytes, and the same text
    jobs = {job["name"]: job for job in site.settled()}
    for name in ("other name.txt", "marked.txt"):
        assert (jobs[name]["state"], jobs[name]["message"]) == ("known", "already in the library as bread.txt")
    assert len(site.documents()) == before
    assert uploads(site) == []


@pytest.mark.parametrize(
    ("name", "data", "status", "told"),
    [
        ("virus.exe", b"MZ", 415, "virus.exe is of a type that is not read; readable are .txt"),
        ("rows.jsonl", b"{}", 415, "is of a type that is not read"),
        ("empty.txt", b"", 400, "empty.txt is empty"),
        ("large.txt", b"x" * 200_001, 413, "it is larger than"),
    ],
)
def test_what_is_not_taken(site: Site, name: str, data: bytes, status: int, told: str) -> None:
    answer = site.upload(name, data)
    assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
    assert uploads(site) == []


def test_a_body_of_unknown_length_is_counted(site: Site) -> None:
    answer = site.client.post("/api/uploads?name=a.txt", content=(b"x" * 50_000 for _ in range(5)))
    assert answer.status_code == 413
    assert uploads(site) == []


def test_what_cannot_be_read_says_why(site: Site) -> None:
    """A failed file is kept, to be tried again or put away; the others are written."""
    site.upload("broken.pdf", b"%PDF-1.4 nothing more")
    site.upload("latin.txt", "Schöne Grüße".encode("latin-1"))
    site.upload("three.pdf", pdf("One.", "Two.", "Three."))
    site.upload("odd.pdf", pdf("One.").replace(b"/Root", b"/Encrypt << /Filter /Other >> /Root"))
    failing = ("broken.pdf", "latin.txt", "three.pdf", "odd.pdf")
    jobs = {job["name"]: job for job in site.settled()}
    assert {jobs[name]["state"] for name in failing} == {"failed"}
    assert "not UTF-8: byte 0xf6 at position 3" in jobs["latin.txt"]["message"]
    assert "it has 3 pages, and at most 2 are read" in jobs["three.pdf"]["message"]
    assert "damaged, or no PDF file: open it in a PDF reader" in jobs["odd.pdf"]["message"]
    assert len(uploads(site)) == 8
    assert site.client.post(f"/api/jobs/{jobs['latin.txt']['id']}/retry").status_code == 200
    site.settled()
    for name in failing:
        assert site.client.post(f"/api/jobs/{jobs[name]['id']}/cancel").status_code == 200
    assert uploads(site) == []
    assert site.client.post(f"/api/jobs/{jobs['latin.txt']['id']}/cancel").status_code == 404


def test_a_document_is_taken_out(site: Site) -> None:
    site.upload("short.txt", b"A short note about lighthouses.")
    key = {job["name"]: job for job in site.settled()}["short.txt"]["document"]
    assert site.client.delete(f"/api/documents/{key}").status_code == 200
    wait(lambda: key not in {row["id"] for row in site.documents()})
    assert "short.txt" not in texts(site.folder)
    assert site.client.delete(f"/api/documents/{key}").status_code == 404
    assert site.client.get(f"/documents/{key}").status_code == 404


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
    from eddy_demo.web.uploads.upload_queue import Upload, UploadQueue

    shown = clean_name(name)
    assert shown == "" or not set(shown) & set("/\\\0\n\u202e")
    assert len(shown) <= 150
    library = tmp_path / "library"
    queue = UploadQueue(library)
    part = queue.new_part()
    part.write_bytes(b"text")
    queue.keep(part, Upload("ab" * 32, shown, 4))
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {
        f"library/uploads/{'ab' * 32}",
        f"library/uploads/{'ab' * 32}.json",
    }
    assert [upload.name for upload in UploadQueue(library).load()] == [shown]
    with pytest.raises(ValueError, match="is no hash"):
        queue.content_path("../library.json")


@pytest.mark.parametrize(
    ("limits", "name", "data", "told"),
    [
        (Limits(parse_seconds=0.3), "a.html", b"<p>word</p>" * 300_000, "took longer than 0.3 seconds and was stopped"),
        (Limits(characters=1000), "a.txt", b"word" * 300, "has 1,200 characters, and at most 1,000 are read"),
        slow(Limits(parse_bytes=200 * 2**20), "bomb.docx", None, "takes more memory than is allowed"),
    ],
    ids=["time", "characters", "memory"],
)
def test_reading_is_bounded(tmp_path: Path, limits: Limits, name: str, data: bytes | None, told: str) -> None:
    with serving(tmp_path / "library", limits) as site:
        site.upload(name, bomb() if data is None else data)
        (job,) = site.settled()
        assert job["state"] == "failed"
        assert told in job["message"]


def test_work_goes_on_with_the_next_server(tmp_path: Path) -> None:
    """Stopped while it embeds, then cancelled, then finished: every document once, whole, and nothing left over."""
    folder, text = tmp_path / "library", long_text(100)
    with serving(folder) as site:
        site.upload("first.txt", BREAD.encode())
        site.settled()
        site.pause()
        site.upload("long.txt", text.encode())
        site.upload("other.txt", long_text(100, seed=1).encode())
        site.halfway()
    assert len(list((folder / "uploads").glob("*.json"))) == 2
    with serving(folder, paused=True) as site:
        told = site.halfway()
        jobs = {job["name"]: job for job in told["jobs"]}
        assert set(jobs) == {"long.txt", "other.txt"}
        assert told["left"] > 0
        assert site.client.post(f"/api/jobs/{jobs['other.txt']['id']}/cancel").status_code == 200
        site.resume()
        assert {job["name"]: job["state"] for job in site.settled()} == {"long.txt": "done"}
    assert texts(folder) == {"first.txt": BREAD, "long.txt": text}
    assert list((folder / "uploads").iterdir()) == []
    with opened(folder) as index:
        assert index.check() == {}
        assert index.incomplete() == {}


@pytest.mark.slow
def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """The command itself, killed while it embeds: the next one finishes."""
    folder, text = tmp_path / "library", long_text(250)

    def start() -> tuple[BaseProcess, httpx.Client]:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        child = context().Process(target=command, args=(folder, port), daemon=True)
        child.start()
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

        def answers() -> bool:
            assert child.is_alive()
            try:
                return bool(client.get("/api/health").json()["ready"])
            except httpx.ConnectError:
                return False

        wait(answers)
        return child, client

    child, client = start()
    page = client.get("/library").text
    client.headers["x-eddy-token"] = page.split('name="token" content="')[1].split('"')[0]
    assert client.post("/api/uploads?name=long.txt", content=text.encode()).status_code == 200
    wait(lambda: (folder / "library.json").exists() or '"embedding"' in _first(client))
    child.kill()
    child.join()
    client.close()
    child, client = start()
    wait(lambda: client.get("/api/documents").json()["documents"])
    assert '"done"' in _first(client)
    client.close()
    child.terminate()
    child.join(60)
    assert child.exitcode == 0 if os.name == "posix" else True
    assert texts(folder) == {"long.txt": text}


def command(folder: Path, port: int) -> None:
    sys.argv = ["eddy-demo", "serve", "--library", str(folder), "--method", "htp:exit=2", "--port", str(port)]
    main()


def _first(client: httpx.Client) -> str:
    with client.stream("GET", "/api/events") as response:
        return next(line for line in response.iter_lines() if line.startswith("data"))
