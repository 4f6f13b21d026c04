"""Rows of the collections as documents again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from chroma_eddy.errors import ForeignCollection, damaged
from chroma_eddy.rows.schema import (
    BEFORE,
    DIGEST,
    DOCUMENT,
    END,
    HEADINGS,
    INDEX,
    START,
    DocumentRow,
    EmbeddedDocument,
    raw_document_id,
    row_ids,
    sentence_spans,
)
from chroma_eddy.storage.batches import slices
from chroma_eddy.storage.names import DOCUMENTS, MAIN, RAW, SENTENCES
from chroma_eddy.storage.pages import PAGE_SIZE
from chroma_eddy.types import Document
from eddy_embed.document import LongDocument, Passage, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chroma_eddy.storage.recipe import Recipe
    from chroma_eddy.storage.store import Store

GROUP_ROWS = 5_000
"""Rows that are read at a time, of whole documents; each time, the database looks through all of them."""
SpanT = TypeVar("SpanT", bound=Span)


class _Row(NamedTuple):
    id: str
    about: dict[str, Any]
    text: str
    vector: NDArray[np.float32]


def group_ids(entries: Iterable[DocumentRow]) -> Iterator[list[str]]:
    """Ids of documents that are read at a time."""
    group: list[str] = []
    size = 0
    for entry in entries:
        own = entry.passages + entry.sentences
        if group and size + own > GROUP_ROWS:
            yield group
            group, size = [], 0
        group.append(entry.id)
        size += own
    if group:
        yield group


def read_embedded_documents(
    store: Store, recipe: Recipe, ids: Sequence[str], *, keeps_raw: bool
) -> list[EmbeddedDocument]:
    """Documents as they are stored, with their vectors.

    Args:
        store: Where.
        recipe: What made them.
        ids: Of documents; those that queries do not find are left out.
        keeps_raw: Whether the index keeps raw vectors.
    """
    own = store.get(DOCUMENTS, ids=ids, metadatas=True, embeddings=True)
    every = {row[0]: row for row in zip(own.ids, own.metadatas, own.vectors, strict=True) if row[1][DIGEST]}
    digests = [about[DIGEST] for _, about, _ in every.values()]
    passages = _rows_by_digest(store, MAIN, digests, documents=True, embeddings=True)
    lines = _rows_by_digest(store, SENTENCES, digests, embeddings=True) if recipe.sentence_vectors else None
    raw = _rows_by_digest(store, RAW, digests, embeddings=True) if keeps_raw else None
    found = []
    for id_, about, vector in (every[id_] for id_ in ids if id_ in every):
        digest = about[DIGEST]
        done = _embedded_document(
            store, (id_, about), vector, passages[digest], None if lines is None else lines[digest]
        )
        found.append(done if raw is None else replace(done, raw=_read_raw_vectors(done, recipe, raw[digest])))
    return found


def read_texts(store: Store, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of documents.

    Args:
        store: Where.
        documents: Metadata of their rows.
    """
    parts = _rows_by_digest(store, MAIN, [about[DIGEST] for about in documents], documents=True)
    for about in documents:
        if len(parts[about[DIGEST]]) != about["eddy_passages"]:
            raise damaged(about[DOCUMENT], f"passages in {store.name}")
    return [join_text(((row.about, row.text) for row in parts[about[DIGEST]]), about) for about in documents]


def read_documents(store: Store, ids: Sequence[str]) -> list[Document]:
    """Documents as they were given; those that queries do not find are left out.

    Args:
        store: Where.
        ids: Of documents.
    """
    own = store.get(DOCUMENTS, ids=ids, metadatas=True)
    every = {id_: about for id_, about in zip(own.ids, own.metadatas, strict=True) if about[DIGEST]}
    found = {}
    for (id_, about), text in zip(every.items(), read_texts(store, list(every.values())), strict=True):
        entry = DocumentRow.parse(id_, about)
        found[id_] = Document(id_, text, entry.metadata, entry.page_starts)
        if found[id_].digest != entry.digest:
            raise damaged(id_, "the text or the metadata that it was written with")
    return [found[id_] for id_ in ids if id_ in found]


