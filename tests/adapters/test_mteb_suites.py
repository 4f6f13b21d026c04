"""The papers' tables: their numbers, that every row can be run, and what is printed."""

from __future__ import annotations

from string import ascii_lowercase
from typing import Any, ClassVar

import numpy as np
import pytest
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta
from tests.adapters.mteb_tasks import KINDS, stand_in
from tests.selection import mostly_slow

from eddy_embed import methods
from mteb_eddy import instructions, run_suite, suite, suite_names
from mteb_eddy.report import NEVER, suite_table
from mteb_eddy.runner import _settings, find_task

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
ONE_KIND = ("htp-table1", "htp-table2", "kv-table2", "tp-table1")
"""Suites whose columns are tasks of one kind."""
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


@pytest.mark.parametrize("name", mostly_slow(suite_names(), ["tp-table1"]))
def test_every_method_can_be_run(name: str, tmp_path) -> None:
    """Those of the table's first model on the bundled one, on one task with data of ours."""
    chosen = suite(name)
    task = chosen.tasks[-1] if name in ("htp-table3", "tempscale-table1") else chosen.tasks[0]
    first = next(iter(chosen.backbones))
    wanted = {row.elsewhere or row.method: row.label for row in reversed(chosen.rows) if row.backbone == first}
    labels = [row.label for row in chosen.rows if row.backbone == first and row.label in wanted.values() and row.method]
    outcomes = run_suite(name, tmp_path, model="eddy-tiny", tasks=[task], rows=labels, find=stand_in)
    assert [outcome.row.label for outcome in outcomes] == labels
    assert len({outcome.records[task].key for outcome in outcomes}) == len(labels)
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


class Spelled(AbsEncoder):
    """Vectors by the letters of a text; keeps what it was opened with."""

    opened: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def __init__(self, model: str, **settings: Any) -> None:
        self.opened.append((model, settings))
        self.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": f"spelled/{len(self.opened)}"})

    def encode(self, inputs, **_):
        texts = [text for batch in inputs for text in batch["text"]]
        return np.array([[1 + text.count(letter) for letter in ascii_lowercase] for text in texts], np.float32)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", mostly_slow(suite_names(), ["reba-table2"]))
def test_every_column_is_scored(name: str, tmp_path) -> None:
    """The first row, as the table has it, on a task of each column: the score that the paper averages is there."""
    chosen, row = suite(name), suite(name).rows[0]
    tasks = list(dict.fromkeys(column.tasks[0] for column in chosen.columns.values()))[: 1 if name in ONE_KIND else 7]
    which = {"backbones": [row.backbone], "rows": [row.label], "tasks": tasks}
    (outcome,) = run_suite(name, tmp_path, **which, find=stand_in, open_encoder=Spelled)
    for column in chosen.columns.values():
        if column.tasks[0] in tasks:
            assert 0 < abs(outcome.records[column.tasks[0]].score(column.metric)) <= 1
    assert Spelled.opened[-1][0] == chosen.backbones[row.backbone] and not outcome.stand_in


@pytest.mark.parametrize("name", suite_names())
def test_every_task_is_there_and_every_method_has_a_meaning(name: str) -> None:
    for task in suite(name).tasks:
        found = find_task(task)
        assert found.metadata.name == task.partition("[")[0] and found.metadata.type in KINDS
    for row in suite(name).rows:
        if row.method is not None:
            methods.parse(row.method), methods.parse(row.elsewhere or row.method)


def test_lengths_and_instructions_are_those_of_the_papers() -> None:
    """Echo's copies have the length each; PromptEOL has no instructions."""
    chosen = suite("htp-table2")
    assert len(chosen.rows) == 24
    for row in chosen.rows:
        settings, length = _settings(chosen, row), 8192 if row.label.endswith(", 8,192") else 512
        doubled = row.label.startswith("Echo") and (row.backbone, length) != ("Gemma2-9B", 8192)
        assert (settings["max_length"], settings["overflow"]) == (length * (1 + doubled), "truncate")
        assert settings.get("instructions") == (None if "PromptEOL" in row.label else instructions("htp"))
    others = [row for name in ("htp-table1", "htp-table3") for row in suite(name).rows]
    assert {row.label for row in others if not row.instructed} == {"TP w. PromptEOL", "Prompt-EOL"}
    assert {row.max_length for row in others if row.label == "Echo Mean"} == {1024}
    assert {row.max_length for row in suite("kv-table1").rows if row.label == "Echo"} == {1024}
