"""Read access to the library: its model, its documents, and cosines with a question."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy import Index, StoredDocument
from eddy_demo.display_text import model_label, printable
from eddy_demo.errors import DemoError, LibraryMismatch, error_message
from eddy_demo.library.library import choose_settings, current_settings, open_library
from eddy_demo.library.settings import DATABASE_FOLDER, Choices, LibrarySettings, holds_library
from eddy_demo.web.answers.write import Generator
from eddy_demo.web.http import ChangeSignal
from eddy_embed import Embedder, Reranker
from eddy_embed.encoding.document import LongDocument
from eddy_embed.errors import FingerprintMismatch
from eddy_embed.utils.arrays import Floats

T = TypeVar("T")
_CACHED_DOCUMENTS = 4
"""Number of documents whose vectors stay in memory."""
_REPLACED = (NotFoundError, FingerprintMismatch, LibraryMismatch)
"""Errors of reading an index after another one has taken its place."""


@dataclass(frozen=True)
class LibraryOptions:
    """Options of the command line; None leaves a choice open."""

    folder: Path
    model: str | None = None
    method: str | None = None
    device: str | None = None
    generate: bool | None = None  # whether the same model also writes answers; None: if it writes well


@dataclass(frozen=True, eq=False)
class LibraryDocument:
    """A document of the library with the vectors of its parts."""

    entry: StoredDocument
    content: LongDocument
    embedder: Embedder  # made the vectors

    @property
    def name(self) -> str:
        """File name."""
        return printable(str(self.entry.metadata.get("name", self.entry.id)))

    @property
    def drawn(self) -> bool:
        """Whether its pages can be drawn."""
        return bool(self.entry.page_starts) and is_drawn(self.entry.metadata)

    @property
    def title(self) -> str:
        """Title, "" without one."""
        return printable(str(self.entry.metadata.get("title", "")))

    def cosines(self, question: str, spans: Sequence[Any]) -> Floats:
        """Cosines of a question with parts of the document, shape (len(spans),)."""
        if not spans:
            return np.zeros(0, np.float32)
        vector = self.embedder.encode_query(question, show_progress=False)
        vectors = np.stack([np.asarray(span.vector, np.float32) for span in spans])
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
        return np.asarray(vectors @ vector / np.where(norms > 0, norms, 1), np.float32)


class LibraryReader:
    """The library that the page shows. Any thread may read; only the writing thread calls `load`."""

    def __init__(self, options: LibraryOptions, changes: ChangeSignal) -> None:
        self.options, self._changes = options, changes
        self.folder = options.folder
        self.settings = LibrarySettings("", "")
        self.generator: Generator | None = None
        self.version = 0  # changes with every change of the library
        self.error = ""  # why the model cannot be loaded, or the library not be opened
        self._embedder: Embedder | None = None
        self._next: tuple[LibrarySettings, Generator | None, Embedder] | None = None  # of a rebuild in progress
        self._reranker = lru_cache(maxsize=1)(self._new_reranker)
        self.index: Index | None = None  # None while there is none
        self._previous_index: Index | None = None
        self._embedded = lru_cache(_CACHED_DOCUMENTS)(lambda index, key, digest: index.embedded(key))
        self._database_id: int | None = None
        self._write_mark = ""
        self._open_lock = threading.RLock()
        self._loaded = threading.Event()

    # --- Loading, by the writing thread

    def load(self) -> None:
        """Load the model, and open the library if there is one; an error is for those who `wait`."""
        options = self.options
        try:
            self.settings = choose_settings(options.folder, Choices(options.model, options.method))
            self.generator, self._embedder = self._models(self.settings)
            self.open()
        except Exception as error:
            self.error = error_message(error)
        self._loaded.set()

    def _models(self, settings: LibrarySettings) -> tuple[Generator | None, Embedder]:
        """Return what writes, if it shall, and what embeds by settings, loaded ones if possible; they share weights."""
        loaded = [] if self._next is None else [self._next]
        if self._embedder is not None:
            loaded.insert(0, (self.settings, self.generator, self._embedder))
        known = [own for own in loaded if own[0].model == settings.model]
        for _, generator, embedder in known:
            if str(embedder.method) == settings.method:
                return generator, embedder
        options = self.options
        generator = known[0][1] if known else Generator.choose(settings.model, options.device, options.generate)
        if generator is None:
            return None, Embedder(settings.model, method=settings.method, device=options.device)
        return generator, Embedder(generator.model, settings.method, tokenizer=generator.tokenizer)

    def begin_rebuild(self, settings: LibrarySettings) -> Embedder:
        """Return the embedder of settings, which an interrupted call has loaded, or which is loaded now."""
        generator, embedder = self._models(settings)
        self._next = settings, generator, embedder
        return embedder

    def end_rebuild(self) -> None:
        """Forget the model of a rebuild; the library has it, or none does."""
        self._next = None

    @property
    def embedder(self) -> Embedder:
        """The embedder of the library's settings."""
        if self._embedder is None:
            raise RuntimeError("the model is not loaded yet")
        return self._embedder

    def check_for_changes(self) -> None:
        """Notice what another process has written.

        Raises:
            DemoError: The library was deleted, or another one put in its place.
        """
        index, database = self.index, _database_id(self.folder)
        if index is None:
            if database is not None:
                self.open()
            return
        if database != self._database_id:
            raise DemoError(f"the library in {self.folder} was deleted, or another one put there: start the page again")
        fingerprint, written = index.version()
        if fingerprint != index.settings.fingerprint or current_settings(self.folder) != self.settings:
            with suppress(*_REPLACED):  # their file follows the index; if it does not, readers get the error
                self._replace(index)
        elif written != self._write_mark:
            self._write_mark = written
            self.mark_changed()

    def open(self) -> None:
        """Open the library again, after a write that readers must see."""
        with self._open_lock:
            before = self.index
            self._database_id = _database_id(self.folder)
            if holds_library(self.folder):
                self._open(current_settings(self.folder))
            else:
                self.index = None
            if self._previous_index is not None:
                self._previous_index.close()
            self._previous_index = before  # running questions may still use it
            if before is not None or self.index is not None:
                self.mark_changed()

    def _replace(self, index: Index | None) -> None:
        """Open the library again, unless another thread has done so since this index was in place."""
        with self._open_lock:
            if self.index is index:
                self.open()

    def _open(self, settings: LibrarySettings) -> None:
        generator, embedder = self._models(settings)
        opened = open_library(self.folder, embedder, settings)
        self._write_mark = opened.version()[1]
        self.settings, self.generator, self._embedder = settings, generator, embedder
        if opened.exists:  # last: who sees an index takes the rest for open
            self.index = opened
        else:  # its first documents are being embedded
            opened.close()
            self.index = None

    @property
    def can_rerank(self) -> bool:
        """Whether the library's model can rerank passages: a language model can, an embedding model cannot."""
        return self._embedder is not None and self._embedder.backbone.pooling is None

    def reranker(self) -> Reranker:
        """Return what reranks passages, loaded when first asked for: the library's model, or the one that writes."""
        with self._open_lock:
            return self._reranker(self.settings.model, self.generator)

    def _new_reranker(self, model: str, generator: Generator | None) -> Reranker:
        if generator is not None:
            return Reranker(generator.model, tokenizer=generator.tokenizer)
        return Reranker(model, device=self.options.device)

    def mark_changed(self) -> None:
        """Let pages show the documents again."""
        self.version += 1
        self._changes.announce()

    # --- Reading, by any thread

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._loaded.is_set() and not self.error

    def wait(self) -> None:
        """Wait until the model is loaded; raise why it cannot be."""
        self._loaded.wait()
        if self.error:
            raise DemoError(self.error)

    def read(self, action: Callable[[Index | None], T]) -> T:
        """Read the library; if another index has taken its place meanwhile, open that and read once more."""
        index = self.index
        try:
            return action(index)
        except _REPLACED:
            self._replace(index)
            return action(self.index)

    def entries(self) -> list[StoredDocument]:
        """Return the entries of all complete documents, sorted by name."""
        entries = self.read(lambda index: {} if index is None else index.entries())
        found = [entry for entry in entries.values() if entry.digest]
        return sorted(found, key=lambda entry: str(entry.metadata.get("name", "")).casefold())

    def entry(self, key: str) -> StoredDocument | None:
        """Return the entry of a document, None if the library lacks it."""
        return self.read(partial(_find_entry, key=key))

    def document(self, key: str) -> LibraryDocument | None:
        """Return a document with its vectors, None if the library lacks it."""
        return self.read(partial(self._find_document, key=key))

    def _find_document(self, index: Index | None, key: str) -> LibraryDocument | None:
        entry = _find_entry(index, key)
        if index is None or entry is None:
            return None
        content = self._embedded(index, key, entry.digest)
        if content is None:  # it was removed meanwhile
            self._embedded.cache_clear()
            return None
        return LibraryDocument(entry, content, index.embedder)

    def summary(self, entries: Sequence[StoredDocument]) -> dict[str, Any]:
        """Return what the page says about the library with these documents."""
        return {
            "documents": len(entries),
            "sentences": sum(entry.sentences for entry in entries),
            "model": model_label(self.settings.model),
            "plan": "deepen" if self.settings.deepens else self.settings.plan,
            "reranks": self.can_rerank,
            "writes": self.generator is not None,
        }


def _database_id(folder: Path) -> int | None:
    """Return the inode of the database file; None while there is none."""
    try:
        return (folder / DATABASE_FOLDER / "chroma.sqlite3").stat().st_ino
    except OSError:
        return None


def is_drawn(metadata: Mapping[str, Any]) -> bool:
    """Whether a document is a PDF file, whose pages can be drawn."""
    return str(metadata.get("name", "")).lower().endswith(".pdf")


def _find_entry(index: Index | None, key: str) -> StoredDocument | None:
    """Return the entry of a complete document, None if the index has none."""
    entry = None if index is None else index.entries([key]).get(key)
    return entry if entry is not None and entry.digest else None
