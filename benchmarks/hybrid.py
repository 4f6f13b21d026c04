"""Measure search by words, by meaning and by both, through a real index, and write the handbook's page about it.

    python benchmarks/hybrid.py --model smollm2 --data $EDDY_EVAL_DATA

writes documents into an index in a temporary folder, with the method recommended for the model, asks every question
once, and keeps scores and paired intervals in `results/hybrid.json`. A document's score is its best passage's.
`--name` names a model that is a file or a folder. Without `--model`, the page is written from `results/` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from output import RESULTS, ROOT, put, say
from results import KINDS, with_parts

from chroma_eddy import ALPHA, Document, Hit, open_index
from chroma_eddy.query.ranking import reciprocal_rank_fusion
from eddy_embed import Embedder, methods
from eddy_embed.analysis.evaluate.metrics import ndcg
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.runner import bm25, retrieval_metrics
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.tasks import Retrieval, find_tasks

Doubles = NDArray[np.float64]
TASKS = ("cranfield", "cisi", "squality")
"""Tasks on docs/hybrid.md; the README's table has a part of one too."""
KNOWN = KINDS["Retrieval"][1]
DEV = "cranfield"
"""The task on which `ALPHA` and everything else here was chosen."""
FILE = RESULTS / "hybrid.json"
CANDIDATES = 100
ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
WORDS, MEANING, BOTH = "words", "meaning", "both"


def main(given: list[str] | None = None) -> None:
    """Measure what is asked for, then write the page."""
    command = argparse.ArgumentParser(description="Measure search by words, by meaning and by both.")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--model", help="measure with this model; without it, only the page is written")
    command.add_argument("--name", help="of the model on the page; default: as --model names it")
    command.add_argument("--task", action="append", choices=KNOWN, help="only these tasks; may be repeated")
    options = command.parse_args(given)
    measured: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if options.model is not None:
        if options.data is None:
            command.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
        for task in with_parts(find_tasks(options.data)):
            if isinstance(task, Retrieval) and task.name in (options.task or KNOWN):
                measured.setdefault(options.name or options.model, {})[task.name] = measure(task, options.model)
                FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    put(ROOT / "docs" / "hybrid.md", "hybrid", table(measured))
    put(ROOT / "docs" / "hybrid.md", "fusions", fusions(measured))
    say("written: docs/hybrid.md")


def measure(task: Retrieval, model: str) -> dict[str, Any]:
    """Scores of every way to rank on a task, and the differences of both to words and to meaning."""
    with Embedder(model) as embedder:
        method = methods.entry_for(embedder.backbone).retrieval.fitted
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedder(model, method=method) as embedder,
        open_index(folder, "library", embedder) as index,
    ):
        texts = zip(task.ids, task.texts, strict=True)
        index.upsert(Document(id_, text) for id_, text in texts if text.strip())
        say(f"{task.name}: {method}: {index.status().passages} passages")
        asked = [index.query(query, 2 * CANDIDATES, fetch_k=CANDIDATES) for query in task.queries]
        nearest = [index.query(query, 5 * CANDIDATES, hybrid=False) for query in task.queries]
    scores = {name: _scores(task, asked, ranking) for name, ranking in RANKINGS.items()}
    scores[MEANING] = _scores(task, nearest, lambda hits: np.array([hit.cosine for hit in hits]))
    scores["bm25s"] = retrieval_metrics(task, bm25(task))["ndcg@10"]
    results = {
        name: TaskResult(System(name), task.name, {"ndcg@10": values}, Cost(), {}) for name, values in scores.items()
    }
    found = {
        "method": method,
        "scores": {name: result.interval().rounded for name, result in results.items()},
        "differences": {name: results[BOTH].difference(results[name]).rounded for name in (WORDS, MEANING, "bm25s")},
    }
    say(f"{task.name}: {found['scores']} {found['differences']}")
    return found


# --- Ways to rank the candidates of a question


def _worded(hits: Sequence[Hit]) -> Doubles:
    """The part of the scores that words gave, before it was weighed."""
    return np.array([(hit.score - ALPHA * (hit.deviation or 0)) / (1 - ALPHA) for hit in hits])


def _near(hits: Sequence[Hit]) -> Doubles:
    return np.array([hit.deviation or 0.0 for hit in hits])


