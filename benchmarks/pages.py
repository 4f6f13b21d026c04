"""Make the pages of results from `benchmarks/results/` alone: the handbook's, the model card's, the README's."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from grid import ALSO, DEV, METHODS, ONE_EXIT, RAW, TAUS, exit_of, split

from eddy_embed import methods
from eddy_embed.analysis.evaluate.systems import BESIDE, WORDS, System

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    "Retrieval": ("ndcg@10", ("cranfield", "cisi", "squality")),
    "Similarity": ("spearman", ("stsb_dev", "sts12", "sts13", "sickr_trial", "stsb_zh_dev")),
    "Classification": ("accuracy", ("trec", "mr")),
    "Words": ("accuracy", ("SLPWC_v1",)),
}
"""Main metric and tasks, as they stand on the page."""
ENGLISH = ("stsb_dev", "sts12", "sts13", "sickr_trial", "cranfield", "cisi", "squality", "trec", "mr")
SHORT = ("sickr_trial", "squality")
PREPENDED = ("tp:exit=-7+whiten", "htp:exit=-7+whiten")
"""Token prepending as it measured best on both development tasks (`results/eddy-tiny-dev.json`)."""
SIGNS = (
    "± is half of the 95 % bootstrap interval. `+` and `-` mark a difference to `plain` (last layer) with the same "
    "post-processing whose paired 95 % interval excludes zero; `=` marks a tie. Retrieval embeds passages of whole "
    "sentences, at most {size} tokens; a document's score is the largest cosine of its passages with the query. "
    "Post-processing is fitted on the task's own texts, for retrieval on its "
    "sentences, without labels or gold. Work is positions × layers, relative to `plain` on the same tasks."
)
CENTRED = "Query mean: each half of the queries is centred by the mean of the other half."

Row = dict[str, Any]
Held = dict[tuple[str, str], Row]


def page(folder: Path) -> str:
    """The handbook's page."""
    told, held = _read(folder)
    versions = sorted({row["version"] for row in held.values()})
    parts = [
        "# Results",
        _wrapped(
            f"Every method on `{told['model']}`, the bundled model of 11 M parameters and 8 layers, weights "
            f"`{told['weights'][:12]}`. The model is small: orders and costs say more than levels. Measured in "
            f"{told['dtype']} with version {' and '.join(versions)}."
        ),
        _wrapped(
            f"`{told['command']}` makes this page, the README's table and that of the "
            "[model card](../demos/tiny_lm/README.md#model-card)."
        ),
        "Each method has these rows:",
        "\n".join(
            [
                "- its default exit, raw and whitened;",
                "- the last layer, raw and whitened, where that is not the default;",
                "- whitened, the one of the exits 1, 2, 4, 7 and 8 layers from the end that scored best on a",
                f"  development task: `{DEV['retrieval']}` for retrieval, `{DEV['similarity']}` for the rest.",
            ]
        ),
        _wrapped(
            'Development tasks are in *italics*. Choices were made on them, and on no other task. "not run": not '
            "measured yet, mostly prompts made for sentences on long texts; the command resumes with them. –: the "
            "method has no such vectors."
        ),
        _signs(told),
    ]
    for title, (metric, tasks) in KINDS.items():
        parts += [f"## {title}, {metric}", *_notes(title), _kind(held, title, tasks)]
    parts += ["## Wins, ties and losses", _balance(held), "## Costs", _costs(held), "## TempScale", _tempscale(folder)]
    return "\n\n".join(parts) + "\n"


def card(folder: Path) -> str:
    """The table of the model card: the chosen methods, baselines, all English tasks."""
    told, held = _read(folder)
    about = (
        f"The methods were chosen on {' and '.join(DEV.values())}, in italics: {_named(told)}. The other tasks were "
        "run after that. [Results](../../docs/results.md) has all methods, costs and losses; `benchmarks/results/` has "
        "more exits and all metrics."
    )
    table = _table(held, _always(told), _columns(held, ENGLISH), metrics=True)
    return "\n\n".join([_wrapped(about), table, _wrapped(f"{_signs(told)} {CENTRED}")])


def short(folder: Path) -> str:
    """The table of the README."""
    told, held = _read(folder)
    before = (
        f"Scores of `{told['model']}`, the bundled model of 11 M parameters. Its defaults were chosen on other tasks: "
        f"{_named(told)}. `exit=-7` and `-8` are layers 2 and 1 of 8; `exit=0` is the raw token embeddings."
    )
    behind = (
        f"A model this small is for a first run and for tests. `{told['command']}` makes this table and "
        "[Results](docs/results.md), which has every method, more tasks, costs and losses. `eddy evaluate` makes such "
        "tables for any model from [a folder of data](docs/command-line.md#eddy-evaluate)."
    )
    table = _table(held, _always(told), _columns(held, SHORT), metrics=True)
    return "\n\n".join([_wrapped(before), table, _wrapped(f"{_signs(told)} {CENTRED}"), _wrapped(behind)])


