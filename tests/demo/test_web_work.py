"""What the writing thread does with uploads that come, go and come again."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.killing import SAVED_OFTEN
from tests.demo.conftest import BREAD
from tests.demo.site import Site, serving, wait

from chroma_eddy.storage import store
from chroma_eddy.storage.locks import Lock
from eddy_demo.library.index import open_library
from eddy_demo.library.rebuild import rebuild_library
from eddy_demo.library.settings import NEXT_SETTINGS, read_settings, write_settings
from eddy_demo.readers.process import ReaderProcess
from eddy_demo.web.http.events import encode_event
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.uploads import library_writer
from eddy_embed import Embedder
from eddy_embed.model.loading import inventory
from eddy_embed.model.loading.names import BUNDLED


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library") as site:
        site.upload("other.txt", "A lighthouse stands on the cliff. Its lamp is lit at dusk.")
        site.settled()
        yield site


def named(site: Site, name: str) -> list[str]:
    return [row["id"] for row in site.documents() if row["name"] == name]


def test_a_deleted_document_can_come_again(site: Site) -> None:
    """Also where it is still listed as known, and before its removal has been carried out."""
    for state in ("waiting", "known"):
        assert site.upload("bread.txt", BREAD).json()["state"] == state
        site.settled()
    (key,) = named(site, "bread.txt")
    site.client.delete(f"/api/documents/{key}")
    wait(lambda: not named(site, "bread.txt"))
    site.upload("bread.txt", BREAD)
    site.settled()
    assert named(site, "bread.txt") == [key]
    with Lock(site.folder, timeout=60):  # the removal cannot be carried out yet
        site.client.delete(f"/api/documents/{key}")
        assert site.upload("bread.txt", BREAD).json()["state"] == "waiting"
    assert [job["state"] for job in site.settled() if job["document"] == key] == ["done"]
    wait(lambda: not site.state.jobs.pending_removals())
    assert named(site, "bread.txt") == [key]


def test_an_event_has_no_line_ends_of_a_script() -> None:
    told = encode_event("hit", {"text": "one\u2028two\u2029three\x85four é"}).decode()
    assert len(told.splitlines()) == 3
    assert json.loads(told.split("data: ")[1]) == {"text": "one\u2028two\u2029three\x85four é"}


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
    (key,) = named(site, "note.txt")
    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "remove_documents", failing)
        site.client.delete(f"/api/documents/{key}")
        site.until(lambda p: "the device has no memory left" in p["busy"])
    site.until(lambda p: not p["busy"])
    assert not named(site, "note.txt")


def test_a_model_that_fails_in_any_way_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LibraryReader, "load", failing)
    with serving(tmp_path / "library") as site:
        told = site.until(lambda p: p["error"])["error"]
        assert "the device has no memory left" in told
        assert site.client.get("/api/ask?q=Anything").json()["error"] == told


def test_a_library_whose_vectors_are_damaged_says_how_to_repair_it(library: Path, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "_COSINE_CONFIG", SAVED_OFTEN)
    assert run("library", "reindex", "--library", library).code == 0
    for file in library.rglob("data_level0.bin"):  # Chroma would end the process
        file.write_bytes(b"\xab" * file.stat().st_size)
    with serving(library, method=None) as site:
        assert "eddy-demo library repair" in site.until(lambda p: p["error"])["error"]
        assert site.client.get("/api/health").status_code == 200


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


def test_a_library_is_made_anew_through_the_page(site: Site) -> None:
    """One that cannot be is told, and not begun again by the next server."""
    before = read_settings(site.folder)
    write_settings(site.folder, replace(before, default="htp+abtt:k=500"))
    site.client.post("/api/rebuild")
    site.until(lambda p: "could not be made anew" in p["busy"])
    assert not (site.folder / NEXT_SETTINGS).exists()
    write_settings(site.folder, replace(before, default="plain"))
    assert site.client.post("/api/rebuild").status_code == 200
    wait(lambda: site.client.get("/api/documents").json()["library"]["method"] == "plain")
    assert read_settings(site.folder).method == "plain"
    assert not site.until(lambda p: p["rebuilding"] is None)["busy"]
    assert "hit" in dict(site.ask("Where does the lighthouse stand?"))


def test_a_library_is_made_anew_with_another_model(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the list of models on this machine names, and no other; the old library answers until then."""
    before = read_settings(site.folder)
    folder = str(site.folder.with_name("other"))
    shutil.copytree(BUNDLED["eddy-tiny"], folder)
    other = inventory.FoundModel(folder, "a folder", folder, 22)
    broken = inventory.FoundModel("broken", "Ollama", "nowhere", 1, problem="cut short")
    own = next(each for each in inventory.found() if each.name == "eddy-tiny")
    monkeypatch.setattr(inventory, "found", lambda: [own, other, broken])
    assert [(each["name"], each["own"]) for each in site.client.get("/api/models").json()] == [
        ("eddy-tiny", True),
        (other.name, False),
    ]
    for name in ("broken", "somebody/on-the-hub"):
        assert site.client.post("/api/rebuild", params={"model": name}).status_code == 404
    assert site.client.post("/api/rebuild", params={"model": other.name}).status_code == 200
    wait(lambda: site.client.get("/api/documents").json()["library"]["model"] == other.name)
    settings = read_settings(site.folder)
    assert (settings.model, settings.passage_size) == (other.name, before.passage_size)
    assert not site.until(lambda p: p["rebuilding"] is None)["busy"]
    assert "hit" in dict(site.ask("Where does the lighthouse stand?"))


def test_nothing_cannot_be_made_anew(tmp_path: Path) -> None:
    with serving(tmp_path / "library") as site:
        assert site.client.post("/api/rebuild").status_code == 409
        site.upload("bread.txt", BREAD)
        assert [job["state"] for job in site.settled()] == ["done"]


def test_a_library_made_anew_elsewhere_is_opened_anew(site: Site) -> None:
    """As the command line does it beside an open page: the next question is embedded by the new method."""
    question = "Where does the lighthouse stand?"
    settings = replace(read_settings(site.folder), method="htp:exit=2")
    embedder = Embedder(settings.model, method=settings.method)
    with Lock(site.folder, timeout=60):
        rebuild_library(site.folder, settings, embedder)
    hit = dict(site.ask(question, k=1))["hit"]
    with open_library(site.folder, embedder) as index:
        assert hit["cosine"] == pytest.approx(index.query(question, 1)[0].cosine, abs=1e-4)
    assert site.client.get("/library").status_code == site.client.get("/why").status_code == 200
    assert site.client.get("/api/documents").json()["library"]["method"] == "htp:exit=2"
