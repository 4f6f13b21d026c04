"""Measure keyword search, vector search and hybrid search, by language models and their peers, in real indexes.

    python benchmarks/search.py --model smollm2 --model all-MiniLM-L6-v2 --model wordllama --data $EDDY_EVAL_DATA \
        --documents FOLDER --questions questions.jsonl --questions more_questions.jsonl

Each model writes each collection into an index, `smollm2` with `best` and with `fast`, and answers every question by
keywords, by vectors and by both; its `best` also re-ranked by the model. `wordllama` is a static model, a vector a
token: its package embeds the passages of such an index. In the collections of `--data` a document is found by its best
passage. The files of `--documents` are read and written as `eddy-demo ingest` does it; a passage answers a question, a
row {"text", "needle", "kind"}, if the regular expression `needle` is found in it.

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
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from evaluation.metrics import ndcg, reciprocal_rank
from evaluation.results import Cost, System, TaskResult
from evaluation.tasks import Retrieval, find_tasks
from output import RESULTS, ROOT, put, say

from chroma_eddy import Document, Hit, Index, open_index
from eddy_demo.library.library import to_index_document
from eddy_demo.library.settings import DEFAULT_PASSAGE_SIZE
from eddy_embed import Embedder
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.integrations.documents import DOCUMENT
from readers_eddy.documents import read_documents

FILE = RESULTS / "search.json"
TASKS = {"cranfield": "Cranfield", "cisi": "CISI", "squality": "SQuALITY"}
"""Collections of `--data`, and their names on the page."""
DEV = "cranfield"
"""The collection among them on which defaults were chosen."""
SMALL, LARGER, TRAINED, STATIC = "smollm2", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "all-MiniLM-L6-v2", "wordllama"
"""Models of the README's table."""
FAST = "fast"
LABELS = {
    SMALL: "SmolLM2 135M",
    f"{SMALL} {FAST}": "SmolLM2 `fast`",
    LARGER: "Qwen2.5-Coder 0.5B",
    TRAINED: f"{TRAINED}, trained",
    STATIC: f"{STATIC}, trained, static",
}
"""Models of the page, with the setting that is not the default, and their names there."""
CANDIDATES = 100
KEYWORD, VECTOR, HYBRID, RERANKED = "keyword", "vector", "hybrid", "re-ranked"
RANKINGS: dict[str, Any] = {KEYWORD: {"alpha": 0}, VECTOR: {"alpha": 1}, HYBRID: {}, RERANKED: {"rerank": True}}
"""Ways to rank, and the options of a query that ask for them."""
NOT_RERANKED = ("cranfield", "squality")
"""Collections with hundreds of questions, which the model would take an hour of a core to re-rank."""


@dataclass(frozen=True)
class Collection:
    """Documents and questions, with what scores the hits of a question, by the question's position.

    Attributes:
        sets: The positions of the questions of each named set.
        metric: Name of the score.
        passage_size: Most tokens in a passage.
    """

    documents: list[Document]
    questions: list[str]
    score: Callable[[int, list[Hit]], float]
    sets: dict[str, list[int]]
    metric: str
    passage_size: int = PASSAGE_SIZE


def main(given: list[str] | None = None) -> None:
    """Measure what is asked for and missing, then write the pages."""
    command = argparse.ArgumentParser(description="Measure keyword search, vector search and hybrid search.")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--documents", type=Path, help="folder of files that `eddy-demo ingest` reads")
    command.add_argument("--questions", type=Path, action="append", help="about them, JSON Lines; may be repeated")
    command.add_argument("--model", action="append", default=[], help="measure with this model; may be repeated")
    options = command.parse_args(given)
    measured: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    wanted = list(collections(options)) if options.model else []
    for model in options.model:
        for setting in ("best", FAST) if model == SMALL else ("best",):
            name = Path(model).name + f" {FAST}" * (setting == FAST)
            sets = measured.setdefault(name, {})
            for collection in wanted:
                rankings = [VECTOR] if model == STATIC else [KEYWORD, VECTOR, HYBRID]
                rankings += [RERANKED] * (name == SMALL and not set(NOT_RERANKED) & set(collection.sets))
                if any(set(rankings) - set(sets.get(part, {}).get("scores", {})) for part in collection.sets):
                    sets |= measure(collection, model, setting, rankings)
                    FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    put(ROOT / "README.md", "numbers", short(measured))
    put(ROOT / "docs" / "search.md", "search", table(measured))
    say("written: README.md, docs/search.md")


