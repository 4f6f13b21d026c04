"""Measure every method on the bundled model, TempScale on any encoder, and write all pages of results.

    python benchmarks/results.py --data $EDDY_EVAL_DATA

measures what is not measured yet and writes `results/eddy-tiny.json`, the handbook's page `docs/results.md`, the table
of the README and that of the model card. Results are kept by the model's fingerprint, the method's settings and the
task's data: those that hold are not measured again, those that no longer do are taken out. Interrupted, the same
command goes on. `--minutes 60` begins nothing new after an hour; what is missing then is shown as "not run". Defaults
are chosen by `choose.py`, before, on two of the tasks.

    python benchmarks/results.py --encoder FOLDER --data $EDDY_EVAL_DATA

measures TempScale on the encoder in a folder of yours, at temperatures from 0.6 to 1, keeps that in
`results/tempscale-NAME.json` and shows it on the page. Without data, pages are written from what is kept.

Two processes share the work with `--measure --task squality --journal runs/other.jsonl`: join the journals, which are
lines, before the first command is run again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid import (
    ALSO,
    CHOSEN_FROM,
    DEV,
    LATER,
    METHODS,
    RAW,
    REPORTED,
    RESULTS,
    ROOT,
    TAUS,
    about,
    evaluation,
    exit_of,
    origin,
    parser,
    put,
    sampled,
    say,
    split,
    variants,
)
from pages import card, page, short

from eddy_embed import Embedder, methods
from eddy_embed.analysis.evaluate import tables
from eddy_embed.analysis.evaluate.results import ResultStore
from eddy_embed.analysis.evaluate.runner import Evaluation, applies
from eddy_embed.analysis.evaluate.systems import WORDS, System, beside
from eddy_embed.analysis.evaluate.tasks import Classification, Pairs, Retrieval, Task, find_tasks

if TYPE_CHECKING:
    from eddy_embed.analysis.evaluate.runner import Identities

MODEL = "eddy-tiny"
EXITS = (-1, -2, -4, -7)
POSTS = ("", "+centre", "+whiten")

Row = dict[str, Any]


def main(given: list[str] | None = None) -> None:
    """Measure what is missing, then write."""
    command = parser("Measure what is missing and write the pages of results.", "")
    command.set_defaults(journal=None)
    command.add_argument("--encoder", type=Path, help="folder of an encoder: measure TempScale on it, nothing else")
    command.add_argument("--name", help="of the encoder on the page; default: its folder's")
    command.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after these")
    command.add_argument("--pages", action="store_true", help="write the pages from what is kept, and measure nothing")
    command.add_argument("--results", type=Path, default=RESULTS, help="folder of the files of results")
    command.add_argument("--root", type=Path, default=ROOT, help="folder in which the pages lie")
    options = command.parse_args(given)
    if options.encoder is not None and (options.data is None or options.pages):
        command.error("to measure an encoder, name the folder of the tasks with --data, and leave --pages out")
    if options.data is not None and not options.pages:
        measure_encoder(options) if options.encoder is not None else measure_bundled(options)
    if options.measure:
        return
    (options.root / "docs" / "results.md").write_text(page(options.results), encoding="utf-8")
    put(options.root / "demos" / "tiny_lm" / "README.md", "scores", card(options.results))
    put(options.root / "README.md", "numbers", short(options.results))
    say("written: docs/results.md, demos/tiny_lm/README.md, README.md")


def measure_bundled(options: Any) -> None:
    """Every method on the bundled model, on all tasks that are there."""
    about_choice = json.loads(CHOSEN_FROM.read_text(encoding="utf-8"))
    with Embedder(MODEL, method="plain") as embedder:
        if any(about_choice.get(name) != value for name, value in origin(embedder).items()):
            raise SystemExit(f"{CHOSEN_FROM} belongs to another model: run benchmarks/choose.py first")
        uses = methods.entry_for(embedder.backbone).uses
        defaults = {purpose: uses[purpose].fitted for purpose in DEV}
        chosen = list(dict.fromkeys(defaults.values()))
        exits = tuple(dict.fromkeys([*EXITS, *map(exit_of, chosen)]))
        head = {**about(MODEL, embedder, "python benchmarks/results.py"), "dev": list(DEV.values())}
        texts = variants(embedder, exits, POSTS, (*METHODS, *ALSO))
    head["defaults"] = defaults
    there = {task.name: task for task in find_tasks(options.data)}
    known = [*DEV.values(), *REPORTED]
    for name in sorted(there.keys() ^ set(known)):
        say(f"not measured: {name}, which is {'no task of this page' if name in there else f'not in {options.data}'}")
    tasks = [sampled(there[name]) for name in known if name in there]
    wanted = {task.name: _systems(task, texts, chosen) for task in tasks}
    measuring = evaluation(MODEL, ResultStore(options.journal or ROOT / "runs" / "eddy-tiny.jsonl"))
    complete(options, options.results / "eddy-tiny.json", head, measuring, tasks, wanted)


def measure_encoder(options: Any) -> None:
    """TempScale on an encoder: every temperature on every task, so that none is picked on what is reported."""
    name = options.name or options.encoder.resolve().name
    with Embedder(options.encoder, method="plain") as embedder:
        head = about(name, embedder, f"python benchmarks/results.py --encoder {options.encoder.name}")
    tasks = [sampled(task) for task in find_tasks(options.data, options.task)]
    systems = [System("plain"), *(System(f"plain+tempscale:tau={tau}") for tau in TAUS[:-1])]
    journal = ResultStore(options.journal or ROOT / "runs" / f"tempscale-{name}.jsonl")
    wanted = {task.name: [system for system in systems if applies(system, task)] for task in tasks}
    head["tasks"] = [task.name for task in tasks]
    path = options.results / f"tempscale-{name}.json"
    complete(options, path, head, evaluation(options.encoder, journal), tasks, wanted)


def complete(
    options: Any,
    path: Path,
    head: dict[str, Any],
    measuring: Evaluation,
    tasks: list[Task],
    wanted: dict[str, list[System]],
) -> None:
    """Measure what a file of results lacks, and write the file after each method on each task.

    Args:
        options: Of the command line.
        path: Of the file.
        head: What it says of all its rows.
        measuring: Measures, and holds the journal.
        tasks: In the order of the file.
        wanted: The systems of each task.
    """
    begun = time.monotonic()
    identities: Identities = {}
    for task in tasks:
        identities |= measuring.identities(wanted[task.name], [task])
    rows = valid(path, head, identities, {task.name for task in tasks})

    def save() -> None:
        if not options.measure:
            tables.save(path, head, sorted(rows.values(), key=lambda row: order.get((row["system"], row["task"]), -1)))

    order = {(system.label, task): at for at, (system, task) in enumerate(identities)}
    left = 0
    for task, group in groups(tasks, wanted):
        asked = not options.task or task.name.split(" ")[0] in options.task
        missing = [system for system in group if (system.label, task.name) not in rows]
        missing = [system for system in missing if not options.method or system.text.startswith(tuple(options.method))]
        needed = list(dict.fromkeys(each for one in missing for each in (one.reference("plain"), one)))
        journal = measuring.journal
        if journal is None or not asked or (time.monotonic() - begun) > 60 * options.minutes:
            held = {one for one in needed if journal and journal.find(one, task.name, identities[one, task.name])}
            left += len([one for one in missing if one not in held])
            needed = [one for one in needed if {one, one.reference("plain")} <= held]
        if not needed:
            continue
        found = measuring.run(needed, [task])
        if not options.measure:
            rows |= {(row["system"], row["task"]): row for row in tables.summary(found, "plain")}
            save()
    save()
    say(f"{path.name}: {len(rows)} results, {left} not run")


def valid(path: Path, head: dict[str, Any], identities: Identities, tasks: set[str]) -> dict[tuple[str, str], Row]:
    """Of the results in a file, those that are of this model, and of the settings and data of today."""
    told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if any(told.get(name) != head[name] for name in ("weights", "tokenizer", "passage_size")):
        return {}
    now = {(system.label, task): tables.identity(about) for (system, task), about in identities.items()}
    kept = {(row["system"], row["task"]): row for row in told["outcomes"]}
    return {key: row for key, row in kept.items() if key[1] not in tasks or row.get("identity", "") == now.get(key)}


def groups(tasks: list[Task], wanted: dict[str, list[System]]) -> list[tuple[Task, list[System]]]:
    """What is measured together, one method on one task, in the order of measuring: large things last."""
    found: dict[tuple[str, str], tuple[Task, list[System]]] = {}
    for task in tasks:
        for system in wanted[task.name]:
            family = system.text if system.text in WORDS else system.family
            found.setdefault((task.name, family), (task, []))[1].append(system)
    return sorted(found.values(), key=lambda group: _later(*group))


def _later(task: Task, systems: list[System]) -> bool:
    family = systems[0].text if systems[0].text in WORDS else split(systems[0].text)[0]
    return family.startswith(LATER.get(task.name, ())) and systems[0].text not in (*WORDS, "plain")


def _systems(task: Task, texts: list[str], chosen: list[str]) -> list[System]:
    """All systems of a task, baselines first."""
    texts = [*texts, *(f"{RAW}{post}" for post in POSTS), *chosen]
    if isinstance(task, Classification):
        texts = [text for text in texts if not text.endswith("+centre")]
    if isinstance(task, Pairs):
        texts += [f"plain+tempscale:tau={tau}" for tau in TAUS[:-1]]
    found = beside(texts, "plain", query_mean=isinstance(task, Retrieval))
    return [system for system in found if applies(system, task)]


if __name__ == "__main__":
    main()
