"""Every kind of task end to end on a folder of our own: reading, systems, table, file, command line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests import families
from tests.command_line import run
from tests.selection import slow

from eddy_embed import Embedder, Reranker
from eddy_embed.analysis.evaluate import tables
from eddy_embed.analysis.evaluate.metrics import ndcg
from eddy_embed.analysis.evaluate.results import ResultStore, TaskResult
from eddy_embed.analysis.evaluate.runner import Evaluation
from eddy_embed.analysis.evaluate.systems import System, with_baseline
from eddy_embed.analysis.evaluate.task_vectors import embed
from eddy_embed.analysis.evaluate.tasks import find_tasks
from eddy_embed.errors import InvalidParameter
from eddy_embed.parts.postprocess import Post, RunningCovariance, fit

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


opened: list[str] = []


def embedder(method: str) -> Embedder:
    opened.append(method)
    model, tokenizer = families.build("llama")
    return Embedder(model, tokenizer=tokenizer, method=method)


def measure(names: list[str], tasks: list, **options) -> dict[tuple[str, str], TaskResult]:
    found = Evaluation(embedder, **options).run([System.named(name) for name in names], tasks)
    return {(outcome.system.label, outcome.task): outcome for outcome in found}


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


@pytest.mark.parametrize("method", ["plain", "prompteol", "plain+centre"])
def test_retrieval_finds_a_document_by_its_best_passage(folder: Path, method: str) -> None:
    (task,) = find_tasks(folder, ["shelf"])
    outcome = measure([method], [task], passage_size=1)[method, "shelf"]
    own = embedder(method)
    documents = own.encode_long(task.texts, passage_size=1, late=own.can_embed_spans)
    for at, query in enumerate(own.encode_query(task.queries)):
        best = [max(float(passage.vector @ query) for passage in document.passages) for document in documents]
        rank = int(np.argsort(-np.array(best), kind="stable").tolist().index(at))
        ideal = 2.0 + (1 / np.log2(3) if at == 0 else 0.0)
        assert outcome.metrics["ndcg@10"][at] == pytest.approx(2.0 / np.log2(rank + 2) / ideal)
        assert outcome.metrics["mrr@10"][at] == pytest.approx(1 / (rank + 1))


def test_the_model_judges_the_first_passages(folder: Path, tmp_path: Path) -> None:
    """Grades that differ from document to document make the score that of one order alone."""
    (task,) = find_tasks(folder, ["shelf"])
    grades = {name: float(at) for at, name in enumerate(SUBJECTS, start=1)}
    task = replace(task, queries=["Where do boats wait?", "a hill of rye", "bees", "What cools?"], grades=[grades] * 4)
    model, tokenizer = families.build("llama")
    judge, own = Reranker(model, tokenizer=tokenizer), embedder("plain")
    systems = [System("plain"), System("plain", judged=5)]
    options = {"passage_size": 1, "late": False, "open_reranker": lambda: judge}
    alone, pairs, judged = Evaluation(embedder, **options).run(systems, [task, *find_tasks(folder, ["same"])])
    assert (pairs.task, alone.system.judged, judged.system.label) == ("same", 0, "plain, first 5 judged")
    documents = own.encode_long(task.texts, passage_size=1, late=False)
    texts = [(at, each.text[p.start : p.end], p.vector) for at, each in enumerate(documents) for p in each.passages]
    expected = []
    for query, vector in zip(task.queries, own.encode_query(task.queries), strict=True):
        order = sorted(texts, key=lambda each: -float(each[2] @ vector))
        cosines = np.array([float(each[2] @ vector) for each in order])
        told = judge.scores(query, [text for _, text, _ in order[:5]])
        joined = (cosines - cosines[:5].mean()) / cosines[:5].std()
        joined[:5] += 0.75 * (told - told.mean()) / told.std()
        found = dict.fromkeys(order[at][0] for at in np.argsort(-joined, kind="stable"))
        expected.append(ndcg(np.array([at + 1.0 for at in found]), np.array(list(grades.values()))))
    assert judged.score() == pytest.approx(np.mean(expected)) != alone.score()
    tokens = sum(sum(judge.count_tokens(query, [text])) for query in task.queries for _, text, _ in texts) / len(texts)
    assert judged.cost.work - alone.cost.work == pytest.approx(5 * tokens * families.LAYERS, rel=0.2)
    assert judged.cost.seconds > alone.cost.seconds


def test_layers_share_a_pass_and_score_as_if_alone(folder: Path) -> None:
    tasks = find_tasks(folder)
    names = ["plain:exit=0", "plain:exit=3", "plain", "plain:exit=3+whiten"]
    opened.clear()
    together = measure(names, tasks)
    assert opened == ["plain", "plain:exit=3+whiten", "plain"]  # for the model's fingerprint, and to be calibrated
    for name in names:
        for (_, task), alone in measure([name], tasks).items():
            shared = together[name, task]
            assert list(shared.metrics) == list(alone.metrics)
            for metric, items in alone.metrics.items():
                assert np.allclose(shared.metrics[metric], items, atol=1e-5)
            assert (shared.cost.layers, shared.cost.ran) == (alone.cost.layers, families.LAYERS)
            assert shared.cost.work == alone.cost.work > 0
            assert (
                alone.cost.ran == alone.cost.layers == max(3 if "3" in name else families.LAYERS * ("0" not in name), 1)
            )


def test_passages_can_be_read_each_by_itself(folder: Path, tmp_path: Path) -> None:
    (task,) = find_tasks(folder, ["shelf"])
    plain, libraries = embedder("plain"), []
    for late in (True, False):
        (vectors,) = embed(plain, [families.LAYERS], task, 4, late=late)
        documents = plain.encode_long(task.texts, passage_size=4, late=late)
        passages = np.stack([passage.vector for document in documents for passage in document.passages])
        assert len(passages) > len(documents)
        assert np.allclose(vectors.finished(plain._pipeline.finish).library, passages, atol=1e-5)
        libraries.append(passages)
    assert not np.allclose(*libraries, atol=1e-2)
    journal, said = ResultStore(tmp_path / "scores.jsonl"), list[str]()
    for late in (True, False, False):
        measure(["plain", "prompteol", "bm25"], [task], passage_size=4, journal=journal, late=late, said=said.append)
    told = {
        name: [line.split(": ", 2)[2].split()[0] for line in said if line.startswith(f"shelf: {name}: ")]
        for name in ("plain", "prompteol", "bm25")
    }
    known = ["ndcg@10", "measured", "measured"]
    assert told == {"plain": ["ndcg@10", "model,", "ndcg@10", "measured"], "prompteol": known, "bm25": known}


def test_fits_on_more_vectors_include_those_on_fewer(folder: Path) -> None:
    """Only the documents' part is fitted: queries lose the mean of general ones."""
    (task,) = find_tasks(folder, ["crossed"])
    sizes = (None, 8, 24, "all", 25)
    outcomes = Evaluation(embedder).run([System("plain+whiten", fit_on=size) for size in sizes], [task])
    general, _, most, every = outcomes
    assert [outcome.system.fit_on for outcome in outcomes] == [None, 8, 24, "all"]
    assert np.array_equal(most.metrics["accuracy"], every.metrics["accuracy"])
    assert not np.array_equal(most.metrics["accuracy"], general.metrics["accuracy"])
    vectors = embed(embedder("plain"), [families.LAYERS], task, 256)[0]
    finish = embedder("plain+whiten")._calibrated.finish
    library = vectors.library / np.linalg.norm(vectors.library, axis=1, keepdims=True)
    for size in (8, 16):
        seen = RunningCovariance(library.shape[1])
        seen.add(library[np.random.default_rng(0).permutation(24)[:size]])
        expected = fit(Post("whiten"), seen).apply(library)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        own = vectors.fitted(finish, size)
        assert np.allclose(vectors.finished(own).library, expected)
        assert own.fitted.query_mean is finish.fitted.query_mean is not None


