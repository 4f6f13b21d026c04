"""What the benchmarks of the bundled model run: methods, exit layers, post-processing, tasks."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from eddy_embed import Embedder, __version__, methods
from eddy_embed.evaluate.outcome import Journal
from eddy_embed.evaluate.run import Evaluation
from eddy_embed.evaluate.sweep import runnable
from eddy_embed.evaluate.systems import System, beside

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = ROOT / "plugin" / "eddy_embed" / "models" / "tiny" / "defaults.json"
RESULTS = ROOT / "benchmarks" / "results"

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
"""Every method; those that take longest come last."""
RAW = "plain:exit=0"
"""The mean of raw token embeddings, a baseline."""
LEFT = {
    "squality": (
        "prompteol",
        "cot",
        "knowledge",
        "metaeol",
        "tp:prompt",
        "reba",
        "echo",
        "plain:pool=weighted",
        "plain:exit={}+",
    ),
    "cranfield": ("metaeol", "tp:prompt"),
    "cisi": ("cot", "knowledge", "metaeol", "tp:prompt"),
    "trec": ("metaeol",),
}
"""Methods that are left out on large tasks: prompts made for sentences, twice the tokens or more, near relatives."""
ONE_EXIT = ("reba",)
"""Methods that take a pass for every exit: run at the last layer only."""
DEV = {"similarity": "stsb_dev", "retrieval": "cranfield"}
"""The tasks on which defaults are chosen, and nothing else is."""
REPORTED = ("sts12", "sts13", "sickr_trial", "cisi", "squality", "trec", "mr")
PASSAGE_SIZE = 256
"""Most tokens in a passage."""


def variants(
    options: argparse.Namespace,
    embedder: Embedder,
    exits: tuple[int, ...],
    posts: tuple[str, ...],
    leave: tuple[str, ...] = (),
) -> list[str]:
    """Every method asked for, at every exit that it can have on this model, with every post-processing.

    Args:
        options: Of the command line.
        embedder: Of the model, for its layers.
        exits: Exit layers.
        posts: Such as "+whiten"; "" for none.
        leave: Beginnings of the methods that are left out.
    """
    wanted: dict[str, None] = {}
    for method in METHODS:
        for exit_layer in exits:
            if not method.startswith(leave) and not (method.startswith(ONE_EXIT) and exit_layer != -1):
                wanted[str(methods.parse(method.format(exit_layer)))] = None
    there, reasons = runnable(wanted, embedder.backbone)
    for reason in reasons.values():
        say(f"left out: {reason}")
    found = [f"{text}{post}" for text in there for post in posts]
    return [text for text in found if not options.method or text.startswith(tuple(options.method))]


def shown(
    options: argparse.Namespace,
    wanted: list[str],
    posts: tuple[str, ...],
    also: list[str] | None = None,
    *,
    query_mean: bool,
) -> list[System]:
    """The systems of a table; where some methods are only measured beside others, those alone.

    Args:
        options: Of the command line.
        wanted: Methods, such as `variants` finds.
        posts: Post-processing of raw token embeddings.
        also: Methods that are shown even where others were asked for.
        query_mean: Whether every system with post-processing is also shown with a mean of its own for queries.
    """
    systems = beside([*wanted, *(f"{RAW}{post}" for post in posts), *(also or [])], "plain", query_mean=query_mean)
    if options.measure and options.method:
        systems = [system for system in systems if system.text in wanted]
    return systems


def origin(embedder: Embedder) -> dict[str, str]:
    """Digests of the weights and the tokenizer: what is chosen for a model belongs to it while they are equal.

    The fingerprint holds more, such as settings of the engine, which may change without the model.
    """
    return {name: embedder.settings[name] for name in ("weights", "tokenizer")}


def about(options: argparse.Namespace, embedder: Embedder, command: str) -> dict[str, object]:
    """What both files of results say of how they came to be."""
    return {
        "model": options.model,
        "version": __version__,
        **origin(embedder),
        "passage_size": PASSAGE_SIZE,
        "command": command,
        "dev": list(DEV.values()),
    }


def arguments(about: str, journal: str) -> argparse.Namespace:
    """The options that both scripts take."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    parser.add_argument("--model", default="eddy-tiny")
    parser.add_argument("--method", action="append", help="only methods that begin so; may be repeated")
    parser.add_argument("--journal", type=Path, default=ROOT / "runs" / journal, help="outcomes, added as they come")
    parser.add_argument("--task", action="append", help="only these tasks; may be repeated")
    parser.add_argument("--measure", action="store_true", help="keep outcomes in the journal and write nothing else")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    found = parser.parse_args()
    if found.data is None:
        parser.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    return found


def evaluation(options: argparse.Namespace) -> Evaluation:
    """Measures, keeps outcomes, and says what it does."""
    return Evaluation(
        lambda method: Embedder(options.model, method=method),
        passage_size=PASSAGE_SIZE,
        journal=Journal(options.journal, fresh=options.fresh),
        said=say,
    )


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
