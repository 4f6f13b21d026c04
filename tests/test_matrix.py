"""The table of families and methods in the handbook says what the code does; each cell that passes does pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import families, matrix
from tests.comparison import METHODS
from tests.selection import mostly_slow

from eddy_embed import methods

ROOT = Path(__file__).resolve().parent.parent
USUAL = ("gemma3", "gpt_oss", "gpt_neo", "falcon", "bert", "t5")
"""One of each kind of attention; `test_methods` and `test_encoders` have further families."""
TRIED = ("htp", "kv, reroute", "layeravg, standardise")
"""Columns whose cells are compared: between them they touch every moment of a pass."""


@pytest.mark.parametrize("family", mostly_slow(matrix.ROWS, USUAL))
def test_the_table_says_what_the_code_does(family: str) -> None:
    # `test_methods` compares the first families with the reference, and `test_encoders` those that see both ways.
    for column in matrix.COLUMNS:
        look = matrix.compared if column in TRIED and family not in families.FAMILIES else matrix.opens
        assert look(family, column) == matrix.promised(family, column), (family, column)


@pytest.mark.slow
@pytest.mark.parametrize("family", matrix.ROWS)
def test_every_cell_that_passes_equals_the_reference(family: str) -> None:
    for column in matrix.COLUMNS:
        assert matrix.compared(family, column) == matrix.promised(family, column), (family, column)


def test_the_page_names_the_families() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").split("| families | methods |")[1].split("\n\n")[0]
    named = [set(re.findall(r"\w+", row)) & set(matrix.ROWS) for row in page.splitlines()[2:]]
    assert named == [{*families.FAMILIES, *families.MORE_FAMILIES}, {*families.OWN_ATTENTION}, {*families.ENCODERS}]


def test_every_registered_method_has_a_column() -> None:
    assert set(matrix.COLUMNS.values()) <= METHODS.keys()
    # Readouts, weights and the start token are shared, what is fitted touches no model but `standardise`, which sees
    # layers, and what is recommended is one of the others.
    shared = {"recommended", "best", "fast", "start", "sif", "filter", "readout", "last2avg"}
    running = {name for name in methods.names() if methods.parse(name).post is None} - shared
    assert running | {"standardise"} == {name for column in matrix.COLUMNS for name in column.split(", ")}
