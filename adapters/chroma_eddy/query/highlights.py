"""Sentences of hits with their cosines, from stored vectors or from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from chroma_eddy.errors import damaged
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.ranking import cosines
from chroma_eddy.rows.schema import DIGEST, PIECE, sentence_spans, span_id, split_sentences
from chroma_eddy.storage.names import SENTENCES
from chroma_eddy.types import Highlight, Hit
from eddy_embed.integrations import Doubles

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

Spans = Sequence[tuple[int, int]]


def add_highlights(index: IndexCore, vector: Doubles, hits: list[Hit]) -> list[Hit]:
    """Add the sentences of each passage or piece; the model runs only where the index has no sentence vectors.

    The question's vector has the shape (dimension,).
    """
    spans = [[(hit.start + start, hit.start + end) for start, end in _sentences(index, hit)] for hit in hits]
    has_vectors = [index.settings.sentence_vectors and PIECE not in hit.row for hit in hits]
    triples = list(zip(hits, spans, has_vectors, strict=True))
    stored = iter(_stored_vectors(index, [(hit, own) for hit, own, is_stored in triples if is_stored]))
    highlighted = []
    for hit, own, is_stored in triples:
        vectors = next(stored) if is_stored else _encode_sentences(index.embedder, hit, own)
        sentences = tuple(
            Highlight(start, end, hit.text[start - hit.start : end - hit.start], float(cosine), float(cosine))
            for (start, end), cosine in zip(own, cosines(vector, vectors), strict=True)
        )
        highlighted.append(replace(hit, sentences=sentences))
    return highlighted


def _sentences(index: IndexCore, hit: Hit) -> Spans:
    return split_sentences(hit.text, index.settings) if PIECE in hit.row else sentence_spans(hit.row)


def _stored_vectors(index: IndexCore, hits: Sequence[tuple[Hit, Spans]]) -> list[Doubles]:
    ids = [[span_id(hit.document, hit.row[DIGEST], *span, index.settings) for span in spans] for hit, spans in hits]
    if not ids:
        return []
    rows = index.store.get(SENTENCES, ids=sorted({id_ for own in ids for id_ in own}), embeddings=True)
    vectors = dict(zip(rows.ids, np.asarray(rows.vectors, np.float64), strict=True))
    for (hit, _), own in zip(hits, ids, strict=True):
        if not vectors.keys() >= set(own):
            raise damaged(hit.document, f"sentences in {index.name + SENTENCES}")
    return [np.stack([vectors[id_] for id_ in own]) for own in ids]


def _encode_sentences(embedder: Embedder, hit: Hit, spans: Spans) -> Doubles:
    inside = [(start - hit.start, end - hit.start) for start, end in spans]
    if embedder.can_embed_words:
        vectors = embedder.encode_words(hit.text, inside)
    else:
        vectors = embedder.encode_document([hit.text[start:end] for start, end in inside], show_progress=False)
    return np.asarray(vectors, np.float64)
