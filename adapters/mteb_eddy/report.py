"""Markdown tables of records and suites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mteb_eddy.result_store import EncodingCost, Record
from mteb_eddy.runner import SuiteRowResult
from mteb_eddy.suites import Column, Suite, suite

NEVER = "Not yet run on the published models by this project: the settings follow the paper, unproven."
"""Note under a suite that nobody has compared with the published numbers yet."""


def runs_table(records: Iterable[Record], digits: int = 2) -> str:
    """Table of main scores times 100: a row for each model and method, a column for each task, then the costs."""
    held = list(records)
    tasks = list(dict.fromkeys(record.task for record in held))
    rows = []
    for key in dict.fromkeys(record.key for record in held):
        mine = {record.task: record for record in held if record.key == key}
        first = next(iter(mine.values()))
        cells = [f"{mine[task].score() * 100:.{digits}f}" if task in mine else "" for task in tasks]
        mean = sum(record.score() for record in mine.values()) / len(tasks) * 100
        average = [f"{mean:.{digits}f}" if len(mine) == len(tasks) else ""] if len(tasks) > 1 else []
        rows.append([first.model, first.method, *cells, *average, *_costs(mine.values()), first.key[:8]])
    mean_of = ["mean"] if len(tasks) > 1 else []
    head = ["model", "method", *tasks, *mean_of, *_COSTS, "fingerprint"]
    return _table(head, rows, left=2)


def suite_table(name: str | Suite, results: Sequence[SuiteRowResult]) -> str:
    """Table of our numbers beside the published ones, with source and notes.

    A cell is "ours (published)", with "-" for a missing number. There is an average of ours only if every task was run.
    """
    chosen = suite(name) if isinstance(name, str) else name
    stand_ins = [result for result in results if result.stand_in]
    scaled = "times 100" if chosen.scale == 100 else "between 0 and 1"
    parts = [f"{chosen.name}. {chosen.title}", f"Source: {chosen.source}.", f"Cells: ours (published), {scaled}."]
    parts += [f"Run on the published models: {each}." for each in chosen.run] or [NEVER]
    if stand_ins:
        models = ", ".join(dict.fromkeys(result.model for result in stand_ins))
        parts.append(f"{models} stands in for {stand_ins[0].row.backbone}: published numbers are another model's.")
    lines = [*parts, "", _table(*_cells(chosen, results), left=2), ""]
    return "\n".join([*lines, *(f"- {note}" for note in chosen.notes)]).rstrip()


def own_score(chosen: Suite, result: SuiteRowResult, column: Column) -> float | None:
    """Our number of a column, times the suite's scale; None if a task of it is missing."""
    if not result.records.keys() >= set(column.tasks):
        return None
    return chosen.scale * sum(result.records[task].score(column.metric) for task in column.tasks) / len(column.tasks)


def _cells(chosen: Suite, results: Sequence[SuiteRowResult]) -> tuple[list[str], list[list[str]]]:
    averaged = chosen.average is not None
    head = ["model", "method", *chosen.columns, *(["average"] if averaged else []), "time", *_COSTS]
    rows = []
    for row in chosen.rows:
        shown: list[SuiteRowResult | None] = [each for each in results if each.row == row]
        for result in shown or [None]:
            numbers = [
                None if result is None else own_score(chosen, result, column) for column in chosen.columns.values()
            ]
            cells = [
                _format_cell(chosen, own, published) for own, published in zip(numbers, row.published, strict=True)
            ]
            if averaged:
                cells.append(_format_cell(chosen, _average(chosen, result, numbers), row.average))
            model = row.backbone if result is None or not result.stand_in else result.model
            costs = ["", ""] if result is None else _costs(result.records.values())
            rows.append([model, row.label, *cells, "" if row.time is None else f"{row.time:g}x", *costs])
    return head, rows


def _average(chosen: Suite, result: SuiteRowResult | None, columns: list[float | None]) -> float | None:
    known = [each for each in columns if each is not None]
    if result is None or len(known) < len(columns):
        return None
    if chosen.average == "columns":
        return sum(known) / len(known)
    scores = [result.records[task].score(column.metric) for column in chosen.columns.values() for task in column.tasks]
    return chosen.scale * sum(scores) / len(scores)


def _format_cell(chosen: Suite, own: float | None, published: float | None) -> str:
    text = "-" if own is None else f"{own:.{chosen.digits}f}"
    return text if published is None else f"{text} ({published:.{chosen.digits}f})"


_COSTS = ("ms / 1,000 tokens", "peak MiB")


def _costs(records: Iterable[Record]) -> list[str]:
    """Time for 1,000 tokens over all tasks, and peak memory."""
    cost = sum((record.cost for record in records if record.cost is not None), start=EncodingCost())
    per = cost.per_thousand
    return ["" if per is None else f"{per:.1f}", "" if cost.peak is None else f"{cost.peak / 2**20:,.0f}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Format an aligned Markdown table; the first `left` columns are text, the others numbers."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(3, *(len(row[at]) for row in escaped)) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        sides = [str.ljust if at < left else str.rjust for at in range(len(cells))]
        return f"| {' | '.join(side(cell, to) for side, cell, to in zip(sides, cells, widths, strict=True))} |"

    rule = "|".join("-" * (to + 2) if at < left else "-" * (to + 1) + ":" for at, to in enumerate(widths))
    return "\n".join([line(escaped[0]), f"|{rule}|", *map(line, escaped[1:])])
