"""One library: no document, no model, other servers and processes, and folders that the page watches."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.demo.conftest import BREAD, TIDES, run
from tests.demo.site import Site, long_text, serving, two_pages, wait

from chroma_eddy import Document, Index, WriteReport
from eddy_demo.library import sync
from eddy_demo.library.library import lock_library
from eddy_demo.web.library_reader import LibraryOptions
from eddy_demo.web.server import addresses, bind, create_app
from eddy_demo.web.uploads import Uploads
from eddy_embed import Embedder

# --- Not to be read


def test_an_empty_library_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "library", method=None) as site:
        assert [name for name, _ in site.ask("Anything?")] == ["done"]
        assert "Nothing to ask yet" in site.client.get("/").text
        assert "No document yet. Choose some above" in site.client.get("/library").text
        assert not (tmp_path / "library" / "chroma").exists()
        site.upload("bread.txt", BREAD)
        assert [job["state"] for job in site.settled()] == ["done"]


def test_without_a_model_it_says_why(tmp_path: Path) -> None:
    """Nothing hangs: the page and every question tell the same."""
    with serving(tmp_path / "library", model=str(tmp_path / "nowhere")) as site:
        told = site.until(lambda p: p["error"])["error"]
        assert "nowhere" in told
        answer = site.client.get("/api/ask?q=Anything")
        assert (answer.status_code, answer.json()["error"]) == (400, told)
        assert site.client.get("/api/health").json() == {"alive": True, "ready": False}


# --- Other processes


def test_one_server_for_a_library(tmp_path: Path) -> None:
    """Another one would take its uploads for what an earlier one left. A folder of somebody else's is left alone."""
    with Uploads(tmp_path / "library").serve():
        outcome = run("serve", "--library", tmp_path / "library", "--port", 0)
    assert outcome.code == 1
    assert "is served by another process: use its page, stop it first" in " ".join(outcome.err.split())
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine", encoding="utf-8")
    outcome = run("serve", "--library", foreign, "--port", 0)
    assert (outcome.code, "is not a library" in " ".join(outcome.err.split())) == (1, True)
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]


def test_where_it_is_found() -> None:
    """Never at an address that is none, and under the name that it was given."""
    for host, names in (("0.0.0.0", set()), ("127.0.0.1", {"127.0.0.1"}), ("localhost", {"localhost", "127.0.0.1"})):
        with bind(host, 0) as listener:
            found = (f"http://127.0.0.1:{listener.getsockname()[1]}/", names)
            assert addresses(host, listener) == found, host


def test_the_command_line_on_the_same_folder(tmp_path: Path) -> None:
    """It begins the library, adds to it, makes it anew, and deletes it."""
    folder, first, second = tmp_path / "library", tmp_path / "bread.txt", tmp_path / "tides.md"
    first.write_text(BREAD, encoding="utf-8")
    second.write_text(TIDES, encoding="utf-8")
    question = "What does the moon pull towards it?"
    with serving(folder, method="plain:exit=0") as site:
        done = {"passages": 0, "reranked": None, "seconds": pytest.approx(0, abs=60)}
        assert site.ask(question) == [("done", done)]
        assert run("ingest", first, "--library", folder, "--method", "plain:exit=0").code == 0
        wait(lambda: site.names() == ["bread.txt"])
        version = site.state.reader.version
        assert run("ingest", second, "--library", folder).code == 0
        wait(lambda: site.state.reader.version > version)
        assert site.names() == ["bread.txt", "tides.md"]
        assert dict(site.ask(question, k=1))["hit"]["name"] == "tides.md"
        assert run("library", "rebuild", "--library", folder, "--method", "plain:exit=0+sif").code == 0
        hit = dict(site.ask(question, k=1))["hit"]
        assert site.state.reader.settings.method == "plain:exit=0+sif"
        embedder = Embedder("eddy-tiny", method="plain:exit=0+sif")
        (passage,) = embedder.encode_long(TIDES, passage_size=128).passages
        cosine = passage.vector @ embedder.encode_query(question)
        assert (hit["name"], hit["cosine"]) == ("tides.md", pytest.approx(float(cosine), abs=1e-4))
        shutil.rmtree(folder / "chroma")
        site.until(lambda p: "was deleted, or another one put there: start the page again" in p["busy"])


