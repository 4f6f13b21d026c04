"""Versions of documents: commit, check and remove them, without embedding anything."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from chroma_eddy.index_core import FIELDS, IndexCore
from chroma_eddy.rows.documents import join_text
from chroma_eddy.rows.schema import DIGEST, PENDING, DocumentRow, user_metadata
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT, RAW, SENTENCES
from chroma_eddy.storage.pages import PAGE_SIZE, slices
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import DOCUMENT


def commit_versions(index: IndexCore, rows: Sequence[DocumentRow], *, mark_written: bool = False) -> None:
    """Delete the rows of the versions that queries are not to find: the `pending` of documents' rows.

    `mark_written` tells readers of the change before `pending` is emptied: a reader who finds it empty has been told.
    """
    _delete_rows(index, "digest", [row.pending for row in rows])
    if mark_written:
        index.store.mark_written()
    index.store.update_documents({row.id: {PENDING: ""} for row in rows if row.digest})


def _delete_rows(index: IndexCore, key: Literal["document", "digest"], values: Sequence[str]) -> int:
    """Delete rows of documents or of versions; return their number. Chroma looks through all rows for each batch."""
    count = index.delete_rows(key, values)
    for batch in slices(len(values), PAGE_SIZE):
        where = {FIELDS[key]: {"$in": list(values[batch])}}
        count += sum(index.store.delete(kind, where=where) for kind in (SENTENCES, RAW))
    return count


def _commit_pending(index: IndexCore, rows: Iterable[DocumentRow]) -> None:
    """Commit documents with an interrupted write whose found version is about to be hidden: a row hides only one."""
    commit_versions(index, [row for row in rows if row.digest and row.pending])


def check_rows(index: IndexCore) -> dict[str, str]:
    """Compare every row with the documents' rows and hide damaged documents, as `Index.check` says."""
    store = index.store
    index.words.rebuild()
    rows, scan = index.entries(), IntegrityScan(index)
    problems = {id_: problem for id_, row in rows.items() if row.digest and (problem := scan.problem(row))}
    known = {digest for row in rows.values() for digest in (row.digest, row.pending)}
    strays = {digest: id_ for digest, id_ in scan.documents.items() if digest not in known}
    # A server has no writer's lock: what another writer has changed during the scan is no damage.
    now = index.entries(sorted({*problems, *strays.values()}))
    problems = {id_: problem for id_, problem in problems.items() if now.get(id_) == rows[id_]}
    _commit_pending(index, (rows[id_] for id_ in problems))
    store.update_documents({id_: {DIGEST: "", PENDING: rows[id_].digest} for id_ in problems})
    for digest, id_ in strays.items():
        row = now.get(id_)
        if row is None or digest not in (row.digest, row.pending):
            count = _delete_rows(index, "digest", [digest])
            problems.setdefault(id_, f"{count} rows of a version that {store.name + DOCUMENTS} does not name; deleted")
    if problems:
        store.mark_written()
    return problems


class IntegrityScan:
    """Row counts, texts and metadata of each version, read from all rows of an index; `documents` by digest."""

    def __init__(self, index: IndexCore) -> None:
        self._store, self._settings, self._keeps_raw = index.store, index.settings, index.keeps_raw
        self._counts = {kind: Counter[str]() for kind in (MAIN, SENTENCES, RAW)}
        self._metadata: dict[str, list[dict[str, Any]]] = {}
        self._texts: dict[str, str] = {}
        self.documents: dict[str, str] = {}
        documents = self._store.get(DOCUMENTS, metadatas=True).metadatas if index.exists else []
        versions = {row[DIGEST]: row for row in documents if row[DIGEST]}
        passages: dict[str, list[tuple[dict[str, Any], str]]] = {}
        for kind, counts in self._counts.items():
            if self._store.find(kind) is None:
                continue
            for rows in self._store.pages(kind, metadatas=True, documents=kind == MAIN):
                for number, metadata in enumerate(rows.metadatas):
                    if not metadata.get(DIGEST):
                        continue
                    digest = str(metadata[DIGEST])
                    counts[digest] += 1
                    self.documents[digest] = str(metadata[DOCUMENT])
                    if kind == MAIN and digest in versions:
                        passages.setdefault(digest, []).append((metadata, rows.texts[number]))
                        if counts[digest] == versions[digest]["eddy_passages"]:
                            complete = passages.pop(digest)
                            text = join_text(complete, versions[digest])
                            self._texts[digest] = hashlib.sha256(text.encode()).hexdigest()[:32]
                            self._metadata[digest] = [user_metadata(passage) for passage, _ in complete]

    def problem(self, row: DocumentRow) -> str:
        """The problem of a document; "" for none."""
        sentences = row.sentences if self._settings.sentence_vectors else 0
        raw = 1 + row.passages + sentences if self._keeps_raw else 0
        for (kind, counts), expected in zip(self._counts.items(), (row.passages, sentences, raw), strict=True):
            if counts[row.digest] != expected:
                return f"{counts[row.digest]} of {expected} rows in {self._store.name + kind}"
        if self._texts[row.digest] != row.text_digest:
            return f"another text in {self._store.name} than it was written with"
        if any(metadata != row.metadata for metadata in self._metadata[row.digest]):
            return f"other metadata in {self._store.name} than it was written with"
        return ""


def remove_documents(index: IndexCore, ids: Sequence[str], *, erase: bool = False) -> int:
    """Remove documents as `Index.remove` says; return the number of documents that existed."""
    if erase and index.store.connection.folder is None:
        raise InvalidParameter("erase=True needs an index in a folder: a server's files cannot be reached from here")
    if erase and index.store.with_suffix(NEXT).find() is not None:
        raise InvalidParameter(
            f"a reindexing of {index.name!r} is unfinished, whose files hold the texts too: finish it before you erase"
        )
    rows = index.entries(ids)
    _commit_pending(index, rows.values())
    # Hide them first: an interrupted removal leaves incomplete documents, which are written again if they come back.
    index.store.update_documents({id_: {DIGEST: "", PENDING: row.digest or row.pending} for id_, row in rows.items()})
    _delete_rows(index, "document", list(rows))
    index.store.delete(DOCUMENTS, ids=list(rows))
    if rows:
        index.store.mark_written()
    if erase:
        index.store.erase()
        index.words.rebuild()
    return len(rows)
