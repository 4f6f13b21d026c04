"""`eddy-demo library`: list or remove documents, and rebuild a library. Help is shown without the work's imports."""

from __future__ import annotations

from typing import Annotated

import typer

from eddy_demo.cli import options

app = typer.Typer(help="List, remove, or embed again the documents of a library.", no_args_is_help=True)
NewMethod = Annotated[
    str | None, typer.Option("--method", help="Another method; left out: the library's.", show_default=False)
]


@app.command("list")
def list_documents(
    library: options.Library = options.DEFAULT_LIBRARY,
    as_json: Annotated[bool, typer.Option("--json", help="Print the documents as JSON.")] = False,
) -> None:
    """Show the documents of a library, its model and its method."""
    from eddy_demo.cli import library_work

    library_work.list_documents(library, as_json)


@app.command()
def remove(
    documents: Annotated[list[str], typer.Argument(help="Ids or names, as `eddy-demo library list` shows them.")],
    library: options.Library = options.DEFAULT_LIBRARY,
) -> None:
    """Remove documents from a library; their files stay."""
    from eddy_demo.cli import library_work

    library_work.remove(documents, library)


@app.command()
def reindex(
    library: options.Library = options.DEFAULT_LIBRARY,
    model: options.Model = None,
    method: NewMethod = None,
    passage_size: Annotated[
        int | None, typer.Option(min=8, help="Most tokens in a passage; left out: as it was.", show_default=False)
    ] = None,
    device: options.Device = None,
) -> None:
    """Embed all documents again from their stored texts, with another model, method or passage size.

    Without any of these options, a library made with a recommended method takes that again, fitted on all present
    documents. The library answers as before until all new vectors are written. After an interruption, the same command
    continues.
    """
    from eddy_demo.cli import library_work

    library_work.reindex(library, model, method, passage_size, device)
