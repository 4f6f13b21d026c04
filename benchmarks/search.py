"""Measure search by words, by meaning and by both, for a language model and a trained encoder, through real indexes.

    python benchmarks/search.py --model smollm2 --model all-MiniLM-L6-v2 --data $EDDY_EVAL_DATA \
        --documents FOLDER --questions questions.jsonl

Each model writes each collection into an index, a language model twice, with `best` and with `fast`, and answers every
question by words, by meaning and by both; `best` also re-ranked by the model. `--indexes` keeps the indexes. In the
collections of `--data` a document is found by its best passage. The files of `--documents` are read and written as
`eddy-demo ingest` does it; a passage answers a question, a row {"text", "needle", "kind"}, if the regular expression
`needle` is found in it.

Scores and paired intervals are added to `results/search.json` as they come; what is there is not measured again. Then
the README's table and that of docs/search.md are written, also without `--model`. A model is a name, a file or a
folder, and stands under its last name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from evaluation.metrics import ndcg, reciprocal_rank
from evaluation.results import Cost, System, TaskResult
from evaluation.tasks import Retrieval, find_tasks
from output import RESULTS, ROOT, put, say

from chroma_eddy import Document, Hit, open_index
from eddy_demo.library.defaults import DEFAULT_PASSAGE_SIZE
from eddy_demo.library.index import to_index_document
from eddy_demo.readers.documents import read_documents
from eddy_embed import Embedder
from eddy_embed.encoding.validation import PASSAGE_SIZE

FILE = RESULTS / "search.json"
TASKS = {"cranfield": "Cranfield", "cisi": "CISI", "squality": "SQuALITY"}
"""Collections of `--data`, and their names on the page."""
DEV = "cranfield"
"""The collection among them on which defaults were chosen."""
KINDS = {"paraphrase": "paraphrases", "keyword": "keywords", "term": "keywords"}
"""Kinds of questions over the files, and the set that they belong to."""
OWN, TRAINED = "smollm2", "all-MiniLM-L6-v2"
"""Models of the README's table."""
FAST = "fast"
LABELS = {OWN: "SmolLM2", f"{OWN} {FAST}": "SmolLM2 `fast`", TRAINED: f"{TRAINED}, trained"}
"""Models of the page, with the setting that is not the default, and their names there."""
CANDIDATES = 100
WORDS, MEANING, BOTH, RERANKED = "words", "meaning", "both", "re-ranked"
SIDES: dict[str, dict[str, Any]] = {
    WORDS: {"alpha": 0.0},
    MEANING: {"hybrid": False},
    BOTH: {},
    RERANKED: {"rerank": True},
}
"""Ways to rank, and the options of a query that ask for them."""
TIMED, LENGTH = 50, 5_000
"""Texts at most whose embedding is timed, and so many of their first characters."""


@dataclass(frozen=True)
class Collection:
    """Documents and questions, with what judges the hits of a question, by the question's position.

    Attributes:
        sets: The positions of the questions of each named set.
        metric: Name of the score.
        passage_size: Most tokens in a passage.
    """

    documents: list[Document]
    questions: list[str]
    judge: Callable[[int, list[Hit]], float]
    sets: dict[str, list[int]]
    metric: str
    passage_size: int = PASSAGE_SIZE


def main(given: list[str] | None = None) -> None:
    """Measure what is asked for and missing, then write the pages."""
    command = argparse.ArgumentParser(description="Measure search by words, by meaning and by both.")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--documents", type=Path, help="folder of files that `eddy-demo ingest` reads")
    command.add_argument("--questions", type=Path, help="questions about them, JSON Lines")
    command.add_argument("--indexes", type=Path, help="folder to keep the indexes in, and to take them from")
    command.add_argument("--model", action="append", default=[], help="measure with this model; may be repeated")
    options = command.parse_args(given)
    measured: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    asked = list(collections(options)) if options.model else []
    for model in options.model:
        with Embedder(model) as embedder:
            trained = embedder.backbone.pooling is not None
        for setting in ("best",) if trained else ("best", FAST):
            name = Path(model).name + f" {FAST}" * (setting == FAST)
            found = measured.setdefault(name, {})
            sides = [side for side in SIDES if side != RERANKED or (setting == "best" and not trained)]
            for collection in asked:
                if any(set(sides) - set(found.get(each, {}).get("scores", {})) for each in collection.sets):
                    found |= measure(collection, model, setting, sides, options.indexes)
                    FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    put(ROOT / "README.md", "numbers", short(measured))
    put(ROOT / "docs" / "search.md", "search", table(measured))
    say("written: README.md, docs/search.md")


