"""`eddy evaluate`: scores of methods on tasks, the choice of one, and whether methods collapse."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eddy_embed.analysis.plots import check_picture, draw_scores
from eddy_embed.cli import options
from eddy_embed.cli.progress import Bar
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.utils.extras import check_installed

if TYPE_CHECKING:
    from eddy_embed.analysis.evaluate.results import ResultStore, TaskResult
    from eddy_embed.analysis.evaluate.systems import System
    from eddy_embed.analysis.evaluate.tasks import Task

Size = int | Literal["all"]

_measured, _choosing, _fitted, _kept = (
    partial(typer.Option, show_default=False, rich_help_panel=panel)
    for panel in ("What is measured", "Choosing a method", "Post-processing", "Results")
)


def evaluate(
    model: options.ModelArgument,
    methods: Annotated[
        list[str] | None, _measured("--method", "-m", help="A method's text form. Repeat for several.")
    ] = None,
    baseline: Annotated[
        str | None,
        _measured(
            help="What others are compared with, under the same post-processing. Default: plain; with --questions, the "
            "recommended method."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        _measured(envvar="EDDY_EVAL_DATA", help="Folder with sts/, retrieval/, classification/, wsd/."),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        _measured(
            "--task",
            "-t",
            help="A task of the folder. Repeat for several. Default: all; where a method is chosen, none.",
        ),
    ] = None,
    passage_size: Annotated[
        int, typer.Option(min=1, help="Most tokens in a passage; the best one finds its document.")
    ] = PASSAGE_SIZE,
    late: Annotated[
        bool, typer.Option("--late/--separate", help="Read passages within their document, or each by itself.")
    ] = True,
    rerank: Annotated[
        int | None,
        _measured(min=1, help="On retrieval, also let the model judge so many of each query's first passages."),
    ] = None,
    collapse: Annotated[
        bool, _measured("--collapse", help="Measure no tasks, but whether methods collapse, by 32 sentences.")
    ] = False,
    dev: Annotated[
        str | None, _choosing(help="The task of the folder that is chosen on; it is not one of those you report.")
    ] = None,
    texts: Annotated[
        Path | None, _choosing(help="Choose on texts of yours: a folder of .txt and .md files, and --questions.")
    ] = None,
    questions: Annotated[
        Path | None,
        _choosing(
            help='A .jsonl file with lines {"question": "...", "documents": ["name.md"]}: the files that answer it.'
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        _choosing(
            help="A parameter of the method and its values, as in exit=-1,-2,-4 or tempscale.tau=0.7,0.8. Repeat. "
            "Without it, the choice is among the methods named, or some that run few layers."
        ),
    ] = None,
    record: Annotated[
        Path | None, _choosing(help="A .json file for what was chosen, on which set, from what, by which command.")
    ] = None,
    fit_samples: Annotated[
        str | None, _fitted(help="Show it also fitted on so many of a task's own vectors, as in 50,100,500,all.")
    ] = None,
    output: Annotated[
        Path | None,
        _kept("--output", "-o", help="A .jsonl file that keeps every outcome as soon as it is there."),
    ] = None,
    fresh: Annotated[bool, _kept("--fresh", help="Measure again what the output holds already.")] = False,
    picture: Annotated[
        Path | None, _kept("--plot", help="A .svg or .png file for scores against --vary or --fit-samples.")
    ] = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Score methods on tasks, beside baselines, with intervals and cost; choose one on a set that is not reported.

    The same command with the same output goes on where it stopped.
    """
    choosing = bool(dev or texts or questions)
    _refuse(
        ("--collapse", collapse and (choosing or tasks or output), "measures no tasks; leave them out"),
        ("--data", data is None and not collapse and (dev or tasks or not choosing), "name it, or set EDDY_EVAL_DATA"),
        ("--output", output and output.suffix != ".jsonl", f"{output} must end in .jsonl"),
        ("--record", record and record.suffix != ".json", f"{record} must end in .json"),
        ("--questions", bool(texts) != bool(questions), "--texts and --questions belong together; name both"),
        ("--dev", dev and texts, "one set is chosen on: --dev, or --texts and --questions"),
        ("--dev", (vary or record) and not choosing, "nothing is chosen on a set that you report; name another one"),
        ("--vary", vary and len(methods or ()) != 1, "one method is varied; name it with --method"),
        ("--rerank", rerank and (collapse or (choosing and not tasks)), "judges what is reported; name tasks"),
        ("--task", fit_samples and choosing and not tasks, "name what the chosen method is scored on"),
        ("--plot", picture and bool(vary) == bool(fit_samples), "shows one of --vary and --fit-samples; name one"),
    )
    numbers: dict[str, Any] = {"device": device, "dtype": dtype}
    if collapse:
        _show_collapse(model, methods or ["recommended", "plain"], numbers)
        return
    sizes = _sizes(fit_samples)
    if picture is not None:
        check_picture(picture)
    check_installed("evaluate", "bm25s", "scipy", "sklearn")
    from eddy_embed.analysis.evaluate.choice import candidates
    from eddy_embed.analysis.evaluate.own_texts import read_own_texts
    from eddy_embed.analysis.evaluate.results import ResultStore
    from eddy_embed.analysis.evaluate.tasks import Retrieval, find_tasks

    reported = [] if choosing and not tasks else find_tasks(data or Path(), tasks)
    found = any(isinstance(task, Retrieval) for task in reported)
    _refuse(("--rerank", rerank and not found, "judges passages of retrieval; name such a task with --task"))
    tried = methods or (["recommended"] if choosing else [])
    reference, *asked = _in_full(model, baseline or ("recommended" if questions else "plain"), *tried)
    run = _Run(model, reference, passage_size, late, ResultStore(output, fresh=fresh), numbers)
    if choosing:
        own = texts and questions and read_own_texts(texts, questions)
        task = own or find_tasks(data or Path(), [dev or ""])[0]
        asked = asked if methods else candidates(*asked)
        asked = [_choose(run, task, reported, asked, vary or [], record, picture)]
        typer.echo("\n" * bool(reported), nl=False)
    if reported:
        _report(run, reported, asked, sizes, None if vary else picture, rerank or 0)