def collections(options: argparse.Namespace) -> Iterator[Collection]:
    """The collections that the options name."""
    if options.documents is not None:
        yield of_files(options.documents, options.questions or [])
    if options.data is not None:
        for task in find_tasks(options.data):
            if isinstance(task, Retrieval) and task.name in TASKS:
                yield of_task(task)


def of_task(task: Retrieval) -> Collection:
    """A task; nDCG@10 of the documents, each by its best passage."""
    given = [Document(id_, text) for id_, text in zip(task.ids, task.texts, strict=True) if text.strip()]

    def score(at: int, hits: list[Hit]) -> float:
        first = list(dict.fromkeys(hit.document for hit in hits))[:10]
        grades = task.grades[at]
        return float(ndcg(np.array([grades.get(id_, 0.0) for id_ in first]), np.array(list(grades.values()))))

    every = list(range(len(task.queries)))
    return Collection(given, task.queries, score, {task.name: every}, "nDCG@10")


def of_files(folder: Path, files: Sequence[Path]) -> Collection:
    """Files and questions about them; MRR@10 of the passages, of all questions and of those that paraphrase."""
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    needles = [re.compile(row["needle"], re.IGNORECASE) for row in rows]
    paraphrases = [at for at, row in enumerate(rows) if row["kind"] == "paraphrase"]
    documents = [to_index_document(document) for document in read_documents([folder]).documents]

    def score(at: int, hits: list[Hit]) -> float:
        return float(reciprocal_rank(np.array([float(bool(needles[at].search(hit.text))) for hit in hits[:10]])))

    sets = {"manuals": list(range(len(rows))), "paraphrases": paraphrases}
    return Collection(documents, [row["text"] for row in rows], score, sets, "MRR@10", DEFAULT_PASSAGE_SIZE)


def measure(collection: Collection, model: str, method: str, rankings: Sequence[str]) -> dict[str, Any]:
    """By set: scores of ways to rank, differences between them, and what reading and ranking cost."""
    ranked: dict[str, list[list[Any]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedder(SMALL if model == STATIC else model, method=FAST if model == STATIC else method) as embedder,
        open_index(folder, "library", embedder, passage_size=collection.passage_size, sentence_vectors=False) as index,
    ):
        about = {"method": str(embedder.method), "metric": collection.metric}
        begun = time.process_time()
        index.upsert(collection.documents)
        cost = {
            "bytes": embedder.explain(collection.questions[0]).bytes,
            "reading": round(time.process_time() - begun, 1),
        }
        say(f"{Path(model).name}: {', '.join(collection.sets)}: {about}: {index.status().passages} passages: {cost}")
        if model == STATIC:
            about["method"] = STATIC
            ranked[VECTOR], cost = by_static_vectors(index, collection.questions)
        for ranking in rankings if model != STATIC else ():
            index.query(collection.questions[0], **RANKINGS[ranking])  # what a process loads once does not count
            begun = time.process_time()
            ranked[ranking] = [index.query(text, CANDIDATES, **RANKINGS[ranking]) for text in collection.questions]
            cost[ranking] = round((time.process_time() - begun) / len(collection.questions), 3)
    values = {name: [collection.score(at, hits) for at, hits in enumerate(lists)] for name, lists in ranked.items()}
    return {
        name: {**about, "cost": cost, **scored(name, values, positions)} for name, positions in collection.sets.items()
    }


def by_static_vectors(index: Index, questions: list[str]) -> tuple[list[list[Any]], dict[str, float]]:
    """Rank an index's passages by the static model; the hits of each question, and what reading them cost."""
    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent)  # what its package brings
    rows = index.rows(texts=True)
    begun = time.process_time()
    passages = model.embed([row.text for row in rows], norm=True)
    cost = {"bytes": model.embedding.nbytes, "reading": round(time.process_time() - begun, 1)}
    best = np.argsort(-(model.embed(questions, norm=True) @ passages.T), axis=1, kind="stable")[:, :CANDIDATES]
    hits = [SimpleNamespace(document=row.metadata[DOCUMENT], text=row.text) for row in rows]
    return [[hits[at] for at in order] for order in best], cost


