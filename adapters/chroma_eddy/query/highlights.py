"""Sentences of passages found, each with its cosine: from stored vectors, or by the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.errors import damaged
from chroma_eddy.query.ranking import cosines
from chroma_eddy.rows.schema import DIGEST, PIECE, sentence_spans, split_sentences
from chroma_eddy.storage.names import SENTENCES
from chroma_eddy.types import Highlight, Hit
from eddy_embed.ids import passage_id

if TYPE_CHECKING:
    from chroma_eddy.index_core import IndexCore
    from eddy_embed import Embedder

    Doubles = np.ndarray[Any, np.dtype[np.float64]]

Spans = list[list[tuple[int, int]]]


def add_highlights(index: IndexCore, vector: Doubles, hits: list[Hit]) -> list[Hit]:
    """Passages with their sentences, from stored vectors or, where there are none, from the model."""
    spans = [[(hit.start + start, hit.start + end) for start, end in _sentence_offsets(index, hit)] for hit in hits]
    kept = {at for at, hit in enumerate(hits) if index.recipe.sentence_vectors and PIECE not in hit.row}
    stored = iter(_stored_vectors(index, [hits[at] for at in sorted(kept)], [spans[at] for at in sorted(kept)]))
    found = []
    for at, (hit, own) in enumerate(zip(hits, spans, strict=True)):
        near = next(stored) if at in kept else _encode_sentences(index.embedder, hit, own)
        texts = [hit.text[start - hit.start : end - hit.start] for start, end in own]
        rows_ = zip(own, texts, cosines(vector, near), strict=True)
        found.append(replace(hit, sentences=tuple(Highlight(*span, text, float(cos)) for span, text, cos in rows_)))
    return found


def _sentence_offsets(index: IndexCore, hit: Hit) -> list[tuple[int, int]]:
    if PIECE not in hit.row:
        return sentence_spans(hit.row)
    return split_sentences(hit.text, index.recipe)


def _stored_vectors(index: IndexCore, hits: Sequence[Hit], spans: Spans) -> list[Doubles]:
    if not hits:
        return []
    made = (index.recipe.fingerprint, index.recipe.late)
    ids = [
        [passage_id(hit.document, hit.row[DIGEST], 0, start, end, *made) for start, end in own]
        for hit, own in zip(hits, spans, strict=True)
    ]
    got = index.store.get(SENTENCES, ids=sorted({id_ for own in ids for id_ in own}), embeddings=True)
    vectors = dict(zip(got.ids, np.asarray(got.vectors, np.float64), strict=True))
    for hit, own in zip(hits, ids, strict=True):
        if not vectors.keys() >= set(own):
            raise damaged(hit.document, f"sentences in {index.name + SENTENCES}")
    return [np.stack([vectors[id_] for id_ in own]) for own in ids]


def _encode_sentences(embedder: Embedder, hit: Hit, spans: Sequence[tuple[int, int]]) -> Doubles:
    inside = [(start - hit.start, end - hit.start) for start, end in spans]
    if embedder.reads_words:
        vectors = embedder.encode_words(hit.text, inside)
    else:
        vectors = embedder.encode_document([hit.text[start:end] for start, end in inside], show_progress=False)
    return np.asarray(vectors, np.float64)
