"""A library: its choices, its lock, its index, and making it anew. One with a fast method may await a closer one.

After a kill, `library.json` and the index say what is left. The index in place answers in each of these states:

- No `library.json`: no library; the first ingestion was interrupted.
- `next` without a fingerprint: the library is to be read more closely, once it has a document.
- `next` with a fingerprint that is not the index's: making it anew was interrupted; it goes on with what is in the new
  index, or from the beginning if model or settings are others now.
- `next` with the index's fingerprint: the new index is in place; readers go by `next`, and the next writer makes that
  the settings.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chroma_eddy import Document, Index, NoIndex, StoredDocument, WriteReport, WriterLock, database, open_index, reindex
from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.settings import (
    DATABASE_FOLDER,
    DEFAULT_PASSAGE_SIZE,
    PLAN_OPTIONS,
    READ_FILE,
    SETTINGS,
    Choices,
    LibrarySettings,
    check_available,
    default_model,
    holds_library,
    method_in_full,
    model_name,
    read_settings,
    upload_path,
    write_settings,
)
from eddy_embed.errors import (
    FingerprintMismatch,
    IncompatibleMethods,
    InvalidParameter,
    InvalidText,
    NotFinite,
    TextTooLong,
    ZeroVector,
)
from eddy_embed.utils.atomic_files import sync
from readers_eddy.documents import SourceDocument

if TYPE_CHECKING:
    from eddy_embed import Embedder

INDEX_NAME = "library"
"""Name of the index in the database."""
_OF_A_TEXT = (InvalidText, NotFinite, TextTooLong, ZeroVector, MemoryError, RuntimeError)
"""Errors of embedding that another text may not have."""
Failures = dict[str, Exception]
"""Why documents could not be embedded, by their ids."""
Progress = Callable[[float, int], None]
"""Called with the number of characters embedded and of documents written so far."""
_MEASURED_SECONDS = 20.0
"""Time after which the speed is known."""


# --- Choices ---------------------------------------------------------------------------------------------------------


def choose_settings(folder: Path, choices: Choices) -> LibrarySettings:
    """Return the settings of the library in a folder, or those for a new one."""
    stored = current_settings(folder) if holds_library(folder) else None
    name = (default_model() if stored is None else stored.model) if choices.model is None else model_name(choices.model)
    method = None if choices.method is None else method_in_full(name, choices.method)
    if stored is None:
        check_available(folder)
        chosen = LibrarySettings(name, method or "", choices.passage_size or DEFAULT_PASSAGE_SIZE)
        return chosen if method else _recommended(chosen, choices.fast)
    _check(folder, stored, "model", name)
    _check(folder, stored, "method", method)
    _check(folder, stored, "passage_size", choices.passage_size)
    if choices.fast is None:
        return stored
    if stored.plan == "fast":
        return stored if stored.deepens and not choices.fast else _recommended(stored, True if choices.fast else None)
    _check(folder, stored, "method", method_in_full(stored.model, "fast" if choices.fast else "best"), choices.fast)
    return stored


def _recommended(settings: LibrarySettings, fast: bool | None) -> LibrarySettings:
    """Return settings with the recommended method: without layers, with them (False), or first without (None)."""
    quick, best = method_in_full(settings.model, "fast"), method_in_full(settings.model)
    closer = replace(settings, method=best, plan="best", next=None, fingerprint="")
    if fast is False or (fast is None and quick == best):
        return closer
    return replace(closer, method=quick, plan="fast", next=None if fast else closer)


def _check(folder: Path, stored: LibrarySettings, name: str, wanted: object, fast: bool | None = None) -> None:
    """Refuse a choice, if it is one (not None), that is not the library's."""
    here = getattr(stored, name)
    if wanted is not None and here != wanted:
        option = f"--{name.replace('_', '-')}" if fast is None else PLAN_OPTIONS[fast]
        given = option if fast is not None else f"{option} {wanted}"
        raise LibraryMismatch(
            f"the library in {folder} was made with {name.replace('_', ' ')} {here}, not {wanted}: leave out {option}, "
            f"ingest into another folder with --library, or change the library: `eddy-demo library rebuild {given}`"
        )


def change_plan(folder: Path, settings: LibrarySettings) -> None:
    """Store whether a library is to be read more closely; one that shall not be forgets an unfinished rebuild."""
    stored = read_settings(folder)
    if (stored.plan, stored.next) == (settings.plan, settings.next):
        return
    write_settings(folder, replace(stored, plan=settings.plan, next=settings.next, fingerprint=""))
    if settings.next is None:
        with suppress(NoIndex), open_stored(folder) as index:
            index.discard_rebuilt()


# --- The folder ------------------------------------------------------------------------------------------------------


