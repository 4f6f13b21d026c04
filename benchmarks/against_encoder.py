"""How near a language model's methods come to a trained encoder: the best one, several combined, and with words.

    python benchmarks/against_encoder.py --model smollm2 --encoder all-MiniLM-L6-v2 --data $EDDY_EVAL_DATA

Methods are combined by a weighted sum of their cosines, which is the cosine of their vectors, scaled and concatenated.
The search takes the best method, then again and again the method and weight that gain most, until less than `GAIN` is
gained. It sees one half of a task, every other query or pair, and scores the other half; then the halves change places,
and the scores cover all. For search, BM25 of whole documents is added in standard deviations of each query's scores,
to the encoder too, by the weight that is best on the half that is seen; 0 leaves it out.

Results are `results/against-encoder.json`, a section of docs/results.md. Cosines are kept in `runs/cosines/`, so the
same command resumes. `--encoder` is a folder or a name; `--name` names a model that is a file or a folder.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import results
from output import RESULTS, ROOT, say

from eddy_embed import Embedder, methods
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.runner import bm25, by_document, retrieval_metrics
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.task_vectors import embed
from eddy_embed.analysis.evaluate.tasks import Pairs, Retrieval, digest, find_tasks
from eddy_embed.utils.arrays import Doubles, Ints
from eddy_embed.utils.atomic_files import atomic_write

FILE = RESULTS / "against-encoder.json"
TASKS = ("stsb_dev", "sts12_518", "sts13", "sickr_trial", "cranfield", "cisi", "squality")
SIMILARITY = (
    *("plain:exit=0", "plain:exit=0+sif", "plain:exit=0+sif+filter", "plain:exit=1"),
    *("prompteol:exit=-2", "cot", "echo:exit=-2", "kv"),
)
SEARCH = ("plain:exit=0", "plain:exit=0+sif", "plain:exit=0+sif+filter", "plain:exit=1+sif", "plain:exit=2+sif")
"""Methods for each kind of task, without and with post-processing."""
WEIGHTS = (0.25, 0.5, 1.0, 2.0)
GAIN = 0.001

Scored = Pairs | Retrieval


@dataclass(frozen=True, eq=False)
class Cosines:
    """Cosines of pairs, shape (pairs,), or of queries with passages, (queries, passages).

    `owners` has the document of each passage, shape (passages,); it is empty for pairs.
    """

    values: Doubles
    owners: Ints

    def added(self, other: Cosines, weight: float) -> Cosines:
        """With another method's for the same passages."""
        return replace(self, values=self.values + weight * other.values)

    def documents(self) -> Doubles:
        """Each document's largest, shape (queries, documents)."""
        return by_document(self.values, self.owners)


def main(given: list[str] | None = None) -> None:
    """Measure what is asked for, then write the page of results."""
    command = argparse.ArgumentParser(description="Compare methods, alone and combined, with a trained encoder.")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--model", required=True, help="the language model")
    command.add_argument("--name", help="of the model on the page; default: as --model names it")
    command.add_argument("--encoder", required=True, help="the trained encoder")
    command.add_argument("--task", action="append", choices=TASKS, help="only these tasks; may be repeated")
    options = command.parse_args(given)
    if options.data is None:
        command.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    name = options.name or options.model
    measured: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for task in results.with_parts(find_tasks(options.data)):
        if isinstance(task, Scored) and task.name in (options.task or TASKS):
            measured.setdefault(name, {})[task.name] = compared(task, options.model, name, options.encoder)
            FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    results.main([])


def compared(task: Scored, model: str, name: str, encoder: str) -> dict[str, Any]:
    """The scores of all sides with their intervals, and what was combined for each half."""
    texts = [results.own_text(text, name) for text in (SIMILARITY if isinstance(task, Pairs) else SEARCH)]
    systems = {system: each for text in texts for system, each in cosines(model, text, task).items()}
    trained = cosines(encoder, "plain", task, posts=("",))["plain"]
    items = np.arange(len(task.gold) if isinstance(task, Pairs) else len(task.queries))
    counted = standardised(bm25(task)) if isinstance(task, Retrieval) else None
    halves: dict[str, list[TaskResult]] = {}
    chosen, words = [], []
    for half in (0, 1):
        seen, unseen = items[items % 2 == half], items[items % 2 != half]
        picked, combined = search(task, systems, seen)
        sides = {"encoder": trained, "one": systems[picked[0][0]], "combined": combined}
        if counted is not None:
            for side in ("encoder", "combined"):
                weight, added = with_words(task, sides[side], counted, seen)
                sides[f"{side} with words"] = added
                words.append([side, weight])
        for side, each in sides.items():
            halves.setdefault(side, []).append(judged(task, each, unseen))
        chosen.append([[each, sum(weight for other, weight in picked if other == each)] for each in dict(picked)])
    found = {side: pooled(both) for side, both in halves.items()}
    differences = {
        f"{side} - {other}": found[side].difference(found[other]).rounded
        for side, other in results.COMPARED
        if side in found and other in found
    }
    row = {
        "encoder": Path(encoder).name,
        "chosen": chosen,
        "words": words,
        "scores": {side: each.interval().rounded for side, each in found.items()},
        "differences": differences,
    }
    say(f"{task.name}: {json.dumps(row)}")
    return row


