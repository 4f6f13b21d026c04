"""One library and what becomes of it: no document, no model, other servers, other processes, made anew."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, CLOCK, TIDES, opened
from tests.demo.site import PATIENCE, long_text, serving, wait
from tests.processes import context, run_code

from eddy_demo.errors import DemoError
from eddy_demo.library import rebuild
from eddy_demo.library.defaults import default_method
from eddy_demo.library.index import open_library
from eddy_demo.library.settings import NEXT_SETTINGS, LibrarySettings, read_settings, write_settings
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.library_reader import LibraryOptions, LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.server import addresses, bind
from eddy_demo.web.uploads import library_writer
from eddy_demo.web.uploads.folder_watcher import FolderWatcher
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_demo.web.uploads.library_writer import LibraryWriter
from eddy_demo.web.uploads.stored_uploads import StoredUploads
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter
from eddy_embed.model.loading import inventory
from eddy_embed.model.loading.names import BUNDLED


def texts(folder: Path) -> dict[str, str]:
    with opened(folder) as index:
        return {str(each.metadata["name"]): each.text for each in index.documents()}


# --- Not to be read


def test_an_empty_library_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "library", method=None) as site:
        assert [name for name, _ in site.ask("Anything?")] == ["done"]
        assert "Nothing to ask yet" in site.client.get("/").text
        assert "No document yet. Choose some above" in site.client.get("/library").text
        assert not (tmp_path / "library" / "chroma").exists()
        assert site.client.post("/api/rebuild?model=eddy-tiny").status_code == 409
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


def test_a_model_that_fails_in_any_way_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise RuntimeError("the device has no memory left")

    monkeypatch.setattr(LibraryReader, "load", failing)
    reader = LibraryReader(LibraryOptions(tmp_path), ChangeSignal())
    jobs, limits = JobQueue(tmp_path, 1, ChangeSignal()), Limits()
    LibraryWriter(jobs, reader, limits, FolderWatcher(jobs, reader, limits))._run()
    with pytest.raises(DemoError, match=r"^RuntimeError: the device has no memory left$"):
        reader.wait()
    assert not reader.ready


# --- The next server


@pytest.mark.slow
def test_work_goes_on_with_the_next_server(tmp_path: Path) -> None:
    """Stopped while it embeds, then cancelled, then finished: every document once, whole, and nothing left over."""
    folder, text = tmp_path / "library", long_text(150)
    with serving(folder) as site:
        site.upload("first.txt", BREAD.encode())
        site.settled()
        site.pause()
        site.upload("long.txt", text.encode())
        site.upload("other.txt", long_text(150, seed=1).encode())
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
        assert index.incomplete() == []


@pytest.mark.slow
def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """Killed while it embeds: the next one finishes."""
    folder, text = tmp_path / "library", long_text(250)
    ours, theirs = context().Pipe()
    child = context().Process(target=held, args=(folder, text, theirs), daemon=True)
    child.start()
    assert ours.poll(PATIENCE) and ours.recv() == "embedding"
    child.kill()
    child.join()
    with StoredUploads(folder).lock(), serving(folder) as site:
        assert [job["state"] for job in site.settled()] == ["done"]
    assert texts(folder) == {"long.txt": text}


def held(folder: Path, text: str, told: Connection) -> None:
    """A server that is in the midst of a document until it is killed."""
    with StoredUploads(folder).lock(), serving(folder, paused=True) as site:
        site.upload("long.txt", text)
        told.send(site.halfway()["jobs"][0]["state"])
        threading.Event().wait()


# --- Other processes


def test_one_server_for_a_library(tmp_path: Path, run: Any) -> None:
    """Another one would take its uploads for what an earlier one left. A folder of somebody else's is left alone."""
    with StoredUploads(tmp_path / "library").lock():
        outcome = run("serve", "--library", tmp_path / "library", "--port", 0)
    assert outcome.code == 1
    assert "is served by another process: use its page, stop it first" in " ".join(outcome.err.split())
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine", encoding="utf-8")
    outcome = run("serve", "--library", foreign, "--port", 0)
    assert (outcome.code, "is not a library" in " ".join(outcome.err.split())) == (1, True)
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("host", "shown", "own"),
    [("0.0.0.0", "127.0.0.1", set()), ("127.0.0.1", "127.0.0.1", {"127.0.0.1"}), ("localhost", "127.0.0.1", None)],
)
def test_where_it_is_found(host: str, shown: str, own: set[str] | None) -> None:
    """Never at an address that is none, and under the name that it was given."""
    with bind(host, 0) as listener:
        address, answered = addresses(host, listener)
        assert address == f"http://{shown}:{listener.getsockname()[1]}/"
    assert answered == (own if own is not None else {"localhost", "127.0.0.1"})


