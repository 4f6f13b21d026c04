"""Documents' rows and vectors, checked and mended without embedding anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import chromadb
import numpy as np
from chromadb.errors import InternalError

from chroma_eddy.collection import Collection
from chroma_eddy.rows import DIGEST, RowBatch, StoredDocument, fields, in_order, join_text, user_metadata
from chroma_eddy.settings import DOCUMENTS, MAIN
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.utils.arrays import Floats

_SAMPLE = 100
"""Rows of each collection whose vectors `check` compares unless it is to compare all."""
_TOLERANCE = 1e-3
"""Largest distance of a row from itself, and difference of its length from 1, by rounding."""


def check_rows(index: Collection) -> dict[str, str]:
    """Compare every row with the documents' rows and hide damaged documents, as `Index.check` says."""
    if not index.exists:
        return {}
    index.keywords.rebuild()
    documents = index.storage.get(DOCUMENTS, metadatas=True)
    rows = StoredDocument.by_id(documents)
    scan = _Scan(index, dict(zip(documents.ids, documents.metadatas, strict=True)))
    problems = {id_: problem for id_, row in rows.items() if row.digest and (problem := scan.problem(row))}
    # A server has no writer's lock: what another writer has changed during the scan is no damage.
    now = index.entries(sorted({*problems, *scan.strays.values()}))
    damaged = {id_: rows[id_].digest for id_ in problems if now.get(id_) == rows[id_]}
    problems = {id_: problems[id_] for id_ in damaged}
    strays = {digest: id_ for digest, id_ in scan.strays.items() if id_ not in now or now[id_].digest != digest}
    for digest, id_ in strays.items():
        what = f"{scan.counts[digest]} rows of a version that {index.name + DOCUMENTS} does not name; deleted"
        problems.setdefault(id_, what)
    if problems:
        with index.transaction({id_: [digest] for id_, digest in damaged.items()}):
            index.storage.update_documents({id_: {DIGEST: ""} for id_ in damaged})
            index.delete_rows("digest", [*damaged.values(), *strays])
    return problems


class _Scan:
    """What all passages of an index say of each version: their number, and whether text and metadata are right.

    Attributes:
        counts: Number of rows, by digest.
        strays: Documents of versions that no document's row names, by digest.
    """

    def __init__(self, index: Collection, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._name, self._wrong = index.name, dict[str, str]()
        self.counts, self.strays = Counter[str](), dict[str, str]()
        parts: dict[str, list[RowBatch]] = {}
        for page in index.storage.pages(MAIN, metadatas=True, documents=True):
            for at, metadata in enumerate(page.metadatas):
                digest, id_ = str(metadata.get(DIGEST, "")), str(metadata.get(DOCUMENT))
                if not digest:
                    continue
                self.counts[digest] += 1
                row = documents.get(id_, {})
                if row.get(DIGEST) != digest:
                    self.strays[digest] = id_
                    continue
                own = parts.setdefault(digest, [])
                own.append(page.take([at]))
                if len(own) == fields(row)["passages"]:
                    self._wrong[digest] = self._compared(RowBatch.concatenate(parts.pop(digest)), row)

    def _compared(self, passages: RowBatch, row: Mapping[str, Any]) -> str:
        own = StoredDocument.parse(str(row[DOCUMENT]), row)
        if own.document(join_text(in_order(passages), row)).text_digest != own.text_digest:
            return f"another text in {self._name} than it was written with"
        if any(user_metadata(metadata) != user_metadata(row) for metadata in passages.metadatas):
            return f"other metadata in {self._name} than it was written with"
        return ""

    def problem(self, row: StoredDocument) -> str:
        """The problem of a document; "" for none."""
        if self.counts[row.digest] != row.passages:
            return f"{self.counts[row.digest]} of {row.passages} rows in {self._name}"
        return self._wrong[row.digest]


def check_vectors(index: Collection, *, full: bool = False) -> None:
    """Search for rows by their own vectors; what is damaged, Chroma's files or ours, is made anew from the other.

    On a server there is no other to compare with.

    Raises:
        StorageError: Both are damaged.
    """
    storage, vectors, lost, mended = index.storage, index.storage.vectors, False, False
    if vectors is None:
        return
    for kind in (MAIN, DOCUMENTS):
        read = partial(storage.pages, kind) if full else partial(storage.sample, kind, _SAMPLE)
        for rows in read(metadatas=True):
            numbers = np.array(vectors.numbers(rows.metadatas))
            own = np.flatnonzero(numbers >= 0)
            there = own[numbers[own] < len(vectors.rows)]
            held = vectors.rows.read(numbers[there].tolist())
            lengths = np.linalg.norm(held, axis=1)
            sound = np.isfinite(lengths) & (lengths > 0)
            if index.settings.embedder["normalize"]:
                sound &= np.abs(lengths - 1) <= _TOLERANCE
            if broken := sorted({*own.tolist()} - {*there[sound].tolist()}):
                with storage.transaction():
                    vectors.copy_from_chroma(storage.collection(kind), 0, [rows.ids[at] for at in broken])
                mended = True
            lost = lost or not _are_found(storage.collection(kind), held[sound])
    if mended:
        index.keywords.rebuild()  # they name the vectors by their numbers, too
        storage.mark_written()
    if lost:
        storage.rebuild_files(force=True)
    if (lost or mended) and not full:  # a sample that is damaged says nothing of the others
        check_vectors(index, full=True)


def _are_found(collection: chromadb.Collection, vectors: Floats) -> bool:
    """Whether a search for each of some vectors, shape (vectors, dimension), finds one like it."""
    if not len(vectors):
        return True
    try:
        got = collection.query(query_embeddings=vectors, n_results=1, include=["distances"])
    except InternalError:  # rows that are in no file of vectors
        return False
    return all(near and near[0] <= _TOLERANCE for near in got["distances"] or [])
