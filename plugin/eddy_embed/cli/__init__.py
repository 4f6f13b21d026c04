"""The command line `eddy`, with the commands that adapters add."""

from __future__ import annotations

import atexit
import errno
import gc
import warnings
from typing import Annotated, Any, NoReturn

import typer

from eddy_embed.cli import embed, models
from eddy_embed.cli.plugins import Commands
from eddy_embed.errors import EddyError, MethodCollapse
from eddy_embed.utils.interrupts import Interrupted, stoppable
from eddy_embed.utils.version import __version__

app = typer.Typer(
    name="eddy",
    cls=Commands,
    help="Turn a language model into an embedding model, without training it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (embed.methods, embed.embed, embed.explain):
    app.command()(command)
app.add_typer(models.app, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eddy-embed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors of ours and of the file system end in a sentence, not a traceback."""
    atexit.register(gc.freeze)  # a last walk of the collector through all objects would take most of a second
    usual = warnings.formatwarning

    def in_one_line(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> str:
        return f"eddy: {message}\n" if category is MethodCollapse else usual(message, category, *place, **line)

    warnings.formatwarning = in_one_line
    try:
        with stoppable():
            app()
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        remedy = {errno.ENOSPC: "; make room, or write to another disk", errno.EROFS: "; write to another folder"}
        _fail(f"{named}{remedy.get(error.errno or 0, '')}", 1)
    except (EddyError, MemoryError) as error:
        _fail(str(error), 1)
    except Interrupted as stop:
        _fail(str(stop), stop.status)


def _fail(message: str, status: int) -> NoReturn:
    typer.echo(f"eddy: {message}", err=True)
    raise SystemExit(status)
