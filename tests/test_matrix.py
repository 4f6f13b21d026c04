"""The table of families and methods, which docs/models.md tells in three rows, says what the code does.

A cell has one of two values. It passes: the vectors equal those of the reference, in float64 to 1e-9 and in float32 to
1e-5. Or it is refused, with the reason that the embedder gives. Anything else is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests import families
from tests.comparison import METHODS, TEXTS, embedder, expected, gap
from tests.selection import mostly_slow

from eddy_embed import Embedder, methods
from eddy_embed.errors import UnsupportedModel

ROOT = Path(__file__).resolve().parents[1]
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
PUT_INTO_ATTENTION = {"kv, reroute": "re-routed entries", "reba": "a watch"}
FOR_EARLY_TOKENS = {
    **dict.fromkeys(("prompteol, cot, knowledge", "metaeol", "echo"), "a prompt"),
    "tp": "a prompt and placeholders",
    "htp": "placeholders",
    "kv, reroute": "a prompt and re-routed entries",
    "reba": "a repeated text and a watch",
}
"""What families refuse a method for."""
ROWS = [*families.FAMILIES, *families.MORE_FAMILIES, *families.OWN_ATTENTION, *families.ENCODERS]
USUAL = ("gemma3", "gpt_oss", "gpt_neo", "falcon", "bert", "t5")
"""One of each kind of attention; `test_methods` and `test_encoders` have further families."""
TRIED = ("htp", "kv, reroute", "layeravg, standardise")
"""Columns whose cells are compared by default: between them they touch every moment of a pass."""
EVERY = tuple(COLUMNS)


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


def promised(family: str, column: str) -> Cell:
    """What docs/models.md says of a family and a method."""
    if family in families.OWN_ATTENTION and column in PUT_INTO_ATTENTION:
        return Cell(
            f"computes its attention itself, past transformers' registry, so {PUT_INTO_ATTENTION[column]} cannot be "
            "put into it; use a method that leaves attention as it is, such as plain, prompteol or htp"
        )
    if family in families.ENCODERS and column in FOR_EARLY_TOKENS:
        return Cell(
            f"reads in both directions, which leaves no reason for {FOR_EARLY_TOKENS[column]}; use plain, alone or "
            "with tempscale, last2avg, readout or post-processing"
        )
    return Cell()


@pytest.mark.parametrize(
    ("family", "tried"), mostly_slow([*product(USUAL, [TRIED]), *product(ROWS, [EVERY])], [*product(USUAL, [TRIED])])
)
def test_the_table_says_what_the_code_does(family: str, tried: tuple[str, ...]) -> None:
    for column in COLUMNS:
        look = compared if column in tried else opens
        assert look(family, column) == promised(family, column), (family, column)


def test_the_page_names_the_families() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").split("| families | methods |")[1].split("\n\n")[0]
    named = [set(re.findall(r"\w+", row)) & set(ROWS) for row in page.splitlines()[2:]]
    assert named == [{*families.FAMILIES, *families.MORE_FAMILIES}, {*families.OWN_ATTENTION}, {*families.ENCODERS}]


def test_every_registered_method_has_a_column() -> None:
    assert set(COLUMNS.values()) <= METHODS.keys()
    # Readouts, weights and the start token are shared, what is fitted touches no model but `standardise`, which sees
    # layers, and what is recommended is one of the others.
    shared = {"recommended", "best", "fast", "start", "sif", "filter", "readout", "last2avg"}
    running = {name for name in methods.names() if methods.parse(name).post is None} - shared
    assert running | {"standardise"} == {name for column in COLUMNS for name in column.split(", ")}
