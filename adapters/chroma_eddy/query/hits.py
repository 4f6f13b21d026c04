"""Candidates for hits, by their ids, and the hits made of the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chroma_eddy.errors import ForeignCollection, damaged
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.ranking import cosines
from chroma_eddy.rows.documents import read_texts
from chroma_eddy.rows.schema import DIGEST, PIECE, fields, user_metadata
from chroma_eddy.storage.names import DOCUMENTS
from chroma_eddy.types import Hit
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START
from eddy_embed.utils.arrays import Doubles


@dataclass(frozen=True)
class Candidates:
    """Ids of rows that may be hits, best first, and, of a hybrid query, their scores, each of shape (ids,).

    `pieces` are those that may be deleted meanwhile; documents' passages go with their versions.
    """

    ids: Sequence[str]
    scores: Doubles | None = None
    bm25: Doubles | None = None
    deviations: Doubles | None = None
    pieces: frozenset[str] = frozenset()


def read_hits(index: IndexCore, kind: str, found: Candidates, vector: Doubles, most: int) -> list[Hit]:
    """Hits of the first candidates, at most so many, of versions that their documents' rows name.

    `vector` is the question's, shape (dimension,).

    Raises:
        ForeignCollection: There are fewer, since rows of other versions have been left out; or a row is gone, or was
            not written by the index.
    """
    hits: list[Hit] = []
    left_out = ""
    for start in range(0, len(found.ids), most):
        page = _read_page(index, kind, found, slice(start, start + most), vector)
        rows = index.entries(sorted({hit.document for hit in page if PIECE not in hit.row}))
        for hit in page:
            row = rows.get(hit.document)
            if PIECE in hit.row:
                hits.append(hit)
            elif row is not None and row.digest == hit.row[DIGEST]:
                labels: dict[str, Any] = {**row.pages.labels(hit.start, hit.end)}
                hits.append(replace(hit, pages=row.pages, **labels))
            else:
                left_out = hit.document
        if len(hits) >= most:
            left_out = ""
            break
    if left_out:
        raise damaged(left_out, f"the version that {index.name + DOCUMENTS} names")
    return list(_scored(hits[:most], found))


def _read_page(index: IndexCore, kind: str, found: Candidates, page: slice, vector: Doubles) -> list[Hit]:
    """Hits of some candidates with their texts and true cosines, in their order."""
    ids = found.ids[page]
    rows = index.store.get(kind, ids=ids, metadatas=True, documents=kind != DOCUMENTS)
    for id_, row in zip(rows.ids, rows.metadatas, strict=True):
        if DOCUMENT not in row:
            raise ForeignCollection(
                f"row {id_!r:.80} was put into a collection of the index by something else, and nobody knows what made "
                "its vector; delete it: index.collection.delete(ids=[...])"
            )
    if gone := set(ids) - set(rows.ids) - found.pieces:
        raise ForeignCollection(
            f"row {min(gone)!r} of index {index.name!r} is gone: something else has deleted it; call check()"
        )
    if not rows.ids:
        return []
    texts = read_texts(index.store, rows.metadatas) if kind == DOCUMENTS else rows.texts
    near = cosines(vector, index.store.vectors_of(kind, rows).astype(np.float64)).tolist()
    by_id = {own[0]: _hit(*own) for own in zip(rows.ids, rows.metadatas, texts, near, strict=True)}
    return [by_id[id_] for id_ in ids if id_ in by_id]


def _hit(id_: str, row: dict[str, Any], text: str, cosine: float) -> Hit:
    start = row.get(START, 0)
    end = row[END] if END in row else start + (len(text) if PIECE in row else fields(row)["characters"])
    return Hit(
        *(id_, row[DOCUMENT], text, start, end, cosine, cosine, user_metadata(row)),
        headings=str(row.get(HEADINGS, "")),
        page=row.get("page"),
        last_page=row.get("last_page"),
        row=row,
    )


def _scored(hits: Sequence[Hit], found: Candidates) -> Iterator[Hit]:
    """The hits with their scores; without any, sorted by their true cosines."""
    if found.scores is None or found.bm25 is None or found.deviations is None:
        yield from sorted(hits, key=lambda hit: -hit.cosine)
        return
    place = {id_: at for at, id_ in enumerate(found.ids)}
    for hit in hits:
        at = place[hit.id]
        score, bm25, deviation = float(found.scores[at]), float(found.bm25[at]), float(found.deviations[at])
        yield replace(hit, score=score, bm25=bm25, deviation=deviation)
