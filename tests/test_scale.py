"""The page about scale: its tables are the script's, its formulas what they say, and a simulation agrees with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import scale

    return scale


def test_the_page_has_the_tables_of_the_script(scale: ModuleType) -> None:
    made = scale.page(scale.tables(scale.Library(1), scale.RATES, scale.DIMENSIONS))
    assert made == scale.PAGE.read_text(encoding="utf-8"), "run python benchmarks/scale.py --write"


def test_what_was_measured_is_given_back(scale: ModuleType) -> None:
    """At the size at which it was measured, the formulas say what was measured."""
    told = json.loads((ROOT / "benchmarks" / "results" / "index-speed.json").read_text(encoding="utf-8"))
    row, passages = told["rows"]["server"], told["sizes"]["passages"]
    measured, library = scale.Measured.read(), scale.Library(passages, in_document=20, sentences=2)
    rows = library.rows(scale.GRANULARITIES["all three"])
    assert rows == row["rows"]
    assert scale.writer_hours(rows, measured.rows_a_second) * 3600 == pytest.approx(row["seconds"])
    assert scale.server_bytes(rows, row["width"], measured) == pytest.approx(rows * row["bytes"])
    assert 1 < measured.positions["plain"] < measured.positions["htp"] < measured.positions["echo"]


def test_twice_the_gpus_take_half_the_hours_until_the_writer_is_slower(scale: ModuleType) -> None:
    hours = scale.gpu_hours(scale.Library(10**6, tokens=180), 1.0, 50_000)
    assert hours == pytest.approx(1.0)
    assert [scale.run_hours(hours, gpus, 0.2) for gpus in (1, 2, 4, 8)] == [1.0, 0.5, 0.25, 0.2]
    assert scale.run_hours(hours, 8, 0.2, writers=2) == 0.125
    assert scale.most_rows(16e9, 1000) * 4 * 1000 == pytest.approx(0.8 * 16e9)


@pytest.mark.parametrize("at", range(4))
def test_a_simulation_takes_as_long_as_the_formula_says(at: int, scale: ModuleType) -> None:
    _, run = scale.simulated()[at]
    for seed in range(3):
        assert scale.simulate(run, seed) == pytest.approx(scale.formula(run), rel=0.02)


def test_a_simulation_can_disagree(scale: ModuleType) -> None:
    """A queue without places, and few large batches, are what the formula leaves out."""
    run = scale.Run(64, embed=1.0, write=0.5, gpus=2, queue=1)
    assert scale.simulate(run) > scale.formula(run)
    assert scale.simulate(replace(run, mean_hours=2.0, restart=1.0)) > 1.2 * scale.formula(run)
