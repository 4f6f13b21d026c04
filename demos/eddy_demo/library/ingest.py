"""Embed new and changed documents and write them to a library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from chroma_eddy import Index, WriteReport
from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.index import open_library, open_stored, read_entries, to_index_document
from eddy_demo.library.settings import (
    LibrarySettings,
    forget_settings,
    holds_library,
    original_path,
    read_settings,
    write_settings,
)
from eddy_embed import Embedder
from eddy_embed.errors import InvalidText, NotFinite, TextTooLong, ZeroVector
from readers_eddy.documents import ReadResult, SourceDocument

_OF_A_TEXT = (InvalidText, NotFinite, TextTooLong, ZeroVector, MemoryError, RuntimeError)
"""Errors of embedding that another text may not have."""
Failures = dict[str, Exception]
"""Why documents could not be embedded, by their ids."""
Progress = Callable[[float, int], None]
"""Called with the number of characters embedded and of documents written so far."""


def changed_documents(folder: Path, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
    """Return the documents that the library lacks, has incompletely, or has in another version."""
    known = {id_: entry.digest for id_, entry in read_entries(folder, whole=True).items()}
    return [document for document in documents if known.get(document.key) != to_index_document(document).digest]


def missing_documents(folder: Path, paths: Sequence[Path], result: ReadResult) -> dict[str, str]:
    """Return ids and names of the library's documents from these paths whose files, or rows, no longer exist."""
    roots = [Path(os.path.realpath(path)).as_posix() for path in paths]
    read = {document.key for document in result.documents}
    missing = {}
    for key, entry in read_entries(folder).items():
        origin = entry.metadata["origin"]
        ours = any(origin == root or origin.startswith((f"{root}/", f"{root}#")) for root in roots)
        file = origin.rpartition("#")[0]
        unread = (result.skipped or file in result.unchanged or file in result.deferred) and Path(file).is_file()
        if key not in read and ours and not Path(origin).exists() and not unread:
            missing[key] = entry.metadata["name"]
    return missing


def remove_documents(folder: Path, keys: Iterable[str], *, erase: bool = False) -> None:
    """Remove documents, and the uploaded PDF files of theirs; `erase` all removed texts from the library's files."""
    keys = list(keys)
    with open_stored(folder) as index:
        if erase and index.status().rebuilt is not None:
            if read_settings(folder).plan != "deepen":
                raise LibraryMismatch(
                    f"the library in {folder} is being made anew, and the unfinished one holds the texts too: finish "
                    "it (eddy-demo library rebuild, with the same options) before you erase texts"
                )
            index.discard_rebuilt()
        for key in keys:  # before their documents, since nobody could name those again if this failed
            original_path(folder, key).unlink(missing_ok=True)
        index.remove(keys, erase=erase)


def ingest(
    folder: Path,
    settings: LibrarySettings,
    embedder: Embedder,
    documents: Sequence[SourceDocument],
    progress: Progress,
) -> tuple[WriteReport, Failures]:
    """Embed documents and write them, each completely or not at all; a failed call begins no library.

    A text that cannot be embedded holds up no other: its error is returned, and those after it are written one by one.
    """
    with open_library(folder, embedder, settings) as index:
        if not holds_library(folder):
            write_settings(folder, settings)  # before any row: without settings, rows would belong to no library
        try:
            report, failed = _write(index, documents, progress)
        except BaseException:
            if index.was_absent:  # and nothing has been written since
                forget_settings(folder)
            raise
        if index.was_absent:
            forget_settings(folder)
        return report, failed


def _write(index: Index, documents: Sequence[SourceDocument], progress: Progress) -> tuple[WriteReport, Failures]:
    try:
        return index.upsert(map(to_index_document, documents), progress), {}
    except _OF_A_TEXT as error:
        if len(documents) == 1:
            return WriteReport(), {documents[0].key: error}
    whole, failures, done = WriteReport(), Failures(), 0
    for document in documents:

        def report(characters: float, _: int, done: int = done) -> None:
            progress(done + characters, 0)

        own, failed = _write(index, [document], report)
        failures |= failed
        done += len(document.text)
        whole.written += own.written + own.unchanged  # by the call that failed
        for name in ("relabelled", "passages", "sentences", "tokens", "truncated"):
            setattr(whole, name, getattr(whole, name) + getattr(own, name))
    return whole, failures
