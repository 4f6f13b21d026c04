"""Run evaluations and suites; interrupted runs continue where they stopped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from eddy_embed import Embedder, __version__
from eddy_embed.errors import InvalidParameter
from mteb_eddy.encoder import EddyEncoder
from mteb_eddy.locov1 import LoCoV1
from mteb_eddy.result_store import EncodingCost, Record, ResultStore, SuiteRun, SuiteRunStore
from mteb_eddy.suites import Row, Suite, instructions, suite

_QUIET: Any = {"show_progress_bar": False}
_SPEC = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<subset>[^\[\]]+)\])?")


def find_task(spec: str, locov1: str | os.PathLike[str] | None = None) -> AbsTask:
    """Find a task of MTEB, or LoCoV1, limited to its test split if it has one.

    Args:
        spec: "STS12", or "STS17[en-en]" for one subset.
        locov1: Folder with LoCoV1; None for the hub.

    Raises:
        InvalidParameter: There is no such task.
    """
    match = _SPEC.fullmatch(spec)
    name, subset = (match["name"], match["subset"]) if match else (spec, None)
    subsets = None if subset is None else [subset]
    if name == LoCoV1.metadata.name:
        loco: AbsTask = LoCoV1(locov1).filter_languages(languages=None, hf_subsets=subsets)
        return loco
    try:
        task: AbsTask = mteb.get_task(name, hf_subsets=subsets)
    except (KeyError, ValueError) as error:
        raise InvalidParameter(f"MTEB has no task {spec!r}: {str(error)[:200]}") from None
    if "test" in task.eval_splits:
        task.filter_eval_splits(["test"])
    return task


def evaluate(
    encoder: Any,
    tasks: Iterable[str | AbsTask],
    output: str | os.PathLike[str],
    *,
    fresh: bool = False,
    find: Callable[[str], AbsTask] = find_task,
) -> list[Record]:
    """Evaluate an encoder on tasks and store scores and costs; stored results are not computed again.

    Args:
        encoder: An `EddyEncoder`, or any other encoder of MTEB.
        tasks: Names as for `find_task`, or tasks.
        output: Folder of MTEB's results, and of `records.jsonl` with scores and costs.
        fresh: Whether to compute stored results again.
        find: Finds a task by its name.

    Returns:
        A record for each task, in their order.
    """
    folder = Path(output)
    store, cache = ResultStore(folder / "records.jsonl"), mteb.ResultCache(folder)
    records = []
    for each in tasks:
        task = find(each) if isinstance(each, str) else each
        name = each if isinstance(each, str) else task.metadata.name
        costs = getattr(encoder, "costs", {})
        costs.pop(task.metadata.name, None)
        results = mteb.evaluate(
            encoder,
            task,
            cache=cache,
            overwrite_strategy="always" if fresh else "only-missing",
            encode_kwargs=_QUIET,
            show_progress_bar=False,
            co2_tracker=False,
        )
        record = _record(encoder, name, task, results.task_results[0], costs.get(task.metadata.name))
        records.append(store.keep(record))
    return records


@dataclass(frozen=True)
class SuiteRowResult:
    """Results of a row of a suite."""

    row: Row
    model: str
    stand_in: bool  # whether the model is another than the table's
    records: dict[str, Record]  # by task


def run_suite(
    name: str | Suite,
    output: str | os.PathLike[str],
    *,
    model: Any = None,
    backbones: Sequence[str] = (),
    tasks: Sequence[str] = (),
    rows: Sequence[str] = (),
    fresh: bool = False,
    find: Callable[[str], AbsTask] = find_task,
    open_encoder: Callable[..., Any] = EddyEncoder,
    log: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> list[SuiteRowResult]:
    """Run a suite, or a part of it.

    Args:
        name: The suite.
        output: As for `evaluate`; `suites.jsonl` in it links rows to their records.
        model: Model to run instead of the table's: a copy of the one that `backbones` names; or, without `backbones`, a
            stand-in, which runs the rows of the table's first model with the methods' own default layers.
        backbones: Only these models of the table.
        tasks: Only these tasks, or these columns.
        rows: Only rows with these labels.
        fresh: Whether to compute stored results again.
        find: Finds a task by its name.
        open_encoder: Makes an encoder from a model, a method and settings.
        log: Called with a line for each step.
        **settings: Further arguments of `Embedder`, such as device and dtype.

    Raises:
        InvalidParameter: The suite has no such model, task or row, or no id for a model.
    """
    chosen = suite(name) if isinstance(name, str) else name
    folder = Path(output)
    task_names = _tasks(chosen, tasks)
    runs = SuiteRunStore(folder / "suites.jsonl")
    window: int | None = None
    results = []
    for row in _rows(chosen, model, backbones, rows):
        stand_in = model is not None and not backbones
        used = chosen.backbones[row.backbone] if model is None else model
        method = (row.elsewhere or row.method) if stand_in else row.method
        where = f"{chosen.name}: {row.backbone}, {row.label}"
        if method is None:
            log(f"{where}: no method of ours")
            continue
        if used is None:
            raise InvalidParameter(
                f"{chosen.name} has no id for {row.backbone}; name a copy with --model PATH --backbone {row.backbone!r}"
            )
        log(f"{where}: {method} on {used}")
        row_settings = _settings(chosen, row)
        if stand_in and window is None:
            window = _window(used, settings)
        if window is not None and row_settings.get("max_length", 0) > window:
            row_settings["max_length"] = window
            log(f"  no more than {window:,} tokens go into {used}")
        result = SuiteRowResult(row, str(used), stand_in, {})
        with closing(open_encoder(used, method=method, **row_settings, **settings)) as encoder:
            for task in task_names:
                (record,) = evaluate(encoder, [task], folder, fresh=fresh, find=find)
                result.records[task] = record
                run = SuiteRun(chosen.name, row.backbone, row.label, str(used), stand_in, record.key)
                if run not in runs.results.values():
                    runs.add(run)
                log(f"  {task}: {_format_score(chosen, record)}")
        results.append(result)
    return results


def read_suites(folder: Path) -> dict[str, list[SuiteRowResult]]:
    """Read the last run of each row of suites on each model, by the suites' names."""
    path, records = folder / "suites.jsonl", ResultStore(folder / "records.jsonl").results
    suites: dict[str, list[SuiteRowResult]] = {}
    for run in SuiteRunStore(path).results.values():
        rows = [row for row in suite(run.suite).rows if (row.backbone, row.label) == (run.backbone, run.label)]
        if not rows:
            raise InvalidParameter(
                f"{path}: {run.suite} has no row {run.backbone!r}, {run.label!r}; it was written by another version"
            )
        own = {task: record for (key, task), record in records.items() if key == run.key}
        suites.setdefault(run.suite, []).append(SuiteRowResult(rows[0], run.model, run.stand_in, own))
    return suites


