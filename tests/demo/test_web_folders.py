"""Folders that the page watches: read, kept alike, and told of; only where nobody else can name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.demo.site import Site, long_text, serving, two_pages, wait

from chroma_eddy import Document, Index, WriteReport
from eddy_demo.library import sync
from eddy_demo.library.library import lock_library
from eddy_demo.web.library_reader import LibraryOptions
from eddy_demo.web.server import create_app


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
