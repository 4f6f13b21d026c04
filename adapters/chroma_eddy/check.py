"""Documents' rows and vectors, checked and mended without embedding anything."""

from __future__ import annotations

from collections import Counter, defaultdict
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
    documents = index.document_rows(None, complete=True)
    stored = StoredDocument.by_id(documents)
    counts, strays, problems = _scanned(index, stored, dict(zip(documents.ids, documents.metadatas, strict=True)))
    # A server has no writer's lock: what another writer has changed during the scan is no damage.
    now = index.entries(sorted({*problems, *strays.values()}))
    damaged = {id_: stored[id_].digest for id_ in problems if now.get(id_) == stored[id_]}
    strays = {digest: id_ for digest, id_ in strays.items() if id_ not in now or now[id_].digest != digest}
    of_none = f"rows of a version that {index.name + DOCUMENTS} does not name; deleted"
    problems = {
        **{id_: f"{counts[digest]} {of_none}" for digest, id_ in strays.items()},
        **{id_: problems[id_] for id_ in damaged},
    }
    if problems:
        with index.transaction({id_: [digest] for id_, digest in damaged.items()}):
            for id_ in damaged:
                index.storage.collection(DOCUMENTS).update([id_], metadatas=[{DIGEST: ""}])
            index.delete_rows("digest", [*damaged.values(), *strays])
    return problems


def _scanned(
    index: Collection, stored: Mapping[str, StoredDocument], rows: Mapping[str, Mapping[str, Any]]
) -> tuple[Counter[str], dict[str, str], dict[str, str]]:
    """Count the rows of versions; return also versions that no document names, and problems of documents."""
    counts, passages = Counter[str](), defaultdict[str, list[RowBatch]](list)
    problems, strays = dict[str, str](), dict[str, str]()
    for page in index.storage.pages(MAIN, metadatas=True, documents=True):
        for at, metadata in enumerate(page.metadatas):
            digest, id_ = str(metadata.get(DIGEST, "")), str(metadata.get(DOCUMENT))
            if not digest:  # a framework's row
                continue
            counts[digest] += 1
            if id_ not in stored or stored[id_].digest != digest:
                strays[digest] = id_
                continue
            passages[digest].append(page.take([at]))
            if len(passages[digest]) == stored[id_].passages:
                problem = _difference(stored[id_], rows[id_], RowBatch.concatenate(passages.pop(digest)))
                problems |= {id_: f"{problem} in {index.name} than it was written with"} if problem else {}
    for id_, document in stored.items():
        if counts[document.digest] != document.passages:
            problems[id_] = f"{counts[document.digest]} of {document.passages} rows in {index.name}"
    return counts, strays, problems


def _difference(stored: StoredDocument, row: Mapping[str, Any], passages: RowBatch) -> str:
    """Return what of a document its passages have otherwise; "" for nothing."""
    if stored.document(join_text(in_order(passages), row)).text_digest != stored.text_digest:
        return "another text"
    same = all(user_metadata(metadata) == user_metadata(row) for metadata in passages.metadatas)
    return "" if same else "other metadata"


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