def test_the_command_line_on_the_same_folder(tmp_path: Path) -> None:
    """Another process begins the library, adds to it, makes it anew, and puts another one in its place."""
    folder, first, second = tmp_path / "library", tmp_path / "bread.txt", tmp_path / "tides.md"
    first.write_text(BREAD, encoding="utf-8")
    second.write_text(TIDES, encoding="utf-8")
    with serving(folder, method="plain:exit=0") as site:
        done = {"passages": 0, "judged": None, "seconds": pytest.approx(0, abs=60)}
        assert site.ask("What does the moon do?") == [("done", done)]
        elsewhere("ingest", first, "--library", folder, "--method", "plain:exit=0")
        wait(lambda: site.names() == ["bread.txt"])
        version = site.state.reader.version
        elsewhere("ingest", second, "--library", folder)
        wait(lambda: site.state.reader.version > version)
        assert site.names() == ["bread.txt", "tides.md"]
        assert dict(site.ask("What does the moon pull towards it?", k=1))["hit"]["name"] == "tides.md"
        elsewhere("library", "rebuild", "--library", folder, "--method", "plain:exit=0+sif")
        hit = dict(site.ask("What does the moon pull towards it?", k=1))["hit"]
        assert site.client.get("/api/documents").json()["library"]["method"] == "plain:exit=0+sif"
        embedder = Embedder("eddy-tiny", method="plain:exit=0+sif")
        (passage,) = embedder.encode_long(TIDES, passage_size=128).passages
        cosine = passage.vector @ embedder.encode_query("What does the moon pull towards it?")
        assert (hit["name"], hit["cosine"]) == ("tides.md", pytest.approx(float(cosine), abs=1e-4))
        elsewhere("ingest", second, "--library", folder, "--rebuild", "--method", "plain:exit=0")
        wait(lambda: site.names() == ["tides.md"])
        assert "hit" in dict(site.ask("What does the moon pull towards it?", k=1))
        site.upload("clock.html", CLOCK)
        assert [job["state"] for job in site.settled()] == ["done"]
    with opened(folder) as index:
        assert {str(each.metadata["name"]) for each in index.documents()} == {"tides.md", "clock.html"}
        assert index.check() == {}


