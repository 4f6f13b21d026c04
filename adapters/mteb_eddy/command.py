"""`eddy mteb`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from eddy_embed.cli.options import Device, Dtype
from eddy_embed.utils.extras import check_installed
from mteb_eddy import suites
from mteb_eddy.suites import suite, suite_names, title

app = typer.Typer(
    help="Evaluate on MTEB's tasks, and print the tables of the methods' papers with our numbers beside theirs.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of results; runs continue there.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute stored results again.")]
LoCo = Annotated[Path | None, typer.Option("--locov1", help="Folder with LoCoV1. Default: the hub.")]


def _command(name: str) -> Callable[..., None]:
    def command(
        model: Annotated[
            str | None, typer.Option(help="Model to run instead of the table's: a stand-in, or a copy of --backbone.")
        ] = None,
        backbone: Annotated[
            list[str] | None, typer.Option("--backbone", "-b", help="Only this model of the table. Repeat for several.")
        ] = None,
        tasks: Annotated[
            str | None, typer.Option(help="Only these tasks or columns, with commas between them.")
        ] = None,
        row: Annotated[
            list[str] | None, typer.Option("--row", "-r", help="Only rows of this label. Repeat for several.")
        ] = None,
        output: Output = Path("mteb-results"),
        fresh: Fresh = False,
        locov1: LoCo = None,
        device: Device = None,
        dtype: Dtype = "auto",
    ) -> None:
        _ready()
        from mteb_eddy import report, runner

        results = runner.run_suite(
            name,
            output,
            model=model,
            backbones=backbone or (),
            tasks=[task.strip() for task in (tasks or "").split(",") if task.strip()],
            rows=row or (),
            fresh=fresh,
            find=lambda spec: runner.find_task(spec, locov1),
            log=partial(typer.echo, err=True),
            device=device,
            dtype=dtype,
        )
        typer.echo(report.suite_table(name, results))

    command.__doc__ = f"{title(name)}."
    return command


for _name in suite_names():
    app.command(_name)(_command(_name))


@app.command()
def run(
    tasks: Annotated[list[str], typer.Argument(help="MTEB's tasks, such as STS12, or STS17[en-en] for one subset.")],
    method: Annotated[list[str], typer.Option("--method", "-m", help="A method's text form. Repeat for several.")],
    model: Annotated[
        str, typer.Option(help="A name that `eddy models` shows, a path, or a Hugging Face id.")
    ] = "eddy-tiny",
    max_length: Annotated[
        int | None, typer.Option(help="Truncate texts to so many tokens.", show_default=False)
    ] = None,
    instructions: Annotated[
        str | None, typer.Option(help="Set of instructions by task: htp.", show_default=False)
    ] = None,
    output: Output = Path("mteb-results"),
    fresh: Fresh = False,
    locov1: LoCo = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Evaluate methods on any tasks of MTEB."""
    _ready()
    from mteb_eddy import report, runner
    from mteb_eddy.encoder import EddyEncoder

    settings: dict[str, Any] = {"device": device, "dtype": dtype}
    if max_length is not None:
        settings |= {"max_length": max_length, "overflow": "truncate"}
    if instructions is not None:
        settings["instructions"] = suites.instructions(instructions)
    records = []
    for each in method:
        with closing(EddyEncoder(model, method=each, **settings)) as encoder:
            for task in tasks:
                new = runner.evaluate(
                    encoder, [task], output, fresh=fresh, find=lambda spec: runner.find_task(spec, locov1)
                )
                typer.echo(f"{each}: {task}: {new[0].score() * 100:.2f}", err=True)
                records += new
    typer.echo(report.runs_table(records))


@app.command()
def table(
    folder: Annotated[Path, typer.Argument(help="Folder of --output.", exists=True, file_okay=False)],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A .png or .svg file with scores by task and against time.")
    ] = None,
) -> None:
    """Print a folder's results: suites beside the published numbers, then every model and method by task."""
    _ready()
    from mteb_eddy import charts, report, runner
    from mteb_eddy.result_store import ResultStore

    for name, results in runner.read_suites(folder).items():
        typer.echo(f"{report.suite_table(name, results)}\n")
    records = ResultStore(folder / "records.jsonl").results.values()
    typer.echo(report.runs_table(records) if records else f"{folder} holds no records yet")
    if plot is not None:
        charts.draw(plot, records)


@app.command("list")
def listed() -> None:
    """List the suites, their models, and whether they were run on the published models."""
    for name in suite_names():
        chosen = suite(name)
        state = f"run: {'; '.join(chosen.run)}" if chosen.run else "not yet run on the published models"
        typer.echo(f"{name}\n  {chosen.title}\n  {', '.join(chosen.backbones)}; {len(chosen.tasks)} tasks; {state}")


def _ready() -> None:
    check_installed("mteb", "mteb")
    # MTEB warns that many tasks have a newer version; the papers used these.
    logging.getLogger("mteb").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".* is superseded by", category=UserWarning)
