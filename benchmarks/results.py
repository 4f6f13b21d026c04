"""Measure the methods on a model, and write the tables of results of all models measured so far.

    python benchmarks/results.py --model smollm2 --data $EDDY_EVAL_DATA

measures what is missing and writes `results/smollm2.json` and the tables of `results/README.md` and `docs/results.md`.
Every outcome is kept in `runs/smollm2.jsonl` as soon as it is there, by the model's fingerprint, the method's settings
and the task's data; interrupted, the same command goes on. `--task` and `--method` (how its text begins) do a part of
the work; rows that `results/smollm2.json` has besides stay, where model, settings and data are still the same. `--name`
names a model that is a file or a folder. Without `--model`, the page is written from `results/` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.results import WORDS, ResultStore, System, TaskResult
from evaluation.runner import Evaluation, applies, runnable
from evaluation.tasks import Pairs, Retrieval, Task, find_tasks
from output import RESULTS, ROOT, put, say

from eddy_embed import Embedder, __version__
from eddy_embed.encoding.validation import PASSAGE_SIZE
from evaluation import tables

MODELS = {
    "smollm2": "SmolLM2 135M Instruct, 30 layers",
    "gemma-3-270m": "Gemma 3 270M, 18 layers",
    "eddy-tiny": "the bundled model, 11 M parameters, 8 layers",
}
"""Language models of the page, in its order; encoders follow."""
BUNDLED = "eddy-tiny"
"""Whose scores stand in its file alone: it is for trials."""
DEV = ("stsb_dev", "cranfield")
"""The tasks on which `recommended` and defaults are chosen, and nothing else is."""
KINDS = {
    "Similarity": ("spearman", ("stsb_dev", "sts12", "sts12_518", "sts13", "sickr_trial")),
    "Retrieval": ("ndcg@10", ("cranfield", "cisi", "squality", "cisi_400", "squality_20")),
    "Classification": ("accuracy", ("trec",)),
}
"""Main metric and tasks of each table."""
PARTS = {
    "sts12_518": ("sts12", slice(None, None, 6)),
    "cisi_400": ("cisi", slice(400)),
    "squality_20": ("squality", slice(20)),
}
"""Parts of large tasks, for methods that run many layers: of which one, and which of its pairs or documents."""
FEW_LAYERS = 2
"""Methods that run at most so many are measured on the whole tasks too; others only if `--task` names one."""
MEANS = (
    *("plain:exit=0", "plain:exit=0+sif", "plain:exit=0+filter", "plain:exit=0+sif+filter"),
    *(
        "plain:exit=1",
        "plain:exit=1+sif",
        "plain:exit=2+sif",
        "plain:exit=-2",
        "plain",
        "plain:pool=last",
        "plain:exit=-2+start:token=none",
    ),
)
PAPERS = (
    *(
        "prompteol:exit=-2",
        "cot:exit=-2",
        "cot",
        "knowledge:exit=-2",
        "metaeol:exit=-2",
        "echo:exit=-2",
        "echo:exit=1",
    ),
    *("tp", "tp:prompt=cot,exit=-1", "htp", "htp+start:token=none", "kv"),
    *("plain+tempscale:tau=0.8", "reba:pool=mean"),
)
POSTS = ("", "+whiten", "+whiten:power=0.5")
SYSTEMS = tuple(f"{text}{post}" for text in (*MEANS, *PAPERS) for post in POSTS)
"""Methods of a language model, each without and with post-processing."""
ENCODER = ("plain", *(f"plain+tempscale:tau={tau}" for tau in ("0.6", "0.7", "0.8", "0.9")))
"""Methods of a trained encoder: as it was trained, and under TempScale's temperatures."""
SHOWN = (
    *("bm25", "overlap", "plain", "plain:exit=-2", "plain:pool=last", "plain:exit=0", "plain:exit=0+sif"),
    *("plain:exit=0+sif+filter", "plain:exit=0+sif+filter+whiten:power=0.5", "plain:exit=0+sif+whiten"),
    *("plain:exit=1", "plain:exit=1+sif+whiten", "prompteol:exit=-2", "prompteol:exit=-2+whiten:power=0.5"),
    *("cot:exit=-2", "knowledge:exit=-2", "metaeol:exit=-2", "echo:exit=-2", "echo:exit=-2+whiten:power=0.5"),
    *("echo:exit=1", "echo:exit=1+whiten", "tp", "htp", "kv", "plain+tempscale:tau=0.8", "reba:pool=mean"),
)
"""Rows of the page; the files of results have all."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """What a paper says: one method is better than another, on tasks of a kind."""

    said: str
    better: str
    worse: str
    kind: str


CLAIMS = (
    Claim("PromptEOL is above the mean (Jiang et al. 2023)", "prompteol:exit=-2", "plain", "Similarity"),
    Claim("Pretended CoT is above PromptEOL (Zhang et al. 2024)", "cot:exit=-2", "prompteol:exit=-2", "Similarity"),
    Claim("Knowledge is above PromptEOL (Zhang et al. 2024)", "knowledge:exit=-2", "prompteol:exit=-2", "Similarity"),
    Claim("MetaEOL is above PromptEOL (Lei et al. 2024)", "metaeol:exit=-2", "prompteol:exit=-2", "Similarity"),
    Claim("Echo is above the mean (Springer et al. 2024)", "echo:exit=-2", "plain:exit=-2", "Similarity"),
    Claim("Echo is above the mean (Springer et al. 2024)", "echo:exit=-2", "plain:exit=-2", "Retrieval"),
    Claim("TP lifts Pretended CoT (Fu et al. 2024)", "tp:prompt=cot,exit=-1", "cot", "Similarity"),
    Claim("TP is above the mean (Fu et al. 2024)", "tp", "plain:exit=-2", "Similarity"),
    Claim("HTP is above the mean (Ding et al. 2025)", "htp", "plain:exit=-2", "Retrieval"),
    Claim("HTP is above TP (Ding et al. 2025)", "htp", "tp", "Retrieval"),
    Claim("HTP is above PromptEOL (Ding et al. 2025)", "htp", "prompteol:exit=-2", "Retrieval"),
    Claim("KV-Embedding is above the mean (Tang and Yang)", "kv", "plain", "Similarity"),
    Claim("KV-Embedding is above the mean (Tang and Yang)", "kv", "plain", "Retrieval"),
    Claim("ReBA is above the mean (ReBA)", "reba:pool=mean", "plain", "Similarity"),
    Claim("ReBA is above the mean (ReBA)", "reba:pool=mean", "plain", "Retrieval"),
    Claim("TempScale is above the mean (Zhou et al. 2025)", "plain+tempscale:tau=0.8", "plain", "Similarity"),
    Claim("TempScale is above the mean (Zhou et al. 2025)", "plain+tempscale:tau=0.8", "plain", "Retrieval"),
    Claim("A start token helps where there was none", "htp", "htp+start:token=none", "Similarity"),
)
KV_LAYERS = {"smollm2": "29-30", "gemma-3-270m": "14-18"}
"""For models for which no layers are published: what was measured on the bundled model's held-out text."""


