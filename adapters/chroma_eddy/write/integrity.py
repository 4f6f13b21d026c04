"""Versions of documents, and vectors: checked, mended and removed, without embedding anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from chromadb.api.models.Collection import Collection
from chromadb.errors import InternalError

from chroma_eddy.index_core import IndexCore
from chroma_eddy.rows.documents import in_order, join_text
from chroma_eddy.rows.schema import DIGEST, DocumentRow, fields, user_metadata
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT
from chroma_eddy.storage.pages import Rows
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.utils.arrays import Floats

_SAMPLE = 100
"""Rows of each collection whose vectors `check` compares unless it is to compare all."""
_TOLERANCE = 1e-3
"""Largest distance of a row from itself, and difference of its length from 1, by rounding."""


def remove_documents(index: IndexCore, ids: Sequence[str], *, erase: bool = False) -> int:
    """Remove documents as `Index.remove` says; return the number of documents that existed."""
    if erase and index.store.connection.folder is None:
        raise InvalidParameter("erase=True needs an index in a folder: a server's files cannot be reached from here")
    if erase and index.store.with_suffix(NEXT).look_up() is not None:
        raise InvalidParameter(
            f"a reindexing of {index.name!r} is unfinished, whose files hold the texts too: finish it before you erase"
        )
    rows = index.entries(ids)
    if rows:
        with index.changing({id_: [row.digest] for id_, row in rows.items()}):
            index.store.delete(DOCUMENTS, ids=list(rows))  # first: queries find none of it, or all
            index.delete_rows("document", list(rows))
    if erase:
        index.store.erase()
        index.words.rebuild()
    return len(rows)


def check_rows(index: IndexCore) -> dict[str, str]:
    """Compare every row with the documents' rows and hide damaged documents, as `Index.check` says."""
    if not index.exists:
        return {}
    index.words.rebuild()
    documents = index.store.get(DOCUMENTS, metadatas=True)
    rows = {id_: DocumentRow.parse(id_, row) for id_, row in zip(documents.ids, documents.metadatas, strict=True)}
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
        with index.changing({id_: [digest] for id_, digest in damaged.items()}):
            index.store.update_documents({id_: {DIGEST: ""} for id_ in damaged})
            index.delete_rows("digest", [*damaged.values(), *strays])
    return problems


class _Scan:
    """What all passages of an index say of each version: their number, and whether text and metadata are right.

    Attributes:
        counts: Number of rows, by digest.
        strays: Documents of versions that no document's row names, by digest.
    """

    def __init__(self, index: IndexCore, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._name, self._wrong = index.name, dict[str, str]()
        self.counts, self.strays = Counter[str](), dict[str, str]()
        parts: dict[str, list[Rows]] = {}
        for page in index.store.pages(MAIN, metadatas=True, documents=True):
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
                    self._wrong[digest] = self._compared(Rows.concatenate(parts.pop(digest)), row)

    def _compared(self, passages: Rows, row: Mapping[str, Any]) -> str:
        own = DocumentRow.parse(str(row[DOCUMENT]), row)
        if own.document(join_text(in_order(passages), row)).text_digest != own.text_digest:
            return f"another text in {self._name} than it was written with"
        if any(user_metadata(metadata) != user_metadata(row) for metadata in passages.metadatas):
            return f"other metadata in {self._name} than it was written with"
        return ""

    def problem(self, row: DocumentRow) -> str:
        """The problem of a document; "" for none."""
        if self.counts[row.digest] != row.passages:
            return f"{self.counts[row.digest]} of {row.passages} rows in {self._name}"
        return self._wrong[row.digest]


def check_vectors(index: IndexCore, *, full: bool = False) -> None:
    """Search for rows by their own vectors; what is damaged, Chroma's files or ours, is made anew from the other.

    On a server there is no other to compare with.

    Raises:
        StorageError: Both are damaged.
    """
    store, vectors, lost, mended = index.store, index.store.vectors, False, False
    if vectors is None:
        return
    for kind in (MAIN, DOCUMENTS):
        read = partial(store.pages, kind) if full else partial(store.sample, kind, _SAMPLE)
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
                with store.changing():
                    vectors.rescue(store.collection(kind), 0, [rows.ids[at] for at in broken])
                mended = True
            lost = lost or not _are_found(store.collection(kind), held[sound])
    if mended:
        index.words.rebuild()  # they name the vectors by their numbers, too
        store.mark_written()
    if lost:
        store.remake(also_whole=True)
    if (lost or mended) and not full:  # a sample that is damaged says nothing of the others
        check_vectors(index, full=True)


def _are_found(collection: Collection, vectors: Floats) -> bool:
    """Whether a search for each of some vectors, shape (vectors, dimension), finds one like it."""
    if not len(vectors):
        return True
    try:
        got = collection.query(query_embeddings=vectors, n_results=1, include=["distances"])
    except InternalError:  # rows that are in no file of vectors
        return False
    return all(near and near[0] <= _TOLERANCE for near in got["distances"] or [])
