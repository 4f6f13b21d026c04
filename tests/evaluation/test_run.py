"""Every kind of task end to end on a folder of our own: reading, systems, table, journal, command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import evaluate
import numpy as np
import pytest
from evaluation.results import System, TaskResult
from evaluation.runner import Evaluation
from evaluation.tasks import find_tasks
from tests import families

from eddy_embed import Embedder
from evaluation import tables

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
