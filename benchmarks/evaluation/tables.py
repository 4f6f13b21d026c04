"""Outcomes as tables: scores with intervals, differences from a reference, cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eddy_embed.utils.settings import digest
from evaluation.metrics import Interval
from evaluation.results import System, TaskResult

Held = dict[tuple[System, str], TaskResult]


def table(outcomes: Sequence[TaskResult], baseline: str) -> str:
    """A Markdown table: a row for each system, the main score of each task, then the cost over the baseline's."""
    held = {(outcome.system, outcome.task): outcome for outcome in outcomes}
    metric = {outcome.task: outcome.metric for outcome in outcomes}
    heads = ["method", *(f"{task}, {name}" for task, name in metric.items()), "work", "time"]
    rows = []
    for system in dict.fromkeys(system for system, _ in held):
        cells = [*(_cell(held, system, task, baseline) for task in metric), *_costs(held, system, baseline, metric)]
        rows.append([f"`{system.text}`", *cells])
    return markdown(heads, rows)


def retrieval_table(outcomes: Sequence[TaskResult]) -> str:
    """A Markdown table of all scores of retrieval tasks; empty where there is no such task."""
    held = {(outcome.system, outcome.task): outcome for outcome in outcomes if outcome.metric == "ndcg@10"}
    columns = list(dict.fromkeys((outcome.task, name) for outcome in held.values() for name in outcome.metrics))
    if not columns:
        return ""
    rows = []
    for system in dict.fromkeys(system for system, _ in held):
        cells = [f"{held[system, task].score(name):.3f}" if (system, task) in held else "" for task, name in columns]
        rows.append([f"`{system.text}`", *cells])
    return markdown(["method", *(f"{task}, {name}" for task, name in columns)], rows)


def legend(baseline: str, passage_size: int) -> str:
    """What the table's signs mean."""
    return (
        f"± is half the 95 % bootstrap interval. Against `{baseline}` with the same post-processing, `+` and `-`: the "
        "paired 95 % interval of the difference leaves zero out; `=`: a tie. Work is positions times layers run, time "
        f"is seconds, both over those of `{baseline}`; `≤`: the pass was shared with one that reads a later layer. "
        f"Retrieval: passages of whole sentences, at most {passage_size} tokens; a document's score is the largest "
        "cosine of its passages with the query. Post-processing is calibrated on general text."
    )


def summary(outcomes: Sequence[TaskResult], baseline: str) -> list[dict[str, Any]]:
    """Scores, intervals, differences and costs as plain values, without those of single items."""
    held = {(outcome.system, outcome.task): outcome for outcome in outcomes}
    rows = []
    for outcome in outcomes:
        reference = held.get((outcome.system.reference(baseline), outcome.task))
        scores = {metric: outcome.interval(metric).rounded for metric in outcome.metrics}
        row: dict[str, Any] = {"system": outcome.system.text, "task": outcome.task, "scores": scores}
        if reference is not None and reference is not outcome:
            row["reference"] = reference.system.text
            row["difference"] = outcome.difference(reference).rounded
        if outcome.cost.tokens:
            row["cost"] = {**vars(outcome.cost), "seconds": round(outcome.cost.seconds, 2)}
        about = outcome.identity
        made_by = {name: about[name] for name in ("data", "version", "dtype", "device") if name in about}
        rows.append({**row, **made_by, "identity": identity(about)})
    return rows


def identity(about: dict[str, Any]) -> str:
    """A digest of what an outcome follows from: the model's fingerprint, the method's settings and the data.

    The package's version is left out: that equal fingerprints give equal vectors holds from one to the next.
    """
    return digest({name: value for name, value in about.items() if name != "version"})[:16]


def save(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write a summary as JSON, a line for each outcome."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(about, indent=1).removesuffix("\n}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "outcomes": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A table of cells."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in (heads, *rows))
    return "\n".join([head, f"|{'---|' * len(heads)}", *body])


def _shown(interval: Interval) -> str:
    return f"{interval.value:.3f} ± {(interval.high - interval.low) / 2:.3f}"


def _cell(held: Held, system: System, task: str, baseline: str) -> str:
    outcome, reference = held.get((system, task)), held.get((system.reference(baseline), task))
    if outcome is None:
        return ""
    shown = _shown(outcome.interval())
    if reference is None or reference is outcome:
        return shown
    difference = outcome.difference(reference)
    return f"{shown} {'=' if difference.tie else '+' if difference.value > 0 else '-'}"


def _costs(held: Held, system: System, baseline: str, tasks: Iterable[str]) -> tuple[str, str]:
    reference = system.reference(baseline)
    pairs = [(held.get((system, task)), held.get((reference, task))) for task in tasks]
    both = [(mine.cost, other.cost) for mine, other in pairs if mine and other and mine.cost.work and other.cost.work]
    if not both:
        return "", ""
    work = sum(mine.work for mine, _ in both) / sum(other.work for _, other in both)
    time = sum(mine.seconds for mine, _ in both) / sum(other.seconds for _, other in both)
    shared = any(mine.ran > mine.layers for mine, _ in both)
    return f"{work:.2f}×", f"{'≤ ' if shared else ''}{time:.2f}×"
