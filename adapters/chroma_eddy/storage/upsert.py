"""`upsert`: write rows so that queries find every one of them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray

from chroma_eddy.storage.pages import Rows

_ROUNDING = 1e-6
"""Largest difference between entries of a vector and of what Chroma returns of it, in cosine space."""


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
        collection: In cosine space.
        ids: Ids of the rows.
        vectors: Shape (rows, dimension), of length 1.
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
        return bool(np.allclose(vectors[number], present.vectors[at], rtol=0, atol=_ROUNDING))

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
