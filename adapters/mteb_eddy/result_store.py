"""Scores and costs by fingerprint and task, and the file that keeps them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from eddy_embed.errors import InvalidParameter
from eddy_embed.files import whole
from mteb_eddy.costs import Cost

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Record:
    """What came of a task.

    Attributes:
        key: What the vectors follow from: the fingerprint, with the instructions of tasks.
        task: As it was asked for, "STS12" or "STS17[en-en]".
        model: Its name in MTEB.
        method: Its text.
        told: What MTEB tells runs of the model apart by.
        metric: The task's main score.
        scores: All scores that are numbers, each averaged over splits and subsets.
        cost: Of its texts; None where the scores were taken from a run that did not count.
        version: Of Eddy.
    """

    key: str
    task: str
    model: str
    method: str
    told: dict[str, str]
    metric: str
    scores: dict[str, float]
    cost: Cost | None
    version: str

    def score(self, metric: str | None = None) -> float:
        """The main score, or another; NaN where MTEB has none, as for a correlation with what is all the same."""
        return self.scores.get(metric or self.metric, math.nan)


class Journal:
    """A file with a line for each record; a line that an interruption left unfinished is dropped.

    Attributes:
        records: By key and task, the latest of each.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there.

        Raises:
            InvalidParameter: A line is no record.
        """
        self._path = path
        self.records: dict[tuple[str, str], Record] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        self._anew = lines[-1] != ""
        for number, line in enumerate(lines[:-1], start=1):
            try:
                row: dict[str, Any] = json.loads(line)
                cost = None if row["cost"] is None else Cost(**row["cost"])
                record = Record(**{**row, "cost": cost})
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidParameter(
                    f"{path}, line {number} is no record of an evaluation ({error}); repair the file, or move it away"
                ) from None
            self.records[record.key, record.task] = record

    def keep(self, record: Record) -> Record:
        """Write a record, unless it says nothing new; the cost of the same scores is kept from before.

        Returns:
            The record as it is kept.
        """
        held = self.records.get((record.key, record.task))
        if held is not None and record.cost is None:
            record = replace(record, cost=held.cost)
        if record == held:
            return record
        self.records[record.key, record.task] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = self.records.values() if self._anew else [record]
        text = "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
        with whole(self._path) if self._anew else self._path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        self._anew = False
        return record