@pytest.mark.parametrize("system", ["plain", "reba", "echo", "plain+centre", slow("echo+centre")])
def test_the_odd_word_is_the_furthest_from_the_mean(folder: Path, system: str) -> None:
    (task,) = find_tasks(folder, ["senses"])
    outcome = measure([system, "prompteol", "bm25", "overlap"], [task])
    assert list(outcome) == [(system, "senses")]
    own = embedder(system)
    vectors = np.stack([own.encode_words(text, [span])[0] for text, span in zip(task.texts, task.spans, strict=True)])
    sums = [(1 - vectors[a:b] @ vectors[a:b].T).sum(1) for a, b in [(0, 4), (4, 6)]]
    assert outcome[system, "senses"].metrics["accuracy"][0] == float(np.argmax(sums[0]) == 3)
    assert outcome[system, "senses"].cost.tokens > 0


def test_baselines_do_what_words_can_do(folder: Path) -> None:
    found = measure(["bm25", "overlap"], find_tasks(folder))
    assert set(found) == {("bm25", "shelf"), ("overlap", "same")}
    assert found["bm25", "shelf"].score() == pytest.approx((3 + 2.0 / (2.0 + 1 / np.log2(3))) / 4)
    assert found["overlap", "same"].metrics["spearman"][:, 0].max() == 1.0


