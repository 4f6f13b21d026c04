"""`eddy sweep`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eddy_embed.analysis.plots import check_picture, draw_scores
from eddy_embed.cli import options

if TYPE_CHECKING:
    from eddy_embed.analysis.evaluate.grid import GridPoint
    from eddy_embed.analysis.evaluate.results import TaskResult


def sweep(
    model: options.ModelArgument,
    method: options.MethodText,
    vary: Annotated[
        list[str],
        typer.Option(help="A parameter and its values, as in exit=-1,-2,-4 or tempscale.tau=0.7,0.8. Repeat."),
    ],
    dev: Annotated[str, typer.Option(help="The task that is chosen on; it is not one of those you report.")],
    reported: Annotated[
        list[str] | None,
        typer.Option(help="A task that you report, on which nothing may be chosen. Repeat.", show_default=False),
    ] = None,
    data: options.TaskFolder = None,
    output: options.Outcomes = None,
    record: Annotated[
        Path | None,
        typer.Option(help="A .json file for what was chosen, on which set, from what, by which command."),
    ] = None,
    plot: options.Picture = None,
    passage_size: Annotated[int, typer.Option(min=1, help="Most tokens in a passage.")] = 256,
    fresh: options.Fresh = False,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Try a method's parameters on a development set, and print the method text that is best there.

    The same command with the same output goes on where it stopped.
    """
    folder = options.measuring(data, output)
    if plot is not None:
        check_picture(plot)
    if record is not None and record.suffix != ".json":
        raise typer.BadParameter(f"{record} must end in .json", param_hint="--record")
    from eddy_embed.analysis.evaluate import grid, tables
    from eddy_embed.analysis.evaluate.systems import System
    from eddy_embed.analysis.evaluate.tasks import digest, find_tasks
    from eddy_embed.embedder import Embedder

    varied = grid.parse_varied(vary)
    method = options.method_in_full(model, method)
    combinations = grid.points(method, varied)
    (task,) = find_tasks(folder, [dev])
    held_back = find_tasks(folder, reported) if reported else []
    grid.check_dev(task, held_back)
    with Embedder(model, method="plain", device=device, dtype=dtype, check=False) as embedder:
        origin = {name: embedder.settings[name] for name in ("weights", "tokenizer")}
        there, reasons = grid.runnable([point.method for point in combinations], embedder.backbone)
    for text, reason in reasons.items():
        typer.echo(f"left out: {text}: {reason}", err=True)
    systems = [System.named(text) for text in dict.fromkeys([*there, "plain"])]
    found = options.run_evaluation(model, systems, [task], passage_size, output, fresh, device=device, dtype=dtype)
    held = {outcome.system.text: outcome for outcome in found}
    tried = [held[text] for text in dict.fromkeys(there) if text in held]
    best, ties = grid.choose(tried)
    typer.echo(tables.table(list(held.values()), "plain"))
    typer.echo(f"\n{tables.legend(tried, 'plain', passage_size)}")
    if plot is not None:
        _draw(plot, task.name, held, combinations)
    about = {
        "model": model,
        **origin,
        "method": method,
        "varied": {name: list(values) for name, values in varied.items()},
        "passage_size": passage_size,
        "command": shlex.join(["eddy", *sys.argv[1:]]),
        "dev": task.name,
        "dev_data": digest(task),
        "reported": {each.name: digest(each) for each in held_back},
        "chosen": grid.chosen_by(best, held.get("plain")),
    }
    if record is not None:
        tables.save(record, about, tables.summary(list(held.values()), "plain"))
    cheaper = next((tie for tie in ties if tie.cost.work < best.cost.work), None)
    if cheaper is not None:
        share = cheaper.cost.work / best.cost.work
        typer.echo(f"\nA tie with the best on {task.name}, at {share:.2f}× its work: {cheaper.system.text}")
    typer.echo(f"\nchosen on {task.name}; report scores on other sets\nmethod  {best.system.text}")


def _draw(path: Path, task: str, held: dict[str, TaskResult], combinations: list[GridPoint]) -> None:
    from eddy_embed.analysis.evaluate import grid

    metric = next(iter(held.values())).metric
    name = combinations[0].values[0][0]
    drawn = {curve or combinations[0].method: row for curve, row in grid.curves(held, combinations).items()}
    order = list(dict.fromkeys(point.first for point in combinations))
    draw_scores(path, {f"{task}, {metric}": drawn}, name, order)
