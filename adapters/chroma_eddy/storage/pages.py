"""Rows of a collection: read in pages, and written so that queries find every one of them afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray

PAGE_SIZE = 1000
"""Rows in a page."""
_ROUNDING = 1e-6
"""Largest difference between entries of a vector and of what Chroma returns of it, relative to entries above 1."""


@dataclass(frozen=True)
class Rows:
    """Rows of a collection; fields that were not requested are empty."""

    ids: list[str]
    metadatas: list[dict[str, Any]]
    texts: list[str]
    vectors: NDArray[np.float32]

    @classmethod
    def parse(cls, got: Any) -> Rows:
        """The rows that Chroma's `get` returned."""
        return cls(
            got["ids"],
            [dict(row or {}) for row in got["metadatas"] or []],
            list(got["documents"] or []),
            np.zeros((0, 0), np.float32) if got["embeddings"] is None else np.asarray(got["embeddings"], np.float32),
        )

    @classmethod
    def concatenate(cls, pages: Iterable[Rows]) -> Rows:
        """The rows of all pages."""
        pages = list(pages)
        vectors = [page.vectors for page in pages if len(page.vectors)]
        return cls(
            [id_ for page in pages for id_ in page.ids],
            [row for page in pages for row in page.metadatas],
            [text for page in pages for text in page.texts],
            np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32),
        )


def slices(count: int, limit: int) -> Iterator[slice]:
    """Slices of at most `limit` out of `count` rows."""
    return (slice(start, start + limit) for start in range(0, count, limit))


def upsert(
    collection: Collection,
    ids: Sequence[str],
    vectors: NDArray[np.float32],
    metadatas: Sequence[dict[str, Any]],
    texts: Sequence[str] | None = None,
    *,
    atomic: bool = False,
) -> None:
    """Write rows in one batch, in place of those of the same ids.

    Where a vector is replaced in the HNSW graph, queries may no longer find others
    (https://github.com/chroma-core/chroma/issues/7758). So a row with the same text and vector gets its metadata alone,
    and any other is deleted before it is written again.

    Args:
        collection: The rows' collection.
        ids: Ids of the rows.
        vectors: Shape (rows, dimension).
        metadatas: Metadata of each row.
        texts: Text of each row; None for rows without.
        atomic: Replace changed rows in one step, so that they are never missing, in spite of the graph.
    """
    present = Rows.parse(collection.get(ids=list(ids), include=["embeddings", "documents"]))
    stored = {id_: at for at, id_ in enumerate(present.ids)}

    def is_same(number: int) -> bool:
        at = stored.get(ids[number])
        if at is None or (texts is not None and texts[number] != present.texts[at]):
            return False
        return bool(np.allclose(vectors[number], present.vectors[at], rtol=_ROUNDING, atol=_ROUNDING))

    same = [number for number in range(len(ids)) if is_same(number)]
    if same:
        collection.update(ids=[ids[number] for number in same], metadatas=[metadatas[number] for number in same])
    others = sorted(set(range(len(ids))) - set(same))
    changed = [ids[number] for number in others if ids[number] in stored]
    if changed and not atomic:
        collection.delete(ids=changed)
    if others:
        collection.upsert(
            ids=[ids[number] for number in others],
            embeddings=vectors[others],
            metadatas=[metadatas[number] for number in others],
            documents=None if texts is None else [texts[number] for number in others],
        )
