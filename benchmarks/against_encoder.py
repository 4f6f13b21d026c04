"""How near a language model's methods come to a trained encoder: the best one, several joined, and with words.

    python benchmarks/against_encoder.py --model smollm2 --encoder all-MiniLM-L6-v2 --data $EDDY_EVAL_DATA

Methods are joined by adding their weighed cosines, which are the cosines of their vectors put side by side. The search
takes the best method, then again and again the method and weight that gain most, until less than `GAIN` is gained. It
sees every other query or pair of a task; scores are those of the remaining ones. BM25 of whole documents joins a search
in standard deviations of each query's scores, with a weight that is found in the same way, also for the encoder.

Results are `results/against-encoder.json`, a section of docs/results.md. Cosines are kept in `runs/cosines/`, so the
same command resumes. `--encoder` is a folder or a name; `--name` names a model that is a file or a folder.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import results
from output import RESULTS, ROOT, say

from eddy_embed import Embedder, methods
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.runner import bm25, retrieval_metrics
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.task_vectors import embed
from eddy_embed.analysis.evaluate.tasks import Pairs, Retrieval, digest, find_tasks
from eddy_embed.utils.arrays import Doubles, Ints

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
        first_passages = np.flatnonzero(np.diff(self.owners, prepend=-1))
        return np.asarray(np.maximum.reduceat(self.values, first_passages, axis=1))


def main(given: list[str] | None = None) -> None:
    """Measure what is asked for, then write the page of results."""
    command = argparse.ArgumentParser(description="Compare methods, alone and joined, with a trained encoder.")
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
    """The scores of all sides on half of a task, with their intervals, and what was joined."""
    texts = [results.own_text(text, name) for text in (SIMILARITY if isinstance(task, Pairs) else SEARCH)]
    systems = {system: each for text in texts for system, each in cosines(model, text, task).items()}
    trained = cosines(encoder, "plain", task, posts=("",))["plain"]
    items = len(task.gold) if isinstance(task, Pairs) else len(task.queries)
    seen, unseen = np.arange(0, items, 2), np.arange(1, items, 2)
    chosen, joined = search(task, systems, seen)
    sides = {"encoder": trained, "one": systems[chosen[0][0]], "joined": joined}
    found = {side: judged(task, each, unseen) for side, each in sides.items()}
    if isinstance(task, Retrieval):
        for side in ("encoder", "joined"):
            found[f"{side} with words"] = with_words(task, sides[side], seen)(unseen)
    differences = {
        "one": found["one"].difference(found["encoder"]),
        "joined": found["joined"].difference(found["encoder"]),
    }
    if isinstance(task, Retrieval):
        differences["joined with words"] = found["joined with words"].difference(found["encoder with words"])
        differences["joined with words, encoder without"] = found["joined with words"].difference(found["encoder"])
    row = {
        "items": len(unseen),
        "chosen": [[system, sum(weight for each, weight in chosen if each == system)] for system in dict(chosen)],
        "scores": {side: each.interval().rounded for side, each in found.items()},
        "differences": {side: each.rounded for side, each in differences.items()},
    }
    say(f"{task.name}: {json.dumps(row)}")
    return row


def search(task: Scored, systems: dict[str, Cosines], seen: Ints) -> tuple[list[tuple[str, float]], Cosines]:
    """Methods with their weights, found on the items seen, and their weighed cosines added."""
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


def with_words(task: Retrieval, given: Cosines, seen: Ints) -> Callable[[Ints], TaskResult]:
    """Judges the cosines with BM25 added, by the weight that is best on the items seen."""
    meaning, words = standardised(given.documents()), standardised(bm25(task))

    def at(weight: float, items: Ints) -> TaskResult:
        added = Cosines(meaning + weight * words, np.arange(len(task.ids)))
        return judged(task, added, items)

    weight = max(WEIGHTS, key=lambda each: at(each, seen).score())
    return lambda items: at(weight, items)


def standardised(scores: Doubles) -> Doubles:
    """Each query's scores in standard deviations above their mean, shape (queries, documents)."""
    return np.asarray((scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True))


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
        key = f"{Path(model).name} {task.name} {text} {embedder.fingerprint[:12]} {digest(task)}".replace("/", "_")
        path = ROOT / "runs" / "cosines" / f"{key}.npz"
        if not path.exists():
            say(f"{task.name}: {text}")
            (vectors,) = embed(embedder, [embedder._pipeline.open_runner.host.exit_layer], task, results.PASSAGE_SIZE)
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
            with path.open("wb") as file:
                np.savez(file, owners=owners, **{f"of{post}": each.astype(np.float32) for post, each in found.items()})
    with np.load(path) as kept:
        return {f"{text}{post}": Cosines(kept[f"of{post}"].astype(np.float64), kept["owners"]) for post in posts}


if __name__ == "__main__":
    main()
