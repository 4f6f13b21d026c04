"""One library and what becomes of it: no document, no model, other servers, other processes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, TIDES
from tests.demo.site import serving, wait

from eddy_demo.web.server import addresses, bind
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


def test_one_server_for_a_library(tmp_path: Path, run: Any) -> None:
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


def test_the_command_line_on_the_same_folder(tmp_path: Path, run: Any) -> None:
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
