"""`Bm25Pair`: BM25 over an index's passages and over its whole documents, beside its main collection or in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from chroma_eddy.rows.schema import DIGEST, fields
from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.vectors import ROW
from chroma_eddy.words.bm25 import Bm25Index, IndexedText, Key, Restriction
from chroma_eddy.words.terms import TERMS_VERSION, TermAnalyzer
from eddy_embed.integrations.documents import DOCUMENT

_COMPLETE = "complete"
"""File that says that all rows of the collection are among its words, and cut by which version."""


class WordScore(NamedTuple):
    """What a passage shares with a question in words.

    Attributes:
        bm25: BM25 of the passage; 0 where no word is shared.
        relative: Mean of BM25 of the passage and of its document, the latter at the spread of passages, over the
            information of the question's terms; 0 for a question without any.
        vector: Number of the passage's vector; -1 where the index keeps none.
        is_piece: Whether it belongs to no version of a document.
    """

    bm25: float
    relative: float
    vector: int
    is_piece: bool


class Bm25Pair:
    """The words of an index: of passages and pieces, which hits are, and of whole documents, which say what about.

    A piece's document is unknown; the piece stands for it.
    """

    def __init__(self, folder: Path | None, language: str) -> None:
        """Open or create them in a folder; None: in memory. OSError if the folder cannot be used."""
        self._folder, self.terms = folder, TermAnalyzer(language)
        self.passages = Bm25Index(None if folder is None else folder / "passages")
        self.documents = Bm25Index(None if folder is None else folder / "documents")
        self._partial: dict[str, list[Sequence[str]]] = {}

    @staticmethod
    def is_complete(folder: Path) -> bool:
        """Whether all rows of a collection are among the words in a folder, as this version cuts them."""
        return (folder / _COMPLETE).exists() and (folder / _COMPLETE).read_text() == str(TERMS_VERSION)

    @staticmethod
    def is_outdated(folder: Path) -> bool:
        """Whether another version of this library wrote the words in a folder."""
        return (folder / _COMPLETE).exists() and not Bm25Pair.is_complete(folder)

    @staticmethod
    def forget(folder: Path) -> None:
        """Let nobody take the words in a folder for complete."""
        (folder / _COMPLETE).unlink(missing_ok=True)

    def put(self, rows: Rows) -> None:
        """Write rows of the main collection; a document is written when all of its passages have come."""
        passages, documents = [], []
        for id_, row, text in zip(rows.ids, rows.metadatas, rows.texts, strict=True):
            document, digest = str(row[DOCUMENT]), str(row[DIGEST])
            terms = self.terms.texts(text)
            passages.append(IndexedText(id_, document, digest, terms, row.get(ROW, -1)))
            if digest:
                parts = self._partial.setdefault(digest, [])
                parts.append(terms)
                if len(parts) == fields(row)["rows"]:
                    whole = [term for part in self._partial.pop(digest) for term in part]
                    documents.append(IndexedText(digest, document, digest, whole))
        self.documents.put(documents)
        self.passages.put(passages)

    def delete(self, key: Key, values: Iterable[str]) -> None:
        """Delete passages and documents that have one of some values."""
        chosen = list(values)
        self.passages.delete(key, chosen)
        self.documents.delete(key, chosen)

    def commit(self) -> None:
        """Save what was written."""
        self._partial.clear()
        self.documents.commit()
        self.passages.commit()

    def rebuild(self, pages: Iterable[Rows]) -> None:
        """Write all rows, page by page, into words that are empty."""
        for rows in pages:
            self.put(rows)
        self.commit()
        if self._folder is not None:
            (self._folder / _COMPLETE).write_text(str(TERMS_VERSION))

    def close_writer(self) -> None:
        """Let another process write."""
        self._partial.clear()
        self.passages.close_writer()
        self.documents.close_writer()

    def refresh(self) -> None:
        """See what another process has written."""
        self.passages.refresh()
        self.documents.refresh()

    def best(self, terms: Sequence[str], most: int, restrictions: Sequence[Restriction] = ()) -> list[str]:
        """Ids of at most `most` passages that share a word with a question, best first."""
        return list(self.passages.best(terms, most, restrictions))

    def scores(self, terms: Sequence[str], ids: Sequence[str]) -> dict[str, WordScore]:
        """Scores of passages by their ids; those that are not here are left out."""
        passages = self.passages.scores(terms, ids)
        digests = {own.digest for own in passages.values() if own.digest}
        wholes = self.documents.scores(terms, sorted(digests))
        # Where all documents have the words, or none, a document's say nothing about it.
        to_passages = self.passages.spread(terms) / (self.documents.spread(terms) or math.inf)
        information = self.passages.information(terms) or math.inf
        found = {}
        for id_, (bm25, digest, vector) in passages.items():
            about = bm25
            if digest:
                if digest not in wholes:
                    continue
                about = wholes[digest].bm25 * to_passages
            found[id_] = WordScore(bm25, (bm25 + about) / 2 / information, vector, not digest)
        return found