def main(given: list[str] | None = None) -> None:
    """Measure what is missing, then write."""
    command = argparse.ArgumentParser(description="Measure the methods on a model and write the pages of results.")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--model", help="measure on this model; without it, only pages are written")
    command.add_argument("--name", help="of the model on the page; default: as --model names it")
    command.add_argument("--method", action="append", help="only methods that begin so; may be repeated")
    command.add_argument("--task", action="append", help="only these tasks; may be repeated")
    command.add_argument("--journal", type=Path, help="outcomes, added as they come; default: runs/NAME.jsonl")
    command.add_argument("--results", type=Path, default=RESULTS, help="folder of the files of results")
    command.add_argument("--root", type=Path, default=ROOT, help="folder in which the pages lie")
    options = command.parse_args(given)
    if options.model is not None:
        if options.data is None:
            command.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
        measure(options)
    put(options.root / "benchmarks" / "results" / "README.md", "results", page(options.results))
    put(options.root / "docs" / "results.md", "claims", claimed(options.results))
    say("written: benchmarks/results/README.md, docs/results.md")


def measure(options: Any) -> None:
    """Run what is asked for and not known yet; write the summary of all that is known."""
    name = options.name or options.model
    journal = ResultStore(options.journal or ROOT / "runs" / f"{name}.jsonl")
    measuring = Evaluation(lambda method: Embedder(options.model, method=method), PASSAGE_SIZE, journal, say)
    with Embedder(options.model, method="plain") as embedder:
        encoder = embedder.backbone.pooling is not None
        own = ENCODER if encoder else [own_text(text, name) for text in SYSTEMS]
        texts, reasons = runnable(own, embedder.backbone)
        settings = embedder.settings
        head = {
            "model": name,
            "encoder": encoder,
            "version": __version__,
            **{part: settings[part] for part in ("weights", "tokenizer")},
            "passage_size": PASSAGE_SIZE,
            "command": f"python benchmarks/results.py --model {name}",
        }
    for text, reason in reasons.items():
        say(f"left out: {text}: {reason}")
    known = [task for _, tasks in KINDS.values() for task in tasks]
    tasks = [task for task in with_parts(find_tasks(options.data)) if task.name in known]
    wanted = {task.name: systems(texts, task, encoder) for task in tasks if not (encoder and task.name == "trec")}
    tasks = [task for task in tasks if task.name in wanted]
    for task in tasks:
        chosen = [each for each in wanted[task.name] if _begins(each.text, options.method)]
        if not options.task and not encoder and task.name in {whole for whole, _ in PARTS.values()}:
            chosen = [each for each in chosen if _runs_few_layers(each)]
        if chosen and (not options.task or task.name in options.task):
            measuring.run(chosen, [task])
    identities = {
        key: about for task in tasks for key, about in measuring.identities(wanted[task.name], [task]).items()
    }
    found = (journal.find(system, task, about) for (system, task), about in identities.items())
    outcomes = [outcome for outcome in found if outcome is not None]
    today = {(system.text, task): about for (system, task), about in identities.items()}
    path = options.results / f"{name}.json"
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"outcomes": [], "claims": []}
    rows = with_earlier(earlier["outcomes"], today, tables.summary(outcomes, "plain"))
    unchanged = [row for row in rows if row in earlier["outcomes"]]
    claimed = [*claims(outcomes, name), *true_of(earlier["claims"], unchanged, name)]
    tables.save(path, {**head, "claims": true_of(claimed, rows, name)}, rows)


