"""`eddy mteb run`."""

from __future__ import annotations

import logging
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from eddy_embed.cli.options import Device, Dtype, ModelArgument
from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.extras import check_installed

if TYPE_CHECKING:
    from mteb.types import EncodeKwargs

app = typer.Typer(no_args_is_help=True, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def _group() -> None:
    """Evaluate on MTEB's tasks."""


@app.command()
def run(
    model: ModelArgument,
    tasks: Annotated[
        list[str] | None, typer.Argument(help="MTEB's tasks, such as STS12, or STS17[en-en] for one subset.")
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option(help="The tasks that a paper reports: htp, kv, reba, tempscale, tp. Repeat.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="A method's text form. Repeat for several.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Truncate texts to so many tokens.", show_default=False)
    ] = None,
    instructions: Annotated[
        str | None, typer.Option(help="Set of instructions by task: htp.", show_default=False)
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="MTEB's folder of results; runs continue there.")] = (
        Path("mteb-results")
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute stored results again.")] = False,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Evaluate methods on tasks of MTEB, and print each task's main score, times 100."""
    check_installed("mteb", "mteb")
    # MTEB warns that many tasks have a newer version; the papers used these.
    logging.getLogger("mteb").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".* is superseded by", category=UserWarning)
    import mteb

    import mteb_eddy.tasks
    from mteb_eddy.encoder import EddyEncoder

    names = dict.fromkeys([*(tasks or []), *(task for paper in suite or [] for task in mteb_eddy.suite(paper))])
    if not names:
        raise InvalidParameter("name at least one task, such as STS12, or a paper's with --suite tp")
    known = {name: mteb_eddy.tasks.find_task(name) for name in names}
    settings: dict[str, Any] = {"device": device, "dtype": dtype}
    if max_length is not None:
        settings |= {"max_length": max_length, "overflow": "truncate"}
    if instructions is not None:
        settings["instructions"] = mteb_eddy.instructions(instructions)
    cache, strategy = mteb.ResultCache(output), "always" if fresh else "only-missing"
    quiet = cast("EncodeKwargs", {"show_progress_bar": False})
    texts: list[str | None] = list(method) if method else [None]
    for text in texts:
        with closing(EddyEncoder(model, method=text, **settings)) as encoder:
            for name, task in known.items():
                result = mteb.evaluate(
                    encoder,
                    task,
                    cache=cache,
                    overwrite_strategy=strategy,
                    encode_kwargs=quiet,
                    show_progress_bar=False,
                    co2_tracker=False,
                )
                score = 100 * result.task_results[0].get_score()
                typer.echo(f"{encoder.embedder.method}: {name}: {score:.2f}")
