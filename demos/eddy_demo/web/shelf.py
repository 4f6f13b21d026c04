"""The library as it is read: its model, its documents, and what is nearest to a question."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy import Entry, ForeignCollection, Index
from chroma_eddy.rows.documents import read_embedded_documents
from eddy_demo.errors import DemoError, LibraryMismatch
from eddy_demo.library import open_library
from eddy_demo.recipe import CHROMA, Recipe, choose_recipe, holds_library, read_recipe
from eddy_demo.show import printable
from eddy_demo.web.calibration import Calibration
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddy_demo.web.generating import Generator
    from eddy_embed.document import LongDocument

    Vectors = NDArray[np.float32]

T = TypeVar("T")
_OPEN = 4
"""Documents whose vectors are kept in memory."""
_EXCHANGED = (NotFoundError, FingerprintMismatch, LibraryMismatch)
"""What reading raises when another index has taken the place of the one that was opened."""
_ATTEMPTS = 10
_PAUSE = 0.1


@dataclass(frozen=True)
class Choice:
    """What was asked for on the command line; None leaves it open.

    Attributes:
        folder: Of the library.
        model: Name of a model.
        method: Text form of a method.
        device: Where the model runs.
        generate: Whether the same model also writes answers.
    """

    folder: Path
    model: str | None = None
    method: str | None = None
    device: str | None = None
    generate: bool = False


@dataclass(frozen=True, eq=False)
class Book:
    """A document of the library with its vectors.

    Attributes:
        entry: What the index knows of it.
        content: Its text and the vectors of its parts.
        embedder: What made them.
    """

    entry: Entry
    content: LongDocument
    embedder: Embedder

    @property
    def name(self) -> str:
        """What it is called."""
        return printable(str(self.entry.metadata.get("name", self.entry.id)))

    @property
    def title(self) -> str:
        """Its title, "" without one."""
        return printable(str(self.entry.metadata.get("title", "")))

    def near(self, question: str, spans: Sequence[Any]) -> Vectors:
        """Cosines of a question with parts of the document."""
        return cosines(self.embedder.encode_query(question, show_progress=False), spans)


class Shelf:
    """The library that the page shows. Any thread may read; only the thread of `Jobs` calls `load`."""

    def __init__(self, choice: Choice) -> None:
        """Load nothing yet.

        Args:
            choice: Which library, with what.
        """
        self.choice = choice
        self.folder = choice.folder
        self.generator: Generator | None = None
        self.calibration = Calibration()
        self.version = 0
        self.error = ""
        self._embedder: Embedder | None = None
        self._index: Index | None = None
        self._retired: Index | None = None
        self._books: OrderedDict[tuple[str, str, str], Book] = OrderedDict()
        self.coming: Embedder | None = None
        """That of the library which is being made anew."""
        self._file: int | None = None
        self._written: Any = None
        self._lock = threading.Lock()
        self._opening = threading.RLock()
        self._loaded = threading.Event()
        self.recipe = Recipe("", "")

    # --- Loading, by the one thread that writes

    def load(self) -> None:
        """Load the model, and open the library if there is one."""
        choice = self.choice
        self.recipe = choose_recipe(choice.folder, choice.model, choice.method)
        if choice.generate:
            from eddy_demo.web.generating import Generator

            self.generator = Generator.load(self.recipe.model, choice.device)
        self._embedder = self.embedder_for(self.recipe.method)
        self.open()
        self._loaded.set()

    def embedder_for(self, method: str, model: str | None = None) -> Embedder:
        """An embedder of the library's model, or another, under a method; the model that generates is shared."""
        if self.generator is not None:
            return Embedder(self.generator.model, tokenizer=self.generator.tokenizer, method=method)
        return Embedder(model or self.recipe.model, method=method, device=self.choice.device)

    @property
    def method(self) -> str:
        """The library's method without post-processing."""
        return str(self.raw.with_post(None).method)

    def other(self, method: str) -> Embedder:
        """An embedder under another method; it shares the weights, if post-processing is all that differs."""
        own = self.raw.with_post(None)
        return own if str(own.method) == method else self.embedder_for(method)

    def look(self) -> bool:
        """Notice what another process has written: the first documents, others, all made anew, or another database.

        Returns:
            Whether it is another index than before, or none.
        """
        file, index = _database(self.folder), self._index
        if index is None:
            if file is not None:
                self.open()
        elif file != self._file:
            with self._opening:  # as long as anybody has a client of files that are gone, new ones read those too
                for each in (self._retired, index):
                    if each is not None:
                        each.close()
                self._retired = self._index = None
            self.touch()
        else:
            told = index.store.metadata()
            if told.get("eddy_fingerprint") != index.recipe.fingerprint or read_recipe(self.folder) != self.recipe:
                with suppress(*_EXCHANGED):  # its recipe is about to be written; if not, whoever asks is told
                    self.open()
            elif told.get("eddy_written") != self._written:
                self._written = told.get("eddy_written")
                self.touch()
        return self._index is not index

    def open(self) -> None:
        """Open the library anew, after something was written that readers must know."""
        with self._opening:
            before = self._index
            self._file = _database(self.folder)
            if holds_library(self.folder):
                recipe = read_recipe(self.folder)
                embedder = self._maker(recipe)
                opened = open_library(self.folder, embedder, recipe)
                # While its first documents are embedded there is a recipe and no index.
                self._index = opened if opened.exists else None
                self._written = opened.store.metadata().get("eddy_written")
                self.recipe, self._embedder = recipe, embedder
            else:
                self._index = None
            if self._retired is not None:
                self._retired.close()
            self._retired = before  # questions that are being answered may still hold it
            if before is not None or self._index is not None:
                self.touch()

    def _maker(self, recipe: Recipe) -> Embedder:
        """What makes the vectors of a recipe, loaded already if that can be."""
        if recipe.model == self.recipe.model:
            for each in (self.raw, self.coming):
                if each is not None and str(each.method) == recipe.method:
                    return each
        return self.embedder_for(recipe.method, recipe.model)

    def touch(self) -> None:
        """Tell pages that documents have come or gone."""
        self.version += 1

    @property
    def raw(self) -> Embedder:
        """The embedder without what the library's own post-processing has learned."""
        if self._embedder is None:
            raise RuntimeError("the model is not loaded yet")
        return self._embedder

    # --- Reading, by any thread

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._loaded.is_set() and not self.error

    def fail(self, error: str) -> None:
        """The model cannot be loaded, or the library not be opened: nothing can be asked."""
        self.error = error
        self._loaded.set()

    def wait(self) -> None:
        """Wait until the model is loaded.

        Raises:
            DemoError: It cannot be.
        """
        self._loaded.wait()
        if self.error:
            raise DemoError(self.error)

    @property
    def index(self) -> Index | None:
        """The library's index, None while there is none."""
        return self._index

    def steadily(self, read: Callable[[Index | None], T]) -> T:
        """Read the library, also where it is made anew meanwhile: here, or by another process.

        Args:
            read: Called with the index, None while there is none, and again where another has taken its place.
        """
        for _ in range(_ATTEMPTS):
            index = self._index
            try:
                return read(index)
            except _EXCHANGED:
                with self._opening:
                    if self._index is index:
                        try:
                            self.open()
                        except _EXCHANGED:  # the new index is in its place, and its recipe not yet
                            time.sleep(_PAUSE)
        return read(self._index)

    def entries(self) -> list[Entry]:
        """The documents that can be found, by name."""
        every = self.steadily(lambda index: {} if index is None else index.entries())
        found = [entry for entry in every.values() if entry.digest]
        return sorted(found, key=lambda entry: str(entry.metadata.get("name", "")).casefold())

    def entry(self, key: str) -> Entry | None:
        """One of them, None if it is not there."""
        return self.steadily(lambda index: None if index is None else entry_in(index, key))

    def book(self, key: str) -> Book | None:
        """A document with its vectors, None if it is not there."""
        return self.steadily(lambda index: None if index is None else self._book(index, key))

    def _book(self, index: Index, key: str) -> Book | None:
        while (entry := entry_in(index, key)) is not None:
            place = (key, entry.digest, index.recipe.fingerprint)
            with self._lock:
                if place in self._books:
                    self._books.move_to_end(place)
                    return self._books[place]
            try:
                content = read_embedded_documents(index.store, index.recipe, [key], keeps_raw=False)[0].result
            except (IndexError, ForeignCollection):  # it has no row any more, or not all
                if entry_in(index, key) == entry:
                    raise
                continue  # it was taken out, or written anew, in between
            book = Book(entry, content, index.embedder)
            with self._lock:
                self._books[place] = book
                while len(self._books) > _OPEN:
                    self._books.popitem(last=False)
            return book
        return None

    def shared(self) -> dict[str, int] | None:
        """Bytes of the model that both reads and writes, and of what is not loaded a second time; None for no such."""
        if self.generator is None or self._embedder is None:
            return None
        return {"bytes": self.generator.bytes, "saved": self.generator.shared(self._embedder)}

    def summary(self) -> dict[str, Any]:
        """What the page says of the library."""
        entries = self.entries()
        return {
            "documents": len(entries),
            "passages": sum(entry.passages for entry in entries),
            "sentences": sum(entry.sentences for entry in entries),
            "tokens": sum(entry.tokens for entry in entries),
            "model": self.recipe.model,
            "method": self.recipe.method,
            "default": self.recipe.default,
            "shared": self.shared(),
        }


def _database(folder: Path) -> int | None:
    """Which file the database is in; None while there is none."""
    try:
        return (folder / CHROMA / "chroma.sqlite3").stat().st_ino
    except OSError:
        return None


def entry_in(index: Index, key: str) -> Entry | None:
    """What an index knows of a document, None if it cannot be found there."""
    entry = index.entries([key]).get(key)
    return entry if entry is not None and entry.digest else None


def cosines(vector: Vectors, spans: Sequence[Any]) -> Vectors:
    """Cosines of a vector with those of spans."""
    if not spans:
        return np.zeros(0, np.float32)
    found = np.stack([np.asarray(span.vector, np.float32) for span in spans])
    length = np.linalg.norm(found, axis=1) * np.linalg.norm(vector)
    return np.asarray(found @ vector / np.where(length > 0, length, 1), np.float32)
