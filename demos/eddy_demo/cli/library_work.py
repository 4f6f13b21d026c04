"""What `eddy-demo library` does; this imports torch and Chroma."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from chroma_eddy import StoredDocument
from eddy_demo.cli import console
from eddy_demo.cli.embedding_work import rebuild
from eddy_demo.cli.lock import lock_for_command
from eddy_demo.cli.options import err, out
from eddy_demo.display_text import printable
from eddy_demo.errors import DamagedLibrary, NoLibrary
from eddy_demo.library.copies import copy_library, restore_library
from eddy_demo.library.index import current_settings, open_stored, read_entries
from eddy_demo.library.ingest import remove_documents
from eddy_demo.library.rebuild import next_settings, read_state
from eddy_demo.library.settings import LibrarySettings, read_settings


def list_documents(library: Path, as_json: bool) -> None:
    """Print the documents of a library."""
    settings = current_settings(library)
    entries = sorted(read_entries(library).values(), key=lambda entry: str(entry.metadata["name"]))
    if as_json:
        typer.echo(json.dumps([_entry_data(entry) for entry in entries], indent=2, ensure_ascii=False))
        return
    title = f"{library}: {settings.model} with {settings.method}{_plan(library, settings)}"
    table = Table(title=title, title_justify="left")
    table.add_column("id")
    table.add_column("document", overflow="fold")
    for column in ("pages", "passages", "tokens"):
        table.add_column(column, justify="right")
    for entry in entries:
        name = Text(printable(str(entry.metadata["name"])))
        if not entry.complete:
            name.append("  damaged: ingest it again", "yellow")
        pages = str(len(entry.page_starts)) if entry.page_starts else ""
        table.add_row(entry.id, name, pages, f"{entry.passages:,}", f"{entry.tokens:,}")
    out.print(table)


def remove(documents: list[str], library: Path, erase: bool) -> None:
    """Remove documents from a library."""
    read_settings(library)
    if not (documents or erase):
        raise NoLibrary("name a document; `eddy-demo library list` shows those there are")
    with lock_for_command(library):
        entries = read_entries(library)
        chosen: dict[str, StoredDocument] = {}
        for wanted in documents:
            found = [entry for entry in entries.values() if wanted in (entry.id, entry.metadata["name"])]
            if not found:
                raise NoLibrary(f"no document {wanted!r} in {library}; `eddy-demo library list` shows those there are")
            if len(found) > 1:
                ids = ", ".join(entry.id for entry in found)
                raise NoLibrary(f"{len(found)} documents of {library} are called {wanted!r}; name one by its id: {ids}")
            chosen[found[0].id] = found[0]
        remove_documents(library, chosen, erase=erase)
    names = ", ".join(printable(str(entry.metadata["name"])) for entry in chosen.values())
    err.print(Text(f"{library}: {f'taken out: {names}' if names else 'removed texts are erased'}."))


def rebuild_with(library: Path, choices: tuple[Any, ...], device: str | None) -> None:
    """Embed all documents again; `choices` are arguments of `next_settings`. Without any, go on with a rebuild."""
    next_settings(read_settings(library), *choices)  # refuses wrong ones before it waits
    with lock_for_command(library):
        state = read_state(library)
        settings = next_settings(current_settings(library), *choices)
        if state.unfinished is not None and not any(choice is not None for choice in choices):
            settings = state.unfinished
        rebuild(library, settings, device, state)
    err.print(Text(f"{library}: made anew with {settings.model}, {settings.method}."))


def check(library: Path, full: bool) -> None:
    """Mend vectors, and print the problem of each damaged document; exit with status 1 if there is one."""
    read_settings(library)
    with lock_for_command(library), open_stored(library) as index:
        with err.status("Checking …"):
            problems = index.check(full=full)
        entries = index.entries()
    if not problems:
        err.print(Text(f"{library}: no damage in {console.pluralize(len(entries), 'document')}."))
        return
    for id_, problem in problems.items():
        name = str(entries[id_].metadata["name"]) if id_ in entries else id_
        err.print(Text(f"{printable(name)}: {problem}", "yellow"))
    raise DamagedLibrary(
        f"damaged in {library}: {console.pluralize(len(problems), 'document')}; ingest them again, or put back a "
        "snapshot with `eddy-demo library restore`"
    )


def snapshot(target: Path, library: Path) -> None:
    """Copy a library."""
    with lock_for_command(library) if os.access(library, os.W_OK) else nullcontext():
        copy_library(library, target)
    err.print(Text(f"{library}: copied to {target}."))


def restore(source: Path, library: Path) -> None:
    """Replace a library by a copy of another one."""
    with lock_for_command(library):
        restore_library(library, source)
    err.print(Text(f"{library}: replaced by a copy of {source}."))


def _plan(library: Path, settings: LibrarySettings) -> str:
    state = read_state(library)
    done = f"{state.progress.done:.0%}"
    if settings.plan == "deepen":
        return f" (fast; {done} read more closely, which `eddy-demo ingest` continues)"
    notes = [str(settings.plan)] if settings.plan != "chosen" else []
    if state.unfinished is not None and not state.exchanged:
        new = f"{state.unfinished.model}, {state.unfinished.method}"
        notes.append(f"{done} made anew with {new}, which `eddy-demo library rebuild` continues")
    return f" ({'; '.join(notes)})" if notes else ""


def _entry_data(entry: StoredDocument) -> dict[str, Any]:
    counts = {name: getattr(entry, name) for name in ("passages", "sentences", "tokens", "characters")}
    pages = {"pages": len(entry.page_starts)} if entry.page_starts else {}
    return {"id": entry.id, **entry.metadata, **pages, **counts, "complete": entry.complete}
