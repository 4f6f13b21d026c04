"""`eddy-demo`: put documents into a library, and ask it questions. Help and wrong names need no model's imports."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from eddy_demo.cli.console import DEFAULT_LIBRARY, err, out, program_name
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError
from eddy_demo.library.settings import (
    BUNDLED_MODEL,
    DEFAULT_PASSAGE_SIZE,
    PREFERRED_MODEL,
    Choices,
    check_available,
    holds_library,
    read_settings,
)
from eddy_embed import __version__
from eddy_embed.errors import EddyError
from eddy_embed.utils.extras import check_installed
from eddy_embed.utils.interrupts import Interrupted, stoppable

_SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Documents to a library, questions to passages: exact, cited, offline.",
    context_settings=_SETTINGS,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
library_app = typer.Typer(
    help="List, remove, embed again or check the documents of a library.",
    no_args_is_help=True,
    context_settings=_SETTINGS,
)
app.add_typer(library_app, name="library")
_REQUIRED_MODULES = (
    "bs4 chromadb mammoth markdown_it markdownify openpyxl pptx pypdfium2 selectolax tantivy watchfiles yaml"
).split()

# --- Options of several commands

Library = Annotated[
    Path, typer.Option("--library", "-l", envvar="EDDY_LIBRARY", help="Folder of the library.", show_default="library")
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A name that `eddy models` shows, a path, or a Hugging Face id. "
        f"New libraries: {PREFERRED_MODEL} where it is on this machine, else {BUNDLED_MODEL}.",
        show_default=False,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="As in plain, tp or htp:range=1-7,exit=-2. Left out: the library's, or the one that `eddy methods MODEL` "
        "shows.",
        show_default=False,
    ),
]
Fast = Annotated[
    bool | None,
    typer.Option(
        "--fast/--best",
        help="What is recommended without the model's layers alone, or with them at once. Left out: as the library is; "
        "a new one first without, so that it can be asked at once, then with them.",
        show_default=False,
    ),
]
PassageSize = Annotated[
    int | None,
    typer.Option(min=8, help=f"Most tokens in a passage. New libraries: {DEFAULT_PASSAGE_SIZE}.", show_default=False),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps; chosen by itself if left out.", show_default=False)]
Count = Annotated[int, typer.Option("-k", min=1, max=100, help="How many passages to show.")]
Rerank = Annotated[
    bool,
    typer.Option("--rerank", help="Re-rank the best passages with the library's model: finds more, takes seconds."),
]


# --- Commands


@app.command()
def serve(
    library: Library = DEFAULT_LIBRARY,
    model: Model = None,
    method: Method = None,
    generate: Annotated[
        bool | None,
        typer.Option(
            "--generate/--no-generate",
            help="Let the same loaded model write answers too; by default a large one that follows instructions does.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines reach needs --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(envvar="EDDY_TOKEN", help="Secret that whoever opens the page must know.", show_default=False),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which it may be asked.", show_default=False)
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    device: Device = None,
) -> None:
    """Open the library as a page: upload, ask, read.

    It listens on this machine alone unless --host says otherwise, and needs no network.
    """
    from eddy_demo.cli import work

    names = {*(allow_host or ())}
    work.serve(library, Choices(model, method), device, generate, (host, port), token, names, open_page)


@app.command()
def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files or folders: text, PDF, HTML, office files, e-mails; and .jsonl, a row a document."),
    ],
    library: Library = DEFAULT_LIBRARY,
    model: Model = None,
    method: Method = None,
    passage_size: PassageSize = None,
    fast: Fast = None,
    device: Device = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="Remove documents of these paths whose files no longer exist.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="With --sync, then again whenever the folders change, until Ctrl-C.")
    ] = False,
) -> None:
    """Embed documents and store them.

    Run again, it embeds only new and changed documents, and goes on where it was interrupted.
    """
    choices = Choices(model, method, passage_size, fast)
    readable = _check_paths(paths)
    if not holds_library(library):
        check_available(library)
    from eddy_demo.cli import work

    if watch:
        work.watch(paths, library, choices, device)
        return
    if not work.ingest(readable, library, choices, device, sync) or readable != paths:
        raise typer.Exit(1)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="In quotes.")],
    library: Library = DEFAULT_LIBRARY,
    k: Count = 3,
    alpha: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Weight of vectors: 0 for keywords alone, 1 for them alone.", show_default=False
        ),
    ] = None,
    rerank: Rerank = False,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Show the passages that fit a question best, by vectors and by keywords.

    Each has its document, exact characters, true cosine, and the best sentence highlighted.
    """
    if question.strip() and question.isprintable():  # else that may be what is wrong
        read_settings(library)
    from eddy_demo.cli import work

    work.ask(question, library, k, alpha, rerank, device, as_json)


