"""`KeywordIndex`: keyword search (BM25) over the rows of an index, by tantivy; `Keywords`: where it is kept."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

import tantivy
from tantivy import Occur, Query

from chroma_eddy.database import translated_errors
from chroma_eddy.rows import DIGEST, PAGE_SIZE, VECTOR, RowBatch, under_headings
from chroma_eddy.settings import MAIN
from chroma_eddy.storage import Storage
from chroma_eddy.terms import TERMS_VERSION, TermAnalyzer
from eddy_embed.integrations.documents import DOCUMENT, HEADINGS

Key = Literal["id", "document", "digest"]
"""A row's own id, that of its document, and that of its document's version."""
IN_MEMORY = 50_000
"""Most rows whose texts are read into memory for keyword search, where the database is on a server or in memory."""
_WRITER_BYTES = 50_000_000
"""Memory of a writer, after which it saves a segment."""
_COMPLETE = "complete"
"""File that says that all rows of the collection are indexed, and by which version of the terms."""
_BAR_FROM = 5_000
"""Fewest rows for whose reading a progress bar is shown."""


class Scored(NamedTuple):
    """BM25 of a row, its document and the version of that, and the number of its vector; -1 where it has none."""

    bm25: float
    document: str
    digest: str
    vector: int


class Restriction(NamedTuple):
    """A condition on rows: that a key is, or is not (`excluded`), one of some values."""

    key: Key
    values: Sequence[str]
    excluded: bool = False


class KeywordIndex:
    """BM25 (k1 = 1.2, b = 0.75) over the terms of rows, each text after the path of its headings.

    One process at a time writes, as the index's lock sees to; readers see what was committed before `refresh`.
    """

    def __init__(self, folder: Path | None, language: str) -> None:
        """Open or create it in a folder; None: in memory. OSError if the folder cannot be used."""
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("document", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("digest", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_integer_field("vector", stored=True)
        builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        self._schema = builder.build()
        self._folder, self.terms = folder, TermAnalyzer(language)
        self._writer: tantivy.IndexWriter | None = None
        with _disk_errors():
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            self._index = tantivy.Index(self._schema, path=None if folder is None else str(folder))
            self._index.reload()

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._index.searcher().num_docs)

    # --- Writing

    def put(self, rows: RowBatch) -> None:
        """Write rows in place of those of the same ids; readers see them after `commit`."""
        with _disk_errors():
            writer = self._open_writer()
            for id_, row, text in zip(rows.ids, rows.metadatas, rows.texts, strict=True):
                writer.delete_documents_by_term("id", id_)
                document, digest, vector = str(row[DOCUMENT]), str(row[DIGEST]), row.get(VECTOR, -1)
                terms = " ".join(self.terms.texts(under_headings(text, row.get(HEADINGS, ""))))
                entry = tantivy.Document(id=id_, document=document, digest=digest, vector=vector, terms=terms)
                writer.add_document(entry)

    def delete(self, key: Key, values: Iterable[str]) -> None:
        """Delete the rows that have one of some values."""
        with _disk_errors():
            writer = self._open_writer()
            for value in values:
                writer.delete_documents_by_term(key, value)

    def commit(self) -> None:
        """Save what was written; a process that is killed before leaves what was saved last."""
        if self._writer is not None:
            with _disk_errors():
                self._writer.commit()
                self._index.reload()

    def fill(self, pages: Iterable[RowBatch]) -> None:
        """Write all rows of a collection, page by page, into an index that is empty."""
        for rows in pages:
            self.put(rows)
        self.commit()
        if self._folder is not None:
            (self._folder / _COMPLETE).write_text(str(TERMS_VERSION))

    def close_writer(self) -> None:
        """Let another process write; what was not committed is lost."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with _disk_errors():
                writer.rollback()
                writer.wait_merging_threads()

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = self._index.writer(_WRITER_BYTES, 1)
        return self._writer

    # --- Reading

    def refresh(self) -> None:
        """See what another process has committed."""
        with _disk_errors():
            self._index.reload()

    def best(self, terms: Sequence[str], most: int, restrictions: Sequence[Restriction] = ()) -> dict[str, Scored]:
        """Return at most `most` rows that share a term, by id, best first; a repeated term counts again."""
        if not terms:
            return {}
        parts = [(Occur.Must, self._any_of(terms)), *map(self._condition, restrictions)]
        return self._search(Query.boolean_query(parts), most)

    def scores(self, terms: Sequence[str], ids: Sequence[str]) -> dict[str, Scored]:
        """Score rows by their ids, 0 for those that share no term; ids that are not here are left out."""
        if not ids:
            return {}
        parts = [self._condition(Restriction("id", ids))]
        if terms:
            parts.append((Occur.Should, self._any_of(terms)))
        return self._search(Query.boolean_query(parts), len(ids))

    def weight(self, term: str) -> float:
        """Return the inverse document frequency of a term, as in its BM25; the highest for one that no row has."""
        # Deleted rows count until tantivy merges them away.
        frequency = min(int(self._index.searcher().doc_freq("terms", term)), len(self))
        return math.log1p((len(self) - frequency + 0.5) / (frequency + 0.5))

    def _any_of(self, terms: Sequence[str]) -> Query:
        queries = [
            Query.boost_query(Query.term_query(self._schema, "terms", term, index_option="freq"), float(repeats))
            for term, repeats in Counter(terms).items()
        ]
        return Query.boolean_query([(Occur.Should, query) for query in queries])

    def _condition(self, restriction: Restriction) -> tuple[Occur, Query]:
        """Return a condition that adds nothing to a score."""
        among = Query.term_set_query(self._schema, restriction.key, list(restriction.values))
        return (Occur.MustNot, among) if restriction.excluded else (Occur.Must, Query.const_score_query(among, 0.0))

    def _search(self, query: Query, most: int) -> dict[str, Scored]:
        searcher, rows = self._index.searcher(), dict[str, Scored]()
        for score, address in searcher.search(query, max(most, 1), count=False).hits:
            entry = searcher.doc(address)
            stored = (entry[name][0] for name in ("document", "digest", "vector"))
            rows[entry["id"][0]] = Scored(float(score), *stored)
        return rows


