"""Evaluations that can be stopped and taken up again, and the suites among them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np

from eddy_embed import Embedder, __version__
from eddy_embed.errors import InvalidParameter
from mteb_eddy.costs import Cost
from mteb_eddy.encoder import EddyEncoder
from mteb_eddy.locov1 import LoCoV1
from mteb_eddy.result_store import Journal, Record
from mteb_eddy.suites import Row, Suite, instructions, suite

if TYPE_CHECKING:
    import os

    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

    Said = Callable[[str], None]

_QUIET: Any = {"show_progress_bar": False}
_SPEC = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<subset>[^\[\]]+)\])?")


def find_task(spec: str, locov1: str | os.PathLike[str] | None = None) -> AbsTask:
    """A task of MTEB's, or LoCoV1; its test split where it has one.

    Args:
        spec: "STS12", or "STS17[en-en]" for one subset.
        locov1: Folder with LoCoV1; None for the hub.

    Raises:
        InvalidParameter: There is none of that name.
    """
    found = _SPEC.fullmatch(spec)
    name, subset = (found["name"], found["subset"]) if found else (spec, None)
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
    """Evaluate an encoder on tasks and keep scores and costs; what is kept already is not run again.

    Args:
        encoder: An `EddyEncoder`, or any other encoder of MTEB's.
        tasks: Names as for `find_task`, or tasks.
        output: A folder: MTEB's results, and `records.jsonl` with scores and costs.
        fresh: Whether everything is run again.
        find: Makes a task of its name.

    Returns:
        A record for each task, in their order.
    """
    folder = Path(output)
    journal, cache = Journal(folder / "records.jsonl"), mteb.ResultCache(folder)
    records = []
    for each in tasks:
        task = find(each) if isinstance(each, str) else each
        named = each if isinstance(each, str) else task.metadata.name
        costs = getattr(encoder, "costs", {})
        costs.pop(task.metadata.name, None)
        found = mteb.evaluate(
            encoder,
            task,
            cache=cache,
            overwrite_strategy="always" if fresh else "only-missing",
            encode_kwargs=_QUIET,
            show_progress_bar=False,
            co2_tracker=False,
        )
        record = _record(encoder, named, task, found.task_results[0], costs.get(task.metadata.name))
        records.append(journal.keep(record))
    return records


@dataclass(frozen=True)
class Outcome:
    """A row of a suite, as it was run.

    Attributes:
        row: The row.
        model: What it was run on.
        stand_in: Whether that is another model than the table's.
        records: By task.
    """

    row: Row
    model: str
    stand_in: bool
    records: dict[str, Record]


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
    said: Said = lambda line: None,
    **settings: Any,
) -> list[Outcome]:
    """Run a suite, or a part of it.

    Args:
        name: The suite.
        output: As for `evaluate`; `suites.jsonl` beside it says which records belong to which row.
        model: Instead of the table's models: a copy of the one that `backbones` names, or, without that, a stand-in,
            on which the rows of the table's first model are run with the layers that their methods choose by
            themselves.
        backbones: Only these models of the table.
        tasks: Only these tasks, or these columns.
        rows: Only these labels.
        fresh: Whether everything is run again.
        find: Makes a task of its name.
        open_encoder: Makes an encoder of a model, a method and settings.
        said: Told of what is done.
        **settings: Of `Embedder`: device, dtype and such.

    Raises:
        InvalidParameter: The suite has no such model, task or row, or no id for a model.
    """
    chosen = suite(name) if isinstance(name, str) else name
    folder = Path(output)
    wanted = _tasks(chosen, tasks)
    window: int | None = None
    outcomes = []
    for row in _rows(chosen, model, backbones, rows):
        stand_in = model is not None and not backbones
        used = chosen.backbones[row.backbone] if model is None else model
        method = (row.elsewhere or row.method) if stand_in else row.method
        where = f"{chosen.name}: {row.backbone}, {row.label}"
        if method is None:
            said(f"{where}: no method of ours")
            continue
        if used is None:
            raise InvalidParameter(
                f"{chosen.name} has no id for {row.backbone}; name a copy with --model PATH --backbone {row.backbone!r}"
            )
        said(f"{where}: {method} on {used}")
        told = _settings(chosen, row)
        if stand_in and window is None:
            window = _window(used, settings)
        if window is not None and told.get("max_length", 0) > window:
            told["max_length"] = window
            said(f"  no more than {window:,} tokens go into {used}")
        encoder = open_encoder(used, method=method, **told, **settings)
        outcome = Outcome(row, str(used), stand_in, {})
        try:
            for task in wanted:
                (record,) = evaluate(encoder, [task], folder, fresh=fresh, find=find)
                outcome.records[task] = record
                if task == wanted[0]:
                    _keep(folder / "suites.jsonl", chosen, outcome, record.key)
                said(f"  {task}: {_shown(chosen, record)}")
        finally:
            encoder.close()
        outcomes.append(outcome)
    return outcomes


def read_suites(folder: Path) -> dict[str, list[Outcome]]:
    """What was run of suites, by their names, the last run of a row on a model counting."""
    path, journal = folder / "suites.jsonl", Journal(folder / "records.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found: dict[tuple[str, str, str, str], Outcome] = {}
    for line in map(json.loads, lines):
        rows = [r for r in suite(line["suite"]).rows if (r.backbone, r.label) == (line["backbone"], line["label"])]
        if not rows:
            raise InvalidParameter(
                f"{path}: {line['suite']} has no row {line['backbone']!r}, {line['label']!r}; it was written by "
                "another version"
            )
        records = {task: record for (key, task), record in journal.records.items() if key == line["key"]}
        outcome = Outcome(rows[0], line["model"], line["stand_in"], records)
        found[line["suite"], line["backbone"], line["label"], line["model"]] = outcome
    names = dict.fromkeys(key[0] for key in found)
    return {name: [outcome for key, outcome in found.items() if key[0] == name] for name in names}


def _settings(chosen: Suite, row: Row) -> dict[str, Any]:
    length = row.max_length or chosen.max_length
    told: dict[str, Any] = {"overflow": chosen.overflow}
    told |= {} if length is None else {"max_length": length}
    if chosen.instructions is not None and row.instructed:
        told["instructions"] = instructions(chosen.instructions)
    return told


def _tasks(chosen: Suite, asked: Sequence[str]) -> list[str]:
    wanted: list[str] = []
    for name in asked or chosen.tasks:
        if name not in chosen.tasks and name not in chosen.columns:
            raise InvalidParameter(
                f"{chosen.name} has no task or column {name!r}; choose of {', '.join([*chosen.columns, *chosen.tasks])}"
            )
        wanted += [name] if name in chosen.tasks else chosen.columns[name].tasks
    return list(dict.fromkeys(wanted))


def _rows(chosen: Suite, model: Any, backbones: Sequence[str], labels: Sequence[str]) -> list[Row]:
    for kind, asked, known in (
        ("model", backbones, [*chosen.backbones]),
        ("row", labels, list(dict.fromkeys(row.label for row in chosen.rows))),
    ):
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise InvalidParameter(f"{chosen.name} has no {kind} {unknown[0]!r}; choose of {', '.join(known)}")
    if model is not None and len(backbones) > 1:
        raise InvalidParameter(f"{model}: can be a copy of one model only, not of {', '.join(backbones)}")
    usual = [next(iter(chosen.backbones))] if model is not None else [*chosen.backbones]
    kept = set(backbones or usual)
    return [row for row in chosen.rows if row.backbone in kept and (not labels or row.label in labels)]


def _window(model: str, settings: Mapping[str, Any]) -> int:
    """Most tokens that a model takes; nothing but its embeddings is loaded."""
    kept = {name: value for name, value in settings.items() if name in ("revision", "cache_folder", "local_files_only")}
    with Embedder(model, method="plain:exit=0", **kept) as embedder:
        return embedder.max_length


def _shown(chosen: Suite, record: Record) -> str:
    column = next(each for each in chosen.columns.values() if record.task in each.tasks)
    return f"{record.score(column.metric) * chosen.scale:.{chosen.digits}f}"


def _record(encoder: Any, named: str, task: AbsTask, result: TaskResult, cost: Cost | None) -> Record:
    entries = [entry for split in result.scores.values() for entry in split]
    numbers = [name for name, value in entries[0].items() if isinstance(value, int | float)]
    # MTEB writes six digits: rounded here too, scores are the same whether they were just made or read.
    means = {name: float(np.mean([round(entry[name], 6) for entry in entries])) for name in numbers}
    meta = encoder.mteb_model_meta
    told = dict(meta.experiment_kwargs or {})
    return Record(
        key=str(told.get("fingerprint", meta.name)),
        task=named,
        model=str(meta.name),
        method=str(told.get("method", "")),
        told={name: str(value) for name, value in told.items()},
        metric=str(task.metadata.main_score),
        scores={name: round(mean, 6) for name, mean in means.items() if np.isfinite(mean)},
        cost=cost,
        version=__version__,
    )


def _keep(path: Path, chosen: Suite, outcome: Outcome, key: str) -> None:
    """Note which records belong to a row, once."""
    row = outcome.row
    told = {"suite": chosen.name, "backbone": row.backbone, "label": row.label}
    line = json.dumps({**told, "model": outcome.model, "stand_in": outcome.stand_in, "key": key}, ensure_ascii=False)
    held = path.read_text(encoding="utf-8") if path.exists() else ""
    if line not in held.splitlines()[-len(chosen.rows) :]:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" * (held[-1:] not in ("", "\n")) + line + "\n")
