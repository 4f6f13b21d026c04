"""`eddy-demo library`: list or remove documents, and rebuild a library."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from chroma_eddy import DocumentRow
from eddy_demo.cli import console, options
from eddy_demo.cli.options import err, out
from eddy_demo.display_text import printable
from eddy_demo.errors import NoLibrary
from eddy_demo.library.defaults import default_method, method_in_full
from eddy_demo.library.index import read_entries
from eddy_demo.library.ingest import load_embedder, remove_documents
from eddy_demo.library.library_lock import lock_for_command
from eddy_demo.library.rebuild import rebuild_library
from eddy_demo.library.recipe import LibraryRecipe, model_name, read_recipe

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
    recipe = read_recipe(library)
    entries = sorted(read_entries(library).values(), key=lambda entry: str(entry.metadata["name"]))
    if as_json:
        typer.echo(json.dumps([_entry_data(entry) for entry in entries], indent=2, ensure_ascii=False))
        return
    table = Table(title=f"{library}: {recipe.model} with {recipe.method}", title_justify="left")
    table.add_column("id")
    table.add_column("document", overflow="fold")
    for column in ("pages", "passages", "tokens"):
        table.add_column(column, justify="right")
    for entry in entries:
        name = Text(printable(str(entry.metadata["name"])))
        if not entry.complete:
            name.append("  writing it was interrupted: ingest it again", "yellow")
        pages = str(len(entry.page_starts)) if entry.page_starts else ""
        table.add_row(entry.id, name, pages, f"{entry.passages:,}", f"{entry.tokens:,}")
    out.print(table)


@app.command()
def remove(
    documents: Annotated[list[str], typer.Argument(help="Ids or names, as `eddy-demo library list` shows them.")],
    library: options.Library = options.DEFAULT_LIBRARY,
) -> None:
    """Remove documents from a library; their files stay."""
    read_recipe(library)
    with lock_for_command(library):
        entries = read_entries(library)
        chosen: dict[str, DocumentRow] = {}
        for wanted in documents:
            found = [entry for entry in entries.values() if wanted in (entry.id, entry.metadata["name"])]
            if not found:
                raise NoLibrary(f"no document {wanted!r} in {library}; `eddy-demo library list` shows those there are")
            if len(found) > 1:
                ids = ", ".join(entry.id for entry in found)
                raise NoLibrary(f"{len(found)} documents of {library} are called {wanted!r}; name one by its id: {ids}")
            chosen[found[0].id] = found[0]
        remove_documents(library, chosen)
    names = ", ".join(printable(str(entry.metadata["name"])) for entry in chosen.values())
    err.print(Text(f"{library}: taken out: {names}."))


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
    recipe = _next_recipe(read_recipe(library), model, method, passage_size)
    with lock_for_command(library):
        entries = read_entries(library)
        with err.status(f"Loading {recipe.model} with {recipe.method} …"):
            embedder = load_embedder(recipe, device)
        recipe = replace(recipe, late=recipe.late and embedder.reads_spans)
        characters = sum(entry.characters for entry in entries.values())
        with console.progress_bar(err, characters, len(entries)) as progress:
            rebuild_library(library, recipe, embedder, progress)
    err.print(Text(f"{library}: made anew with {recipe.model}, {recipe.method}."))


def _next_recipe(
    stored: LibraryRecipe, model: str | None, method: str | None, passage_size: int | None
) -> LibraryRecipe:
    name = stored.model if model is None else model_name(model)
    if method is None:
        default = stored.default if model is None else default_method(name)
        chosen = default or stored.method
    else:
        chosen, default = method_in_full(name, method), ""
    return replace(stored, model=name, method=chosen, default=default, passage_size=passage_size or stored.passage_size)


def _entry_data(entry: DocumentRow) -> dict[str, Any]:
    counts = {name: getattr(entry, name) for name in ("passages", "sentences", "tokens", "characters")}
    pages = {"pages": len(entry.page_starts)} if entry.page_starts else {}
    return {"id": entry.id, **entry.metadata, **pages, **counts, "complete": entry.complete}
