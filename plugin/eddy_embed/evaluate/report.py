"""Outcomes as a table: score with its interval, difference from a reference, cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eddy_embed.evaluate.run import Outcome


def table(outcomes: Sequence[Outcome], reference: str) -> str:
    """A Markdown table: a row for each system, a column for each task, then the cost.

    After a score, its distance from the reference system: `+` or `-` where the paired 95 % interval of the difference
    leaves zero out, `=` where it does not. Cost is time per token over the reference's.
    """
    tasks = list(dict.fromkeys(outcome.task for outcome in outcomes))
    systems = list(dict.fromkeys(outcome.system for outcome in outcomes))
    held = {(outcome.system, outcome.task): outcome for outcome in outcomes}
    metric = {outcome.task: outcome.metric for outcome in outcomes}
    lines = [
        f"| method | {' | '.join(f'{task}, {metric[task]}' for task in tasks)} | cost |",
        f"|---|{'---|' * len(tasks)}---|",
    ]
    for system in systems:
        cells = [_cell(held.get((system, task)), held.get((reference, task))) for task in tasks]
        lines.append(f"| `{system}` | {' | '.join(cells)} | {_cost(held, system, reference, tasks)} |")
    return "\n".join(lines)


def save(outcomes: Sequence[Outcome], reference: str, path: Path, about: dict[str, object]) -> None:
    """Write scores, intervals and costs as JSON."""
    held = {(outcome.system, outcome.task): outcome for outcome in outcomes}
    rows = []
    for outcome in outcomes:
        interval = outcome.interval
        row: dict[str, object] = {
            "system": outcome.system,
            "task": outcome.task,
            "metric": outcome.metric,
            "score": round(interval.value, 4),
            "interval": [round(interval.low, 4), round(interval.high, 4)],
            "seconds": round(outcome.seconds, 2),
            "tokens": outcome.tokens,
        }
        other = held.get((reference, outcome.task))
        if other is not None and other is not outcome:
            difference = outcome.difference(other)
            row["difference"] = [round(value, 4) for value in (difference.value, difference.low, difference.high)]
        rows.append(row)
    path.write_text(json.dumps({**about, "reference": reference, "outcomes": rows}, indent=1) + "\n", encoding="utf-8")


def _cell(outcome: Outcome | None, reference: Outcome | None) -> str:
    if outcome is None:
        return ""
    interval = outcome.interval
    shown = f"{interval.value:.3f} ± {(interval.high - interval.low) / 2:.3f}"
    if reference is None or reference is outcome:
        return shown
    difference = outcome.difference(reference)
    sign = "=" if difference.tie else "+" if difference.value > 0 else "-"
    return f"{shown} {sign}"


def _cost(held: dict[tuple[str, str], Outcome], system: str, reference: str, tasks: list[str]) -> str:
    pairs = [(held.get((system, task)), held.get((reference, task))) for task in tasks]
    both = [(mine, other) for mine, other in pairs if mine and other and mine.tokens and other.tokens]
    if not both:
        return ""
    mine = sum(outcome.seconds for outcome, _ in both) / sum(outcome.tokens for outcome, _ in both)
    other = sum(outcome.seconds for _, outcome in both) / sum(outcome.tokens for _, outcome in both)
    return f"{mine / other:.2f}×"