def join_text(passages: Iterable[tuple[dict[str, Any], str]], about: Mapping[str, Any]) -> str:
    """The text of a document, of its passages' rows and texts, and its own row."""
    ordered = sorted(passages, key=lambda pair: pair[0][INDEX])  # Chroma answers in an order of its own
    return "".join(str(row.get(BEFORE, "")) + text for row, text in ordered) + str(about["eddy_after"])


def _rows_by_digest(store: Store, part: str, digests: Sequence[str], **kinds: bool) -> dict[str, list[_Row]]:
    """Rows of versions of documents, by digest."""
    found: dict[str, list[_Row]] = {digest: [] for digest in digests}
    for at in slices(len(digests), PAGE_SIZE):
        where = {DIGEST: {"$in": list(digests[at])}}
        for rows in store.pages(part, ids=None, where=where, metadatas=True, **kinds):
            texts = rows.texts or [""] * len(rows.ids)
            vectors = rows.vectors if len(rows.vectors) else np.zeros((len(rows.ids), 0), np.float32)
            for row in map(_Row, rows.ids, rows.metadatas, texts, vectors):
                found[row.about[DIGEST]].append(row)
    return found


def _embedded_document(
    store: Store,
    own: tuple[str, dict[str, Any]],
    vector: NDArray[np.float32],
    found: list[_Row],
    lines: list[_Row] | None,
) -> EmbeddedDocument:
    """A document of its row, its vector, its passages and, if they have rows, its sentences."""
    id_, about = own
    entry = DocumentRow.parse(id_, about)
    text = join_text(((row.about, row.text) for row in found), about)
    document = Document(id_, text, entry.metadata, entry.page_starts)
    whole = len(found) == entry.passages and (lines is None or len(lines) == entry.sentences)
    if not whole or document.digest != entry.digest:
        raise ForeignCollection(
            f"document {id_!r:.80} of index {store.name!r} is not whole: it has {len(found)} of {entry.passages} "
            f"passages, {len(lines or ())} of {entry.sentences} sentences, or another text than it was written with: "
            "something else has changed its rows. Call check(), which finds all such documents, and upsert them again"
        )
    ordered = sorted(found, key=lambda row: row.about[INDEX])
    counts = [len(sentence_spans(row.about)) for row in ordered]
    passages = [
        Passage(*_span_fields(row), last - size, last - 1, _headings(row.about))
        for row, size, last in zip(ordered, counts, accumulate(counts), strict=True)
    ]
    sentences = [Span(*_span_fields(row)) for row in sorted(lines or (), key=lambda row: row.about[INDEX])]
    sizes = (entry.tokens, entry.windows, entry.truncated)
    return EmbeddedDocument(document, LongDocument(text, vector, passages, sentences, *sizes))


def _span_fields(row: _Row) -> tuple[int, int, int, NDArray[np.float32]]:
    return row.about[START], row.about[END], row.about["eddy_n_tokens"], row.vector


def _headings(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(row[HEADINGS]),) if HEADINGS in row else ()


def _read_raw_vectors(done: EmbeddedDocument, recipe: Recipe, rows: Sequence[_Row]) -> LongDocument:
    document, result = done.document, done.result
    vectors = {row.id: row.vector for row in rows}

    def raw(kind: str, spans: Sequence[SpanT]) -> list[SpanT]:
        ids = row_ids(document, spans, recipe)
        return [replace(span, vector=vectors[f"{kind}/{id_}"]) for span, id_ in zip(spans, ids, strict=True)]

    return replace(
        result,
        vector=vectors[raw_document_id(document)],
        passages=raw("passage", result.passages),
        sentences=raw("sentence", result.sentences),
    )
