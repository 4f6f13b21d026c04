"""Documents' rows and vectors, checked and mended without embedding anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import chromadb
import numpy as np
from chromadb.errors import InternalError

from chroma_eddy.collection import Collection
from chroma_eddy.rows import (
    DIGEST,
    DOCUMENTS,
    MAIN,
    RowBatch,
    StoredDocument,
    fields,
    in_order,
    join_text,
    user_metadata,
)
from chroma_eddy.storage import vector_numbers
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.utils.arrays import Floats

_SAMPLE = 100  # rows of each collection whose vectors `check` compares unless it is to compare all
_TOLERANCE = 1e-3  # largest distance of a row from itself, and difference of its length from 1, by rounding


def check_rows(index: Collection) -> dict[str, str]:
    """Compare every row with the documents' rows and hide damaged documents, as `Index.check` says."""
    if not index.exists:
        return {}
    index.keywords.rebuild()
    documents = index.storage.get(DOCUMENTS, metadatas=True)
    stored = StoredDocument.by_id(documents)
    scan = _Scan(index, dict(zip(documents.ids, documents.metadatas, strict=True)))
    complete = (document for document in stored.values() if document.digest)
    problems = {document.id: problem for document in complete if (problem := scan.problem(document))}
    # A server has no writer's lock: what another writer has changed during the scan is no damage.
    now = index.entries(sorted({*problems, *scan.strays.values()}))
    damaged = {id_: stored[id_].digest for id_ in problems if now.get(id_) == stored[id_]}
    strays = {digest: id_ for digest, id_ in scan.strays.items() if id_ not in now or now[id_].digest != digest}
    of_none = f"rows of a version that {index.name + DOCUMENTS} does not name; deleted"
    problems = {
        **{id_: f"{scan.counts[digest]} {of_none}" for digest, id_ in strays.items()},
        **{id_: problems[id_] for id_ in damaged},
    }
    if problems:
        with index.transaction({id_: [digest] for id_, digest in damaged.items()}):
            index.storage.update_documents({id_: {DIGEST: ""} for id_ in damaged})
            index.delete_rows("digest", [*damaged.values(), *strays])
    return problems


class _Scan:
    """What all passages say of versions: `counts` of rows, `strays` that no document's row names, and what is wrong."""

    def __init__(self, index: Collection, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._name, self._wrong = index.name, dict[str, str]()
        self.counts, self.strays = Counter[str](), dict[str, str]()
        partial_versions: dict[str, list[RowBatch]] = {}
        for page in index.storage.pages(MAIN, metadatas=True, documents=True):
            for at, metadata in enumerate(page.metadatas):
                digest, id_ = str(metadata.get(DIGEST, "")), str(metadata.get(DOCUMENT))
                if not digest:
                    continue
                self.counts[digest] += 1
                document = documents.get(id_, {})
                if document.get(DIGEST) != digest:
                    self.strays[digest] = id_
                    continue
                passages = partial_versions.setdefault(digest, [])
                passages.append(page.take([at]))
                if len(passages) == fields(document)["passages"]:
                    self._wrong[digest] = self._compared(RowBatch.concatenate(partial_versions.pop(digest)), document)

    def _compared(self, passages: RowBatch, document: Mapping[str, Any]) -> str:
        stored = StoredDocument.parse(str(document[DOCUMENT]), document)
        if stored.document(join_text(in_order(passages), document)).text_digest != stored.text_digest:
            return f"another text in {self._name} than it was written with"
        if any(user_metadata(metadata) != user_metadata(document) for metadata in passages.metadatas):
            return f"other metadata in {self._name} than it was written with"
        return ""

    def problem(self, document: StoredDocument) -> str:
        """Return the problem of a document; "" for none."""
        if self.counts[document.digest] != document.passages:
            return f"{self.counts[document.digest]} of {document.passages} rows in {self._name}"
        return self._wrong[document.digest]


def check_vectors(index: Collection, *, full: bool = False) -> None:
    """Search for rows by their own vectors; make what is damaged, Chroma's files or ours, anew from the other.

    On a server there is no other to compare with. StorageError if both are damaged.
    """
    storage, vectors, lost, mended = index.storage, index.storage.vectors, False, False
    if vectors is None:
        return
    for kind in (MAIN, DOCUMENTS):
        for rows in storage.pages(kind, metadatas=True) if full else storage.sample(kind, _SAMPLE):
            numbers = np.array(vector_numbers(rows))
            numbered = np.flatnonzero(numbers >= 0)
            readable = numbered[numbers[numbered] < len(vectors.rows)]
            stored = vectors.rows.read(numbers[readable].tolist())
            lengths = np.linalg.norm(stored, axis=1)
            sound = np.isfinite(lengths) & (lengths > 0)
            if index.settings.embedder["normalize"]:
                sound &= np.abs(lengths - 1) <= _TOLERANCE
            if broken := sorted({*numbered.tolist()} - {*readable[sound].tolist()}):
                with storage.transaction():
                    vectors.copy_from_chroma(storage.collection(kind), 0, [rows.ids[at] for at in broken])
                mended = True
            lost = lost or not _are_found(storage.collection(kind), stored[sound])
    if mended:
        index.keywords.rebuild()  # they name the vectors by their numbers, too
        storage.mark_written()
    if lost:
        storage.rebuild_files(force=True)
    if (lost or mended) and not full:  # a sample that is damaged says nothing of the others
        check_vectors(index, full=True)


def _are_found(collection: chromadb.Collection, vectors: Floats) -> bool:
    """Return whether a search for each of some vectors, shape (vectors, dimension), finds one like it."""
    if not len(vectors):
        return True
    try:
        got = collection.query(query_embeddings=vectors, n_results=1, include=["distances"])
    except InternalError:  # rows that are in no file of vectors
        return False
    return all(near and near[0] <= _TOLERANCE for near in got["distances"] or [])
