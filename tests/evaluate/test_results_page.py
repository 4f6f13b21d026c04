"""The pages of results are what their command makes of what it kept; it measures what is missing, and nothing twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests import families

from eddy_embed import methods
from eddy_embed.methods import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/results.md", "README.md", "demos/tiny_lm/README.md")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delenv("EDDY_EVAL_DATA", raising=False)
    import results

    return results


@pytest.fixture
def pages(results: ModuleType) -> ModuleType:
    import pages

    return pages


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The pages and the files of results in a folder of their own."""
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    return tmp_path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two small tasks under names that the page knows, and one that it does not."""
    texts = ["The river floods.", "A loaf of rye.", "Bread and butter.", "A comet at night."]
    rows = [{"a": a, "b": b, "score": i * j} for i, a in enumerate(texts) for j, b in enumerate(texts)]
    (tmp_path / "data" / "sts").mkdir(parents=True)
    for name in ("sickr_trial", "strange"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "data" / "sts" / f"{name}.jsonl").write_text(lines)
    return tmp_path / "data"


def given(folder: Path, *more: str) -> list[str]:
    return ["--results", str(folder / "results"), "--root", str(folder), "--journal", str(folder / "own.jsonl"), *more]


def outcomes(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["system"], row["task"]): row for row in json.loads(path.read_text())["outcomes"]}


def test_the_pages_are_the_ones_that_are_made(results: ModuleType, pages: ModuleType, copy: Path) -> None:
    results.main(given(copy))
    for page in PAGES:
        assert (copy / page).read_text() == (ROOT / page).read_text(), "run python benchmarks/results.py --pages"
    made = (ROOT / "docs" / "results.md").read_text()
    assert (
        "`python benchmarks/results.py`" in made
        and "`python benchmarks/results.py`" in (ROOT / "README.md").read_text()
    )
    held = outcomes(ROOT / "benchmarks" / "results" / "eddy-tiny.json")
    cell = held["htp:exit=-1", "sts12"]
    value, low, high = cell["scores"]["spearman"]
    assert f"{value:.3f} ± {(high - low) / 2:.3f} -" in made and cell["difference"][2] < 0
    assert ("prompteol", "squality") in held or made.count("not run") > 0
    for table in made.split("\n## ")[1:5]:
        for family in pages.families():
            assert f"| `{family}" in table, f"{family} is not in {table.splitlines()[0]}"


def test_every_method_is_measured(pages: ModuleType) -> None:
    """All that are registered; post-processing stands in the rows, as far as it is fitted, and the alias for one."""
    used = {term.name for family in pages.families() for term in methods.parse(family).terms}
    beside = {"recommended", "start", "sif", "readout", "centre", "abtt", "whiten", "truncate"}
    assert set(registry._REGISTRY) - used == beside


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", ("plain", -1, "")),
        ("tp:prompt=prompteol,exit=-7+whiten", ("tp:prompt=prompteol", -7, "whiten")),
        ("plain:exit=-8+tempscale:tau=0.8+abtt:k=2", ("plain+tempscale:tau=0.8", -8, "abtt:k=2")),
        ("htp+centre", ("htp", -2, "centre")),
    ],
)
def test_parts_of_a_rows_name(pages: ModuleType, text: str, parts: tuple[str, int, str]) -> None:
    assert pages.split(text) == parts


@pytest.mark.slow
def test_what_is_missing_is_measured_once_and_the_rest_is_shown_as_not_run(
    results: ModuleType, copy: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "results" / "eddy-tiny.json"
    told = json.loads(path.read_text())
    told["outcomes"] = [row for row in told["outcomes"] if row["task"] in ("sts13", "sickr_trial")]
    path.write_text(json.dumps(told))
    one = ["--data", str(data), "--method", "plain+last2avg"]
    results.main(given(copy, *one))
    said = capsys.readouterr().err
    assert (
        "not measured: strange, which is no task of this page" in said
        and "not measured: sts13, which is not in" in said
    )
    held = outcomes(path)
    # Other data under the same name: all that was kept of it is gone, and of the other task nothing.
    assert {system for system, task in held if task == "sickr_trial"} == {
        *("plain", "plain+centre", "plain+whiten"),
        *("plain+last2avg", "plain+last2avg+centre", "plain+last2avg+whiten"),
    }
    assert sum(task == "sts13" for _, task in held) == sum(row["task"] == "sts13" for row in told["outcomes"]) > 0
    assert held["plain+last2avg", "sickr_trial"]["difference"] and "identity" in held["plain", "sickr_trial"]
    page = (copy / "docs" / "results.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `htp:exit=-1` |") and "not run" in line)
    assert row.count("not run") >= 2
    results.main(given(copy, *one))
    assert "spearman" not in capsys.readouterr().err and outcomes(path) == held
    results.main(given(copy, "--data", str(data), "--minutes", "0"))
    assert "spearman" not in capsys.readouterr().err and outcomes(path) == held
    (copy / "own.jsonl").unlink()
    results.main(given(copy, *one, "--measure"))
    assert "spearman" not in capsys.readouterr().err and not (copy / "own.jsonl").exists()


def test_results_of_other_weights_are_not_taken_over(results: ModuleType, tmp_path: Path) -> None:
    head = {"weights": "a", "tokenizer": "b", "passage_size": 256}
    row = {"system": "plain", "task": "sts12", "identity": "c"}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**head, "outcomes": [row]}))
    assert list(results.valid(path, head, {}, set())) == [("plain", "sts12")]
    assert results.valid(path, head, {}, {"sts12"}) == {}
    assert results.valid(path, {**head, "weights": "other"}, {}, set()) == {}
    assert results.valid(tmp_path / "none.json", head, {}, set()) == {}


@pytest.mark.slow
def test_tempscale_on_an_encoder_in_a_folder(
    results: ModuleType, copy: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = families.build("bert")  # its weights are random: what is tested is the way, not the scores
    model.save_pretrained(copy / "tiny")
    tokenizer.save_pretrained(copy / "tiny")
    encoder = given(copy, "--encoder", str(copy / "tiny"), "--name", "own", "--data", str(data))
    results.main([*encoder, "--task", "strange", "--minutes", "0"])
    assert "tempscale-own.json: 0 results, 5 not run" in capsys.readouterr().err
    assert f"| strange | {' | '.join(['not run'] * 5)} |" in (copy / "docs" / "results.md").read_text()
    results.main([*encoder, "--task", "strange"])
    capsys.readouterr()
    made = (copy / "docs" / "results.md").read_text()
    table = made.split("### own")[1].split("###")[0].splitlines()
    assert "| task | 0.6 | 0.7 | 0.8 | 0.9 | 1.0 |" in table
    assert next(line for line in table if line.startswith("| strange, spearman |")).count("±") == 5
    held = outcomes(copy / "results" / "tempscale-own.json")
    assert len(held) == 5 and held["plain+tempscale:tau=0.6", "strange"]["reference"] == "plain"
    assert "--encoder tiny" in made and str(copy) not in made
    results.main([*encoder, "--task", "strange"])
    assert "spearman" not in capsys.readouterr().err
    assert (copy / "docs" / "results.md").read_text() == made
    with pytest.raises(SystemExit):
        results.main(given(copy, "--encoder", str(copy / "tiny")))
    assert "--data" in capsys.readouterr().err
