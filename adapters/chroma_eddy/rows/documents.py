"""Documents, with or without their vectors, read back from the rows of an index."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from chroma_eddy.errors import damaged
from chroma_eddy.rows.schema import DIGEST, DocumentRow, fields, sentence_spans
from chroma_eddy.storage.names import DOCUMENTS, MAIN
from chroma_eddy.storage.pages import PAGE_SIZE, Rows, slices
from chroma_eddy.storage.store import Store
from chroma_eddy.types import Document
from eddy_embed.encoding.document import LongDocument, Passage, Span
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START, grouped_by_size
from eddy_embed.utils.arrays import Floats

GROUP_ROWS = 5_000
"""Rows of the documents that are read together: each read by digest makes the database look through all rows."""


def group_ids(rows: Iterable[DocumentRow]) -> Iterator[list[str]]:
    """Ids of documents in groups of at most `GROUP_ROWS` passages."""
    for group in grouped_by_size(rows, lambda row: row.passages, math.inf, GROUP_ROWS):
        yield [row.id for row in group]


def read_documents(store: Store, ids: Sequence[str]) -> list[Document]:
    """Read documents as they were given, except those that queries do not find; ForeignCollection if one is damaged."""
    rows = store.get(DOCUMENTS, ids=ids, metadatas=True)
    complete = {id_: metadata for id_, metadata in zip(rows.ids, rows.metadatas, strict=True) if metadata[DIGEST]}
    documents = {}
    for (id_, metadata), text in zip(complete.items(), read_texts(store, list(complete.values())), strict=True):
        row = DocumentRow.parse(id_, metadata)
        documents[id_] = row.document(text)
        if documents[id_].digest != row.digest:
            raise damaged(id_, "the text or the metadata that it was written with")
    return [documents[id_] for id_ in ids if id_ in documents]


def read_texts(store: Store, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Read the texts of documents, given the metadata of their rows; ForeignCollection if passages are missing."""
    passages = rows_by_digest(store, [metadata[DIGEST] for metadata in documents])
    for metadata in documents:
        if len(passages[metadata[DIGEST]].ids) != fields(metadata)["passages"]:
            raise damaged(metadata[DOCUMENT], f"passages in {store.name}")
    return [join_text(passages[metadata[DIGEST]], metadata) for metadata in documents]


def join_text(passages: Rows, document: Mapping[str, Any]) -> str:
    """Join a document's text from its passages, in order, and metadata of its own row."""
    before = (str(fields(row).get("before", "")) for row in passages.metadatas)
    parts = (gap + text for gap, text in zip(before, passages.texts, strict=True))
    return "".join(parts) + str(fields(document)["after"])


def rows_by_digest(store: Store, digests: Sequence[str]) -> dict[str, Rows]:
    """Passages of versions of documents with metadata and texts, by digest, in order."""
    found: list[Rows] = []
    for batch in slices(len(digests), PAGE_SIZE):
        found += store.pages(MAIN, where={DIGEST: {"$in": list(digests[batch])}}, metadatas=True, documents=True)
    rows = Rows.concatenate(found)
    by_digest: dict[str, list[int]] = {digest: [] for digest in digests}
    for at, metadata in enumerate(rows.metadatas):
        by_digest[metadata[DIGEST]].append(at)
    return {digest: in_order(rows.take(own)) for digest, own in by_digest.items()}


def in_order(passages: Rows) -> Rows:
    """The passages of one version as they follow each other in the document."""
    places = [fields(metadata)["index"] for metadata in passages.metadatas]
    return passages.take(sorted(range(len(places)), key=places.__getitem__))


def read_embedded(store: Store, id_: str, sentences_of: Callable[[Rows], Sequence[Floats]]) -> LongDocument | None:
    """Read a document with its vectors; None if queries do not find it.

    `sentences_of` gives the vectors of each passage's sentences, each of shape (sentences, dimension).

    Raises:
        ForeignCollection: Something else has changed its rows.
    """
    rows = store.get(DOCUMENTS, ids=[id_], metadatas=True)
    if not rows.ids or not rows.metadatas[0][DIGEST]:
        return None
    (metadata,) = rows.metadatas
    row = DocumentRow.parse(id_, metadata)
    own = rows_by_digest(store, [row.digest])[row.digest]
    text = join_text(own, metadata)
    if len(own.ids) != row.passages or row.document(text).digest != row.digest:
        raise damaged(id_, f"passages in {store.name}, or has another text than it was written with")
    spans = [sentence_spans(passage) for passage in own.metadatas]
    vectors, ends = store.vectors_of(MAIN, own), list(accumulate(map(len, spans)))
    passages = [
        Passage(
            *(passage[START], passage[END], fields(passage)["n_tokens"], vector),
            *(end - len(inside), end - 1),
            (str(passage[HEADINGS]),) if HEADINGS in passage else (),
        )
        for passage, vector, inside, end in zip(own.metadatas, vectors, spans, ends, strict=True)
    ]
    sentences = [
        Span(passage.start + start, passage.start + end, 0, vector)
        for passage, inside, each in zip(passages, spans, sentences_of(own), strict=True)
        for (start, end), vector in zip(inside, each, strict=True)
    ]
    sizes = (row.tokens, row.windows, row.truncated)
    return LongDocument(text, store.vectors_of(DOCUMENTS, rows)[0], passages, sentences, *sizes)