def test_every_system_stands_beside_its_baseline() -> None:
    wanted = [system.label for system in with_baseline(["htp+whiten", "htp:exit=-2", "htp"], "plain")]
    assert wanted[:4] == ["bm25", "overlap", "plain:exit=0", "plain"]
    assert sorted(wanted[4:]) == sorted(["plain+whiten", "htp+whiten", "htp:exit=-2", "htp"])
    assert wanted.index("plain+whiten") < wanted.index("htp+whiten")
    assert [system.label for system in with_baseline(["plain:exit=1"], "plain:exit=0")] == [*wanted[:3], "plain:exit=1"]
    assert System("htp+whiten", fit_on=50).reference("plain").label == "plain+whiten (fitted on 50)"
    assert System("htp+whiten").reference("plain+centre").label == "plain+centre"
    assert System("bm25").reference("plain").label == "plain"
    with pytest.raises(InvalidParameter, match="best depends on the model"):
        System.named("best")
    assert System.named("tempscale").text == "plain+tempscale" and System.named("sif").text == "plain+sif"


def test_a_table_marks_ties_and_keeps_cost_beside_the_score(folder: Path, tmp_path: Path) -> None:
    found = list(measure(["plain", "htp", "bm25", "plain:exit=0"], find_tasks(folder)).values())
    rows = {line.split("`")[1]: line for line in tables.table(found, "plain").splitlines()[2:]}
    assert rows["plain"].endswith("| 1.00× | 1.00× |")
    assert "≤" in rows["plain:exit=0"] and "≤" not in rows["htp"]
    assert sum(rows["htp"].count(sign) for sign in (" = ", " + ", " - ")) == 5
    saved = tables.summary(found, "plain")
    tables.save(tmp_path / "out.json", {"model": "tiny"}, saved)
    assert json.loads((tmp_path / "out.json").read_text()) == {"model": "tiny", "outcomes": saved}
    for row, outcome in zip(saved, found, strict=True):
        assert row["scores"][outcome.metric][0] == pytest.approx(outcome.score(), abs=1e-4)
        value, low, high = row["scores"][outcome.metric]
        assert low <= value <= high
        assert ("reference" in row) == (row["system"] != "plain")
    assert "gold" not in (tmp_path / "out.json").read_text()


