"""The index inside a library's folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from chroma_eddy import Document, Index, NoIndex, StoredDocument, open_index
from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.settings import (
    DATABASE_FOLDER,
    LibrarySettings,
    holds_library,
    read_next_settings,
    read_settings,
)
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch
from readers_eddy.documents import SourceDocument

INDEX_NAME = "library"
"""Name of the index in the database."""


def open_stored(folder: Path, *, texts_only: bool = False) -> Index:
    """Open the index of a library without its model; `texts_only`, also where its vectors are lost."""
    return open_index(folder / DATABASE_FOLDER, INDEX_NAME, texts_only=texts_only)


def is_exchanged(index: Index, following: LibrarySettings | None, fingerprint: str) -> bool:
    """Whether an index is the one that a rebuild, of these settings and vectors, was to make."""
    made = index.settings
    return (
        following is not None
        and (made.fingerprint, made.passage_size) == (fingerprint, following.passage_size)
        and following.late in (None, made.late)
    )


def exchanged_settings(folder: Path) -> LibrarySettings | None:
    """Return the settings of a rebuild whose index is in place, and whose settings are not; None if there is none."""
    following, fingerprint = read_next_settings(folder)
    if following is not None:
        with suppress(NoIndex), open_stored(folder, texts_only=True) as index:
            return following if is_exchanged(index, following, fingerprint) else None
    return None


def current_settings(folder: Path) -> LibrarySettings:
    """Return the settings of the index that is in place."""
    return exchanged_settings(folder) or read_settings(folder)


def open_library(folder: Path, embedder: Embedder, settings: LibrarySettings | None = None) -> Index:
    """Open the index of a library; without settings, by the stored ones."""
    settings = settings or current_settings(folder)
    try:
        return open_index(
            folder / DATABASE_FOLDER,
            INDEX_NAME,
            embedder,
            passage_size=settings.passage_size,
            late=settings.late,
        )
    except FingerprintMismatch as error:
        fields = "\n".join(line for line in str(error).splitlines() if line.startswith("  "))
        raise LibraryMismatch(
            f"the library in {folder} was made otherwise than {settings.model} with {settings.method} would make it "
            "now: weights, tokenizer or settings changed since. Make the library anew (eddy-demo ingest PATH "
            f"--rebuild), or ingest into another folder with --library\n{fields}"
        ) from None


def to_index_document(document: SourceDocument) -> Document:
    """Convert a document to one of the index."""
    origin = document.origin.encode("utf-8", "replace").decode()
    metadata = {"name": document.name, "title": document.title, "origin": origin}
    if document.file_digest:
        metadata["file_digest"] = document.file_digest
    return Document(
        document.key, document.text, metadata, document.page_starts, document.page_labels, document.left_out
    )


def read_entries(folder: Path, *, whole: bool = False) -> dict[str, StoredDocument]:
    """Return the entries of a library's documents by id; none without a library or before its first document.

    `whole` leaves out documents whose writing was interrupted.
    """
    if not holds_library(folder):
        return {}
    try:
        with open_stored(folder) as index:
            interrupted = index.incomplete() if whole else ()
            return {id_: entry for id_, entry in index.entries().items() if id_ not in interrupted}
    except NoIndex:
        return {}
