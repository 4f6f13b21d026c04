"""One system's scores on one task, and the file that keeps them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_embed.analysis.evaluate.metrics import Interval, draws, spearman
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.atomic_files import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """What a system's vectors took; post-processing, which takes next to nothing, left out.

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
        found: dict[str, list[Doubles]] = {metric: [] for metric in self.metrics}
        for counts in draws(len(self.metrics[self.metric])):
            for metric, items in self.metrics.items():
                paired = items.ndim == 2
                found[metric].append(
                    spearman(items[:, 0], items[:, 1], counts) if paired else counts @ items / len(items)
                )
        return {metric: np.concatenate(parts) for metric, parts in found.items()}

    def interval(self, metric: str | None = None) -> Interval:
        """A score with its bootstrap interval."""
        return Interval.of(self.score(metric), self.samples[metric or self.metric])

    def difference(self, other: TaskResult, metric: str | None = None) -> Interval:
        """A score minus another system's on the same items, with its paired bootstrap interval."""
        name = metric or self.metric
        return Interval.of(self.score(name) - other.score(name), self.samples[name] - other.samples[name])


class ResultStore:
    """A file with a line for each outcome, added and on the disk as soon as there is one.

    A line that an interruption left unfinished is no outcome: it is dropped, and measured again.
    """

    def __init__(self, path: Path | None, *, fresh: bool = False) -> None:
        """Read what is there.

        Args:
            path: A .jsonl file, which need not exist; None keeps outcomes in memory only.
            fresh: Whether what is there is left out of account.

        Raises:
            InvalidParameter: A line of it is no outcome.
        """
        self._path = path
        self._lines: dict[tuple[str, str], str] = {}
        self._held: dict[tuple[str, str], TaskResult] = {}
        # The next outcome writes the file anew, instead of adding to it.
        self._anew = True
        if path is None or fresh or not path.exists():
            return
        *lines, unfinished = path.read_text(encoding="utf-8").split("\n")
        self._anew = unfinished != ""
        for number, line in enumerate(lines, start=1):
            try:
                outcome = _read(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InvalidParameter(
                    f"{path}, line {number} is no outcome of an evaluation ({error}); name another file, or start "
                    "anew with --fresh"
                ) from None
            key = (outcome.system.label, outcome.task)
            self._lines[key], self._held[key] = line, outcome

    def find(self, system: System, task: str, identity: dict[str, Any]) -> TaskResult | None:
        """The outcome that is there already, if it follows from the same model, data and settings."""
        held = self._held.get((system.label, task))
        return held if held is not None and held.identity == identity else None

    def holds(self, system: System, task: str) -> bool:
        """Whether there is an outcome, of these or other settings."""
        return (system.label, task) in self._held

    def add(self, outcome: TaskResult) -> None:
        """Keep an outcome, in the place of an earlier one."""
        key = (outcome.system.label, outcome.task)
        anew = self._anew or key in self._held
        self._held[key] = outcome
        if self._path is None:
            return
        self._lines[key] = json.dumps(_written(outcome), ensure_ascii=False)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._lines.values() if anew else [self._lines[key]]
        with atomic_write(self._path) if anew else self._path.open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self._anew = False


def _written(outcome: TaskResult) -> dict[str, Any]:
    return {
        "system": vars(outcome.system),
        "task": outcome.task,
        "scores": {metric: round(outcome.score(metric), 4) for metric in outcome.metrics},
        "cost": vars(outcome.cost),
        "identity": outcome.identity,
        "metrics": {metric: items.tolist() for metric, items in outcome.metrics.items()},
    }


def _read(row: dict[str, Any]) -> TaskResult:
    metrics = {str(metric): np.array(items, np.float64) for metric, items in row["metrics"].items()}
    if not metrics or not all(len(items) for items in metrics.values()):
        raise ValueError("it has no scores")
    return TaskResult(System(**row["system"]), str(row["task"]), metrics, Cost(**row["cost"]), dict(row["identity"]))
