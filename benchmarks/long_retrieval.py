"""Find the right span in a long document: late against chunk-first vectors, and methods against plain.

    python benchmarks/long_retrieval.py --data $EDDY_EVAL_DATA
    python benchmarks/long_retrieval.py --data $EDDY_EVAL_DATA --model FILE --name gemma-3-270m --dtype auto \
        --stories 20 --passage-size 256

Documents are made by joining 20 abstracts of cranfield each, drawn once; then the characters of each abstract, which is
what a query asks for, are known. The stories of squality are long as they are, and the whole story is asked for, among
60 (`--stories`) drawn once.
Documents are cut into the same passages in both modes. `late` reads a passage's vector out of the pass over its
document, `chunk` embeds the passage by itself. A passage's score counts for every abstract of which it holds half, or
that holds half of it; the best counts.

Outcomes are kept in a journal: interrupted, the same command goes on. All of it goes to
`benchmarks/results/NAME-long.json`, where rows of earlier runs with the same settings stay, and all models' to the
table of `results/README.md`. `--limit 3` tries three documents of each task, and writes nothing but the journal.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from evaluation.metrics import ndcg, recall, reciprocal_rank
from evaluation.results import Cost, ResultStore, System, TaskResult
from evaluation.runner import TaskVectors
from evaluation.tasks import Retrieval, digest, find_tasks
from numpy.typing import NDArray
from output import RESULTS, ROOT, put, say

from eddy_embed import Embedder, LongDocument, __version__, methods
from eddy_embed.encoding.encoder import VectorFinalizer
from eddy_embed.parts.postprocess import fit, statistics
from eddy_embed.utils.arrays import unit

Pairs = NDArray[np.int64]

BUNDLED = ("plain:exit=-7", "htp:exit=-7", "tp:exit=-7", "kv:layers=2,pool=mean,exit=-7", "echo:exit=-7")
"""Of the bundled model, at the exit where it finds most; the layers that `kv` re-routes by default lie above it."""
OTHERS = {"cranfield": ("plain:exit=-2",), "squality": ("plain:exit=-2", "echo:exit=-2")}
"""Of other models, at the exit where the papers read them."""
MODES = ("late", "chunk")
POSTS = ("", "+centre", "+whiten")
TOGETHER = 20
"""Abstracts in a document."""
STORIES = 60
"""Documents of a task that are taken as they are, unless `--stories` says otherwise."""
JOINED = "\n\n"
PASSAGES: tuple[Any, ...] = ("passages",)


@dataclass(frozen=True)
class Library:
    """Long documents, and what is asked for in them.

    Attributes:
        name: Of the task.
        texts: The documents.
        spans: For each document, the units that queries ask for: start, end, and number, shape (units, 3).
        queries: Texts.
        grades: For each query, unit number to grade above 0.
        data: Hash of all this.
    """

    name: str
    texts: list[str]
    spans: list[Pairs]
    queries: list[str]
    grades: list[dict[int, float]]
    data: str


def main() -> None:
    """Measure, compare, write."""
    options = _arguments()
    if options.pages:
        put(RESULTS / "README.md", "long-retrieval", _table(_read()))
        return
    tasks = {task.name: task for task in find_tasks(options.data, options.task) if isinstance(task, Retrieval)}
    libraries = {}
    if "cranfield" in tasks:
        libraries["cranfield"] = joined(tasks["cranfield"], options.limit)
    if "squality" in tasks:
        libraries["squality"] = whole(tasks["squality"], options.limit or options.stories)
    journal = ResultStore(options.journal, fresh=options.fresh)
    outcomes: dict[tuple[str, str, str], TaskResult] = {}
    for task, library in libraries.items():
        for method in options.method or methods_of(options.name, task):
            for mode in MODES:
                for outcome in measured(library, method, mode, options, journal):
                    outcomes[library.name, mode, outcome.system.text] = outcome
    rows = [_row(key, outcomes) for key in outcomes]
    about: dict[str, Any] = {
        "model": options.name,
        "version": __version__,
        "passage_size": options.passage_size,
        "stories": options.stories,
        "command": f"python benchmarks/long_retrieval.py --model {options.name}",
    }
    target = RESULTS / f"{options.name}-long.json"
    earlier = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    if {key: earlier.get(key) for key in about} == about:
        new = {_key(row) for row in rows}
        rows = [*(row for row in earlier["rows"] if _key(row) not in new), *rows]
    about["rows"] = rows
    say(f"\n{_table([about])}")
    if options.limit is not None:
        return
    target.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    put(RESULTS / "README.md", "long-retrieval", _table(_read()))
    say(f"written: {target}, results/README.md")


def methods_of(model: str, task: str) -> tuple[str, ...]:
    """What is compared on a task."""
    if model != "eddy-tiny":
        return OTHERS[task]
    return (*BUNDLED, "plain:exit=-2", "htp:exit=-2") if task == "cranfield" else BUNDLED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    parser.add_argument("--model", default="eddy-tiny")
    parser.add_argument("--name", help="of the model on the page; default: as --model names it")
    parser.add_argument("--dtype", default="float32", help="type of number the model runs in (default: float32)")
    parser.add_argument("--method", action="append", help="such as htp:exit=-7; may be repeated; default: all")
    parser.add_argument("--task", action="append", choices=["cranfield", "squality"], help="default: both")
    parser.add_argument("--passage-size", type=int, default=128, help="tokens (default: 128)")
    parser.add_argument("--stories", type=int, default=STORIES, help="documents of squality (default: 60)")
    parser.add_argument("--limit", type=int, help="documents of each task, to try it")
    parser.add_argument("--journal", type=Path, help="outcomes, added as they come; default: runs/NAME-long.jsonl")
    parser.add_argument("--pages", action="store_true", help="write the tables from the results, and measure nothing")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    found = parser.parse_args()
    found.name = found.name or Path(found.model).name
    found.journal = found.journal or ROOT / "runs" / f"{found.name}-long.jsonl"
    found.task = found.task or ["cranfield", "squality"]
    if found.data is None and not found.pages:
        parser.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    return found


def joined(task: Retrieval, limit: int | None) -> Library:
    """Documents of 20 texts of a task each; each text is a unit."""
    order = np.random.default_rng(0).permutation(len(task.texts)).tolist()
    groups = [order[at : at + TOGETHER] for at in range(0, len(order), TOGETHER)][:limit]
    spans = []
    for group in groups:
        lengths = np.array([len(task.texts[at]) for at in group], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + len(JOINED))[:-1]])
        spans.append(np.stack([starts, starts + lengths, np.array(group, np.int64)], axis=1))
    texts = [JOINED.join(task.texts[at] for at in group) for group in groups]
    return _asked(f"{task.name} x {TOGETHER}", task, texts, spans)


def whole(task: Retrieval, count: int) -> Library:
    """So many stories of a task, drawn once; each is a unit."""
    drawn = sorted(np.random.default_rng(0).permutation(len(task.texts))[:count].tolist())
    spans = [np.array([[0, len(task.texts[at]), at]]) for at in drawn]
    return _asked(f"{task.name}, {count} stories", task, [task.texts[at] for at in drawn], spans)


def _asked(name: str, task: Retrieval, texts: list[str], spans: list[Pairs]) -> Library:
    held = {int(number) for rows in spans for number in rows[:, 2]}
    number = {key: at for at, key in enumerate(task.ids)}
    queries, grades = [], []
    for query, asked in zip(task.queries, task.grades, strict=True):
        found = {number[key]: grade for key, grade in asked.items() if number.get(key) in held}
        if found:
            queries.append(query)
            grades.append(found)
    return Library(name, texts, spans, queries, grades, f"{digest(task)}:{len(texts)}")


def measured(
    library: Library, method: str, mode: str, options: argparse.Namespace, journal: ResultStore
) -> list[TaskResult]:
    """A method on a library in one mode, with each post-processing; from the journal where it was measured before."""
    raw = str(methods.parse(method))
    name = f"{library.name} ({mode})"
    with Embedder(options.model, method=raw, dtype=options.dtype) as embedder:
        if mode == "late" and not embedder.can_embed_spans:
            say(f"{name}: {raw}: left out, it reads one token")
            return []
        identity = {
            "version": __version__,
            "fingerprint": embedder.fingerprint,
            "data": library.data,
            "passage_size": options.passage_size,
            "dtype": str(embedder.dtype).removeprefix("torch."),
        }
        systems = [System.named(f"{raw}{post}") for post in POSTS]
        held = [journal.find(system, name, identity) for system in systems]
        if all(held):
            return [outcome for outcome in held if outcome is not None]
        started = time.perf_counter()
        documents = embedder.encode_long(
            library.texts, passage_size=options.passage_size, late=mode == "late", parts=PASSAGES
        )
        asked = embedder.encode_query(library.queries)
        seconds, counts = time.perf_counter() - started, embedder.counts
        layers = embedder.method.readout.exit  # type: ignore[union-attr]
    cost = Cost(seconds, counts.tokens, counts.positions, int(layers or 0), int(layers or 0))
    found = outcomes_of(library, name, documents, asked, systems, cost, identity)
    for outcome in found:
        journal.add(outcome)
        say(f"{name}: {outcome.system.text}: ndcg@10 {outcome.score():.4f}, {seconds:.0f} s")
    return found


def outcomes_of(
    library: Library,
    name: str,
    documents: Sequence[LongDocument],
    asked: NDArray[np.float32],
    systems: Sequence[System],
    cost: Cost,
    identity: dict[str, Any],
) -> list[TaskResult]:
    """Scores of documents' passages, with each system's post-processing.

    Args:
        library: What is looked for.
        name: Of the task.
        documents: The library's, with their passages.
        asked: Vectors of its queries, shape (queries, width).
        systems: One method, with one post-processing or another.
        cost: Of the vectors.
        identity: What the scores follow from.
    """
    vectors = unit(np.stack([p.vector for document in documents for p in document.passages]).astype(np.float64))
    owners = np.repeat(np.arange(len(documents)), [len(document.passages) for document in documents])
    bare = TaskVectors(vectors, owners, unit(asked.astype(np.float64)), np.zeros((0, 2), np.int64), cost)
    pairs = held_by(documents, library.spans)
    found = []
    for system in systems:
        post = system.method.post
        fitted = None if post is None else fit(post, statistics(post, [vectors]))
        after = bare.finished(VectorFinalizer(normalize=True, post=post, fitted=fitted))
        found.append(TaskResult(system, name, scored(library, pairs, after.asked @ after.library.T), cost, identity))
    return found


def held_by(documents: Sequence[LongDocument], spans: Sequence[Pairs]) -> Pairs:
    """Rows (unit, passage), by unit: the passages that count for it.

    Args:
        documents: With their passages.
        spans: For each document, start, end and number of its units.
    """
    rows: list[tuple[int, int]] = []
    first = 0
    for document, units in zip(documents, spans, strict=True):
        places = np.array([(passage.start, passage.end) for passage in document.passages])
        for start, end, number in units.tolist():
            over = np.minimum(places[:, 1], end) - np.maximum(places[:, 0], start)
            half = 2 * over >= np.minimum(places[:, 1] - places[:, 0], end - start)
            chosen = np.flatnonzero(half) if half.any() else [int(np.argmax(over))]
            rows += [(number, first + int(at)) for at in chosen]
        first += len(places)
    return np.array(sorted(rows), np.int64)


def scored(library: Library, pairs: Pairs, cosines: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Metrics of each query, from the scores of all passages, shape (queries, passages)."""
    numbers, starts = np.unique(pairs[:, 0], return_index=True)
    rows: dict[str, list[float]] = {"ndcg@10": [], "recall@10": [], "mrr@10": []}
    for row, asked in zip(cosines, library.grades, strict=True):
        order = np.argsort(-np.maximum.reduceat(row[pairs[:, 1]], starts), kind="stable")[:100]
        grades = np.array([asked.get(int(number), 0.0) for number in numbers[order]])
        ideal = np.array(list(asked.values()))
        rows["ndcg@10"].append(ndcg(grades, ideal))
        rows["recall@10"].append(recall(grades, ideal, 10))
        rows["mrr@10"].append(reciprocal_rank(grades))
    return {metric: np.array(values) for metric, values in rows.items()}


