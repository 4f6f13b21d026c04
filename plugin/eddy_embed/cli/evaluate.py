"""`eddy evaluate`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from eddy_embed import __version__
from eddy_embed.cli.options import Device, Dtype, Model
from eddy_embed.errors import MissingExtra


def evaluate(
    systems: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A method's text form, or bm25, overlap. Repeat for several."),
    ] = None,
    model: Model = "eddy-tiny",
    data: Annotated[
        Path | None, typer.Option(envvar="EDDY_EVAL_DATA", help="Folder with sts/, retrieval/, classification/, wsd/.")
    ] = None,
    tasks: Annotated[list[str] | None, typer.Option("--task", "-t", help="Only this task. Repeat for several.")] = None,
    passage_size: Annotated[int, typer.Option(help="Most tokens in a passage; the best one finds its document.")] = 256,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .json file for scores and intervals.")
    ] = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Score methods on local tasks, with baselines, intervals and cost; the first method is the reference."""
    from eddy_embed import methods as registry
    from eddy_embed.embedder import Embedder
    from eddy_embed.evaluate import report
    from eddy_embed.evaluate.run import Evaluation
    from eddy_embed.evaluate.tasks import find_tasks

    missing = [name for name in ("bm25s", "scipy", "sklearn") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{', '.join(missing)} not installed; pip install 'eddy-embed[evaluate]'")
    if data is None:
        raise typer.BadParameter("name a folder, or set EDDY_EVAL_DATA", param_hint="--data")
    baselines = ("bm25", "overlap")
    wanted = [
        system if system in baselines else str(registry.parse(system))
        for system in dict.fromkeys([*(systems or ["plain"]), *baselines])
    ]
    outcomes = []
    evaluation = Evaluation(
        lambda method: Embedder(model, method=method, device=device, dtype=dtype, show_progress=sys.stderr.isatty()),
        passage_size,
    )
    for task in find_tasks(data, tasks):
        for system in wanted:
            typer.echo(f"{task.name}: {system}", err=True)
            outcome = evaluation.run(system, task)
            if outcome is not None:
                outcomes.append(outcome)
        evaluation.forget(task)
    typer.echo(report.table(outcomes, wanted[0]))
    if output is not None:
        about = {"model": model, "passage_size": passage_size, "dtype": dtype, "version": __version__}
        report.save(outcomes, wanted[0], output, about)