@contextmanager
def lock_library(folder: Path, seconds: float = 2.0) -> Iterator[None]:
    """Lock a library, or the folder of a new one; the system releases the lock when this process ends.

    Wait `seconds` for another process, -1 without end; the default is enough for one that only removes a document.
    """
    if not holds_library(folder):
        check_available(folder)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    sync(folder.parent)
    try:
        with WriterLock(folder, timeout=seconds):
            yield
    finally:
        if is_new and not holds_library(folder):
            with suppress(OSError):  # another process has written there, or the disk is gone
                shutil.rmtree(folder / DATABASE_FOLDER, ignore_errors=True)  # an empty database
                for name in (database.LOCK, READ_FILE):
                    (folder / name).unlink(missing_ok=True)
                folder.rmdir()


# --- The index -------------------------------------------------------------------------------------------------------


def open_stored(folder: Path, *, texts_only: bool = False) -> Index:
    """Open the index of a library without its model; `texts_only`, also where its vectors are lost."""
    return open_index(folder / DATABASE_FOLDER, INDEX_NAME, texts_only=texts_only)


def current_settings(folder: Path) -> LibrarySettings:
    """Return the settings of the index that is in place."""
    stored = read_settings(folder)
    if stored.next is not None and stored.fingerprint:
        with suppress(NoIndex), open_stored(folder, texts_only=True) as index:
            return stored.next if _is_exchanged(index, stored) else stored
    return stored


def _is_exchanged(index: Index, stored: LibrarySettings) -> bool:
    """Whether an index is the one that a rebuild, with the `next` of the stored settings, was to make."""
    made = index.settings.fingerprint, index.settings.passage_size
    return stored.next is not None and made == (stored.fingerprint, stored.next.passage_size)


def finish_rebuild(folder: Path) -> None:
    """Write the settings of a rebuild whose index is in place already."""
    if holds_library(folder) and (settings := current_settings(folder)) != read_settings(folder):
        write_settings(folder, settings)