def collections(options: argparse.Namespace) -> Iterator[Collection]:
    """The collections that the options name."""
    if options.documents is not None:
        yield of_files(options.documents, options.questions)
    if options.data is not None:
        for task in find_tasks(options.data):
            if isinstance(task, Retrieval) and task.name in TASKS:
                yield of_task(task)


def of_task(task: Retrieval) -> Collection:
    """A task; nDCG@10 of the documents, each by its best passage."""
    given = [Document(id_, text) for id_, text in zip(task.ids, task.texts, strict=True) if text.strip()]

    def judge(at: int, hits: list[Hit]) -> float:
        first = list(dict.fromkeys(hit.document for hit in hits))[:10]
        grades = task.grades[at]
        return float(ndcg(np.array([grades.get(id_, 0.0) for id_ in first]), np.array(list(grades.values()))))

    every = list(range(len(task.queries)))
    return Collection(given, task.queries, judge, {task.name: every}, "nDCG@10")


def of_files(documents: Path, questions: Path) -> Collection:
    """Files and questions about them; MRR@10 of the passages, apart by kind of question."""
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    needles = [re.compile(row["needle"], re.IGNORECASE) for row in rows]
    sets: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        sets.setdefault(KINDS[row["kind"]], []).append(at)
    given = [to_index_document(document) for document in read_documents([documents]).documents]

    def judge(at: int, hits: list[Hit]) -> float:
        return float(reciprocal_rank(np.array([float(bool(needles[at].search(hit.text))) for hit in hits[:10]])))

    return Collection(given, [row["text"] for row in rows], judge, sets, "MRR@10", DEFAULT_PASSAGE_SIZE)


def measure(
    collection: Collection, model: str, method: str, sides: Sequence[str], indexes: Path | None
) -> dict[str, Any]:
    """By set: scores of ways to rank, differences between them, and what vectors and re-ranking cost."""
    about, values = answered(collection, model, method, sides, indexes)
    return {name: {**about, **scored(name, values, positions)} for name, positions in collection.sets.items()}


