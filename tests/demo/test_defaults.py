"""The method that a new library takes when nobody names one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import opened, recommend

from eddy_demo.library.settings import read_settings
from eddy_embed import Embedder
from eddy_embed.methods.recommended import Recommendation

Run = Callable[..., Any]
MODEL = "eddy-tiny"
BEST = "plain:exit=1"


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recommendation], None]:
    """Another entry of the bundled model in the table; the function puts a further one in its place."""

    def put(chosen: Recommendation) -> None:
        recommend(monkeypatch, chosen)

    put(Recommendation(BEST, post="whiten"))
    return put


def test_a_new_library_takes_a_method_that_embeds_at_once(
    documents: Path, tmp_path: Path, run: Run, table: Callable[[Recommendation], None]
) -> None:
    """Post-processing for a fit of one's own is left out, and what the table says later changes no library."""
    library = tmp_path / "library"
    ingest = ("ingest", documents, "--library", library, "--model", MODEL, "--passage-size", 12)
    made = run(*ingest)
    assert made.code == 0, made.err
    assert made.err.count("recommended") == made.err.count(f"Method {BEST}: recommended for retrieval on {MODEL}") == 1
    stored = read_settings(library)
    assert (stored.method, stored.plan) == (BEST, "best")
    embedder = Embedder(MODEL, method=BEST)
    with opened(library) as index:
        assert index.settings.fingerprint == embedder.fingerprint
    assert run("ask", "Who winds the weights?", "--library", library).code == 0
    refused = run(*ingest, "--method", "plain:exit=2")
    assert refused.code == 1
    assert "library rebuild --method plain:exit=2" in refused.err

    table(Recommendation("tp"))
    assert "recommended" not in run(*ingest).err
    assert run("ask", "Where does mint grow?", "--library", library).code == 0
    assert read_settings(library) == stored
    refused = run("ask", "Where does mint grow?", "--library", library, "--method", "recommended")
    assert refused.code == 1 and f"with method {BEST}, not tp" in refused.err


def test_a_named_method_and_one_without_post_processing(
    documents: Path, tmp_path: Path, run: Run, table: Callable[[Recommendation], None]
) -> None:
    made = run("ingest", documents, "--library", tmp_path / "named", "--model", MODEL, "--method", "tp")
    assert made.code == 0, made.err
    assert "recommended" not in made.err
    assert (read_settings(tmp_path / "named").method, read_settings(tmp_path / "named").plan) == ("tp", "chosen")
    table(Recommendation("plain:exit=0+sif"))
    made = run("demo", documents, "-q", "Who winds the weights?", "--library", tmp_path / "bare", "--model", MODEL)
    assert made.code == 0, made.err
    assert made.err.count("Method plain:exit=0+sif: recommended for retrieval on eddy-tiny") == 1
    settings = read_settings(tmp_path / "bare")
    assert (settings.method, settings.plan) == ("plain:exit=0+sif", "best")
    # The alias is stored in full.
    made = run("ingest", documents, "--library", tmp_path / "alias", "--model", MODEL, "--method", "recommended")
    assert made.code == 0, made.err
    settings = read_settings(tmp_path / "alias")
    assert (settings.method, settings.plan) == ("plain:exit=0+sif", "chosen")


def test_another_model_takes_the_method_recommended_for_it(
    documents: Path, tmp_path: Path, run: Run, table: Callable[[Recommendation], None]
) -> None:
    library = tmp_path / "library"
    assert run("ingest", documents, "--library", library, "--model", MODEL, "--method", "plain:exit=2").code == 0
    table(Recommendation("plain:exit=1"))
    made = run("library", "rebuild", "--library", library)
    assert made.code == 0 and read_settings(library).method == "plain:exit=2", made.err
    made = run("library", "rebuild", "--library", library, "--model", MODEL)
    assert made.code == 0, made.err
    settings = read_settings(library)
    assert (settings.method, settings.plan) == ("plain:exit=1", "best")
    table(Recommendation("plain"))
    made = run("library", "rebuild", "--library", library)
    assert made.code == 0 and read_settings(library).method == "plain", made.err
