"""The table of families and methods: `python -m tests.matrix` computes it and writes it into docs/models.md.

A cell has one of three values. It passes: the vectors equal those of the reference, in float64 to 1e-9 and in float32
to 1e-5. It is refused: with the reason that the embedder gives. Or it does not apply. Anything else is an error.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from tests import families
from tests.comparison import TEXTS, embedder, expected, gap

from eddy_embed import Embedder
from eddy_embed.errors import UnsupportedModel

PAGE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
BEGIN, END = "<!-- table: python -m tests.matrix -->", "<!-- end of table -->"
TEXT = TEXTS[3]
"""Two sentences, some quotes, more tokens than the sliding windows of the tiny models."""
COLUMNS = {
    "plain": "plain",
    "prompteol, cot, knowledge": "prompteol",
    "metaeol": 'metaeol:prompts="A: {text} is\\n{text} means:",exit=-2',
    "echo": "echo",
    "tp": "tp:prompt=prompteol,range=2-5,exit=-1",
    "htp": "htp:range=1-4,exit=-1",
    "kv, reroute": 'kv:layers="1,3,5-6",bias=-0.5,n=3,verb="Extract key concept",pool=mean',
    "reba": "reba:k=3,pool=mean,exit=4",
    "tempscale": "plain+tempscale",
    "layeravg, standardise": "plain:exit=-1+sif:a=0.01+layeravg:layers=1-2+standardise",
}
"""Registered methods -> the one of `tests.comparison.METHODS` that stands for them."""
ROWS = [*families.FAMILIES, *families.MORE_FAMILIES, *families.OWN_ATTENTION, *families.ENCODERS]
PASSES = "✓"


@dataclass(frozen=True)
class Cell:
    """A family under a method: it passes, or there is a reason why not."""

    reason: str = ""


@cache
def made(family: str, column: str) -> Embedder:
    """The embedder of a cell, fitted where its method learns."""
    return embedder(family, COLUMNS[column])


def opens(family: str, column: str) -> Cell:
    """What the code says when the embedder is made."""
    try:
        made(family, column)
    except UnsupportedModel as error:
        return Cell(re.sub(r"^\w+:? ", "", str(error)))  # without the name of the class
    return Cell()


def compared(family: str, column: str) -> Cell:
    """What the code says, and that it keeps its word.

    Raises:
        ValueError: It does not.
    """
    cell, method = opens(family, column), COLUMNS[column]
    if cell.reason:
        return cell
    exactly = gap(embedder(family, method, exactly=True), family, method, [TEXT])
    single = np.abs(made(family, column).encode_query(TEXT) - expected(family, method, TEXT)).max()
    if not (exactly <= 1e-9 and single <= 1e-5):
        raise ValueError(f"{family}, {column}: {exactly:.1e} and {single:.1e} from the reference")
    return cell


def printed(cells: dict[tuple[str, str], Cell]) -> str:
    """The table in Markdown, and below it the reasons, numbered."""
    reasons = list(dict.fromkeys(cell.reason for cell in cells.values() if cell.reason))
    lines = [f"| | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for family in ROWS:
        found = [cells[family, column] for column in COLUMNS]
        values = [f"refused ({reasons.index(c.reason) + 1})" if c.reason else PASSES for c in found]
        lines.append(f"| {family} | {' | '.join(values)} |")
    numbered = [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)]
    return "\n".join([*lines, *(["", *numbered] if numbered else [])])


def read(page: str) -> dict[tuple[str, str], Cell]:
    """The table that a page holds."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    reasons = dict(re.findall(r"^(\d+)\. (.+)$", table, flags=re.MULTILINE))
    rows = [[part.strip() for part in line.strip("| ").split("|")] for line in table.splitlines() if "|" in line]
    cells = {}
    for family, *values in rows[2:]:
        for column, value in zip(COLUMNS, values, strict=True):
            number = re.fullmatch(r"refused \((\d+)\)", value)
            if value != PASSES and number is None:
                raise ValueError(f"{family}, {column}: {value!r} is no value of this table")
            cells[family, column] = Cell(reasons[number[1]] if number else "")
    return cells


def main() -> None:
    """Compute every cell and write the table."""
    cells = {}
    for family in ROWS:
        cells.update({(family, column): compared(family, column) for column in COLUMNS})
        sys.stderr.write(f"{family}\n")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{printed(cells)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
