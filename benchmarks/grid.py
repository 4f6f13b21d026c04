"""What the benchmarks of the bundled model run: methods, exit layers, post-processing, tasks."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from eddy_embed import Embedder, __version__, methods
from eddy_embed.analysis.evaluate.grid import runnable
from eddy_embed.analysis.evaluate.results import ResultStore
from eddy_embed.analysis.evaluate.runner import Evaluation
from eddy_embed.analysis.evaluate.tasks import Classification, Task
from eddy_embed.methods.method import Term, parse_terms, print_terms

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CHOSEN_FROM = RESULTS / "eddy-tiny-dev.json"
"""Everything that the bundled model's recommended methods were chosen from, with digests of its weights."""

METHODS = (
    "plain:exit={}",
    "plain:pool=last,exit={}",
    "plain:pool=weighted,exit={}",
    "plain:exit={}+tempscale:tau=0.8",
    "plain:exit={}+last2avg",
    "tp:exit={}",
    "htp:exit={}",
    "kv:exit={}",
    "prompteol:exit={}",
    "tp:prompt=prompteol,exit={}",
    "cot:exit={}",
    "knowledge:exit={}",
    "echo:exit={}",
    "reba:pool=mean,exit={}",
    "metaeol:exit={}",
)
"""Every method that defaults are chosen from; those that take longest come last."""
ALSO = ("plain:exit={}+reroute", "plain:exit={}+tempscale:rule=log", "reba:exit={}")
"""Shown beside them in the results, at the exits that they have."""
TAUS = ("0.6", "0.7", "0.8", "0.9", "1.0")
"""Temperatures of TempScale; 1 is the model as it is."""
RAW = "plain:exit=0"
"""The mean of raw token embeddings, a baseline."""
LATER = {
    "squality": (
        "prompteol",
        "cot",
        "knowledge",
        "metaeol",
        "tp:prompt",
        "reba",
        "echo",
        "plain:pool=weighted",
        "plain+",
    ),
    "cranfield": ("metaeol", "tp:prompt"),
    "cisi": ("cot", "knowledge", "metaeol", "tp:prompt"),
    "trec": ("metaeol",),
    "stsb_zh_dev": ("",),
}
"""Methods that are run after all else on some tasks: prompts made for sentences on long texts, twice the tokens or
more, and everything on texts in a language that the model does not know."""
ONE_EXIT = ("reba",)
"""Methods that take a pass for every exit: run at the last layer only."""
DEV = {"similarity": "stsb_dev", "retrieval": "cranfield"}
"""The tasks on which defaults are chosen, and nothing else is."""
REPORTED = ("sts12", "sts13", "sickr_trial", "cisi", "squality", "trec", "mr", "stsb_zh_dev", "SLPWC_v1")
PASSAGE_SIZE = 256
"""Most tokens in a passage."""
DTYPE = "float32"
"""Named, since what a model is loaded in by default depends on the model and the machine."""
LABELLED = 2000
"""Texts of `mr` that are used, drawn once: with all of them it alone would take half of the time."""
FITTED = ("centre", "abtt", "whiten")


def variants(
    embedder: Embedder, exits: tuple[int, ...], posts: tuple[str, ...], patterns: tuple[str, ...] = METHODS
) -> list[str]:
    """Every method at every exit that it can have on this model, with every post-processing.

    Args:
        embedder: Of the model, for its layers.
        exits: Exit layers.
        posts: Such as "+whiten"; "" for none.
        patterns: Methods with a place for the exit.
    """
    wanted: dict[str, None] = {}
    for method in patterns:
        for exit_layer in exits:
            if not (method.startswith(ONE_EXIT) and exit_layer != -1):
                wanted[str(methods.parse(method.format(exit_layer)))] = None
    there, reasons = runnable(wanted, embedder.backbone)
    for reason in reasons.values():
        say(f"left out: {reason}")
    return [f"{text}{post}" for text in there for post in posts]


def sampled(task: Task) -> Task:
    """A task as it is run: all of it, or a sample that its name tells of."""
    if task.name != "mr" or not isinstance(task, Classification) or len(task.texts) <= LABELLED:
        return task
    kept = np.random.default_rng(0).permutation(len(task.texts))[:LABELLED].tolist()
    texts, labels = [task.texts[at] for at in kept], [task.labels[at] for at in kept]
    return replace(task, name=f"mr ({LABELLED:,} of {len(task.texts):,})", texts=texts, labels=labels)


def exit_of(text: str) -> int:
    """The exit that a method's text names, counted from the last layer; on the bundled model it is -2 by default."""
    readout = methods.parse(text).readout
    return -2 if readout is None or readout.exit is None else readout.exit


def split(text: str) -> tuple[str, int, str]:
    """A method's family, the exit that it reads, and its post-processing."""
    terms = parse_terms(text)
    family = [Term(t.name, tuple(p for p in t.parameters if p[0] != "exit")) for t in terms if t.name not in FITTED]
    return print_terms(tuple(family)), exit_of(text), "+".join(print_terms((t,)) for t in terms if t.name in FITTED)


def origin(embedder: Embedder) -> dict[str, str]:
    """Digests of the weights and the tokenizer: what is chosen for a model belongs to it while they are equal.

    The fingerprint holds more, such as settings of the engine, which may change without the model.
    """
    return {name: embedder.settings[name] for name in ("weights", "tokenizer")}


def about(model: str, embedder: Embedder, command: str) -> dict[str, object]:
    """What files of results say of how they came to be."""
    return {
        "model": model,
        "version": __version__,
        **origin(embedder),
        "dtype": DTYPE,
        "passage_size": PASSAGE_SIZE,
        "command": command,
    }


def parser(about: str, journal: str) -> argparse.ArgumentParser:
    """The options that both scripts take."""
    found = argparse.ArgumentParser(description=about)
    found.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    found.add_argument("--method", action="append", help="only methods that begin so; may be repeated")
    found.add_argument("--journal", type=Path, default=ROOT / "runs" / journal, help="outcomes, added as they come")
    found.add_argument("--task", action="append", help="only these tasks; may be repeated")
    found.add_argument("--measure", action="store_true", help="keep outcomes in the journal and write nothing else")
    return found


def evaluation(model: str | Path, journal: ResultStore) -> Evaluation:
    """Measures, keeps outcomes, and says what it does, save what was measured before."""

    def said(line: str) -> None:
        if not line.endswith("measured before"):
            say(line)

    return Evaluation(lambda method: Embedder(model, method=method, dtype=DTYPE), PASSAGE_SIZE, journal, said)


def say(line: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def put(path: Path, name: str, text: str) -> None:
    """Write text between the markers `<!-- name: begin -->` and `<!-- name: end -->` of a file."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}{text.strip()}\n{end}{after}", encoding="utf-8")