def test_a_library_is_replaced_that_was_looked_at_before_its_first_document(tmp_path: Path) -> None:
    """Whatever stayed open would read deleted files."""
    folder, settings = tmp_path / "library", LibrarySettings("eddy-tiny", "plain:exit=0")
    for name, text in (("bread.txt", BREAD), ("tides.md", TIDES)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with serving(folder, method="plain:exit=0") as site:
        with open_library(folder, Embedder("eddy-tiny", method="plain:exit=0"), settings):
            write_settings(folder, settings)
            site.state.reader.check_for_changes()
        for name in ("bread.txt", "tides.md"):
            elsewhere("ingest", tmp_path / name, "--library", folder, "--rebuild", "--method", "plain:exit=0")
            wait(lambda name=name: site.names() == [name])


@pytest.mark.slow
def test_a_library_in_place_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has looked yet: what is uploaded, or deleted, goes to the library that is there now."""
    folder, tides = tmp_path / "library", tmp_path / "tides.md"
    tides.write_text(TIDES, encoding="utf-8")
    with serving(folder) as site, monkeypatch.context() as patch:
        patch.setattr(library_writer, "_BUSY_SECONDS", 600.0)
        site.upload("bread.txt", BREAD)
        site.settled()
        (key,) = (row["id"] for row in site.documents())
        elsewhere("ingest", tides, "--library", folder, "--rebuild", "--method", "plain:exit=2")
        site.upload("clock.html", CLOCK)
        assert {job["name"]: job["state"] for job in site.settled()}["clock.html"] == "done"
        assert site.names() == ["clock.html", "tides.md"]
        elsewhere("ingest", tides, "--library", folder, "--rebuild", "--method", "htp:exit=2")
        site.client.delete(f"/api/documents/{next(row['id'] for row in site.documents() if row['name'] == 'tides.md')}")
        wait(lambda: not site.names())
        assert site.upload("bread.txt", BREAD).json()["state"] == "waiting"
        site.settled()
        assert [row["id"] for row in site.documents()] == [key]
    with opened(folder) as index:
        assert {str(each.metadata["name"]) for each in index.documents()} == {"bread.txt"}
        assert index.check() == {}


def elsewhere(*arguments: object) -> None:
    child = run_code("import sys; from eddy_demo.cli import main; sys.argv[0] = 'eddy-demo'; main()", *arguments)
    assert child.returncode == 0, child.stderr


# --- Made anew


def test_a_library_is_made_anew_through_the_page(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own model, or one that the list of models on this machine names; it answers until then."""
    question = "Who winds the weights by hand?"

    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidParameter("refused")

    folder = str(library.with_name("other"))
    shutil.copytree(BUNDLED["eddy-tiny"], folder)
    other = inventory.FoundModel(folder, "a folder", folder, 22)
    broken = inventory.FoundModel("broken", "Ollama", "nowhere", 1, problem="cut short")
    own = next(each for each in inventory.found() if each.name == "eddy-tiny")
    monkeypatch.setattr(inventory, "found", lambda: [own, other, broken])
    with serving(library, method=None) as site:
        site.settled()
        before = read_settings(library)
        with monkeypatch.context() as patch:
            patch.setattr(rebuild, "reindex", refuse)
            assert site.client.post("/api/rebuild?model=eddy-tiny").status_code == 200
            site.until(lambda p: "could not be made anew: refused" in p["busy"])
        assert not (library / NEXT_SETTINGS).exists(), "the next server would begin again"
        assert site.client.post("/api/rebuild?model=eddy-tiny").status_code == 200
        wait(lambda: site.client.get("/api/documents").json()["library"]["method"] == default_method("eddy-tiny"))
        wait(lambda: not (library / NEXT_SETTINGS).exists())
        assert read_settings(library) == replace(before, method=default_method("eddy-tiny"), plan="best")
        assert not site.until(lambda p: p["rebuilding"] is None)["busy"]
        assert "hit" in dict(site.ask(question))

        assert [(each["name"], each["own"]) for each in site.client.get("/api/models").json()] == [
            ("eddy-tiny", True),
            (other.name, False),
        ]
        for name in ("broken", "somebody/on-the-hub"):
            assert site.client.post("/api/rebuild", params={"model": name}).status_code == 404
        assert site.client.post("/api/rebuild", params={"model": other.name}).status_code == 200
        wait(lambda: site.client.get("/api/documents").json()["library"]["model"] == "other")
        wait(lambda: not (library / NEXT_SETTINGS).exists())
        settings = read_settings(library)
        assert (settings.model, settings.passage_size) == (other.name, before.passage_size)
        assert not site.until(lambda p: p["rebuilding"] is None)["busy"]
