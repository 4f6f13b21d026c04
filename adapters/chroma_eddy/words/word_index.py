"""`WordIndex`: the keyword index of an Eddy index, on disk beside its collections or in memory, and how it keeps up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.store import Store
from chroma_eddy.storage.vectors import ROW
from chroma_eddy.words.bm25 import Bm25Index, IndexedText, Key
from chroma_eddy.words.terms import TERMS_VERSION, TermAnalyzer
from eddy_embed.integrations.documents import DOCUMENT, HEADINGS

_COMPLETE = "complete"
"""File that says that all rows of the collection are indexed, and by which version of the terms."""


class Passages(Bm25Index):
    """BM25 over an index's passages, each after the path of its headings, and over frameworks' pieces."""

    def __init__(self, folder: Path | None, language: str) -> None:
        """Open or create it in a folder; None: in memory. OSError if the folder cannot be used."""
        super().__init__(folder)
        self._folder, self.terms = folder, TermAnalyzer(language)

    @staticmethod
    def is_complete(folder: Path) -> bool:
        """Whether all rows of a collection are indexed in a folder, as this version cuts them."""
        return (folder / _COMPLETE).exists() and (folder / _COMPLETE).read_text() == str(TERMS_VERSION)

    @staticmethod
    def is_outdated(folder: Path) -> bool:
        """Whether another version of this library wrote the index in a folder."""
        return (folder / _COMPLETE).exists() and not Passages.is_complete(folder)

    @staticmethod
    def forget(folder: Path) -> None:
        """Let nobody take the index in a folder for complete."""
        (folder / _COMPLETE).unlink(missing_ok=True)

    def put_rows(self, rows: Rows) -> None:
        """Write rows of the main collection; readers see them after `commit`."""
        self.put(
            IndexedText(
                id_,
                str(row[DOCUMENT]),
                str(row[DIGEST]),
                self.terms.texts(f"{row[HEADINGS]}\n{text}" if HEADINGS in row else text),
                row.get(ROW, -1),
            )
            for id_, row, text in zip(rows.ids, rows.metadatas, rows.texts, strict=True)
        )

    def rebuild(self, pages: Iterable[Rows]) -> None:
        """Write all rows, page by page, into an index that is empty."""
        for rows in pages:
            self.put_rows(rows)
        self.commit()
        if self._folder is not None:
            (self._folder / _COMPLETE).write_text(str(TERMS_VERSION))


class WordIndex:
    """The keyword index of one Eddy index: in its database's folder; in memory for a database elsewhere.

    Its methods raise StorageError if the folder cannot be used or is damaged.
    """

    def __init__(self, store: Store, language: Callable[[], str]) -> None:
        """`language` gives the code of the index's language."""
        self._store, self._language = store, language
        self._on_disk: tuple[Path, Passages] | None = None
        self._in_memory: tuple[str, Passages] | None = None

    @property
    def on_disk(self) -> bool:
        """Whether the words of all passages are on disk; not on a server."""
        folder = self._store.words_folder
        return folder is not None and Passages.is_complete(folder)

    @property
    def missing(self) -> bool:
        """Whether words are to be on disk, and are not."""
        return self._store.words_folder is not None and not self.on_disk

    @property
    def outdated(self) -> bool:
        """Whether another version of this library wrote the words on disk."""
        folder = self._store.words_folder
        return folder is not None and Passages.is_outdated(folder)

    def current(self) -> Passages:
        """The words as they are now; where none are on disk, read from all passages whenever these have changed."""
        with translated_errors(self._store.place):
            if self.on_disk:
                words = self._open()
                words.refresh()
                return words
            written = str(self._store.metadata().get("eddy_written"))
            if self._in_memory is None or self._in_memory[0] != written:
                words = Passages(None, self._language())
                words.rebuild(self._pages())
                self._in_memory = written, words
            return self._in_memory[1]

    def put(self, rows: Rows) -> None:
        """Write rows of the main collection."""
        if self.on_disk:
            with translated_errors(self._store.place):
                words = self._open()
                words.put_rows(rows)
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
            Passages.forget(folder)
            shutil.rmtree(folder, ignore_errors=True)
            self._on_disk = folder, Passages(folder, self._language())
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

    def _open(self) -> Passages:
        folder = self._store.words_folder
        if folder is None:
            raise AssertionError("words are opened only where they are on disk")
        if self._on_disk is None or self._on_disk[0] != folder:
            self._on_disk = folder, Passages(folder, self._language())
        return self._on_disk[1]

    def _pages(self) -> Iterator[Rows]:
        """The rows of the main collection, without those that something else has put there."""
        for rows in self._store.pages(MAIN, metadatas=True, documents=True):
            own = [number for number, row in enumerate(rows.metadatas) if DOCUMENT in row]
            columns = ([rows.ids[at] for at in own], [rows.metadatas[at] for at in own], [rows.texts[at] for at in own])
            yield Rows(*columns, rows.vectors)