def test_what_was_measured_is_not_measured_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    tasks = find_tasks(folder, ["same", "shelf"])
    said: list[str] = []

    def again(**options) -> dict[tuple[str, str], TaskResult]:
        opened.clear()
        said.clear()
        fresh = options.pop("fresh", False)
        return measure(
            ["plain", "htp", "bm25"], tasks, journal=ResultStore(path, fresh=fresh), said=said.append, **options
        )

    first = again()
    assert opened == ["plain", "plain", "htp"]
    kept = path.read_text()
    second = again()
    assert opened == ["plain"] and path.read_text() == kept
    assert len(said) == 5 and all(line.endswith("measured before") for line in said)
    for key, outcome in first.items():
        assert second[key].cost == outcome.cost
        for metric, items in outcome.metrics.items():
            assert np.allclose(second[key].metrics[metric], items, atol=1e-9)
    # Interrupted after two outcomes: the others are measured, and only they.
    path.write_text("".join(line + "\n" for line in kept.splitlines()[:2]))
    assert set(again()) == set(first)
    assert sum(line.endswith("measured before") for line in said) == 2
    # Another passage size concerns retrieval by methods; other data all of that task.
    again(passage_size=7)
    assert sum("have changed" in line for line in said) == 2
    tasks[0] = replace(tasks[0], gold=[*tasks[0].gold[:-1], 4.5])
    again(passage_size=7)
    assert sum("have changed" in line for line in said) == 2
    again(passage_size=7, fresh=True)
    assert not any("before" in line or "changed" in line for line in said)
    # A line cut short is measured again; one that is no outcome is not passed over.
    path.write_text(path.read_text()[:-40])
    again(passage_size=7)
    assert sum(line.endswith("measured before") for line in said) == 4
    assert len(path.read_text().splitlines()) == 5 and path.read_text().endswith("\n")
    path.write_text(path.read_text()[:-40] + "\n")
    with pytest.raises(InvalidParameter, match=r"line 5 .*--fresh"):
        ResultStore(path)


def test_the_command_prints_tables_and_goes_on(folder: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    for part in families.build("llama"):
        part.save_pretrained(tmp_path / "model")
    output, picture = tmp_path / "scores.jsonl", tmp_path / "sizes.svg"
    given = ["evaluate", str(tmp_path / "model"), "--data", str(folder), "-m", "plain+whiten", "-t", "same"]
    given += ["-t", "shelf", "--fit-samples", "2,4,all", "--plot", str(picture), "-o", str(output)]
    code, out, _ = run(capsys, monkeypatch, *given)
    assert code == 0
    for wanted in (
        "`plain`",
        "`bm25`",
        "`plain+whiten`",
        "calibrated on general text",
        "read within their document",
        "mrr@10",
    ):
        assert wanted in out
    assert "| task | method | general | 2 | 4 | all |" in out
    assert picture.read_text().startswith("<?xml")
    code, again, err = run(capsys, monkeypatch, *given)
    assert again == out
    assert err.count("measured before") == len(output.read_text().splitlines()) == 14
    code, judged, err = run(capsys, monkeypatch, *given, "--rerank", "2")
    row = next(line for line in judged.splitlines() if line.startswith("| `plain+whiten, first 2 judged`"))
    assert code == 0 and sorted(cell.strip()[-1:] for cell in row.split("|")[2:4])[0] == ""  # of pairs
    assert sorted(cell.strip()[-1:] for cell in row.split("|")[2:4])[1] in ("+", "-", "=")
    assert "re-ranks so many passages" in judged and "first 2 judged: ndcg@10" in err
    given_pairs = ["evaluate", str(tmp_path / "model"), "--data", str(folder), "-t", "same", "--rerank", "2"]
    code, out, err = run(capsys, monkeypatch, *given_pairs)
    assert code != 0 and out == "" and "name such a task" in " ".join(err.replace("│", " ").split())
    code, apart, err = run(capsys, monkeypatch, *given, "--separate")
    changed = [line for line in err.splitlines() if "have changed" in line]
    assert "each read by itself" in apart and len(changed) == 6
    assert all(line.startswith("shelf: plain") for line in changed)


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
    for broken in ('{"a": 1\n', "[" * 200_000):
        (tmp_path / "sts" / "broken.jsonl").write_text(broken)
        with pytest.raises(InvalidParameter, match="line 1"):
            find_tasks(tmp_path)
