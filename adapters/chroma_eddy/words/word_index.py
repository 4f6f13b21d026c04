"""`WordIndex`: where an index's words are, on disk beside its collections or in memory, and how they keep up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.store import Store
from chroma_eddy.words.bm25 import Key
from chroma_eddy.words.bm25_pair import Bm25Pair
from eddy_embed.integrations.documents import DOCUMENT


class WordIndex:
    """The words of one index: in its database's folder; in memory for a database elsewhere.

    Its methods raise StorageError if the folder cannot be used or is damaged.
    """

    def __init__(self, store: Store, language: Callable[[], str]) -> None:
        """`language` gives the code of the index's language."""
        self._store, self._language = store, language
        self._on_disk: tuple[Path, Bm25Pair] | None = None
        self._in_memory: tuple[str, Bm25Pair] | None = None

    @property
    def on_disk(self) -> bool:
        """Whether the words of all passages are on disk; not on a server."""
        folder = self._store.words_folder
        return folder is not None and Bm25Pair.is_complete(folder)

    @property
    def missing(self) -> bool:
        """Whether words are to be on disk, and are not."""
        return self._store.words_folder is not None and not self.on_disk

    @property
    def outdated(self) -> bool:
        """Whether another version of this library wrote the words on disk."""
        folder = self._store.words_folder
        return folder is not None and Bm25Pair.is_outdated(folder)

    def current(self) -> Bm25Pair:
        """The words as they are now; where none are on disk, read from all passages whenever these have changed."""
        with translated_errors(self._store.place):
            if self.on_disk:
                words = self._open()
                words.refresh()
                return words
            written = str(self._store.metadata().get("eddy_written"))
            if self._in_memory is None or self._in_memory[0] != written:
                words = Bm25Pair(None, self._language())
                words.rebuild(self._pages())
                self._in_memory = written, words
            return self._in_memory[1]

    def put(self, rows: Rows) -> None:
        """Write rows of the main collection."""
        if self.on_disk:
            with translated_errors(self._store.place):
                words = self._open()
                words.put(rows)
                words.commit()

    def delete(self, key: Key, values: Sequence[str]) -> None:
        """Delete rows of the main collection that have one of some values."""
        if self.on_disk and values:
            with translated_errors(self._store.place):
                words = self._open()
                words.delete(key, values)
                words.commit()

    def rebuild(self) -> None:
        """Read the words on disk from all passages again."""
        folder = self._store.words_folder
        if folder is None:
            return
        self.close()
        with translated_errors(self._store.place):
            Bm25Pair.forget(folder)
            shutil.rmtree(folder, ignore_errors=True)
            self._on_disk = folder, Bm25Pair(folder, self._language())
            self._on_disk[1].rebuild(self._pages())
        self.close()

    def close(self) -> None:
        """Let another process write."""
        if self._on_disk is not None:
            with translated_errors(self._store.place):
                if self._on_disk[0].exists():
                    self._on_disk[1].close_writer()
                else:  # another index took this one's place
                    self._on_disk = None

    def _open(self) -> Bm25Pair:
        folder = self._store.words_folder
        if folder is None:
            raise AssertionError("words are opened only where they are on disk")
        if self._on_disk is None or self._on_disk[0] != folder:
            self._on_disk = folder, Bm25Pair(folder, self._language())
        return self._on_disk[1]

    def _pages(self) -> Iterator[Rows]:
        """The rows of the main collection, without those that something else has put there."""
        for rows in self._store.pages(MAIN, metadatas=True, documents=True):
            own = [number for number, row in enumerate(rows.metadatas) if DOCUMENT in row]
            columns = ([rows.ids[at] for at in own], [rows.metadatas[at] for at in own], [rows.texts[at] for at in own])
            yield Rows(*columns, rows.vectors)
