"""The papers' tables: their numbers, that every row can be run, and what is printed."""

from __future__ import annotations

import pytest
from tests.adapters.mteb_tasks import stand_in

from eddy_embed import methods
from mteb_eddy import instructions, run_suite, suite, suite_names
from mteb_eddy.report import NEVER, suite_table

SLIPS = {
    # Suite, model, row, column: what the paper prints where the mean of its own numbers is another.
    ("htp-table3", "Mistral-7B", "Echo Mean", "Cluster"): 34.07,
    ("htp-table3", "Mistral-7B", "TP w. PromptEOL", "STS"): 68.46,
    ("kv-table2", "Mistral-7B-Instruct-v0.1", "Echo, 2,048", "average"): 0.0549,
    ("reba-table2", "GPT-2", "ReBA-2, Last", "Retr."): 0.2173,
    ("reba-table2", "GPT-2", "Echo-2, Last", "Retr."): 0.1757,
    ("reba-table2", "GPT-2", "Echo-3, Last", "Retr."): 0.1845,
    ("reba-table2", "GPT-2", "ReBA-3, Last", "Retr."): 0.2119,
    ("reba-table2", "GPT-2", "ReBA-3, Last", "STS"): 0.2284,
    ("reba-table2", "GPT-2", "Echo-2, Mean", "STS"): 0.236,
    ("reba-table2", "GPT-2", "Classical, Mean", "Rera."): 0.2959,
    ("reba-table2", "GPT-2", "ReBA-2, Mean", "Rera."): 0.3,
}
CHECKED = {
    "htp-table3": 19,
    "kv-table1": 147,
    "kv-table2": 36,
    "reba-table2": 77,
    "tempscale-table1": 10,
    "tp-table1": 10,
}


def test_the_suites_are_those_of_the_papers() -> None:
    six = {"htp-table1", "htp-table2", "kv-table1", "tp-table1", "reba-table2", "tempscale-table1"}
    assert six | {"htp-table3", "kv-table2"} == set(suite_names())


@pytest.mark.parametrize("name", suite_names())
def test_printed_averages_follow_from_the_printed_numbers(name: str) -> None:
    """A number that was copied wrongly would move a mean by more than the paper rounds or cuts."""
    chosen, off, checked = suite(name), {}, 0
    for row in chosen.rows:
        assert len(row.published) == len(chosen.columns)
        means = {}
        if chosen.average == "columns":
            means["average"] = (sum(row.published) / len(row.published), row.average)
        elif chosen.average == "tasks" and row.tasks:
            means["average"] = (sum(row.tasks.values()) / len(row.tasks), row.average)
        for (label, column), printed in zip(chosen.columns.items(), row.published, strict=True):
            if row.tasks and row.tasks.keys() >= set(column.tasks):
                means[label] = (sum(row.tasks[task] for task in column.tasks) / len(column.tasks), printed)
        for label, (mean, printed) in means.items():
            checked += 1
            if abs(mean - printed) > 1.01 * 10**-chosen.digits:
                off[name, row.backbone, row.label, label] = printed
    assert off == {key: value for key, value in SLIPS.items() if key[0] == name}
    assert checked == CHECKED.get(name, 0)


def test_what_two_tables_print_agrees() -> None:
    """Tables 1 of HTP and 3: the means over the seven tasks of retrieval."""
    means = {row.label: sum(row.published) / 7 for row in suite("htp-table1").rows if row.backbone == "Mistral-7B"}
    for row in suite("htp-table3").rows:
        if row.label in means:
            assert row.published[-1] == pytest.approx(means[row.label], abs=0.005)
    times = {(row.label, row.backbone): row.time for row in suite("htp-table2").rows}
    assert times["HTP (Ours), 512", "Mistral-7B"] == 1.34


def test_instructions_are_of_tasks_that_exist() -> None:
    found = instructions("htp")
    assert len(found) == 11 + 26
    tasks = {
        task.partition("[")[0] for name in ("htp-table1", "htp-table2", "htp-table3") for task in suite(name).tasks
    }
    similarity = {f"STS{year}" for year in range(12, 17)}
    assert tasks - similarity <= found.keys(), "a task of HTP's has no instruction"
    assert found["SciFact"] == "Given a scientific claim, retrieve documents that support or refute the claim"
    assert not similarity & found.keys()


@pytest.mark.parametrize("name", suite_names())
def test_every_row_can_be_run(name: str, tmp_path) -> None:
    """All methods of the table's first model on the bundled one, on one task with data of ours."""
    chosen = suite(name)
    for row in chosen.rows:
        if row.method is not None:
            methods.parse(row.method), methods.parse(row.elsewhere or row.method)
    task = chosen.tasks[-1] if name in ("htp-table3", "tempscale-table1") else chosen.tasks[0]
    first = next(iter(chosen.backbones))
    mine = [row for row in chosen.rows if row.backbone == first]
    shortest = min(row.max_length or 0 for row in mine)
    wanted = [row.label for row in mine if row.method and (row.max_length or 0) == shortest]
    outcomes = run_suite(name, tmp_path, model="eddy-tiny", tasks=[task], rows=wanted, find=stand_in)
    assert [outcome.row.label for outcome in outcomes] == wanted
    assert len({outcome.records[task].key for outcome in outcomes}) == len(
        {o.row.elsewhere or o.row.method for o in outcomes}
    )
    printed = suite_table(name, outcomes)
    assert NEVER in printed and "eddy-tiny stands in for" in printed
    column = next(each for each in chosen.columns.values() if task in each.tasks)
    at = [*chosen.columns.values()].index(column)
    for outcome in outcomes:
        mine = outcome.records[task].score(column.metric) * chosen.scale
        cell = f"{mine:.{chosen.digits}f}" if len(column.tasks) == 1 else "-"
        line = next(
            line for line in printed.split("\n") if line.startswith("| eddy-tiny") and f" {outcome.row.label} " in line
        )
        assert f"{cell} ({outcome.row.published[at]:.{chosen.digits}f})" in line
