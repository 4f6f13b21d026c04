"""Every kind of task end to end on a folder of our own; scores equal those of other libraries; the pages show them."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evaluate
import numpy as np
import pytest
import results
import search
from evaluation.results import Cost, System, TaskResult
from evaluation.runner import Evaluation, retrieval_metrics
from evaluation.tasks import Retrieval, find_tasks
from hypothesis import given
from hypothesis import strategies as st
from tests import families

from eddy_embed import Embedder, methods
from eddy_embed.methods import registry
from evaluation import metrics, tables

SUBJECTS = {
    "river": "The river floods its banks. Boats wait below the lock until the water falls.",
    "bakery": "The bakery opens at five. Loaves of rye cool on the rack beside the oven.",
    "observatory": "The observatory stands on a hill. Its telescope follows a comet through the night.",
    "orchard": "The orchard blossoms in May. Bees carry pollen from apple tree to apple tree.",
}


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tasks")
    texts = list(SUBJECTS.values())
    pairs = [{"a": a, "b": b, "score": 5.0 if a == b else 1.0} for a in texts for b in texts]
    write(root / "sts" / "same.jsonl", pairs)
    corpus = [{"id": name, "title": "", "text": text} for name, text in SUBJECTS.items()]
    write(root / "retrieval" / "shelf" / "corpus.jsonl.gz", [*corpus, {"id": "void", "title": "", "text": " "}])
    queries = [{"id": f"q{name}", "text": text.split(".")[0]} for name, text in SUBJECTS.items()]
    write(root / "retrieval" / "shelf" / "queries.jsonl", [*queries, {"id": "unlabelled", "text": "What?"}])
    grades = [f"q{name}\t{name}\t2" for name in SUBJECTS] + ["qriver\tvoid\t1", "qriver\tbakery\t0"]
    (root / "retrieval" / "shelf" / "qrels.tsv").write_text("query-id\tdoc-id\tscore\n" + "\n".join(grades) + "\n")
    labelled = [{"text": f"{text} Page {page}.", "label": name} for page in range(6) for name, text in SUBJECTS.items()]
    write(root / "classification" / "subject_train.jsonl", labelled[:16])
    write(root / "classification" / "subject_test.jsonl", labelled[16:])
    write(root / "classification" / "crossed.jsonl", labelled)
    return root


opened: list[str] = []


def embedder(method: str) -> Embedder:
    opened.append(method)
    model, tokenizer = families.build("llama")
    return Embedder(model, tokenizer=tokenizer, method=method)


def measure(names: list[str], tasks: list, **options) -> dict[tuple[str, str], TaskResult]:
    found = Evaluation(embedder, **options).run([System.named(name) for name in names], tasks)
    return {(outcome.system.text, outcome.task): outcome for outcome in found}


def test_tasks_are_read_as_they_are_written(folder: Path) -> None:
    pairs, shelf, crossed, subject = find_tasks(folder)
    assert (pairs.name, len(pairs.gold), sum(pairs.gold)) == ("same", 16, 4 * 5.0 + 12 * 1.0)
    assert (shelf.name, shelf.ids, shelf.blank) == ("shelf", list(SUBJECTS), 1)
    assert len(shelf.queries) == 4
    assert shelf.grades[0] == {"river": 2.0, "void": 1.0}
    assert (crossed.name, len(crossed.texts), crossed.test_texts) == ("crossed", 24, [])
    assert (subject.name, len(subject.texts), len(subject.test_texts)) == ("subject", 16, 8)
    assert [task.name for task in find_tasks(folder, ["shelf"])] == ["shelf"]


def test_scores_are_those_of_the_vectors(folder: Path) -> None:
    system = "htp+centre"
    (task,) = find_tasks(folder, ["same"])
    outcome = measure([system], [task])[system, "same"]
    own = embedder(system)
    vectors = own.encode_document(task.first + task.second)
    cosines = (vectors[:16] * vectors[16:]).sum(1)
    assert np.allclose(outcome.metrics["spearman"][:, 0], cosines, atol=1e-6)
    same = np.array(task.gold) > 3
    assert cosines[same].min() > cosines[~same].max()
    # Four distinct texts, each embedded once.
    assert outcome.cost.positions == sum(own.count_tokens(list(dict.fromkeys(task.first)), role="document"))


def test_baselines_do_what_words_can_do(folder: Path) -> None:
    found = measure(["bm25", "overlap"], find_tasks(folder))
    assert set(found) == {("bm25", "shelf"), ("overlap", "same")}
    assert found["bm25", "shelf"].score() == pytest.approx((3 + 2.0 / (2.0 + 1 / np.log2(3))) / 4)
    assert found["overlap", "same"].metrics["spearman"][:, 0].max() == 1.0


def test_a_table_marks_ties_and_keeps_cost_beside_the_score(folder: Path, tmp_path: Path) -> None:
    found = list(measure(["plain", "htp", "bm25", "plain:exit=0"], find_tasks(folder)).values())
    rows = {line.split("`")[1]: line for line in tables.table(found, "plain").splitlines()[2:]}
    assert rows["plain"].endswith("| 1.00× | 1.00× |")
    assert "≤" in rows["plain:exit=0"] and "≤" not in rows["htp"]
    assert sum(rows["htp"].count(sign) for sign in (" = ", " + ", " - ")) == 4
    saved = tables.summary(found, "plain")
    tables.save(tmp_path / "out.json", {"model": "tiny"}, saved)
    assert json.loads((tmp_path / "out.json").read_text()) == {"model": "tiny", "outcomes": saved}
    for row, outcome in zip(saved, found, strict=True):
        assert row["scores"][outcome.metric][0] == pytest.approx(outcome.score(), abs=1e-4)
        value, low, high = row["scores"][outcome.metric]
        assert low <= value <= high
        assert ("reference" in row) == (row["system"] != "plain")
    assert "gold" not in (tmp_path / "out.json").read_text()


def test_the_command_prints_tables_and_goes_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDDY_EVAL_DATA", raising=False)
    for part in families.build("llama"):
        part.save_pretrained(tmp_path / "model")
    output = tmp_path / "scores.jsonl"
    asked = [str(tmp_path / "model"), "--data", str(folder), "--method", "plain+whiten", "--task", "same"]
    asked += ["--task", "shelf", "--output", str(output)]
    evaluate.main(asked)
    first = capsys.readouterr()
    for wanted in ("| `plain+whiten` |", "| `bm25` |", "same, spearman", "shelf, mrr@10", "calibrated on general text"):
        assert wanted in first.out
    assert "shelf: plain+whiten: ndcg@10" in first.err
    evaluate.main(asked)
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err.count("measured before") == len(output.read_text().splitlines()) == 8
    with pytest.raises(SystemExit):
        evaluate.main(asked[:1])


# --- scores equal those of scipy, of scikit-learn and of a slow computation


def spearmanr(*given: object) -> float:
    """Scipy's rank correlation; it takes half a second to import."""
    from scipy import stats

    return float(stats.spearmanr(*given).statistic)