def _settings(chosen: Suite, row: Row) -> dict[str, Any]:
    length = row.max_length or chosen.max_length
    settings: dict[str, Any] = {"overflow": chosen.overflow}
    settings |= {} if length is None else {"max_length": length}
    if chosen.instructions is not None and row.instructed:
        settings["instructions"] = instructions(chosen.instructions)
    return settings


def _tasks(chosen: Suite, names: Sequence[str]) -> list[str]:
    wanted: list[str] = []
    for name in names or chosen.tasks:
        if name not in chosen.tasks and name not in chosen.columns:
            raise InvalidParameter(
                f"{chosen.name} has no task or column {name!r}; choose of {', '.join([*chosen.columns, *chosen.tasks])}"
            )
        wanted += [name] if name in chosen.tasks else chosen.columns[name].tasks
    return list(dict.fromkeys(wanted))


def _rows(chosen: Suite, model: Any, backbones: Sequence[str], labels: Sequence[str]) -> list[Row]:
    for kind, names, known in (
        ("model", backbones, [*chosen.backbones]),
        ("row", labels, list(dict.fromkeys(row.label for row in chosen.rows))),
    ):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidParameter(f"{chosen.name} has no {kind} {unknown[0]!r}; choose of {', '.join(known)}")
    if model is not None and len(backbones) > 1:
        raise InvalidParameter(f"{model}: can be a copy of one model only, not of {', '.join(backbones)}")
    usual = [next(iter(chosen.backbones))] if model is not None else [*chosen.backbones]
    kept = set(backbones or usual)
    return [row for row in chosen.rows if row.backbone in kept and (not labels or row.label in labels)]


def _window(model: str, settings: Mapping[str, Any]) -> int:
    """Maximum length of a model, of which only the token embeddings are loaded."""
    kept = {name: value for name, value in settings.items() if name in ("revision", "cache_folder", "local_files_only")}
    with Embedder(model, method="plain:exit=0", check=False, **kept) as embedder:
        return embedder.max_length


def _format_score(chosen: Suite, record: Record) -> str:
    column = next(each for each in chosen.columns.values() if record.task in each.tasks)
    return f"{record.score(column.metric) * chosen.scale:.{chosen.digits}f}"


def _record(encoder: Any, name: str, task: AbsTask, result: TaskResult, cost: EncodingCost | None) -> Record:
    entries = [entry for split in result.scores.values() for entry in split]
    numeric = [metric for metric, value in entries[0].items() if isinstance(value, int | float)]
    # MTEB writes six digits: rounded here too, new scores equal scores read from its files.
    means = {metric: float(np.mean([round(entry[metric], 6) for entry in entries])) for metric in numeric}
    meta = encoder.mteb_model_meta
    experiment = dict(meta.experiment_kwargs or {})
    return Record(
        key=str(experiment.get("fingerprint", meta.name)),
        task=name,
        model=str(meta.name),
        method=str(experiment.get("method", "")),
        told={key: str(value) for key, value in experiment.items()},
        metric=str(task.metadata.main_score),
        scores={metric: round(mean, 6) for metric, mean in means.items() if np.isfinite(mean)},
        cost=cost,
        version=__version__,
    )