def scored(name: str, values: dict[str, list[float]], positions: list[int]) -> dict[str, Any]:
    """Mean scores of a set's questions with their intervals, and the differences between ways to rank."""
    results = {
        ranking: TaskResult(System(ranking), name, {"score": np.array(scores)[positions]}, Cost(), {})
        for ranking, scores in values.items()
    }
    pairs = {KEYWORD: (HYBRID, KEYWORD), VECTOR: (HYBRID, VECTOR), RERANKED: (RERANKED, HYBRID)}
    summary = {
        "scores": {ranking: result.interval().rounded for ranking, result in results.items()},
        "differences": {
            other: results[first].difference(results[second]).rounded
            for other, (first, second) in pairs.items()
            if first in results and second in results
        },
    }
    say(f"{name}: {json.dumps(summary)}")
    return summary


# --- The pages


def table(measured: dict[str, Any]) -> str:
    """Keyword, vector and hybrid search, by collection and model."""
    names = {"manuals": "manuals", "paraphrases": "manuals, paraphrases"} | TASKS
    lines = [
        "| set | model | keyword | vector | hybrid | − keyword | − vector | re-ranked | − hybrid |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, label in names.items():
        for model, shown_model in LABELS.items():
            if part := measured.get(model, {}).get(name):
                scores, differences = part["scores"], part["differences"]
                cells = [f"{scores[ranking][0]:.3f}" if ranking in scores else "" for ranking in RANKINGS]
                cells[3:3] = [_difference(differences.get(other)) for other in (KEYWORD, VECTOR)]
                cells.append(_difference(differences.get(RERANKED)))
                shown = f"*{label}*" if name == DEV else label
                lines.append(f"| {shown} | {shown_model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def short(measured: dict[str, Any]) -> str:
    """The README's table: BM25, a language model's two settings, a larger one, and trained models."""
    name, larger = LABELS[SMALL], LABELS[LARGER]
    rows = [
        ("keyword search (BM25) alone", f"{SMALL} {FAST}", KEYWORD),
        (f"{STATIC}, trained, a vector a token", STATIC, VECTOR),
        (f"{name} `fast`, no layer", f"{SMALL} {FAST}", VECTOR),
        (f"{name} `fast`, hybrid", f"{SMALL} {FAST}", HYBRID),
        (name, SMALL, VECTOR),
        (f"**{name}, hybrid: an Eddy index as it comes**", SMALL, HYBRID),
        (f"the same with `rerank=True`: {name} re-ranks the first 10", SMALL, RERANKED),
        (f"{larger}, hybrid", LARGER, HYBRID),
        (f"{TRAINED}, trained", TRAINED, VECTOR),
        (f"{TRAINED}, hybrid, in an Eddy index", TRAINED, HYBRID),
    ]
    heads = {"manuals": "manuals", "paraphrases": "of them paraphrases", "cisi": "CISI", "squality": "SQuALITY"}
    lines = [
        f"| search by | {' | '.join(heads.values())} | weights | reading |",
        f"|---|{'---:|' * (len(heads) + 2)}",
    ]
    for label, model, ranking in rows:
        sets = measured.get(model, {})
        scores = [sets.get(part, {}).get("scores", {}) for part in heads]
        cells = [_cell(part[ranking]) if ranking in part else "–" for part in scores]
        cost = sets["manuals"]["cost"] if ranking in (VECTOR, HYBRID) and "manuals" in sets else None
        cells += [f"{cost['bytes'] / 1e6:.0f} MB", f"{cost['reading']:.0f} s"] if cost else ["–", "–"]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(interval: Sequence[float]) -> str:
    value, low, high = interval
    return f"{value:.3f} ± {(high - low) / 2:.3f}"


def _difference(interval: Sequence[float] | None) -> str:
    if interval is None:
        return ""
    value, low, high = interval
    sign = "=" if low <= 0 <= high else "+" if value > 0 else "-"
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f}) {sign}"


if __name__ == "__main__":
    main()
