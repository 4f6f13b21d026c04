"""The tables of the methods' papers as data: models, methods, layers, lengths, tasks, and the numbers printed."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from eddy_embed.errors import InvalidParameter

_DATA = files("mteb_eddy") / "data"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        tasks: MTEB's tasks whose scores it averages, as "STS12" or, for one subset, "STS17[en-en]".
        metric: Name of the score in MTEB's results; None for a task's main one.
    """

    tasks: tuple[str, ...]
    metric: str | None = None


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        backbone: The model's name in the table.
        label: The method's name in the table.
        method: Its text here, with the published layers; None where it is no method of ours.
        published: The numbers printed, one for each column.
        elsewhere: The method's text on other models, where those layers mean nothing; None for the same.
        average: The average printed.
        tasks: The numbers printed for single tasks, where the paper has them.
        max_length: Most tokens in a pass, where it is not the suite's.
        instructed: Whether the suite's instructions are given to it.
        time: Time printed, as a multiple of the table's cheapest method.
    """

    backbone: str
    label: str
    method: str | None
    published: tuple[float, ...]
    elsewhere: str | None = None
    average: float | None = None
    tasks: dict[str, float] | None = None
    max_length: int | None = None
    instructed: bool = True
    time: float | None = None


@dataclass(frozen=True)
class Suite:
    """A table of a paper.

    Attributes:
        name: Under which it is run.
        title: What it holds.
        source: Paper, table, and where its settings stand.
        run: Its models on which it was run for this project, each with when and how; empty where it was not.
        scale: What scores between 0 and 1 are multiplied by.
        digits: Behind the point.
        average: What the last column averages: "columns", "tasks", or None where there is no such column.
        max_length: Most tokens in a pass, prompts included; None for the model's own length.
        overflow: What happens to longer texts.
        instructions: Name of the set of instructions, None where no row has any.
        notes: Where the paper is silent or at odds with itself, and what is done here.
        columns: By their names in the table.
        backbones: Hugging Face id by the model's name in the table; None where the paper gives none.
        rows: In the table's order.
    """

    name: str
    title: str
    source: str
    run: tuple[str, ...]
    scale: float
    digits: int
    average: str | None
    max_length: int | None
    overflow: str
    instructions: str | None
    notes: tuple[str, ...]
    columns: dict[str, Column]
    backbones: dict[str, str | None]
    rows: tuple[Row, ...] = field(repr=False)

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in the order of the columns."""
        return tuple(dict.fromkeys(task for column in self.columns.values() for task in column.tasks))


def suite_names() -> tuple[str, ...]:
    """The suites there are."""
    found = (file.name.removesuffix(".json") for file in _DATA.iterdir() if "-table" in file.name)
    return tuple(sorted(found))


def title(name: str) -> str:
    """What a suite holds."""
    return str(_read(name)["title"])


@functools.cache
def suite(name: str) -> Suite:
    """A suite.

    Raises:
        InvalidParameter: There is none of that name.
    """
    if name not in suite_names():
        raise InvalidParameter(f"there is no suite {name!r}; choose one of {', '.join(suite_names())}")
    data = _read(name)
    columns = {label: Column(tuple(each["tasks"]), each.get("metric")) for label, each in data.pop("columns").items()}
    backbones = {label: each["model"] for label, each in data.pop("backbones").items()}
    rows = tuple(Row(**{**row, "published": tuple(row["published"])}) for row in data.pop("rows"))
    notes, run = tuple(data.pop("notes")), tuple(data.pop("run"))
    return Suite(name=name, columns=columns, backbones=backbones, rows=rows, notes=notes, run=run, **data)


def instructions(name: str) -> dict[str, str]:
    """Instructions by MTEB's names of the tasks.

    Args:
        name: "htp": tables 10 and 11 of the HTP paper (Ding et al. 2025).

    Raises:
        InvalidParameter: There is no such set.
    """
    sets = _read("instructions")
    if name not in sets:
        raise InvalidParameter(f"there are no instructions {name!r}; choose one of {', '.join(sets)}")
    return dict(sets[name]["tasks"])


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found
