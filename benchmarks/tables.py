"""Measure the bundled model on the reported tasks, once, after its defaults are chosen, and write the tables.

    python benchmarks/tables.py --data $EDDY_EVAL_DATA

writes all scores to `benchmarks/results/eddy-tiny.json`, the table of the model card to `demos/tiny_lm/README.md` and
the short one to `README.md`, between their markers. Interrupted, the same command goes on, and two
can share the work as in `choose.py`: `--measure --task squality --journal runs/other.jsonl`.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from grid import (
    DEFAULTS,
    DEV,
    LEFT,
    PASSAGE_SIZE,
    RAW,
    REPORTED,
    RESULTS,
    ROOT,
    about,
    arguments,
    evaluation,
    origin,
    put,
    say,
    shown,
    variants,
)

from eddy_embed import Embedder, methods
from eddy_embed.evaluate import report
from eddy_embed.evaluate.outcome import Outcome
from eddy_embed.evaluate.systems import BESIDE, System
from eddy_embed.evaluate.tasks import Classification, Retrieval, Task, find_tasks

EXITS = (-1, -2, -4, -7)
POSTS = ("", "+centre", "+whiten")
LABELLED = 2000
"""Texts of `mr` that are used, drawn once: with all of them it alone would take half of the time."""
SHORT = ("sickr_trial", "squality")
PREPENDED = ("tp:exit=-7+whiten", "htp:exit=-7+whiten")
"""Token prepending as it measured best on both development tasks (`results/eddy-tiny-dev.json`)."""


def main() -> None:
    """Measure, write."""
    options = arguments("Measure the bundled model on the reported tasks.", "eddy-tiny.jsonl")
    if not DEFAULTS.exists():
        raise SystemExit(f"no {DEFAULTS}: run benchmarks/choose.py first")
    defaults = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    embedder = Embedder(options.model, method="plain")
    if any(defaults.get(name) != value for name, value in origin(embedder).items()):
        raise SystemExit(f"{DEFAULTS} belongs to another model: run benchmarks/choose.py first")
    chosen = list(dict.fromkeys(defaults[purpose]["method"] for purpose in DEV))
    exits = tuple(dict.fromkeys([*EXITS, *(_exit(text) for text in chosen)]))
    outcomes: list[Outcome] = []
    for task in map(_sampled, find_tasks(options.data, options.task or [*DEV.values(), *REPORTED])):
        posts = ("", "+whiten") if isinstance(task, Classification) else POSTS
        wanted = variants(options, embedder, exits, posts, LEFT.get(task.name, ()))
        systems = shown(options, wanted, posts, chosen, query_mean=isinstance(task, Retrieval))
        outcomes += evaluation(options).run(systems, [task])
        options.fresh = False
    if options.measure:
        return
    order = {name: at for at, name in enumerate([*DEV.values(), *REPORTED])}
    outcomes.sort(key=lambda outcome: order[outcome.task.split(" ")[0]])
    columns = list(dict.fromkeys(outcome.task for outcome in outcomes))
    rows = list(dict.fromkeys([*map(System.named, BESIDE), *(outcome.system for outcome in outcomes)]))
    outcomes.sort(key=lambda outcome: rows.index(outcome.system))
    head = about(options, embedder, "python benchmarks/tables.py")
    head["defaults"] = {purpose: defaults[purpose]["method"] for purpose in DEV}
    RESULTS.mkdir(exist_ok=True)
    report.save(RESULTS / "eddy-tiny.json", head, report.summary(outcomes, "plain"))
    put(ROOT / "demos" / "tiny_lm" / "README.md", "scores", _card(outcomes, chosen, columns))
    put(ROOT / "README.md", "numbers", _short(outcomes, chosen))
    say("written: benchmarks/results/eddy-tiny.json, demos/tiny_lm/README.md, README.md")


def _exit(text: str) -> int:
    readout = methods.parse(text).readout
    return -2 if readout is None or readout.exit is None else readout.exit


def _sampled(task: Task) -> Task:
    if task.name != "mr":
        return task
    kept = np.random.default_rng(0).permutation(len(task.texts))[:LABELLED].tolist()
    texts, labels = [task.texts[at] for at in kept], [task.labels[at] for at in kept]
    return replace(task, name=f"mr ({LABELLED:,} of {len(task.texts):,})", texts=texts, labels=labels)


def _card(outcomes: list[Outcome], chosen: list[str], columns: list[str]) -> str:
    """Raw at the last layer and whitened at the chosen ones; all else is in the JSON."""
    exits = {*EXITS, *(_exit(text) for text in chosen)} - {-2, -4}
    always = _always(chosen)

    def stands(system: System) -> bool:
        if system.text in always:
            return True
        raw = system.text in BESIDE or (system.method.post is None and _exit(system.text) == -1)
        return not system.query_mean and (raw or (system.text.endswith("+whiten") and _exit(system.text) in exits))

    rows = [outcome for outcome in outcomes if stands(outcome.system)]
    return (
        f"Chosen on {' and '.join(DEV.values())}, which are the first two columns: {_named(chosen)}. The other tasks "
        f"were run once after that (`benchmarks/tables.py`; more exits and all metrics in `benchmarks/results/`).\n\n"
        f"{_table(rows, columns)} Empty cells: methods that take many times the tokens, or have prompts made for "
        "sentences, are not run on the largest tasks."
    )


def _always(chosen: list[str]) -> set[str]:
    return {f"{RAW}+whiten", *chosen, *PREPENDED, *(System.named(text).reference("plain").text for text in chosen)}


def _short(outcomes: list[Outcome], chosen: list[str]) -> str:
    first = {*BESIDE, *_always(chosen)}
    rows = [outcome for outcome in outcomes if outcome.task in SHORT and outcome.system.text in first]
    return (
        f"With `eddy-tiny`, the bundled model of 11 M parameters. Its defaults were chosen on other tasks: "
        f"{_named(chosen)}; `exit=-7` and `-8` are layers 2 and 1 of 8, `exit=0` the raw token embeddings.\n\n"
        f"{_table(rows, list(SHORT))}\n\n"
        "A model this small is there for the first run and for tests. `python benchmarks/tables.py` makes this table "
        "and the one of [its card](demos/tiny_lm/README.md#model-card), which has more tasks, methods and losses; "
        "`eddy evaluate` makes such tables for any model from a folder of data ([layout](docs/command-line.md))."
    )


def _table(rows: list[Outcome], columns: list[str]) -> str:
    """Without seconds: the journals may come from processes that ran beside each other."""
    legend = report.legend(rows, "plain", PASSAGE_SIZE, times=False)
    return f"{report.table(rows, 'plain', columns, times=False)}\n\n{legend}"


def _named(chosen: list[str]) -> str:
    return " and ".join(f"`{text}`" for text in chosen)


if __name__ == "__main__":
    main()
