"""Rows whose vectors are damaged: found by asking for them, and embedded again from the stored texts."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np

from chroma_eddy.index_core import IndexCore
from chroma_eddy.storage.names import DOCUMENTS, MAIN, RAW, SENTENCES, TRANSFORM
from chroma_eddy.write.integrity import check_rows
from chroma_eddy.write.rebuild import reindex
from chroma_eddy.write.writer import Progress
from eddy_embed.integrations import DOCUMENT

_SAMPLE = 100
"""Number of rows of each collection that `check` asks for unless it is to ask for all."""
_TOLERANCE = 1e-3
"""Largest distance of a row from itself, and difference of its length from 1, by rounding."""


def check_vectors(index: IndexCore, *, full: bool = False) -> dict[str, str]:
    """Find documents with rows that a search for their own vectors does not find, as `Index.check` says."""
    store, problems = index.store, dict[str, str]()
    if full:
        for kind in (MAIN, SENTENCES, DOCUMENTS, TRANSFORM, RAW):
            if (collection := store.find(kind)) is not None:
                store.connection.heal(collection)
    for kind in (MAIN, SENTENCES, DOCUMENTS):
        if store.find(kind) is None:
            continue
        lost: Counter[str] = Counter()
        read = partial(store.pages, kind) if full else partial(store.sample, kind, _SAMPLE)
        for rows in read(metadatas=True, embeddings=True):
            found = np.asarray(store.nearest_distances(kind, rows.vectors)) <= _TOLERANCE
            if index.settings.embedder["normalize"]:
                found &= np.abs(np.linalg.norm(rows.vectors, axis=1) - 1) <= _TOLERANCE
            lost.update(str(rows.metadatas[at].get(DOCUMENT, rows.ids[at])) for at in np.flatnonzero(~found))
        for id_, count in lost.items():
            problem = f"{count} vectors in {store.name + kind} are damaged or not found; call repair()"
            problems.setdefault(id_, problem)
    return problems


def repair(index: IndexCore, progress: Progress | None) -> dict[str, str]:
    """Embed the texts again if vectors are damaged, as `Index.repair` says."""
    with index.writing():
        problems = check_rows(index)
    if index.store.connection.lost_vectors or check_vectors(index, full=True):
        reindex(index, index.embedder, index.settings.sizes, progress, restart=True)
    return problems
