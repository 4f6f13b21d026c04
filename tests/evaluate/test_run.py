"""Every kind of task end to end on a folder of our own: reading, systems, table, file, command line."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests import families
from typer.testing import CliRunner

from eddy_embed import Embedder
from eddy_embed.cli import app
from eddy_embed.errors import InvalidParameter
from eddy_embed.evaluate import report
from eddy_embed.evaluate.run import Evaluation
from eddy_embed.evaluate.tasks import find_tasks

SUBJECTS = {
    "river": "The river floods its banks. Boats wait below the lock until the water falls.",
    "bakery": "The bakery opens at five. Loaves of rye cool on the rack beside the oven.",
    "observatory": "The observatory stands on a hill. Its telescope follows a comet through the night.",
    "orchard": "The orchard blossoms in May. Bees carry pollen from apple tree to apple tree.",
}


SENSES = [
    {
        "word": "bank",
        "options": ["The bank pays three per cent.", "Her bank closed.", "The bank lends.", "A heron on the bank."],
        "answer_index": 3,
    },
    {"word": "light", "options": ["light", "A light, light lamp"], "answer_index": 0},
]


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
    write(root / "retrieval" / "shelf" / "queries.jsonl", [*queries, {"id": "unjudged", "text": "What?"}])
    grades = [f"q{name}\t{name}\t2" for name in SUBJECTS] + ["qriver\tvoid\t1", "qriver\tbakery\t0"]
    (root / "retrieval" / "shelf" / "qrels.tsv").write_text("query-id\tdoc-id\tscore\n" + "\n".join(grades) + "\n")
    labelled = [{"text": f"{text} Page {page}.", "label": name} for page in range(6) for name, text in SUBJECTS.items()]
    write(root / "classification" / "subject_train.jsonl", labelled[:16])
    write(root / "classification" / "subject_test.jsonl", labelled[16:])
    write(root / "classification" / "crossed.jsonl", labelled)
    write(root / "wsd" / "senses.jsonl", SENSES)
    return root


@cache
def embedder(method: str) -> Embedder:
    model, tokenizer = families.build("llama")
    return Embedder(model, tokenizer=tokenizer, method=method)


def test_tasks_are_read_as_they_are_written(folder: Path) -> None:
    pairs, shelf, crossed, subject, senses = find_tasks(folder)
    assert (pairs.name, len(pairs.gold), sum(pairs.gold)) == ("same", 16, 4 * 5.0 + 12 * 1.0)
    assert (shelf.name, shelf.ids, shelf.blank) == ("shelf", list(SUBJECTS), 1)
    assert len(shelf.queries) == 4
    assert shelf.grades[0] == {"river": 2.0, "void": 1.0}
    assert (crossed.name, len(crossed.texts), crossed.test_texts) == ("crossed", 24, [])
    assert (subject.name, len(subject.texts), len(subject.test_texts)) == ("subject", 16, 8)
    assert [task.name for task in find_tasks(folder, ["shelf"])] == ["shelf"]
    assert (senses.name, len(senses.texts), senses.questions) == ("senses", 6, [0, 0, 0, 0, 1, 1])
    assert senses.spans == [(4, 8), (4, 8), (4, 8), (15, 19), (0, 5), (2, 7)]
    assert senses.answers == [3, 4]


@pytest.mark.parametrize("system", ["plain", "htp", "prompteol", "plain+centre"])
def test_scores_are_those_of_the_vectors(folder: Path, system: str) -> None:
    tasks = {task.name: task for task in find_tasks(folder)}
    evaluation = Evaluation(embedder)
    pairs = evaluation.run(system, tasks["same"])
    own = embedder(system.split("+")[0])
    vectors = own.encode_document(tasks["same"].first + tasks["same"].second).astype(np.float64)
    if "+" in system:
        # Centred on all the task's texts, then normalised.
        vectors -= vectors.mean(0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (vectors[:16] * vectors[16:]).sum(1)
    assert np.allclose(pairs.items[:, 0], cosines, atol=1e-6)
    same = np.array(tasks["same"].gold) > 3
    assert cosines[same].min() > cosines[~same].max()
    assert pairs.tokens > 0


def test_retrieval_finds_a_document_by_its_best_passage(folder: Path) -> None:
    (task,) = find_tasks(folder, ["shelf"])
    outcome = Evaluation(embedder, passage_size=1).run("plain", task)
    documents = embedder("plain").encode_long(task.texts, passage_size=1)
    queries = embedder("plain").encode_query(task.queries)
    for at, query in enumerate(queries):
        best = [max(float(passage.vector @ query) for passage in document.passages) for document in documents]
        rank = int(np.argsort(-np.array(best), kind="stable").tolist().index(at))
        ideal = 2.0 + (1 / np.log2(3) if at == 0 else 0.0)
        assert outcome.items[at] == pytest.approx(2.0 / np.log2(rank + 2) / ideal)


@pytest.mark.parametrize("system", ["plain", "reba", "echo+centre"])
def test_the_odd_word_is_the_furthest_from_the_mean(folder: Path, system: str) -> None:
    (task,) = find_tasks(folder, ["senses"])
    outcome = Evaluation(embedder).run(system, task)
    own = embedder(system.split("+")[0])
    vectors = [own.encode_words(text, [span])[0] for text, span in zip(task.texts, task.spans, strict=True)]
    vectors = np.array(vectors, np.float64)
    if "+" in system:
        vectors -= vectors.mean(0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sums = [(1 - vectors[a:b] @ vectors[a:b].T).sum(1) for a, b in [(0, 4), (4, 6)]]
    assert outcome.items[0] == float(np.argmax(sums[0]) == 3)
    assert outcome.metric == "accuracy" and outcome.tokens > 0
    for other in ("prompteol", "bm25", "overlap"):
        assert Evaluation(embedder).run(other, task) is None


def test_baselines_do_what_words_can_do(folder: Path) -> None:
    tasks = {task.name: task for task in find_tasks(folder)}
    evaluation = Evaluation(embedder)
    bm25 = evaluation.run("bm25", tasks["shelf"])
    assert bm25.score() == pytest.approx((3 + 2.0 / (2.0 + 1 / np.log2(3))) / 4)
    assert evaluation.run("overlap", tasks["same"]).items[:, 0].max() == 1.0
    assert evaluation.run("bm25", tasks["same"]) is None
    assert evaluation.run("overlap", tasks["shelf"]) is None


def test_a_table_marks_ties_and_keeps_cost_beside_the_score(folder: Path, tmp_path: Path) -> None:
    evaluation = Evaluation(embedder)
    tasks = find_tasks(folder)
    ran = [evaluation.run(system, task) for task in tasks for system in ("plain", "htp", "bm25")]
    outcomes = [outcome for outcome in ran if outcome is not None]
    text = report.table(outcomes, "plain")
    rows = {line.split("`")[1]: line for line in text.splitlines()[2:]}
    assert rows["plain"].rstrip("| ").endswith("1.00×")
    assert rows["htp"].count("=") + rows["htp"].count(" +") + rows["htp"].count(" - ") >= 4
    report.save(outcomes, "plain", tmp_path / "out.json", {"model": "tiny"})
    saved = json.loads((tmp_path / "out.json").read_text())
    assert saved["model"] == "tiny"
    assert {row["system"] for row in saved["outcomes"]} == {"plain", "htp", "bm25"}
    for row, outcome in zip(saved["outcomes"], outcomes, strict=True):
        assert row["score"] == pytest.approx(outcome.score(), abs=1e-4)
        assert row["interval"][0] <= row["score"] <= row["interval"][1]


def test_the_command_line_prints_the_table(folder: Path, tmp_path: Path) -> None:
    model, tokenizer = families.build("llama")
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    arguments = ["evaluate", "--model", str(tmp_path / "model"), "--data", str(folder), "-m", "plain", "-t", "shelf"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "`plain`" in done.stdout
    assert "`bm25`" in done.stdout


def test_bad_folders_and_names_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="needs sts/"):
        find_tasks(tmp_path)
    with pytest.raises(InvalidParameter, match="there are same, shelf"):
        find_tasks(folder, ["shelves"])
    for wrong, message in [({"answer_index": 4}, "none of its options"), ({"word": "shore"}, "'shore' is not in")]:
        write(tmp_path / "words" / "wsd" / "odd.jsonl", [SENSES[0] | wrong])
        with pytest.raises(InvalidParameter, match=message):
            find_tasks(tmp_path / "words")
    write(tmp_path / "sts" / "broken.jsonl", [])
    (tmp_path / "sts" / "broken.jsonl").write_text('{"a": 1\n')
    with pytest.raises(InvalidParameter, match="line 1"):
        find_tasks(tmp_path)