values = st.lists(st.integers(0, 5), min_size=3, max_size=30)


@given(st.data(), values)
def test_spearman_equals_scipy(data, gold) -> None:
    scores = data.draw(st.lists(st.integers(0, 5), min_size=len(gold), max_size=len(gold)))
    (mine,) = metrics.spearman(np.array(scores, float), np.array(gold, float))
    if len(set(scores)) == 1 or len(set(gold)) == 1:
        assert mine == 0.0
    else:
        assert mine == pytest.approx(spearmanr(scores, gold))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30).filter(any), st.integers(1, 12), st.randoms())
def test_ndcg_equals_scikit_learn(grades, k, random) -> None:
    from sklearn.metrics import ndcg_score  # it takes a second to import

    order = list(range(len(grades)))
    random.shuffle(order)
    found = np.array([grades[at] for at in order], float)
    scores = np.zeros(len(grades))
    scores[order] = np.arange(len(grades), 0, -1)
    assert metrics.ndcg(found, np.array(grades, float), k) == pytest.approx(ndcg_score([grades], [scores], k=k))


def test_scores_of_a_ranking_worked_out_by_hand() -> None:
    names = [f"d{number}" for number in range(150)]
    task = Retrieval("t", names, names, ["q"], [{"d1": 1.0, "d3": 3.0, "d60": 2.0, "d120": 1.0}], 0)
    scores = retrieval_metrics(task, -np.arange(150.0)[None])  # d0 first, d149 last
    gain = 1 / math.log2(3) + 3 / math.log2(5)
    best = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(5)
    assert scores["ndcg@10"][0] == pytest.approx(gain / best)
    assert scores["recall@10"][0] == 2 / 4 and scores["recall@100"][0] == 3 / 4
    assert scores["mrr@10"][0] == 1 / 2
    few = Retrieval("t", names[:20], names[:20], ["q"], [{"d15": 1.0}], 0)
    assert {name: row[0] for name, row in retrieval_metrics(few, -np.arange(20.0)[None]).items()} == {
        "ndcg@10": 0.0,
        "recall@10": 0.0,
        "mrr@10": 0.0,
    }


def outcome(items: np.ndarray, metric: str = "accuracy") -> TaskResult:
    return TaskResult(System("plain"), "t", {metric: items}, Cost(), {})


def test_bootstrap_scores_are_those_of_the_drawn_items() -> None:
    generator = np.random.default_rng(4)
    # Few values, so that both sides have ties.
    items = generator.integers(0, 6, (40, 2)).astype(float)
    samples = outcome(items, "spearman").samples["spearman"]
    assert samples.shape == (metrics.SAMPLES,)
    rows = np.concatenate(list(metrics.draws(40))).astype(int)
    assert (rows.sum(1) == 40).all()
    for counts, value in zip(rows[::97], samples[::97], strict=True):
        drawn = np.repeat(items, counts, axis=0)
        assert value == pytest.approx(spearmanr(drawn[:, 0], drawn[:, 1]))
    assert np.allclose(outcome(items[:, 0]).samples["accuracy"], rows @ items[:, 0] / 40)


def test_a_difference_is_paired_and_one_that_may_be_none_is_a_tie() -> None:
    generator = np.random.default_rng(2)
    items, noise = generator.normal(0, 10, 200), generator.normal(0, 1, 200)
    noise -= noise.mean()
    first, level, better = (outcome(items + more) for more in (0.0, noise, noise + 0.5))
    assert level.difference(first).tie
    # Unpaired, half a point would drown in the spread of the items.
    assert not better.difference(first).tie
    assert better.interval().low < first.interval().high


# --- the pages of results are what their command makes of what it kept

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


def asked_of(folder: Path, *more: str) -> list[str]:
    return ["--results", str(folder / "results"), "--root", str(folder), "--journal", str(folder / "own.jsonl"), *more]


def outcomes(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["system"], row["task"]): row for row in json.loads(path.read_text())["outcomes"]}


def test_the_pages_are_the_ones_that_are_made(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ROOT", copy)
    results.main(asked_of(copy))
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
