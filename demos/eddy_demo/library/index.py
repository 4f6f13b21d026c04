"""A folder that holds documents' vectors, and remembers what its user chose for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chroma_eddy import Document as Stored
from chroma_eddy import Index, open_index
from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.recipe import CHROMA, Recipe, read_recipe
from eddy_embed.errors import FingerprintMismatch

if TYPE_CHECKING:
    from eddy_demo.readers.documents import Document
    from eddy_embed import Embedder

NAME = "library"
"""Of the index in the folder."""


def open_library(folder: Path, embedder: Embedder, recipe: Recipe | None = None) -> Index:
    """The index of a library, or of the place for a new one.

    Args:
        folder: Of the library.
        embedder: As its recipe names it.
        recipe: Of a new library; None: there is one.

    Raises:
        NoLibrary: The folder has none.
        LibraryMismatch: It was made with other weights or settings.
    """
    recipe = recipe or read_recipe(folder)
    try:
        return open_index(folder / CHROMA, NAME, embedder, passage_size=recipe.passage_size, late=recipe.late)
    except FingerprintMismatch as error:
        fields = "\n".join(line for line in str(error).splitlines() if line.startswith("  "))
        raise LibraryMismatch(
            f"the library in {folder} was made otherwise than {recipe.model} with {recipe.method} would make it now: "
            "weights, tokenizer or settings changed since. Make the library anew (eddy-demo ingest PATH --rebuild), or "
            f"ingest into another folder with --library\n{fields}"
        ) from None


def stored(document: Document) -> Stored:
    """A document as the index takes it."""
    origin = document.origin.encode("utf-8", "replace").decode()
    metadata = {"name": document.name, "title": document.title, "origin": origin}
    return Stored(document.key, document.text, metadata, document.page_starts)


def names_of(index: Index, accept: Callable[[bool], bool]) -> list[str]:
    """Names of the documents whose writing was interrupted, by whether an earlier version of them is found."""
    entries = index.incomplete().values()
    return [entry.metadata["name"] for entry in entries if accept(bool(entry.digest))]


def passage_texts(index: Index) -> Sequence[str]:
    """The texts of all passages."""
    return index.collection.get(include=["documents"])["documents"] or []
