"""Scores and costs of tasks by fingerprint, the rows of suites that they belong to, and the files that keep both."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from eddy_embed.analysis.evaluate.results import Cost, JsonlStore


@dataclass(frozen=True)
class EncodingCost(Cost):
    """Cost of encoding a task's texts."""

    texts: int = 0
    peak: int | None = None  # memory in bytes, torch's on a GPU, else of the process; None where unknown
    blank: int = 0  # number of blank texts, which cost nothing
    cut: int = 0  # number of truncated texts

    def __add__(self, other: EncodingCost) -> EncodingCost:
        peaks = [each.peak for each in (self, other) if each.peak is not None]
        values = {name: value + getattr(other, name) for name, value in vars(self).items() if name != "peak"}
        values |= {name: max(getattr(self, name), getattr(other, name)) for name in ("layers", "ran")}
        return EncodingCost(**values, peak=max(peaks, default=None))

    @property
    def per_thousand(self) -> float | None:
        """Milliseconds for 1,000 tokens."""
        return self.seconds * 1e6 / self.tokens if self.tokens else None


@dataclass(frozen=True)
class Record:
    """Scores and cost of one task."""

    key: str  # embedder's fingerprint, and instructions of tasks
    task: str  # as given to `evaluate`, "STS12" or "STS17[en-en]"
    model: str
    method: str
    told: dict[str, str]  # `experiment_kwargs` in MTEB
    metric: str  # main score of the task
    scores: dict[str, float]  # all numeric scores, each averaged over splits and subsets
    cost: EncodingCost | None
    version: str  # of Eddy

    def score(self, metric: str | None = None) -> float:
        """The main score, or another; NaN where MTEB has none, such as a correlation with a constant."""
        return self.scores.get(metric or self.metric, math.nan)


class ResultStore(JsonlStore[tuple[str, str], Record]):
    """Records by key and task."""

    def keep(self, record: Record) -> Record:
        """Store a record if it is new; without a cost it takes over the cost stored before."""
        held = self.results.get(self._key(record))
        if held is not None and record.cost is None:
            record = replace(record, cost=held.cost)
        if record != held:
            self.add(record)
        return record

    def _key(self, result: Record) -> tuple[str, str]:
        return result.key, result.task

    def _encode(self, result: Record) -> dict[str, Any]:
        return asdict(result)

    def _decode(self, row: dict[str, Any]) -> Record:
        return Record(**{**row, "cost": None if row["cost"] is None else EncodingCost(**row["cost"])})


@dataclass(frozen=True)
class SuiteRun:
    """Which records belong to a row of a suite."""

    suite: str
    backbone: str  # the row's model in the table
    label: str  # the row's method in the table
    model: str
    stand_in: bool  # whether the model is another than the table's
    key: str  # of the records


class SuiteRunStore(JsonlStore[tuple[str, str, str, str], SuiteRun]):
    """The last run of each row on each model."""

    def _key(self, result: SuiteRun) -> tuple[str, str, str, str]:
        return result.suite, result.backbone, result.label, result.model

    def _encode(self, result: SuiteRun) -> dict[str, Any]:
        return asdict(result)

    def _decode(self, row: dict[str, Any]) -> SuiteRun:
        return SuiteRun(**row)
