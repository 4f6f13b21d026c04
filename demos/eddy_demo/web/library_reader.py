"""Read access to the library: its model, its documents, and cosines with a question."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy import Index, StoredDocument
from eddy_demo.display_text import model_label, printable
from eddy_demo.errors import DemoError, LibraryMismatch
from eddy_demo.library.library import choose_settings, current_settings, open_library
from eddy_demo.library.settings import DATABASE_FOLDER, Choices, LibrarySettings, holds_library
from eddy_demo.web.answers.write import Generator
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_embed import Embedder, Reranker
from eddy_embed.encoding.document import LongDocument
from eddy_embed.errors import FingerprintMismatch
from eddy_embed.utils.arrays import Floats

T = TypeVar("T")
_CACHED_DOCUMENTS = 4
"""Number of documents whose vectors stay in memory."""
_NAMED = 3
"""Number of documents that the page names as what can be asked about."""
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
        return span_cosines(self.embedder.encode_query(question, show_progress=False), spans)


class LibraryReader:
    """The library that the page shows. Any thread may read; only the writing thread calls `load`."""

    def __init__(self, options: LibraryOptions, changes: ChangeSignal) -> None:
        self.options, self._changes = options, changes
        self.folder = options.folder
        self.settings = LibrarySettings("", "")
        self.generator: Generator | None = None
        self.next_model = ""  # of a rebuild in progress, with its generator and embedder
        self.next_generator: Generator | None = None
        self.next_embedder: Embedder | None = None
        self.version = 0  # changes with every change of the library
        self.error = ""  # why the model cannot be loaded, or the library not be opened
        self._embedder: Embedder | None = None
        self._reranker: Any = None
        self._reranking: tuple[str, Generator | None] | None = None  # the model that the reranker has
        self.index: Index | None = None  # None while there is none
        self._previous_index: Index | None = None
        self._documents: OrderedDict[tuple[str, str, str], LibraryDocument] = OrderedDict()
        self._database_id: int | None = None
        self._write_mark = ""
        self._documents_lock = threading.Lock()
        self._open_lock = threading.RLock()
        self._loaded = threading.Event()

    # --- Loading, by the writing thread

    def load(self) -> None:
        """Load the model, and open the library if there is one."""
        options = self.options
        self.settings = choose_settings(options.folder, Choices(options.model, options.method))
        self.generator = Generator.choose(self.settings.model, options.device, options.generate)
        self._embedder = self._new_embedder(self.settings.model, self.settings.method, self.generator)
        self.open()
        self._loaded.set()

    def _generator_of(self, settings: LibrarySettings) -> Generator | None:
        """Return the generator of the settings' model, a loaded one if possible; None if the model shall not write."""
        for model, generator in ((self.settings.model, self.generator), (self.next_model, self.next_generator)):
            if model == settings.model:
                return generator
        return Generator.choose(settings.model, self.options.device, self.options.generate)

    def begin_rebuild(self, settings: LibrarySettings) -> Embedder:
        """Return the embedder of settings, which an interrupted call has loaded, or which is loaded now."""
        self.next_generator = self._generator_of(settings)
        self.next_embedder = self._embedder_of(settings, self.next_generator)
        self.next_model = settings.model
        return self.next_embedder

    def end_rebuild(self) -> None:
        """Forget the model of a rebuild; the library has it, or none does."""
        self.next_model, self.next_generator, self.next_embedder = "", None, None

    def _new_embedder(self, model: str, method: str, generator: Generator | None) -> Embedder:
        """Create an embedder; it shares the weights of the model's generator, if there is one."""
        if generator is not None:
            return Embedder(generator.model, method, tokenizer=generator.tokenizer)
        return Embedder(model, method=method, device=self.options.device)

    @property
    def embedder(self) -> Embedder:
        """The embedder of the library's settings."""
        if self._embedder is None:
            raise RuntimeError("the model is not loaded yet")
        return self._embedder

    def check_for_changes(self) -> bool:
        """Notice what another process has written; return whether another index, or none, has replaced this one."""
        database, index = _database_id(self.folder), self.index
        if index is None:
            if database is not None:
                self.open()
        elif database != self._database_id:
            with self._open_lock:  # while a client of the deleted files is open, new clients read those too
                for opened in (self._previous_index, index):
                    if opened is not None:
                        opened.close()
                self._previous_index = self.index = None
            self.mark_changed()
        else:
            fingerprint, written = index.version()
            if fingerprint != index.settings.fingerprint or current_settings(self.folder) != self.settings:
                with suppress(*_REPLACED):  # their file follows the index; if it does not, readers get the error
                    self.open()
            elif written != self._write_mark:
                self._write_mark = written
                self.mark_changed()
        return self.index is not index

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

    def open_new(self) -> None:
        """Open a new library as soon as it exists."""
        if self.index is None and holds_library(self.folder):
            self.open()

    def _open(self, settings: LibrarySettings) -> None:
        generator = self._generator_of(settings)
        embedder = self._embedder_of(settings, generator)
        opened = open_library(self.folder, embedder, settings)
        self._write_mark = opened.version()[1]
        self.settings, self.generator, self._embedder = settings, generator, embedder
        if opened.exists:  # last: who sees an index takes the rest for open
            self.index = opened
        else:  # its first documents are being embedded
            opened.close()
            self.index = None

    def _embedder_of(self, settings: LibrarySettings, generator: Generator | None) -> Embedder:
        """Return the embedder of settings, a loaded one if possible, else one that shares the generator's weights."""
        for model, embedder in ((self.settings.model, self.embedder), (self.next_model, self.next_embedder)):
            if embedder is not None and (model, str(embedder.method)) == (settings.model, settings.method):
                return embedder
        return self._new_embedder(settings.model, settings.method, generator)

    @property
    def can_rerank(self) -> bool:
        """Whether the library's model can rerank passages: a language model can, an embedding model cannot."""
        return self._embedder is not None and self._embedder.backbone.pooling is None

    def reranker(self) -> Reranker:
        """Return what reranks passages, loaded when first asked for: the library's model, or the one that writes."""
        generator, device = self.generator, self.options.device
        with self._open_lock:
            if self._reranking != (self.settings.model, generator):
                model = self.settings.model if generator is None else generator.model
                options = {"device": device} if generator is None else {"tokenizer": generator.tokenizer}
                self._reranker, self._reranking = Reranker(model, **options), (self.settings.model, generator)
            reranker: Reranker = self._reranker
            return reranker

    def mark_changed(self) -> None:
        """Let pages show the documents again."""
        self.version += 1
        self._changes.announce()

    # --- Reading, by any thread

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._loaded.is_set() and not self.error

    def fail(self, error: str) -> None:
        """Record why the model cannot be loaded or the library not be opened."""
        self.error = error
        self._loaded.set()

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
            with self._open_lock:
                if self.index is index:
                    self.open()
            return action(self.index)

    def entries(self) -> list[StoredDocument]:
        """Return the entries of all complete documents, sorted by name."""
        entries = self.read(lambda index: {} if index is None else index.read(index.entries))
        found = [entry for entry in entries.values() if entry.digest]
        return sorted(found, key=lambda entry: str(entry.metadata.get("name", "")).casefold())

    def entry(self, key: str) -> StoredDocument | None:
        """Return the entry of a document, None if the library lacks it."""
        return self.read(lambda index: None if index is None else find_entry(index, key))

    def document(self, key: str) -> LibraryDocument | None:
        """Return a document with its vectors, None if the library lacks it."""
        return self.read(lambda index: None if index is None else self._document(index, key))

    def _document(self, index: Index, key: str) -> LibraryDocument | None:
        entry = find_entry(index, key)
        if entry is None:
            return None
        cache_key = (key, entry.digest, index.settings.fingerprint)
        with self._documents_lock:
            if cache_key in self._documents:
                self._documents.move_to_end(cache_key)
                return self._documents[cache_key]
        content = index.embedded(key)
        if content is None:  # it was removed meanwhile
            return None
        document = LibraryDocument(entry, content, index.embedder)
        with self._documents_lock:
            self._documents[cache_key] = document
            while len(self._documents) > _CACHED_DOCUMENTS:
                self._documents.popitem(last=False)
        return document

    def summary(self, entries: Sequence[StoredDocument]) -> dict[str, Any]:
        """Return what the page says about the library with these documents."""
        longest = sorted(entries, key=lambda entry: -entry.sentences)
        titles = [printable(str(entry.metadata.get("title") or entry.metadata.get("name", ""))) for entry in longest]
        return {
            "documents": len(entries),
            "passages": sum(entry.passages for entry in entries),
            "sentences": sum(entry.sentences for entry in entries),
            "tokens": sum(entry.tokens for entry in entries),
            "titles": list(dict.fromkeys(titles))[:_NAMED],
            "model": model_label(self.settings.model),
            "method": self.settings.method,
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


def find_entry(index: Index, key: str) -> StoredDocument | None:
    """Return the entry of a complete document, None if the index has none."""
    entry = index.read(partial(index.entries, [key])).get(key)
    return entry if entry is not None and entry.digest else None


def span_cosines(vector: Floats, spans: Sequence[Any]) -> Floats:
    """Cosines of a vector, shape (d,), with those of spans; shape (len(spans),)."""
    if not spans:
        return np.zeros(0, np.float32)
    vectors = np.stack([np.asarray(span.vector, np.float32) for span in spans])
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
    return np.asarray(vectors @ vector / np.where(norms > 0, norms, 1), np.float32)