@pytest.fixture(autouse=True)
def noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are looked for more often than users need."""
    monkeypatch.setattr(sync, "_TICK_MS", 100)
    monkeypatch.setattr(sync, "_QUIET_MS", 50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    (made / "sub").mkdir(parents=True)
    (made / "tin.txt").write_text("Tin keeps cans from rust.", encoding="utf-8")
    (made / "sub" / "two.pdf").write_bytes(two_pages())
    (made / "picture.png").write_bytes(b"\x89PNG")
    return made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "library", method="plain:exit=0") as site:
        yield site


def is_read(folder: dict[str, Any]) -> bool:
    return bool(folder["state"] == "watching")


def test_the_next_server_goes_on(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with serving(tmp_path / "library", method="plain:exit=0") as site:
        for each in (folder, other):
            site.watch(each)
        site.until(lambda progress: all(map(is_read, progress["folders"])) and len(progress["folders"]) == 2)
    (folder / "tin.txt").unlink()
    (other / "zinc.txt").write_text("Zinc keeps iron from rust.", encoding="utf-8")
    with serving(tmp_path / "library", method="plain:exit=0") as site:
        wait(lambda: site.state.reader.ready and site.names() == ["sub/two.pdf", "zinc.txt"])


def test_an_error_of_the_machine_ends_when_it_does(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_watch` has that of a text, which stays with it."""
    upsert, fails = Index.upsert, True

    def failing(index: Index, documents: Iterable[Document], *options: Any) -> WriteReport:
        given = list(documents)
        if fails and any("Tin" in document.text for document in given):
            raise OSError("the disk is full")
        return upsert(index, given, *options)

    monkeypatch.setattr(Index, "upsert", failing)
    site.watch(folder)
    assert site.watched(lambda own: own["skipped"])["skipped"] == ["the disk is full"]
    fails = False
    (folder / "zinc.txt").write_text("Zinc keeps iron from rust.", encoding="utf-8")
    wait(lambda: "zinc.txt" in site.names())
    site.watched(is_read)
    assert "tin.txt" in site.names() and site.watched(lambda own: not own["skipped"])


def test_what_is_more_urgent_comes_between(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is read a few files at a time; uploads are read between two steps, and a removal interrupts one."""
    monkeypatch.setattr(sync, "BATCH_FILES", 2)
    for number in range(4):
        (folder / f"{number}.txt").write_text(long_text(5, seed=number), encoding="utf-8")
    with lock_library(site.folder):
        site.watch(folder)
        site.watched(lambda own: own["state"] == "waiting")
        site.upload("gold.txt", "Gold does not rust.")
    wait(lambda: "gold.txt" in site.names())
    (row,) = (row for row in site.documents() if row["name"] == "gold.txt")
    site.client.delete(f"/api/documents/{row['id']}")
    told = site.watched(lambda own: is_read(own) and not own["left"])
    assert told["files"] == 6 and len(site.names()) == 6


def test_what_is_not_watched(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.upload("gold.txt", "Gold does not rust.")
    site.settled()
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda *_: False)
        assert site.watch(folder).status_code == 409, "a read-only library watches nothing"
    (folder / "file.txt").write_text("A file.", encoding="utf-8")
    for path, status, told in (
        ("notes", 400, "type the whole path, such as "),
        ("", 400, "type the whole path"),
        (folder / "none", 404, f"there is no folder {folder / 'none'} on this machine"),
        (folder / "file.txt", 404, "there is no folder"),
        ("/", 400, "is all of this machine"),
        (site.folder, 400, "belongs to the library itself"),
    ):
        answer = site.watch(path)
        assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
    assert site.watch(folder).status_code == 200
    assert "is watched already, with" in site.watch(folder / "sub").json()["error"]
    assert site.client.delete("/api/folders", params={"path": "/nowhere"}).status_code == 404


async def test_only_a_page_of_this_machine_alone_watches(tmp_path: Path, folder: Path) -> None:
    for options, client, offered in (
        ({}, "127.0.0.1", True),
        ({}, "::1", True),
        ({}, "10.0.0.7", False),  # a proxy on this machine names its client
        ({"hosts": ["127.0.0.1", "localhost"]}, "127.0.0.1", True),
        ({"hosts": ["library.example"]}, "127.0.0.1", False),
        ({"access_token": "secret"}, "127.0.0.1", False),
    ):
        guard = create_app(LibraryOptions(tmp_path / "library"), **options)
        headers = {"x-eddy-token": guard.token, "authorization": "Bearer secret"}
        transport = httpx.ASGITransport(guard, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9", headers=headers) as asking:
            for method in ("POST", "DELETE"):
                answer = await asking.request(method, "/api/folders", params={"path": str(folder)})
                assert answer.status_code == (200 if offered else 403), (options, client, answer.text)
            is_local = "access_token" not in options and "library.example" not in options.get("hosts", ())
            assert ("Watch this folder" in (await asking.get("/library")).text) == is_local