@dataclass(frozen=True)
class _Run:
    """How everything is measured: the model, what others are compared with, passages, what is kept, numbers."""

    model: str
    baseline: str
    passage_size: int
    late: bool
    store: ResultStore
    numbers: dict[str, Any]

    def outcomes(self, systems: list[System], tasks: list[Task], *, check: bool = True) -> list[TaskResult]:
        """Outcomes of systems on tasks, with progress on standard error."""
        from eddy_embed.analysis.evaluate.runner import Evaluation
        from eddy_embed.embedder import Embedder
        from eddy_embed.reranker import Reranker

        load = partial(Embedder, self.model, check=check, **self.numbers)
        judge = partial(Reranker, self.model, **self.numbers)
        with Bar() as bar:
            told = self.store, bar.say, bar.step
            return Evaluation(load, self.passage_size, *told, self.late, judge).run(systems, tasks)

    def show(self, outcomes: list[TaskResult]) -> None:
        """Print their table and what its signs mean."""
        from eddy_embed.analysis.evaluate import tables

        typer.echo(tables.table(outcomes, self.baseline))
        typer.echo(f"\n{tables.legend(outcomes, self.baseline, self.passage_size, self.late)}")


def _choose(
    run: _Run,
    task: Task,
    reported: list[Task],
    asked: list[str],
    vary: list[str],
    record: Path | None,
    picture: Path | None,
) -> str:
    """Try methods on a development set, show all, and name the one to use."""
    from eddy_embed.analysis.evaluate import choice, grid, tables
    from eddy_embed.analysis.evaluate.systems import System, with_baseline
    from eddy_embed.analysis.evaluate.tasks import digest
    from eddy_embed.model.loading.pretrained import read_backbone

    choice.check_dev(task, reported)
    varied = grid.parse_varied(vary)
    combinations = grid.points(asked[0], varied) if varied else []
    there, reasons = grid.runnable([point.method for point in combinations] or asked, read_backbone(run.model))
    for text, reason in reasons.items():
        typer.echo(f"left out: {text}: {reason}", err=True)
    found = run.outcomes(with_baseline(there, run.baseline), [task], check=False)
    found.sort(key=lambda outcome: -outcome.score())
    run.show(found)
    chosen = choice.choose(found, System(run.baseline), {System.named(text) for text in there})
    typer.echo(f"\n{chosen}")
    if picture is not None and combinations:
        held = {outcome.system.text: outcome for outcome in found}
        order = list(dict.fromkeys(point.first for point in combinations))
        curves = {name or asked[0]: points for name, points in grid.curves(held, combinations).items()}
        draw_scores(picture, {f"{task.name}, {chosen.best.metric}": curves}, next(iter(varied)), order)
    if record is not None:
        about = {
            "model": run.model,
            "fingerprint": chosen.best.identity.get("fingerprint"),
            "methods": asked,
            "varied": {name: list(values) for name, values in varied.items()},
            "passage_size": run.passage_size,
            "late": run.late,
            "command": shlex.join(["eddy", *sys.argv[1:]]),
            "dev": task.name,
            "dev_data": digest(task),
            "reported": {each.name: digest(each) for each in reported},
            "chosen": chosen.settings,
        }
        tables.save(record, about, tables.summary(found, run.baseline))
    return chosen.method


