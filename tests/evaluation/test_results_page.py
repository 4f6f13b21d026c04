"""The pages of results are what their command makes of what it kept; it measures what is missing, and nothing twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import results
import search
from evaluation.tasks import Retrieval

from eddy_embed import methods
from eddy_embed.methods import registry

ROOT = Path(__file__).resolve().parents[2]
POST = ("", "+whiten", "+whiten:power=0.5")
PAGES = ("benchmarks/results/README.md", "docs/results.md", "docs/search.md", "docs/is-it-for-me.md", "README.md")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The pages and the files of results in a folder of their own."""
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    return tmp_path


def given(folder: Path, *more: str) -> list[str]:
    return ["--results", str(folder / "results"), "--root", str(folder), "--journal", str(folder / "own.jsonl"), *more]


def outcomes(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["system"], row["task"]): row for row in json.loads(path.read_text())["outcomes"]}


def test_the_pages_are_the_ones_that_are_made(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ROOT", copy)
    results.main(given(copy))
    search.main([])
    for page in PAGES:
        assert (copy / page).read_text() == (ROOT / page).read_text(), "run benchmarks/results.py and search.py"
    made = (ROOT / PAGES[0]).read_text()
    for model in set(results.MODELS) - {results.BUNDLED}:
        held = outcomes(ROOT / "benchmarks" / "results" / f"{model}.json")
        value, low, high = held["plain:exit=0", "sickr_trial"]["scores"]["spearman"]
        assert f"| {value:.3f} ± {(high - low) / 2:.3f}" in made.split(f"### {model}")[1].split("\n##")[0]


def test_a_passage_answers_by_its_words_and_a_document_by_its_best_passage(tmp_path: Path) -> None:
    rows = [
        {"text": "How long?", "needle": r"three\s+days", "kind": "paraphrase"},
        {"text": "rye", "needle": "rye", "kind": "term"},
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "bread.md").write_text("A loaf of rye keeps three\ndays.")
    manuals = search.of_files(tmp_path / "files", [tmp_path / "questions.jsonl"])
    assert manuals.sets == {"manuals": [0, 1], "paraphrases": [0]}
    assert [document.metadata["name"] for document in manuals.documents] == ["bread.md"]
    hits = [SimpleNamespace(document=name, text=text) for name, text in (("b", "Rye."), ("a", "Three Days"), ("b", ""))]
    assert [manuals.score(at, hits) for at in (0, 1)] == [0.5, 1.0]
    task = search.of_task(Retrieval("cisi", ["a", "b"], ["one", "two"], ["q"], [{"a": 1.0}], 0))
    assert task.score(0, hits) == pytest.approx(1 / np.log2(3))


def test_every_method_is_measured() -> None:
    """All that are registered, except parts that others hold and an alias."""
    texts = [results.own_text(text, "eddy-tiny") for text in results.SYSTEMS]
    used = {term.name for text in texts for term in methods.parse(text).terms}
    parts = {"readout", "reroute", "last2avg", "layeravg", "standardise", "centre", "abtt", "truncate"}
    left_out = parts | {"recommended", "best", "fast"}
    assert set(registry._REGISTRY) - used == left_out