def with_parts(tasks: list[Task]) -> list[Task]:
    """Tasks, and those parts of them that `PARTS` names; queries need a relevant document among those of the part."""
    whole = {task.name: task for task in tasks}
    parts: list[Task] = []
    for name, (source, some) in PARTS.items():
        task = whole.get(source)
        if isinstance(task, Pairs):
            parts.append(Pairs(name, task.first[some], task.second[some], task.gold[some]))
        elif isinstance(task, Retrieval):
            ids = task.ids[some]
            grades = [{key: grade for key, grade in each.items() if key in ids} for each in task.grades]
            queries = [query for query, left in zip(task.queries, grades, strict=True) if left]
            parts.append(Retrieval(name, ids, task.texts[some], queries, [left for left in grades if left], 0))
    return [*tasks, *parts]


def with_earlier(earlier: list[Row], today: dict[tuple[str, str], dict[str, Any]], rows: list[Row]) -> list[Row]:
    """Rows of earlier runs that still hold, and those of this run that they lack.

    `today` says by system and task, in the order of the page, what an outcome would follow from now. An earlier row
    holds if that is the same but for the type of number and the device; its rounding is then all that could differ.
    """
    held = {}
    for row in earlier:
        key, own = (row["system"], row["task"]), {name: row[name] for name in ("dtype", "device") if name in row}
        if key in today and tables.identity({**today[key], **own}) == row["identity"]:
            held[key] = row
    for row in rows:
        key = (row["system"], row["task"])
        if key not in held or (held[key]["identity"] == row["identity"] and "difference" not in held[key]):
            held[key] = row
    return [held[key] for key in today if key in held]


def true_of(claimed: list[Row], rows: list[Row], model: str) -> list[Row]:
    """Those claims, in their order on the page, both of whose methods are in the rows; of two of a kind the later."""
    there = {(row["system"], row["task"]) for row in rows}
    pairs = {(claim.said, claim.kind): (claim.better, claim.worse) for claim in CLAIMS}
    kept = {
        (row["said"], row["kind"], row["task"]): row
        for row in claimed
        if all((own_text(text, model), row["task"]) in there for text in pairs.get((row["said"], row["kind"]), [""]))
    }
    order = [(claim.said, claim.kind, task) for claim in CLAIMS for task in KINDS[claim.kind][1]]
    return [kept[key] for key in order if key in kept]


def systems(texts: list[str], task: Task, encoder: bool) -> list[System]:
    """Everything that is measured on a task; TempScale on an encoder is measured on pairs of sentences."""
    if encoder and isinstance(task, Retrieval):
        texts = ["plain"]
    every = [*map(System, WORDS), *map(System.named, texts)]
    return [system for system in dict.fromkeys(every) if applies(system, task)]


def own_text(text: str, model: str) -> str:
    """A method of the list as it is on a model: `kv` with the layers found for it."""
    return text.replace("kv", f"kv:layers={KV_LAYERS[model]}", 1) if text[:2] == "kv" and model in KV_LAYERS else text


