"""The method that a new library takes when nobody names one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import opened

from eddy_demo.library.settings import read_settings
from eddy_demo.readers.documents import read_documents
from eddy_embed import Embedder
from eddy_embed.methods.recommended import Recommendation

# The package's attribute of this name is the method.
recommended = importlib.import_module("eddy_embed.methods.recommended")

Run = Callable[..., Any]
MODEL = "eddy-tiny"
BEST = "plain:exit=-3+whiten"
HERBS = ("Sage", "Mint", "Thyme", "Dill", "Basil", "Chervil", "Lovage", "Fennel", "Anise", "Borage")
PLACES = ("in the shade", "by the wall", "under glass", "in a pot", "on the slope", "near the well")


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recommendation], None]:
    """Another entry of the bundled model in the table; the function puts a further one in its place."""

    def put(chosen: Recommendation) -> None:
        entry = recommended.Entry("for this test", chosen, Recommendation("plain"))
        monkeypatch.setitem(recommended._OWN, ("llama", 8, 320, 8192), entry)

    put(Recommendation("plain:exit=-3", post="whiten"))
    return put


def write_many(folder: Path) -> None:
    sentences = [f"{herb} grows {place}." for herb in HERBS for place in PLACES]
    (folder / "herbs.txt").write_text(" ".join(sentences), encoding="utf-8")


def test_a_small_library_leaves_post_processing_out_until_it_is_made_anew(
    documents: Path, tmp_path: Path, run: Run, table: Callable[[Recommendation], None]
) -> None:
    library = tmp_path / "library"
    ingest = ("ingest", documents, "--library", library, "--model", MODEL, "--passage-size", 12)
    made = run(*ingest)
    assert made.code == 0, made.err
    assert made.err.count("recommended") == made.err.count(f"Method {BEST}: recommended for retrieval on {MODEL}") == 1
    assert f"too few to fit the post-processing of {BEST}" in " ".join(made.err.split())
    stored = read_settings(library)
    assert (stored.method, stored.default) == ("plain:exit=-3", BEST)
    embedder = Embedder(MODEL, method="plain:exit=-3")
    with opened(library) as index:
        assert index.post is None and index.settings.fingerprint == embedder.fingerprint
        document = read_documents([documents]).documents[0]
        hits = index.search(embedder.encode_long(document.text, passage_size=12).passages[0].vector, 1)
    assert hits[0][0].cosine == pytest.approx(1, abs=1e-5)
    assert run("ask", "Who winds the weights?", "--library", library).code == 0
    refused = run(*ingest, "--method", BEST)
    assert refused.code == 1
    assert "--rebuild" in refused.err

    write_many(documents)
    grown = run(*ingest)
    assert "recommended" not in grown.err
    assert f"enough now for {BEST}" in " ".join(grown.err.split())
    assert read_settings(library) == stored

    anew = run(*ingest, "--rebuild")
    assert anew.code == 0, anew.err
    assert "Stored with" not in anew.err
    settings = read_settings(library)
    assert (settings.method, settings.default) == (BEST, BEST)
    with opened(library) as index:
        fitted = index.post
        assert fitted is not None and fitted.count >= 50
        embedder = Embedder(MODEL, method=BEST, fitted=fitted)
        assert index.settings.fingerprint == embedder.fingerprint
        expected = embedder.encode_long(document.text, passage_size=12).passages[0].vector
        assert index.search(expected, 1)[0][0].cosine == pytest.approx(1, abs=1e-4)

    # What the table says later changes no library.
    table(Recommendation("tp"))
    assert run("ask", "Where does mint grow?", "--library", library).code == 0
    refused = run("ask", "Where does mint grow?", "--library", library, "--method", "recommended")
    assert refused.code == 1 and f"with method {BEST}, not tp" in refused.err


@pytest.mark.parametrize("copies", [1, 60])
def test_passages_that_are_all_alike_are_stored(copies: int, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "alike"
    folder.mkdir()
    for at in range(copies):
        (folder / f"{at}.txt").write_text("The ferry leaves at noon.", encoding="utf-8")
    made = run("ingest", folder, "--library", tmp_path / "library", "--model", MODEL)
    assert made.code == 0, made.err
    assert "1 different passage" in made.err
    assert read_settings(tmp_path / "library").method == "plain:exit=-3"


def test_a_named_method_and_one_without_post_processing(
    documents: Path, tmp_path: Path, run: Run, table: Callable[[Recommendation], None]
) -> None:
    made = run("ingest", documents, "--library", tmp_path / "named", "--model", MODEL, "--method", "tp+centre")
    assert made.code == 0, made.err
    assert "recommended" not in made.err
    assert (read_settings(tmp_path / "named").method, read_settings(tmp_path / "named").default) == ("tp+centre", "")
    table(Recommendation("plain:exit=0+sif"))
    made = run("demo", documents, "-q", "Who winds the weights?", "--library", tmp_path / "bare", "--model", MODEL)
    assert made.code == 0, made.err
    assert made.err.count("Method plain:exit=0+sif: recommended for retrieval on eddy-tiny") == 1
    settings = read_settings(tmp_path / "bare")
    assert settings.method == settings.default == "plain:exit=0+sif"
    # The alias is stored in full.
    made = run("ingest", documents, "--library", tmp_path / "alias", "--model", MODEL, "--method", "recommended")
    assert made.code == 0, made.err
    settings = read_settings(tmp_path / "alias")
    assert (settings.method, settings.default) == ("plain:exit=0+sif", "")


def test_a_model_that_is_not_there_is_named(documents: Path, tmp_path: Path, run: Run) -> None:
    refused = run("ingest", documents, "--library", tmp_path / "library", "--model", str(tmp_path / "nowhere"))
    assert refused.code == 1 and "nowhere" in refused.err and "Traceback" not in refused.err
    assert not (tmp_path / "library").exists()


def test_another_model_takes_the_method_recommended_for_it(
    documents: Path, tmp_path: Path, run: Run, table: Callable[[Recommendation], None]
) -> None:
    library = tmp_path / "library"
    assert run("ingest", documents, "--library", library, "--model", MODEL, "--method", "plain:exit=2").code == 0
    table(Recommendation("plain:exit=1"))
    made = run("library", "reindex", "--library", library)
    assert made.code == 0 and read_settings(library).method == "plain:exit=2", made.err
    made = run("library", "reindex", "--library", library, "--model", MODEL)
    assert made.code == 0, made.err
    settings = read_settings(library)
    assert settings.method == settings.default == "plain:exit=1"
