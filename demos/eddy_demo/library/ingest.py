"""Embed new and changed documents and write them to a library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chroma_eddy import Index
from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.index import open_library, open_stored, read_entries, to_index_document
from eddy_demo.library.settings import LibrarySettings, original_path, write_settings
from eddy_demo.readers.documents import ReadResult, SourceDocument
from eddy_embed import Embedder

MIN_FIT_PASSAGES = 50
"""Number of different passages below which post-processing would fit the sample rather than the library."""

Progress = Callable[[float, int], None]
"""Called with the number of characters embedded and of documents written so far."""


@dataclass(frozen=True)
class IngestSummary:
    """Result of an ingestion."""

    embedder: Embedder  # with fitted post-processing if its method has any
    written: int
    passages: int
    tokens: int  # without prompts and placeholders
    fitted_on: int  # number of sentences that this ingestion fitted post-processing on
    unfitted: int  # number of different passages, up to MIN_FIT_PASSAGES, if they lack the default post-processing


def changed_documents(folder: Path, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
    """Return the documents that the library lacks, has incompletely, or has in another version."""
    known = read_entries(folder)
    return [
        document
        for document in documents
        if (entry := known.get(document.key)) is None
        or entry.pending
        or entry.digest != to_index_document(document).digest
    ]


def missing_documents(folder: Path, paths: Sequence[Path], result: ReadResult) -> dict[str, str]:
    """Return ids and names of the library's documents from these paths whose files, or rows, no longer exist."""
    roots = [Path(os.path.realpath(path)).as_posix() for path in paths]
    read = {document.key for document in result.documents}
    missing = {}
    for key, entry in read_entries(folder).items():
        origin = entry.metadata["origin"]
        ours = any(origin == root or origin.startswith((f"{root}/", f"{root}#")) for root in roots)
        unread = result.skipped and Path(origin.rpartition("#")[0]).is_file()
        if key not in read and ours and not Path(origin).exists() and not unread:
            missing[key] = entry.metadata["name"]
    return missing


def remove_documents(folder: Path, keys: Iterable[str], *, erase: bool = False) -> None:
    """Remove documents, and the uploaded PDF files of theirs; `erase` all removed texts from the library's files."""
    keys = list(keys)
    with open_stored(folder) as index:
        if erase and index.status().rebuilt is not None:
            raise LibraryMismatch(
                f"the library in {folder} is being made anew, and the unfinished one holds the texts too: finish it "
                "(eddy-demo library reindex, with the same options) before you erase texts"
            )
        for key in keys:  # before their documents, since nobody could name those again if this failed
            original_path(folder, key).unlink(missing_ok=True)
        index.remove(keys, erase=erase)


def ingest(
    folder: Path,
    settings: LibrarySettings,
    embedder: Embedder,
    documents: Sequence[SourceDocument],
    progress: Progress,
) -> IngestSummary:
    """Embed documents and write them, each completely or not at all."""

    def begin(index: Index) -> None:
        # Before any row: without settings, rows would belong to no library.
        write_settings(folder, replace(settings, method=str(index.embedder.method)))

    with open_library(folder, embedder, settings) as index:
        # The default method may lack its post-processing: vectors without it are worse, but valid.
        least = MIN_FIT_PASSAGES if settings.default else 0
        report = index.upsert(map(to_index_document, documents), progress, fit_least=least, begin=begin)
        unfitted = 0
        if settings.default not in ("", str(index.embedder.method)):
            texts = index.collection.get(include=["documents"])["documents"] or []
            unfitted = min(len(set(texts)), MIN_FIT_PASSAGES)
        written = report.written + report.relabelled
        return IngestSummary(index.embedder, written, report.passages, report.tokens, report.fitted_on, unfitted)