def families() -> dict[str, str]:
    """Every method that is measured, without its exit, and with a place for it."""
    return {split(str(methods.parse(text.format(-1))))[0]: text for text in (*METHODS, *ALSO)}


def shown(held: Held, title: str) -> list[str]:
    """The systems of a table, in the order of their rows."""
    found = [text for text in (*BESIDE, f"{RAW}+whiten") if text not in WORDS or any(key[0] == text for key in held)]
    metric, tasks = KINDS["Retrieval" if title == "Retrieval" else "Similarity"]
    dev = next(task for task in tasks if task in DEV.values())
    for family, pattern in families().items():
        default = -1 if pattern.startswith(ONE_EXIT) else exit_of(family)
        texts = [_at(pattern, exit_layer) + post for exit_layer in (default, -1) for post in ("", "+whiten")]
        tried = {
            system: row["scores"][metric][0]
            for (system, task), row in held.items()
            if task == dev and "(" not in system and system not in WORDS
            if split(system)[0] == family and split(system)[2] == "whiten"
        }
        found += [*texts, *([max(tried, key=lambda text: tried[text])] if tried else [])]
    return list(dict.fromkeys(found))


def _at(pattern: str, exit_layer: int) -> str:
    return str(methods.parse(pattern.format(exit_layer)))


def _read(folder: Path) -> tuple[dict[str, Any], Held]:
    told = json.loads((folder / "eddy-tiny.json").read_text(encoding="utf-8"))
    return told, {(row["system"], row["task"]): row for row in told["outcomes"]}


def _columns(held: Held, tasks: tuple[str, ...]) -> list[str]:
    """Tasks as they are named in the rows, which tell of samples; those without any as they are named here."""
    there = dict.fromkeys(task for _, task in held)
    return [next((name for name in there if name.split(" ")[0] == task), task) for task in tasks]


def _signs(told: dict[str, Any]) -> str:
    return _wrapped(SIGNS.format(size=told["passage_size"]))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _named(told: dict[str, Any]) -> str:
    return " and ".join(dict.fromkeys(f"`{text}`" for text in told["defaults"].values()))


def _always(told: dict[str, Any]) -> list[str]:
    chosen = list(dict.fromkeys(told["defaults"].values()))
    raw = [*BESIDE, "plain+whiten", f"{RAW}+whiten", *PREPENDED, *chosen]
    raw += [System.named(text).reference("plain").text for text in chosen]
    return [*dict.fromkeys(raw), *(f"{text} (query mean)" for text in dict.fromkeys(raw) if text.endswith("+whiten"))]


def _notes(title: str) -> list[str]:
    found = {
        "Similarity": ["`stsb_zh_dev` is in Chinese, which the model was not trained on."],
        "Words": [
            "In which of four sentences does a word have another sense? Chance is 0.25. The sentences are in Chinese, "
            "which the model was not trained on."
        ],
    }
    return [_wrapped(text) for text in found.get(title, [])]


def _kind(held: Held, title: str, tasks: tuple[str, ...]) -> str:
    kinds = {"bm25": "Retrieval", "overlap": "Similarity"}
    systems = [text for text in shown(held, title) if kinds.get(text, title) == title]
    return _table(held, systems, _columns(held, tasks))


def _table(held: Held, systems: list[str], columns: list[str], *, metrics: bool = False) -> str:
    heads = [f"*{task}*" if task in DEV.values() else task for task in columns]
    if metrics:
        named = {task: metric for metric, tasks in KINDS.values() for task in _columns(held, tasks)}
        heads = [f"{head}, {named[task]}" for head, task in zip(heads, columns, strict=True)]
    lines = [
        f"| method | {' | '.join(heads)} | work |",
        f"|---|{'---|' * (len(columns) + 1)}",
    ]
    for system in systems:
        cells = [_cell(held, system, task) for task in columns]
        lines.append(f"| `{system}` | {' | '.join(cells)} | {_work(held, system, columns)} |")
    return "\n".join(lines)


def _cell(held: Held, system: str, task: str) -> str:
    row = held.get((system, task))
    if row is None:
        return "not run" if _has(system, task.split(" ")[0]) else "–"
    value, low, high = next(iter(row["scores"].values()))
    sign = _sign(row)
    return f"{value:.3f} ± {(high - low) / 2:.3f}{sign and f' {sign}'}"