def _report(
    run: _Run, tasks: list[Task], asked: list[str], sizes: list[Size], picture: Path | None, judged: int
) -> None:
    """Score methods, those with post-processing also fitted on so many vectors each, and with so many hits judged."""
    from eddy_embed.analysis.evaluate import tables
    from eddy_embed.analysis.evaluate.systems import with_baseline

    systems = with_baseline(asked or [run.baseline], run.baseline, judged)
    more = [replace(system, fit_on=size) for system in systems if system.learns and not system.judged for size in sizes]
    found = run.outcomes([*systems, *more], tasks)
    outcomes = [outcome for outcome in found if outcome.system in systems]
    run.show(outcomes)
    if retrieval := tables.retrieval_table(outcomes):
        typer.echo(f"\n{retrieval}")
    if more:
        curves = [outcome for outcome in found if outcome.system.learns]
        typer.echo("\nScores by what post-processing was fitted on, general text or so many vectors of the task:\n")
        typer.echo(tables.by_sample(curves))
        if picture is not None:
            draw_scores(picture, tables.panels(curves), "vectors fitted on")


def _show_collapse(model: str, methods: list[str], numbers: dict[str, Any]) -> None:
    """The numbers that warn of a collapse, for each method."""
    from eddy_embed.analysis.evaluate.tables import markdown
    from eddy_embed.embedder import Embedder
    from eddy_embed.encoding import collapse

    rows = []
    for text in dict.fromkeys(_in_full(model, *methods)):
        with Embedder(model, text, check=False, **numbers) as embedder:
            found = collapse.measure(embedder._pipeline, embedder.method)
        shares = (found.cosine, found.dimension, found.token, found.nearest)
        shown = ("–" if math.isnan(share) else f"{share:.3f}" for share in shares)
        rows.append([f"`{text}`", *shown, found.fault or "no"])
    typer.echo(markdown(["method", "cosine", "dimension", "token", "nearest", "collapses"], rows))
    typer.echo(
        "\ncosine: mean of unrelated sentences; dimension, token: largest share of one in the variance, and in a mean; "
        "nearest: share of sentences nearest to their paraphrase"
    )


def _in_full(model: str, *texts: str) -> list[str]:
    """Methods in the form that they print, with what is recommended by its name; words as they are."""
    from eddy_embed.analysis.evaluate.systems import WORDS, System

    named = {text: text if text in WORDS else options.method_in_full(model, text) for text in dict.fromkeys(texts)}
    return [System.named(named[text]).text for text in texts]


def _sizes(text: str | None) -> list[Size]:
    """Numbers of vectors to fit on."""
    found = [size.strip() for size in text.split(",")] if text else []
    if not all(size == "all" or (size.isdecimal() and int(size) >= 2) for size in found):
        raise typer.BadParameter(
            f"{text!r} must hold numbers of at least 2, as in 50,100,500", param_hint="--fit-samples"
        )
    return ["all" if size == "all" else int(size) for size in dict.fromkeys(found)]


def _refuse(*cases: tuple[str, object, str]) -> None:
    """Refuse options that say nothing together: the one at fault, whether it is, and why."""
    for option, wrong, said in cases:
        if wrong:
            raise typer.BadParameter(said, param_hint=option)