def claims(outcomes: list[TaskResult], model: str) -> list[Row]:
    """The difference that each claim is about, with its paired interval, on every task where both were measured."""
    held = {(outcome.system.text, outcome.task): outcome for outcome in outcomes}
    rows = []
    for claim in CLAIMS:
        for task in KINDS[claim.kind][1]:
            better, worse = (held.get((own_text(text, model), task)) for text in (claim.better, claim.worse))
            if better is not None and worse is not None:
                difference = better.difference(worse).rounded
                rows.append({"said": claim.said, "kind": claim.kind, "task": task, "difference": difference})
    return rows


def page(folder: Path) -> str:
    """A table for each model."""
    parts = []
    for told in (each for each in _read(folder) if each["model"] != BUNDLED):
        own = SHOWN if not told["encoder"] else ("bm25", "overlap", *ENCODER)
        parts += [
            f"### {told['model']}",
            _wrapped(_about(told)),
            _table(told, [own_text(text, told["model"]) for text in own]),
        ]
    return "\n\n".join(parts)


def _runs_few_layers(system: System) -> bool:
    if system.text in WORDS:
        return True
    readout = system.method.readout
    return readout is not None and readout.exit in range(FEW_LAYERS + 1)


def _begins(text: str, starts: list[str] | None) -> bool:
    return not starts or text.startswith(tuple(starts))


def _read(folder: Path) -> list[dict[str, Any]]:
    """The files of results, language models in the order of `MODELS`, then encoders."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    files = [told for told in files if "claims" in told]
    order = {name: at for at, name in enumerate(MODELS)}
    return sorted(files, key=lambda told: (told["encoder"], order.get(told["model"], len(order)), told["model"]))


def _about(told: dict[str, Any]) -> str:
    kind = MODELS.get(told["model"], "an encoder trained for embedding" if told["encoder"] else "a language model")
    counts = Counter(row["dtype"] for row in told["outcomes"] if "dtype" in row).most_common()
    types = "".join(f", {count} scores in {dtype}" if at else f", {dtype}" for at, (dtype, count) in enumerate(counts))
    return (
        f"`{told['model']}`: {kind}. Weights `{told['weights'][:12]}`{types}, version {told['version']}; "
        f"`{told['command']}`."
    )


def _table(told: dict[str, Any], order: list[str]) -> str:
    """A row for each system, a column for each task on which one of them was measured."""
    held = {(row["system"], row["task"]): row for row in told["outcomes"]}
    tasks = [task for _, names in KINDS.values() for task in names if any((system, task) in held for system in order)]
    heads = [f"*{task}*" if task in DEV else task for task in tasks]
    lines = [f"| method | {' | '.join(heads)} | work |", f"|---|{'---|' * (len(tasks) + 1)}"]
    for system in order:
        rows = [held.get((system, task)) for task in tasks]
        if any(rows):
            lines.append(f"| `{system}` | {' | '.join(map(_cell, rows))} | {_work(held, system, tasks)} |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    value, low, high = next(iter(row["scores"].values()))
    return f"{value:.3f} ± {(high - low) / 2:.3f} {_sign(row.get('difference'))}".rstrip()


def _sign(difference: list[float] | None) -> str:
    if difference is None:
        return ""
    value, low, high = difference
    return "=" if low <= 0 <= high else "+" if value > 0 else "-"


def _work(held: dict[tuple[str, str], Row], system: str, tasks: list[str]) -> str:
    pairs = [(held.get((system, task)), held.get(("plain", task))) for task in tasks]
    both = [(one["cost"], other["cost"]) for one, other in pairs if one and other and "cost" in one]
    total = [sum(cost["positions"] * cost["layers"] for cost in side) for side in zip(*both, strict=True)]
    return f"{total[0] / total[1]:.2f}×" if total else ""


def claimed(folder: Path) -> str:
    """The papers' claims on each real model: on how many tasks they hold, tie and fail."""
    named = [told for told in _read(folder) if not told["encoder"] and told["model"] != BUNDLED]
    lines = [f"| claim | tasks | {' | '.join(told['model'] for told in named)} |", f"|---|---|{'---|' * len(named)}"]
    words = {"+": "holds", "=": "tie", "-": "fails"}
    for claim in CLAIMS:
        cells = []
        for told in named:
            rows = [row for row in told["claims"] if (row["said"], row["kind"]) == (claim.said, claim.kind)]
            signs = Counter(_sign(row["difference"]) for row in rows)
            cells.append(", ".join(f"{word} {signs[sign]}" for sign, word in words.items() if signs[sign]))
        lines.append(f"| {claim.said} | {claim.kind.lower()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
