"""Documents, with or without their vectors, read back from the rows of an index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from chroma_eddy.errors import ForeignCollection, damaged
from chroma_eddy.rows.schema import (
    BEFORE,
    DIGEST,
    INDEX,
    DocumentRow,
    EmbeddedDocument,
    raw_document_id,
    row_ids,
    sentence_spans,
)
from chroma_eddy.storage.names import DOCUMENTS, MAIN, RAW, SENTENCES
from chroma_eddy.storage.pages import PAGE_SIZE, slices
from chroma_eddy.storage.settings import IndexSettings
from chroma_eddy.storage.store import Store
from chroma_eddy.types import Document
from eddy_embed.integrations import (
    DOCUMENT,
    END,
    HEADINGS,
    N_TOKENS,
    START,
    LongDocument,
    Passage,
    Span,
    grouped_by_size,
)

GROUP_ROWS = 5_000
"""Rows of the documents that are read together: each read by digest makes the database look through all rows."""
SpanT = TypeVar("SpanT", bound=Span)


class _Row(NamedTuple):
    id: str
    metadata: dict[str, Any]
    text: str
    vector: NDArray[np.float32]


def group_ids(rows: Iterable[DocumentRow]) -> Iterator[list[str]]:
    """Ids of documents in groups of at most `GROUP_ROWS` passages and sentences."""
    for group in grouped_by_size(rows, lambda row: row.passages + row.sentences, math.inf, GROUP_ROWS):
        yield [row.id for row in group]


def read_embedded_documents(
    store: Store, settings: IndexSettings, ids: Sequence[str], *, keeps_raw: bool
) -> list[EmbeddedDocument]:
    """Read documents with their vectors, except those that queries do not find; ForeignCollection if one is damaged."""
    rows = store.get(DOCUMENTS, ids=ids, metadatas=True, embeddings=True)
    complete = {id_: row for id_, *row in zip(rows.ids, rows.metadatas, rows.vectors, strict=True) if row[0][DIGEST]}
    digests = [metadata[DIGEST] for metadata, _ in complete.values()]
    passages = _rows_by_digest(store, MAIN, digests, documents=True, embeddings=True)
    sentences = _rows_by_digest(store, SENTENCES, digests, embeddings=True) if settings.sentence_vectors else None
    raw = _rows_by_digest(store, RAW, digests, embeddings=True) if keeps_raw else None
    documents = []
    for id_ in filter(complete.__contains__, ids):
        metadata, vector = complete[id_]
        digest = metadata[DIGEST]
        own_sentences = None if sentences is None else sentences[digest]
        document = _embedded_document(store, id_, metadata, vector, passages[digest], own_sentences)
        documents.append(document if raw is None else _with_raw_vectors(document, settings, raw[digest]))
    return documents


def read_texts(store: Store, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Read the texts of documents, given the metadata of their rows; ForeignCollection if passages are missing."""
    passages = _rows_by_digest(store, MAIN, [metadata[DIGEST] for metadata in documents], documents=True)
    for metadata in documents:
        if len(passages[metadata[DIGEST]]) != metadata["eddy_passages"]:
            raise damaged(metadata[DOCUMENT], f"passages in {store.name}")
    return [_join_rows(passages[metadata[DIGEST]], metadata) for metadata in documents]


def read_documents(store: Store, ids: Sequence[str]) -> list[Document]:
    """Read documents as they were given, except those that queries do not find; ForeignCollection if one is damaged."""
    rows = store.get(DOCUMENTS, ids=ids, metadatas=True)
    complete = {id_: metadata for id_, metadata in zip(rows.ids, rows.metadatas, strict=True) if metadata[DIGEST]}
    documents = {}
    for (id_, metadata), text in zip(complete.items(), read_texts(store, list(complete.values())), strict=True):
        row = DocumentRow.parse(id_, metadata)
        documents[id_] = Document(id_, text, row.metadata, row.page_starts)
        if documents[id_].digest != row.digest:
            raise damaged(id_, "the text or the metadata that it was written with")
    return [documents[id_] for id_ in ids if id_ in documents]


