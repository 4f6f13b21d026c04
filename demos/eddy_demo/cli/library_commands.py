"""`eddy-demo library`: list or remove documents; rebuild, check or copy a library. Help imports no work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eddy_demo.cli import options

app = typer.Typer(help="List, remove, embed again, check or back up the documents of a library.", no_args_is_help=True)
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
    documents: Annotated[
        list[str] | None, typer.Argument(help="Ids or names, as `eddy-demo library list` shows them.")
    ] = None,
    library: options.Library = options.DEFAULT_LIBRARY,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase the texts of all documents removed so far from the library's files.")
    ] = False,
) -> None:
    """Remove documents from a library; the files that they were read from stay."""
    from eddy_demo.cli import library_work

    library_work.remove(documents or [], library, erase)


@app.command()
def rebuild(
    library: options.Library = options.DEFAULT_LIBRARY,
    model: options.Model = None,
    method: NewMethod = None,
    fast: Annotated[
        bool | None,
        typer.Option(
            "--fast/--best",
            help="What is recommended without the model's layers, or with them; left out: as it was.",
            show_default=False,
        ),
    ] = None,
    passage_size: Annotated[
        int | None, typer.Option(min=8, help="Most tokens in a passage; left out: as it was.", show_default=False)
    ] = None,
    device: options.Device = None,
) -> None:
    """Change the model, method or passage size: embed all documents again from their stored texts.

    A library that an earlier version wrote needs it once. Without a method, one made with a recommended method takes
    what is recommended now. The library answers as before until all new vectors are written. After an interruption, the
    same command continues.
    """
    from eddy_demo.cli import library_work

    library_work.rebuild_with(library, (model, method, passage_size, fast), device)


@app.command()
def check(
    library: options.Library = options.DEFAULT_LIBRARY,
    full: Annotated[bool, typer.Option("--full", help="Search for all vectors, not for a sample.")] = False,
) -> None:
    """Find damaged texts, and mend damaged vectors.

    Reads all texts, and searches for a sample of the vectors by themselves. Each vector is in two places, and damaged
    ones are put back from the other place.
    """
    from eddy_demo.cli import library_work

    library_work.check(library, full)


@app.command()
def snapshot(
    target: Annotated[Path, typer.Argument(help="A new folder.")], library: options.Library = options.DEFAULT_LIBRARY
) -> None:
    """Copy a library to a new folder, which is a library too; others may ask it meanwhile."""
    from eddy_demo.cli import library_work

    library_work.snapshot(target, library)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="A folder that `snapshot` made, or another library.")],
    library: options.Library = options.DEFAULT_LIBRARY,
) -> None:
    """Replace a library, whole or damaged, by a snapshot of it."""
    from eddy_demo.cli import library_work

    library_work.restore(source, library)
