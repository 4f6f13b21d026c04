"""What `eddy-demo library` does; this imports torch and Chroma."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from chroma_eddy import DocumentRow
from eddy_demo.cli import console
from eddy_demo.cli.options import err, out
from eddy_demo.display_text import printable
from eddy_demo.errors import NoLibrary
from eddy_demo.library.defaults import default_method, method_in_full
from eddy_demo.library.index import read_entries
from eddy_demo.library.ingest import load_embedder, remove_documents
from eddy_demo.library.library_lock import lock_for_command
from eddy_demo.library.rebuild import rebuild_library
from eddy_demo.library.recipe import LibraryRecipe, model_name, read_recipe


def list_documents(library: Path, as_json: bool) -> None:
    """Print the documents of a library."""
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


def remove(documents: list[str], library: Path) -> None:
    """Remove documents from a library."""
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


def reindex(library: Path, model: str | None, method: str | None, passage_size: int | None, device: str | None) -> None:
    """Embed all documents again."""
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
