"""Which method to use, by what a development set shows: nothing is chosen on a set that is reported."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eddy_embed.analysis.evaluate.results import TaskResult
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.tasks import Task, digest
from eddy_embed.errors import InvalidParameter

CANDIDATES = (
    *("plain:exit=0", "plain:exit=0+sif", "plain:exit=0+filter", "plain:exit=0+sif+filter"),
    *("plain:exit=1+sif", "plain:exit=2+sif", "echo:exit=1"),
)
"""Methods that were best somewhere, of those that run few layers (docs/results.md)."""
POSTS = ("", "+whiten:power=0.5", "+whiten")


@dataclass(frozen=True)
class Choice:
    """What the development set shows.

    Attributes:
        best: The outcome with the highest score, of equal ones the first.
        baseline: That of the method which another one has to beat.
        ties: Outcomes that may be as good as the best, the cheapest first.
    """

    best: TaskResult
    baseline: TaskResult
    ties: list[TaskResult]

    @property
    def method(self) -> str:
        """The best, where the interval of its difference from the baseline is above zero; else the baseline."""
        return (self.baseline if self.best.difference(self.baseline).tie else self.best).system.text

    @property
    def settings(self) -> dict[str, Any]:
        """All of it as plain values for JSON."""
        best, baseline = self.best, self.baseline
        return {
            "method": self.method,
            "task": best.task,
            "metric": best.metric,
            "best": best.system.text,
            "score": best.interval().rounded,
            "baseline": baseline.system.text,
            "difference": best.difference(baseline).rounded,
        }

    def __str__(self) -> str:
        """In words, with the method on the last line."""
        best, baseline = self.best, self.baseline.system.text
        value, low, high = difference = best.difference(self.baseline)
        shown = f"{value:.3f} ({low:.3f} to {high:.3f})"
        items = f"{len(best.metrics[best.metric])} items of {best.task}"
        lines = [f"{best.system.text} is above {baseline} by {shown} on {items}"]
        if best is self.baseline:
            lines = [f"{items} show no method above {baseline}"]
        elif difference.tie:
            lines = [f"{items} show no method above {baseline}; the best, {best.system.text}, differs by {shown}"]
        elif cheaper := [tie for tie in self.ties if tie.cost.work < best.cost.work]:
            share = cheaper[0].cost.work / best.cost.work
            lines.append(f"a tie with the best, at {share:.2f}× its work: {cheaper[0].system.text}")
        return "\n".join([*lines, f"chosen on {best.task}; report scores on other sets", f"method  {self.method}"])


def candidates(recommended: str) -> list[str]:
    """What is tried where no method is named: those that run few layers, each without whitening, with some, with it."""
    return [f"{text}{post}" for text in (*CANDIDATES, recommended) for post in POSTS]


def choose(outcomes: Sequence[TaskResult], baseline: System, systems: Collection[System]) -> Choice:
    """Choose among outcomes of systems and of the baseline on one development set.

    Raises:
        InvalidParameter: None of the systems, or not the baseline, could be measured on it.
    """
    tried = [outcome for outcome in outcomes if outcome.system in systems or outcome.system == baseline]
    reference = next((outcome for outcome in tried if outcome.system == baseline), None)
    if reference is None or not any(outcome.system in systems for outcome in tried):
        missing = f"the baseline {baseline.text} cannot" if reference is None else "none of the methods can"
        raise InvalidParameter(f"{missing} be run on this model and task; name another")
    best = max(tried, key=lambda outcome: outcome.score())
    ties = [outcome for outcome in tried if outcome is not best and best.difference(outcome).tie]
    return Choice(best, reference, sorted(ties, key=lambda outcome: outcome.cost.work))


def check_dev(dev: Task, reported: Iterable[Task]) -> None:
    """Refuse to choose on what is also reported, under this or another name: its score would say too much."""
    for task in reported:
        if task.name == dev.name or digest(replace(task, name="")) == digest(replace(dev, name="")):
            same = "" if task.name == dev.name else f", which holds the same data as {task.name},"
            raise InvalidParameter(
                f"{dev.name}{same} is to be reported, so nothing may be chosen on it; name another set with --dev"
            )
