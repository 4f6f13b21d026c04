"""`Bm25Index`: BM25 over the terms of texts, on disk or in memory, by tantivy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import tantivy
from tantivy import Occur, Query

Key = Literal["id", "document", "digest"]
"""A text's own id, that of its document, and that of its document's version."""
_WRITER_BYTES = 50_000_000
"""Memory of a writer, after which it saves a segment."""


class IndexedText(NamedTuple):
    """A text as the index takes it."""

    id: str
    document: str
    digest: str
    terms: Sequence[str]
    vector: int = -1
    """Number of its vector, where the index keeps one."""


class Scored(NamedTuple):
    """BM25 of a text, the version of its document, and the number of its vector."""

    bm25: float
    digest: str
    vector: int


class Restriction(NamedTuple):
    """A condition on texts: that a key is, or is not (`excluded`), one of some values."""

    key: Key
    values: Sequence[str]
    excluded: bool = False


class Bm25Index:
    """BM25 (k1 = 1.2, b = 0.75) over texts that are given as terms.

    One process at a time writes, as the index's lock sees to; readers see what was committed before `refresh`.
    """

    def __init__(self, folder: Path | None) -> None:
        """Open or create the index in a folder; None: in memory. OSError if the folder cannot be used."""
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("document", tokenizer_name="raw", index_option="basic")
        builder.add_text_field("digest", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_integer_field("vector", stored=True)
        builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        self._schema = builder.build()
        self._writer: tantivy.IndexWriter | None = None
        with _disk_errors():
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            self._index = tantivy.Index(self._schema, path=None if folder is None else str(folder))
            self._index.reload()

    def __len__(self) -> int:
        """Number of texts."""
        return int(self._index.searcher().num_docs)

    # --- Writing

    def put(self, texts: Iterable[IndexedText]) -> None:
        """Write texts, in place of those of the same ids; readers see them after `commit`."""
        with _disk_errors():
            writer = self._open_writer()
            for text in texts:
                writer.delete_documents_by_term("id", text.id)
                fields = {"id": text.id, "document": text.document, "digest": text.digest, "vector": text.vector}
                writer.add_document(tantivy.Document(**fields, terms=" ".join(text.terms)))

    def delete(self, key: Key, values: Iterable[str]) -> None:
        """Delete the texts that have one of some values."""
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

    def best(self, terms: Sequence[str], most: int, restrictions: Sequence[Restriction] = ()) -> dict[str, float]:
        """Return BM25 of at most `most` texts that share a term, by id, best first; a repeated term counts again."""
        if not terms:
            return {}
        parts = [(Occur.Must, self._any_of(terms)), *map(self._condition, restrictions)]
        return {text["id"][0]: score for score, text in self._found(Query.boolean_query(parts), most)}

    def scores(self, terms: Sequence[str], ids: Sequence[str]) -> dict[str, Scored]:
        """Scores of texts by their ids, 0 for those that share no term; ids that are not here are left out."""
        if not ids:
            return {}
        parts = [self._condition(Restriction("id", ids))]
        if terms:
            parts.append((Occur.Should, self._any_of(terms)))
        found = self._found(Query.boolean_query(parts), len(ids))
        return {text["id"][0]: Scored(score, text["digest"][0], text["vector"][0]) for score, text in found}

    def weight(self, term: str) -> float:
        """Inverse document frequency of a term, as in its BM25; the highest for one that no text has."""
        frequency = self._frequency(term)
        return math.log1p((len(self) - frequency + 0.5) / (frequency + 0.5))

    def _frequency(self, term: str) -> int:
        """Number of texts with a term; deleted ones count until tantivy merges them away."""
        return min(int(self._index.searcher().doc_freq("terms", term)), len(self))

    def _any_of(self, terms: Sequence[str]) -> Query:
        queries = [
            Query.boost_query(Query.term_query(self._schema, "terms", term, index_option="freq"), float(repeats))
            for term, repeats in Counter(terms).items()
        ]
        return Query.boolean_query([(Occur.Should, query) for query in queries])

    def _condition(self, restriction: Restriction) -> tuple[Occur, Query]:
        """A condition that adds nothing to a score."""
        among = Query.term_set_query(self._schema, restriction.key, list(restriction.values))
        return (Occur.MustNot, among) if restriction.excluded else (Occur.Must, Query.const_score_query(among, 0.0))

    def _found(self, query: Query, most: int) -> Iterator[tuple[float, tantivy.Document]]:
        """Scores and stored fields of at most `most` texts, best first."""
        searcher = self._index.searcher()
        for score, address in searcher.search(query, max(most, 1), count=False).hits:
            yield float(score), searcher.doc(address)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise tantivy's errors, which are all ValueErrors, as what they are: failures of the disk."""
    try:
        yield
    except ValueError as error:
        raise OSError(f"the index of words: {error}; if it is damaged, check() makes it anew") from error