class Keywords:
    """The keyword index of an index's rows: in its database's folder; in memory for a database elsewhere."""

    def __init__(self, storage: Storage, language: Callable[[], str]) -> None:
        """`language` gives the code of the index's language."""
        self._storage, self._language = storage, language
        self._on_disk: tuple[Path, KeywordIndex] | None = None
        self._in_memory: tuple[str, KeywordIndex] | None = None
        self._reading = Lock()

    @property
    def on_disk(self) -> bool:
        """Whether all rows are indexed on disk, as this version cuts their terms; never on a server."""
        folder = self._storage.keywords_folder
        complete = None if folder is None else folder / _COMPLETE
        return complete is not None and complete.exists() and complete.read_text() == str(TERMS_VERSION)

    @property
    def missing(self) -> bool:
        """Whether the keyword index is to be on disk, and is not."""
        return self._storage.keywords_folder is not None and not self.on_disk

    @property
    def too_many(self) -> bool:
        """Whether there are more rows than are read into memory, and no keyword index on disk."""
        return not self.on_disk and self._storage.count(MAIN) > IN_MEMORY

    def current(self) -> KeywordIndex:
        """Return the keyword index as it is now; where none is on disk, read from all rows if others changed these."""
        with translated_errors(self._storage.place):
            if self.on_disk:
                index = self._open()
                index.refresh()
                return index
            written = str(self._storage.known_metadata.get("eddy_written"))
            with self._reading:
                if self._in_memory is None or self._in_memory[0] != written:
                    index = KeywordIndex(None, self._language())
                    index.fill(self._pages(show_progress=self._storage.count(MAIN) >= _BAR_FROM))
                    self._in_memory = written, index
                return self._in_memory[1]

    def put(self, rows: RowBatch) -> None:
        """Write rows, and save them."""
        for index in self._writable():
            index.put(rows)
            index.commit()

    def delete(self, key: Key, values: Sequence[str]) -> None:
        """Delete the rows that have one of some values, and save that."""
        for index in self._writable() if values else ():
            index.delete(key, values)
            index.commit()

    def mark_written(self, before: str, token: str) -> None:
        """Note that the rows in memory are those of a token if they were those of the one `before` the change."""
        if self._in_memory is not None and self._in_memory[0] == before:
            self._in_memory = token, self._in_memory[1]

    def clear_memory(self) -> None:
        """Drop what was read into memory, of which nobody knows whether it is still so."""
        self._in_memory = None

    def rebuild(self) -> None:
        """Read the keyword index on disk from all rows again."""
        self.clear_memory()
        folder = self._storage.keywords_folder
        if folder is None:
            return
        self.close()
        with translated_errors(self._storage.place):
            (folder / _COMPLETE).unlink(missing_ok=True)  # first: nobody takes what is left for complete
            shutil.rmtree(folder, ignore_errors=True)
            self._on_disk = folder, KeywordIndex(folder, self._language())
            self._on_disk[1].fill(self._pages())
        self.close()

    def close(self) -> None:
        """Let another process write."""
        if self._on_disk is not None:
            with translated_errors(self._storage.place):
                if self._on_disk[0].exists():
                    self._on_disk[1].close_writer()
                else:  # another index took this one's place
                    self._on_disk = None

    def _writable(self) -> Iterator[KeywordIndex]:
        """Yield the keyword index if there is one."""
        with translated_errors(self._storage.place):
            if self.on_disk:
                yield self._open()
            elif self._in_memory is not None:
                yield self._in_memory[1]

    def _open(self) -> KeywordIndex:
        folder = self._storage.keywords_folder
        assert folder is not None
        if self._on_disk is None or self._on_disk[0] != folder:
            self._on_disk = folder, KeywordIndex(folder, self._language())
        return self._on_disk[1]

    def _pages(self, *, show_progress: bool = False) -> Iterator[RowBatch]:
        """Yield the rows of the main collection, without those that something else has put there."""
        from rich.console import Console
        from rich.progress import track

        pages, total = self._storage.pages(MAIN, metadatas=True, documents=True), self._storage.count(MAIN) / PAGE_SIZE
        console = Console(stderr=True)
        for rows in track(pages, "Reading keywords", total, console=console, disable=not show_progress):
            yield rows.take([number for number, row in enumerate(rows.metadatas) if DOCUMENT in row])


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise tantivy's errors, which are all ValueErrors, as what they are: failures of the disk."""
    try:
        yield
    except ValueError as error:
        raise OSError(f"the keyword index: {error}; if it is damaged, check() makes it anew") from error