def _weighed(alpha: float) -> Callable[[Sequence[Hit]], Doubles]:
    return lambda hits: np.asarray(alpha * _near(hits) + (1 - alpha) * _worded(hits))


def _only_words(hits: Sequence[Hit]) -> Doubles:
    worded = _worded(hits)
    return np.where([bool(hit.bm25) for hit in hits], worded, worded - 1e6)


def _ranks(hits: Sequence[Hit]) -> Doubles:
    sides = [
        sorted(hits, key=lambda hit: -hit.cosine)[:CANDIDATES],
        [hit for hit in sorted(hits, key=lambda hit: -(hit.bm25 or 0)) if hit.bm25][:CANDIDATES],
    ]
    fused = reciprocal_rank_fusion([[hit.id for hit in side] for side in sides])
    return np.array([fused.get(hit.id, 0.0) for hit in hits])


def _min_max(hits: Sequence[Hit]) -> Doubles:
    def scaled(values: Doubles) -> Doubles:
        low, high = values.min(), values.max()
        return (values - low) / (high - low) if high > low else np.zeros_like(values)

    return scaled(np.array([hit.cosine for hit in hits])) + scaled(np.array([hit.bm25 or 0.0 for hit in hits]))


def _of_candidates(hits: Sequence[Hit]) -> Doubles:
    def standardised(values: Doubles) -> Doubles:
        return np.asarray((values - values.mean()) / (values.std() or 1.0))

    return standardised(np.array([hit.cosine for hit in hits])) + standardised(
        np.array([hit.bm25 or 0.0 for hit in hits])
    )


RANKINGS: dict[str, Callable[[Sequence[Hit]], Doubles]] = {
    WORDS: _only_words,
    BOTH: _weighed(ALPHA),
    **{f"alpha={alpha}": _weighed(alpha) for alpha in ALPHAS},
    "words of passages alone": lambda hits: np.array([hit.bm25 or 0.0 for hit in hits]),
    "reciprocal ranks": _ranks,
    "min-max of the candidates": _min_max,
    "standardised over the candidates": _of_candidates,
}


def _scores(task: Retrieval, asked: Sequence[Sequence[Hit]], ranking: Callable[[Sequence[Hit]], Doubles]) -> Doubles:
    """The nDCG@10 of every query."""
    values = []
    for grades, hits in zip(task.grades, asked, strict=True):
        scores = ranking(hits)
        best: dict[str, float] = {}
        for hit, score in zip(hits, scores, strict=True):
            best[hit.document] = max(best.get(hit.document, -np.inf), float(score))
        first = sorted(best, key=lambda id_: -best[id_])[:10]
        values.append(ndcg(np.array([grades.get(id_, 0.0) for id_ in first]), np.array(list(grades.values()))))
    return np.array(values)


# --- The page


def table(measured: dict[str, Any]) -> str:
    """Words, meaning and both, by task and model."""
    lines = [
        "| set | model | words | meaning | both | both − words | both − meaning |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for task in TASKS:
        for model, tasks in measured.items():
            if task in tasks:
                scores, differences = tasks[task]["scores"], tasks[task]["differences"]
                cells = [f"{scores[name][0]:.3f}" for name in (WORDS, MEANING)]
                cells += [f"**{scores[BOTH][0]:.3f}**", *(_difference(differences[name]) for name in (WORDS, MEANING))]
                shown = f"*{task}*" if task == DEV else task
                lines.append(f"| {shown} | {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fusions(measured: dict[str, Any]) -> str:
    """Other ways to fuse, by task and model."""
    columns = [(task, model) for task in TASKS for model, tasks in measured.items() if task in tasks]
    lines = [
        f"| fusion | {' | '.join(f'{task}, {model}' for task, model in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name in [*list(RANKINGS)[2:], "bm25s"]:
        cells = [f"{measured[model][task]['scores'][name][0]:.3f}" for task, model in columns]
        shown = "BM25 of whole documents, not stemmed" if name == "bm25s" else name
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _difference(interval: Sequence[float]) -> str:
    value, low, high = interval
    sign = "=" if low <= 0 <= high else "+" if value > 0 else "-"
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f}) {sign}"


if __name__ == "__main__":
    main()
