"""`eddy-demo library`: what is in a library, and what is done to it as a whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from eddy_demo.cli import console
from eddy_demo.cli.options import DEFAULT_LIBRARY, DeviceOption, LibraryOption, ModelOption, err, out
from eddy_demo.display_text import printable
from eddy_demo.errors import NoLibrary
from eddy_demo.library.recipe import CHROMA, model_name, read_recipe

if TYPE_CHECKING:
    from chroma_eddy import Entry
    from eddy_demo.library.recipe import Recipe

app = typer.Typer(help="List, take out, or embed anew what a library holds.", no_args_is_help=True)
NewMethodOption = Annotated[
    str | None, typer.Option("--method", help="Another method; left out: the library's.", show_default=False)
]


@app.command("list")
def list_documents(
    library: LibraryOption = DEFAULT_LIBRARY,
    as_json: Annotated[bool, typer.Option("--json", help="Print the documents as JSON.")] = False,
) -> None:
    """Show the documents of a library, and what made its vectors."""
    recipe = read_recipe(library)
    entries = sorted(_entries(library).values(), key=lambda entry: str(entry.metadata["name"]))
    if as_json:
        typer.echo(json.dumps([_data(entry) for entry in entries], indent=2, ensure_ascii=False))
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
    library: LibraryOption = DEFAULT_LIBRARY,
) -> None:
    """Take documents out of a library; their files are not touched."""
    from eddy_demo.library.ingest import remove_documents
    from eddy_demo.library.library_lock import writing

    read_recipe(library)
    with writing(library):
        entries = _entries(library)
        chosen: dict[str, Entry] = {}
        for asked in documents:
            found = [entry for entry in entries.values() if asked in (entry.id, entry.metadata["name"])]
            if not found:
                raise NoLibrary(f"no document {asked!r} in {library}; `eddy-demo library list` shows those there are")
            if len(found) > 1:
                ids = ", ".join(entry.id for entry in found)
                raise NoLibrary(f"{len(found)} documents of {library} are called {asked!r}; name one by its id: {ids}")
            chosen[found[0].id] = found[0]
        remove_documents(library, chosen)
    names = ", ".join(printable(str(entry.metadata["name"])) for entry in chosen.values())
    err.print(Text(f"{library}: taken out: {names}."))


@app.command()
def reindex(
    library: LibraryOption = DEFAULT_LIBRARY,
    model: ModelOption = None,
    method: NewMethodOption = None,
    passage_size: Annotated[
        int | None, typer.Option(min=8, help="Most tokens in a passage; left out: as it was.", show_default=False)
    ] = None,
    device: DeviceOption = None,
) -> None:
    """Embed all documents again from their stored texts, with another model, method or passage size.

    Without any of them: with the method that measured best for the model, fitted on all that is there now. The library
    answers as before until the new one is whole; after an interruption, the same command goes on.
    """
    from eddy_demo.library.ingest import load_embedder
    from eddy_demo.library.library_lock import writing
    from eddy_demo.library.rebuild import rebuild

    recipe = _following(read_recipe(library), model, method, passage_size)
    with writing(library):
        entries = _entries(library)
        with err.status(f"Loading {recipe.model} with {recipe.method} …"):
            embedder = load_embedder(recipe, device)
        recipe = replace(recipe, late=recipe.late and embedder.reads_spans)
        characters = sum(entry.characters for entry in entries.values())
        with console.bar(err, characters, len(entries)) as progress:
            rebuild(library, recipe, embedder, progress)
    err.print(Text(f"{library}: made anew with {recipe.model}, {recipe.method}."))


def _following(stored: Recipe, model: str | None, method: str | None, passage_size: int | None) -> Recipe:
    from eddy_demo.library.defaults import METHOD, measured
    from eddy_embed import methods

    name = stored.model if model is None else model_name(model)
    if method is None:
        best = measured(name) if model is not None else stored.default
        found, default = best or (METHOD if model is not None else stored.method), best or ""
    else:
        found, default = str(methods.parse(method)), ""
    return replace(stored, model=name, method=found, default=default, passage_size=passage_size or stored.passage_size)


def _entries(library: Path) -> dict[str, Entry]:
    from chroma_eddy import NoIndex, open_index
    from eddy_demo.library.index import NAME

    try:
        with open_index(library / CHROMA, NAME) as index:
            return index.entries()
    except NoIndex:  # its first ingestion was interrupted before anything was written
        return {}


def _data(entry: Entry) -> dict[str, Any]:
    names = ("passages", "sentences", "tokens", "characters")
    counts = {name: getattr(entry, name) for name in names}
    pages = {"pages": len(entry.page_starts)} if entry.page_starts else {}
    return {"id": entry.id, **entry.metadata, **pages, **counts, "complete": entry.complete}