def join_text(passages: Iterable[tuple[dict[str, Any], str]], document: Mapping[str, Any]) -> str:
    """Join a document's text from metadata and text of each passage, in any order, and metadata of its own row."""
    ordered = sorted(passages, key=lambda passage: passage[0][INDEX])
    return "".join(str(row.get(BEFORE, "")) + text for row, text in ordered) + str(document["eddy_after"])


def _join_rows(passages: Iterable[_Row], document: Mapping[str, Any]) -> str:
    return join_text(((row.metadata, row.text) for row in passages), document)


def _rows_by_digest(store: Store, kind: str, digests: Sequence[str], **fields: bool) -> dict[str, list[_Row]]:
    """Rows of versions of documents, by digest, in any order."""
    by_digest: dict[str, list[_Row]] = {digest: [] for digest in digests}
    for batch in slices(len(digests), PAGE_SIZE):
        where = {DIGEST: {"$in": list(digests[batch])}}
        for rows in store.pages(kind, ids=None, where=where, metadatas=True, **fields):
            texts = rows.texts or [""] * len(rows.ids)
            vectors = rows.vectors if len(rows.vectors) else np.zeros((len(rows.ids), 0), np.float32)
            for row in map(_Row, rows.ids, rows.metadatas, texts, vectors):
                by_digest[row.metadata[DIGEST]].append(row)
    return by_digest


def _embedded_document(
    store: Store,
    id_: str,
    metadata: dict[str, Any],
    vector: NDArray[np.float32],
    passage_rows: list[_Row],
    sentence_rows: list[_Row] | None,
) -> EmbeddedDocument:
    """Put a document together from its own row, its passages and, if they have rows, its sentences."""
    row = DocumentRow.parse(id_, metadata)
    text = _join_rows(passage_rows, metadata)
    document = Document(id_, text, row.metadata, row.page_starts)
    whole = len(passage_rows) == row.passages and (sentence_rows is None or len(sentence_rows) == row.sentences)
    if not whole or document.digest != row.digest:
        raise ForeignCollection(
            f"document {id_!r:.80} of index {store.name!r} is not whole: it has {len(passage_rows)} of {row.passages} "
            f"passages, {len(sentence_rows or ())} of {row.sentences} sentences, or another text than it was written "
            "with: something else has changed its rows. Call check(), which finds all such documents, and upsert them "
            "again"
        )
    ordered = sorted(passage_rows, key=lambda passage: passage.metadata[INDEX])
    counts = [len(sentence_spans(passage.metadata)) for passage in ordered]
    passages = [
        Passage(
            *_span_fields(passage),
            end - count,
            end - 1,
            (str(passage.metadata[HEADINGS]),) if HEADINGS in passage.metadata else (),
        )
        for passage, count, end in zip(ordered, counts, accumulate(counts), strict=True)
    ]
    sentences = [
        Span(*_span_fields(sentence)) for sentence in sorted(sentence_rows or (), key=lambda own: own.metadata[INDEX])
    ]
    sizes = (row.tokens, row.windows, row.truncated)
    return EmbeddedDocument(document, LongDocument(text, vector, passages, sentences, *sizes))


def _span_fields(row: _Row) -> tuple[int, int, int, NDArray[np.float32]]:
    return row.metadata[START], row.metadata[END], row.metadata[N_TOKENS], row.vector


def _with_raw_vectors(embedded: EmbeddedDocument, settings: IndexSettings, rows: Sequence[_Row]) -> EmbeddedDocument:
    document, result = embedded.document, embedded.result
    vectors = {row.id: row.vector for row in rows}

    def raw(unit: str, spans: Sequence[SpanT]) -> list[SpanT]:
        ids = row_ids(document, spans, settings)
        return [replace(span, vector=vectors[f"{unit}/{id_}"]) for span, id_ in zip(spans, ids, strict=True)]

    passages, sentences = raw("passage", result.passages), raw("sentence", result.sentences)
    raw_result = replace(result, vector=vectors[raw_document_id(document)], passages=passages, sentences=sentences)
    return replace(embedded, raw=raw_result)
