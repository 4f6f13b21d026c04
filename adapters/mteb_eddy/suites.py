"""The tables of the methods' papers as data: models, methods, layers, lengths, tasks and published numbers."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, cast

from eddy_embed.errors import InvalidParameter

_DATA = files("mteb_eddy") / "data"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    tasks: tuple[str, ...]  # whose scores the column averages, as "STS12" or, for one subset, "STS17[en-en]"
    metric: str | None = None  # name of the score in MTEB's results; None for a task's main score


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    backbone: str  # the model's name in the table
    label: str  # the method's name in the table
    method: str | None  # text form with the published layers; None for methods that Eddy lacks
    published: tuple[float, ...]  # one for each column
    elsewhere: str | None = None  # text form for other models; None for the same
    average: float | None = None  # published
    tasks: dict[str, float] | None = None  # published numbers of single tasks
    max_length: int | None = None  # number of tokens in a pass; None for the suite's
    instructed: bool = True  # whether the row uses the suite's instructions
    time: float | None = None  # published, as a multiple of the table's cheapest method


@dataclass(frozen=True)
class Suite:
    """A table of a paper.

    Attributes:
        name: Name of the suite.
        title: Title of the table.
        source: Paper, table, and where the paper states the settings.
        run: Published models on which this project has run the suite, each with date and command; may be empty.
        scale: Factor for scores between 0 and 1.
        digits: Decimal places.
        average: What the last column averages: "columns", "tasks", or None if there is no such column.
        max_length: Maximum number of tokens in a pass, prompts included; None for the model's own length.
        overflow: What happens to longer texts, as for `Embedder`.
        instructions: Name of the set of instructions; None if no row has any.
        notes: What the paper leaves open or contradicts, and what we chose.
        columns: Columns by their names in the table.
        backbones: Hugging Face id by the model's name in the table; None where the paper gives no id.
        rows: Rows in the table's order.
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
        """All tasks in the order of the columns."""
        return tuple(dict.fromkeys(task for column in self.columns.values() for task in column.tasks))


def suite_names() -> tuple[str, ...]:
    """Names of all suites."""
    return tuple(sorted(file.name.removesuffix(".json") for file in _DATA.iterdir() if "-table" in file.name))


def title(name: str) -> str:
    """Title of a suite."""
    return str(_read(name)["title"])


@functools.cache
def suite(name: str) -> Suite:
    """Load a suite.

    Raises:
        InvalidParameter: There is no suite of that name.
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
    """Load a set of instructions, by MTEB's names of the tasks.

    Args:
        name: "htp", tables 10 and 11 of the HTP paper (Ding et al. 2025).

    Raises:
        InvalidParameter: There is no such set.
    """
    sets = _read("instructions")
    if name not in sets:
        raise InvalidParameter(f"there are no instructions {name!r}; choose one of {', '.join(sets)}")
    return dict(sets[name]["tasks"])


def _read(name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8")))
