"""The command line: `eddy embed`, `eddy explain`, `eddy methods`, `eddy evaluate`, `eddy layers`."""

from __future__ import annotations

from typing import Annotated

import typer

from eddy_embed import __version__
from eddy_embed.cli import compare, embed, evaluate, layers
from eddy_embed.errors import EddyError

app = typer.Typer(
    name="eddy",
    help="Turn a language model into an embedding model, without training it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (embed.methods, embed.embed, embed.explain, compare.compare, evaluate.evaluate, layers.layers):
    app.command()(command)


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
    try:
        app()
    except (EddyError, OSError, MemoryError) as error:
        typer.echo(f"eddy: {error}", err=True)
        raise SystemExit(1) from None
