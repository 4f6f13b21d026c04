"""The commands that write to a library, ask it, and measure it. Help is shown without the work's imports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eddy_demo.cli import options
from eddy_demo.library.defaults import DEFAULT_PASSAGE_SIZE
from eddy_embed.utils.extras import check_installed


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files or folders: text, PDF, HTML, office files, e-mails; and .jsonl, a row a document."),
    ],
    library: options.Library = options.DEFAULT_LIBRARY,
    model: options.Model = None,
    method: options.Method = None,
    passage_size: Annotated[
        int | None,
        typer.Option(
            min=8, help=f"Most tokens in a passage. New libraries: {DEFAULT_PASSAGE_SIZE}.", show_default=False
        ),
    ] = None,
    late: Annotated[
        bool | None,
        typer.Option(
            "--late/--separate",
            help="Take passage vectors from a pass over the document, or embed each by itself. "
            "Left out: as suits the method.",
            show_default=False,
        ),
    ] = None,
    fast: options.Fast = None,
    device: options.Device = None,
    rebuild: options.Rebuild = False,
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
    from eddy_demo.cli import watch_work, work

    choices = (model, method, passage_size, late, fast)
    if watch:
        watch_work.watch(paths, library, choices, device, rebuild)
        return
    work.ingest(paths, library, choices, device, rebuild, sync)


def ask(
    question: Annotated[str, typer.Argument(help="In quotes.")],
    library: options.Library = options.DEFAULT_LIBRARY,
    k: options.Count = 3,
    alpha: options.Alpha = None,
    model: options.SameModel = None,
    method: options.SameMethod = None,
    rerank: options.Rerank = False,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Show the passages that fit a question best, by vectors and by keywords.

    Each has its score, document, page and section, and the best sentence highlighted. If none answers, that is said.
    """
    from eddy_demo.cli import work

    work.ask(question, library, k, (alpha, rerank), (model, method), device, as_json)


def demo(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Documents; Eddy's own handbook if left out.", show_default=False)
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option("--question", "-q", help="Instead of the three on the handbook.", show_default=False),
    ] = None,
    library: options.Library = options.DEFAULT_LIBRARY,
    k: options.Count = 2,
    model: options.Model = None,
    method: options.Method = None,
    fast: options.Fast = None,
    device: options.Device = None,
    rebuild: options.Rebuild = False,
) -> None:
    """Ingest the handbook and ask it three questions, or use documents and questions of your own."""
    from eddy_demo.cli import work

    work.demo(paths, question, library, k, (model, method, None, None, fast), device, rebuild)


def mcp(
    library: options.Library = options.DEFAULT_LIBRARY,
    http: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port of this machine, asked at /mcp; else stdin and stdout.", show_default=False
        ),
    ] = None,
    device: options.Device = None,
) -> None:
    """Let a client of the Model Context Protocol search the library and list its documents."""
    check_installed("mcp", "mcp")
    from eddy_demo.mcp import make_server

    server = make_server(library, device)
    if http is None:
        server.run()
    else:
        server.run("streamable-http", port=http)


def evaluate(
    queries: Annotated[
        Path,
        typer.Option(
            help='Rows {"text", "needle"} (.jsonl): a regular expression that what answers holds; with --qrels, rows '
            '{"id", "text"}.'
        ),
    ],
    qrels: Annotated[
        Path | None, typer.Option(help="Table: query-id, doc-id, score, separated by tabs: documents that answer.")
    ] = None,
    library: Annotated[
        list[Path] | None, typer.Option("--library", "-l", help="Folder of a library; may be repeated.")
    ] = None,
    rerank: options.Rerank = False,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Measure how often the search finds what answers, and how often the page quotes it.

    Compares the search of `ask` with vectors alone and keywords alone.
    """
    from eddy_demo.cli import work

    work.evaluate(queries, qrels, library or [options.DEFAULT_LIBRARY], rerank, device, as_json)
