"""The table of versions in the handbook is the one that the last run left, and stands for what the package declares."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests import versions
from tests.versions import Cell, NotRun

PROJECT = (versions.ROOT / "pyproject.toml").read_text(encoding="utf-8")
CELLS = versions.read()
PASSING = Cell("3.12", "oldest", "quick", "2026-01-02", "3.12.1", {"torch": "2.9.0"}, passed=7)
REPORT = '<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10" time="4.6"/></testsuites>'


def test_the_table_is_the_last_result() -> None:
    page = versions.PAGE.read_text(encoding="utf-8")
    assert f"{versions.BEGIN}\n{versions.printed(CELLS)}\n{versions.END}" in page


def test_every_declared_python_has_two_lines_and_no_result_is_a_failure() -> None:
    declared = tuple(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT))
    assert declared == versions.PYTHONS
    assert len(versions.printed(CELLS).splitlines()) == 2 + 2 * len(declared)
    assert {(cell.python, cell.bounds): cell.outcome for cell in CELLS if not cell.passes} == {}


def test_the_floors_are_those_that_were_tried() -> None:
    floors = dict(re.findall(r'^ *"([\w-]+)>=([\d.]+)', PROJECT, re.MULTILINE))
    for cell in [cell for cell in CELLS if (cell.bounds, cell.tests) == ("oldest", "quick")]:
        # For a later Python the first releases have no wheel.
        raised = {name for name in versions.SHOWN if not f"{cell.versions[name]}.".startswith(f"{floors[name]}.")}
        assert raised <= ({"numpy", "spacy"} if cell.python == "3.13" else set()), cell


@pytest.mark.parametrize(
    ("cell", "passes", "outcome"),
    [
        (PASSING, True, "7 passed"),
        (replace(PASSING, failed=2), False, "7 passed, 2 failed"),
        (replace(PASSING, skipped=1), False, "7 passed, 1 skipped"),
        (replace(PASSING, passed=0), False, "0 passed"),
        (replace(PASSING, reason="no interpreter"), False, "not run: no interpreter"),
    ],
)
def test_only_tests_that_passed_pass(cell: Cell, passes: bool, outcome: str) -> None:
    assert (cell.passes, cell.outcome) == (passes, outcome)
    assert f"| {outcome} |" in versions.printed([cell])
    assert versions.printed([cell]).count("not run: no result yet") == 7


def test_what_counts_as_failed() -> None:
    assert versions.counted(REPORT) == {"passed": 4, "failed": 3, "skipped": 3, "seconds": 5}


def test_a_missing_interpreter_is_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def refuse(*_: str) -> None:
        raise NotRun("No interpreter found")

    monkeypatch.setattr(versions, "uv", refuse)
    cell = versions.run("3.12", "oldest", False, tmp_path)
    assert (cell.passes, cell.outcome, cell.interpreter) == (False, "not run: No interpreter found", "")


def test_the_last_of_each_kind_stays_in_the_order_of_the_table() -> None:
    newest, again = replace(PASSING, bounds="newest"), replace(PASSING, failed=1)
    other = replace(PASSING, python="3.10")
    assert versions.merged([newest, PASSING, other, again]) == [other, again, newest]
