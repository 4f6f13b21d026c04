"""The method that a new library takes when nobody names one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import opened

from eddy_demo.library.defaults import DEFAULT_METHOD
from eddy_demo.library.recipe import read_recipe
from eddy_demo.readers.documents import read_documents
from eddy_embed import Embedder
from eddy_embed.model.loading.names import BUNDLED

Run = Callable[..., Any]
BEST = "plain:exit=-3+whiten"
HERBS = ("Sage", "Mint", "Thyme", "Dill", "Basil", "Chervil", "Lovage", "Fennel", "Anise", "Borage")
PLACES = ("in the shade", "by the wall", "under glass", "in a pot", "on the slope", "near the well")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The bundled model in a folder of its own, with another default."""
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED["eddy-tiny"], folder)
    write_default(folder, {"retrieval": {"method": BEST, "task": "made-up"}})
    return folder


def write_default(folder: Path, values: object) -> None:
    (folder / "defaults.json").write_text(json.dumps(values), encoding="utf-8")


def write_many(folder: Path) -> None:
    sentences = [f"{herb} grows {place}." for herb in HERBS for place in PLACES]
    (folder / "herbs.txt").write_text(" ".join(sentences), encoding="utf-8")


def test_the_bundled_defaults_were_chosen_for_the_bundled_weights() -> None:
    told = json.loads((BUNDLED["eddy-tiny"] / "defaults.json").read_text(encoding="utf-8"))
    whole = Embedder("eddy-tiny", method="plain").settings
    for part in ("weights", "tokenizer"):
        assert told[part] == whole[part], "run benchmarks/choose.py again"
    for purpose in ("similarity", "retrieval"):
        assert Embedder("eddy-tiny", method=told[purpose]["method"]).dimension == 320


def test_a_small_library_leaves_post_processing_out_until_it_is_made_anew(
    model: Path, documents: Path, tmp_path: Path, run: Run
) -> None:
    library = tmp_path / "library"
    ingest = ("ingest", documents, "--library", library, "--model", model, "--passage-size", 12)
    made = run(*ingest)
    assert made.code == 0, made.err
    assert f"Method {BEST}: measured best for {model}" in made.err
    assert f"too few to fit the post-processing of {BEST}" in " ".join(made.err.split())
    stored = read_recipe(library)
    assert (stored.method, stored.default) == ("plain:exit=-3", BEST)
    embedder = Embedder(model, method="plain:exit=-3")
    with opened(library) as index:
        assert index.post is None and index.recipe.fingerprint == embedder.fingerprint
        document = read_documents([documents]).documents[0]
        hits = index.search(embedder.encode_long(document.text, passage_size=12).passages[0].vector, 1)
    assert hits[0][0].cosine == pytest.approx(1, abs=1e-5)
    assert run("ask", "Who winds the weights?", "--library", library).code == 0
    refused = run(*ingest, "--method", BEST)
    assert refused.code == 1
    assert "--rebuild" in refused.err

    write_many(documents)
    grown = run(*ingest)
    assert "measured best" not in grown.err
    assert f"enough now for {BEST}" in " ".join(grown.err.split())
    assert read_recipe(library) == stored

    anew = run(*ingest, "--rebuild")
    assert anew.code == 0, anew.err
    assert "Stored with" not in anew.err
    recipe = read_recipe(library)
    assert (recipe.method, recipe.default) == (BEST, BEST)
    with opened(library) as index:
        fitted = index.post
        assert fitted is not None and fitted.count >= 50
        embedder = Embedder(model, method=BEST, post=fitted)
        assert index.recipe.fingerprint == embedder.fingerprint
        expected = embedder.encode_long(document.text, passage_size=12).passages[0].vector
        assert index.search(expected, 1)[0][0].cosine == pytest.approx(1, abs=1e-4)

    # What the folder says later changes no library.
    write_default(model, {"retrieval": {"method": "tp"}})
    assert run("ask", "Where does mint grow?", "--library", library).code == 0


@pytest.mark.parametrize("copies", [1, 60])
def test_passages_that_are_all_alike_are_stored(copies: int, model: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "alike"
    folder.mkdir()
    for at in range(copies):
        (folder / f"{at}.txt").write_text("The ferry leaves at noon.", encoding="utf-8")
    made = run("ingest", folder, "--library", tmp_path / "library", "--model", model)
    assert made.code == 0, made.err
    assert "1 different passage" in made.err
    assert read_recipe(tmp_path / "library").method == "plain:exit=-3"


def test_a_named_method_and_a_model_without_defaults(model: Path, documents: Path, tmp_path: Path, run: Run) -> None:
    made = run("ingest", documents, "--library", tmp_path / "named", "--model", model, "--method", "tp+centre")
    assert made.code == 0, made.err
    assert "measured best" not in made.err
    assert (read_recipe(tmp_path / "named").method, read_recipe(tmp_path / "named").default) == ("tp+centre", "")
    (model / "defaults.json").unlink()
    made = run("demo", documents, "-q", "Who winds the weights?", "--library", tmp_path / "bare", "--model", model)
    assert made.code == 0, made.err
    assert "measured best" not in made.err
    assert (read_recipe(tmp_path / "bare").method, read_recipe(tmp_path / "bare").default) == (DEFAULT_METHOD, "")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"similarity": {}}, "names no method for retrieval"),
        ({"retrieval": {"method": 3}}, "names no method for retrieval"),
        ([], "names no method for retrieval"),
        ({"retrieval": {"method": "plian"}}, "plian"),
    ],
)
def test_a_defaults_file_that_says_nothing_is_refused(
    values: object, said: str, model: Path, documents: Path, tmp_path: Path, run: Run
) -> None:
    write_default(model, values)
    refused = run("ingest", documents, "--library", tmp_path / "library", "--model", model)
    assert refused.code == 1
    assert said in refused.err
    assert "Traceback" not in refused.err
    assert not (tmp_path / "library").exists()
