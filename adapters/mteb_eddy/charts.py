"""Draw records: scores by task, and mean scores against time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eddy_embed.analysis.plots import check_picture
from eddy_embed.errors import InvalidParameter
from mteb_eddy.result_store import EncodingCost, Record

_ACROSS, _WRAP = 3, 30
"""Panels in a row, and characters in a line of a label."""


def draw(path: Path, records: Iterable[Record]) -> None:
    """Draw a bar chart for each task, and the mean score against the time for 1,000 tokens, as .png or .svg."""
    held = list(records)
    if not held:
        raise InvalidParameter(f"{path}: there are no records to draw; run an evaluation with the same --output first")
    check_picture(path)
    from matplotlib.figure import Figure

    keys = list(dict.fromkeys(record.key for record in held))
    tasks = list(dict.fromkeys(record.task for record in held))
    models = {record.model for record in held}
    names = {r.key: r.method or r.model if len(models) == 1 else f"{r.model}, {r.method}" for r in held}
    doubled = {name for name in names.values() if list(names.values()).count(name) > 1}
    labels = [f"{names[key]} ({key[:4]})" if names[key] in doubled else names[key] for key in keys]
    labels = ["\n".join(textwrap.wrap(label, _WRAP)) for label in labels]
    lines = sum(label.count("\n") + 1 for label in labels)
    across = min(_ACROSS, len(tasks) + 1)
    down = -(-(len(tasks) + 1) // across)
    figure: Any = Figure(figsize=(4.6 * across, (1.2 + 0.18 * (lines + len(keys))) * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for axes, task in zip(panels, tasks, strict=False):
        scores = {record.key: record.score() for record in held if record.task == task}
        shown = [(labels[at], scores[key]) for at, key in enumerate(keys) if key in scores]
        bars = axes.barh([label for label, _ in shown], [score for _, score in shown], color="0.6")
        axes.bar_label(bars, fmt="%.3f", padding=2, fontsize=7)
        axes.invert_yaxis()
        axes.set_title(task, fontsize=9)
        axes.tick_params(labelsize=7)
    _against_time(panels[len(tasks)], held, keys, labels)
    for axes in panels[len(tasks) + 1 :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=150)


def _against_time(axes: Any, held: list[Record], keys: list[str], labels: list[str]) -> None:
    for key, label in zip(keys, labels, strict=True):
        mine = [record for record in held if record.key == key]
        cost = sum((record.cost for record in mine if record.cost is not None), start=EncodingCost())
        if cost.per_thousand is not None:
            at = cost.per_thousand, sum(record.score() for record in mine) / len(mine)
            axes.plot(*at, "o", color="tab:red", markersize=4)
            axes.annotate(label, at, fontsize=7, xytext=(3, 3), textcoords="offset points")
    axes.set_xlabel("ms for 1,000 tokens", fontsize=8)
    axes.set_title("mean score", fontsize=9)
    axes.tick_params(labelsize=7)