def open_library(folder: Path, embedder: Embedder, settings: LibrarySettings | None = None) -> Index:
    """Open the index of a library; without settings, by the stored ones."""
    settings = settings or current_settings(folder)
    try:
        return open_index(folder / DATABASE_FOLDER, INDEX_NAME, embedder, passage_size=settings.passage_size)
    except FingerprintMismatch as error:
        fields = "\n".join(line for line in str(error).splitlines() if line.startswith("  "))
        raise LibraryMismatch(
            f"the library in {folder} was made otherwise than {settings.model} with {settings.method} would make it "
            f"now: weights, tokenizer or settings changed since. Embed its texts again (eddy-demo library rebuild "
            f"--library {folder}), or ingest into another folder with --library\n{fields}"
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


def read_entries(folder: Path) -> dict[str, StoredDocument]:
    """Return the entries of a library's documents by id; none without a library or before its first document.

    Those whose writing was interrupted are not complete.
    """
    if not holds_library(folder):
        return {}
    with suppress(NoIndex), open_stored(folder) as index:
        interrupted = {*index.incomplete()}
        entries = index.entries()
        return entries | {id_: replace(entries[id_], digest="") for id_ in interrupted & entries.keys()}
    return {}


def remove_documents(folder: Path, keys: Iterable[str], *, erase: bool = False) -> None:
    """Remove documents, whose files stay; `erase` all removed texts from the library's files."""
    keys = list(keys)
    with open_stored(folder) as index:
        if erase and index.status().rebuilt is not None:
            if not read_settings(folder).deepens:
                raise LibraryMismatch(
                    f"the library in {folder} is being made anew, and the unfinished one holds the texts too: finish "
                    "it (eddy-demo library rebuild, with the same options) before you erase texts"
                )
            index.discard_rebuilt()
        index.remove(keys, erase=erase)


def delete_upload(folder: Path, origin: str) -> None:
    """Delete the file of an uploaded document; nothing else deletes a document's file, and this no other."""
    if (file := upload_path(folder, origin)) is not None and file.exists():
        file.unlink(missing_ok=True)
        sync(file.parent)


def ingest(
    folder: Path, settings: LibrarySettings, embedder: Embedder, documents: Sequence[Document], progress: Progress
) -> tuple[WriteReport, Failures]:
    """Embed documents and write them, each completely or not at all; a failed call begins no library.

    A text that cannot be embedded holds up no other: its error is returned, and those after it are written one by one.
    """
    with open_library(folder, embedder, settings) as index:
        if not holds_library(folder):
            write_settings(folder, settings)  # before any row: without settings, rows would belong to no library
        try:
            return _write(index, documents, progress)
        finally:
            if index.was_absent:  # and nothing has been written since: the next ingestion may choose other settings
                (folder / SETTINGS).unlink(missing_ok=True)


def _write(index: Index, documents: Sequence[Document], progress: Progress) -> tuple[WriteReport, Failures]:
    try:
        return index.upsert(documents, progress), {}
    except _OF_A_TEXT as error:
        if len(documents) == 1:
            return WriteReport(), {documents[0].id: error}
    whole, failures, done = WriteReport(), Failures(), 0
    for document in documents:

        def report(characters: float, _: int, done: int = done) -> None:
            progress(done + characters, 0)

        part, failed = _write(index, [document], report)
        failures |= failed
        done += len(document.text)
        whole.written += part.written + part.unchanged  # by the call that failed
        for name in ("relabelled", "passages", "sentences", "tokens", "truncated"):
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
    return whole, failures


# --- Made anew, or read more closely ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RebuildProgress:
    """How far a rebuild is."""

    tokens: int = 0  # of all documents
    waiting: int = 0  # number of characters of the documents that are not rebuilt yet
    done: float = 0.0  # share of the tokens that is embedded, 0 to 1
    total: int = 0  # number of documents
    written: int = 0  # number of them that are written
    left: float | None = None  # seconds that it will still take; None until the speed is known


Report = Callable[[RebuildProgress], None]


def next_settings(stored: LibrarySettings, choices: Choices) -> LibrarySettings:
    """Return the settings of a rebuild; None leaves the choice to the library, or for the method to the model.

    Of a library that is to be read more closely, they are those with the model's layers.
    """
    name = stored.model if choices.model is None else model_name(choices.model)
    size = choices.passage_size or stored.passage_size
    sized = replace(stored, model=name, passage_size=size, next=None, fingerprint="")
    if choices.method is not None or (choices.model, choices.fast, stored.plan) == (None, None, "chosen"):
        return replace(sized, method=method_in_full(name, choices.method or stored.method), plan="chosen")
    stays_fast = stored.plan == "fast" and (stored.next is None or stored.next.plan == "fast")
    plan: Literal["best", "fast"] = "fast" if choices.fast or (choices.fast is None and stays_fast) else "best"
    return replace(sized, method=method_in_full(name, plan), plan=plan)


def read_progress(folder: Path, restart: bool = False) -> RebuildProgress:
    """Read how far a rebuild is, which may be in progress in another process; `restart`: as before its beginning."""
    try:
        with open_stored(folder, texts_only=True) as index:
            entries = {id_: entry for id_, entry in index.entries().items() if entry.digest}
            rebuilt = {} if restart else index.read(index.rebuilt)
    except NoIndex:
        return RebuildProgress()
    waiting = [entry for id_, entry in entries.items() if id_ not in rebuilt or rebuilt[id_].digest != entry.digest]
    tokens = sum(entry.tokens for entry in entries.values())
    return RebuildProgress(
        tokens=tokens,
        waiting=sum(entry.characters for entry in waiting),
        done=1 - sum(entry.tokens for entry in waiting) / tokens if tokens else 0.0,
        total=len(entries),
        written=len(entries) - len(waiting),
    )


def rebuild_library(
    folder: Path, settings: LibrarySettings, embedder: Embedder, report: Report = lambda _: None
) -> None:
    """Embed the stored texts again: read a library more closely, or make it anew; call it again after an interruption.

    The library answers from its old vectors until all new ones are written. The caller must hold the lock of the
    library. An error that a retry would meet again leaves no unfinished rebuild behind.
    """
    stored, current = read_settings(folder), current_settings(folder)
    if current != stored:  # the index is exchanged already
        write_settings(folder, current)
        if (current, stored.fingerprint) == (settings, embedder.fingerprint):
            return
        stored = current
    restart = (stored.next, stored.fingerprint) != (settings, embedder.fingerprint)
    before, began = read_progress(folder, restart), time.monotonic()

    def progress(characters: float, written: int) -> None:
        share = min(characters / max(before.waiting, 1), 1.0) * (1 - before.done)
        done, seconds = before.done + share, time.monotonic() - began
        left = seconds * (1 - done) / share if share and seconds >= _MEASURED_SECONDS else None
        report(replace(before, done=done, written=before.written + written, left=left))

    write_settings(folder, replace(stored, next=settings, fingerprint=embedder.fingerprint))
    try:
        reindex(
            folder / DATABASE_FOLDER,
            INDEX_NAME,
            embedder,
            passage_size=settings.passage_size,
            restart=restart,
            progress=progress,
        )
    except (InvalidParameter, IncompatibleMethods, NotFinite, ZeroVector, NoIndex):  # a retry would fail again
        write_settings(folder, replace(stored, next=stored.next if stored.deepens else None, fingerprint=""))
        raise
    write_settings(folder, settings)