def _row(key: tuple[str, str, str], outcomes: dict[tuple[str, str, str], TaskResult]) -> dict[str, Any]:
    task, mode, text = key
    outcome = outcomes[key]
    row: dict[str, Any] = {"task": task, "mode": mode, "method": text, "queries": len(outcome.metrics["ndcg@10"])}
    row |= {metric: rounded(outcome.interval(metric)) for metric in outcome.metrics}
    plain = str(methods.with_post(methods.parse(f"plain:exit={_exit(text)}"), methods.parse(text).post))
    beside = {"over_chunk": (task, "chunk", text), "over_plain": (task, mode, plain)}
    for name, other in beside.items():
        if other in outcomes and other != key:
            row[name] = rounded(outcome.difference(outcomes[other]))
    row["cost"] = vars(outcome.cost)
    return row


def _exit(text: str) -> int | None:
    readout = methods.parse(text).readout
    return None if readout is None else readout.exit


def rounded(interval: Any) -> list[float]:
    """Value, low and high."""
    return [round(value, 4) for value in (interval.value, interval.low, interval.high)]


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["task"], row["mode"], row["method"]


def _read() -> list[dict[str, Any]]:
    """What was measured of each model."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*-long.json"))]


def _table(files: list[dict[str, Any]]) -> str:
    """Late vectors beside chunk-first ones, a column for each post-processing."""
    lines = []
    for model, rows in ((told["model"], told["rows"]) for told in files):
        by = {_key(row): row for row in rows}
        for task, method in dict.fromkeys((row["task"], row["method"].partition("+")[0]) for row in rows):
            found = [by.get((task, "late", f"{method}{post}")) for post in POSTS]
            if any(row and "over_chunk" in row for row in found):
                lines.append(f"| {model} | {task} | `{method}` | {' | '.join(map(_cell, found))} |")
    return "\n".join(["| model | task | method | raw | centred | whitened |", "|---|---|---|---|---|---|", *lines])


def _cell(row: dict[str, Any] | None) -> str:
    if row is None or "over_chunk" not in row:
        return ""
    return f"{row['ndcg@10'][0]:.3f}: {shown(row['over_chunk'])}"


def shown(interval: list[float]) -> str:
    """A difference with its interval, and an equals sign where that holds zero."""
    value, low, high = interval
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})" + (" =" if low <= 0 <= high else "")


if __name__ == "__main__":
    main()