@app.command()
def demo(
    library: Library = DEFAULT_LIBRARY,
    model: Model = None,
    fast: Fast = None,
    device: Device = None,
) -> None:
    """Ingest Eddy's own handbook, and ask it three questions.

    It answers without the model's layers, within seconds; --best reads with them.
    """
    from eddy_demo.cli import work

    work.demo(library, Choices(model, fast=fast), device)


@app.command()
def evaluate(
    queries: Annotated[
        Path,
        typer.Option(help='Rows {"text", "needle"} (.jsonl): a question, and a regular expression that answers hold.'),
    ],
    library: Annotated[
        list[Path] | None,
        typer.Option("--library", "-l", envvar="EDDY_LIBRARY", help="Folder of a library; may be repeated."),
    ] = None,
    rerank: Rerank = False,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Measure how often the search finds what answers, and how often the page quotes it.

    Compares the search of `ask` with vectors alone and keywords alone.
    """
    from eddy_demo.cli import work

    work.evaluate(queries, library or [DEFAULT_LIBRARY], rerank, device, as_json)


@library_app.command("list")
def list_documents(
    library: Library = DEFAULT_LIBRARY,
    as_json: Annotated[bool, typer.Option("--json", help="Print the documents as JSON.")] = False,
) -> None:
    """Show the documents of a library, its model and its method."""
    read_settings(library)
    from eddy_demo.cli import work

    work.list_documents(library, as_json)


@library_app.command()
def remove(
    documents: Annotated[
        list[str] | None, typer.Argument(help="Ids or names, as `eddy-demo library list` shows them.")
    ] = None,
    library: Library = DEFAULT_LIBRARY,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase the texts of all documents removed so far from the library's files.")
    ] = False,
) -> None:
    """Remove documents from a library; files that they were read from stay, but for those that the page received."""
    read_settings(library)
    from eddy_demo.cli import work

    work.remove(documents or [], library, erase)


@library_app.command("rebuild")
def rebuild_library(
    library: Library = DEFAULT_LIBRARY,
    model: Model = None,
    method: Method = None,
    fast: Fast = None,
    passage_size: PassageSize = None,
    device: Device = None,
) -> None:
    """Change the model, method or passage size: embed all documents again from their stored texts.

    Without a method, a library made with a recommended method takes what is recommended now. The library answers as
    before until all new vectors are written. After an interruption, the same command continues.
    """
    choices = Choices(model, method, passage_size, fast=fast)
    read_settings(library)
    from eddy_demo.cli import work

    work.rebuild_with(library, choices, device)


@library_app.command()
def check(
    library: Library = DEFAULT_LIBRARY,
    full: Annotated[bool, typer.Option("--full", help="Search for all vectors, not for a sample.")] = False,
) -> None:
    """Find damaged texts, and mend damaged vectors.

    Reads all texts, and searches for a sample of the vectors by themselves. Each vector is in two places, and damaged
    ones are put back from the other place.
    """
    read_settings(library)
    from eddy_demo.cli import work

    work.check(library, full)


@app.command()
def mcp(
    library: Library = DEFAULT_LIBRARY,
    http: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port of this machine, asked at /mcp; else stdin and stdout.", show_default=False
        ),
    ] = None,
    device: Device = None,
) -> None:
    """Let a client of the Model Context Protocol search the library and list its documents."""
    read_settings(library)
    check_installed("mcp", "mcp")
    from eddy_demo.mcp import make_server

    server = make_server(library, device)
    if http is None:
        server.run()
    else:
        server.run("streamable-http", port=http)


def _check_paths(paths: list[Path]) -> list[Path]:
    """Return the paths that can be read, and name the others; if none can be, that is an error."""
    from readers_eddy.content import NothingToRead
    from readers_eddy.documents import check_path

    readable, problems = [], []
    for path in paths:
        try:
            check_path(path)
            readable.append(path)
        except NothingToRead as error:
            problems.append(error)
    if problems and not readable:
        raise NothingToRead("\n  ".join(map(str, problems)))
    for problem in problems:
        err.print(Text(f"Skipped: {printable(str(problem))}", "yellow"), soft_wrap=True)
    return readable


# --- The program


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eddy-demo {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        lines = {"ingest PATH": "read files and folders", 'ask "..."': "ask them", "serve --open": "do both on a page"}
        out.print("Documents to a library, questions to passages: exact, cited, offline. To begin with:\n")
        for line, what in lines.items():
            out.print(Text.assemble(f"  {program_name()} ", (f"{line:<13}", "bold"), f"  {what}"))
        out.print(f"\nAll commands: {program_name()} --help. An example: {program_name()} demo")
    elif not {"-h", "--help"} & set(sys.argv):
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
