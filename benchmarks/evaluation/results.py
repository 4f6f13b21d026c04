"""Systems that are measured, one system's scores on one task, and the files that keep them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eddy_embed import methods
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.published import read_as_plain
from eddy_embed.utils.arrays import Doubles
from eddy_embed.utils.atomic_files import atomic_write
from evaluation.metrics import Interval, draws, spearman

WORDS = ("bm25", "overlap")
"""Systems without a language model."""
WITHOUT_LAYERS = (*WORDS, "plain:exit=0")
"""Stand beside every other and run no layer: words, and the mean of raw token embeddings."""


@dataclass(frozen=True)
class System:
    """One row of a table: a method's text form, post-processing included, or one of `WORDS`."""

    text: str

    @classmethod
    def named(cls, text: str) -> System:
        """A system by its name, methods in the form that they print."""
        if text in WORDS:
            return cls(text)
        method = read_as_plain(methods.parse(text))
        if method.recommended is not None:
            raise InvalidParameter(f"{method} depends on the model; name the method that it stands for there")
        return cls(str(method))

    @property
    def method(self) -> Method:
        """The method, post-processing included."""
        return methods.parse(self.text)

    @property
    def learns(self) -> bool:
        """Whether it has post-processing that is fitted."""
        return self.text not in WORDS and self.method.post is not None and self.method.post.learns

    @property
    def family(self) -> str:
        """Equal for systems whose vectors come out of the same passes, at one layer or another."""
        if self.text in WORDS:
            return self.text
        method = methods.with_post(self.method, None)
        # Placeholders that are pooled are copied once more at the exit, and attention is watched up to it: every exit
        # has a pass of its own.
        if method.readout is not None and not method.readout.placeholders and method.watch is None:
            method = replace(method, readout=replace(method.readout, exit=None))
        return json.dumps([[term.name for term in method.terms], method.settings])

    def reference(self, baseline: str) -> System:
        """What it is compared with: the baseline with the same post-processing, unless that has one of its own."""
        if self.text in WORDS or baseline in WORDS or methods.parse(baseline).post is not None:
            return System(baseline)
        return System(str(methods.with_post(methods.parse(baseline), self.method.post)))


def with_baseline(texts: Iterable[str], baseline: str) -> list[System]:
    """The systems that a table shows: `WITHOUT_LAYERS`, those asked for, and those that they are compared with."""
    systems = [System.named(text) for text in (*WITHOUT_LAYERS, baseline, *texts)]
    reference = System.named(baseline).text
    # The reference stands above the first that is compared with it.
    shown = [row for system in systems for row in (system.reference(reference), system)]
    return list(dict.fromkeys([*systems[: len(WITHOUT_LAYERS)], *shown]))


@dataclass(frozen=True)
class Cost:
    """Cost of a system's vectors, without post-processing, which is negligible.

    Attributes:
        seconds: Spent embedding; 0 for systems without a model.
        tokens: Tokens of text embedded.
        positions: Positions run through the model, prompts, placeholders and copies included.
        layers: Layers that the system needs.
        ran: Layers that were run, more where the pass was shared with a system that reads a later one.
    """

    seconds: float = 0.0
    tokens: int = 0
    positions: int = 0
    layers: int = 0
    ran: int = 0

    @property
    def work(self) -> int:
        """Positions times layers."""
        return self.positions * self.layers


