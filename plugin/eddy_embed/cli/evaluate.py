"""`eddy evaluate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eddy_embed.analysis.plots import check_picture, draw_scores
from eddy_embed.cli import options

if TYPE_CHECKING:
    from eddy_embed.analysis.evaluate.systems import System


def evaluate(
    systems: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A method's text form. Repeat for several.", show_default=False),
    ] = None,
    model: options.Model = "eddy-tiny",
    data: options.TaskFolder = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", help="Only this task. Repeat for several.", show_default=False),
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="What others are compared with, under the same post-processing.")
    ] = "plain",
    query_mean: Annotated[
        bool, typer.Option("--query-mean", help="With post-processing: also with a mean of their own for queries.")
    ] = False,
    fit_samples: Annotated[
        str | None,
        typer.Option(
            help="With post-processing: also fitted on so many vectors, as in 50,100,500.", show_default=False
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--plot", help="A .svg or .png file for scores against --fit-samples.", show_default=False),
    ] = None,
    passage_size: Annotated[
        int, typer.Option(min=1, help="Most tokens in a passage; the best one finds its document.")
    ] = 256,
    late: Annotated[
        bool, typer.Option("--late/--separate", help="Read passages within their document, or each by itself.")
    ] = True,
    output: options.Outcomes = None,
    fresh: options.Fresh = False,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Score methods on local tasks, beside baselines, with intervals and cost.

    The same command with the same output goes on where it stopped.
    """
    folder = options.measuring(data, output)
    if picture is not None:
        check_picture(picture)
        if fit_samples is None:
            raise typer.BadParameter(f"{picture} shows what --fit-samples asks for; name them", param_hint="--plot")
    from eddy_embed.analysis.evaluate import tables
    from eddy_embed.analysis.evaluate.systems import WORDS, System, beside
    from eddy_embed.analysis.evaluate.tasks import find_tasks

    baseline, *asked = (
        text if text in WORDS else options.method_in_full(model, text) for text in (baseline, *(systems or []))
    )
    reference = System.named(baseline).text
    wanted = beside(asked, reference, query_mean=query_mean)
    more = _sampled(wanted, fit_samples)
    found = options.run_evaluation(
        model,
        [*wanted, *more],
        find_tasks(folder, tasks),
        passage_size,
        output,
        fresh,
        late=late,
        device=device,
        dtype=dtype,
    )
    outcomes = [outcome for outcome in found if outcome.system in wanted]
    typer.echo(tables.table(outcomes, reference))
    retrieval = tables.retrieval_table(outcomes)
    typer.echo(f"\n{tables.legend(outcomes, reference, passage_size, late)}")
    if retrieval:
        typer.echo(f"\n{retrieval}")
    if more:
        fitted = {replace(system, fit_on=None) for system in more}
        curves = [outcome for outcome in found if replace(outcome.system, fit_on=None) in fitted]
        typer.echo("\nScores by the number of vectors that post-processing was fitted on:\n")
        typer.echo(tables.by_sample(curves))
        if picture is not None:
            draw_scores(picture, tables.panels(curves), "vectors fitted on")


def _sampled(systems: list[System], sizes: str | None) -> list[System]:
    """Systems with post-processing, fitted on each of so many vectors."""
    if sizes is None:
        return []
    found = [size.strip() for size in sizes.split(",") if size.strip() != "all"]
    if not all(size.isdecimal() and int(size) >= 2 for size in found):
        raise typer.BadParameter(
            f"{sizes!r} must hold numbers of at least 2, as in 50,100,500", param_hint="--fit-samples"
        )
    fitted = [system for system in systems if system.learns]
    return [replace(system, fit_on=int(size)) for system in fitted for size in dict.fromkeys(found)]
