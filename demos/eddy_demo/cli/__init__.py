"""`eddy-demo`: put documents into a library, and ask it questions."""

from __future__ import annotations

import errno
import sys
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from eddy_demo.cli import commands
from eddy_demo.cli.library_commands import app as library_app
from eddy_demo.cli.options import err
from eddy_demo.cli.serve_command import serve
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError
from eddy_embed import __version__
from eddy_embed.errors import EddyError
from eddy_embed.utils.extras import check_installed
from eddy_embed.utils.interrupts import Interrupted, stoppable

app = typer.Typer(
    help="Documents to a library, questions to passages: exact, cited, offline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_REQUIRED_MODULES = (
    "bs4 chromadb mammoth markdown_it markdownify openpyxl pptx pypdfium2 selectolax tantivy watchfiles yaml"
).split()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eddy-demo {__version__}")
        raise typer.Exit


for command in (serve, commands.ingest, commands.ask, commands.mcp, commands.demo, commands.evaluate):
    app.command()(command)
app.add_typer(library_app, name="library")


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    if "--help" not in sys.argv:
        check_installed("demo", *_REQUIRED_MODULES)


def main() -> None:
    """Run the command line; an error that the user can fix prints a message, not a traceback."""
    try:
        with stoppable():
            app()
    except (DemoError, EddyError) as error:
        _fail(str(error))
    except OSError as error:
        room = "; make room, and run the same command again" if error.errno == errno.ENOSPC else ""
        _fail(f"{error.filename or 'writing failed'}: {error.strerror or error}{room}")
    except MemoryError as error:
        _fail(f"out of memory: {error}")
    except Interrupted as stop:
        err.print(" ".join(filter(None, [f"{stop}.", stop.hint])))
        sys.exit(stop.status)


def _fail(message: str) -> NoReturn:
    err.print(Text.assemble(("Error: ", "bold red"), printable(message)), soft_wrap=True)
    sys.exit(1)