@dataclass(frozen=True, eq=False)
class TaskResult:
    """One system on one task.

    Attributes:
        system: What was measured.
        task: Name of the task.
        metrics: What each score is made of, the main one first: a value for each query or item, shape (items,), or
            for "spearman" the system's similarity and people's, shape (items, 2).
        cost: Of the system's vectors.
        identity: What the scores follow from: they hold for equal ones.
    """

    system: System
    task: str
    metrics: dict[str, Doubles]
    cost: Cost
    identity: dict[str, Any]

    def __post_init__(self) -> None:
        """Round, so that rounding errors neither make nor break ties between similarities."""
        self.metrics.update({metric: np.round(items, 9) for metric, items in self.metrics.items()})

    @property
    def metric(self) -> str:
        """The main metric."""
        return next(iter(self.metrics))

    def score(self, metric: str | None = None) -> float:
        """The score over all items, by the main metric or another."""
        items = self.metrics[metric or self.metric]
        return float(spearman(items[:, 0], items[:, 1])[0]) if items.ndim == 2 else float(items.mean())

    @cached_property
    def samples(self) -> dict[str, Doubles]:
        """By metric, the scores on bootstrap samples of the items, shape (samples,)."""
        scores: dict[str, list[Doubles]] = {metric: [] for metric in self.metrics}
        for counts in draws(len(self.metrics[self.metric])):
            for metric, items in self.metrics.items():
                score = spearman(items[:, 0], items[:, 1], counts) if items.ndim == 2 else counts @ items / len(items)
                scores[metric].append(score)
        return {metric: np.concatenate(parts) for metric, parts in scores.items()}

    def interval(self, metric: str | None = None) -> Interval:
        """A score with its bootstrap interval."""
        return Interval.of(self.score(metric), self.samples[metric or self.metric])

    def difference(self, other: TaskResult, metric: str | None = None) -> Interval:
        """A score minus another system's on the same items, with its paired bootstrap interval."""
        name = metric or self.metric
        return Interval.of(self.score(name) - other.score(name), self.samples[name] - other.samples[name])


class ResultStore:
    """Results by system and name of the task in a .jsonl file; each is on the disk as soon as it is added.

    A line that an interruption left unfinished is dropped.
    """

    def __init__(self, path: Path | None, *, fresh: bool = False) -> None:
        """Read a file, which need not exist; None keeps results in memory only.

        With `fresh`, the file's content is ignored, and replaced by the first result.

        Raises:
            InvalidParameter: A line of the file is no result.
        """
        self._path = path
        self._lines: dict[tuple[str, str], str] = {}
        self._results: dict[tuple[str, str], TaskResult] = {}
        # Whether the next result rewrites the file instead of appending to it.
        self._rewrite = True
        if path is None or fresh or not path.exists():
            return
        *lines, unfinished = path.read_text(encoding="utf-8").split("\n")
        self._rewrite = unfinished != ""
        for number, line in enumerate(lines, start=1):
            try:
                result = _decoded(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InvalidParameter(
                    f"{path}, line {number} is no result of an evaluation ({error}); name another file, or start anew "
                    "with --fresh"
                ) from None
            key = result.system.text, result.task
            self._lines[key], self._results[key] = line, result

    def add(self, result: TaskResult) -> None:
        """Store a result, in the place of an earlier one of its system and task."""
        key = result.system.text, result.task
        rewrite = self._rewrite or key in self._results
        self._results[key] = result
        if self._path is None:
            return
        self._lines[key] = json.dumps(_encoded(result), ensure_ascii=False)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._lines.values() if rewrite else [self._lines[key]]
        with atomic_write(self._path) if rewrite else self._path.open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self._rewrite = False

    def find(self, system: System, task: str, identity: dict[str, Any]) -> TaskResult | None:
        """The stored outcome, if it follows from the same model, data and settings."""
        result = self._results.get((system.text, task))
        return result if result is not None and result.identity == identity else None

    def holds(self, system: System, task: str) -> bool:
        """Whether there is an outcome, of these or other settings."""
        return (system.text, task) in self._results


def _encoded(result: TaskResult) -> dict[str, Any]:
    return {
        "system": vars(result.system),
        "task": result.task,
        "scores": {metric: round(result.score(metric), 4) for metric in result.metrics},
        "cost": vars(result.cost),
        "identity": result.identity,
        "metrics": {metric: items.tolist() for metric, items in result.metrics.items()},
    }


def _decoded(row: dict[str, Any]) -> TaskResult:
    metrics = {str(metric): np.array(items, np.float64) for metric, items in row["metrics"].items()}
    if not metrics or not all(len(items) for items in metrics.values()):
        raise ValueError("it has no scores")
    system, cost = System(**row["system"]), Cost(**row["cost"])
    return TaskResult(system, str(row["task"]), metrics, cost, dict(row["identity"]))
