"""Sentences of passages with their vectors: read out of the passage, or stored where a sentence takes a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.ranking import cosines
from chroma_eddy.rows.schema import DIGEST, PIECE, fields, sentence_spans, split_sentences
from chroma_eddy.storage.pages import Rows
from chroma_eddy.types import Highlight, Hit
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import passage_id
from eddy_embed.utils.arrays import Doubles, Floats

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

Spans = Sequence[tuple[int, int]]


def add_highlights(index: IndexCore, vector: Doubles, hits: Sequence[Hit]) -> list[Hit]:
    """Add the sentences of each passage or piece; the question's vector has the shape (dimension,)."""
    return [replace(hit, sentences=marks) for hit, marks, _ in _marked(index, vector, hits)]


def sentence_hits(index: IndexCore, vector: Doubles, passages: Sequence[Hit], most: int) -> tuple[list[Hit], Doubles]:
    """The nearest sentences of passages as hits, and their vectors, shape (hits, dimension)."""
    settings, found = index.settings, list[tuple[Hit, Floats]]()
    for hit, marks, vectors in _marked(index, vector, passages):
        for mark, own in zip(marks, vectors, strict=True):
            id_ = passage_id(
                hit.document, hit.row[DIGEST], 0, mark.start, mark.end, settings.fingerprint, settings.late
            )
            found.append((replace(hit, id=id_, **vars(mark)), own))
    found.sort(key=lambda pair: -pair[0].cosine)
    kept = found[:most]
    return [hit for hit, _ in kept], np.array([own for _, own in kept], np.float64)


def sentence_vectors(index: IndexCore, rows: Rows) -> list[Floats]:
    """Vectors of each row's sentences, each of shape (sentences, dimension)."""
    return [vectors for _, vectors in _sentences(index, rows.metadatas, rows.texts)]


def _marked(index: IndexCore, vector: Doubles, hits: Sequence[Hit]) -> list[tuple[Hit, tuple[Highlight, ...], Floats]]:
    marked = []
    found = _sentences(index, [hit.row for hit in hits], [hit.text for hit in hits])
    for hit, (spans, vectors) in zip(hits, found, strict=True):
        near = cosines(vector, np.asarray(vectors, np.float64)).tolist()
        marks = tuple(_mark(hit, start, end, cosine) for (start, end), cosine in zip(spans, near, strict=True))
        marked.append((hit, marks, vectors))
    return marked


def _mark(hit: Hit, start: int, end: int, cosine: float) -> Highlight:
    place = (hit.start + start, hit.start + end)
    pages: dict[str, Any] = {**hit.pages.numbers(*place), **hit.pages.labels(*place)}
    return Highlight(*place, hit.text[start:end], cosine, cosine, **pages)


def _sentences(index: IndexCore, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> list[tuple[Spans, Floats]]:
    """Spans of each row's sentences, from its start, and their vectors."""
    stored = index.store.vectors
    found: list[tuple[Spans, Floats | None]] = []
    to_read: list[tuple[str, Spans]] = []
    for row, text in zip(rows, texts, strict=True):
        own = {} if PIECE in row else fields(row)
        spans = split_sentences(text, index.settings) if PIECE in row else sentence_spans(row)
        if "vectors" in own and stored is not None:
            numbers = range(own["vectors"], own["vectors"] + len(spans))
            found.append((spans, stored.sentences.read(numbers)))
            continue
        before = str(own.get("before", ""))
        before = before[len(before.rstrip()) :]  # so that the first token is the one that the document has there
        to_read.append((before + text, [(len(before) + start, len(before) + end) for start, end in spans]))
        found.append((spans, None))
    read = iter(_read_out(index.embedder, to_read) if to_read else ())
    return [(spans, next(read) if vectors is None else vectors) for spans, vectors in found]


def _read_out(embedder: Embedder, passages: Sequence[tuple[str, Spans]]) -> list[Floats]:
    """Vectors of sentences out of a pass over each text, or each by itself for a method that reads one token."""
    texts, spans = [text for text, _ in passages], [own for _, own in passages]
    if not embedder.can_embed_words:
        lines = [text[start:end] for text, own in passages for start, end in own]
        vectors = embedder.encode_document(lines, show_progress=False)
        return np.split(vectors, np.cumsum([len(own) for own in spans])[:-1])
    try:
        return embedder.encode_words(texts, spans)
    except InvalidParameter:  # the tokenizer drops all characters of a sentence: its vector is the passage's
        return [np.concatenate([_word_or_whole(embedder, text, span) for span in own]) for text, own in passages]


def _word_or_whole(embedder: Embedder, text: str, span: tuple[int, int]) -> Floats:
    try:
        return embedder.encode_words(text, [span])
    except InvalidParameter:
        return embedder.encode_document([text], show_progress=False)