def _has(system: str, task: str) -> bool:
    """Whether a system can be run on a task at all, as `Evaluation` decides it."""
    kind = next((title for title, (_, tasks) in KINDS.items() if task in tasks), "")
    if system in WORDS:
        return kind == {"bm25": "Retrieval", "overlap": "Similarity"}[system]
    if kind == "Words" and not methods.parse(system.split(" (")[0]).reads_words:
        return False
    return kind == "Retrieval" or "(" not in system


def _sign(row: Row) -> str:
    if "difference" not in row:
        return ""
    value, low, high = row["difference"]
    return "=" if low <= 0 <= high else "+" if value > 0 else "-"


def _work(held: Held, system: str, columns: list[str]) -> str:
    pairs = [(held.get((system, task)), held.get(("plain", task))) for task in columns]
    both = [(one["cost"], other["cost"]) for one, other in pairs if one and other and "cost" in one]
    total = [sum(cost["positions"] * cost["layers"] for cost in side) for side in zip(*both, strict=True)]
    return f"{total[0] / total[1]:.2f}×" if total else ""


def _balance(held: Held) -> str:
    reported = [task for _, tasks in KINDS.values() for task in _columns(held, tasks) if task not in DEV.values()]
    lines = [
        "At the last layer, against `plain` with the same post-processing, on the tasks on which nothing was chosen:",
        "",
        "| method | won | tied | lost | not run | whitened: won | tied | lost | not run |",
        f"|---|{'---|' * 8}",
    ]
    for family, pattern in families().items():
        if family == "plain":
            continue
        counts = []
        for text in (_at(pattern, -1), _at(pattern, -1) + "+whiten"):
            there = [held.get((text, task)) for task in reported if _has(text, task.split(" ")[0])]
            signs = Counter(_sign(row) if row else "not run" for row in there)
            counts += [str(signs[sign]) for sign in ("+", "=", "-", "not run")]
        lines.append(f"| `{family}` | {' | '.join(counts)} |")
    return "\n".join(lines)


def _costs(held: Held) -> str:
    tasks = {"sentences": KINDS["Similarity"][1][:4], "passages": ("cranfield",)}
    lines = [
        _wrapped(
            "Positions run per token of text at the last layer, with prompts, placeholders and copies. Sentences are "
            "the English similarity tasks, passages are those of cranfield. [Performance](performance.md) has the "
            "time, measured with nothing else running."
        ),
        "",
        f"| method | {' | '.join(tasks)} |",
        f"|---|{'---|' * len(tasks)}",
    ]
    for family, pattern in families().items():
        cells = []
        for names in tasks.values():
            own = [held[text, task]["cost"] for task in names if ((text := _at(pattern, -1)), task) in held]
            tokens = sum(cost["tokens"] for cost in own)
            cells.append(f"{sum(cost['positions'] for cost in own) / tokens:.2f}" if tokens else "not run")
        lines.append(f"| `{family}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _tempscale(folder: Path) -> str:
    _, held = _read(folder)
    parts = [
        _wrapped(
            "The paper is about encoders trained for embedding, and Eddy brings none. `python benchmarks/results.py "
            "--encoder FOLDER --data $EDDY_EVAL_DATA` measures the temperatures from 0.6 to 1 on all tasks with your "
            "encoder and adds a table here. No temperature is picked. 1 is the unchanged model, and the signs compare "
            "with it. The bundled decoder is below too, though the paper says nothing of such models."
        ),
    ]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("tempscale-*.json"))]
    for told in found:
        parts += [
            f"### {told['model']}",
            f"Made by `{told['command']}`, weights `{told['weights'][:12]}`, {told['dtype']}.",
            _taus({(row["system"], row["task"]): row for row in told["outcomes"]}, told["tasks"]),
        ]
    own = _columns(held, KINDS["Similarity"][1])
    return "\n\n".join([*parts, "### eddy-tiny", _taus(held, own)])


def _taus(held: Held, tasks: list[str]) -> str:
    metrics = {task: next(iter(row["scores"])) for (_, task), row in held.items()}
    lines = [f"| task | {' | '.join(TAUS)} |", f"|---|{'---|' * len(TAUS)}"]
    systems = ["plain" if float(tau) == 1 else f"plain+tempscale:tau={tau}" for tau in TAUS]
    for task in tasks:
        cells = [_cell(held, system, task) for system in systems]
        lines.append(f"| {task}{f', {metrics[task]}' if task in metrics else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)