def pooled(halves: list[TaskResult]) -> TaskResult:
    """Outcomes on two halves as one; similarities in standard deviations, since each half has its own combination."""
    metrics = {}
    for metric in halves[0].metrics:
        parts = [half.metrics[metric] for half in halves]
        if parts[0].ndim == 2:
            parts = [np.stack([standardised(part[None, :, 0])[0], part[:, 1]], axis=1) for part in parts]
        metrics[metric] = np.concatenate(parts)
    return replace(halves[0], metrics=metrics)


def search(task: Scored, systems: dict[str, Cosines], seen: Ints) -> tuple[list[tuple[str, float]], Cosines]:
    """Methods with their weights, found on the items seen, and the weighted sum of their cosines."""
    chosen: list[tuple[str, float]] = []
    total, best = Cosines(np.zeros(()), next(iter(systems.values())).owners), 0.0
    while True:
        steps = {
            (system, weight): judged(task, total.added(each, weight), seen).score()
            for system, each in systems.items()
            for weight in (WEIGHTS if chosen else (1.0,))
        }
        (system, weight), score = max(steps.items(), key=lambda step: step[1])
        if chosen and score < best + GAIN:
            return chosen, total
        chosen.append((system, weight))
        total, best = total.added(systems[system], weight), score
        say(f"{task.name}: {system} × {weight}: {score:.4f} on the half that is seen")


def with_words(task: Scored, given: Cosines, words: Doubles, seen: Ints) -> tuple[float, Cosines]:
    """Each document's cosine with BM25, standardised, added, and the weight of BM25, the best on the items seen."""
    meaning = standardised(given.documents())
    added = {weight: Cosines(meaning + weight * words, np.arange(words.shape[1])) for weight in (0.0, *WEIGHTS, 4.0)}
    weight = max(added, key=lambda each: judged(task, added[each], seen).score())
    return weight, added[weight]


def standardised(scores: Doubles) -> Doubles:
    """Scores in standard deviations above their row's mean, 0 where all are equal, shape (rows, columns)."""
    spread = scores.std(1, keepdims=True)
    return np.asarray((scores - scores.mean(1, keepdims=True)) / np.where(spread == 0, 1.0, spread))


def judged(task: Scored, given: Cosines, items: Ints) -> TaskResult:
    """The cosines' outcome on some of a task's pairs or queries."""
    if isinstance(task, Pairs):
        metrics = {"spearman": np.stack([given.values[items], np.array(task.gold)[items]], axis=1)}
    else:
        some = replace(task, grades=[task.grades[at] for at in items])
        metrics = retrieval_metrics(some, replace(given, values=given.values[items]).documents())
    return TaskResult(System("plain"), task.name, metrics, Cost(), {})


def cosines(model: str, text: str, task: Scored, posts: tuple[str, ...] = results.POSTS) -> dict[str, Cosines]:
    """A method's cosines by its name with each kind of post-processing, computed once and kept."""
    with Embedder(model, method=text) as embedder:
        host = embedder._pipeline.open_runner.host
        made_of = (text, embedder.fingerprint[:12], host.dtype, digest(task), results.PASSAGE_SIZE, *posts)
        key = " ".join(map(str, (Path(model).name, task.name, *made_of))).replace("/", "_")
        path = ROOT / "runs" / "cosines" / f"{key}.npz"
        if not path.exists():
            say(f"{task.name}: {text}")
            (vectors,) = embed(embedder, [host.exit_layer], task, results.PASSAGE_SIZE)
            found: dict[str, Any] = {}
            for post in posts:
                processed = vectors
                if post:
                    processed = vectors.processed(methods.parse(f"plain{post}").post)
                if isinstance(task, Pairs):
                    found[post] = np.einsum("nd,nd->n", *(processed.library[side] for side in processed.pairs.T))
                else:
                    found[post] = processed.asked @ processed.library.T
            path.parent.mkdir(parents=True, exist_ok=True)
            owners = vectors.owners if isinstance(task, Retrieval) else vectors.owners[:0]
            with atomic_write(path) as file:
                np.savez(file, owners=owners, **{f"of{post}": each.astype(np.float32) for post, each in found.items()})
    with np.load(path) as kept:
        return {f"{text}{post}": Cosines(kept[f"of{post}"].astype(np.float64), kept["owners"]) for post in posts}


if __name__ == "__main__":
    main()