def answered(
    collection: Collection,
    model: str,
    method: str | None = None,
    sides: Sequence[str] = (WORDS, MEANING, BOTH),
    indexes: Path | None = None,
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """What was measured and at which cost, and the score of every question by way to rank.

    The method is by default the one recommended for the model.
    """
    name = "-".join([Path(model).name, str(method), *collection.sets])
    with (
        tempfile.TemporaryDirectory() if indexes is None else nullcontext(indexes / name) as folder,
        Embedder(model, method=method) as embedder,
        open_index(folder, "library", embedder, passage_size=collection.passage_size, sentence_vectors=False) as index,
    ):
        method = str(embedder.method)
        about = {"method": method, "metric": collection.metric, "cost": cost(embedder, collection)}
        index.upsert(collection.documents)
        say(f"{Path(model).name}: {', '.join(collection.sets)}: {method}: {index.status().passages} passages")
        ranked = {}
        for side in sides:
            index.query(collection.questions[0], **SIDES[side])  # what a process loads once does not count
            begun = time.process_time()
            ranked[side] = [index.query(each, CANDIDATES, **SIDES[side]) for each in collection.questions]
            about["cost"][side] = round((time.process_time() - begun) / len(collection.questions), 3)
    return about, {name: [collection.judge(at, hits) for at, hits in enumerate(each)] for name, each in ranked.items()}


def cost(embedder: Embedder, collection: Collection) -> dict[str, float]:
    """Bytes of weights in memory, and a processor's seconds for the vectors of 1,000 passages."""
    texts = [document.text[:LENGTH] for document in collection.documents[:TIMED]]
    held = embedder.explain(collection.questions[0]).bytes
    embedder.encode_long(texts[0])  # what a process loads once does not count
    begun = time.process_time()
    found = embedder.encode_long(texts, passage_size=collection.passage_size, parts=("passages",))
    spent = time.process_time() - begun
    return {"bytes": held, "seconds": round(1000 * spent / sum(len(each.passages) for each in found), 2)}


def scored(name: str, values: dict[str, list[float]], positions: list[int]) -> dict[str, Any]:
    """Mean scores of a set's questions with their intervals."""
    results = {
        ranking: TaskResult(System(ranking), name, {"score": np.array(each)[positions]}, Cost(), {})
        for ranking, each in values.items()
    }
    found = {
        "scores": {ranking: result.interval().rounded for ranking, result in results.items()},
        "differences": {other: results[BOTH].difference(results[other]).rounded for other in (WORDS, MEANING)},
    }
    if RERANKED in results:
        found["differences"][RERANKED] = results[RERANKED].difference(results[BOTH]).rounded
    say(f"{name}: {json.dumps(found)}")
    return found


# --- The pages


def table(measured: dict[str, Any]) -> str:
    """Words, meaning and both, by collection and model."""
    names = TASKS | {"paraphrases": "manuals, paraphrases", "keywords": "manuals, keywords"}
    lines = [
        "| set | model | words | meaning | both | both − words | both − meaning | re-ranked | re-ranked − both |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, label in names.items():
        for model, shown_model in LABELS.items():
            sets = measured.get(model, {})
            if BOTH in sets.get(name, {}).get("scores", {}):
                scores, differences = sets[name]["scores"], sets[name]["differences"]
                cells = [f"{scores[side][0]:.3f}" for side in (WORDS, MEANING)]
                cells += [f"**{scores[BOTH][0]:.3f}**", *(_difference(differences[side]) for side in (WORDS, MEANING))]
                cells += (
                    [f"{scores[RERANKED][0]:.3f}", _difference(differences[RERANKED])]
                    if RERANKED in scores
                    else ["", ""]
                )
                shown = f"*{label}*" if name == DEV else label
                lines.append(f"| {shown} | {shown_model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def short(measured: dict[str, Any]) -> str:
    """The README's table: words, a language model's two settings, and a trained encoder, each alone and with words."""
    name = LABELS[OWN]
    rows = [
        ("words alone (BM25)", f"{OWN} {FAST}", WORDS, False),
        (f"{name} `fast`, no layer, alone", f"{OWN} {FAST}", MEANING, True),
        (f"{name} `fast` and words", f"{OWN} {FAST}", BOTH, True),
        (f"{name} `best`, its layers, alone", OWN, MEANING, True),
        (f"**{name} `best` and words: an Eddy index as it comes**", OWN, BOTH, True),
        (f"the same with `rerank=True`: {name} judges the first 20", OWN, RERANKED, False),
        (f"{TRAINED} alone", TRAINED, MEANING, True),
        (f"{TRAINED} and words, in an Eddy index", TRAINED, BOTH, True),
    ]
    heads = {"paraphrases": "manuals: paraphrases", "keywords": "manuals: keywords"}
    heads |= {"cisi": "CISI", "squality": "SQuALITY"}
    lines = [
        f"| search by | {' | '.join(heads.values())} | weights | 1,000 passages |",
        f"|---|{'---:|' * (len(heads) + 2)}",
    ]
    for label, model, ranking, costing in rows:
        sets = measured.get(model, {})
        scores = [sets.get(name, {}).get("scores", {}) for name in heads]
        cells = [_cell(own[ranking]) if ranking in own else "–" for own in scores]
        spent = sets["cisi"]["cost"] if costing and "cisi" in sets else None
        cells += [f"{spent['bytes'] / 1e6:.0f} MB", f"{spent['seconds']:.1f} s"] if spent else ["–", "–"]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(interval: Sequence[float]) -> str:
    value, low, high = interval
    return f"{value:.3f} ± {(high - low) / 2:.3f}"


def _difference(interval: Sequence[float]) -> str:
    value, low, high = interval
    sign = "=" if low <= 0 <= high else "+" if value > 0 else "-"
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f}) {sign}"


if __name__ == "__main__":
    main()
