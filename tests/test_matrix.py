"""The table of families and methods in the handbook says what the code does; each cell that passes does pass."""

from __future__ import annotations

import pytest
from tests import families, matrix
from tests.comparison import METHODS
from tests.selection import mostly_slow

from eddy_embed import methods

COMMITTED = matrix.read(matrix.PAGE.read_text(encoding="utf-8"))


USUAL = ("gemma3", "gpt_oss", "gpt_neo", "falcon", "bert", "t5")
"""One of each kind of attention; `test_methods` and `test_encoders` have further families."""
TRIED = ("htp", "kv, reroute", "layeravg, standardise")
"""Columns whose cells are compared: between them they touch every moment of a pass."""


@pytest.mark.parametrize("family", mostly_slow(matrix.ROWS, USUAL))
def test_the_table_says_what_the_code_does(family: str) -> None:
    # `test_methods` compares the first families with the reference, and `test_encoders` those that see both ways.
    for column in matrix.COLUMNS:
        look = matrix.compared if column in TRIED and family not in families.FAMILIES else matrix.opens
        assert look(family, column) == COMMITTED[family, column], (family, column)


@pytest.mark.slow
@pytest.mark.parametrize("family", matrix.ROWS)
def test_every_cell_that_passes_equals_the_reference(family: str) -> None:
    for column in matrix.COLUMNS:
        assert matrix.compared(family, column) == COMMITTED[family, column], (family, column)


def test_the_table_is_complete_and_as_it_is_written() -> None:
    assert COMMITTED.keys() == {(family, column) for family in matrix.ROWS for column in matrix.COLUMNS}
    assert f"{matrix.BEGIN}\n{matrix.printed(COMMITTED)}\n{matrix.END}" in matrix.PAGE.read_text(encoding="utf-8")


def test_every_registered_method_has_a_column() -> None:
    assert set(matrix.COLUMNS.values()) <= METHODS.keys()
    # Readouts, weights and the start token are shared, what is fitted touches no model but `standardise`, which sees
    # layers, and what is recommended is one of the others.
    shared = {"recommended", "best", "fast", "start", "sif", "filter", "readout", "last2avg"}
    running = {name for name in methods.names() if methods.parse(name).post is None} - shared
    assert running | {"standardise"} == {name for column in matrix.COLUMNS for name in column.split(", ")}
